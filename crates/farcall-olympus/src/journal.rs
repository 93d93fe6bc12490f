//! The record of a run: what began and what ended, as lines of JSON in a file that only grows.
//!
//! The start of a call is written before the call is sent, and the end of a firing before the tokens that it
//! puts are used. So a run whose interpreter was killed can go on: a call that has a start and no end may
//! have run, and all else is known. Lines are handed to the operating system, so they outlive the process. To
//! outlive the machine too, see [`Journal::synced`].

mod read;
mod record;

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Write as _};
use std::path::{Path, PathBuf};

use crate::interpreter::{Ended, FiringId};
pub use read::{Damaged, MAX_LINE_BYTES, read};
pub use record::{Record, VERSION};

/// Where a journal's bytes are kept.
pub trait Storage: Send {
    /// Appends bytes. When this returns, they outlive the process.
    ///
    /// # Errors
    /// When the bytes cannot be kept. Some of them may have been.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Has the storage itself, and the bytes of each later append, outlive the machine, if the storage can.
    ///
    /// # Errors
    /// When this fails.
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A journal that is being written.
///
/// ```
/// use farcall_olympus::journal::{Journal, Record};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = std::env::temp_dir().join(format!("journal-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory)?;
/// # let path = directory.join("run.journal");
/// let mut journal = Journal::create(&path)?;
/// journal.add(&Record::Call { firing: 1, again: false });
/// journal.flush()?;
/// drop(journal);
/// let mut records = Vec::new();
/// Journal::open(&path, |record| Ok(records.push(record)))?;
/// assert_eq!(records, [Record::Call { firing: 1, again: false }]);
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok(())
/// # }
/// ```
pub struct Journal {
    storage: Box<dyn Storage>,
    /// The lines that were not handed to the storage yet.
    unwritten: Vec<u8>,
    /// Why a flush has failed. The storage may end with a part of a line, so nothing may follow.
    failed: Option<String>,
}

impl Journal {
    /// Makes a journal in a new file.
    ///
    /// # Errors
    /// When there is such a file, or it cannot be made.
    pub fn create(path: &Path) -> Result<Journal, Damaged> {
        let created = OpenOptions::new().append(true).create_new(true).open(path);
        let file = created.map_err(|why| Damaged::unreadable(path, why))?;
        file.try_lock().map_err(|_| Damaged::in_use(path))?;
        Ok(Journal::over(InFile { file, path: path.to_owned(), synced: false }))
    }

    /// Opens the journal in a file, to add to it. Passes each record that it has to `each`, whose first error
    /// ends this. A last line that was written in part, because the process was killed meanwhile, is removed.
    ///
    /// # Errors
    /// When the file cannot be read or written, another process has it open, or a line of it is damaged.
    pub fn open(path: &Path, each: impl FnMut(Record) -> Result<(), Damaged>) -> Result<Journal, Damaged> {
        let opened = OpenOptions::new().read(true).append(true).open(path);
        let file = opened.map_err(|why| Damaged::unreadable(path, why))?;
        file.try_lock().map_err(|_| Damaged::in_use(path))?;
        let whole = read(BufReader::new(&file), each)?;
        file.set_len(whole).map_err(|why| Damaged::unreadable(path, why))?;
        Ok(Journal::over(InFile { file, path: path.to_owned(), synced: false }))
    }

    /// Has each flush of a journal in a file wait until the disk has the bytes, so that they outlive a loss
    /// of power too. Waits until the disk has the file's name.
    ///
    /// # Errors
    /// When the directory cannot be synchronized.
    pub fn synced(mut self) -> io::Result<Journal> {
        self.storage.sync()?;
        Ok(self)
    }

    /// Returns a journal whose bytes are appended to this storage.
    pub fn over(storage: impl Storage + 'static) -> Journal {
        Journal { storage: Box::new(storage), unwritten: Vec::new(), failed: None }
    }

    /// Adds a record, which [`flush`](Journal::flush) writes.
    pub fn add(&mut self, record: &Record) {
        record.write(&mut self.unwritten);
    }

    /// Adds a [`Record::End`].
    pub fn add_end(&mut self, firing: FiringId, ended: &Ended) {
        Record::write_end(firing.0, ended, &mut self.unwritten);
    }

