//! Tests that need a process of their own: limits, and system calls that strace counts or makes fail. Each
//! test runs itself once more.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use farcall_nfs::files::{Change, Files};
use farcall_nfs::protocol::mount::{MountV3, Mountstat3};
use farcall_nfs::protocol::nfs::*;
use farcall_nfs::{Export, Mounts};
use rustix::fs::FileType;

/// The environment variable that tells a test that it runs inside the second process.
const INSIDE: &str = "FARCALL_NFS_ALONE";

fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs a test of this program once more, alone. The test's command line is appended to `command`.
fn once_more(test: &str, mut command: Command) {
    let exe = std::env::current_exe().unwrap();
    let test = format!("own_process::{test}");
    let run =
        command.arg(exe).args(["--exact", &test, "--test-threads=1"]).env(INSIDE, "1").output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
}

/// Runs a test in a shell that has first executed `first`.
fn after(first: &str, test: &str) {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{first}; exec \"$0\" \"$@\"")]);
    once_more(test, shell);
}

/// Runs a test under strace, and returns the trace. Returns `None` if strace cannot trace here.
fn traced(options: &[&str], test: &str) -> Option<String> {
    let tried = Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        let _ = writeln!(std::io::stderr(), "skipped: needs strace, and to be let trace");
        return None;
    }
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut strace = Command::new("strace");
    strace.arg("-f").args(options).arg("-o").arg(log.path());
    once_more(test, strace);
    Some(fs::read_to_string(log.path()).unwrap())
}

fn exported() -> (tempfile::TempDir, Files) {
    let directory = tempfile::tempdir().unwrap();
    let files = Files::open(directory.path()).unwrap();
    (directory, files)
}

fn within(dir: &NfsFh3, name: &str) -> Diropargs3 {
    Diropargs3 { dir: dir.clone(), name: name.into() }
}

fn nothing() -> Sattr3 {
    let (atime, mtime) = (SetAtime::Default(TimeHow::DontChange), SetMtime::Default(TimeHow::DontChange));
    Sattr3 { mode: None, uid: None, gid: None, size: None, atime, mtime }
}

/// Only a crash could show what a disk has stored. The test checks the requests to store it.
#[test]
fn what_was_changed_is_on_the_disk_before_anybody_is_told() {
    if is_inside() {
        return change_everything();
    }
    let test = "what_was_changed_is_on_the_disk_before_anybody_is_told";
    traced(&["-e", "trace=fsync,write"], test).inspect(|log| assert_asked(log, " fsync("));
}

#[test]
fn what_its_file_system_cannot_sync_is_synced_with_everything() {
    if is_inside() {
        return change_everything();
    }
    let test = "what_its_file_system_cannot_sync_is_synced_with_everything";
    let log = traced(&["-e", "trace=fsync,sync,write", "-e", "inject=fsync:error=EINVAL"], test);
    log.inspect(|log| assert_asked(log, " sync("));
}

/// Asserts that the system was asked often enough to store data before each report.
fn assert_asked(log: &str, how: &str) {
    let mut asked = 0;
    for line in log.lines() {
        if line.contains(how) {
            asked += 1;
        } else if let Some((_, told)) = line.split_once("\"told ") {
            let (what, wanted) = told.split_once(": ").unwrap();
            let wanted: u32 = wanted[..1].parse().unwrap();
            assert!(asked >= wanted, "{what}: {asked} of {wanted}");
            asked = 0;
        }
    }
    assert_eq!(asked, 0, "nothing comes after the last word");
}

/// Makes all changes, and reports after each what must be on the disk: a directory, a file created in it, or
/// another change.
fn change_everything() {
    let (_directory, files) = exported();
    let root = files.root();
    let tell = |what: &str, wanted: u32| {
        std::io::stderr().write_all(format!("told {what}: {wanted}\n").as_bytes()).unwrap()
    };
    let file = files.create(root, b"f", 0o600, None).unwrap();
    tell("create", 2);
    let sub = files.make_directory(root, b"d", 0o700).unwrap().unwrap();
    tell("mkdir", 2);
    files.make_link(root, b"l", b"f").unwrap();
    tell("symlink", 1);
    files.make_special(root, b"p", FileType::Fifo, 0o600).unwrap();
    tell("mknod", 1);
    files.link(file, root, b"g").unwrap();
    tell("link", 2);
    files.rename((root, b"f"), (root, b"h")).unwrap();
    tell("rename", 1);
    files.rename((root, b"h"), (sub, b"f")).unwrap();
    tell("rename elsewhere", 2);
    files.change(file, &Change { mode: Some(0o640), ..Change::default() }).unwrap();
    tell("setattr", 1);
    files.write(file, 0, b"x", StableHow::FileSync).unwrap();
    tell("write", 1);
    files.commit(file).unwrap();
    tell("commit", 1);
    files.remove(sub, b"f", false).unwrap();
    tell("remove", 1);
    files.remove(root, b"d", true).unwrap();
    tell("rmdir", 1);
}

