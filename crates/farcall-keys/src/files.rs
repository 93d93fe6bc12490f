//! Key files: a keyring from a directory. The only module that reads and writes files.
//!
//! | file | a line |
//! |---|---|
//! | `identity` | the private key; the only line. Mode 0600 |
//! | `grants` | `GRANT`: what this end may show |
//! | `authorities` | `KEY [principals=PRINCIPAL,...]`: whose grants are believed |
//! | `authorized_keys` | `KEY PRINCIPAL [type=TYPE] [instance=INSTANCE]`: clients without grants |
//! | `known_servers` | `NAME KEY [or-granted]`: servers without grants |
//! | `revoked` | revocation lists in base64, each between a BEGIN and an END line |
//! | `policy` | `(allow \| deny) PRINCIPAL TYPE[/INSTANCE] [PROCEDURE,...]` |
//!
//! Only `identity` must exist. `#` begins a comment; any other word that is not known is a fault.

#[cfg(feature = "x509")]
mod certificates;
mod content;
mod disk;
mod stamp;
mod trust;

use std::path::{Path, PathBuf};

use crate::fault::Fault;
use crate::identity::Identity;
use crate::key::PublicKey;
use crate::keyring::Keyring;
use crate::lines;
use crate::revocation::RevocationList;
use content::{Counted, FILES, Found, Lists, Part, update_lists};
use stamp::Stamp;
use trust::Secrecy;

#[cfg(feature = "x509")]
pub use certificates::CertificateFiles;
pub use content::KeyLine;
pub(crate) use content::fuzz;

/// How often files that change while they are read are read again at once.
const MAX_READINGS: usize = 3;

/// A directory of key files, from which a [`Keyring`] was read.
///
/// The directory, the folders above it and its files must belong to the user or to root, and nobody else may be
/// able to write to them, except in a folder of root where nobody can replace the files of others (mode 1777).
/// `identity` must belong to the user, and nobody else may be able to read it. In such a folder of root, or one
/// that is mounted read-only, it may belong to root, and a group of the user's may read it, so that a volume of a
/// Kubernetes Secret will do. A file has at most 16
/// MiB, a line at most 4 KiB. Every error names the file, the line, what was expected, what came, and what to
/// do.
///
/// ```
/// use farcall_keys::{Identity, KeyFiles};
///
/// let directory = tempfile::tempdir()?;
/// # #[cfg(unix)]
/// # std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
/// let identity = Identity::from_entropy([7; 32]);
/// KeyFiles::write_identity(&directory.path().join("identity"), &identity)?;
/// let (mut files, keyring) = KeyFiles::open(directory.path())?;
/// assert_eq!(keyring.identity().public(), identity.public());
/// assert!(files.reload().is_none(), "nothing has changed");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct KeyFiles {
    directory: PathBuf,
    /// What was seen before the files were read last.
    seen: Seen,
    /// The files that could not be read the last time, although they were looked at. Their stamps do not tell
    /// when they can be read again.
    unread: Vec<(PathBuf, Secrecy)>,
    identity: Option<Identity>,
    /// What each of [`FILES`] counts for.
    counted: [Counted; FILES.len()],
    lists: Lists,
    faults: Vec<Fault>,
}

/// What tells that something has changed, without reading it.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    /// What is wrong with the directory.
    directory: Option<String>,
    /// The stamp of each file, `identity` first, `None` for a file that is missing; or why it cannot be told.
    stamps: Vec<Result<Option<Stamp>, String>>,
}

impl KeyFiles {
    /// Reads the key files of a directory.
    ///
    /// # Errors
    /// The first fault.
    pub fn open(directory: impl Into<PathBuf>) -> Result<(KeyFiles, Keyring), Fault> {
        let (mut files, keyring) = KeyFiles::inspect(directory);
        match (keyring, files.faults.is_empty()) {
            (Some(keyring), true) => Ok((files, keyring)),
            _ => Err(files.faults.swap_remove(0)),
        }
    }

    /// Reads the key files of a directory, whatever faults they have ([`KeyFiles::faults`]). Returns no keyring
    /// if the identity cannot be read.
    pub fn inspect(directory: impl Into<PathBuf>) -> (KeyFiles, Option<Keyring>) {
        let mut files = KeyFiles {
            directory: directory.into(),
            seen: Seen::default(),
            unread: Vec::new(),
            identity: None,
            counted: Default::default(),
            lists: Lists::new(),
            faults: Vec::new(),
        };
        let keyring = files.reload();
        (files, keyring)
    }

