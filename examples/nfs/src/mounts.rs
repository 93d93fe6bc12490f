//! The procedures of MOUNT (RFC 1813 appendix I), which returns the first handle for a path.

use std::sync::Arc;

use farcall::Result;
use farcall::xdr::Chain;
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::files::{Files, kind};
use crate::places::Key;
use crate::protocol::mount::*;

/// The accepted flavours of authentication: AUTH_SYS and AUTH_NONE (RFC 5531 section 8.2).
const FLAVORS: [i32; 2] = [1, 0];

/// Serves MOUNT for one exported directory.
#[derive(Debug)]
pub struct Mounts {
    files: Arc<Files>,
    name: Box<[u8]>,
}

impl Mounts {
    /// Exports `files` as `name`, which begins with a slash.
    pub fn new(files: Arc<Files>, name: &str) -> Mounts {
        Mounts { files, name: name.trim_end_matches('/').as_bytes().into() }
    }

    /// Returns the directory at a client's path: the exported directory, or a directory below it.
    fn find(&self, path: &[u8]) -> std::result::Result<Key, Errno> {
        let below = path.strip_prefix(&*self.name).ok_or(Errno::NOENT)?;
        if !below.is_empty() && !below.starts_with(b"/") {
            return Err(Errno::NOENT);
        }
        let mut here = self.files.root();
        for name in below.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".") {
            here = self.files.lookup(here, name)?.0;
        }
        match kind(&self.files.stat(here)?) {
            FileType::Directory => Ok(here),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn exported(&self) -> Chain<Exportnode> {
        let name = if self.name.is_empty() { b"/".to_vec() } else { self.name.to_vec() };
        [Exportnode { ex_dir: name.into(), ex_groups: Vec::new() }].into_iter().collect()
    }
}

fn reason(why: Errno) -> Mountstat3 {
    match why {
        Errno::PERM => Mountstat3::Mnt3errPerm,
        Errno::NOENT => Mountstat3::Mnt3errNoent,
        Errno::ACCESS => Mountstat3::Mnt3errAcces,
        Errno::NOTDIR => Mountstat3::Mnt3errNotdir,
        Errno::INVAL => Mountstat3::Mnt3errInval,
        Errno::NAMETOOLONG => Mountstat3::Mnt3errNametoolong,
        // MOUNT has no status for "try again later".
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => Mountstat3::Mnt3errServerfault,
        _ => Mountstat3::Mnt3errIo,
    }
}

/// The server keeps no list of mounts, because the list could only be a guess (RFC 1813 appendix I, "the
/// server does not use it").
impl MountV3 for Mounts {
    fn mountproc3_mnt(&self, path: &Dirpath) -> Result<Mountres3> {
        Ok(match self.find(path) {
            Ok(found) => Mountres3::Mnt3Ok(Mountres3Ok {
                fhandle: found.bytes().to_vec(),
                auth_flavors: FLAVORS.to_vec(),
            }),
            Err(why) => Mountres3::Default(reason(why)),
        })
    }

    fn mountproc3_dump(&self) -> Result<Chain<Mountbody>> {
        Ok(Chain::default())
    }

    fn mountproc3_umnt(&self, _: &Dirpath) -> Result<()> {
        Ok(())
    }

    fn mountproc3_umntall(&self) -> Result<()> {
        Ok(())
    }

    fn mountproc3_export(&self) -> Result<Chain<Exportnode>> {
        Ok(self.exported())
    }
}
