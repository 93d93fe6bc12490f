//! Arguments that cannot be sent.

#[farcall::interface]
pub trait References {
    fn exclusive(&self, value: &mut u32) -> farcall::Result<()>;
    fn lifetime(&self, value: &'static str) -> farcall::Result<()>;
    fn inside(&self, value: Option<&str>) -> farcall::Result<()>;
    fn twice(&self, value: &&u32) -> farcall::Result<()>;
    fn of_slices(&self, value: &[&str]) -> farcall::Result<()>;
    fn boxed(&self, value: Box<str>) -> farcall::Result<()>;
    fn borrowing(&self, value: std::borrow::Cow<'_, str>) -> farcall::Result<()>;
}

#[farcall::interface]
pub trait Kinds {
    fn pointer(&self, value: *const u8) -> farcall::Result<()>;
    fn function(&self, value: fn(u32) -> u32) -> farcall::Result<()>;
    fn closure(&self, value: impl Fn(u32)) -> farcall::Result<()>;
    fn object(&self, value: &dyn std::fmt::Debug) -> farcall::Result<()>;
    fn size(&self, value: usize) -> farcall::Result<()>;
    fn size_inside(&self, value: std::collections::HashMap<String, isize>) -> farcall::Result<()>;
    fn itself(&self, value: Self) -> farcall::Result<()>;
    fn guessed(&self, value: Vec<_>) -> farcall::Result<()>;
}

#[farcall::interface]
pub trait Patterns {
    fn taken_apart(&self, (a, b): (u32, u32)) -> farcall::Result<()>;
    fn unnamed(&self, _: u32) -> farcall::Result<()>;
    fn own(&self, __arguments: u32) -> farcall::Result<()>;
    fn attribute(&self, #[cfg(unix)] value: String) -> farcall::Result<()>;
}

fn main() {}
