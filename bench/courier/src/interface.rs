//! The measured interface, which has Larus' eight test programs as procedures, and its server.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The test programs: an array of LONG INTEGER, without a result (`send`) or with one (`ask`).
#[farcall::interface(program = 0x2000_0083, version = 1)]
pub trait Tests {
    #[procedure(0)]
    fn send_0(&self) -> farcall::Result<()>;
    #[procedure(1)]
    fn ask_0(&self) -> farcall::Result<i32>;
    #[procedure(2)]
    fn send_1(&self, words: &[i32; 1]) -> farcall::Result<()>;
    #[procedure(3)]
    fn ask_1(&self, words: &[i32; 1]) -> farcall::Result<i32>;
    #[procedure(4)]
    fn send_100(&self, words: &[i32; 100]) -> farcall::Result<()>;
    #[procedure(5)]
    fn ask_100(&self, words: &[i32; 100]) -> farcall::Result<i32>;
    #[procedure(6)]
    fn send_1000(&self, words: &[i32; 1000]) -> farcall::Result<()>;
    #[procedure(7)]
    fn ask_1000(&self, words: &[i32; 1000]) -> farcall::Result<i32>;
}

/// One of the test programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Test {
    pub size: Size,
    pub has_result: bool,
}

/// The size of the argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Size {
    Zero,
    One,
    Hundred,
    Thousand,
}

/// All test programs, in the order of the paper's tables.
pub const TESTS: [Test; 8] = {
    const fn both(size: Size) -> [Test; 2] {
        [Test { size, has_result: false }, Test { size, has_result: true }]
    }
    let [zero, zero_asked] = both(Size::Zero);
    let [one, one_asked] = both(Size::One);
    let [hundred, hundred_asked] = both(Size::Hundred);
    let [thousand, thousand_asked] = both(Size::Thousand);
    [zero, zero_asked, one, one_asked, hundred, hundred_asked, thousand, thousand_asked]
};

/// The bytes of the result.
pub const RESULT_BYTES: usize = 4;

impl Test {
    /// Returns the bytes of the argument.
    pub fn bytes(self) -> usize {
        match self.size {
            Size::Zero => 0,
            Size::One => 4,
            Size::Hundred => 400,
            Size::Thousand => 4000,
        }
    }

    /// Returns the procedure's number.
    pub fn procedure(self) -> u16 {
        let first = match self.size {
            Size::Zero => 0,
            Size::One => 2,
            Size::Hundred => 4,
            Size::Thousand => 6,
        };
        first + u16::from(self.has_result)
    }

    /// Returns the test program with this number, if there is one.
    pub fn numbered(procedure: u16) -> Option<Test> {
        TESTS.get(usize::from(procedure)).copied()
    }

    /// Returns the test's place in the paper's tables.
    pub fn row(self) -> usize {
        self.procedure().into()
    }
}

/// The arguments of all tests.
pub struct Arguments {
    pub one: [i32; 1],
    pub hundred: [i32; 100],
    pub thousand: [i32; 1000],
}

impl Default for Arguments {
    fn default() -> Arguments {
        Arguments { one: [7], hundred: [7; 100], thousand: [7; 1000] }
    }
}

/// The server: counts the calls, and looks at the last word of each argument.
#[derive(Clone, Default)]
pub struct Server {
    /// How many calls were executed.
    pub executed: Arc<AtomicU64>,
}

impl Server {
    fn execute(&self, words: &[i32]) -> farcall::Result<i32> {
        self.executed.fetch_add(1, Ordering::Relaxed);
        Ok(black_box(words.last().copied().unwrap_or_default()))
    }
}

impl Tests for Server {
    fn send_0(&self) -> farcall::Result<()> {
        self.execute(&[]).map(drop)
    }

    fn ask_0(&self) -> farcall::Result<i32> {
        self.execute(&[])
    }

    fn send_1(&self, words: &[i32; 1]) -> farcall::Result<()> {
        self.execute(words).map(drop)
    }

    fn ask_1(&self, words: &[i32; 1]) -> farcall::Result<i32> {
        self.execute(words)
    }

    fn send_100(&self, words: &[i32; 100]) -> farcall::Result<()> {
        self.execute(words).map(drop)
    }

    fn ask_100(&self, words: &[i32; 100]) -> farcall::Result<i32> {
        self.execute(words)
    }

    fn send_1000(&self, words: &[i32; 1000]) -> farcall::Result<()> {
        self.execute(words).map(drop)
    }

    fn ask_1000(&self, words: &[i32; 1000]) -> farcall::Result<i32> {
        self.execute(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_stand_where_their_numbers_say() {
        for (row, test) in TESTS.iter().enumerate() {
            assert_eq!(test.row(), row);
            assert_eq!(Test::numbered(test.procedure()), Some(*test));
        }
        assert_eq!(Test::numbered(8), None);
    }
}
