//! Decides whose files are trusted: by the owners and modes of a file, of every folder above it, and of every
//! link on the way to it (docs/keys.md, "Who may own what").

use std::fs::Metadata;
use std::path::Path;

use crate::fault::Fault;

/// Who may know what a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Secrecy {
    /// The user alone, or a group of the user's if root has made the file.
    Private,
    /// Everybody.
    Public,
}

pub(super) use system::{check_file, check_folder, check_way};

#[cfg(unix)]
mod system {
    use std::collections::VecDeque;
    use std::ffi::OsString;
    use std::fs;
    use std::io;
    use std::os::unix::fs::MetadataExt as _;
    use std::path::{Component, PathBuf};

    use rustix::fs::StatVfsMountFlags;

    use super::{Fault, Metadata, Path, Secrecy};

    const ROOT: u32 = 0;

    /// Write permission for the group and for others.
    const OTHERS_WRITE: u32 = 0o022;
    const STICKY: u32 = 0o1000;

    /// The most links on the way to a file, as in Linux.
    const MAX_LINKS: usize = 40;

    /// Checks the way to a file: that nobody else can replace a folder or a link on it. From the root on, each
    /// part is looked at once the part before it is known to be safe, so nobody else can replace it later.
    pub(in super::super) fn check_way(path: &Path) -> Result<(), Fault> {
        let absolute = std::path::absolute(path).map_err(|why| Fault::io(path, why))?;
        let (mut at, mut rest) = (PathBuf::new(), parts_of(&absolute));
        let mut links = 0;
        while let Some(part) = rest.pop_front() {
            if part == ".." {
                at.pop();
                continue;
            }
            let next = at.join(&part);
            let found = match fs::symlink_metadata(&next) {
                Ok(found) => found,
                // Whoever opens the file says so.
                Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(why) => return Err(Fault::io(&next, why)),
            };
            if found.is_symlink() {
                check_link(&next, &found)?;
                links += 1;
                if links > MAX_LINKS {
                    let (expected, found) = (format!("at most {MAX_LINKS} links"), "further ones");
                    return Err(Fault::new(path, &expected, found, "name the folder itself"));
                }
                let target = fs::read_link(&next).map_err(|why| Fault::io(&next, why))?;
                let mut parts = parts_of(&target);
                parts.append(&mut rest);
                rest = parts;
                continue;
            }
            if found.is_dir() && !rest.is_empty() {
                check_folder(&next, &found)?;
            }
            at = next;
        }
        Ok(())
    }

    fn parts_of(path: &Path) -> VecDeque<OsString> {
        let parts = path.components().filter(|part| !matches!(part, Component::CurDir));
        parts.map(|part| part.as_os_str().to_owned()).collect()
    }

    /// Checks that nobody else can have made a link.
    fn check_link(path: &Path, found: &Metadata) -> Result<(), Fault> {
        let (user, owner) = (user(), found.uid());
        if owner == user || owner == ROOT {
            return Ok(());
        }
        let expected = format!("a link of this user ({user}) or of root");
        let link = format!("one of user {owner}, who could lead farcall to other files");
        Err(Fault::new(path, &expected, link, "remove it, or name the folder to which it leads"))
    }

    /// Checks that nobody else can replace what a folder has.
    pub(in super::super) fn check_folder(path: &Path, found: &Metadata) -> Result<(), Fault> {
        check_owner(path, found)?;
        let mode = found.mode() & 0o7777;
        let is_sticky = mode & STICKY != 0 && found.uid() == ROOT;
        if mode & OTHERS_WRITE == 0 || is_sticky || is_read_only(path) {
            return Ok(());
        }
        Err(Fault::new(
            path,
            "a mode that lets nobody else write, such as 0644, or 0755 for a directory",
            format!("mode {mode:04o}, with which others can change whom farcall trusts"),
            format!("`chmod go-w {}`", path.display()),
        ))
    }

