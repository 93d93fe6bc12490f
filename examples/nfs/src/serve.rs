//! The procedures of NFS version 3 (RFC 1813 section 3), over the files of a directory.
//!
//! Each procedure is an operation of [`Files`], with the attributes before and after it.

use std::sync::Arc;

use farcall::Result;
use farcall_onc::server::{Transport, caller};
use rustix::fs::{Access, FileType, Statx};
use rustix::io::Errno;

use crate::attributes::{attributes, before, change, file, handle, reason, run};
use crate::changes::Changes;
use crate::files::{Change, Files};
use crate::places::Key;
use crate::protocol::nfs::*;

/// Returns the most bytes of one READ or WRITE on the caller's transport.
fn max_transfer_bytes() -> u32 {
    match caller().map(|caller| caller.transport()) {
        Some(Transport::Udp) => 32 << 10,
        _ => 1 << 20,
    }
}

/// The most bytes of the fixed part of a list of names, with the directory's attributes.
const LIST_OVERHEAD_BYTES: usize = 128;

/// Serves NFS for one directory.
#[derive(Debug)]
pub struct Export {
    files: Arc<Files>,
    changes: Changes,
    run: u64,
}

impl Export {
    /// Exports these files.
    pub fn new(files: Arc<Files>) -> Export {
        Export { files, changes: Changes::default(), run: run() }
    }

    /// Returns the write verifier. If it has changed, uncommitted writes may be lost (RFC 1813 section
    /// 3.3.7): the server was restarted, or the disk has failed.
    fn verifier(&self) -> Writeverf3 {
        self.run.wrapping_add(self.files.losses()).to_be_bytes()
    }

    /// Returns a file's attributes after an operation, if they can be read.
    fn after(&self, file: std::result::Result<Key, Errno>) -> PostOpAttr {
        self.files.stat(file.ok()?).ok().map(|stat| attributes(&stat))
    }

    /// Changes a file by `act`, and returns the outcome with the file's attributes before and after the
    /// change. Leaves out the attributes before the change if another client has changed the file meanwhile,
    /// because a client that gets both assumes that its change was the only one (RFC 1813 section 2.6,
    /// `wcc_data`).
    fn around<T>(
        &self,
        handle: &NfsFh3,
        act: impl FnOnce(Key, &Statx) -> std::result::Result<T, Errno>,
    ) -> (std::result::Result<T, Nfsstat3>, WccData) {
        let key = match file(handle) {
            Ok(key) => key,
            Err(why) => return (Err(reason(why)), WccData::default()),
        };
        let change = self.changes.begin(key);
        let stat = match self.files.stat(key) {
            Ok(stat) => stat,
            Err(why) => return (Err(reason(why)), WccData::default()),
        };
        let done = act(key, &stat).map_err(reason);
        let after = self.after(Ok(key));
        (done, WccData { before: change.is_alone().then(|| before(&stat)), after })
    }

    /// Creates something in a directory by `make`. Returns its handle and attributes, unless it has gone
    /// already.
    fn make(
        &self,
        place: &Diropargs3,
        make: impl FnOnce(Key, &[u8]) -> std::result::Result<Option<Key>, Errno>,
    ) -> (std::result::Result<(PostOpFh3, PostOpAttr), Nfsstat3>, WccData) {
        self.around(&place.dir, |directory, _| {
            let made = make(directory, &place.name)?;
            Ok((made.map(handle), self.after(made.ok_or(Errno::STALE))))
        })
    }

    /// Sets the requested attributes of a new file, except its mode, which it was created with. Failures are
    /// ignored.
    fn finish(&self, made: Key, wanted: &Sattr3) {
        let change = change(&Sattr3 { mode: None, ..*wanted });
        // A server without the privilege cannot change the owner.
        let _ = self.files.change(made, &change);
    }
}

/// Returns the requested permissions of a new file, or the default ones.
fn mode(wanted: &Sattr3, otherwise: u32) -> u32 {
    wanted.mode.unwrap_or(otherwise)
}

