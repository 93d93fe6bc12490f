//! Key files: a keyring from a directory. The only module that reads and writes files.
//!
//! | file | a line |
//! |---|---|
//! | `identity` | the private key; the only line. Mode 0600 |
//! | `grants` | `GRANT [COMMENT]`: what this end may show |
//! | `authorities` | `KEY [COMMENT]`: whose grants are believed |
//! | `authorized_keys` | `KEY PRINCIPAL [type=TYPE] [instance=INSTANCE] [COMMENT]`: clients without grants |
//! | `known_servers` | `NAME KEY [or-granted] [COMMENT]`: servers without grants |
//! | `revoked` | revocation lists in base64, each between a BEGIN and an END line |
//! | `policy` | `(allow \| deny) PRINCIPAL TYPE[/INSTANCE] [PROCEDURE,...]` |
//!
//! Only `identity` must exist. `#` begins a comment.

#[cfg(feature = "x509")]
mod certificates;
mod disk;
mod stamp;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::fault::{Fault, LineFault};
use crate::identity::Identity;
use crate::key::{PublicKey, SIGNATURE_BYTES};
use crate::keyring::{Keyring, older_list};
use crate::lines::{self, GrantLine};
use crate::policy::Policy;
use crate::revocation::RevocationList;
use disk::Secrecy;
use stamp::Stamp;

#[cfg(feature = "x509")]
pub use certificates::CertificateFiles;

/// The files besides `identity`, in the order in which they are read.
const FILES: [Part; 6] =
    [Part::Grants, Part::Authorities, Part::AuthorizedKeys, Part::KnownServers, Part::Revoked, Part::Policy];

/// A directory of key files, from which a [`Keyring`] was read.
///
/// The directory and its files must belong to the user or to root, and nobody else may be able to write to
/// them. `identity` must belong to the user, and nobody else may be able to read it. A file has at most 16
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
/// assert!(files.reload()?.is_none(), "nothing has changed");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct KeyFiles {
    directory: PathBuf,
    /// The stamp of each file, `identity` first; `None` for a file that is missing.
    stamps: Vec<Option<Stamp>>,
    /// For each authority that is trusted, the serial and the signature of its list that was loaded last.
    serials: BTreeMap<PublicKey, (u64, [u8; SIGNATURE_BYTES])>,
}

/// A file besides `identity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Grants,
    Authorities,
    AuthorizedKeys,
    KnownServers,
    Revoked,
    Policy,
}

impl KeyFiles {
    /// Reads the key files of a directory.
    ///
    /// # Errors
    /// The first fault.
    pub fn open(directory: impl Into<PathBuf>) -> Result<(KeyFiles, Keyring), Fault> {
        let mut files =
            KeyFiles { directory: directory.into(), stamps: Vec::new(), serials: BTreeMap::new() };
        let keyring = files.read()?;
        Ok((files, keyring))
    }

    /// Reads the files again if one of them has changed, and returns the new keyring, or `None` if none has.
    /// Compares inodes, sizes and times, so a program that changes a file should write a new one and rename
    /// it.
    ///
    /// # Errors
    /// The first fault. The keyring that was read last remains good, except that it lacks the change; the
    /// files are read again by the next call.
    ///
    /// A revocation list that is older than the one that was loaded last, or is missing, is a fault.
    pub fn reload(&mut self) -> Result<Option<Keyring>, Fault> {
        let paths = std::iter::once(self.identity_path()).chain(FILES.map(|part| self.path(part)));
        let stamps = paths.map(|path| stamp::of_path(&path)).collect::<Result<Vec<_>, _>>()?;
        if stamps == self.stamps {
            return Ok(None);
        }
        self.read().map(Some)
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
        Ok(read_identity(path)?.0)
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
        let lists = lines::revocation_lists(&content.bytes).map_err(|why| why.within(path))?;
        Ok(lists.into_iter().map(|(_, list)| list).collect())
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
        bytes.extend_from_slice(format!("{word} {comment}").trim_end().as_bytes());
        bytes.push(b'\n');
        disk::replace(path, &bytes)?;
        Ok(true)
    }

