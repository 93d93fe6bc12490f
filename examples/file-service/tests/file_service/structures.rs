//! Tests that all structures give the same answers, with random operations of several clerks on a tree of
//! real files.
use std::fs;
use std::path::Path;
use std::sync::Arc;

use farcall::names::Memory as Registry;
use farcall::{Error, Runtime};
use farcall_file_access::{FileError, FileKind};
use farcall_file_service::mix::{Operation, Tree, plant, replay};
use farcall_file_service::{BLOCK, Clerk, Counts, Files, Handle, Server, Shape, Structure, names};
use fastrand::Rng;

/// Returns a runtime that shares no memory with others.
fn runtime() -> Runtime {
    runtime_that(false)
}

/// Returns a runtime that shares memory if `maps`, and if this machine supports that.
fn runtime_that(maps: bool) -> Runtime {
    Runtime::builder().registry(Registry::new()).shared_memory(maps).build().unwrap()
}

/// Creates files of many lengths, in directories, with links.
fn tree(at: &Path, rng: &mut Rng) {
    for directory in ["", "a", "a/b", "many"] {
        fs::create_dir_all(at.join(directory)).unwrap();
        for (n, length) in
            [0, 1, 100, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 5 * BLOCK + 77].iter().enumerate()
        {
            let bytes: Vec<u8> = (0..*length).map(|_| rng.u8(..)).collect();
            fs::write(at.join(directory).join(format!("file{n}")), bytes).unwrap();
        }
        std::os::unix::fs::symlink("file3", at.join(directory).join("link")).unwrap();
    }
    for n in 0..700 {
        fs::write(at.join(format!("many/with a longer name {n}")), b"").unwrap();
    }
}

/// The part of an answer that does not depend on the clerk.
#[derive(Debug, PartialEq)]
enum Answer {
    Bytes(Vec<u8>),
    Text(String),
    Handle(Handle, FileKind),
    Done,
    Refused,
}

fn told<T>(outcome: farcall::Result<T, FileError>, answer: impl FnOnce(T) -> Answer) -> Answer {
    match outcome {
        Ok(value) => answer(value),
        Err(Error::Declared(_)) => Answer::Refused,
        Err(Error::CallFailed(why)) => panic!("{why}"),
    }
}

#[derive(Clone, Debug)]
enum Ask {
    Attributes(Handle),
    LookUp(Handle, String),
    ReadLink(Handle),
    Read(Handle, u64, u32),
    List(Handle),
    Write(Handle, u64, Vec<u8>),
}

fn ask(files: &dyn Files, ask: &Ask) -> Answer {
    match ask {
        Ask::Attributes(file) => {
            told(files.attributes(*file), |a| Answer::Text(format!("{:?} {}", a.kind, a.size)))
        }
        Ask::LookUp(directory, name) => {
            told(files.look_up(*directory, name), |f| Answer::Handle(f.handle, f.kind))
        }
        Ask::ReadLink(link) => told(files.read_link(*link), Answer::Text),
        Ask::Read(file, offset, length) => {
            told(files.read(*file, *offset, *length), |contents| Answer::Bytes(contents.0.to_vec()))
        }
        Ask::List(directory) => told(names(files, *directory), |names| Answer::Text(names.join("/"))),
        Ask::Write(file, offset, bytes) => told(files.write(*file, *offset, bytes), |()| Answer::Done),
    }
}

/// Returns every handle below a directory, as one clerk gives them.
fn handles(files: &dyn Files) -> Vec<Handle> {
    let mut found = vec![files.root().unwrap()];
    let mut next = 0;
    while let Some(handle) = found.get(next).copied() {
        next += 1;
        for name in names(files, handle).unwrap_or_default() {
            let entry = files.look_up(handle, &name).unwrap();
            found.push(entry.handle);
        }
    }
    found
}

fn random_ask(rng: &mut Rng, handles: &[Handle]) -> Ask {
    let handle = handles[rng.usize(..handles.len().min(60))];
    let offset = match rng.u8(..4) {
        0 => 0,
        1 => rng.u64(..6) * BLOCK as u64,
        2 => rng.u64(..6 * BLOCK as u64),
        _ => u64::MAX - rng.u64(..100),
    };
    match rng.u8(..12) {
        0 | 1 => Ask::Attributes(handle),
        2 | 3 => Ask::LookUp(handle, format!("file{}", rng.u8(..9))),
        4 => Ask::LookUp(handle, ["link", "..", "", "a", "a/b", "none"][rng.usize(..6)].to_owned()),
        5 => Ask::ReadLink(handle),
        6 => Ask::List(handle),
        7 => Ask::Write(handle, offset.min(6 << 13), (0..rng.usize(..=BLOCK)).map(|_| rng.u8(..)).collect()),
        8 => Ask::Write(handle, offset.min(6 << 13), vec![rng.u8(..); rng.usize(..100)]),
        _ => Ask::Read(handle, offset, [4096, 8192, rng.u32(..=8192)][rng.usize(..3)]),
    }
}

