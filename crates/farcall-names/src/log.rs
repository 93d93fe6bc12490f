//! The content of a registry's file: entries, and behind them the changes since they were written. A change
//! costs one line at the end of the file, and reading it costs that line.
//!
//! ```text
//! farcall-names 2 57 1 8f00000000000000 9c0f6a31d2e84b75
//! FileAccess/ebbets udp://127.0.0.1:7000 export=5eed000000000001 owner=4711,… revision=57 check=1f3a…
//! FileAccess/luther udp://127.0.0.1:7001 export=5eed000000000002 owner=4712,… revision=58 check=22c0…
//! -FileAccess/ebbets check=9d41…
//! ```
//!
//! The first line has the version of the format, the registry's version when the file was written, the number
//! of entries at that time, the boot, and a random number. Each further line adds one to the registry's
//! version. A line's check covers the check of the line before it (at first, the random number). So a reader
//! that knows the last check which it has read continues there, and notices if the file is another one.
//!
//! A last line without a line feed is being written, or its writer was killed: nobody reads it, and the next
//! writer replaces the file. The parser accepts any bytes. It takes linear time, and at most a few times the
//! memory of its input.

use std::collections::hash_map::RandomState;
use std::fmt::Write as _;
use std::hash::{BuildHasher, Hasher};

use farcall_base::work;

use crate::format::{self, Fault, MAGIC};
use crate::table::{Held, MAX_VERSION, Table};
use crate::{Entry, Label, Owner};

/// The version of the format.
pub(crate) const VERSION: &str = "2";

/// The length of a check and the line feed behind it: what a reader compares before it reads on.
const CHECK_BYTES: usize = 17;

/// The field in front of a check.
const CHECK: &str = " check=";

/// A file is not replaced for the sake of its size while it has less than this many bytes.
const MIN_REWRITTEN_BYTES: usize = 64 << 10;

/// The content of a registry's file, as far as it was read, and changes that are not written yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Log {
    table: Table,
    /// The boot in which the file was written.
    boot: u64,
    /// The check of the last line.
    check: u64,
    /// The number of bytes and of lines that were read.
    len: usize,
    lines: usize,
    /// The number of bytes of the lines of the entries in the table.
    live: usize,
    /// Whether lines can be added to the file. Otherwise the next writer replaces it.
    is_appendable: bool,
    /// The lines of changes that are not written yet.
    pending: String,
    pending_lines: usize,
    /// Whether such a change must outlast a crash of the machine.
    is_durable: bool,
}

/// How changes are written.
pub(crate) enum Writing {
    /// The lines are added to the file.
    Append(String),
    /// The file is replaced by this text.
    Replace(String),
}

impl Log {
    /// Parses a file of format 1 or 2. `boot` is the present one.
    pub(crate) fn parse(bytes: &[u8], boot: u64) -> Result<Log, Fault> {
        match format::version_of(bytes) {
            Some(VERSION) => {}
            _ => return format::parse(bytes).map(Log::to_be_replaced),
        }
        let end = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
        let (mut log, entries) = parse_first(&bytes[..end])?;
        log.read_lines(&bytes[end..], entries, boot)?;
        Ok(log)
    }

    /// Returns the content of a file of another format.
    fn to_be_replaced(table: Table) -> Log {
        let live = table.held().map(line_bytes).sum();
        Log { table, live, ..Log::default() }
    }

    /// Returns from where on a file is read again to continue, if it can be. That is behind its last whole
    /// line, whatever follows: a part of a line stays there while the disk is full, and the whole file would
    /// be read for each question.
    pub(crate) fn continues_at(&self) -> Option<usize> {
        self.len.checked_sub(CHECK_BYTES)
    }