#[test]
fn files_that_are_kept_open_give_way_to_others() {
    if !is_inside() {
        return after("ulimit -n 48", "files_that_are_kept_open_give_way_to_others");
    }
    let (directory, files) = exported();
    for number in 0..100 {
        fs::write(directory.path().join(number.to_string()), [number]).unwrap();
    }
    for number in 0..100_u8 {
        let (file, _) = files.lookup(files.root(), number.to_string().as_bytes()).unwrap();
        assert_eq!(files.read(file, 0, 9).unwrap().0, [number]);
    }
}

#[test]
fn where_too_few_can_be_opened_nothing_is_done_and_the_client_asks_again_later() {
    if !is_inside() {
        let test = "where_too_few_can_be_opened_nothing_is_done_and_the_client_asks_again_later";
        return after("ulimit -n 48", test);
    }
    for (what, change) in CHANGES {
        let (mut done, mut later) = (0, 0);
        for free in 0..8 {
            let (directory, files) = exported();
            fs::create_dir(directory.path().join("d")).unwrap();
            fs::write(directory.path().join("f"), "content").unwrap();
            let (file, _) = files.lookup(files.root(), b"f").unwrap();
            let (sub, _) = files.lookup(files.root(), b"d").unwrap();
            let [root, file, sub] =
                [files.root(), file, sub].map(|key| NfsFh3 { data: key.bytes().to_vec() });
            let export = Export::new(Arc::new(files));
            let before = snapshot(directory.path());
            let result = with_descriptors(free, || change(&export, &root, &file, &sub));
            let changed = before != snapshot(directory.path());
            match result {
                Ok(()) => done += 1,
                Err(Nfsstat3::Nfs3errJukebox) => later += 1,
                Err(why) => panic!("{what} with {free}: {why}"),
            }
            assert_eq!(result.is_ok(), changed, "{what} with {free}: {result:?}");
        }
        assert!(done > 0 && later > 0, "{what}: {done} done, {later} later");
    }
}

type Done = Result<(), Nfsstat3>;

/// A function that changes a directory with a file `f` and a directory `d`.
type Act = fn(&Export, root: &NfsFh3, file: &NfsFh3, sub: &NfsFh3) -> Done;

