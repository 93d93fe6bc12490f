//! The entries that the server keeps in its memory for clerks, and how clerks' writes reach the files. A
//! clerk is a process that serves the programs of one machine, and reads and writes the server's memory for
//! them.
//!
//! One rule keeps everything coherent: a process that changes an entry has the entry's token. The server
//! takes the token before it writes a file, and returns the token when the entry agrees with the file. A
//! clerk takes the token to write into a block. A clerk that does not return a token loses it: the server
//! exports the segment again, so that no later write of that clerk arrives, and fills the entry from the
//! file. Every other clerk then imports the segment again.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Instant;

use farcall::memory;
use farcall::{Result, xdr};
use farcall_file_access::{Contents, FileAccess, FileError, MAX_READ, Page};

use super::{Core, State};
use crate::areas::{Areas, Named, PAGE, Paged, of_block, of_file, of_name};
use crate::table::{Entry, Hints, Key, Look, Table, Token};
use crate::{BLOCK, Found, Handle, Looked, Names};

/// The key of an entry without content.
const GONE: Key = [u64::MAX; 3];

/// A token, and whether the entry was whole when it was taken.
struct Taken {
    token: Token,
    whole: bool,
}

impl Core {
    pub(super) fn keep_statistics(&self) {
        if let Ok(statistics) = self.directory.statistics() {
            self.keep(&mut self.lock(), &self.areas.statistics, [0; 3], &statistics);
        }
    }

    pub(super) fn keep_attributes(&self, path: &str) {
        self.keep_attributes_of(&mut self.lock(), path);
    }

    fn keep_attributes_of(&self, state: &mut State, path: &str) {
        if let Ok(looked) = self.look_up(path) {
            self.keep(state, &self.areas.attributes, of_file(looked.found.handle), &looked.attributes);
            if state.paths.get(&looked.found.handle).is_none_or(|known| known != path) {
                state.paths.insert(looked.found.handle, path.to_owned());
            }
        }
    }

    /// Keeps the entry of the last name of a path.
    pub(super) fn keep_name(&self, path: &str, found: Found) {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        if name.is_empty() {
            return; // the directory that is served
        }
        if let Ok(parent) = self.look_up(parent) {
            let key = of_name(parent.found.handle, name);
            self.keep(&mut self.lock(), &self.areas.names, key, &Named { name: name.to_owned(), found });
        }
    }

    pub(super) fn keep_link(&self, path: &str, target: &str) {
        if let Ok(looked) = self.look_up(path) {
            self.keep(&mut self.lock(), &self.areas.links, of_file(looked.found.handle), target);
        }
    }

    /// Keeps as many names of a page of a directory as there is room for.
    pub(super) fn keep_page(&self, directory: Handle, after: &str, page: &Page) {
        let of_text = |text: &str| 4 + text.len().next_multiple_of(4);
        let mut room = PAGE.saturating_sub(of_text(after) + 8);
        let fits = |name: &&str| {
            let fits = of_text(name) <= room;
            room = room.saturating_sub(of_text(name));
            fits
        };
        let names: Vec<String> = page
            .entries
            .iter()
            .map(|entry| entry.name.as_str())
            .take_while(fits)
            .map(str::to_owned)
            .collect();
        if names.is_empty() && !page.entries.is_empty() {
            return;
        }
        let more = page.more || names.len() < page.entries.len();
        let paged = Paged { after: after.to_owned(), names: Names { names, more } };
        self.keep(&mut self.lock(), &self.areas.pages, of_name(directory, after), &paged);
    }

    /// Keeps the blocks of a file that contain these bytes.
    pub(super) fn keep_blocks(&self, path: &str, offset: u64, length: usize) {
        let mut state = self.lock();
        let Ok(looked) = self.look_up(path) else { return };
        for block in
            blocks(offset, length.min(BLOCK)).filter(|block| block * (BLOCK as u64) < looked.attributes.size)
        {
            // A block that cannot be kept is requested again.
            let _ = self.keep_block(&mut state, path, looked.found.handle, block);
        }
    }