    /// Reads on. `bytes` begin where [`Log::continues_at`] says. Returns whether they continue this content;
    /// if not, the whole file is to be read.
    pub(crate) fn read_on(&mut self, bytes: &[u8], boot: u64) -> bool {
        let known = format!("{:016x}\n", self.check);
        match bytes.strip_prefix(known.as_bytes()) {
            Some(further) => self.read_lines(further, 0, boot).is_ok(),
            None => false,
        }
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// Returns how many bytes the lines of all entries have together.
    pub(crate) fn live_bytes(&self) -> usize {
        self.live
    }

    /// Returns whether there are changes that are not written yet.
    pub(crate) fn is_changed(&self) -> bool {
        self.pending_lines > 0
    }

    /// Returns whether such a change must outlast a crash of the machine.
    pub(crate) fn is_durable(&self) -> bool {
        self.is_durable
    }

    /// Gives a registry that has never changed this version.
    pub(crate) fn begin(&mut self, version: u64) {
        self.table.begin(version);
    }

    /// Adds or replaces an entry. Returns its revision.
    pub(crate) fn put(&mut self, entry: Entry) -> u64 {
        self.forget_line(&entry.type_name.clone(), &entry.instance.clone());
        let (type_name, instance) = (entry.type_name.clone(), entry.instance.clone());
        let revision = self.table.put(entry);
        self.add_line_of(&type_name, &instance);
        revision
    }

    /// Replaces the entry of this name if it still has this revision, which stays. Returns whether it was
    /// there.
    pub(crate) fn renew(&mut self, entry: &Entry, revision: u64) -> bool {
        let (type_name, instance) = (&entry.type_name, &entry.instance);
        if self.table.get(type_name, instance).is_none_or(|held| held.revision != revision) {
            return false;
        }
        self.forget_line(type_name, instance);
        self.table.renew(entry, revision);
        self.add_line_of(type_name, instance);
        true
    }

    /// Removes the entry of this name. Returns whether there was one.
    pub(crate) fn remove(&mut self, type_name: &Label, instance: &Label) -> bool {
        self.forget_line(type_name, instance);
        if self.table.remove(type_name, instance).is_none() {
            return false;
        }
        self.add_line(format!("-{type_name}/{instance}"));
        true
    }

    /// Removes the entry of this name if it still has this revision. Returns whether it was removed.
    pub(crate) fn remove_revision(&mut self, type_name: &Label, instance: &Label, revision: u64) -> bool {
        let same = self.table.get(type_name, instance).is_some_and(|held| held.revision == revision);
        same && self.remove(type_name, instance)
    }

    /// Returns what is to be written for the changes, and takes it as written. If writing fails, this content
    /// is to be dropped. `most` is the greatest number of bytes of a file.
    pub(crate) fn writing(&mut self, boot: u64, most: usize) -> Writing {
        let after = self.len + self.pending.len();
        let is_large = after > (3 * self.live).max(MIN_REWRITTEN_BYTES) || after > most;
        let text = std::mem::take(&mut self.pending);
        self.is_durable = false;
        self.pending_lines = 0;
        if self.is_appendable && self.boot == boot && !is_large {
            (self.len, self.lines) = (after, self.lines + text.bytes().filter(|byte| *byte == b'\n').count());
            return Writing::Append(text);
        }
        // The hasher's keys are random.
        let number = RandomState::new().build_hasher().finish();
        let (text, check) = render(&self.table, boot, number);
        (self.boot, self.check, self.is_appendable) = (boot, check, true);
        (self.len, self.lines) = (text.len(), 1 + self.table.len());
        Writing::Replace(text)
    }

    /// Counts the line of an entry no more that is replaced or removed.
    fn forget_line(&mut self, type_name: &Label, instance: &Label) {
        let Some(held) = self.table.get(type_name, instance) else { return };
        self.live -= line_bytes(held).min(self.live);
        self.is_durable |= held.entry.owner == Owner::NONE;
    }

    fn add_line_of(&mut self, type_name: &Label, instance: &Label) {
        let Some(held) = self.table.get(type_name, instance) else { return };
        self.live += line_bytes(held);
        self.is_durable |= held.entry.owner == Owner::NONE;
        let line = format::line(held);
        self.add_line(line);
    }

    fn add_line(&mut self, mut line: String) {
        self.check = seal(&mut line, self.check);
        self.pending.push_str(&line);
        self.pending_lines += 1;
    }

    /// Reads whole lines: entries, and then changes.
    fn read_lines(&mut self, bytes: &[u8], mut entries: u64, boot: u64) -> Result<(), Fault> {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, behind) = (&rest[..end], &rest[end + 1..]);
            let number = self.lines + 1;
            match self.read_line(line, entries > 0) {
                Ok(()) => {}
                // A crash of the machine kept lines from the disk. The exporters of that boot are dead, and the
                // lines that must outlast a crash (`is_durable`) stand in front.
                Err(_) if self.boot != boot && self.boot != 0 && boot != 0 => break,
                Err(why) => return Err(Fault::Line(number, why)),
            }
            (self.lines, self.len) = (number, self.len + end + 1);
            (entries, rest) = (entries.saturating_sub(1), behind);
        }
        if entries > 0 {
            let why = format!("the file is truncated: {entries} more entries are missing");
            return Err(Fault::Line(self.lines + 1, why));
        }
        self.is_appendable = rest.is_empty();
        Ok(())
    }

    fn read_line(&mut self, line: &[u8], is_entry: bool) -> Result<(), String> {
        work::steps(1 + line.len() / 16);
        let text = str::from_utf8(line).map_err(|_| "it is not UTF-8 text")?;
        let (text, claimed) = text.rsplit_once(CHECK).ok_or("the field \"check\" is missing")?;
        let check = check_of(text, self.check);
        if digits(claimed) != Some(check) {
            return Err(format!("the line does not follow the line before: its check would be {check:016x}"));
        }
        match text.strip_prefix('-') {
            Some(_) if is_entry => return Err("an entry is expected here".to_owned()),
            Some(name) => self.read_removal(name)?,
            None => {
                let held = format::parse_entry(text)?;
                self.live += line.len() + 1;
                if !is_entry {
                    let former = self.table.replay(held);
                    self.live -= former.as_ref().map_or(0, line_bytes).min(self.live);
                } else if !self.table.restore(held) {
                    return Err("an earlier line has the same name".to_owned());
                }
            }
        }
        self.check = check;
        Ok(())
    }

    fn read_removal(&mut self, name: &str) -> Result<(), String> {
        let (type_name, instance) = format::parse_names(name)?;
        let removed = self.table.remove(&type_name, &instance);
        let removed = removed.ok_or_else(|| format!("there is no entry {name:?} to remove"))?;
        self.live -= line_bytes(&removed).min(self.live);
        Ok(())
    }
}

