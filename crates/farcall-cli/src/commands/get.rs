//! `farcall get`: copies a served file to this machine, and continues an interrupted copy.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use farcall_file_access::{Attributes, FileAccess, FileAccessClient, FileKind};
use serde_json::json;

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::remote::{From, Stream};
use crate::text::size;

/// Copy a file of a file server
///
/// The copy grows in FILE.part. It becomes FILE when it is complete and the original is still unchanged.
/// After an interruption, the same command continues where the copy ended. FILE gets the original's time of
/// change.
#[derive(Debug, Args)]
pub struct Get {
    /// The path of the file at the server
    path: String,

    /// The file to write, or the directory to write to [default: the same name, in this directory]
    #[arg(value_name = "FILE")]
    to: Option<PathBuf>,

    /// Replace FILE if it exists
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    from: From,
}

impl Get {
    pub fn run(&self, output: &Output) -> Outcome {
        let to = self.destination()?;
        if to.exists() && !self.force {
            return Err(Failure::new(format!("{} exists", to.display())).hint("--force replaces it"));
        }
        let files = self.from.files()?;
        let about = |why: farcall::Error<_>| Failure::from(why).about(&self.path);
        let original = files.stat(&self.path).map_err(about)?;
        if original.kind != FileKind::File {
            return Err(Failure::new(format!("{} is not a regular file", self.path)));
        }
        let mut part = Part::open(&to, &original).map_err(|why| why.about(to.display()))?;
        let resumed = part.length;
        self.copy(&files, &mut part, &original, output)?;
        if files.stat(&self.path).map_err(about)? != original || part.length != original.size {
            part.discard();
            let why = format!("{} changed while it was being copied", self.path);
            return Err(Failure::new(why).hint("do it again: it starts anew"));
        }
        let length = part.length;
        part.finish(&to).map_err(|why| why.about(to.display()))?;
        output.line(
            || json!({ "path": self.path, "file": to, "bytes": length, "resumed_at": resumed }),
            || {
                let resumed =
                    (resumed > 0).then(|| format!(", of which {} were here already", size(resumed)));
                format!("{}: {}{}", to.display(), size(length), resumed.unwrap_or_default())
            },
        )
    }

    fn destination(&self) -> Outcome<PathBuf> {
        let name = self.path.rsplit('/').find(|name| !matches!(*name, "" | "." | ".."));
        let name = name.ok_or_else(|| Failure::usage(format!("{:?} names no file", self.path)))?;
        Ok(match &self.to {
            None => PathBuf::from(name),
            Some(to) if to.is_dir() => to.join(name),
            Some(to) => to.clone(),
        })
    }

    fn copy(
        &self,
        files: &FileAccessClient,
        part: &mut Part,
        original: &Attributes,
        output: &Output,
    ) -> Outcome {
        let template = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        let bar = output.progress(original.size, template).with_message(self.path.clone());
        bar.set_position(part.length);
        bar.reset_eta();
        for bytes in Stream::new(files, &self.path, part.length) {
            let bytes = bytes.map_err(|why| {
                Failure::from(why).about(&self.path).hint("do it again: it goes on where it was")
            })?;
            part.append(&bytes, original).map_err(|why| why.about(part.path.display()))?;
            bar.set_position(part.length);
            // Stops once more bytes have come than the file had at the start; otherwise a growing file would
            // be copied for ever.
            if part.length > original.size {
                break;
            }
        }
        bar.finish_and_clear();
        Ok(())
    }
}

/// The part of a file that has arrived. If its modification time equals the original's, its bytes are a valid
/// beginning of the original. That time is set after every write, so another time means that a write was
/// interrupted or the original has changed.
struct Part {
    path: PathBuf,
    file: File,
    length: u64,
}

impl Part {
    /// Opens the existing part if it belongs to this original; otherwise begins an empty one.
    fn open(to: &Path, original: &Attributes) -> Outcome<Part> {
        let mut name = to.as_os_str().to_owned();
        name.push(".part");
        let path = PathBuf::from(name);
        let mut file = File::options().read(true).write(true).create(true).truncate(false).open(&path)?;
        let found = file.metadata()?;
        let is_beginning =
            found.is_file() && found.modified()? == original.modified && found.len() <= original.size;
        let length = if is_beginning { found.len() } else { 0 };
        file.set_len(length)?;
        file.set_modified(original.modified)?;
        file.seek(SeekFrom::Start(length))?;
        Ok(Part { path, file, length })
    }

    fn append(&mut self, bytes: &[u8], original: &Attributes) -> Outcome {
        self.file.write_all(bytes)?;
        self.file.set_modified(original.modified)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    fn finish(self, to: &Path) -> Outcome {
        self.file.sync_all()?;
        Ok(fs::rename(&self.path, to)?)
    }

    fn discard(self) {
        // A later run would not accept the remainder as a beginning anyway.
        let _ = fs::remove_file(&self.path);
    }
}
