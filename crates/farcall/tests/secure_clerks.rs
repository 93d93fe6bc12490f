//! Segments by name among programs that have keys, other keys or none: whose clerk is believed, and that a
//! clerk which is not believed is in nobody's way.

use std::sync::Arc;
use std::time::Duration;

use farcall::env::Env as _;
use farcall::key_files::{Identity, Keyring, Revoked, Rights as GrantRights, Terms};
use farcall::memory::clerk::{self, Clerk};
use farcall::memory::{Memory, Rights, Segment, Settings};
use farcall::names::{Entry, Label, Registration, Registry};
use farcall::{Keys, Kind, Runtime, System, names};

const AUTHORITY: u8 = 1;
const EXPORTER: u8 = 2;
const IMPORTER: u8 = 3;
const MALLORY: u8 = 4;
const CLERK: u8 = 5;

fn identity(byte: u8) -> Identity {
    Identity::from_entropy([byte; 32])
}

/// Returns the keys of an end that trusts the authority.
fn keyring(who: u8) -> Keyring {
    Keyring::new(identity(who)).with_authority(identity(AUTHORITY).public())
}

/// Adds a grant of the authority.
fn granted(keyring: Keyring, who: u8, rights: GrantRights, scope: &str) -> Keyring {
    let terms = Terms {
        key: identity(who).public(),
        principal: format!("end-{who}").parse().unwrap(),
        rights,
        scope: scope.parse().unwrap(),
        serial: who.into(),
        expires: System.unix_seconds() + 86_400,
    };
    keyring.with_grant(identity(AUTHORITY).grant(terms).unwrap()).unwrap()
}

/// Returns the keys of an end that may export segments of this name and no others, not even those of clerks.
fn exporting(who: u8) -> Keyring {
    granted(keyring(who), who, GrantRights::EXPORT, "Memory/Load*")
}

fn importing(who: u8) -> Keyring {
    granted(keyring(who), who, GrantRights::IMPORT, "Memory/Load*")
}

