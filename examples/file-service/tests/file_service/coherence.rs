//! Tests that several clerks that write and read at the same time see no torn block, and do not wait for
//! ever.
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
    // Two clerks read memory. The letters of the others are answered by the server, which writes the same
    // block.
    let writers = [
        hammer(Structure::Dx, 0),
        hammer(Structure::Dx, 60),
        hammer(Structure::Hy, 120),
        hammer(Structure::Wr, 180),
    ];
    let readers = [Structure::Dx, Structure::DxCopies, Structure::Wr]
        .map(|structure| clerk(&server, structure, mapped));
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

/// Returns the number that a writer has put into the whole block, and the number that the file's size tells.
fn read_number(files: &dyn Files, file: Handle) -> (u64, u64) {
    let block = files.read(file, 0, BLOCK as u32).unwrap().0;
    let numbers: Vec<u64> = block.as_chunks().0.iter().map(|number| u64::from_le_bytes(*number)).collect();
    assert!(numbers.iter().all(|number| *number == numbers[0]), "torn");
    (numbers[0], files.attributes(file).unwrap().size - BLOCK as u64)
}

/// Clerks into which the server pushes are never behind: a read that begins when a write has ended, or when
/// any reader has seen a write, sees that write or a later one. Meanwhile clerks end, and others attach.
#[test]
fn what_a_server_has_pushed_is_never_old() {
    CARRIERS.into_iter().for_each(count_while_clerks_die);
}

fn count_while_clerks_die(mapped: bool) {
    const WRITES: u64 = 100;
    const MORTALS: usize = 8;
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("file"), vec![0; BLOCK]).unwrap();
    let (_runtime, server) = serve(scratch.path(), mapped);
    let pushed = || clerk(&server, Structure::Wr, mapped);
    let ended = AtomicBool::new(false);
    // The greatest numbers that were written, or seen by any reader.
    let (block_known, size_known) = (AtomicU64::new(0), AtomicU64::new(0));
    let read_on = || {
        let clerk = pushed();
        let (file, mut reads) = (file(&*clerk.files), 0_u64);
        while !ended.load(Ordering::SeqCst) {
            let (least_block, least_size) =
                (block_known.load(Ordering::SeqCst), size_known.load(Ordering::SeqCst));
            let (block, size) = read_number(&*clerk.files, file);
            assert!(
                block >= least_block && size >= least_size,
                "{block} {size} after {least_block} {least_size}"
            );
            block_known.fetch_max(block, Ordering::SeqCst);
            size_known.fetch_max(size, Ordering::SeqCst);
            reads += 1;
        }
        reads
    };
    let come_and_go = || {
        for _ in 0..MORTALS {
            let clerk = pushed();
            read_number(&*clerk.files, file(&*clerk.files));
        }
    };
    std::thread::scope(|scope| {
        let readers = [scope.spawn(read_on), scope.spawn(read_on)];
        let mortal = scope.spawn(come_and_go);
        let _ending = SetAtEnd(&ended);
        let writer = pushed();
        let file = file(&*writer.files);
        for number in 1..=WRITES {
            // The size tells the number too, in a second write.
            writer.files.write(file, BLOCK as u64 + number - 1, &[1]).unwrap();
            size_known.fetch_max(number, Ordering::SeqCst);
            writer.files.write(file, 0, &number.to_le_bytes().repeat(BLOCK / 8)).unwrap();
            block_known.fetch_max(number, Ordering::SeqCst);
        }
        mortal.join().unwrap();
        ended.store(true, Ordering::SeqCst);
        readers.into_iter().for_each(|reader| assert!(reader.join().unwrap() > 0));
    });
}

/// Ends the readers, also when the writer fails.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
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
