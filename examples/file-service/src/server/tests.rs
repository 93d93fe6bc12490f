//! Tests clerks that die, or are slow, while they hold a token.

use std::fs;
use std::time::SystemTime;

use farcall::memory::{Memory, Refused};
use farcall::names::Memory as Registry;
use farcall::{Error, Runtime};

use super::*;
use crate::areas::{of_block, of_file};
use crate::table::{Hints, Look, Token};
use crate::{BLOCK, Clerk, Structure};

fn runtime(maps: bool) -> Runtime {
    Runtime::builder().registry(Registry::new()).shared_memory(maps).build().unwrap()
}

struct Scene {
    /// Whether clerks map the memory, if this machine supports that.
    maps: bool,
    server: Server,
    clerk: Clerk,
    file: Handle,
    scratch: tempfile::TempDir,
    _runtime: Runtime,
}

/// Returns two scenes: in one, clerks map the server's memory; in the other, they access it by calls.
fn scenes() -> [Scene; 2] {
    [false, true].map(Scene::new)
}

impl Scene {
    /// Returns a scene with a file of one block, which the server keeps.
    fn new(maps: bool) -> Scene {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join("file"), [b'.'; BLOCK]).unwrap();
        let runtime = runtime(maps);
        let server = Server::export(&runtime, "files", scratch.path(), Shape::SMALL).unwrap();
        let clerk = Clerk::new(&self::runtime(maps), &server.addresses(), Structure::Dx).unwrap();
        let file = clerk.files.look_up(clerk.files.root().unwrap(), "file").unwrap().handle;
        clerk.files.read(file, 0, 1).unwrap();
        Scene { maps, server, clerk, file, scratch, _runtime: runtime }
    }

    /// Imports the memory as another clerk, and takes the block's token. Returns the import and the token.
    fn taken(&self) -> (impl Memory + use<>, Token) {
        let memory = runtime(self.maps).import_segment(&self.server.addresses().memory).unwrap();
        let blocks = &self.server.core.areas.blocks;
        let Look::Found(entry) = blocks.look(&memory, of_block(self.file, 0), 0..0, Hints::NONE).unwrap()
        else {
            panic!("the block is kept");
        };
        let token = blocks.acquire(&memory, entry.place, entry.version, true).unwrap().unwrap();
        (memory, token)
    }

    fn bytes(&self) -> Vec<u8> {
        self.clerk.files.read(self.file, 0, 8192).unwrap().0.to_vec()
    }
}

#[test]
fn a_clerk_that_dies_while_it_writes_holds_up_no_reader() {
    for scene in scenes() {
        let (memory, token) = scene.taken();
        scene.server.core.areas.blocks.change(&memory, &token, 0, &[b'x'; 4000]).unwrap();
        assert_eq!(scene.bytes(), [b'.'; BLOCK], "as the file has it");
        assert_eq!(scene.bytes(), [b'.'; BLOCK]);
    }
}

#[test]
fn a_clerk_that_dies_while_it_writes_holds_up_no_writer() {
    for scene in scenes() {
        let (memory, token) = scene.taken();
        scene.server.core.areas.blocks.change(&memory, &token, 0, &[b'x'; 4000]).unwrap();
        scene.clerk.files.write(scene.file, 8000, b"alive").unwrap();
        let mut expected = [b'.'; BLOCK];
        expected[8000..8005].copy_from_slice(b"alive");
        assert_eq!(scene.bytes(), expected);
        assert_eq!(fs::read(scene.scratch.path().join("file")).unwrap(), expected);
    }
}

#[test]
fn a_clerk_that_only_lags_cannot_go_on_with_what_was_taken_from_it() {
    for scene in scenes() {
        let (memory, token) = scene.taken();
        scene.clerk.files.write(scene.file, 0, b"first").unwrap();
        let late = scene.server.core.areas.blocks.change(&memory, &token, 0, b"later");
        assert_eq!(late.and_then(|()| memory.flush()), Err(Error::Declared(Refused::Stale)));
        let late = scene.server.core.areas.blocks.release(&memory, token, true);
        assert_eq!(late.and_then(|()| memory.flush()), Err(Error::Declared(Refused::Stale)));
        assert_eq!(scene.bytes()[..5], *b"first");
    }
}

#[test]
fn what_a_clerk_has_written_whole_is_not_lost_with_it() {
    for scene in scenes() {
        let (memory, token) = scene.taken();
        scene.server.core.areas.blocks.change(&memory, &token, 0, b"testament").unwrap();
        // The token is released without notice. The server finds the written block itself before it writes
        // there.
        scene.server.core.areas.blocks.release(&memory, token, false).unwrap();
        memory.flush().unwrap();
        scene.clerk.files.write(scene.file, 4, b"AMENDED").unwrap();
        assert_eq!(scene.bytes()[..11], *b"testAMENDED");
        assert_eq!(fs::read(scene.scratch.path().join("file")).unwrap()[..11], *b"testAMENDED");
    }
}