const CHANGES: [(&str, Act); 13] = [
    ("create", |export, root, _, _| {
        let how = Createhow3::Guarded(nothing());
        export
            .nfsproc3_create(&Create3args { r#where: within(root, "new"), how })
            .unwrap()
            .into_ok()
            .map(drop)
    }),
    ("create once", |export, root, _, _| {
        let how = Createhow3::Exclusive([1; 8]);
        export
            .nfsproc3_create(&Create3args { r#where: within(root, "new"), how })
            .unwrap()
            .into_ok()
            .map(drop)
    }),
    ("empty", |export, root, _, _| {
        let how = Createhow3::Unchecked(Sattr3 { size: Some(0), ..nothing() });
        export.nfsproc3_create(&Create3args { r#where: within(root, "f"), how }).unwrap().into_ok().map(drop)
    }),
    ("mkdir", |export, root, _, _| {
        let args = Mkdir3args { r#where: within(root, "new"), attributes: nothing() };
        export.nfsproc3_mkdir(&args).unwrap().into_ok().map(drop)
    }),
    ("symlink", |export, root, _, _| {
        let symlink = Symlinkdata3 { symlink_attributes: nothing(), symlink_data: "f".into() };
        export
            .nfsproc3_symlink(&Symlink3args { r#where: within(root, "new"), symlink })
            .unwrap()
            .into_ok()
            .map(drop)
    }),
    ("mknod", |export, root, _, _| {
        let what = Mknoddata3::Nf3fifo(nothing());
        export.nfsproc3_mknod(&Mknod3args { r#where: within(root, "new"), what }).unwrap().into_ok().map(drop)
    }),
    ("link", |export, root, file, _| {
        let args = Link3args { file: file.clone(), link: within(root, "new") };
        export.nfsproc3_link(&args).unwrap().into_ok().map(drop)
    }),
    ("rename", |export, root, _, sub| {
        let args = Rename3args { from: within(root, "f"), to: within(sub, "f") };
        export.nfsproc3_rename(&args).unwrap().into_ok().map(drop)
    }),
    ("setattr", |export, _, file, _| {
        let new_attributes = Sattr3 { mode: Some(0), size: Some(1), ..nothing() };
        let args = Setattr3args { object: file.clone(), new_attributes, guard: None };
        export.nfsproc3_setattr(&args).unwrap().into_ok().map(drop)
    }),
    ("chmod", |export, _, file, _| {
        let new_attributes = Sattr3 { mode: Some(0), ..nothing() };
        let args = Setattr3args { object: file.clone(), new_attributes, guard: None };
        export.nfsproc3_setattr(&args).unwrap().into_ok().map(drop)
    }),
    ("write", |export, _, file, _| {
        let (stable, data) = (StableHow::FileSync, b"more content".to_vec());
        let args = Write3args { file: file.clone(), offset: 0, count: 12, stable, data };
        export.nfsproc3_write(&args).unwrap().into_ok().map(drop)
    }),
    ("remove", |export, root, _, _| {
        export.nfsproc3_remove(&Remove3args { object: within(root, "f") }).unwrap().into_ok().map(drop)
    }),
    ("rmdir", |export, root, _, _| {
        export.nfsproc3_rmdir(&Rmdir3args { object: within(root, "d") }).unwrap().into_ok().map(drop)
    }),
];

/// Runs `act` while at most `free` more files can be opened.
fn with_descriptors<T>(free: usize, act: impl FnOnce() -> T) -> T {
    let mut taken = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    taken.truncate(taken.len() - free);
    act()
}

/// Returns all files of a directory, with their attributes.
fn snapshot(directory: &Path) -> Vec<(String, u32, u64, u64)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let metadata = entry.metadata().unwrap();
        all.push((entry.path().display().to_string(), metadata.mode(), metadata.len(), metadata.nlink()));
        if metadata.is_dir() {
            all.extend(snapshot(&entry.path()));
        }
    }
    all.sort();
    all
}

#[test]
fn where_none_can_be_opened_nobody_is_told_that_it_is_not_there() {
    if !is_inside() {
        return after("ulimit -n 48", "where_none_can_be_opened_nobody_is_told_that_it_is_not_there");
    }
    let (directory, files) = exported();
    fs::write(directory.path().join("f"), "").unwrap();
    symlink("f", directory.path().join("l")).unwrap();
    let [file, symlink] = [&b"f"[..], b"l"].map(|name| files.lookup(files.root(), name).unwrap().0);
    let [root, file, symlink] =
        [files.root(), file, symlink].map(|key| NfsFh3 { data: key.bytes().to_vec() });
    let files = Arc::new(files);
    let (export, mounts) = (Export::new(files.clone()), Mounts::new(files, "/"));
    let (said, mounted) = with_descriptors(0, || {
        let object = file.clone();
        let access = Access3args { object: file.clone(), access: ACCESS3_READ };
        let read = Read3args { file: file.clone(), offset: 0, count: 1 };
        let readdir = Readdir3args { dir: root.clone(), cookie: 0, cookieverf: [0; 8], count: 1000 };
        let said = [
            export.nfsproc3_getattr(&Getattr3args { object }).unwrap().into_ok().map(drop),
            export.nfsproc3_lookup(&Lookup3args { what: within(&root, "f") }).unwrap().into_ok().map(drop),
            export.nfsproc3_access(&access).unwrap().into_ok().map(drop),
            export.nfsproc3_readlink(&Readlink3args { symlink }).unwrap().into_ok().map(drop),
            export.nfsproc3_read(&read).unwrap().into_ok().map(drop),
            export.nfsproc3_readdir(&readdir).unwrap().into_ok().map(drop),
            export.nfsproc3_commit(&Commit3args { file, offset: 0, count: 0 }).unwrap().into_ok().map(drop),
        ];
        (said, mounts.mountproc3_mnt(&"/".into()).unwrap().into_ok().map(drop))
    });
    assert_eq!(said, [Err(Nfsstat3::Nfs3errJukebox); 7]);
    assert_eq!(mounted, Err(Mountstat3::Mnt3errServerfault));
}

#[test]
fn what_there_was_room_for_is_told_as_written() {
    if !is_inside() {
        // `ulimit` counts in blocks of 512 bytes.
        return after("trap '' XFSZ; ulimit -f 1", "what_there_was_room_for_is_told_as_written");
    }
    let (directory, files) = exported();
    File::create(directory.path().join("f")).unwrap();
    let (file, _) = files.lookup(files.root(), b"f").unwrap();
    let (file, export) = (NfsFh3 { data: file.bytes().to_vec() }, Export::new(Arc::new(files)));
    let write = |offset| {
        let (stable, data) = (StableHow::Unstable, vec![1; 100]);
        let args = Write3args { file: file.clone(), offset, count: 100, stable, data };
        Ok::<_, Nfsstat3>(export.nfsproc3_write(&args).unwrap().into_ok()?.count)
    };
    assert_eq!(write(500), Ok(12));
    assert_eq!(fs::metadata(directory.path().join("f")).unwrap().len(), 512);
    assert_eq!(write(512), Err(Nfsstat3::Nfs3errFbig));
}

/// RFC 1813 section 3.3.7: the client sends data again that was not committed under the same verifier.
#[test]
fn when_the_disk_has_failed_everybody_sends_again_what_was_not_committed() {
    if !is_inside() {
        let test = "when_the_disk_has_failed_everybody_sends_again_what_was_not_committed";
        drop(traced(&["-e", "inject=fdatasync:error=EIO"], test));
        return;
    }
    let (directory, files) = exported();
    File::create(directory.path().join("f")).unwrap();
    let (file, _) = files.lookup(files.root(), b"f").unwrap();
    let (file, export) = (NfsFh3 { data: file.bytes().to_vec() }, Export::new(Arc::new(files)));
    let write = |stable| {
        let args = Write3args { file: file.clone(), offset: 0, count: 1, stable, data: vec![1] };
        Ok::<_, Nfsstat3>(export.nfsproc3_write(&args).unwrap().into_ok()?.verf)
    };
    let commit = || {
        let args = Commit3args { file: file.clone(), offset: 0, count: 0 };
        export.nfsproc3_commit(&args).unwrap().into_ok().unwrap().verf
    };
    let written = write(StableHow::Unstable).unwrap();
    assert_eq!(commit(), written);
    assert_eq!(write(StableHow::DataSync), Err(Nfsstat3::Nfs3errIo));
    assert_ne!(commit(), written);
    assert_eq!(commit(), write(StableHow::Unstable).unwrap(), "and again from then on");
}

/// Another client moves each file at the moment when it is created, so its name leads nowhere.
#[test]
fn what_was_made_and_moved_at_once_is_told_as_made() {
    if !is_inside() {
        let test = "what_was_made_and_moved_at_once_is_told_as_made";
        drop(traced(&["-P", "moved", "-e", "trace=statx", "-e", "inject=statx:error=ENOENT"], test));
        return;
    }
    let (directory, files) = exported();
    let root = NfsFh3 { data: files.root().bytes().to_vec() };
    let export = Export::new(Arc::new(files));
    let gone = || fs::rename(directory.path().join("moved"), directory.path().join("elsewhere")).unwrap();
    let place = || within(&root, "moved");
    let made = export.nfsproc3_mkdir(&Mkdir3args { r#where: place(), attributes: nothing() }).unwrap();
    let made = made.into_ok().unwrap();
    assert!(made.obj.is_none() && made.obj_attributes.is_none());
    fs::remove_dir(directory.path().join("moved")).unwrap();
    let symlink = Symlinkdata3 { symlink_attributes: nothing(), symlink_data: "f".into() };
    assert!(
        export
            .nfsproc3_symlink(&Symlink3args { r#where: place(), symlink })
            .unwrap()
            .into_ok()
            .unwrap()
            .obj
            .is_none()
    );
    gone();
    let what = Mknoddata3::Nf3fifo(nothing());
    assert!(
        export
            .nfsproc3_mknod(&Mknod3args { r#where: place(), what })
            .unwrap()
            .into_ok()
            .unwrap()
            .obj
            .is_none()
    );
    gone();
    // The creator of a file has it open, whatever its name is. A client that finds such a file gone tries
    // again.
    let create = |how| export.nfsproc3_create(&Create3args { r#where: place(), how }).unwrap().into_ok();
    let once = || Createhow3::Exclusive([1; 8]);
    assert!(create(once()).unwrap().obj.is_some());
    for how in [once(), Createhow3::Unchecked(nothing())] {
        assert_eq!(create(how).unwrap_err(), Nfsstat3::Nfs3errJukebox);
    }
}
