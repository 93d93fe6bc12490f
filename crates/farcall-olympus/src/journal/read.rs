//! Reads journals. A journal may be damaged, so lines are bounded, and each fault names its line.

use std::fmt;
use std::io::{self, BufRead, Read as _};
use std::path::Path;

use farcall_base::work;

use super::record::Record;

/// The most bytes of a line of a journal.
pub const MAX_LINE_BYTES: u64 = 256 << 20;

/// The reason why a journal cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged(String);

/// Reads a journal, and passes each record on. Returns how many bytes its whole lines have. A last line
/// without its end is ignored: the process was killed while it wrote the line.
///
/// # Errors
/// When the bytes cannot be read, a line is longer than [`MAX_LINE_BYTES`], it is no record, or `each` fails.
pub fn read(
    mut from: impl BufRead,
    mut each: impl FnMut(Record) -> Result<(), Damaged>,
) -> Result<u64, Damaged> {
    let (mut line, mut whole) = (Vec::new(), 0);
    for number in 1_u64.. {
        line.clear();
        let read = (&mut from).take(MAX_LINE_BYTES + 1).read_until(b'\n', &mut line);
        let read = read.map_err(|why| Damaged(format!("the journal cannot be read: {why}")))? as u64;
        if read > MAX_LINE_BYTES {
            return Err(Damaged(format!("line {number} is longer than {MAX_LINE_BYTES} bytes")));
        }
        if line.last() != Some(&b'\n') {
            break;
        }
        work::steps(1 + line.len() / 16);
        let record = serde_json::from_slice(&line);
        let record =
            record.map_err(|why| Damaged(format!("line {number} of the journal is no record: {why}")))?;
        each(record).map_err(|Damaged(why)| Damaged(format!("line {number} of the journal: {why}")))?;
        whole += read;
    }
    Ok(whole)
}

impl Damaged {
    pub(super) fn unreadable(path: &Path, why: io::Error) -> Damaged {
        Damaged(format!("{}: {why}", path.display()))
    }

    pub(super) fn in_use(path: &Path) -> Damaged {
        Damaged(format!("{}: another process writes this journal", path.display()))
    }

    /// Returns the fault of a journal whose records contradict one another.
    pub(crate) fn contradiction(why: impl Into<String>) -> Damaged {
        Damaged(why.into())
    }
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Damaged {}