    /// Reads a file after the clerks' pending writes to it.
    pub(super) fn read_kept(&self, path: &str, offset: u64, length: u32) -> Result<Contents, FileError> {
        let handle = self.look_up(path)?.found.handle;
        self.settle_blocks(&mut self.lock(), handle, blocks(offset, length.min(MAX_READ) as usize));
        self.directory.read(path, offset, length)
    }

    /// Writes to a file, and to the entries of its blocks.
    pub(super) fn write_through(&self, path: &str, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        if bytes.len() > BLOCK {
            return Err(FileError::Failed(format!("more than {BLOCK} bytes at once")).into());
        }
        let mut state = self.lock();
        if !self.is_read.load(Ordering::SeqCst) {
            // No clerk reads the memory yet. If one attaches now, `attach` sets `is_read` and then waits for
            // this lock before it fills any entry, so it sees this write.
            return Ok(self.directory.write(path, offset, bytes)?);
        }
        let looked = self.look_up(path)?;
        let (handle, size) = (looked.found.handle, looked.attributes.size);
        let mut touched: Vec<u64> = blocks(offset, bytes.len()).collect();
        let last = size / BLOCK as u64;
        if !touched.contains(&last) {
            // If the file grows, its former last block gets longer too, so the entry of that block is out of
            // date.
            touched.push(last);
        }
        let held: Vec<_> = touched
            .into_iter()
            .filter_map(|block| Some((block, self.take_block(&mut state, of_block(handle, block)).ok()??)))
            .collect();
        // No clerk shows the former attributes once another has shown the new ones.
        let attributes = self.take_attributes(&mut state, handle).ok().flatten();
        let outcome = self.directory.write(path, offset, bytes);
        for (block, token) in held {
            let _ = self.fill_block(&mut state, token, path, of_block(handle, block));
        }
        match attributes {
            Some(token) => drop(self.fill_attributes(&mut state, token, path, handle)),
            None => self.keep_attributes_of(&mut state, path),
        }
        drop(state);
        self.keep_statistics();
        Ok(outcome?)
    }

    /// Reads the files again that have changed since they were kept.
    pub(super) fn refresh(&self) {
        let paths: Vec<(Handle, String)> =
            self.lock().paths.iter().map(|(file, path)| (*file, path.clone())).collect();
        let changed: HashMap<Handle, String> =
            paths.into_iter().filter(|(file, path)| !self.is_as_kept(*file, path)).collect();
        if changed.is_empty() {
            return;
        }
        let Areas { attributes, names, links, pages, blocks, .. } = &self.areas;
        for table in [attributes, names, links, pages, blocks] {
            for place in table.all() {
                // An entry that cannot be refreshed now is refreshed the next time.
                let _ = self.refresh_entry(table, place, &changed);
            }
        }
        let mut state = self.lock();
        for (file, path) in &changed {
            state.paths.remove(file);
            self.keep_attributes_of(&mut state, path);
        }
    }

    fn is_as_kept(&self, file: Handle, path: &str) -> bool {
        let key = of_file(file);
        let kept =
            self.areas.attributes.look(&self.segment, key, 0..self.areas.attributes.room(), Hints::NONE);
        let Ok(Look::Found(kept)) = kept else { return false };
        self.look_up(path).is_ok_and(|now| {
            now.found.handle == file
                && xdr::to_vec(&now.attributes).is_ok_and(|attributes| attributes == *kept.bytes)
        })
    }

    fn refresh_entry(
        &self,
        table: &Table,
        place: u64,
        changed: &HashMap<Handle, String>,
    ) -> memory::Result<()> {
        let mut state = self.lock();
        let [device, inode, block] = table.key(&self.segment, place)?;
        let Some(path) = changed.get(&Handle { device, inode }) else { return Ok(()) };
        let token = self.take_settled(&mut state, table, place)?.token;
        if std::ptr::eq(table, &self.areas.blocks) {
            return self.fill_block(&mut state, token, path, [device, inode, block]);
        }
        table.put(&self.segment, &token, GONE, &[], false)?;
        self.release(&mut state, table, token)
    }

    /// Writes the blocks at these places to their files if clerks have changed them.
    pub(super) fn settle_places(&self, places: Range<u64>) {
        for place in places {
            if self.may_be_pending(place) {
                let _ = self.settle(&mut self.lock(), place);
            }
        }
    }

    pub(super) fn settle_all(&self) {
        self.settle_places(0..u64::from(self.shape.blocks));
    }

