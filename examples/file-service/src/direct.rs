//! A clerk (a process that serves the programs of one machine) that finds entries itself, and asks the server
//! only for entries that are not there. Of the structure DX, it reads the server's memory; of the structure
//! WR, it reads its own, into which the server pushes entries.

use std::ops::Range;
use std::sync::Arc;

use farcall::memory::Memory;
use farcall::xdr::{self, Decode};
use farcall::{Bytes, CallFailed, Kind, Ran, Result, ResultExt, memory};
use farcall_file_access::{Attributes, Contents, FileError, Statistics};

use crate::areas::{Areas, COUNTER, Named, Paged, of_block, of_file, of_name};
use crate::calls::ByCalls;
use crate::copies::{Copies, Which};
use crate::hybrid::own;
use crate::imported::Imported;
use crate::mirror::Mirror;
use crate::paths::check_name;
use crate::table::{Entry, Hints, Key, Look};
use crate::{BLOCK, Files, Found, Handle, Names};

/// Reads the server's tables. To have missing entries added, asks the server by writing a request into its
/// memory (Hybrid-1).
pub(crate) struct Direct {
    pub(crate) server: Arc<Imported>,
    pub(crate) areas: Areas,
    pub(crate) hints: Hints,
    /// Copies of the entries that the clerk has read, if it keeps copies.
    pub(crate) copies: Option<Copies>,
    /// The clerk's own tables, if the server pushes entries.
    pub(crate) mirror: Option<Mirror>,
    pub(crate) missing: ByCalls,
}

impl Direct {
    /// Returns a part of the value of a key, if the server's table has it.
    fn look(&self, which: Which, key: Key, part: Range<usize>) -> Result<Option<Entry>, FileError> {
        if let Some(mirror) = &self.mirror {
            return self.look_pushed(mirror, which, key, part);
        }
        let Some(copies) = &self.copies else {
            return self.read_entry(which, key, part);
        };
        let versions = |place| self.server.with(|memory| which(&self.areas).versions(memory, place));
        match copies.look(which, key, versions)? {
            Some(copy) => Ok(Some(copy.part(part))),
            None => self.read_and_copy(copies, which, key, part),
        }
    }

    /// Returns a part of the value of a key as the server has pushed it, or of a copy that is current as the
    /// server has pushed.
    fn look_pushed(
        &self,
        mirror: &Mirror,
        which: Which,
        key: Key,
        part: Range<usize>,
    ) -> Result<Option<Entry>, FileError> {
        let is_of_blocks = which(&self.areas).start() == self.areas.blocks.start();
        let Some(copies) = self.copies.as_ref().filter(|_| is_of_blocks) else {
            let look = mirror.look(which, key, part, &self.hints).map_err(own)?;
            self.check_lease(mirror)?;
            return Ok(match look {
                Look::Found(entry) => Some(entry),
                Look::Missing | Look::Held => None,
            });
        };
        match copies.look(which, key, |place| Ok(mirror.versions(place).map_err(own)?))? {
            Some(copy) => {
                self.check_lease(mirror)?;
                Ok(Some(copy.part(part)))
            }
            None => self.read_and_copy(copies, which, key, part),
        }
    }

    /// Fails if the server does not push entries into the clerk's memory any more.
    fn check_lease(&self, mirror: &Mirror) -> Result<(), FileError> {
        if mirror.was_current(&self.server)? {
            return Ok(());
        }
        let why = "the server has given up this clerk, whose memory it could not write";
        Err(CallFailed::new(Kind::Forgotten, Ran::No).because(why).into())
    }

    /// Reads an entry of the server's memory, keeps a copy, and returns a part of its value.
    fn read_and_copy(
        &self,
        copies: &Copies,
        which: Which,
        key: Key,
        part: Range<usize>,
    ) -> Result<Option<Entry>, FileError> {
        let Some(entry) = self.read_entry(which, key, 0..which(&self.areas).room())? else {
            return Ok(None);
        };
        copies.keep(which, &entry).map_declared(|why| FileError::Failed(why.to_string()))?;
        Ok(Some(entry.part(part)))
    }

    fn read_entry(&self, which: Which, key: Key, part: Range<usize>) -> Result<Option<Entry>, FileError> {
        let table = which(&self.areas);
        match self.server.with(|memory| table.look(memory, key, part.clone(), &self.hints))? {
            Look::Found(entry) => Ok(Some(entry)),
            Look::Missing | Look::Held => Ok(None),
        }
    }

    /// Returns the decoded value of a key. `guess` is a length in bytes that the value seldom exceeds.
    fn value<T: for<'a> Decode<'a>>(
        &self,
        which: Which,
        key: Key,
        guess: usize,
    ) -> Result<Option<T>, FileError> {
        let mut entry = self.look(which, key, 0..guess)?;
        if entry.as_ref().is_some_and(|entry| entry.length > guess) {
            entry = self.look(which, key, 0..which(&self.areas).room())?;
        }
        // A value that cannot be decoded counts as missing, so the server is asked.
        Ok(entry.and_then(|entry| xdr::from_slice(&entry.bytes).ok()))
    }