    /// Checks that nobody else can have written a file, and if it is private, that nobody else can read it.
    pub(in super::super) fn check_file(path: &Path, found: &Metadata, secrecy: Secrecy) -> Result<(), Fault> {
        let (mode, shown) = (found.mode() & 0o7777, path.display());
        if found.nlink() > 1 && is_in_common_folder(path) {
            let advice = format!("`cp {shown} NEW && mv NEW {shown}`, or keep the keys in another folder");
            let names = format!("one with {} names, of which others can have made this one", found.nlink());
            return Err(Fault::new(
                path,
                "a file with one name, because others can write here",
                names,
                advice,
            ));
        }
        if secrecy == Secrecy::Private {
            return check_private(path, found);
        }
        check_owner(path, found)?;
        if mode & OTHERS_WRITE == 0 {
            return Ok(());
        }
        let advice = match is_read_only(path) {
            true => "give the volume a mode such as 0444 (defaultMode in Kubernetes)".to_owned(),
            false => format!("`chmod go-w {shown}`"),
        };
        Err(Fault::new(
            path,
            "a mode that lets nobody else write, such as 0644, or 0755 for a directory",
            format!("mode {mode:04o}, with which others can change whom farcall trusts"),
            advice,
        ))
    }

    /// Checks that a private key is the user's alone. In a folder where only root decides, as in a volume of a
    /// Kubernetes Secret, it may be root's, and a group of the user's may read it: there the user cannot own it.
    fn check_private(path: &Path, found: &Metadata) -> Result<(), Fault> {
        let (user, owner, mode) = (user(), found.uid(), found.mode() & 0o7777);
        let shown = path.display();
        let is_given = owner == ROOT && is_in_folder_of_root(path);
        if owner != user && !is_given {
            return Err(Fault::new(
                path,
                &format!("a file of this user ({user}): it has a private key"),
                format!("a file of user {owner}"),
                format!("run as user {owner}, or `chown {user} {shown}`"),
            ));
        }
        let is_of_group = is_given && mode & 0o037 == 0 && is_in_group(found.gid());
        if mode & 0o077 == 0 || is_of_group {
            return Ok(());
        }
        if is_given {
            return Err(Fault::new(
                path,
                "a private key that root or a group of this user alone can read, such as mode 0440",
                format!("mode {mode:04o} for group {}, with which others can use it", found.gid()),
                "give the volume the mode 0440 and a group of this user's (in Kubernetes defaultMode and fsGroup)",
            ));
        }
        Err(Fault::new(
            path,
            "mode 0600: it has a private key",
            format!("mode {mode:04o}, with which others can use it"),
            format!("`chmod 600 {shown}`; make a new key if others may have read it"),
        ))
    }

    fn check_owner(path: &Path, found: &Metadata) -> Result<(), Fault> {
        let (user, owner) = (user(), found.uid());
        if owner == user || owner == ROOT {
            return Ok(());
        }
        let advice = match is_read_only(path) {
            true => "let root own the volume".to_owned(),
            false => format!("`chown {user} {}`", path.display()),
        };
        Err(Fault::new(
            path,
            &format!("a file or directory of this user ({user}) or of root"),
            format!("one of user {owner}, who could change whom farcall trusts"),
            advice,
        ))
    }

    fn user() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    /// Returns whether this process is in a group.
    fn is_in_group(group: u32) -> bool {
        let groups = rustix::process::getgroups().unwrap_or_default();
        rustix::process::getegid().as_raw() == group || groups.iter().any(|other| other.as_raw() == group)
    }

    /// Returns whether nobody can write to the file system at a path, as it is mounted there.
    fn is_read_only(path: &Path) -> bool {
        rustix::fs::statvfs(path).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY))
    }

    /// Returns whether root alone decides what a name in the folder of a path means.
    fn is_in_folder_of_root(path: &Path) -> bool {
        is_read_only(path) || is_in_common_folder(path)
    }

    /// Returns whether everybody can make files in the folder of a path, but nobody can replace those of others.
    fn is_in_common_folder(path: &Path) -> bool {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let is_sticky = |found: Metadata| {
            found.uid() == ROOT && found.mode() & STICKY != 0 && found.mode() & OTHERS_WRITE != 0
        };
        fs::metadata(folder).is_ok_and(is_sticky) && !is_read_only(folder)
    }
}

/// On other systems the access lists of the directory decide, and are not looked at.
#[cfg(not(unix))]
mod system {
    use super::{Fault, Metadata, Path, Secrecy};

    pub(in super::super) fn check_way(_: &Path) -> Result<(), Fault> {
        Ok(())
    }

    pub(in super::super) fn check_folder(_: &Path, _: &Metadata) -> Result<(), Fault> {
        Ok(())
    }

    pub(in super::super) fn check_file(_: &Path, _: &Metadata, _: Secrecy) -> Result<(), Fault> {
        Ok(())
    }
}