    /// Writes a file's blocks that clerks have changed. Returns the error of a write that failed since the
    /// last call of `commit`.
    pub(super) fn settle_file(&self, looked: Looked) -> Result<(), FileError> {
        let Looked { found: Found { handle, .. }, attributes } = looked;
        let blocks = attributes.size / BLOCK as u64;
        match blocks < u64::from(self.shape.blocks) {
            true => self.settle_blocks(&mut self.lock(), handle, 0..=blocks),
            false => self.settle_all(),
        }
        match self.lock().failed.remove(&handle) {
            Some(why) => Err(FileError::Failed(why).into()),
            None => Ok(()),
        }
    }

    fn settle_blocks(&self, state: &mut State, file: Handle, blocks: impl Iterator<Item = u64>) {
        for block in blocks {
            let place = self.areas.blocks.place(&self.segment, of_block(file, block));
            if let Some(place) = place.ok().flatten().filter(|place| self.may_be_pending(*place)) {
                let _ = self.settle(state, place);
            }
        }
    }

    fn may_be_pending(&self, place: u64) -> bool {
        self.areas.blocks.versions(&self.segment, place).is_ok_and(|(end, _)| end % 2 == 1)
    }

    /// Writes the block at this place to its file if a clerk has changed it and has finished.
    fn settle(&self, state: &mut State, place: u64) -> memory::Result<()> {
        let blocks = &self.areas.blocks;
        let Some(entry) = blocks.entry(&self.segment, place)?.filter(is_pending) else { return Ok(()) };
        let written = self.to_file(state, &entry);
        // Clerks do not take the token of an entry with an odd version (`Direct::write_block`), so the entry
        // is still the one that was written to the file.
        let Some(token) = blocks.acquire(&self.segment, place, entry.version, false)? else { return Ok(()) };
        self.push_hold(state, blocks, &token);
        match written {
            Ok(()) => self.release(state, blocks, token),
            Err(path) => self.fill_block(state, token, &path, entry.key),
        }
    }

    /// Writes a block to its file. If that fails, returns the file's path, and the next commit reports the
    /// error.
    fn to_file(&self, state: &mut State, entry: &Entry) -> std::result::Result<(), String> {
        let [device, inode, block] = entry.key;
        let handle = Handle { device, inode };
        let path = state.paths.get(&handle).cloned().unwrap_or_default();
        let written = match self.look_up(&path) {
            Ok(looked) if looked.found.handle == handle => self
                .directory
                .write(&path, block.saturating_mul(BLOCK as u64), &entry.bytes)
                .map_err(|why| why.to_string()),
            _ => Err("the file is not there any more".to_owned()),
        };
        match written {
            Ok(()) => {
                self.keep_attributes_of(state, &path);
                Ok(())
            }
            Err(why) => {
                state.failed.insert(handle, why);
                Err(path)
            }
        }
    }

    /// Keeps a block, unless the block has an entry already.
    fn keep_block(&self, state: &mut State, path: &str, file: Handle, block: u64) -> memory::Result<()> {
        let (blocks, key) = (&self.areas.blocks, of_block(file, block));
        if let Look::Found(_) = blocks.look(&self.segment, key, 0..0, Hints::NONE)? {
            return Ok(());
        }
        state.paths.insert(file, path.to_owned());
        let Taken { token, .. } = self.take_place(state, blocks, key)?;
        self.fill_block(state, token, path, key)
    }

    /// Fills a block from its file.
    pub(super) fn fill_block(
        &self,
        state: &mut State,
        token: Token,
        path: &str,
        key: Key,
    ) -> memory::Result<()> {
        let blocks = &self.areas.blocks;
        let [device, inode, block] = key;
        let same = self.look_up(path).is_ok_and(|looked| looked.found.handle == Handle { device, inode });
        match self.directory.read(path, block.saturating_mul(BLOCK as u64), BLOCK as u32) {
            Ok(contents) if same && !contents.0.is_empty() => {
                blocks.put(&self.segment, &token, key, &contents.0, self.directory.is_writable(path))?;
            }
            _ => blocks.put(&self.segment, &token, GONE, &[], false)?,
        }
        self.release(state, blocks, token)
    }

