//! A client of NFS version 3: enough to list, read and write files of any server.

use std::fmt;
use std::io::{self, Read, Write};

use farcall::CallFailed;
use farcall::stub::Program;
use farcall::xdr::ByteString;
use farcall_onc::{Address, AuthSys, Client};

use crate::protocol::mount::{MountV3, MountV3Client, Mountstat3};
use crate::protocol::nfs::*;

/// The most bytes of one read or write, unless the server wants fewer.
const MAX_TRANSFER_BYTES: u32 = 1 << 20;
/// The most bytes of one read or write over UDP, which must fit a datagram. This needs a limit of its own
/// because servers state one limit for TCP and UDP.
const MAX_DATAGRAM_BYTES: u32 = 32 << 10;

/// The most names of a directory that are listed. They are bounded because a server might claim for ever that
/// there are more.
const MAX_NAMES: usize = 1 << 22;
/// The most bytes of all listed names of a directory.
const MAX_NAME_BYTES: usize = 256 << 20;

/// A mounted directory.
#[derive(Debug)]
pub struct Mounted {
    nfs: NfsV3Client,
    root: NfsFh3,
    read: u32,
    write: u32,
}

/// Why an operation failed.
#[derive(Debug)]
pub enum Failure {
    /// A call failed.
    Call(CallFailed),
    /// The server refused to mount the directory.
    Mount(Mountstat3),
    /// The server refused the operation.
    Refused(Nfsstat3),
    /// The local file could not be read or written.
    Local(io::Error),
    /// The server makes no progress although it reports success, or was restarted during the operation.
    Stuck,
}

type Result<T> = std::result::Result<T, Failure>;