#[test]
fn all_structures_give_the_same_answers() {
    let seed = std::env::var("SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("SEED={seed}");
    [false, true].into_iter().for_each(|maps| compare(seed, maps));
}

fn compare(seed: u64, maps: bool) {
    let mut rng = Rng::with_seed(seed);
    // Each structure has a tree of its own, with the same contents. The tables are small, so that many
    // entries are missing.
    let shape = Shape { attributes: 64, names: 32, links: 2, pages: 8, blocks: 32 };
    let mut trees = Vec::new();
    for structure in Structure::ALL {
        let scratch = tempfile::tempdir().unwrap();
        tree(scratch.path(), &mut Rng::with_seed(seed));
        let runtime = runtime_that(maps);
        let server = Server::export(&runtime, "files", scratch.path(), shape).unwrap();
        let clerks: Vec<Clerk> = (0..2)
            .map(|_| Clerk::new(&runtime_that(maps), &server.addresses(), structure).unwrap())
            .collect();
        let handles: Vec<_> = clerks.iter().map(|clerk| handles(&*clerk.files)).collect();
        assert_eq!(handles[0], handles[1]);
        trees.push((server, clerks, handles[0].clone(), scratch));
    }
    let index = |handles: &[Handle], handle| handles.iter().position(|known| *known == handle).unwrap();
    let dx = trees[0].2.clone();
    for step in 0..3000 {
        let (asked, clerk) = (random_ask(&mut rng, &dx), rng.usize(..2));
        let answers: Vec<Answer> = trees
            .iter()
            .map(|(_, clerks, handles, _)| {
                let of = |handle: &Handle| handles[index(&dx, *handle)];
                let answer = ask(&*clerks[clerk].files, &with_handle(&asked, of));
                // The numbers of files differ from tree to tree.
                match answer {
                    Answer::Handle(handle, kind) => Answer::Handle(dx[index(handles, handle)], kind),
                    other => other,
                }
            })
            .collect();
        let short = |answer: &Answer| format!("{answer:?}").chars().take(100).collect::<String>();
        for (answer, structure) in answers.iter().zip(Structure::ALL) {
            assert!(
                *answer == answers[0],
                "SEED={seed} step {step} {}: {:.100}: {} {} and not {}",
                structure.name(),
                format!("{asked:?}"),
                clerk,
                short(answer),
                short(&answers[0])
            );
        }
    }
    // At the end the files are equal.
    for (_, clerks, handles, _) in &trees {
        handles.iter().for_each(|handle| drop(clerks[0].files.commit(*handle)));
    }
    let contents = |scratch: &Path| {
        ["", "a", "a/b", "many"].map(|d| {
            (0..8).map(|n| fs::read(scratch.join(d).join(format!("file{n}"))).unwrap()).collect::<Vec<_>>()
        })
    };
    let [first, others @ ..] = [0, 1, 2, 3, 4].map(|n| contents(trees[n].3.path()));
    assert!(others.iter().all(|other| *other == first), "SEED={seed}");
}

fn with_handle(ask: &Ask, of: impl Fn(&Handle) -> Handle) -> Ask {
    match ask {
        Ask::Attributes(file) => Ask::Attributes(of(file)),
        Ask::LookUp(directory, name) => Ask::LookUp(of(directory), name.clone()),
        Ask::ReadLink(link) => Ask::ReadLink(of(link)),
        Ask::Read(file, offset, length) => Ask::Read(of(file), *offset, *length),
        Ask::List(directory) => Ask::List(of(directory)),
        Ask::Write(file, offset, bytes) => Ask::Write(of(file), *offset, bytes.clone()),
    }
}

#[test]
fn what_was_missed_once_is_read_without_the_server() {
    let scratch = tempfile::tempdir().unwrap();
    tree(scratch.path(), &mut Rng::with_seed(7));
    let runtime = runtime();
    let server = Server::export(&runtime, "files", scratch.path(), Shape::SMALL).unwrap();
    let clerk = Clerk::new(&self::runtime(), &server.addresses(), Structure::Dx).unwrap();
    let other = Clerk::new(&self::runtime(), &server.addresses(), Structure::Dx).unwrap();
    let round = |files: &dyn Files| {
        let root = files.root().unwrap();
        let file = files.look_up(root, "file6").unwrap().handle;
        let link = files.look_up(root, "link").unwrap().handle;
        files.null().unwrap();
        files.attributes(file).unwrap();
        files.read(file, 0, 8192).unwrap();
        files.read(file, 4096, 4096).unwrap();
        files.read_link(link).unwrap();
        files.read_directory(root, "").unwrap();
        files.statistics().unwrap();
    };
    round(&*clerk.files);
    let (before, letters) = (other.tally.counts(), server.letters());
    round(&*other.files);
    let spent = other.tally.counts().since(before);
    assert_eq!(spent, Counts { reads: spent.reads, bytes: spent.bytes, ..Counts::default() });
    assert!(spent.reads < 20, "{spent:?}");
    assert_eq!(server.letters(), letters);

    // One clerk reads what the other writes. The file has it after the commit.
    let root = clerk.files.root().unwrap();
    let file = clerk.files.look_up(root, "file6").unwrap().handle;
    let letters = server.letters();
    clerk.files.write(file, 100, b"here I am").unwrap();
    assert_eq!(&*other.files.read(file, 100, 9).unwrap().0, b"here I am");
    assert_eq!(server.letters(), letters, "written without a letter");
    other.files.commit(file).unwrap();
    assert_eq!(&fs::read(scratch.path().join("file6")).unwrap()[100..109], b"here I am");
    let calls = Clerk::new(&self::runtime(), &server.addresses(), Structure::Rpc).unwrap();
    let same = calls.files.look_up(root, "file6").unwrap().handle;
    calls.files.write(same, 8190, b"over the edge").unwrap();
    assert_eq!(&*other.files.read(file, 8190, 13).unwrap().0, b"over the edge");
}

#[test]
fn a_copy_is_used_until_somebody_writes() {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("file"), [b'.'; BLOCK]).unwrap();
    let runtime = runtime();
    let server = Server::export(&runtime, "files", scratch.path(), Shape::SMALL).unwrap();
    let [with, without] = [Structure::DxCopies, Structure::Dx]
        .map(|structure| Clerk::new(&self::runtime(), &server.addresses(), structure).unwrap());
    let file = [&with, &without]
        .map(|clerk| clerk.files.look_up(clerk.files.root().unwrap(), "file").unwrap().handle)[0];
    let spent = |length| {
        let before = with.tally.counts();
        let bytes = with.files.read(file, 0, length).unwrap().0;
        (bytes[0], with.tally.counts().since(before))
    };
    spent(8192); // the server keeps it
    spent(8192); // and so does the clerk
    let (byte, counts) = spent(8192);
    assert_eq!((byte, counts), (b'.', Counts { reads: 1, bytes: 16, ..Counts::default() }));
    without.files.write(file, 0, b"!").unwrap();
    without.files.commit(file).unwrap();
    let (byte, counts) = spent(4096);
    assert!(byte == b'!' && counts.bytes > BLOCK as u64, "{counts:?}");
    let (byte, counts) = spent(4096);
    assert_eq!((byte, counts), (b'!', Counts { reads: 1, bytes: 16, ..Counts::default() }));
}