    /// Returns a part of a block, and the block's length.
    fn read_block(
        &self,
        file: Handle,
        block: u64,
        part: Range<usize>,
    ) -> Result<Option<(Bytes, usize)>, FileError> {
        let entry = self.look(|areas| &areas.blocks, of_block(file, block), part)?;
        Ok(entry.map(|entry| (entry.bytes, entry.length)))
    }

    /// Writes into a block in the server's memory. Returns false if that is not possible: the block is not
    /// there, clerks may not write it, the write would extend it, or another clerk is writing.
    fn write_block(&self, memory: &dyn Memory, key: Key, at: usize, bytes: &[u8]) -> memory::Result<bool> {
        let blocks = &self.areas.blocks;
        let Look::Found(entry) = blocks.look(memory, key, 0..0, &self.hints)? else {
            return Ok(false);
        };
        // If an earlier write is not in the file yet, this write goes by the server, because the earlier one
        // may fail, and the two must not be mixed.
        let pending = !entry.version.is_multiple_of(2);
        if pending || !entry.writable || at + bytes.len() > entry.length {
            return Ok(false);
        }
        let Some(token) = blocks.acquire(memory, entry.place, entry.version, true)? else {
            return Ok(false);
        };
        blocks.finish(memory, token, at, bytes)?;
        memory.flush()?;
        Ok(true)
    }
}

impl Files for Direct {
    fn null(&self) -> Result<(), FileError> {
        self.server.with(|memory| memory.load(COUNTER))?;
        Ok(())
    }

    fn root(&self) -> Result<Handle, FileError> {
        self.missing.root()
    }

    fn attributes(&self, file: Handle) -> Result<Attributes, FileError> {
        match self.value(|areas| &areas.attributes, of_file(file), 64)? {
            Some(attributes) => Ok(attributes),
            None => self.missing.attributes(file),
        }
    }

    fn look_up(&self, directory: Handle, name: &str) -> Result<Found, FileError> {
        check_name(name)?;
        match self.value::<Named>(|areas| &areas.names, of_name(directory, name), Named::length(name))? {
            Some(named) if named.name == name => {
                let paths = self.missing.paths();
                paths.learn_if_new(directory, name, named.found)?;
                Ok(named.found)
            }
            _ => self.missing.look_up(directory, name),
        }
    }

    fn read_link(&self, link: Handle) -> Result<String, FileError> {
        match self.value(|areas| &areas.links, of_file(link), 64)? {
            Some(target) => Ok(target),
            None => self.missing.read_link(link),
        }
    }

    fn read(&self, file: Handle, offset: u64, length: u32) -> Result<Contents, FileError> {
        let length = (length as usize).min(BLOCK);
        let (block, at) = (offset / BLOCK as u64, (offset % BLOCK as u64) as usize);
        let first = at..(at + length).min(BLOCK);
        let rest = length - first.len();
        let Some((bytes, of_block)) = self.read_block(file, block, first)? else {
            return self.missing.read(file, offset, length as u32);
        };
        // A block that is not full is the last block of the file.
        if rest == 0 || of_block < BLOCK {
            return Ok(Contents(bytes));
        }
        match self.read_block(file, block.wrapping_add(1), 0..rest)? {
            Some((more, _)) => Ok(Contents([bytes, more].concat().into())),
            None => self.missing.read(file, offset, length as u32),
        }
    }

    fn read_directory(&self, directory: Handle, after: &str) -> Result<Names, FileError> {
        match self.value::<Paged>(|areas| &areas.pages, of_name(directory, after), 1024)? {
            Some(page) if page.after == after => Ok(page.names),
            _ => self.missing.read_directory(directory, after),
        }
    }

    fn write(&self, file: Handle, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let (block, at) = (offset / BLOCK as u64, (offset % BLOCK as u64) as usize);
        // A server that pushes entries writes itself, because it pushes the change before the write ends.
        let in_one = self.mirror.is_none() && !bytes.is_empty() && bytes.len() <= BLOCK - at;
        if in_one && self.server.with(|memory| self.write_block(memory, of_block(file, block), at, bytes))? {
            return Ok(());
        }
        self.missing.write(file, offset, bytes)
    }

    fn statistics(&self) -> Result<Statistics, FileError> {
        match self.value(|areas| &areas.statistics, [0; 3], 64)? {
            Some(statistics) => Ok(statistics),
            None => self.missing.statistics(),
        }
    }

    fn commit(&self, file: Handle) -> Result<(), FileError> {
        self.missing.commit(file)
    }
}