impl Mounted {
    /// Mounts the longest directory on the way to `path` that a server exports. Returns that directory with
    /// the rest of the path. `mount` and `nfs` are the addresses of the server's MOUNT and NFS programs:
    /// `tcp://HOST:PORT`, or a host, whose port mapper is asked.
    ///
    /// # Errors
    /// If there is no such server, or it exports no such directory.
    pub fn mount<'a>(mount: &str, nfs: &str, path: &'a str) -> Result<(Mounted, &'a str)> {
        let builder = Client::builder().auth(AuthSys::of_process());
        let mounts: MountV3Client =
            builder.find(mount, <dyn MountV3>::PROGRAM, <dyn MountV3>::VERSION)?.bind::<dyn MountV3>();
        let exports = mounts.mountproc3_export()?;
        let fits = |name: &&str| {
            path.strip_prefix(*name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let names = exports.iter().filter_map(|export| std::str::from_utf8(&export.ex_dir).ok());
        let name = names.map(|name| name.trim_end_matches('/')).filter(fits).max_by_key(|name| name.len());
        // Some servers mount directories that they do not list.
        let (name, rest) = name.map_or((path, ""), |name| path.split_at(name.len()));
        let mounted = mounts.mountproc3_mnt(&if name.is_empty() { "/" } else { name }.into())?.into_ok()?;
        let nfs = builder.find(nfs, <dyn NfsV3>::PROGRAM, <dyn NfsV3>::VERSION)?;
        let is_datagrams = matches!(nfs.server(), Some(Address::Udp(_)));
        let nfs: NfsV3Client = nfs.bind::<dyn NfsV3>();
        let root = NfsFh3 { data: mounted.fhandle };
        let facts = nfs.nfsproc3_fsinfo(&Fsinfo3args { fsroot: root.clone() })?.into_ok()?;
        let most = if is_datagrams { MAX_DATAGRAM_BYTES } else { MAX_TRANSFER_BYTES };
        let (read, write) = (facts.rtmax.clamp(1, most), facts.wtmax.clamp(1, most));
        Ok((Mounted { nfs, root, read, write }, rest))
    }

    /// Returns the file at a path below the mounted directory.
    ///
    /// # Errors
    /// If there is no such file.
    pub fn find(&self, path: &str) -> Result<NfsFh3> {
        let mut here = self.root.clone();
        for name in names(path) {
            let what = Diropargs3 { dir: here, name: name.into() };
            here = self.nfs.nfsproc3_lookup(&Lookup3args { what })?.into_ok()?.object;
        }
        Ok(here)
    }

    /// Returns a file's attributes.
    pub fn stat(&self, object: NfsFh3) -> Result<Fattr3> {
        Ok(self.nfs.nfsproc3_getattr(&Getattr3args { object })?.into_ok()?.obj_attributes)
    }

    /// Returns the names in a directory except `.` and `..`, with their attributes where the server provides
    /// them.
    pub fn list(&self, dir: &NfsFh3) -> Result<Vec<(ByteString, PostOpAttr)>> {
        let (mut cookie, mut cookieverf, mut all, mut bytes) = (0, [0; 8], Vec::new(), 0);
        loop {
            let (dircount, maxcount) = (64 << 10, 256 << 10);
            let args = Readdirplus3args { dir: dir.clone(), cookie, cookieverf, dircount, maxcount };
            let part = self.nfs.nfsproc3_readdirplus(&args)?.into_ok()?;
            cookieverf = part.cookieverf;
            let last = part.reply.entries.last().map(|entry| entry.cookie);
            bytes += part.reply.entries.iter().map(|entry| entry.name.len()).sum::<usize>();
            all.extend(part.reply.entries.into_iter().map(|entry| (entry.name, entry.name_attributes)));
            match last {
                _ if part.reply.eof => break,
                Some(last) if last != cookie && all.len() < MAX_NAMES && bytes < MAX_NAME_BYTES => {
                    cookie = last
                }
                _ => return Err(Failure::Stuck),
            }
        }
        all.retain(|(name, _)| !matches!(&**name, b"." | b".."));
        Ok(all)
    }

    /// Writes a file's content to `out`. Returns its length in bytes.
    pub fn read(&self, file: &NfsFh3, out: &mut dyn Write) -> Result<u64> {
        let mut offset = 0;
        loop {
            let args = Read3args { file: file.clone(), offset, count: self.read };
            let part = self.nfs.nfsproc3_read(&args)?.into_ok()?;
            // The server sent no data before the end of the file, or more than was requested.
            if part.data.is_empty() && !part.eof || part.data.len() > self.read as usize {
                return Err(Failure::Stuck);
            }
            out.write_all(&part.data)?;
            offset += part.data.len() as u64;
            if part.eof {
                return Ok(offset);
            }
        }
    }

    /// Creates the file at a path, or truncates it, and fills it with all of `from`. Returns its length in
    /// bytes. By then the content is on the server's disk.
    pub fn write(&self, path: &str, from: &mut dyn Read) -> Result<u64> {
        let (directory, name) = path.trim_end_matches('/').rsplit_once('/').unwrap_or(("", path));
        let r#where = Diropargs3 { dir: self.find(directory)?, name: name.into() };
        let wanted = Sattr3 {
            mode: Some(0o644),
            uid: None,
            gid: None,
            size: Some(0),
            atime: SetAtime::Default(TimeHow::DontChange),
            mtime: SetMtime::Default(TimeHow::DontChange),
        };
        let how = Createhow3::Unchecked(wanted);
        let made = self.nfs.nfsproc3_create(&Create3args { r#where, how })?.into_ok()?.obj;
        let file = made.map_or_else(|| self.find(path), Ok)?;
        match self.fill(&file, from)? {
            (length, true) => Ok(length),
            // The server was restarted meanwhile: uncommitted data may be lost, and `from` cannot be read
            // again.
            (_, false) => Err(Failure::Stuck),
        }
    }

    /// Sends all of `from`, and makes the server commit it to disk. Returns its length, and true if the
    /// server was not restarted meanwhile.
    fn fill(&self, file: &NfsFh3, from: &mut dyn Read) -> Result<(u64, bool)> {
        let (mut offset, mut verifier, mut same) = (0, None, true);
        let mut buffer = vec![0; self.write as usize];
        loop {
            let read = from.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            let mut rest = &buffer[..read];
            while !rest.is_empty() {
                let (count, stable) = (rest.len() as u32, StableHow::Unstable);
                let args = Write3args { file: file.clone(), offset, count, stable, data: rest.to_vec() };
                let done = self.nfs.nfsproc3_write(&args)?.into_ok()?;
                let written = (done.count as usize).min(rest.len());
                if written == 0 {
                    return Err(Failure::Stuck);
                }
                same &= *verifier.get_or_insert(done.verf) == done.verf;
                offset += written as u64;
                rest = &rest[written..];
            }
        }
        let committed =
            self.nfs.nfsproc3_commit(&Commit3args { file: file.clone(), offset: 0, count: 0 })?.into_ok()?;
        Ok((offset, same && verifier.is_none_or(|verifier| verifier == committed.verf)))
    }
}

fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty())
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Call(why) => write!(f, "{why}"),
            Failure::Mount(why) => write!(f, "cannot be mounted: {why}"),
            Failure::Refused(why) => write!(f, "{why}"),
            Failure::Local(why) => write!(f, "{why}"),
            Failure::Stuck => write!(f, "the server makes no progress, or was restarted meanwhile"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<farcall::Error> for Failure {
    fn from(why: farcall::Error) -> Failure {
        Failure::Call(why.into())
    }
}

impl From<CallFailed> for Failure {
    fn from(why: CallFailed) -> Failure {
        Failure::Call(why)
    }
}

impl From<Mountstat3> for Failure {
    fn from(why: Mountstat3) -> Failure {
        Failure::Mount(why)
    }
}

impl From<Nfsstat3> for Failure {
    fn from(why: Nfsstat3) -> Failure {
        Failure::Refused(why)
    }
}

impl From<io::Error> for Failure {
    fn from(why: io::Error) -> Failure {
        Failure::Local(why)
    }
}