impl NfsV3 for Export {
    fn nfsproc3_getattr(&self, args: &Getattr3args) -> Result<Getattr3res> {
        Ok(match file(&args.object).and_then(|file| self.files.stat(file)) {
            Ok(stat) => Getattr3res::Nfs3Ok(Getattr3resok { obj_attributes: attributes(&stat) }),
            Err(why) => Getattr3res::Default(reason(why)),
        })
    }

    fn nfsproc3_setattr(&self, args: &Setattr3args) -> Result<Setattr3res> {
        let (done, obj_wcc) = self.around(&args.object, |file, stat| {
            // The guard allows the change only if no client has changed the file meanwhile.
            if args.guard.is_some_and(|guard| guard != attributes(stat).ctime) {
                return Ok(false);
            }
            self.files.change(file, &change(&args.new_attributes)).map(|()| true)
        });
        Ok(match done {
            Ok(true) => Setattr3res::Nfs3Ok(Setattr3resok { obj_wcc }),
            Ok(false) => Setattr3res::Default(Nfsstat3::Nfs3errNotSync, Setattr3resfail { obj_wcc }),
            Err(why) => Setattr3res::Default(why, Setattr3resfail { obj_wcc }),
        })
    }

    fn nfsproc3_lookup(&self, args: &Lookup3args) -> Result<Lookup3res> {
        let directory = file(&args.what.dir);
        let found = directory.and_then(|directory| self.files.lookup(directory, &args.what.name));
        let dir_attributes = self.after(directory);
        Ok(match found {
            Ok((found, stat)) => Lookup3res::Nfs3Ok(Lookup3resok {
                object: handle(found),
                obj_attributes: Some(attributes(&stat)),
                dir_attributes,
            }),
            Err(why) => Lookup3res::Default(reason(why), Lookup3resfail { dir_attributes }),
        })
    }

    fn nfsproc3_access(&self, args: &Access3args) -> Result<Access3res> {
        const WAYS: [(u32, Access); 3] = [
            (ACCESS3_READ, Access::READ_OK),
            (ACCESS3_MODIFY | ACCESS3_EXTEND | ACCESS3_DELETE, Access::WRITE_OK),
            (ACCESS3_LOOKUP | ACCESS3_EXECUTE, Access::EXEC_OK),
        ];
        let file = file(&args.object);
        let allowed = file.and_then(|file| {
            let mut allowed = 0;
            for (bits, way) in WAYS.into_iter().filter(|(bits, _)| args.access & bits != 0) {
                if self.files.may(file, way)? {
                    allowed |= args.access & bits;
                }
            }
            Ok(allowed)
        });
        let obj_attributes = self.after(file);
        Ok(match allowed {
            Ok(access) => Access3res::Nfs3Ok(Access3resok { obj_attributes, access }),
            Err(why) => Access3res::Default(reason(why), Access3resfail { obj_attributes }),
        })
    }

    fn nfsproc3_readlink(&self, args: &Readlink3args) -> Result<Readlink3res> {
        let file = file(&args.symlink);
        let text = file.and_then(|file| self.files.read_link(file));
        let symlink_attributes = self.after(file);
        Ok(match text {
            Ok(text) => Readlink3res::Nfs3Ok(Readlink3resok { symlink_attributes, data: text.into() }),
            Err(why) => Readlink3res::Default(reason(why), Readlink3resfail { symlink_attributes }),
        })
    }

    fn nfsproc3_read(&self, args: &Read3args) -> Result<Read3res> {
        let file = file(&args.file);
        let read = file.and_then(|file| {
            self.files.read(file, args.offset, args.count.min(max_transfer_bytes()) as usize)
        });
        Ok(match read {
            Ok((data, eof, stat)) => Read3res::Nfs3Ok(Read3resok {
                file_attributes: Some(attributes(&stat)),
                count: data.len() as u32,
                eof,
                data,
            }),
            Err(why) => Read3res::Default(reason(why), Read3resfail { file_attributes: self.after(file) }),
        })
    }

