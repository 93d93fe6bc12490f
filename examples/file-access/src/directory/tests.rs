//! Tests hostile paths, links and renames, with the kernel's resolution and with name-by-name resolution.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use farcall::Error;

const SECRET: &[u8] = b"nobody's business";
const PUBLIC: &[u8] = b"for everybody";

/// A directory `served` with some files, next to a file that must never be read.
struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Scratch {
        let scratch = Scratch(tempfile::tempdir().unwrap());
        fs::create_dir_all(scratch.0.path().join("served/sub")).unwrap();
        fs::create_dir(scratch.0.path().join("outside")).unwrap();
        scratch.write("outside/file", SECRET);
        scratch.write("served/file", PUBLIC);
        scratch.write("served/sub/file", PUBLIC);
        scratch
    }

    fn write(&self, path: &str, content: &[u8]) {
        fs::write(self.0.path().join(path), content).unwrap();
    }

    fn link(&self, to: &str, path: &str) {
        symlink(to, self.0.path().join(path)).unwrap();
    }

    /// Returns a server for each way to resolve a path.
    fn servers(&self) -> [Directory; 2] {
        let open = || Directory::open(self.0.path().join("served")).unwrap();
        [open(), open().walking()]
    }
}

fn read(server: &Directory, path: &str) -> std::result::Result<Vec<u8>, FileError> {
    match server.read(path, 0, MAX_READ) {
        Ok(contents) => Ok(contents.0.to_vec()),
        Err(Error::Declared(why)) => Err(why),
        Err(Error::CallFailed(why)) => panic!("{why}"),
    }
}

fn exception<T: std::fmt::Debug>(result: Result<T, FileError>) -> FileError {
    result.unwrap_err().declared().expect("an exception").clone()
}

#[test]
fn files_are_read_in_parts() {
    let scratch = Scratch::new();
    for server in scratch.servers() {
        let part = |offset, length| server.read("sub/../file", offset, length);
        assert!(part(0, 1).is_err(), "'..' is refused even where it stays inside");
        let part = |offset, length| server.read("sub//./file", offset, length).unwrap().0;
        assert_eq!(part(4, 5), &PUBLIC[4..9]);
        assert_eq!(part(4, u32::MAX), &PUBLIC[4..]);
        assert_eq!(part(0, 0), "");
        assert_eq!(part(PUBLIC.len() as u64, 9), "");
        assert_eq!(part(u64::MAX, u32::MAX), "");
    }
}

#[test]
fn a_large_file_takes_several_calls() {
    let scratch = Scratch::new();
    let content: Vec<u8> = (0..3 * MAX_READ + 5).map(|i| (i * 7) as u8).collect();
    scratch.write("served/large", &content);
    for server in scratch.servers() {
        assert_eq!(server.read("large", 0, u32::MAX).unwrap().0.len(), MAX_READ as usize);
        let parts = (0..4).map(|part| server.read("large", part * u64::from(MAX_READ), MAX_READ).unwrap().0);
        assert!(parts.flatten().eq(content.iter().copied()));
    }
}

#[test]
fn the_wrong_kind_of_file_is_named() {
    let scratch = Scratch::new();
    let fifo = scratch.0.path().join("served/pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, 0o600.into(), 0).unwrap();
    let socket = scratch.0.path().join("served/socket");
    let _listening = std::os::unix::net::UnixListener::bind(socket).unwrap();
    for server in scratch.servers() {
        assert_eq!(exception(server.read("sub", 0, 1)), FileError::NotAFile);
        assert_eq!(exception(server.read("", 0, 1)), FileError::NotAFile);
        assert_eq!(exception(server.read("pipe", 0, 1)), FileError::NotAFile, "without waiting for a writer");
        assert_eq!(exception(server.read("socket", 0, 1)), FileError::NotAFile);
        assert_eq!(exception(server.list("file", "")), FileError::NotADirectory);
        assert_eq!(exception(server.read("file/x", 0, 1)), FileError::NotADirectory);
        assert_eq!(exception(server.read("nothing", 0, 1)), FileError::NotFound);
        assert_eq!(exception(server.stat("nothing/at/all")), FileError::NotFound);
        assert_eq!(server.stat("pipe").unwrap().kind, FileKind::Special);
        assert_eq!(server.stat("file").unwrap().size, PUBLIC.len() as u64);
        assert_eq!(server.stat(".").unwrap().kind, FileKind::Directory);
    }
}

#[test]
fn no_path_leads_out() {
    let scratch = Scratch::new();
    let absolute = scratch.0.path().join("outside/file");
    let absolute = absolute.to_str().unwrap();
    scratch.link(absolute, "served/absolute");
    scratch.link("../outside/file", "served/relative");
    scratch.link("../outside", "served/directory");
    scratch.link("relative", "served/twice");
    scratch.link("loop", "served/loop");
    scratch.link("/proc/self/root", "served/magic");
    scratch.link("/proc/self/cwd", "served/cwd");
    for server in scratch.servers() {
        for path in
            [absolute, "..", "../outside/file", "sub/../../outside/file", "/", "file\0", "/proc/self/environ"]
        {
            for why in [
                exception(server.read(path, 0, 9)),
                exception(server.stat(path)),
                exception(server.list(path, "")),
            ] {
                assert!(matches!(why, FileError::BadPath(_)), "{path:?}: {why:?}");
            }
        }
        for path in
            ["absolute", "relative", "directory/file", "twice", "loop", "magic/etc/passwd", "cwd/Cargo.toml"]
        {
            assert_eq!(read(&server, path), Err(FileError::NotPermitted), "{path:?}");
            assert_eq!(exception(server.stat(path)), FileError::NotPermitted, "{path:?}");
        }
        assert_eq!(exception(server.list("directory", "")), FileError::NotPermitted);
        assert_eq!(exception(server.list("magic", "")), FileError::NotPermitted);
    }
}

#[test]
fn a_link_that_stays_inside_is_followed_or_refused_but_always_listed() {
    let scratch = Scratch::new();
    scratch.link("sub/file", "served/link");
    scratch.link("../file", "served/sub/up");
    let [kernel, walk] = scratch.servers();
    if !matches!(kernel.how, open::How::Walk) {
        assert_eq!(read(&kernel, "link").unwrap(), PUBLIC);
        assert_eq!(read(&kernel, "sub/up").unwrap(), PUBLIC, "`..` in a link may stay inside");
        assert_eq!(kernel.stat("link").unwrap().kind, FileKind::File);
    }
    assert_eq!(read(&walk, "link"), Err(FileError::NotPermitted));
    for server in [kernel, walk] {
        let page = server.list("", "").unwrap();
        let kinds: Vec<_> =
            page.entries.iter().map(|entry| (entry.name.as_str(), entry.attributes.kind)).collect();
        assert_eq!(kinds, [("file", FileKind::File), ("link", FileKind::Link), ("sub", FileKind::Directory)]);
    }
}

/// Exchanges a directory on the path with a symbolic link to the outside, and back, as fast as possible.
#[test]
fn a_race_with_links_is_not_won() {
    let scratch = Scratch::new();
    scratch.link("../outside", "served/trap");
    let trap = scratch.0.path().join("served/trap");
    let sub = scratch.0.path().join("served/sub");
    for server in scratch.servers() {
        let over = AtomicBool::new(false);
        let (mut read_ok, mut seen) = (0, Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    exchange(&trap, &sub);
                    exchange(&trap, &sub);
                }
            });
            // Runs at least this often, and until the other thread has run too.
            for round in 0..5_000_000 {
                if round >= 5_000 && read_ok > 0 {
                    break;
                }
                if let Ok(content) = read(&server, "sub/file") {
                    read_ok += 1;
                    seen.extend((content != PUBLIC).then_some(content));
                }
                let page = server.list("sub", "").unwrap_or_default();
                seen.extend(
                    page.entries
                        .iter()
                        .any(|entry| entry.attributes.size != PUBLIC.len() as u64)
                        .then(Vec::new),
                );
            }
            over.store(true, Ordering::Relaxed);
        });
        assert!(seen.is_empty() && read_ok > 0, "{read_ok} {seen:?}");
    }
}

