//! `farcall put`: stores a file of this machine at a file server, and continues an interrupted transfer.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use clap::Args;
use farcall::{Bulk, Error};
use farcall_file_access::{Digest, Digesting, FileAccess, FileError, FileKind};
use indicatif::ProgressBar;
use serde_json::json;

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::remote::{Files, To};
use crate::text::size;
use crate::transfer::{Continuing, FORCE, Stopped, bar, exists, hexadecimal, resumed, so_far};

/// Store a file at a file server that lets clients write
///
/// The server keeps the file aside until it is complete and its hash is that of FILE; then it gets its name,
/// and FILE's time of change. After an interruption, the same command continues where the transfer ended.
/// --within limits no transfer, which may take as long as the server answers.
#[derive(Debug, Args)]
pub struct Put {
    /// The file to store
    file: PathBuf,

    /// The path at the server, or the directory to store it in [default: the same name]
    path: Option<String>,

    /// Replace the file at the server if it exists
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    continuing: Continuing,

    #[command(flatten)]
    to: To,
}

impl Put {
    pub fn run(&self, output: &Output) -> Outcome {
        let about = |why: io::Error| Failure::from(why).about(self.file.display());
        let file = File::open(&self.file).map_err(about)?;
        let found = file.metadata().map_err(about)?;
        if !found.is_file() {
            return Err(Failure::new(format!("{} is not a regular file", self.file.display())));
        }
        let files = self.to.transfers()?;
        let path = self.destination(&files)?;
        let bar = bar(output, &path, found.len());
        let bytes = found.len();
        let mut transfer = Transfer { file, found, bar: bar.clone(), resumed_at: None, whole: None };
        let breaks = self.continuing.run(
            &mut transfer,
            |transfer| self.store(&files, &path, transfer).map_err(|why| why.about(&path)),
            |transfer| transfer.bar.position(),
            |reached, why| why.about(&path).and(so_far(reached, bytes, "were sent")).fact("bytes", reached),
        )?;
        bar.finish_and_clear();
        let resumed_at = transfer.resumed_at.unwrap_or(0);
        output.line(
            || {
                json!({
                    "file": self.file, "path": path, "bytes": bytes, "resumed_at": resumed_at, "breaks": breaks,
                    "sha256": transfer.whole.as_ref().map(hexadecimal),
                })
            },
            || format!("{path}: {}{}", size(bytes), resumed(resumed_at, "there")),
        )
    }

    /// Returns the path to store the file at, unless a file that must not be replaced is there.
    fn destination(&self, files: &Files) -> Outcome<String> {
        let name = || {
            let name = self.file.file_name().and_then(|name| name.to_str()).map(str::to_owned);
            name.ok_or_else(|| Failure::usage(format!("{:?} has no name in UTF-8", self.file)))
        };
        let mut path = match &self.path {
            None => name()?,
            Some(path) => path.clone(),
        };
        let find = |path: &str| match files.brief.stat(path) {
            Ok(attributes) => Ok(Some(attributes.kind)),
            Err(Error::Declared(FileError::NotFound)) => Ok(None),
            Err(why) => Err(Failure::from(why).about(path)),
        };
        let mut found = find(&path)?;
        if found == Some(FileKind::Directory) && self.path.is_some() {
            path = match path.trim_end_matches('/') {
                "" => name()?,
                directory => format!("{directory}/{}", name()?),
            };
            found = find(&path)?;
        }
        if found.is_some() && !self.force {
            return Err(exists(&path));
        }
        Ok(path)
    }

    /// Sends what the server does not have, and has it check the whole.
    fn store(&self, files: &Files, path: &str, transfer: &mut Transfer) -> Result<(), Stopped> {
        // The reply to an earlier attempt may have been lost.
        if let Some(whole) = transfer.whole
            && files.long.digest(path, u64::MAX).ok() == Some(whole)
        {
            return Ok(());
        }
        let there = files.long.unfinished(path).map_err(|why| match why {
            Error::Declared(FileError::NotPermitted) => {
                Failure::from(why).hint("`farcall serve DIR --writable` lets clients store files").into()
            }
            why => Stopped::from(why),
        })?;
        let digesting = transfer.beginning(&there)?;
        let start = digesting.length();
        transfer.resumed_at.get_or_insert(start);
        let bar = transfer.bar.clone();
        let reached = move |sent| bar.set_position(start + sent);
        reached(0);
        transfer.bar.reset_eta();
        let digesting = Arc::new(Mutex::new(digesting));
        let source = Source {
            file: transfer.file.try_clone().map_err(Failure::from)?,
            left: transfer.found.len() - start,
            digesting: digesting.clone(),
        };
        files.long.store(path, start, Bulk::from_reader(source).with_progress(reached))?;
        let whole = digesting.lock().unwrap_or_else(PoisonError::into_inner).clone().end();
        if whole.length != transfer.found.len() || !transfer.is_unchanged()? {
            let why = format!("{} changed while it was being sent", self.file.display());
            return Err(Failure::new(why).hint("do it again: it starts anew").into());
        }
        transfer.whole = Some(whole);
        let modified = transfer.found.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        files.long.finish(path, whole, modified, self.force).map_err(|why| match why {
            Error::Declared(FileError::Exists) => Failure::from(why).hint(FORCE).into(),
            why => Stopped::from(why),
        })
    }
}

/// The file that is sent, and how far that got.
struct Transfer {
    file: File,
    found: Metadata,
    /// Its position is the number of bytes that the server had at the beginning of the attempt, and of those
    /// sent since then.
    bar: ProgressBar,
    /// How long the part was that an earlier run left at the server, if it was of use.
    resumed_at: Option<u64>,
    /// The digest of the whole, once all of it was sent.
    whole: Option<Digest>,
}

impl Transfer {
    /// Positions the file behind what the server has, if that is a beginning of the file; otherwise at its
    /// start. Returns the digest so far.
    fn beginning(&mut self, there: &Digest) -> Outcome<Digesting> {
        self.file.rewind()?;
        if there.length == 0 || there.length > self.found.len() {
            return Ok(Digesting::default());
        }
        let mut digesting = Digesting::default();
        digesting.add_all((&mut self.file).take(there.length), || false)?;
        if digesting.clone().end() == *there {
            return Ok(digesting);
        }
        self.file.rewind()?;
        Ok(Digesting::default())
    }

    fn is_unchanged(&self) -> Outcome<bool> {
        let is = self.file.metadata()?;
        Ok(is.len() == self.found.len() && is.modified()? == self.found.modified()?)
    }
}

/// Reads the rest of the file, at most as many bytes as it had.
struct Source {
    file: File,
    left: u64,
    digesting: Arc<Mutex<Digesting>>,
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.file.read(&mut buffer[..most])?;
        self.left -= read as u64;
        self.digesting.lock().unwrap_or_else(PoisonError::into_inner).add(&buffer[..read]);
        Ok(read)
    }
}
