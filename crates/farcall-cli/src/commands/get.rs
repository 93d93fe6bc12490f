//! `farcall get`: copies a served file to this machine, and continues an interrupted copy.

use std::fs::{self, File, Metadata, TryLockError};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use farcall_file_access::{Attributes, Digest, Digesting, FileAccess, FileKind};
use indicatif::ProgressBar;
use serde_json::json;

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::remote::{Files, From};
use crate::text::size;
use crate::transfer::{Continuing, Stopped, bar, exists, hexadecimal, resumed, so_far};

/// Copy a file of a file server
///
/// The copy grows in FILE.part. It becomes FILE when it is complete, the server's hash of the original is
/// that of the copy, and the original is still unchanged. After an interruption, the same command continues
/// where the copy ended. FILE gets the original's time of change. --within limits no transfer, which may take
/// as long as the server answers.
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
    continuing: Continuing,

    #[command(flatten)]
    from: From,
}

impl Get {
    pub fn run(&self, output: &Output) -> Outcome {
        let to = self.destination()?;
        // A symbolic link that leads nowhere exists too.
        if fs::symlink_metadata(&to).is_ok() && !self.force {
            return Err(exists(to.display()));
        }
        let files = self.from.transfers()?;
        let original = files.brief.stat(&self.path).map_err(|why| Failure::from(why).about(&self.path))?;
        if original.kind != FileKind::File {
            return Err(Failure::new(format!("{} is not a regular file", self.path)));
        }
        let mut part = Part::open(&to).map_err(|why| Failure::from(why).about(to.display()))?;
        let bar = bar(output, &self.path, original.size);
        let place = format!("are in {}", part.path.display());
        let breaks = self.continuing.run(
            &mut part,
            |part| self.copy(&files, part, &original, &bar),
            |part| part.digesting.length(),
            |reached, why| {
                why.about(&self.path).and(so_far(reached, original.size, &place)).fact("bytes", reached)
            },
        )?;
        bar.finish_and_clear();
        let (whole, resumed_at) = (part.digest(), part.resumed_at.unwrap_or(0));
        part.finish(&to, &original, self.force)?;
        output.line(
            || {
                json!({
                    "path": self.path, "file": to, "bytes": whole.length, "resumed_at": resumed_at,
                    "breaks": breaks, "sha256": hexadecimal(&whole),
                })
            },
            || format!("{}: {}{}", to.display(), size(whole.length), resumed(resumed_at, "here")),
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

    /// Copies what is missing, and compares the whole with the original.
    fn copy(
        &self,
        files: &Files,
        part: &mut Part,
        original: &Attributes,
        bar: &ProgressBar,
    ) -> Result<(), Stopped> {
        let about = |why: Stopped| why.about(&self.path);
        let there = part.digest();
        let is_beginning = there.length == 0
            || there.length <= original.size
                && files.long.digest(&self.path, there.length).map_err(|why| about(why.into()))? == there;
        if !is_beginning {
            part.empty().map_err(|why| Failure::from(why).about(part.path.display()))?;
        }
        let start = part.digesting.length();
        part.resumed_at.get_or_insert(start);
        bar.set_position(start);
        bar.reset_eta();
        // A server whose file is longer by now sends no more than this.
        let mut content =
            files.long.fetch(&self.path, start, original.size - start).map_err(|why| about(why.into()))?;
        let copied = content.copy_with(part, original.size - start, |bytes| bar.set_position(start + bytes));
        copied.done().map_err(|why| about(why.into()))?;

        let whole = files.long.digest(&self.path, u64::MAX).map_err(|why| about(why.into()))?;
        let is = files.brief.stat(&self.path).map_err(|why| about(why.into()))?;
        if whole != part.digest() || is != *original {
            part.empty().map_err(|why| Failure::from(why).about(part.path.display()))?;
            let why = format!("{} changed while it was being copied", self.path);
            return Err(Failure::new(why).hint("do it again: it starts anew").into());
        }
        Ok(())
    }
}

/// The part of a file that has arrived.
struct Part {
    path: PathBuf,
    file: File,
    digesting: Digesting,
    /// How long the part was that an earlier run left, if it was of use.
    resumed_at: Option<u64>,
}

impl Part {
    /// Opens the part that an earlier run left, or begins an empty one.
    fn open(to: &Path) -> io::Result<Part> {
        let mut name = to.as_os_str().to_owned();
        name.push(".part");
        let path = PathBuf::from(name);
        // A symbolic link may lead to any file.
        if let Ok(found) = fs::symlink_metadata(&path) {
            check_kind(&path, &found)?;
        }
        let made = File::options().read(true).write(true).create_new(true).open(&path);
        let is_found = matches!(&made, Err(why) if why.kind() == io::ErrorKind::AlreadyExists);
        let mut file = if is_found { File::options().read(true).write(true).open(&path)? } else { made? };
        file.try_lock().map_err(|why| match why {
            TryLockError::WouldBlock => busy(&path),
            TryLockError::Error(why) => why,
        })?;
        let found = file.metadata()?;
        check_kind(&path, &found)?;
        #[cfg(unix)]
        check_name(&path, &found)?;
        #[cfg(unix)]
        if is_found {
            check_owner(&path, &found)?;
        }
        let mut digesting = Digesting::default();
        digesting.add_all(&mut file, || false)?;
        Ok(Part { path, file, digesting, resumed_at: None })
    }

    fn digest(&self) -> Digest {
        self.digesting.clone().end()
    }

    fn empty(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.digesting = Digesting::default();
        Ok(())
    }

    fn finish(self, to: &Path, original: &Attributes, replace: bool) -> Outcome {
        let about = |why: io::Error| Failure::from(why).about(to.display());
        self.file.set_modified(original.modified).and_then(|()| self.file.sync_all()).map_err(about)?;
        let renamed = match replace {
            true => fs::rename(&self.path, to),
            false => rename_to_new(&self.path, to),
        };
        renamed.map_err(|why| {
            let why = match why.kind() {
                io::ErrorKind::AlreadyExists => exists(to.display()),
                _ => about(why),
            };
            why.and(format!("the complete copy is in {}", self.path.display()))
        })
    }
}

fn busy(path: &Path) -> io::Error {
    io::Error::other(format!("another program is writing {}", path.display()))
}

fn check_kind(path: &Path, found: &Metadata) -> io::Result<()> {
    match found.is_file() {
        true => Ok(()),
        false => Err(io::Error::other(format!("{} is not a regular file", path.display()))),
    }
}

/// Fails unless a path is the only name of a file that was opened and locked. Before it was locked, another
/// program may have completed it, and a write would change the complete file.
#[cfg(unix)]
fn check_name(path: &Path, opened: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let named = fs::symlink_metadata(path);
    if !named.is_ok_and(|named| (named.dev(), named.ino()) == (opened.dev(), opened.ino())) {
        return Err(busy(path));
    }
    match opened.nlink() {
        1 => Ok(()),
        _ => Err(io::Error::other(format!("{} has another name too; remove it", path.display()))),
    }
}

/// Fails if another user may have made a file that was found. That user could change the copy later.
#[cfg(unix)]
fn check_owner(path: &Path, found: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    const OTHERS_WRITE: u32 = 0o022;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let is_shared = fs::metadata(folder.unwrap_or(Path::new(".")))?.mode() & OTHERS_WRITE != 0;
    match is_shared && found.uid() != rustix::process::geteuid().as_raw() {
        false => Ok(()),
        true => Err(io::Error::other(format!("{} is another user's; name another file", path.display()))),
    }
}

/// Gives a file a name that no file has.
fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => Err(why),
        // The file system may have no hard links.
        Err(_) => rename_over_empty(from, to),
    }
}