    /// Fills the entry of a file's attributes.
    pub(super) fn fill_attributes(
        &self,
        state: &mut State,
        token: Token,
        path: &str,
        file: Handle,
    ) -> memory::Result<()> {
        let table = &self.areas.attributes;
        let now = self.look_up(path).ok().filter(|looked| looked.found.handle == file);
        match now.and_then(|looked| xdr::to_vec(&looked.attributes).ok()) {
            Some(value) => table.put(&self.segment, &token, of_file(file), &value, false)?,
            None => table.put(&self.segment, &token, GONE, &[], false)?,
        }
        self.release(state, table, token)
    }

    /// Keeps a value unless it is too long for the table, or there already.
    fn keep<T: xdr::Encode + ?Sized>(&self, state: &mut State, table: &Table, key: Key, value: &T) {
        let Ok(value) = xdr::to_vec(value) else { return };
        if value.len() > table.room() {
            return;
        }
        let known = table.look(&self.segment, key, 0..table.room(), Hints::NONE);
        if matches!(known, Ok(Look::Found(known)) if known.bytes == value) {
            return;
        }
        let kept = self.take_place(state, table, key).and_then(|taken| {
            table.put(&self.segment, &taken.token, key, &value, false)?;
            self.release(state, table, taken.token)
        });
        debug_assert!(kept.is_ok());
    }

    /// Takes the token of a file's attributes if they have an entry.
    pub(super) fn take_attributes(&self, state: &mut State, file: Handle) -> memory::Result<Option<Token>> {
        let table = &self.areas.attributes;
        let Some(place) = table.place(&self.segment, of_file(file))? else { return Ok(None) };
        Ok(Some(self.take(state, table, place)?.token))
    }

    /// Takes the token of a block that has an entry. Before this returns, clerks' writes to the block are in
    /// the file.
    pub(super) fn take_block(&self, state: &mut State, key: Key) -> memory::Result<Option<Token>> {
        let blocks = &self.areas.blocks;
        let Some(place) = blocks.place(&self.segment, key)? else { return Ok(None) };
        Ok(Some(self.take_settled(state, blocks, place)?.token))
    }

    /// Takes the token of the place for a key: the place that has the key, an unused place, or one whose
    /// entry is replaced.
    fn take_place(&self, state: &mut State, table: &Table, key: Key) -> memory::Result<Taken> {
        state.turn += 1;
        let place = table.spot(&self.segment, key, state.turn)?;
        self.take_settled(state, table, place)
    }

    /// Takes the token of a place. If clerks have changed a block there, the changes are in its file when
    /// this returns.
    fn take_settled(&self, state: &mut State, table: &Table, place: u64) -> memory::Result<Taken> {
        let taken = self.take(state, table, place)?;
        if taken.whole && taken.token.was % 2 == 1 {
            let _ = self.to_file(state, &table.held(&self.segment, &taken.token)?);
        }
        Ok(taken)
    }

    /// Takes the token of an entry, and marks the entry as held in the clerks' memory. A clerk that holds it
    /// for too long loses it.
    fn take(&self, state: &mut State, table: &Table, place: u64) -> memory::Result<Taken> {
        let begun = Instant::now();
        loop {
            let late = begun.elapsed() >= self.patience;
            let (end, begin) = table.versions(&self.segment, place)?;
            if end != begin && !late {
                std::thread::yield_now();
                continue;
            }
            if end != begin {
                self.segment.export_again();
            }
            // From now on no write of the token's former holder arrives. A write that arrived before may have
            // completed the entry.
            let (end, begin) = table.versions(&self.segment, place)?;
            if let Some(token) = table.acquire(&self.segment, place, begin, false)? {
                self.push_hold(state, table, &token);
                return Ok(Taken { token, whole: end == begin });
            }
        }
    }
}

/// Returns whether a clerk has changed an entry and the file does not have the change yet.
fn is_pending(entry: &Entry) -> bool {
    entry.version % 2 == 1
}

/// Returns the blocks that contain these bytes.
fn blocks(offset: u64, length: usize) -> impl Iterator<Item = u64> {
    let last = offset.saturating_add((length as u64).saturating_sub(1));
    (offset / BLOCK as u64)..=(last / BLOCK as u64)
}