    fn read(&mut self) -> Result<Keyring, Fault> {
        disk::check_directory(&self.directory)?;
        let (identity, stamp) = read_identity(&self.identity_path())?;
        let mut stamps = vec![Some(stamp)];
        let mut keyring = Keyring::new(identity);
        for part in FILES {
            let path = self.path(part);
            let Some(content) = disk::read(&path, Secrecy::Public)? else {
                stamps.push(None);
                continue;
            };
            keyring = part.add(&content.bytes, keyring).map_err(|why| why.within(&path))?;
            stamps.push(Some(content.stamp));
        }
        self.serials = self.new_serials(&keyring)?;
        self.stamps = stamps;
        Ok(keyring)
    }

    /// Checks that no list is older than the one that was loaded last, and returns the new serials.
    fn new_serials(
        &self,
        keyring: &Keyring,
    ) -> Result<BTreeMap<PublicKey, (u64, [u8; SIGNATURE_BYTES])>, Fault> {
        let new: BTreeMap<_, _> = keyring
            .revocations()
            .map(|list| (list.authority(), (list.serial(), *list.signature())))
            .collect();
        let trusted = |authority: &PublicKey| keyring.authorities().any(|other| other.key == *authority);
        for (authority, (known, signature)) in self.serials.iter().filter(|(key, _)| trusted(key)) {
            let found = match new.get(authority) {
                Some((serial, _)) if serial > known => continue,
                Some(same) if same == &(*known, *signature) => continue,
                Some((serial, _)) if serial == known => "another list with this serial".to_owned(),
                Some((serial, _)) => format!("serial {serial}"),
                None => "no list of this authority".to_owned(),
            };
            return Err(older_list(*authority, *known, &found).within(&self.path(Part::Revoked)));
        }
        Ok(new)
    }

    fn identity_path(&self) -> PathBuf {
        self.directory.join("identity")
    }

    fn path(&self, part: Part) -> PathBuf {
        self.directory.join(part.file_name())
    }
}

impl Part {
    fn file_name(self) -> &'static str {
        match self {
            Part::Grants => "grants",
            Part::Authorities => "authorities",
            Part::AuthorizedKeys => "authorized_keys",
            Part::KnownServers => "known_servers",
            Part::Revoked => "revoked",
            Part::Policy => "policy",
        }
    }

    /// Adds to a keyring what the file has.
    fn add(self, content: &[u8], mut keyring: Keyring) -> Result<Keyring, LineFault> {
        match self {
            Part::Grants => {
                for line in lines::parse(content) {
                    let (number, GrantLine(grant)) = line?;
                    keyring = keyring.with_grant(grant).map_err(|why| why.at(number))?;
                }
            }
            Part::Authorities => {
                for line in lines::parse(content) {
                    keyring = keyring.with_commented_authority(line?.1);
                }
            }
            Part::AuthorizedKeys => {
                for line in lines::parse(content) {
                    let (number, line) = line?;
                    keyring = keyring.with_authorized_key(line).map_err(|why| why.at(number))?;
                }
            }
            Part::KnownServers => {
                for line in lines::parse(content) {
                    keyring = keyring.with_known_server(line?.1);
                }
            }
            Part::Revoked => {
                for (number, list) in lines::revocation_lists(content)? {
                    keyring = keyring.with_revocations(list).map_err(|why| why.at(number))?;
                }
            }
            Part::Policy => keyring = keyring.with_policy(Policy::parse(content)?),
        }
        Ok(keyring)
    }
}

fn read_identity(path: &Path) -> Result<(Identity, Stamp), Fault> {
    let Some(content) = disk::read(path, Secrecy::Private)? else {
        let advice = "make an identity: `farcall keys make`";
        return Err(Fault::new(path, "a file with a private key", "no such file", advice));
    };
    let identity = lines::identity(&content.bytes).map_err(|why| why.within(path))?;
    Ok((identity, content.stamp))
}

/// Reads the bytes after the first as the file that the first byte names.
pub(crate) fn fuzz(bytes: &[u8]) {
    let Some((kind, content)) = bytes.split_first() else { return };
    let Some(part) = FILES.get(usize::from(*kind) % (FILES.len() + 1)) else {
        let _ = lines::identity(content);
        return;
    };
    let keyring = Keyring::new(Identity::from_entropy([7; 32]));
    let authority = Identity::from_entropy([1; 32]).public();
    if let Err(why) = part.add(content, keyring.with_authority(authority)) {
        assert!(!why.to_string().contains('\n'), "a fault is one line");
    }
}