/// Gives a file a name that no file has. An empty file reserves the name until the file replaces it, so other
/// programs see the empty file for a moment.
fn rename_over_empty(from: &Path, to: &Path) -> io::Result<()> {
    File::create_new(to)?;
    fs::rename(from, to).inspect_err(|_| drop(fs::remove_file(to)))
}

impl Write for Part {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.digesting.add(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn a_part_that_another_user_has_planted_is_not_continued() {
        use std::os::unix::fs::{PermissionsExt, chown};
        let place = tempfile::tempdir().unwrap();
        let [to, part] = ["copy", "copy.part"].map(|name| place.path().join(name));
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        drop(Part::open(&to).unwrap());
        drop(Part::open(&to).expect("it is this user's"));
        if chown(&part, Some(65_534), None).is_err() {
            let _ = writeln!(io::stderr(), "skipped: only root can give a file to another user");
            return;
        }
        let why = Part::open(&to).map(drop).unwrap_err().to_string();
        assert!(why.contains("copy.part is another user's"), "{why}");
        // In a folder where nobody else writes, nobody else has made it.
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        drop(Part::open(&to).unwrap());
    }

    #[test]
    fn a_file_is_renamed_only_to_a_new_name() {
        for rename in [rename_to_new, rename_over_empty] {
            let place = tempfile::tempdir().unwrap();
            let [from, to] = ["from", "to"].map(|name| place.path().join(name));
            fs::write(&from, "copy").unwrap();
            fs::write(&to, "of another").unwrap();
            assert_eq!(rename(&from, &to).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(fs::read(&to).unwrap(), b"of another");
            fs::remove_file(&to).unwrap();
            rename(&from, &to).unwrap();
            assert_eq!(fs::read(&to).unwrap(), b"copy");
            assert!(!from.exists());
            assert_eq!(rename(&from, &to.with_extension("new")).unwrap_err().kind(), io::ErrorKind::NotFound);
            assert!(!to.with_extension("new").exists(), "and no empty file is left");
        }
    }
}