/// Parses the first line. Returns the content without entries, and the number of entries.
fn parse_first(line: &[u8]) -> Result<(Log, u64), Fault> {
    let fault = || {
        let what = "its version, the number of entries, the boot and a random number";
        Fault::Line(1, format!("a registry begins with \"{MAGIC} {VERSION}\", {what}"))
    };
    let text = str::from_utf8(line).ok().and_then(|line| line.strip_suffix('\n')).ok_or_else(fault)?;
    let words: Vec<&str> = text.split(' ').skip(2).take(5).collect();
    let [version, entries, boot, number] = words[..] else { return Err(fault()) };
    let (version, entries) = format::decimal(version).zip(format::decimal(entries)).ok_or_else(fault)?;
    let (boot, check) = format::hex(boot).zip(digits(number)).ok_or_else(fault)?;
    if version > MAX_VERSION {
        return Err(Fault::Line(1, format!("the version is greater than {MAX_VERSION}")));
    }
    let table = Table::at_version(version);
    Ok((Log { table, boot, check, len: line.len(), lines: 1, ..Log::default() }, entries))
}

/// Parses a check, or the number in the place of the first one, as farcall writes it. A reader compares the
/// digits themselves before it reads on.
fn digits(text: &str) -> Option<u64> {
    format::hex(text).filter(|_| !text.bytes().any(|digit| digit.is_ascii_uppercase()))
}

/// Returns the text of a new file, and the check of its last line.
fn render(table: &Table, boot: u64, number: u64) -> (String, u64) {
    let (version, entries) = (table.version(), table.len());
    let mut text = format!("{MAGIC} {VERSION} {version} {entries} {boot:016x} {number:016x}\n");
    let mut check = number;
    for held in table.held() {
        let mut line = format::line(held);
        check = seal(&mut line, check);
        text.push_str(&line);
    }
    (text, check)
}

/// Returns the number of bytes of an entry's line.
fn line_bytes(held: &Held) -> usize {
    let bytes = format::line(held).len() + CHECK.len() + CHECK_BYTES;
    work::steps(1 + bytes / 16);
    bytes
}

/// Ends a line with its check. Returns the check.
fn seal(line: &mut String, before: u64) -> u64 {
    let check = check_of(line, before);
    // Writing to a `String` cannot fail.
    let _ = writeln!(line, "{CHECK}{check:016x}");
    check
}

/// Returns the check of a line: FNV-1a with 64 bits, over the 16 digits of the check of the line before and
/// over the line's text in front of the field.
fn check_of(text: &str, before: u64) -> u64 {
    let digits = format!("{before:016x}");
    digits.bytes().chain(text.bytes()).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Gives each line of a text its check, which no mutation of bytes would, and reads the text as a file: at
/// once, and its lines one by one, as a process does that has read the file before. For the fuzz target.
pub(crate) fn fuzz(text: &[u8]) {
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let Some((first, rest)) = lines.split_first() else { return };
    let Ok((head, entries)) = parse_first(first) else { return };
    let (mut file, mut check) = (first.to_vec(), head.check);
    for line in rest {
        let Ok(line) = str::from_utf8(line) else { return };
        let Some(line) = line.strip_suffix('\n') else { break };
        let mut line = line.to_owned();
        check = seal(&mut line, check);
        file.extend_from_slice(line.as_bytes());
    }
    let boot = head.boot;
    let Ok(whole) = Log::parse(&file, boot) else { return };
    // The lines of the first entries are read together.
    let split = usize::try_from(entries).unwrap_or(usize::MAX).saturating_add(1);
    let mut ends = file.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    let Some(mut end) = ends.nth(split - 1) else { unreachable!("the file has its entries") };
    let mut log = Log::parse(&file[..end], boot).expect("the beginning of a file");
    for next in ends {
        let from = log.continues_at().expect("it was read to its end");
        assert!(from + CHECK_BYTES == end && log.read_on(&file[from..next], boot), "it does not go on");
        end = next;
    }
    assert_eq!(log, whole);
}

#[cfg(test)]
mod tests;