#[test]
fn what_the_system_refuses_is_told_to_who_commits() {
    for scene in scenes() {
        let path = scene.scratch.path().join("file");
        fs::rename(&path, scene.scratch.path().join("elsewhere")).unwrap();
        fs::write(&path, b"another").unwrap();
        let (memory, token) = scene.taken();
        scene.server.core.areas.blocks.change(&memory, &token, 0, b"nowhere to go").unwrap();
        scene.server.core.areas.blocks.release(&memory, token, false).unwrap();
        memory.flush().unwrap();
        scene.server.core.settle_all();
        let handle = scene.file;
        assert!(scene.server.core.lock().failed.contains_key(&handle));
        assert_eq!(fs::read(&path).unwrap(), b"another");
    }
}

#[test]
fn a_letter_that_is_no_request_is_answered_so() {
    for scene in scenes() {
        let memory = runtime(scene.maps).import_segment(&scene.server.addresses().memory).unwrap();
        let mut rng = fastrand::Rng::with_seed(11);
        for number in 1..200 {
            let letter: Vec<u8> = (0..rng.usize(..100)).map(|_| rng.u8(..4)).collect();
            crate::areas::mailbox(0).post(&memory, (1 << 32) + 1_000 + number, &letter).unwrap();
        }
        // The server does not stop because of invalid bytes in its tables either.
        for _ in 0..200 {
            let offset = rng.u64(memory.size() / 2..memory.size() - 64);
            memory.write(offset / 8 * 8, &[rng.u8(..); 64]).unwrap();
        }
        memory.flush().unwrap();
        assert_eq!(scene.bytes().len(), BLOCK);
    }
}

/// While the server changes something, no clerk into whose memory it pushes entries uses what was before.
#[test]
fn during_a_change_every_clerks_entry_is_held() {
    for scene in scenes() {
        let clerk = Clerk::new(&runtime(scene.maps), &scene.server.addresses(), Structure::Wr).unwrap();
        let file = clerk.files.look_up(clerk.files.root().unwrap(), "file").unwrap().handle;
        clerk.files.attributes(file).unwrap();
        let core = &scene.server.core;
        let mut state = core.lock();
        let (clerks_memory, layout) = (state.pushing[0].answers.clone(), core.layout);

        let attributes = &core.areas.attributes;
        let place = attributes.place(&core.segment, of_file(file)).unwrap().unwrap();
        let versions = || layout.areas.attributes.versions(&clerks_memory, place).unwrap();
        let before = versions();
        assert_eq!(before, attributes.versions(&core.segment, place).unwrap());
        let token = core.take_attributes(&mut state, file).unwrap().unwrap();
        assert!(versions().0 == before.0 && versions().1 > before.1, "{:?}", versions());
        core.fill_attributes(&mut state, token, "file", file).unwrap();
        assert_eq!(versions(), attributes.versions(&core.segment, place).unwrap());

        let (blocks, key) = (&core.areas.blocks, of_block(file, 0));
        let place = blocks.place(&core.segment, key).unwrap().unwrap();
        let versions = || {
            let word = |offset| clerks_memory.load(layout.token(place) + offset).unwrap();
            (word(0), word(8))
        };
        let before = versions();
        assert_eq!(before, blocks.versions(&core.segment, place).unwrap());
        let token = core.take_block(&mut state, key).unwrap().unwrap();
        assert!(versions().0 == before.0 && versions().1 > before.1, "{:?}", versions());
        core.fill_block(&mut state, token, "file", key).unwrap();
        assert_eq!(versions(), blocks.versions(&core.segment, place).unwrap());
    }
}

/// Sets the time of a directory's last change. The system's own clock for such times can stand still for
/// milliseconds.
fn changed(directory: &Path, seconds: u64) {
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    fs::File::open(directory).unwrap().set_modified(at).unwrap();
}

#[test]
fn what_others_change_is_seen_after_a_refresh() {
    for scene in scenes() {
        let (path, files) = (scene.scratch.path(), &scene.clerk.files);
        let root = files.root().unwrap();
        files.attributes(scene.file).unwrap();
        assert_eq!(files.read_directory(root, "").unwrap().names, ["file"]);

        fs::write(path.join("file"), b"shorter").unwrap();
        fs::write(path.join("more"), b"").unwrap();
        changed(path, 1);
        scene.server.refresh();
        assert_eq!(scene.bytes(), b"shorter");
        assert_eq!(files.attributes(scene.file).unwrap().size, 7);
        assert_eq!(files.read_directory(root, "").unwrap().names, ["file", "more"]);

        fs::remove_file(path.join("file")).unwrap();
        changed(path, 2);
        scene.server.refresh();
        assert!(files.look_up(root, "file").is_err());
        assert!(files.read(scene.file, 0, 1).is_err());
        let letters = scene.server.letters();
        scene.server.refresh();
        assert_eq!(files.read_directory(root, "").unwrap().names, ["more"]);
        assert_eq!(scene.server.letters(), letters + 1, "what did not change is kept");
    }
}

#[test]
fn another_server_of_the_same_name_is_not_taken_for_the_first() {
    let scene = Scene::new(false);
    scene.server.core.segment.store(IDENTITY, 1).unwrap();
    scene.server.core.segment.export_again();
    let clerks = || scene.server.core.admitted.load(Ordering::SeqCst);
    let before = clerks();
    scene.clerk.files.null().unwrap();
    assert_eq!(clerks(), before + 1, "the clerk has attached anew");
}