#[test]
fn of_the_operation_mix_nearly_all_is_one_remote_read() {
    let scratch = tempfile::tempdir().unwrap();
    plant(scratch.path(), 1).unwrap();
    let runtime = runtime();
    let server = Server::export(&runtime, "files", scratch.path(), Shape::SMALL).unwrap();
    for structure in Structure::ALL {
        let clerk = Clerk::new(&self::runtime(), &server.addresses(), structure).unwrap();
        let tree = Tree::walk(&*clerk.files).unwrap();
        tree.touch(&*clerk.files).unwrap();
        let rows = replay(&*clerk.files, &clerk.tally, &tree, 2_000, 1).unwrap();
        assert_eq!(rows.iter().map(|row| row.times).sum::<u64>(), 2_000);
        let all = rows.iter().fold(Counts::default(), |sum, row| sum.plus(row.counts));
        match structure {
            Structure::Dx | Structure::DxCopies => {
                assert!((1_900..2_300).contains(&all.reads) && all.calls < 100, "{all:?}");
            }
            Structure::Wr => {
                // Of reads, only those of a ping and those of the lease are left.
                let [pings, changes] =
                    [&[Operation::Null][..], &[Operation::Write, Operation::Other]].map(|some| {
                        rows.iter().filter(|row| some.contains(&row.operation)).map(|row| row.times).sum()
                    });
                assert!((pings..pings + 50).contains(&all.reads), "{all:?}");
                assert_eq!((all.calls, all.writes, all.swaps), (changes, 0, 0), "{all:?}");
            }
            Structure::Hy => {
                // It reads only to learn that the server is there, when an answer is late.
                let Counts { reads, bytes, letters, .. } = all;
                assert_eq!(all, Counts { calls: 2_000, reads, bytes, letters, ..Counts::default() });
                assert!(reads < 50, "{all:?}");
            }
            Structure::Rpc => assert_eq!(all, Counts { calls: 2_000, ..Counts::default() }),
        }
    }
}

#[test]
fn a_client_talks_to_its_clerk_by_local_call() {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("file"), b"hello").unwrap();
    let runtime = runtime();
    let server = Server::export(&runtime, "files", scratch.path(), Shape::SMALL).unwrap();
    for structure in Structure::ALL {
        let clerk = Clerk::new(&self::runtime(), &server.addresses(), structure).unwrap();
        let client = farcall_file_service::client(Arc::clone(&clerk.files));
        let file = client.look_up(client.root().unwrap(), "file").unwrap().handle;
        assert_eq!(&*client.read(file, 0, 100).unwrap().0, b"hello");
        assert!(matches!(client.look_up(file, "x"), Err(Error::Declared(FileError::NotADirectory))));
    }
}
