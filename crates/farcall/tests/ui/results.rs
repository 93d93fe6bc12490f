//! Results and exceptions that cannot be sent.

#[farcall::interface]
pub trait Results {
    fn nothing(&self);
    fn plain(&self) -> u64;
    fn option(&self) -> Option<u64>;
    fn bare(&self) -> farcall::Result;
    fn reference(&self) -> farcall::Result<&str>;
    fn lifetime(&self) -> farcall::Result<std::borrow::Cow<'static, str>>;
    fn size(&self) -> farcall::Result<Vec<usize>>;
    fn exception(&self) -> farcall::Result<(), &'static str>;
    fn future(&self) -> farcall::Result<impl std::future::Future>;
    fn three(&self) -> farcall::Result<u8, u8, u8>;
}

fn main() {}
