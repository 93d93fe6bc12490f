//! The paths of the handles that a clerk has given to its clients.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use farcall_file_access::{FileError, FileKind};

use crate::{Found, Handle};

/// The paths of all files that were looked up.
#[derive(Debug)]
pub(crate) struct Paths {
    root: Handle,
    known: RwLock<HashMap<Handle, Known>>,
}

/// A file that was looked up.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) path: Arc<str>,
    pub(crate) kind: FileKind,
}

impl Paths {
    /// Returns the paths of a server whose root has this handle.
    pub(crate) fn new(root: Handle) -> Paths {
        let known = Known { path: "".into(), kind: FileKind::Directory };
        Paths { root, known: RwLock::new(HashMap::from([(root, known)])) }
    }

    pub(crate) fn root(&self) -> Handle {
        self.root
    }

    /// Returns a file that was looked up before.
    pub(crate) fn of(&self, handle: Handle) -> Result<Known, FileError> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&handle).cloned().ok_or(FileError::NotFound)
    }

    /// Returns a file that was looked up before and is not a symbolic link.
    pub(crate) fn file(&self, handle: Handle) -> Result<Known, FileError> {
        // Links are refused, because the server would follow a link in the path.
        self.of(handle)
            .and_then(|known| if known.kind == FileKind::Link { Err(FileError::NotAFile) } else { Ok(known) })
    }

    /// Returns a directory that was looked up before.
    pub(crate) fn directory(&self, handle: Handle) -> Result<Known, FileError> {
        let known = self.of(handle)?;
        if known.kind == FileKind::Directory { Ok(known) } else { Err(FileError::NotADirectory) }
    }

    /// Notes the handle of a name in a directory.
    pub(crate) fn learn(&self, directory: &Known, name: &str, found: Found) {
        let path = child(directory, name);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(found.handle, Known { path: path.into(), kind: found.kind });
    }

    /// Notes the handle of a name in a directory, unless the handle is known already.
    pub(crate) fn learn_if_new(&self, directory: Handle, name: &str, found: Found) -> Result<(), FileError> {
        if !self.known.read().unwrap_or_else(PoisonError::into_inner).contains_key(&found.handle) {
            self.learn(&self.directory(directory)?, name, found);
        }
        Ok(())
    }
}

/// Returns the path of a name in a directory.
pub(crate) fn child(directory: &Known, name: &str) -> String {
    match &*directory.path {
        "" => name.to_owned(),
        path => format!("{path}/{name}"),
    }
}

/// Checks that a text is the name of one entry.
pub(crate) fn check_name(name: &str) -> Result<(), FileError> {
    match name {
        "" | "." | ".." => Err(FileError::BadPath("it is not the name of an entry".into())),
        _ if name.contains(['/', '\0']) => Err(FileError::BadPath("it is not the name of an entry".into())),
        _ => Ok(()),
    }
}