    /// Writes the records that were added.
    ///
    /// # Errors
    /// When they cannot be kept. Nothing that depends on the records may be done then, and each later flush
    /// fails too.
    pub fn flush(&mut self) -> io::Result<()> {
        if let Some(why) = &self.failed {
            return Err(io::Error::other(why.clone()));
        }
        if self.unwritten.is_empty() {
            return Ok(());
        }
        let written = self.storage.append(&self.unwritten);
        self.unwritten.clear();
        self.unwritten.shrink_to(MAX_KEPT_BYTES);
        self.failed = written.as_ref().err().map(io::Error::to_string);
        written
    }
}

/// The largest buffer that is kept for the next records.
const MAX_KEPT_BYTES: usize = 1 << 20;

struct InFile {
    file: File,
    path: PathBuf,
    synced: bool,
}

impl Storage for InFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        if self.synced { self.file.sync_data() } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.synced = true;
        self.file.sync_all()?;
        sync_name(&self.path)
    }
}

/// Has a file's name outlive the machine: on Unix a directory is synchronized apart from its files.
#[cfg(unix)]
fn sync_name(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(not(unix))]
fn sync_name(_: &Path) -> io::Result<()> {
    Ok(())
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("unwritten", &self.unwritten.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Vec<Record> {
        vec![
            Record::Begin { firing: 1, node: 0, now: 7, calls: true, again: true },
            Record::End { firing: 1, ended: Ended::Returned("ab\n".into()) },
            Record::Put { place: 0, tokens: vec![serde_json::json!({ "x": [1, 2] })] },
        ]
    }

    fn text() -> Vec<u8> {
        let mut text = Vec::new();
        some().iter().for_each(|record| record.write(&mut text));
        text
    }

    fn records(text: &[u8]) -> Result<(Vec<Record>, u64), Damaged> {
        let mut records = Vec::new();
        let whole = read(text, |record| {
            records.push(record);
            Ok(())
        })?;
        Ok((records, whole))
    }

    #[test]
    fn what_was_written_is_read_back() {
        assert_eq!(records(&text()).unwrap(), (some(), text().len() as u64));
    }

    #[test]
    fn a_last_line_in_part_is_ignored_wherever_it_is_torn() {
        let text = text();
        let lines: Vec<usize> = (0..text.len()).filter(|at| text[*at] == b'\n').map(|at| at + 1).collect();
        for end in 0..text.len() {
            let whole = lines.iter().copied().filter(|line| *line <= end).count();
            let kept = if whole == 0 { 0 } else { lines[whole - 1] };
            assert_eq!(records(&text[..end]).unwrap(), (some()[..whole].to_vec(), kept as u64), "{end}");
        }
    }

    #[test]
    fn a_damaged_line_is_named() {
        let mut text = text();
        let second = text.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        text[second] = b'x';
        assert!(records(&text).unwrap_err().to_string().contains("line 2"));
        let long = vec![b' '; MAX_LINE_BYTES as usize + 1];
        assert!(records(&long).unwrap_err().to_string().contains("longer"));
    }

    #[test]
    fn a_torn_line_is_removed_before_more_is_written() {
        let path = std::env::temp_dir().join(format!("olympus-torn-{}", std::process::id()));
        let mut torn = text();
        torn.extend(b"{\"begin\":{\"fir");
        std::fs::write(&path, torn).unwrap();
        let open = || {
            let mut records = Vec::new();
            let keep = |record| {
                records.push(record);
                Ok(())
            };
            Journal::open(&path, keep).map(|journal| (journal, records))
        };
        let (mut journal, records) = open().unwrap();
        assert_eq!(records, some());
        assert!(open().unwrap_err().to_string().contains("another process"));
        assert!(Journal::create(&path).is_err());
        journal.add(&Record::Call { firing: 2, again: true });
        journal.flush().unwrap();
        drop(journal);
        let (_, records) = open().unwrap();
        assert_eq!(records.last(), Some(&Record::Call { firing: 2, again: true }));
        assert_eq!(records.len(), some().len() + 1);
        std::fs::remove_file(&path).unwrap();
    }
}
