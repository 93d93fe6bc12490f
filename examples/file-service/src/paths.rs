//! What a clerk knows of the handles that it has given out.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use farcall_file_access::{FileError, FileKind};

use crate::{Found, Handle};

/// The paths of files that were looked up: as many as there are files, and no more.
#[derive(Debug)]
pub(crate) struct Paths {
    root: Handle,
    known: RwLock<HashMap<Handle, Known>>,
}

/// A file.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) path: Arc<str>,
    pub(crate) kind: FileKind,
}

impl Paths {
    /// Of a server whose directory has this handle.
    pub(crate) fn new(root: Handle) -> Paths {
        let known = Known { path: "".into(), kind: FileKind::Directory };
        Paths { root, known: RwLock::new(HashMap::from([(root, known)])) }
    }

    pub(crate) fn root(&self) -> Handle {
        self.root
    }

    /// A file that was looked up before.
    pub(crate) fn of(&self, handle: Handle) -> Result<Known, FileError> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&handle).cloned().ok_or(FileError::NotFound)
    }

    /// As [`Paths::of`], of something that can be read and written.
    pub(crate) fn file(&self, handle: Handle) -> Result<Known, FileError> {
        // Its path would lead on to what the link names.
        self.of(handle)
            .and_then(|known| if known.kind == FileKind::Link { Err(FileError::NotAFile) } else { Ok(known) })
    }

    /// As [`Paths::of`], of a directory.
    pub(crate) fn directory(&self, handle: Handle) -> Result<Known, FileError> {
        let known = self.of(handle)?;
        if known.kind == FileKind::Directory { Ok(known) } else { Err(FileError::NotADirectory) }
    }

    /// The handle of this name in that directory was found.
    pub(crate) fn learn(&self, directory: &Known, name: &str, found: Found) {
        let path = child(directory, name);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(found.handle, Known { path: path.into(), kind: found.kind });
    }

    /// The handle of this name in that directory was found, and may be known already.
    pub(crate) fn learn_if_new(&self, directory: Handle, name: &str, found: Found) -> Result<(), FileError> {
        if !self.known.read().unwrap_or_else(PoisonError::into_inner).contains_key(&found.handle) {
            self.learn(&self.directory(directory)?, name, found);
        }
        Ok(())
    }
}

/// The path of a name in a directory.
pub(crate) fn child(directory: &Known, name: &str) -> String {
    match &*directory.path {
        "" => name.to_owned(),
        path => format!("{path}/{name}"),
    }
}

/// Refuses what is not the name of one entry.
pub(crate) fn check_name(name: &str) -> Result<(), FileError> {
    match name {
        "" | "." | ".." => Err(FileError::BadPath("it is not the name of an entry".into())),
        _ if name.contains(['/', '\0']) => Err(FileError::BadPath("it is not the name of an entry".into())),
        _ => Ok(()),
    }
}