    /// Reads the files again if one of them has changed, and returns the new keyring, or `None` if none has.
    /// Compares inodes, sizes and times, so a program that changes a file should write a new one and rename
    /// it. Tries a file that could not be read again each time, until it can be. Notices too if the directory
    /// is no longer to be trusted.
    ///
    /// Afterwards [`KeyFiles::faults`] has what is wrong with the files. While something is,
    ///
    /// - a file without a fault counts as it is;
    /// - a file with a line that is not understood gives only what it also gave when it had no fault. So what
    ///   is gone from it is gone, what is not understood gives nothing, and what is new has to wait. A policy
    ///   allows what both its former and its present rules allow. A line of `known_servers` that was there
    ///   goes on to exclude other keys;
    /// - a file that cannot be read, or that others could have written, counts as it did before;
    /// - revocations only grow. A list that is older than the one that was loaded last, or is missing, is a
    ///   fault, and the newer one stays.
    pub fn reload(&mut self) -> Option<Keyring> {
        let mut seen = self.look();
        let can_read = |(path, secrecy): &(PathBuf, Secrecy)| disk::read(path, *secrecy).is_ok();
        if seen == self.seen && !self.unread.iter().any(can_read) {
            return None;
        }
        let mut keyring = None;
        for _ in 0..MAX_READINGS {
            keyring = self.read(seen.directory.is_none());
            self.seen = seen;
            // Somebody may have replaced all files meanwhile. What belongs together shall count together.
            seen = self.look();
            if seen == self.seen {
                break;
            }
        }
        keyring
    }

    /// Returns what was wrong with the files when they were read last.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// Returns what each line says that is understood: the name of its file, its number from 1, and what it
    /// says. While a file has a fault, a line may count for less ([`KeyFiles::reload`]).
    pub fn lines(&self) -> impl Iterator<Item = (&'static str, usize, &KeyLine)> {
        FILES.iter().zip(&self.counted).flat_map(|(part, counted)| {
            let lines = counted.present.iter().flat_map(|lines| lines.iter());
            lines.map(|(number, line)| (part.file_name(), *number, line))
        })
    }

    /// Returns the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Reads a private key, of this end or of an authority, from its file.
    ///
    /// # Errors
    /// If it is missing, belongs to another user, can be read by others, or has something else.
    pub fn read_identity(path: &Path) -> Result<Identity, Fault> {
        identity_of(path, disk::read(path, Secrecy::Private)?)
    }

    /// Writes a private key to a new file with mode 0600.
    ///
    /// # Errors
    /// If the file exists, whatever it has, or cannot be written.
    pub fn write_identity(path: &Path, identity: &Identity) -> Result<(), Fault> {
        disk::create_private(path, lines::identity_text(identity).as_bytes())
    }

    /// Reads the revocation lists of a file `revoked`. Their signatures are not checked. A missing file has
    /// none.
    ///
    /// # Errors
    /// The first fault.
    pub fn read_revocations(path: &Path) -> Result<Vec<RevocationList>, Fault> {
        let Some(content) = disk::read(path, Secrecy::Public)? else { return Ok(Vec::new()) };
        let lists = lines::revocation_lists(&content.bytes).into_iter();
        lists.map(|list| list.map(|(_, list)| list).map_err(|why| why.within(path))).collect()
    }