    fn nfsproc3_write(&self, args: &Write3args) -> Result<Write3res> {
        let &Write3args { offset, count, stable, ref data, .. } = args;
        // The verifier is read before the write, because a loss from here on may be a loss of this write.
        let verf = self.verifier();
        let (done, file_wcc) = self.around(&args.file, |file, _| match data.len() == count as usize {
            true => self.files.write(file, offset, data, stable),
            false => Err(Errno::INVAL),
        });
        Ok(match done {
            Ok(written) => {
                Write3res::Nfs3Ok(Write3resok { file_wcc, count: written as u32, committed: stable, verf })
            }
            Err(why) => Write3res::Default(why, Write3resfail { file_wcc }),
        })
    }

    fn nfsproc3_create(&self, args: &Create3args) -> Result<Create3res> {
        let (made, dir_wcc) = self.make(&args.r#where, |directory, name| {
            let new = |wanted| {
                let made = self.files.create(directory, name, mode(wanted, 0o644), None)?;
                self.finish(made, wanted);
                Ok(made)
            };
            let made = match &args.how {
                Createhow3::Unchecked(wanted) => match new(wanted) {
                    Err(Errno::EXIST) => self.reuse(directory, name, wanted),
                    made => made,
                },
                Createhow3::Guarded(wanted) => new(wanted),
                Createhow3::Exclusive(once) => self.create_once(directory, name, once),
            };
            made.map(Some)
        });
        Ok(match made {
            Ok((obj, obj_attributes)) => Create3res::Nfs3Ok(Create3resok { obj, obj_attributes, dir_wcc }),
            Err(why) => Create3res::Default(why, Create3resfail { dir_wcc }),
        })
    }

    fn nfsproc3_mkdir(&self, args: &Mkdir3args) -> Result<Mkdir3res> {
        let (made, dir_wcc) = self.make(&args.r#where, |directory, name| {
            let made = self.files.make_directory(directory, name, mode(&args.attributes, 0o755))?;
            if let Some(made) = made {
                self.finish(made, &args.attributes);
            }
            Ok(made)
        });
        Ok(match made {
            Ok((obj, obj_attributes)) => Mkdir3res::Nfs3Ok(Mkdir3resok { obj, obj_attributes, dir_wcc }),
            Err(why) => Mkdir3res::Default(why, Mkdir3resfail { dir_wcc }),
        })
    }

    fn nfsproc3_symlink(&self, args: &Symlink3args) -> Result<Symlink3res> {
        let (made, dir_wcc) = self.make(&args.r#where, |directory, name| {
            self.files.make_link(directory, name, &args.symlink.symlink_data)
        });
        Ok(match made {
            Ok((obj, obj_attributes)) => Symlink3res::Nfs3Ok(Symlink3resok { obj, obj_attributes, dir_wcc }),
            Err(why) => Symlink3res::Default(why, Symlink3resfail { dir_wcc }),
        })
    }

    fn nfsproc3_mknod(&self, args: &Mknod3args) -> Result<Mknod3res> {
        let (made, dir_wcc) = self.make(&args.r#where, |directory, name| match &args.what {
            Mknoddata3::Nf3fifo(wanted) => {
                self.files.make_special(directory, name, FileType::Fifo, mode(wanted, 0o644))
            }
            Mknoddata3::Nf3sock(wanted) => {
                self.files.make_special(directory, name, FileType::Socket, mode(wanted, 0o644))
            }
            // Clients may not create devices. For other types RFC 1813 section 3.3.11 allows this error, or
            // BADTYPE.
            _ => Err(Errno::NOTSUP),
        });
        Ok(match made {
            Ok((obj, obj_attributes)) => Mknod3res::Nfs3Ok(Mknod3resok { obj, obj_attributes, dir_wcc }),
            Err(why) => Mknod3res::Default(why, Mknod3resfail { dir_wcc }),
        })
    }

    fn nfsproc3_remove(&self, args: &Remove3args) -> Result<Remove3res> {
        let Diropargs3 { dir, name } = &args.object;
        let (done, dir_wcc) = self.around(dir, |directory, _| self.files.remove(directory, name, false));
        Ok(match done {
            Ok(()) => Remove3res::Nfs3Ok(Remove3resok { dir_wcc }),
            Err(why) => Remove3res::Default(why, Remove3resfail { dir_wcc }),
        })
    }

    fn nfsproc3_rmdir(&self, args: &Rmdir3args) -> Result<Rmdir3res> {
        let Diropargs3 { dir, name } = &args.object;
        let (done, dir_wcc) = self.around(dir, |directory, _| self.files.remove(directory, name, true));
        Ok(match done {
            Ok(()) => Rmdir3res::Nfs3Ok(Rmdir3resok { dir_wcc }),
            Err(why) => Rmdir3res::Default(why, Rmdir3resfail { dir_wcc }),
        })
    }

    fn nfsproc3_rename(&self, args: &Rename3args) -> Result<Rename3res> {
        let (from, to) = (&args.from, &args.to);
        let rename = |old, new| self.files.rename((old, &from.name), (new, &to.name));
        let (done, fromdir_wcc, todir_wcc) = if from.dir == to.dir {
            let (done, wcc) = self.around(&from.dir, |here, _| rename(here, here));
            (done, wcc, wcc)
        } else {
            let mut todir_wcc = WccData::default();
            let (done, fromdir_wcc) = self.around(&from.dir, |old, _| {
                let (done, wcc) = self.around(&to.dir, |new, _| rename(old, new));
                todir_wcc = wcc;
                Ok(done)
            });
            (done.flatten(), fromdir_wcc, todir_wcc)
        };
        Ok(match done {
            Ok(()) => Rename3res::Nfs3Ok(Rename3resok { fromdir_wcc, todir_wcc }),
            Err(why) => Rename3res::Default(why, Rename3resfail { fromdir_wcc, todir_wcc }),
        })
    }

    fn nfsproc3_link(&self, args: &Link3args) -> Result<Link3res> {
        let linked = file(&args.file);
        let (done, linkdir_wcc) =
            self.around(&args.link.dir, |directory, _| self.files.link(linked?, directory, &args.link.name));
        let file_attributes = self.after(linked);
        Ok(match done {
            Ok(()) => Link3res::Nfs3Ok(Link3resok { file_attributes, linkdir_wcc }),
            Err(why) => Link3res::Default(why, Link3resfail { file_attributes, linkdir_wcc }),
        })
    }

    fn nfsproc3_readdir(&self, args: &Readdir3args) -> Result<Readdir3res> {
        let directory = file(&args.dir);
        let mut left = (args.count.min(max_transfer_bytes()) as usize).saturating_sub(LIST_OVERHEAD_BYTES);
        let mut entries = Vec::new();
        let listed = directory.and_then(|directory| {
            self.files.list(directory, args.cookie, |entry, _| {
                let Some(rest) = left.checked_sub(24 + padded(&entry.name)) else { return false };
                left = rest;
                entries.push(Entry3 { fileid: entry.inode, name: entry.name.into(), cookie: entry.cookie });
                true
            })
        });
        let dir_attributes = self.after(directory);
        Ok(match listed {
            Ok(eof) if eof || !entries.is_empty() => Readdir3res::Nfs3Ok(Readdir3resok {
                dir_attributes,
                cookieverf: [0; 8],
                reply: Dirlist3 { entries, eof },
            }),
            Ok(_) => Readdir3res::Default(Nfsstat3::Nfs3errToosmall, Readdir3resfail { dir_attributes }),
            Err(why) => Readdir3res::Default(reason(why), Readdir3resfail { dir_attributes }),
        })
    }

    fn nfsproc3_readdirplus(&self, args: &Readdirplus3args) -> Result<Readdirplus3res> {
        /// The bytes of an entry's attributes and handle, each with the word that says that it is present.
        const PLUS_BYTES: usize = 4 + 84 + 4 + 4 + 24;
        let directory = file(&args.dir);
        let mut left = (args.maxcount.min(max_transfer_bytes()) as usize).saturating_sub(LIST_OVERHEAD_BYTES);
        let mut names_left = args.dircount.min(max_transfer_bytes()) as usize;
        let mut entries = Vec::new();
        let listed = directory.and_then(|directory| {
            self.files.list(directory, args.cookie, |entry, find| {
                let bytes = 24 + padded(&entry.name);
                // `dircount` is a hint (RFC 1813 section 3.3.17). The first entry is always returned, because
                // otherwise the client would make no progress.
                let Some(rest) = left
                    .checked_sub(bytes + PLUS_BYTES)
                    .filter(|_| entries.is_empty() || bytes <= names_left)
                else {
                    return false;
                };
                (left, names_left) = (rest, names_left.saturating_sub(bytes));
                // If the entry has gone meanwhile, only its name is known.
                let found = find(&entry.name).ok();
                entries.push(Entryplus3 {
                    fileid: entry.inode,
                    name: entry.name.into(),
                    cookie: entry.cookie,
                    name_attributes: found.map(|(_, stat)| attributes(&stat)),
                    name_handle: found.map(|(file, _)| handle(file)),
                });
                true
            })
        });
        let dir_attributes = self.after(directory);
        Ok(match listed {
            Ok(eof) if eof || !entries.is_empty() => Readdirplus3res::Nfs3Ok(Readdirplus3resok {
                dir_attributes,
                cookieverf: [0; 8],
                reply: Dirlistplus3 { entries, eof },
            }),
            Ok(_) => {
                Readdirplus3res::Default(Nfsstat3::Nfs3errToosmall, Readdirplus3resfail { dir_attributes })
            }
            Err(why) => Readdirplus3res::Default(reason(why), Readdirplus3resfail { dir_attributes }),
        })
    }

    fn nfsproc3_fsstat(&self, args: &Fsstat3args) -> Result<Fsstat3res> {
        let root = file(&args.fsroot);
        let obj_attributes = self.after(root);
        Ok(match root.and_then(|root| self.files.space(root)) {
            Ok(space) => Fsstat3res::Nfs3Ok(Fsstat3resok {
                obj_attributes,
                tbytes: space.f_blocks.saturating_mul(space.f_frsize),
                fbytes: space.f_bfree.saturating_mul(space.f_frsize),
                abytes: space.f_bavail.saturating_mul(space.f_frsize),
                tfiles: space.f_files,
                ffiles: space.f_ffree,
                afiles: space.f_favail,
                invarsec: 0,
            }),
            Err(why) => Fsstat3res::Default(reason(why), Fsstat3resfail { obj_attributes }),
        })
    }

    fn nfsproc3_fsinfo(&self, args: &Fsinfo3args) -> Result<Fsinfo3res> {
        let root = file(&args.fsroot).and_then(|root| self.files.stat(root));
        let most = max_transfer_bytes();
        Ok(match root {
            Ok(stat) => Fsinfo3res::Nfs3Ok(Fsinfo3resok {
                obj_attributes: Some(attributes(&stat)),
                rtmax: most,
                rtpref: most,
                rtmult: 4096,
                wtmax: most,
                wtpref: most,
                wtmult: 4096,
                dtpref: 64 << 10,
                maxfilesize: i64::MAX as u64,
                time_delta: Nfstime3 { seconds: 0, nseconds: 1 },
                properties: FSF3_LINK | FSF3_SYMLINK | FSF3_HOMOGENEOUS | FSF3_CANSETTIME,
            }),
            Err(why) => Fsinfo3res::Default(reason(why), Fsinfo3resfail::default()),
        })
    }

    fn nfsproc3_pathconf(&self, args: &Pathconf3args) -> Result<Pathconf3res> {
        Ok(match file(&args.object).and_then(|file| self.files.stat(file)) {
            Ok(stat) => Pathconf3res::Nfs3Ok(Pathconf3resok {
                obj_attributes: Some(attributes(&stat)),
                linkmax: 32_000,
                name_max: 255,
                no_trunc: true,
                chown_restricted: true,
                case_insensitive: false,
                case_preserving: true,
            }),
            Err(why) => Pathconf3res::Default(reason(why), Pathconf3resfail::default()),
        })
    }

    fn nfsproc3_commit(&self, args: &Commit3args) -> Result<Commit3res> {
        let (done, file_wcc) = self.around(&args.file, |file, _| self.files.commit(file));
        Ok(match done {
            Ok(()) => Commit3res::Nfs3Ok(Commit3resok { file_wcc, verf: self.verifier() }),
            Err(why) => Commit3res::Default(why, Commit3resfail { file_wcc }),
        })
    }
}

