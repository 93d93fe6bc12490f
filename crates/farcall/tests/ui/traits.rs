//! Traits that the macro `interface` refuses.

#[farcall::interface]
pub trait Generic<T> {}

#[farcall::interface]
pub unsafe trait Unsafe {}

#[farcall::interface]
pub trait Super: Send + 'static + std::fmt::Debug {}

#[farcall::interface]
pub trait Items {
    const LIMIT: u32;
    type Key;
    fn with_body(&self) -> farcall::Result<()> {
        Ok(())
    }
}

#[farcall::interface]
pub struct NotATrait;

#[farcall::interface(speed = 3)]
pub trait Options {}

#[farcall::interface(name = "two words")]
pub trait Name {}

fn main() {}