    /// Writes revocation lists to a file `revoked`, in place of what it has.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_revocations(path: &Path, lists: &[RevocationList]) -> Result<(), Fault> {
        disk::replace(path, lines::revocation_text(lists).as_bytes())
    }

    /// Adds a line to one of the files that everybody may read, in place of what the file has: a word and a
    /// comment behind it. Returns false, and changes nothing, if a line begins with this word already. A
    /// missing file is made.
    ///
    /// # Errors
    /// If the file cannot be read, is not trusted, or cannot be written.
    pub fn add_line(path: &Path, word: &str, comment: &str) -> Result<bool, Fault> {
        let content = disk::read(path, Secrecy::Public)?;
        let mut bytes = content.map(|content| content.bytes.to_vec()).unwrap_or_default();
        let mut lines = bytes.split(|byte| *byte == b'\n');
        if lines.any(|line| line.split(u8::is_ascii_whitespace).next() == Some(word.as_bytes())) {
            return Ok(false);
        }
        if !bytes.is_empty() && !bytes.ends_with(b"\n") {
            bytes.push(b'\n');
        }
        let comment = if comment.is_empty() { String::new() } else { format!(" # {comment}") };
        bytes.extend_from_slice(format!("{word}{comment}").as_bytes());
        bytes.push(b'\n');
        disk::replace(path, &bytes)?;
        Ok(true)
    }

    /// Looks at the directory and the files, without reading them.
    fn look(&self) -> Seen {
        let paths = std::iter::once(self.identity_path()).chain(FILES.map(|part| self.path(part)));
        let stamp = |path: PathBuf| stamp::of_path(&path).map_err(|why| why.to_string());
        let directory = disk::check_directory(&self.directory).err().map(|why| why.to_string());
        Seen { directory, stamps: paths.map(stamp).collect() }
    }

    /// Reads the files. Where others could have written to the directory, only signed lists are read.
    fn read(&mut self, is_trusted: bool) -> Option<Keyring> {
        self.faults.clear();
        self.unread.clear();
        if !is_trusted {
            self.faults.extend(disk::check_directory(&self.directory).err());
        } else {
            let path = self.identity_path();
            let content = disk::read(&path, Secrecy::Private);
            if content.is_err() {
                self.unread.push((path.clone(), Secrecy::Private));
            }
            match content.and_then(|content| identity_of(&path, content)) {
                Ok(identity) => self.identity = Some(identity),
                Err(fault) => self.faults.push(fault),
            }
        }
        let mut scratch = Keyring::new(self.identity.as_ref()?.copy());
        let mut trusts_more = false;
        for (which, part) in FILES.into_iter().enumerate() {
            let [_, authorities, ..] = &self.counted;
            let former = |authority: &_| trusts_more && authorities.knows(authority);
            let is_tried = is_trusted || part == Part::Revoked;
            let (found, faults) = match is_tried {
                true => self.find(part, &mut scratch, former),
                false => (Found::Unread, Vec::new()),
            };
            if is_tried && matches!(found, Found::Unread) {
                self.unread.push((self.path(part), Secrecy::Public));
            }
            let is_sound = match &found {
                Found::Missing => true,
                Found::Text(_, faults) => faults.is_empty(),
                Found::Unread => false,
            };
            if part == Part::Authorities {
                trusts_more = !is_sound;
            }
            self.faults.extend(faults);
            if part == Part::Revoked && !matches!(found, Found::Unread) {
                self.bring_lists_up_to_date(&found, &scratch, trusts_more);
            }
            if let Some(counted) = self.counted.get_mut(which) {
                counted.update(part, found);
            }
        }
        let keyring = Keyring::new(self.identity.as_ref()?.copy());
        let parts = FILES.into_iter().zip(&self.counted);
        let mut keyring = parts.fold(keyring, |keyring, (part, counted)| counted.add_to(part, keyring));
        self.lists.values().for_each(|list| keyring.keep_revocations(list.clone()));
        Some(keyring)
    }

    /// Reads a file, and adds what it says to `scratch`.
    fn find(
        &self,
        part: Part,
        scratch: &mut Keyring,
        is_trusted: impl Fn(&PublicKey) -> bool,
    ) -> (Found, Vec<Fault>) {
        let path = self.path(part);
        match disk::read(&path, Secrecy::Public) {
            Ok(None) => (Found::Missing, Vec::new()),
            Ok(Some(content)) => {
                let (lines, faults) = part.read(&content.bytes, scratch, is_trusted);
                let told = faults.iter().map(|why| why.clone().within(&path)).collect();
                (Found::Text(lines, faults), told)
            }
            Err(fault) => (Found::Unread, vec![fault]),
        }
    }

    fn bring_lists_up_to_date(&mut self, found: &Found, scratch: &Keyring, trusts_more: bool) {
        let lines = match found {
            Found::Text(lines, _) => Some(lines),
            Found::Missing | Found::Unread => None,
        };
        let [_, authorities, ..] = &self.counted;
        let is_trusted =
            |authority: &_| scratch.trusts(authority) || trusts_more && authorities.knows(authority);
        let faults = update_lists(&mut self.lists, lines, is_trusted);
        let path = self.path(Part::Revoked);
        self.faults.extend(faults.into_iter().map(|why| why.within(&path)));
    }

    fn identity_path(&self) -> PathBuf {
        self.directory.join("identity")
    }

    fn path(&self, part: Part) -> PathBuf {
        self.directory.join(part.file_name())
    }
}

/// Returns the private key that a file has.
fn identity_of(path: &Path, content: Option<disk::Content>) -> Result<Identity, Fault> {
    let Some(content) = content else {
        let advice = "make an identity: `farcall keys make`";
        return Err(Fault::new(path, "a file with a private key", "no such file", advice));
    };
    lines::identity(&content.bytes).map_err(|why| why.within(path))
}