/// Exchanges the two paths, atomically if the system can.
fn exchange(one: &Path, other: &Path) {
    #[cfg(target_os = "linux")]
    {
        let (here, exchange) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
        rustix::fs::renameat_with(here, one, here, other, exchange).unwrap();
    }
    #[cfg(not(target_os = "linux"))]
    {
        let aside = one.with_extension("aside");
        fs::rename(one, &aside).unwrap();
        fs::rename(other, one).unwrap();
        fs::rename(aside, other).unwrap();
    }
}

#[test]
fn a_large_directory_comes_in_pages() {
    let scratch = Scratch::new();
    let count = 2 * MAX_PAGE + 17;
    let mut names: Vec<String> = (0..count).map(|i| format!("{:04x}", i * 31 % 65_521)).collect();
    for name in &names {
        scratch.write(&format!("served/sub/{name}"), b"");
    }
    names.push("file".into());
    names.sort();
    for server in scratch.servers() {
        let page = server.list("sub", "").unwrap();
        assert!(page.more);
        assert_eq!(page.entries.len(), MAX_PAGE);
        let listed: Vec<String> = crate::entries(&server, "sub").map(|entry| entry.unwrap().name).collect();
        assert_eq!(listed, names);
        assert_eq!(server.list("sub", "file").unwrap(), Page::default());
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_name_that_is_not_utf8_is_counted() {
    use std::os::unix::ffi::OsStrExt;
    let scratch = Scratch::new();
    let name = std::ffi::OsStr::from_bytes(b"\xff\xfe");
    fs::write(scratch.0.path().join("served/sub").join(name), b"").unwrap();
    for server in scratch.servers() {
        let page = server.list("sub", "").unwrap();
        assert_eq!((page.entries.len(), page.unnameable), (1, 1));
    }
}

#[test]
fn the_directory_stays_the_same_when_it_is_renamed() {
    let scratch = Scratch::new();
    let [server, _] = scratch.servers();
    fs::rename(scratch.0.path().join("served"), scratch.0.path().join("elsewhere")).unwrap();
    assert_eq!(read(&server, "file").unwrap(), PUBLIC);
}

#[test]
fn times_of_any_file_system_are_told() {
    let scratch = Scratch::new();
    let file = fs::File::options().write(true).open(scratch.0.path().join("served/file")).unwrap();
    let [server, _] = scratch.servers();
    let second = Duration::from_secs(1);
    for time in
        [SystemTime::UNIX_EPOCH - second / 4, SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + 7 * second / 2]
    {
        file.set_modified(time).unwrap();
        assert_eq!(server.stat("file").unwrap().modified, time);
    }
}

#[test]
fn it_works_the_same_through_stubs() {
    let scratch = Scratch::new();
    let [server, _] = scratch.servers();
    let client = farcall::stub::local::<dyn FileAccess>(std::sync::Arc::new(server));
    assert_eq!(client.read("file", 0, 100).unwrap().0, PUBLIC);
    assert_eq!(exception(client.read("../outside/file", 0, 100)), exception(client.stat("../outside/file")));
    assert_eq!(exception(client.stat("nothing")), FileError::NotFound);
    assert_eq!(client.start().list("", "").wait().unwrap().entries.len(), 2);
}
