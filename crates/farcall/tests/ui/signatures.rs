//! Receivers, qualifiers and parameters of procedures.

#[farcall::interface]
pub trait Receivers {
    fn none() -> farcall::Result<()>;
    fn exclusive(&mut self) -> farcall::Result<()>;
    fn value(self) -> farcall::Result<()>;
    fn boxed(self: Box<Self>) -> farcall::Result<()>;
    fn lifetime(&'static self) -> farcall::Result<()>;
}

#[farcall::interface]
pub trait Qualifiers {
    async fn asynchronous(&self) -> farcall::Result<()>;
    unsafe fn dangerous(&self) -> farcall::Result<()>;
    extern "C" fn foreign(&self) -> farcall::Result<()>;
}

#[farcall::interface]
pub trait Parameters {
    fn generic<T>(&self, value: T) -> farcall::Result<()>;
    fn lifetime<'a>(&self, value: &'a str) -> farcall::Result<()>;
    fn bound(&self) -> farcall::Result<()>
    where
        Self: Sized;
}

fn main() {}
