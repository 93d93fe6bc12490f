//! Tests hostile and unlucky clients: paths that lead out, files that are gone, sizes that are too large, and
//! repeated requests.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use farcall_nfs::Export;
use farcall_nfs::files::{Change, Files};
use farcall_nfs::protocol::nfs::*;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

/// Held by a test that writes a program and runs it, and by a test that runs another program. A child that is
/// being started holds its parent's files open, and a file that is open for writing cannot be run.
static STARTING: Mutex<()> = Mutex::new(());

fn exported() -> (tempfile::TempDir, Files) {
    // The directory's canonical path is used, because the directory of temporary files may be a link.
    let directory = tempfile::tempdir_in(std::env::temp_dir().canonicalize().unwrap()).unwrap();
    let files = Files::open(directory.path()).unwrap();
    (directory, files)
}

/// Returns the procedures, bound without a network, and the root's handle.
fn served(files: Files) -> (Export, NfsFh3) {
    let root = NfsFh3 { data: files.root().bytes().to_vec() };
    (Export::new(Arc::new(files)), root)
}

fn within(dir: &NfsFh3, name: &str) -> Diropargs3 {
    Diropargs3 { dir: dir.clone(), name: name.into() }
}

fn nothing() -> Sattr3 {
    let (atime, mtime) = (SetAtime::Default(TimeHow::DontChange), SetMtime::Default(TimeHow::DontChange));
    Sattr3 { mode: None, uid: None, gid: None, size: None, atime, mtime }
}

