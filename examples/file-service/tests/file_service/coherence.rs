//! Tests that several clerks that write and read at the same time see no torn block, and do not wait for
//! ever.
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farcall::Runtime;
use farcall::names::Memory as Registry;
use farcall_file_service::{BLOCK, Clerk, Files, Handle, Server, Shape, Structure};

/// Whether memory is mapped. Without mapping, packets carry the accesses.
const CARRIERS: [bool; 2] = [false, true];

fn runtime(mapped: bool) -> Runtime {
    Runtime::builder().registry(Registry::new()).shared_memory(mapped).build().unwrap()
}

fn serve(path: &Path, mapped: bool) -> (Runtime, Server) {
    let runtime = runtime(mapped);
    let server = Server::export(&runtime, "files", path, Shape::SMALL).unwrap();
    (runtime, server)
}

fn clerk(server: &Server, structure: Structure, mapped: bool) -> Clerk {
    Clerk::new(&runtime(mapped), &server.addresses(), structure).unwrap()
}

fn file(files: &dyn Files) -> Handle {
    files.look_up(files.root().unwrap(), "file").unwrap().handle
}

#[test]
fn a_block_is_read_as_it_was_written_whole() {
    CARRIERS.into_iter().for_each(hammer_a_block);
}

fn hammer_a_block(mapped: bool) {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("file"), vec![0; 2 * BLOCK]).unwrap();
    let (_runtime, server) = serve(scratch.path(), mapped);
    let ended = AtomicBool::new(false);
    let hammer = |structure, first: u8| {
        let clerk = clerk(&server, structure, mapped);
        let file = file(&*clerk.files);
        move || {
            for n in 0..150 {
                clerk.files.write(file, 0, &[first + n % 50; BLOCK]).unwrap();
            }
        }
    };
    // Two clerks read memory. The letters of the third are answered by the server, which writes the same
    // block.
    let writers = [hammer(Structure::Dx, 0), hammer(Structure::Dx, 60), hammer(Structure::Hy, 120)];
    let readers = [Structure::Dx, Structure::DxCopies].map(|structure| clerk(&server, structure, mapped));
    let reader = &readers[0];
    let block = file(&*reader.files);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut seen = 0;
            while !ended.load(Ordering::SeqCst) {
                for (offset, length) in [(0, 8192), (1024, 4096)] {
                    for reader in &readers {
                        let bytes = reader.files.read(file(&*reader.files), offset, length).unwrap().0;
                        assert_eq!(bytes.len(), length as usize);
                        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "torn");
                        seen += 1;
                    }
                }
            }
            seen
        });
        let writing = writers.map(|writer| scope.spawn(writer));
        writing.into_iter().for_each(|writer| writer.join().unwrap());
        ended.store(true, Ordering::SeqCst);
        assert!(reading.join().unwrap() > 0);
    });
    reader.files.commit(block).unwrap();
    let in_file = fs::read(scratch.path().join("file")).unwrap();
    assert_eq!(in_file[..BLOCK], reader.files.read(block, 0, 8192).unwrap().0[..]);
    assert!(in_file[..BLOCK].iter().all(|byte| *byte == in_file[0]));
}

#[test]
fn what_is_written_is_seen_by_every_structure_after_commit() {
    CARRIERS.into_iter().for_each(write_and_commit);
}

fn write_and_commit(mapped: bool) {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("file"), vec![b'.'; BLOCK]).unwrap();
    let (_runtime, server) = serve(scratch.path(), mapped);
    let clerks = Structure::ALL.map(|structure| clerk(&server, structure, mapped));
    let file = clerks[..].iter().map(|clerk| file(&*clerk.files)).collect::<Vec<_>>();
    for round in 0..20_u8 {
        for (writer, handle) in clerks.iter().zip(&file) {
            let (at, byte) = (u64::from(round) * 97, b'A' + round);
            writer.files.write(*handle, at, &[byte; 500]).unwrap();
            writer.files.commit(*handle).unwrap();
            for (reader, handle) in clerks.iter().zip(&file) {
                assert_eq!(&*reader.files.read(*handle, at, 500).unwrap().0, &[byte; 500]);
            }
        }
    }
}

#[test]
fn a_file_that_may_not_be_written_says_so() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("file");
    fs::write(&path, vec![b'.'; BLOCK]).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    if fs::OpenOptions::new().write(true).open(&path).is_ok() {
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "skipped: this user may write every file");
        return;
    }
    let (_runtime, server) = serve(scratch.path(), false);
    for structure in Structure::ALL {
        let clerk = clerk(&server, structure, false);
        let file = file(&*clerk.files);
        clerk.files.read(file, 0, 8192).unwrap();
        assert!(clerk.files.write(file, 0, b"no").is_err());
        assert_eq!(&*clerk.files.read(file, 0, 2).unwrap().0, b"..");
    }
}

#[test]
fn a_server_that_is_gone_is_not_waited_for() {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("file"), vec![b'.'; BLOCK]).unwrap();
    let (runtime, server) = serve(scratch.path(), false);
    let impatient =
        Runtime::builder().registry(Registry::new()).shared_memory(false).patience(Duration::from_secs(1));
    let clerks_runtime = impatient.build().unwrap();
    let clerks =
        Structure::ALL.map(|structure| Clerk::new(&clerks_runtime, &server.addresses(), structure).unwrap());
    drop((server, runtime));
    std::thread::scope(|scope| {
        for clerk in &clerks {
            scope.spawn(|| {
                let why = clerk.files.statistics().unwrap_err();
                assert!(why.call_failed().is_some(), "{why}");
            });
        }
    });
}