impl Export {
    /// Creates a file unless the same request has created it before. The request's eight bytes are kept as
    /// the file's times until the client sets them (RFC 1813 section 3.3.8).
    fn create_once(
        &self,
        directory: Key,
        name: &[u8],
        once: &Createverf3,
    ) -> std::result::Result<Key, Errno> {
        let [a, b, c, d, e, f, g, h] = *once;
        // The times are chosen so that every file system can store them, whatever the bytes are.
        let time =
            |bytes: [u8; 4]| Nfstime3 { seconds: u32::from_be_bytes(bytes) & 0x7fff_ffff, nseconds: 0 };
        let (first, second) = (time([a, b, c, d]), time([e, f, g, h]));
        let marked = Sattr3 {
            mode: None,
            uid: None,
            gid: None,
            size: None,
            atime: SetAtime::SetToClientTime(first),
            mtime: SetMtime::SetToClientTime(second),
        };
        match self.files.create(directory, name, 0o600, change(&marked).times.as_ref()) {
            Err(Errno::EXIST) => {
                let (found, stat) = self.files.existing(directory, name)?;
                let Fattr3 { atime, mtime, .. } = attributes(&stat);
                if (atime, mtime) == (first, second) { Ok(found) } else { Err(Errno::EXIST) }
            }
            made => made,
        }
    }