fn create(export: &Export, r#where: Diropargs3, how: Createhow3) -> Result<NfsFh3, Nfsstat3> {
    Ok(export.nfsproc3_create(&Create3args { r#where, how }).unwrap().into_ok()?.obj.unwrap())
}

#[test]
fn what_was_moved_out_of_the_export_is_gone_though_it_was_just_read() {
    let (directory, files) = exported();
    let outside = tempfile::tempdir().unwrap();
    let inside = directory.path().join("d");
    fs::create_dir(&inside).unwrap();
    fs::write(inside.join("f"), "mine").unwrap();
    let (d, _) = files.lookup(files.root(), b"d").unwrap();
    let (f, _) = files.lookup(d, b"f").unwrap();
    assert_eq!(files.read(f, 0, 9).unwrap().0, b"mine");
    fs::rename(&inside, outside.path().join("d")).unwrap();
    for _ in 0..2 {
        assert_eq!(files.read(f, 0, 9).unwrap_err(), Errno::STALE);
        assert_eq!(files.write(f, 0, b"yours", StableHow::Unstable).unwrap_err(), Errno::STALE);
        assert_eq!(files.stat(f).unwrap_err(), Errno::STALE);
        assert_eq!(
            files.change(f, &Change { size: Some(0), ..Change::default() }).unwrap_err(),
            Errno::STALE
        );
        // A link to the directory's new place does not help either.
        symlink(outside.path().join("d"), &inside).ok();
    }
    assert_eq!(fs::read(outside.path().join("d/f")).unwrap(), b"mine");
}

#[test]
fn a_file_that_could_only_be_read_is_written_as_soon_as_it_can_be() {
    let _alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    let (directory, files) = exported();
    let program = directory.path().join("program");
    fs::copy("/bin/sleep", &program).unwrap();
    let mut running = Command::new(&program).arg("1000").spawn().unwrap();
    let (file, _) = files.lookup(files.root(), b"program").unwrap();
    assert_eq!(files.read(file, 1, 3).unwrap().0, b"ELF");
    // While the program runs, it cannot be written. (Some systems allow it.)
    let written = files.write(file, 0, b"x", StableHow::Unstable);
    running.kill().unwrap();
    running.wait().unwrap();
    assert!(matches!(written, Ok(1) | Err(Errno::TXTBSY)), "{written:?}");
    files.write(file, 0, b"new", StableHow::Unstable).unwrap();
    assert_eq!(files.read(file, 0, 4).unwrap().0, b"newF");
}

#[test]
fn a_program_that_was_written_and_committed_can_be_run() {
    let _alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    let (directory, files) = exported();
    let content = fs::read("/bin/true").unwrap();
    for (name, how) in [("unstable", StableHow::Unstable), ("stable", StableHow::FileSync)] {
        let file = files.create(files.root(), name.as_bytes(), 0o755, None).unwrap();
        files.write(file, 0, &content, how).unwrap();
        if how == StableHow::Unstable {
            files.commit(file).unwrap();
        }
        assert!(files.read(file, 0, 1).is_ok());
        assert!(Command::new(directory.path().join(name)).status().unwrap().success(), "{name}");
    }
}

#[test]
fn what_was_removed_or_replaced_is_not_kept_open() {
    let (directory, files) = exported();
    let root = files.root();
    let made =
        [&b"removed"[..], b"replaced", b"new"].map(|name| files.create(root, name, 0o400, None).unwrap());
    made.iter().for_each(|file| assert_eq!(files.write(*file, 0, b"x", StableHow::Unstable), Ok(1)));
    // A failed removal closes nothing: the creator of the file can continue to write.
    assert_eq!(files.remove(root, b"new", true).unwrap_err(), Errno::NOTDIR);
    files.remove(root, b"removed", false).unwrap();
    files.rename((root, b"new"), (root, b"replaced")).unwrap();
    let open =
        fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    let open: Vec<_> = open.filter(|path| path.parent() == Some(directory.path())).collect();
    assert_eq!(open, [directory.path().join("replaced")]);
}

#[test]
fn create_opens_neither_pipes_nor_sockets_nor_devices() {
    let (directory, files) = exported();
    files.make_special(files.root(), b"pipe", FileType::Fifo, 0o600).unwrap();
    files.make_special(files.root(), b"socket", FileType::Socket, 0o600).unwrap();
    // A reader of a pipe sees the pipe hang up as soon as another process has opened it for writing and
    // closed it again.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let reader = rustix::fs::open(directory.path().join("pipe"), flags, Mode::empty()).unwrap();
    let mut kinds = vec!["pipe", "socket"];
    // Only root can create devices. This is the device that discards everything.
    let null = rustix::fs::makedev(1, 3);
    if rustix::fs::mknodat(
        rustix::fs::CWD,
        directory.path().join("device"),
        FileType::CharacterDevice,
        Mode::RUSR,
        null,
    )
    .is_ok()
    {
        kinds.push("device");
    }
    let (export, root) = served(files);
    for name in kinds {
        let truncating = Sattr3 { size: Some(0), ..nothing() };
        for how in
            [Createhow3::Unchecked(truncating), Createhow3::Guarded(nothing()), Createhow3::Exclusive([0; 8])]
        {
            assert_eq!(create(&export, within(&root, name), how), Err(Nfsstat3::Nfs3errExist), "{name}");
        }
        assert!(!fs::symlink_metadata(directory.path().join(name)).unwrap().file_type().is_file());
    }
    assert!(fs::symlink_metadata(directory.path().join("pipe")).unwrap().file_type().is_fifo());
    let mut polled = [PollFd::new(&reader, PollFlags::IN)];
    assert_eq!(rustix::event::poll(&mut polled, Some(&Default::default())).unwrap(), 0, "it was opened");
}

#[test]
fn the_handle_of_a_file_that_is_gone_does_not_lead_to_one_that_has_its_inode() {
    let (directory, files) = exported();
    let root = files.root();
    let mut seen = Vec::new();
    for number in 0..2000 {
        let name = number.to_string();
        let file = files.create(root, name.as_bytes(), 0o600, None).unwrap();
        let path = directory.path().join(&name);
        let metadata = fs::metadata(&path).unwrap();
        let (inode, born) = (metadata.ino(), metadata.created().ok());
        let earlier = seen.iter().find(|(_, old, at)| *old == inode && *at != born);
        if let Some((old, ..)) = earlier {
            assert_eq!(files.stat(*old).unwrap_err(), Errno::STALE);
            assert_eq!(files.write(*old, 0, b"harm", StableHow::Unstable).unwrap_err(), Errno::STALE);
            assert_eq!(fs::read(&path).unwrap(), b"");
            return;
        }
        seen.push((file, inode, born));
        files.remove(root, name.as_bytes(), false).unwrap();
    }
    // On this system, inodes are not used again so soon.
    assert!(seen.iter().all(|(file, ..)| files.stat(*file).unwrap_err() == Errno::STALE));
}

#[test]
fn handles_that_were_made_up_lead_nowhere() {
    let (_directory, files) = exported();
    let (export, root) = served(files);
    let getattr = |data: Vec<u8>| {
        let object = NfsFh3 { data };
        export.nfsproc3_getattr(&Getattr3args { object }).unwrap().into_ok().unwrap_err()
    };
    for length in [0, 1, 16, 23, 25, 64] {
        assert_eq!(getattr(vec![0xab; length]), Nfsstat3::Nfs3errBadhandle, "{length}");
    }
    assert_eq!(getattr(vec![0xab; root.data.len()]), Nfsstat3::Nfs3errStale);
    // A client can guess the inode of the directory above the exported one. No path leads there.
    let mut above = root.data.clone();
    above[8..16].copy_from_slice(&fs::metadata("/").unwrap().ino().to_be_bytes());
    assert_eq!(getattr(above), Nfsstat3::Nfs3errStale);
    for name in ["..", "."] {
        let found =
            export.nfsproc3_lookup(&Lookup3args { what: within(&root, name) }).unwrap().into_ok().unwrap();
        assert_eq!(found.object, root, "nothing is above the root");
    }
}

#[test]
fn each_name_is_listed_once_while_others_are_removed() {
    for plus in [false, true] {
        let (directory, files) = exported();
        for number in 0..500 {
            fs::write(directory.path().join(format!("file-{number}")), "").unwrap();
        }
        let (export, root) = served(files);
        let (mut cookie, mut seen) = (0, Vec::new());
        loop {
            let (names, ended) = part(&export, &root, cookie, plus);
            for (name, next) in &names {
                cookie = *next;
                if name.starts_with("file-") {
                    seen.push(name.clone());
                    fs::remove_file(directory.path().join(name)).unwrap();
                }
            }
            if ended {
                break;
            }
        }
        let listed = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!((listed, seen.len()), (500, 500), "plus: {plus}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}

/// Returns the names of one reply, each with its cookie, and whether they are the last.
fn part(export: &Export, dir: &NfsFh3, cookie: u64, plus: bool) -> (Vec<(String, u64)>, bool) {
    let (dir, cookieverf) = (dir.clone(), [0; 8]);
    if plus {
        let args = Readdirplus3args { dir, cookie, cookieverf, dircount: 600, maxcount: 2000 };
        let reply = export.nfsproc3_readdirplus(&args).unwrap().into_ok().unwrap().reply;
        return (
            reply.entries.iter().map(|entry| (entry.name.to_string(), entry.cookie)).collect(),
            reply.eof,
        );
    }
    let args = Readdir3args { dir, cookie, cookieverf, count: 600 };
    let reply = export.nfsproc3_readdir(&args).unwrap().into_ok().unwrap().reply;
    (reply.entries.iter().map(|entry| (entry.name.to_string(), entry.cookie)).collect(), reply.eof)
}

#[test]
fn counts_and_cookies_may_be_anything() {
    let (directory, files) = exported();
    fs::write(directory.path().join("a-name-of-some-length"), "content").unwrap();
    let (export, root) = served(files);
    let list = |cookie, dircount, maxcount| {
        let args = Readdirplus3args { dir: root.clone(), cookie, cookieverf: [7; 8], dircount, maxcount };
        Ok::<_, Nfsstat3>(export.nfsproc3_readdirplus(&args).unwrap().into_ok()?.reply.entries.len())
    };
    assert_eq!(list(0, u32::MAX, u32::MAX), Ok(3));
    assert_eq!(list(0, 0, 8000), Ok(1), "the first is given, however few bytes of names are wanted");
    assert_eq!(list(0, 8000, 0), Err(Nfsstat3::Nfs3errToosmall));
    assert_eq!(list(u64::MAX, 8000, 8000), Err(Nfsstat3::Nfs3errBadCookie));
    let names = |count| {
        let args = Readdir3args { dir: root.clone(), cookie: 0, cookieverf: [0; 8], count };
        Ok::<_, Nfsstat3>(export.nfsproc3_readdir(&args).unwrap().into_ok()?.reply.entries.len())
    };
    assert_eq!(names(u32::MAX), Ok(3));
    assert_eq!(names(0), Err(Nfsstat3::Nfs3errToosmall));
    let what = within(&root, "a-name-of-some-length");
    let file = export.nfsproc3_lookup(&Lookup3args { what }).unwrap().into_ok().unwrap().object;
    for (offset, count, expected) in
        [(0, u32::MAX, (&b"content"[..], true)), (u64::MAX, u32::MAX, (b"", true)), (6, 0, (b"", false))]
    {
        let read = export
            .nfsproc3_read(&Read3args { file: file.clone(), offset, count })
            .unwrap()
            .into_ok()
            .unwrap();
        assert_eq!((&read.data[..], read.eof), expected);
    }
    for offset in [u64::MAX, i64::MAX as u64] {
        let (stable, data) = (StableHow::Unstable, b"x".to_vec());
        let args = Write3args { file: file.clone(), offset, count: 1, stable, data };
        assert_eq!(export.nfsproc3_write(&args).unwrap().into_ok().unwrap_err(), Nfsstat3::Nfs3errFbig);
    }
    let new_attributes = Sattr3 { size: Some(u64::MAX), ..nothing() };
    let args = Setattr3args { object: file, new_attributes, guard: None };
    assert_eq!(export.nfsproc3_setattr(&args).unwrap().into_ok().unwrap_err(), Nfsstat3::Nfs3errFbig);
    assert_eq!(fs::read(directory.path().join("a-name-of-some-length")).unwrap(), b"content");
}

#[test]
fn names_are_names_and_not_longer_than_they_may_be() {
    let (directory, files) = exported();
    let (export, root) = served(files);
    let long = "n".repeat(255);
    create(&export, within(&root, &long), Createhow3::Guarded(nothing())).unwrap();
    let huge = "n".repeat(1 << 20);
    for (name, why) in [
        (&huge[..256], Nfsstat3::Nfs3errNametoolong),
        (&huge[..], Nfsstat3::Nfs3errNametoolong),
        ("a/b", Nfsstat3::Nfs3errInval),
        ("../x", Nfsstat3::Nfs3errInval),
        ("..", Nfsstat3::Nfs3errInval),
        ("a\0b", Nfsstat3::Nfs3errInval),
        ("", Nfsstat3::Nfs3errInval),
    ] {
        let at = || within(&root, name);
        assert_eq!(create(&export, at(), Createhow3::Unchecked(nothing())), Err(why));
        let object = at();
        assert_eq!(export.nfsproc3_remove(&Remove3args { object }).unwrap().into_ok().unwrap_err(), why);
        let args = Rename3args { from: within(&root, &long), to: at() };
        assert_eq!(export.nfsproc3_rename(&args).unwrap().into_ok().unwrap_err(), why);
        let args = Mkdir3args { r#where: at(), attributes: nothing() };
        assert_eq!(export.nfsproc3_mkdir(&args).unwrap().into_ok().unwrap_err(), why);
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn who_creates_a_file_that_is_there_empties_it_and_hears_if_that_failed() {
    let (directory, files) = exported();
    let path = directory.path().join("f");
    fs::write(&path, "full").unwrap();
    let before = fs::metadata(&path).unwrap();
    let (export, root) = served(files);
    let sized = |size| {
        let mtime = SetMtime::SetToClientTime(Nfstime3 { seconds: 1, nseconds: 0 });
        Createhow3::Unchecked(Sattr3 { mode: Some(0), size, mtime, ..nothing() })
    };
    assert_eq!(create(&export, within(&root, "f"), sized(Some(u64::MAX))), Err(Nfsstat3::Nfs3errFbig));
    create(&export, within(&root, "f"), sized(None)).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"full");
    create(&export, within(&root, "f"), sized(Some(0))).unwrap();
    let after = fs::metadata(&path).unwrap();
    assert_eq!((after.len(), after.mode()), (0, before.mode()));
    assert!(after.mtime() >= before.mtime(), "what it should be otherwise is said of new ones");
}

#[test]
fn attributes_change_only_if_the_guard_says_what_is() {
    let (directory, files) = exported();
    let (export, root) = served(files);
    let object = create(&export, within(&root, "f"), Createhow3::Guarded(nothing())).unwrap();
    let stat = || {
        let object = object.clone();
        export.nfsproc3_getattr(&Getattr3args { object }).unwrap().into_ok().unwrap().obj_attributes
    };
    let set = |guard| {
        let new_attributes = Sattr3 { size: Some(5), ..nothing() };
        let args = Setattr3args { object: object.clone(), new_attributes, guard };
        export.nfsproc3_setattr(&args).unwrap().into_ok().map(drop)
    };
    let Nfstime3 { seconds, nseconds } = stat().ctime;
    let wrong = Nfstime3 { seconds: seconds.wrapping_sub(1), nseconds };
    assert_eq!(set(Some(wrong)), Err(Nfsstat3::Nfs3errNotSync));
    assert_eq!(stat().size, 0);
    assert_eq!(set(Some(stat().ctime)), Ok(()));
    assert_eq!(fs::metadata(directory.path().join("f")).unwrap().len(), 5);
}

#[test]
fn nobody_leaves_a_program_that_runs_as_the_server() {
    let (directory, files) = exported();
    let (export, root) = served(files);
    let wanted = Sattr3 { mode: Some(0o6777), ..nothing() };
    let object = create(&export, within(&root, "f"), Createhow3::Guarded(wanted)).unwrap();
    let mode = || fs::metadata(directory.path().join("f")).unwrap().permissions().mode() & 0o7000;
    assert_eq!(mode(), 0);
    let args = Setattr3args { object, new_attributes: wanted, guard: None };
    export.nfsproc3_setattr(&args).unwrap().into_ok().unwrap();
    assert_eq!(mode(), 0);
    let args =
        Mkdir3args { r#where: within(&root, "d"), attributes: Sattr3 { mode: Some(0o7777), ..nothing() } };
    export.nfsproc3_mkdir(&args).unwrap().into_ok().unwrap();
    let mode = fs::metadata(directory.path().join("d")).unwrap().permissions().mode();
    assert_eq!(mode & 0o6000, 0);
}

#[test]
fn a_server_that_was_started_anew_knows_what_it_had_made_and_says_that_it_is_another() {
    let (directory, files) = exported();
    let (export, root) = served(files);
    let once = [1, 2, 3, 4, 5, 6, 7, 8];
    let made = create(&export, within(&root, "f"), Createhow3::Exclusive(once)).unwrap();
    let write = |export: &Export| {
        let (file, data) = (made.clone(), b"x".to_vec());
        let args = Write3args { file, offset: 0, count: 1, stable: StableHow::Unstable, data };
        export.nfsproc3_write(&args).unwrap().into_ok().unwrap().verf
    };
    let commit = |export: &Export| {
        let args = Commit3args { file: made.clone(), offset: 0, count: 0 };
        export.nfsproc3_commit(&args).unwrap().into_ok().unwrap().verf
    };
    drop(export);
    let (export, root) = served(Files::open(directory.path()).unwrap());
    assert_eq!(
        create(&export, within(&root, "f"), Createhow3::Exclusive(once)),
        Ok(made.clone()),
        "it asks again"
    );
    let other = Createhow3::Exclusive([9; 8]);
    assert_eq!(create(&export, within(&root, "f"), other), Err(Nfsstat3::Nfs3errExist));
    let first = write(&export);
    assert_eq!(commit(&export), first);
    let (again, root) = served(Files::open(directory.path()).unwrap());
    assert_eq!(create(&again, within(&root, "f"), Createhow3::Unchecked(nothing())), Ok(made.clone()));
    assert_ne!(commit(&again), first, "what had not been committed might be lost");
}

#[test]
fn what_was_written_is_as_stable_as_the_reply_says() {
    let (_directory, files) = exported();
    let (export, root) = served(files);
    let file = create(&export, within(&root, "f"), Createhow3::Guarded(nothing())).unwrap();
    for stable in [StableHow::Unstable, StableHow::DataSync, StableHow::FileSync] {
        let args = Write3args { file: file.clone(), offset: 0, count: 4, stable, data: b"data".to_vec() };
        let done = export.nfsproc3_write(&args).unwrap().into_ok().unwrap();
        assert_eq!((done.committed, done.count), (stable, 4));
    }
    let file_less =
        Write3args { file, offset: 0, count: 9, stable: StableHow::Unstable, data: b"four".to_vec() };
    assert_eq!(export.nfsproc3_write(&file_less).unwrap().into_ok().unwrap_err(), Nfsstat3::Nfs3errInval);
}

#[test]
fn a_file_that_has_another_name_is_there_when_its_first_is_gone() {
    let (_directory, files) = exported();
    let root = files.root();
    let file = files.create(root, b"new", 0o600, None).unwrap();
    files.write(file, 0, b"x", StableHow::Unstable).unwrap();
    files.link(file, root, b"final").unwrap();
    files.remove(root, b"new", false).unwrap();
    assert_eq!(files.read(file, 0, 1).unwrap().0, b"x");
}

#[test]
fn a_path_may_be_longer_than_the_system_takes_at_once() {
    let (directory, files) = exported();
    let outside = tempfile::tempdir().unwrap();
    let mut here = files.root();
    for letter in 'a'..='z' {
        here = files.make_directory(here, letter.to_string().repeat(250).as_bytes(), 0o755).unwrap().unwrap();
    }
    let file = files.create(here, b"deep", 0o600, None).unwrap();
    files.write(file, 0, b"down", StableHow::FileSync).unwrap();
    assert_eq!(files.read(file, 0, 9).unwrap().0, b"down");
    // A directory on the path is replaced by a link to it.
    let (first, elsewhere) = (directory.path().join("a".repeat(250)), outside.path().join("a"));
    fs::rename(&first, &elsewhere).unwrap();
    symlink(&elsewhere, &first).unwrap();
    assert_eq!(files.read(file, 0, 9).unwrap_err(), Errno::STALE);
    assert_eq!(files.create(here, b"more", 0o600, None).unwrap_err(), Errno::STALE);
}

#[test]
fn who_makes_a_file_that_nobody_may_write_fills_it() {
    let (directory, files) = exported();
    // If this test does not run as root, only an open file can be written.
    let file = files.create(files.root(), b"f", 0o400, None).unwrap();
    files.write(file, 0, b"all ", StableHow::Unstable).unwrap();
    files.commit(file).unwrap();
    files.write(file, 4, b"of it", StableHow::FileSync).unwrap();
    assert_eq!(fs::read(directory.path().join("f")).unwrap(), b"all of it");
}
