//! Memory whose size a user or a peer chooses: where there is none, the caller gets an error, and the process
//! goes on.

use std::fmt;
use std::io;

/// This process has no memory for so many more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory {
    /// The number of bytes.
    pub bytes: usize,
}

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "this process has no memory for {} more bytes: ask for less, or raise its limit (`ulimit -v`, the \
             system's vm.overcommit_memory, its container's memory)",
            self.bytes
        )
    }
}

impl std::error::Error for NoMemory {}

impl From<NoMemory> for io::Error {
    fn from(why: NoMemory) -> io::Error {
        io::Error::new(io::ErrorKind::OutOfMemory, why)
    }
}

/// Makes room for `more` elements in a buffer, which grows to twice its size at least.
///
/// # Errors
/// When this process has no memory for them.
#[inline]
pub fn reserve<T>(buffer: &mut Vec<T>, more: usize) -> Result<(), NoMemory> {
    buffer.try_reserve(more).map_err(|_| no_memory::<T>(more))
}

/// Makes room for exactly `more` elements in a buffer.
///
/// # Errors
/// When this process has no memory for them.
pub fn reserve_exact<T>(buffer: &mut Vec<T>, more: usize) -> Result<(), NoMemory> {
    buffer.try_reserve_exact(more).map_err(|_| no_memory::<T>(more))
}

/// Returns `len` bytes, all zeros.
///
/// # Errors
/// When this process has no memory for them.
pub fn zeroed(len: usize) -> Result<Vec<u8>, NoMemory> {
    let mut bytes = Vec::new();
    reserve_exact(&mut bytes, len)?;
    bytes.resize(len, 0);
    Ok(bytes)
}

/// Returns a copy of `bytes`.
///
/// # Errors
/// When this process has no memory for it.
pub fn copied(bytes: &[u8]) -> Result<Vec<u8>, NoMemory> {
    let mut copy = Vec::new();
    reserve_exact(&mut copy, bytes.len())?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

#[cold]
fn no_memory<T>(more: usize) -> NoMemory {
    NoMemory { bytes: more.saturating_mul(size_of::<T>()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_an_error_that_says_how_much_was_asked_for() {
        let most = isize::MAX as usize;
        assert_eq!(zeroed(most), Err(NoMemory { bytes: most }));
        assert_eq!(reserve(&mut Vec::<u64>::new(), most), Err(NoMemory { bytes: usize::MAX }));
        assert_eq!(zeroed(3), Ok(vec![0; 3]));
        assert_eq!(copied(&[1, 2]), Ok(vec![1, 2]));
        let why = io::Error::from(NoMemory { bytes: 77 });
        assert!(why.to_string().contains("77 more bytes") && why.kind() == io::ErrorKind::OutOfMemory);
    }
}