/// A machine: programs that share a registry.
struct Machine(Arc<dyn Registry>, #[allow(dead_code)] tempfile::TempDir);

impl Machine {
    fn new() -> Machine {
        let scratch = tempfile::tempdir().unwrap();
        Machine(Arc::new(names::File::at(scratch.path().join("registry"))), scratch)
    }

    /// Returns another program of the machine, with these keys.
    fn program(&self, keyring: Option<Keyring>) -> Runtime {
        let builder = Runtime::builder().registry(self.0.clone()).patience(Duration::from_secs(2));
        match keyring {
            Some(keyring) => builder.keys(Keys::new(keyring)),
            None => builder,
        }
        .build()
        .unwrap()
    }
}

fn export(program: &Runtime, name: &str, word: u64) -> Segment {
    let segment = program.export_segment(name, Settings::new(64).anyone(Rights::READ));
    let segment = segment.unwrap_or_else(|why| panic!("{name}: {why}"));
    segment.store(0, word).unwrap();
    segment
}

fn read(program: &Runtime, name: &str) -> u64 {
    program.import_segment(name).unwrap_or_else(|why| panic!("{name}: {why}")).load(0).unwrap()
}

fn kind<T>(outcome: farcall::Result<T>) -> Kind {
    outcome.map(drop).unwrap_err().call_failed().unwrap().kind()
}

/// Imports a name that nobody exports: the program needs a clerk, and starts one if it finds none.
fn becomes_the_clerk(program: &Runtime) {
    assert_eq!(kind(program.import_segment("Nothing")), Kind::NoSuchName);
}

#[test]
fn whoever_has_imported_a_name_first_keeps_no_exporter_with_keys_out() {
    for first in [None, Some(importing(IMPORTER)), Some(importing(MALLORY))] {
        let machine = Machine::new();
        let first = machine.program(first);
        becomes_the_clerk(&first);
        let segment = export(&machine.program(Some(exporting(EXPORTER))), "Load", 7);
        assert_eq!(read(&machine.program(Some(importing(IMPORTER))), "Load"), 7);
        drop(segment);
        assert_eq!(kind(machine.program(Some(importing(IMPORTER))).import_segment("Load")), Kind::NoSuchName);
    }
}

#[test]
fn importers_with_the_same_keys_import_beside_one_another() {
    let machine = Machine::new();
    let _segment = export(&machine.program(Some(exporting(EXPORTER))), "Load", 7);
    let importers: Vec<Runtime> = (0..3).map(|_| machine.program(Some(importing(IMPORTER)))).collect();
    for importer in importers.iter().chain(&importers) {
        assert_eq!(read(importer, "Load"), 7);
    }
}

#[test]
fn one_program_without_keys_blocks_nobody_and_is_blocked_by_nobody() {
    for open_first in [true, false] {
        let machine = Machine::new();
        let open = machine.program(None);
        let keyed = machine.program(Some(exporting(EXPORTER)));
        let segments = match open_first {
            true => (export(&open, "Open", 5), export(&keyed, "Load", 7)),
            false => {
                let keyed = export(&keyed, "Load", 7);
                (export(&open, "Open", 5), keyed)
            }
        };
        assert_eq!(read(&machine.program(None), "Open"), 5);
        assert_eq!(read(&machine.program(Some(importing(IMPORTER))), "Load"), 7);
        // Keys are asked of an exporter that has keys, and of one from which an importer with keys imports.
        assert!(machine.program(None).import_segment("Load").is_err());
        assert!(machine.program(Some(importing(IMPORTER))).import_segment("Open").is_err());
        drop(segments);
    }
}

/// Exporter and importer have one directory of keys, in which no line is about clerks.
#[test]
fn programs_with_the_same_keys_export_and_import_without_a_line_about_clerks() {
    let machine = Machine::new();
    let own = || {
        let key = identity(EXPORTER).public();
        Keyring::new(identity(EXPORTER))
            .with_known_server(format!("Memory/Load* {key}").parse().unwrap())
            .with_authorized_key(format!("{key} me type=Memory instance=Load*").parse().unwrap())
            .unwrap()
    };
    let segments: Vec<_> =
        (0..3).map(|n| export(&machine.program(Some(own())), &format!("Load{n}"), n)).collect();
    for n in 0..3 {
        assert_eq!(read(&machine.program(Some(own())), &format!("Load{n}")), n);
    }
    drop(segments);
}

/// A clerk of a user, which the authority lets export all segments, and lets import them.
#[test]
fn a_clerk_that_the_authority_names_is_used_and_may_die() {
    let machine = Machine::new();
    let clerk_keys = || granted(keyring(CLERK), CLERK, GrantRights::BOTH, "Memory");
    let believing = |who, rights| granted(keyring(who), who, rights, "Memory");
    let of_clerk = machine.program(Some(clerk_keys()));
    let clerk = Clerk::start(&of_clerk, clerk::Settings::default()).unwrap();
    let exporter = machine.program(Some(believing(EXPORTER, GrantRights::BOTH)));
    let importer = machine.program(Some(believing(IMPORTER, GrantRights::BOTH)));
    assert_eq!(Clerk::of_machine(&importer).unwrap(), Some(clerk.address()));
    let first = export(&exporter, "Load", 7);
    assert_eq!(Some(clerk.look_up("Load", None).unwrap().generation()), first.generation());
    assert_eq!(read(&importer, "Load"), 7);
    drop((clerk, of_clerk));
    assert_eq!(read(&importer, "Load"), 7);
    let _second = export(&exporter, "Load2", 8);
    assert_eq!(read(&importer, "Load2"), 8);
    // An importer that does not believe in this clerk is not kept out by the next one.
    let of_clerk = machine.program(Some(clerk_keys()));
    let _clerk = Clerk::start(&of_clerk, clerk::Settings::default()).unwrap();
    assert_eq!(read(&machine.program(Some(importing(MALLORY))), "Load"), 7);
    assert_eq!(read(&machine.program(Some(believing(MALLORY, GrantRights::BOTH))), "Load2"), 8);
}

fn label(text: &str) -> Label {
    text.parse().unwrap()
}

/// Takes the names of the machine's clerks, also those of identities, in the registry: a program of the same
/// user can do that. Nobody answers at the address.
fn take_the_clerks_names(machine: &Machine, who: &[u8]) -> (Vec<Registration>, std::net::UdpSocket) {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let mut names = vec!["clerk.127.0.0.1".to_owned()];
    names.extend(who.iter().map(|who| {
        let key = identity(*who).public();
        let id: String = key.as_bytes()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("clerk-{id}.127.0.0.1")
    }));
    let registrations = names.iter().map(|name| {
        let mut entry = Entry::new(label("Memory"), label(name), address.into(), 9);
        entry.proof = vec![1; 200];
        machine.0.publish(&entry).unwrap()
    });
    (registrations.collect(), silent)
}

#[test]
fn a_hostile_program_that_has_every_name_of_a_clerk_gains_nothing() {
    let machine = Machine::new();
    let _taken = take_the_clerks_names(&machine, &[EXPORTER, IMPORTER]);
    let exporter = machine.program(Some(exporting(EXPORTER)));
    let segment = export(&exporter, "Load", 7);
    let importer = machine.program(Some(importing(IMPORTER)));
    assert_eq!(read(&importer, "Load"), 7);
    segment.revoke();
    assert!(importer.import_segment("Load").is_err());
    segment.export_again();
    segment.store(0, 8).unwrap();
    assert_eq!(read(&importer, "Load"), 8);
    // Programs without keys do not call a clerk that has keys, either.
    let open = machine.program(None);
    let _open = export(&open, "Open", 5);
    assert_eq!(read(&machine.program(None), "Open"), 5);
}

#[test]
fn a_clerk_whose_key_is_revoked_is_passed_over() {
    let machine = Machine::new();
    let clerk_keys = granted(keyring(CLERK), CLERK, GrantRights::BOTH, "Memory");
    let of_clerk = machine.program(Some(clerk_keys));
    let _clerk = Clerk::start(&of_clerk, clerk::Settings::default()).unwrap();
    let _segment = export(&machine.program(Some(exporting(EXPORTER))), "Load", 7);
    let keys = Keys::new(granted(keyring(IMPORTER), IMPORTER, GrantRights::BOTH, "Memory"));
    let importer = Runtime::builder().registry(machine.0.clone()).patience(Duration::from_secs(2));
    let importer = importer.keys(keys.clone()).build().unwrap();
    assert_eq!(read(&importer, "Load"), 7);
    let revoked = Revoked::new([identity(CLERK).public()], []).unwrap();
    let list = identity(AUTHORITY).revoke(1, System.unix_seconds(), 3_600, revoked);
    let revoking = keyring(IMPORTER).with_revocations(list).unwrap();
    keys.replace(granted(revoking, IMPORTER, GrantRights::BOTH, "Memory"));
    assert_eq!(Clerk::of_machine(&importer).unwrap(), None);
    assert_eq!(read(&importer, "Load"), 7);
}

/// Returns how many requests other programs have made to a program's clerk.
fn requests(program: &Runtime) -> u64 {
    let exports = program.stats().exports;
    let of_clerk = exports.iter().filter(|export| export.name == "Memory/clerk-names");
    of_clerk.flat_map(|export| &export.procedures).map(|procedure| procedure.results).sum()
}

/// No grant and no line says anything about clerks.
#[test]
fn programs_with_the_same_key_share_one_clerk_without_a_grant_for_it() {
    for (who, rights) in [(EXPORTER, GrantRights::EXPORT), (IMPORTER, GrantRights::IMPORT)] {
        let machine = Machine::new();
        let keys = || granted(keyring(who), who, rights, "Memory/Load");
        let first = machine.program(Some(keys()));
        let clerk = Clerk::start(&first, clerk::Settings::default()).unwrap();
        let second = machine.program(Some(keys()));
        assert_eq!(Clerk::of_machine(&second).unwrap(), Some(clerk.address()));
        let exporter = match who {
            EXPORTER => second.clone(),
            _ => machine.program(Some(exporting(EXPORTER))),
        };
        let _segment = export(&exporter, "Load", 7);
        if who == IMPORTER {
            assert_eq!(read(&second, "Load"), 7);
        }
        assert!(requests(&first) > 0, "{who}: the second program has not asked the clerk");
        assert_eq!(kind(second.import_segment("Nothing")), Kind::NoSuchName);
        // It is a clerk to nobody else.
        let stranger = machine.program(Some(granted(keyring(MALLORY), MALLORY, rights, "Memory/Other")));
        assert_ne!(Clerk::of_machine(&stranger).unwrap(), Some(clerk.address()));
    }
}

#[test]
fn the_own_key_is_believed_for_clerks_and_for_nothing_else() {
    let machine = Machine::new();
    let keys = || granted(keyring(EXPORTER), EXPORTER, GrantRights::EXPORT, "Memory/Load");
    let exporter = machine.program(Some(keys()));
    let clerk = Clerk::start(&exporter, clerk::Settings::default()).unwrap();
    let segment = export(&exporter, "Load", 7);
    // The same key without the right to import: the facts of the segment are all that it gets.
    let other = machine.program(Some(keys()));
    let imported = other.import_segment(&segment.url()).unwrap();
    let refused = imported.load(0).unwrap_err();
    assert_eq!(refused.call_failed().map(|why| why.kind()), Some(Kind::NotPermitted), "{refused}");
    // And a revoked key is nobody's own.
    let revoked = Revoked::new([identity(EXPORTER).public()], []).unwrap();
    let list = identity(AUTHORITY).revoke(1, System.unix_seconds(), 3_600, revoked);
    let revoking = keyring(EXPORTER).with_revocations(list).unwrap();
    let revoked = machine.program(Some(revoking));
    assert_eq!(Clerk::of_machine(&other).unwrap(), Some(clerk.address()));
    let before = requests(&exporter);
    assert_eq!(kind(revoked.import_segment("Load")), Kind::NoSuchName);
    assert_eq!(requests(&exporter), before);
}

/// A grant names the segment, without the address of a machine behind it.
#[test]
fn a_grant_for_one_segment_is_enough_to_export_and_import_it_by_its_name() {
    let machine = Machine::new();
    let exporter = granted(keyring(EXPORTER), EXPORTER, GrantRights::EXPORT, "Memory/Load");
    let _segment = export(&machine.program(Some(exporter)), "Load", 7);
    let importer = || granted(keyring(IMPORTER), IMPORTER, GrantRights::IMPORT, "Memory/Load");
    assert_eq!(read(&machine.program(Some(importer())), "Load"), 7);
    // A line of known_servers, too.
    let listed = Keyring::new(identity(IMPORTER));
    let line = format!("Memory/Load {}", identity(EXPORTER).public()).parse().unwrap();
    let listed = granted_by_authority(listed.with_known_server(line), "Memory/Load");
    assert_eq!(read(&machine.program(Some(listed)), "Load"), 7);
}

/// Adds the importer's grant, for which it need not believe the authority itself.
fn granted_by_authority(keyring: Keyring, scope: &str) -> Keyring {
    granted(keyring, IMPORTER, GrantRights::IMPORT, scope)
}

#[test]
fn who_finds_no_segment_is_told_which_clerks_and_exporters_were_passed_over_and_why() {
    let machine = Machine::new();
    let of_clerk = machine.program(Some(exporting(EXPORTER)));
    let clerk = Clerk::start(&of_clerk, clerk::Settings::default()).unwrap();
    let segment = export(&of_clerk, "Load", 7);
    let (clerk, url) = (clerk.address().to_string(), segment.url());
    let exporter = url.trim_start_matches("udp://").split('/').next().unwrap();
    let failed = |program: &Runtime| program.import_segment("Load").map(drop).unwrap_err().to_string();
    let stranger = failed(&machine.program(Some(Keyring::new(identity(MALLORY)))));
    let key = identity(EXPORTER).public().to_string();
    for part in ["the clerk clerk-", &clerk, "the exporter at", exporter, "it is not believed", &key] {
        assert!(stranger.contains(part), "no {part:?} in: {stranger}");
    }
    let open = failed(&machine.program(None));
    for part in ["the clerk clerk-", &clerk, "the exporter at", "it has keys and this program has none"] {
        assert!(open.contains(part), "no {part:?} in: {open}");
    }
}
