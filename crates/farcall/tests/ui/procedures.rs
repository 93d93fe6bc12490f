//! Names, numbers and attributes of procedures.

#[farcall::interface]
pub trait Names {
    fn start(&self) -> farcall::Result<()>;
    fn within(&self) -> farcall::Result<()>;
    fn multi(&self) -> farcall::Result<()>;
    fn clone(&self) -> farcall::Result<()>;
}

#[farcall::interface]
pub trait Numbers {
    #[procedure(2)]
    fn second(&self) -> farcall::Result<()>;
    #[procedure(1)]
    fn first(&self) -> farcall::Result<()>;
    fn next(&self) -> farcall::Result<()>;
    #[procedure(0)]
    fn null(&self) -> farcall::Result<()>;
    #[procedure(0xffff_0000)]
    fn reserved(&self) -> farcall::Result<()>;
    #[procedure(-1)]
    fn negative(&self) -> farcall::Result<()>;
}

#[farcall::interface]
pub trait Attributes {
    #[deadline(seconds = 1)]
    fn seconds(&self) -> farcall::Result<()>;
    #[deadline(ms = 0)]
    fn at_once(&self) -> farcall::Result<()>;
    #[idempotent(yes)]
    fn idempotent(&self) -> farcall::Result<()>;
    #[cfg(unix)]
    fn conditional(&self) -> farcall::Result<()>;
    #[inline]
    fn inlined(&self) -> farcall::Result<()>;
}

fn main() {}