    /// Truncates an existing file if the client asks for a size. The other attributes apply to new files
    /// only.
    fn reuse(&self, directory: Key, name: &[u8], wanted: &Sattr3) -> std::result::Result<Key, Errno> {
        let (found, _) = self.files.existing(directory, name)?;
        let _change = self.changes.begin(found);
        self.files.change(found, &Change { size: wanted.size, ..Change::default() })?;
        Ok(found)
    }
}

/// Returns how many bytes an encoded name takes without its length.
fn padded(name: &[u8]) -> usize {
    name.len().next_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_before_a_change_are_returned_only_if_nobody_else_has_changed_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let files = Files::open(directory.path()).unwrap();
        let root = handle(files.root());
        let export = Export::new(Arc::new(files));
        let mkdir = |name: &str| {
            let (atime, mtime) =
                (SetAtime::Default(TimeHow::DontChange), SetMtime::Default(TimeHow::DontChange));
            let attributes = Sattr3 { mode: None, uid: None, gid: None, size: None, atime, mtime };
            let r#where = Diropargs3 { dir: root.clone(), name: name.into() };
            export.nfsproc3_mkdir(&Mkdir3args { r#where, attributes }).unwrap().into_ok().unwrap().dir_wcc
        };
        assert!(mkdir("alone").before.is_some());
        let mut second = WccData::default();
        let (_, first) = export.around(&root, |_, _| {
            second = mkdir("meanwhile");
            Ok(())
        });
        assert_eq!((first.before, second.before), (None, None));
        assert!(first.after.is_some() && second.after.is_some());
        let from = Diropargs3 { dir: root.clone(), name: "alone".into() };
        let to = Diropargs3 { dir: root.clone(), name: "again".into() };
        let renamed = export.nfsproc3_rename(&Rename3args { from, to }).unwrap().into_ok().unwrap();
        assert!(renamed.fromdir_wcc.before.is_some() && renamed.todir_wcc.before.is_some());
        let (_, after) = export.around(&root, |_, _| Ok(()));
        assert!(after.before.is_some());
    }
}
