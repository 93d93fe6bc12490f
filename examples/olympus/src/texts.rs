//! The worker that cleans texts before others count and grade them.

/// Cleans texts.
#[farcall::interface]
pub trait Cleaner {
    /// Returns the text with one space between words.
    #[idempotent]
    fn clean(&self, text: &str) -> farcall::Result<String>;
}

/// A cleaner of this process.
pub struct Words;

impl Cleaner for Words {
    fn clean(&self, text: &str) -> farcall::Result<String> {
        Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}
