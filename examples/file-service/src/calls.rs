//! A clerk that calls the server. The calls go by farcall (the structure RPC), or by writes into memory,
//! Hybrid-1 (the structure HY).

use std::sync::Arc;

use farcall::Result;
use farcall_file_access::{
    Attributes, Contents, FileAccess, FileAccessClient, FileError, FileKind, Statistics,
};

use crate::paths::{Paths, check_name, child};
use crate::{BLOCK, Files, Found, Handle, MoreFiles, MoreFilesClient, Names, Tally};

/// A clerk that makes one call for each operation, and keeps only paths.
#[derive(Clone)]
pub(crate) struct ByCalls {
    files: FileAccessClient,
    more: MoreFilesClient,
    paths: Arc<Paths>,
    tally: Arc<Tally>,
}

impl ByCalls {
    /// Returns a clerk that has asked the server for its root.
    pub(crate) fn new(
        files: FileAccessClient,
        more: MoreFilesClient,
        tally: Arc<Tally>,
    ) -> Result<ByCalls, FileError> {
        let root = more.look_up("")?.found.handle;
        Ok(ByCalls { files, more, paths: Arc::new(Paths::new(root)), tally })
    }

    /// Returns the same clerk, with the paths of handles that were given to clients before.
    pub(crate) fn with_paths(self, paths: Arc<Paths>) -> ByCalls {
        ByCalls { paths, ..self }
    }

    fn count(&self) {
        self.tally.count(|counts| counts.calls += 1);
    }

    pub(crate) fn paths(&self) -> &Arc<Paths> {
        &self.paths
    }
}

impl Files for ByCalls {
    fn null(&self) -> Result<(), FileError> {
        self.count();
        self.more.null()
    }

    fn root(&self) -> Result<Handle, FileError> {
        Ok(self.paths.root())
    }

    fn attributes(&self, file: Handle) -> Result<Attributes, FileError> {
        let known = self.paths.of(file)?;
        self.count();
        match known.kind {
            FileKind::Link => Ok(self.more.look_up(&known.path)?.attributes),
            _ => self.files.stat(&known.path),
        }
    }

    fn look_up(&self, directory: Handle, name: &str) -> Result<Found, FileError> {
        check_name(name)?;
        let directory = self.paths.directory(directory)?;
        self.count();
        let found = self.more.look_up(&child(&directory, name))?.found;
        self.paths.learn(&directory, name, found);
        Ok(found)
    }

    fn read_link(&self, link: Handle) -> Result<String, FileError> {
        let known = self.paths.of(link)?;
        self.count();
        self.more.read_link(&known.path)
    }

    fn read(&self, file: Handle, offset: u64, length: u32) -> Result<Contents, FileError> {
        let known = self.paths.file(file)?;
        self.count();
        self.files.read(&known.path, offset, length.min(BLOCK as u32))
    }

    fn read_directory(&self, directory: Handle, after: &str) -> Result<Names, FileError> {
        let known = self.paths.directory(directory)?;
        self.count();
        let page = self.files.list(&known.path, after)?;
        Ok(Names { names: page.entries.into_iter().map(|entry| entry.name).collect(), more: page.more })
    }

    fn write(&self, file: Handle, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let known = self.paths.file(file)?;
        self.count();
        self.more.write(&known.path, offset, bytes)
    }

    fn statistics(&self) -> Result<Statistics, FileError> {
        self.count();
        self.more.statistics()
    }

    fn commit(&self, file: Handle) -> Result<(), FileError> {
        let known = self.paths.file(file)?;
        self.count();
        self.more.commit(&known.path)
    }
}
