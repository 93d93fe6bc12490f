//! Converts between the system's types and NFS's: attributes, times, handles, errors.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Statx, StatxTimestamp, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, makedev};
use rustix::io::Errno;

use crate::files::{BAD_COOKIE, Change, kind};
use crate::places::Key;
use crate::protocol::nfs::*;

/// Returns a file's handle.
pub fn handle(file: Key) -> NfsFh3 {
    NfsFh3 { data: file.bytes().to_vec() }
}

/// Returns the file of a handle.
pub fn file(handle: &NfsFh3) -> Result<Key, Errno> {
    key(&handle.data)
}

/// Returns the file of a handle's bytes.
pub fn key(bytes: &[u8]) -> Result<Key, Errno> {
    bytes.try_into().map(Key::parse).map_err(|_| Errno::BADF)
}

/// Returns a file's attributes (RFC 1813 section 2.6).
pub fn attributes(stat: &Statx) -> Fattr3 {
    Fattr3 {
        r#type: match kind(stat) {
            FileType::Directory => Ftype3::Nf3dir,
            FileType::BlockDevice => Ftype3::Nf3blk,
            FileType::CharacterDevice => Ftype3::Nf3chr,
            FileType::Symlink => Ftype3::Nf3lnk,
            FileType::Socket => Ftype3::Nf3sock,
            FileType::Fifo => Ftype3::Nf3fifo,
            _ => Ftype3::Nf3reg,
        },
        mode: u32::from(stat.stx_mode) & 0o7777,
        nlink: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        size: stat.stx_size,
        used: stat.stx_blocks.saturating_mul(512),
        rdev: Specdata3 { specdata1: stat.stx_rdev_major, specdata2: stat.stx_rdev_minor },
        fsid: makedev(stat.stx_dev_major, stat.stx_dev_minor),
        fileid: stat.stx_ino,
        atime: time(stat.stx_atime),
        mtime: time(stat.stx_mtime),
        ctime: time(stat.stx_ctime),
    }
}

/// Returns the few attributes that a client compares with its cached ones to see whether the file has changed
/// (`wcc_attr`).
pub fn before(stat: &Statx) -> WccAttr {
    let Fattr3 { size, mtime, ctime, .. } = attributes(stat);
    WccAttr { size, mtime, ctime }
}

/// Returns the nearest time that has 32 unsigned bits of seconds.
fn time(time: StatxTimestamp) -> Nfstime3 {
    Nfstime3 {
        seconds: time.tv_sec.clamp(0, i64::from(u32::MAX)) as u32,
        nseconds: time.tv_nsec.min(999_999_999),
    }
}

/// Returns the change of attributes that a client asks for.
pub fn change(wanted: &Sattr3) -> Change {
    const OMIT: Timespec = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let given = |time: Nfstime3| Timespec {
        tv_sec: time.seconds.into(),
        tv_nsec: time.nseconds.min(999_999_999).into(),
    };
    let read = match wanted.atime {
        SetAtime::SetToClientTime(time) => given(time),
        SetAtime::Default(TimeHow::SetToServerTime) => NOW,
        SetAtime::Default(_) => OMIT,
    };
    let written = match wanted.mtime {
        SetMtime::SetToClientTime(time) => given(time),
        SetMtime::Default(TimeHow::SetToServerTime) => NOW,
        SetMtime::Default(_) => OMIT,
    };
    let any = read.tv_nsec != UTIME_OMIT || written.tv_nsec != UTIME_OMIT;
    Change {
        mode: wanted.mode,
        user: wanted.uid,
        group: wanted.gid,
        size: wanted.size,
        times: any.then_some(Timestamps { last_access: read, last_modification: written }),
    }
}

/// Returns the status for an error (RFC 1813 section 2.6, `nfsstat3`).
pub fn reason(why: Errno) -> Nfsstat3 {
    match why {
        Errno::PERM => Nfsstat3::Nfs3errPerm,
        Errno::NOENT => Nfsstat3::Nfs3errNoent,
        Errno::NXIO => Nfsstat3::Nfs3errNxio,
        Errno::ACCESS => Nfsstat3::Nfs3errAcces,
        Errno::EXIST => Nfsstat3::Nfs3errExist,
        Errno::XDEV => Nfsstat3::Nfs3errXdev,
        Errno::NODEV => Nfsstat3::Nfs3errNodev,
        Errno::NOTDIR => Nfsstat3::Nfs3errNotdir,
        Errno::ISDIR => Nfsstat3::Nfs3errIsdir,
        Errno::INVAL | Errno::ILSEQ => Nfsstat3::Nfs3errInval,
        Errno::FBIG => Nfsstat3::Nfs3errFbig,
        Errno::NOSPC => Nfsstat3::Nfs3errNospc,
        Errno::ROFS => Nfsstat3::Nfs3errRofs,
        Errno::MLINK => Nfsstat3::Nfs3errMlink,
        Errno::NAMETOOLONG => Nfsstat3::Nfs3errNametoolong,
        Errno::NOTEMPTY => Nfsstat3::Nfs3errNotempty,
        Errno::DQUOT => Nfsstat3::Nfs3errDquot,
        Errno::STALE => Nfsstat3::Nfs3errStale,
        Errno::BADF => Nfsstat3::Nfs3errBadhandle,
        BAD_COOKIE => Nfsstat3::Nfs3errBadCookie,
        Errno::NOTSUP => Nfsstat3::Nfs3errNotsupp,
        // Nothing was changed, and the client may try again later.
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => Nfsstat3::Nfs3errJukebox,
        _ => Nfsstat3::Nfs3errIo,
    }
}

/// Returns a number that differs from the numbers of earlier runs of the server.
pub fn run() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_nanos() as u64 ^ u64::from(std::process::id()) << 32
}
