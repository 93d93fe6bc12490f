//! Rights and notices of a segment that its exporter changes while importers access it, served and mapped.
//!
//! `FARCALL_WITHDRAWALS=200 cargo test --release -p farcall --test memory changed_terms -- --nocapture` makes
//! the whole number of runs in which rights are withdrawn.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use farcall::memory::{Condition, Importers, Memory, Notice, Notify, Refused, Remote, Result, Rights};
use farcall::memory::{Segment, Settings};
use farcall::names::Memory as Names;
use farcall::{Error, Kind, Ran, Runtime};

const SIZE: usize = 16 << 10;
/// What is in each word while nobody has the right to read it.
const SECRET: u64 = 0x5ec7_e75e_c7e7_5ec7;

fn runtime(shares: bool) -> Runtime {
    Runtime::builder().registry(Names::new()).shared_memory(shares).build().unwrap()
}

/// Returns an import by calls over the network, and one by calls through memory or by mapping.
fn import_twice(segment: &Segment) -> [Remote; 2] {
    [false, true].map(|shares| runtime(shares).import_segment(&segment.url()).unwrap())
}

fn refused<T: std::fmt::Debug>(outcome: Result<T>) -> Refused {
    match outcome {
        Err(Error::Declared(refused)) => refused,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_granted_works_and_what_is_withdrawn_is_refused() {
    let exporter = runtime(true);
    for granted in [Importers::Anyone, Importers::SameUser] {
        let segment = exporter.export_segment("Given", Settings::new(SIZE)).unwrap();
        let [stranger, local] = import_twice(&segment);
        assert_eq!((stranger.rights(), local.rights()), (Rights::NONE, Rights::NONE));
        segment.grant(granted, Rights::READ).unwrap();
        segment.grant(granted, Rights::WRITE | Rights::CAS).unwrap();
        // The importers still know the rights that they had.
        assert_eq!(refused(local.load(0)), Refused::NotPermitted);
        let [stranger, local] = import_twice(&segment);
        assert_eq!(local.rights(), Rights::ALL);
        local.store(0, 7).unwrap();
        let is_stranger_allowed = granted == Importers::Anyone;
        assert_eq!(stranger.load(0).is_ok(), is_stranger_allowed);

        segment.withdraw(granted);
        for remote in [&stranger, &local] {
            assert_eq!(refused(remote.load(0)), Refused::NotPermitted);
            assert_eq!(refused(remote.start_read(0, 8).wait()), Refused::NotPermitted);
            assert_eq!(refused(remote.read(0, &mut [0; SIZE])), Refused::NotPermitted);
            assert_eq!(refused(remote.store(0, 8)), Refused::NotPermitted);
            assert_eq!(refused(remote.compare_and_swap(0, 7, 8)), Refused::NotPermitted);
        }
        assert_eq!(segment.load(0).unwrap(), 7);
        // The generation is the same, so an importer that has the rights again can use them.
        segment.grant(granted, Rights::READ).unwrap();
        assert_eq!(local.load(0).unwrap(), 7);
        assert_eq!(refused(local.store(0, 8)), Refused::NotPermitted);
    }
}

#[test]
fn posts_end_when_the_right_is_withdrawn() {
    let segment = runtime(true).export_segment("Posted", Settings::new(64).anyone(Rights::ALL)).unwrap();
    let [remote, _] = import_twice(&segment);
    remote.post(0, &1_u64.to_le_bytes()).unwrap();
    remote.flush().unwrap();
    segment.withdraw(Importers::Anyone);
    remote.post(0, &2_u64.to_le_bytes()).unwrap();
    assert_eq!(refused(remote.flush()), Refused::NotPermitted);
    assert_eq!(segment.load(0).unwrap(), 1);
}

/// Reads in different ways until the run is over, and counts the reads that succeed. No read may succeed and
/// contain the secret.
fn read_until(over: &AtomicBool, remote: &Remote, reads: &AtomicU64) {
    let mut bytes = vec![0; SIZE];
    for way in 0.. {
        if over.load(Ordering::Relaxed) {
            return;
        }
        bytes.fill(0);
        let (mut first, mut last) = ([0; 8], [0; 8]);
        let outcome = match way % 5 {
            0 => remote.read(8, &mut bytes[..8]),
            1 => remote.read(0, &mut bytes),
            2 => remote.read_bytes(16, &mut bytes[..4096]),
            3 => remote.start_read(8, 64).wait().map(|read| bytes[..64].copy_from_slice(&read)),
            _ => remote.read_each(&mut [(0, &mut first), (SIZE as u64 - 8, &mut last)]),
        };
        match outcome {
            Ok(()) => {
                let secret = SECRET.to_le_bytes();
                let seen = bytes.as_chunks().0.iter().chain([&first, &last]).filter(|word| **word == secret);
                assert_eq!(seen.count(), 0, "a read by way {} has what came after the withdrawal", way % 5);
                reads.fetch_add(1, Ordering::Relaxed);
            }
            Err(Error::Declared(why)) => assert_eq!(why, Refused::NotPermitted),
            Err(why) => panic!("{why:?}"),
        }
    }
}

fn fill(segment: &Segment, word: u64) {
    segment.write(0, &word.to_le_bytes().repeat(SIZE / 8)).unwrap();
}

#[test]
fn no_read_under_former_rights_has_what_was_written_after_they_were_withdrawn() {
    let runs = env::var("FARCALL_WITHDRAWALS").map_or(5, |runs| runs.parse().unwrap());
    let (exporter, reads) = (runtime(true), [AtomicU64::new(0), AtomicU64::new(0)]);
    for run in 0..runs {
        let who = [Importers::Anyone, Importers::SameUser][run % 2];
        let settings = Settings::new(SIZE).mappable(Rights::READ);
        let segment = exporter.export_segment("Secret", settings).unwrap();
        segment.grant(Importers::Anyone, Rights::READ).unwrap();
        segment.grant(who, Rights::READ).unwrap();
        let (remotes, over) = (import_twice(&segment), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for (remote, reads) in remotes.iter().zip(&reads) {
                scope.spawn(|| read_until(&over, remote, reads));
                scope.spawn(|| read_until(&over, remote, reads));
            }
            let count = || reads.each_ref().map(|reads| reads.load(Ordering::Relaxed));
            for _ in 0..10 {
                // The readers are at work again.
                let before = count();
                while count().iter().zip(before).any(|(now, before)| *now == before) {
                    std::thread::yield_now();
                }
                segment.withdraw(Importers::SameUser);
                segment.withdraw(Importers::Anyone);
                fill(&segment, SECRET);
                fill(&segment, 0);
                // A read that was under way all the time must not take these rights for those that it had.
                segment.grant(Importers::Anyone, Rights::READ).unwrap();
                segment.grant(who, Rights::READ).unwrap();
            }
            segment.withdraw(Importers::SameUser);
            segment.withdraw(Importers::Anyone);
            fill(&segment, SECRET);
            over.store(true, Ordering::Relaxed);
        });
    }
    let [served, mapped] = reads.map(AtomicU64::into_inner);
    println!("{runs} runs, {served} reads served, {mapped} mapped and served after the first withdrawal");
}

#[test]
fn no_write_under_former_rights_is_done_after_they_were_withdrawn() {
    let exporter = runtime(true);
    for round in 0..100 {
        let segment = exporter.export_segment("Written", Settings::new(64).anyone(Rights::ALL)).unwrap();
        let remotes = import_twice(&segment);
        let writers = (0..).zip(remotes).map(|(which, remote)| {
            std::thread::spawn(move || {
                let write = |number| match round % 2 {
                    0 => remote.store(which * 8, number),
                    _ => remote.compare_and_swap(which * 8, number - 1, number).map(drop),
                };
                (1..).find_map(|number| write(number).err()).unwrap()
            })
        });
        let writers: Vec<_> = writers.collect();
        while segment.load(0).unwrap() == 0 || segment.load(8).unwrap() == 0 {
            std::thread::yield_now();
        }
        segment.withdraw(Importers::Anyone);
        let written = [0, 8].map(|offset| segment.load(offset).unwrap());
        for (writer, carrier) in writers.into_iter().zip(["served", "mapped"]) {
            match writer.join().unwrap() {
                Error::Declared(Refused::NotPermitted) => {}
                // The write was under way by mapping, and may have been the last one that was done.
                Error::CallFailed(why) if carrier == "mapped" && why.ran() == Ran::Maybe => {}
                why => panic!("{carrier}: {why:?}"),
            }
        }
        assert_eq!([0, 8].map(|offset| segment.load(offset).unwrap()), written, "round {round}");
    }
}

#[test]
fn rights_are_withdrawn_while_64_reads_are_under_way() {
    let exporter = runtime(true);
    for round in 0..20 {
        let segment = exporter.export_segment("Many", Settings::new(SIZE).anyone(Rights::READ)).unwrap();
        let [remote, _] = import_twice(&segment);
        let reads: Vec<_> =
            (0..64).map(|n| remote.start_read(n * 8, [8, 300, 4000][n as usize % 3])).collect();
        // Some of them are executed already.
        let first = (round % 2 == 1).then(|| remote.load(0).unwrap());
        segment.withdraw(Importers::Anyone);
        fill(&segment, SECRET);
        let (mut done, mut refusals) = (0, 0);
        for read in reads {
            match read.wait() {
                Ok(bytes) => {
                    assert!(bytes.iter().all(|byte| *byte == 0), "round {round}");
                    done += 1;
                }
                why => {
                    assert_eq!(refused(why), Refused::NotPermitted);
                    refusals += 1;
                }
            }
        }
        assert_eq!((done + refusals, first.unwrap_or(0)), (64, 0));
    }
}

#[test]
fn a_segment_is_mapped_again_when_it_was_exported_again_if_the_rights_allow_it() {
    let exporter = runtime(true);
    let settings = Settings::new(64).mappable(Rights::ALL);
    let segment = exporter.export_segment("Mapped", settings).unwrap();
    let accesses = || exporter.stats().exports.iter().map(|export| export.accesses).sum::<u64>();
    let is_mapped = |remote: &Remote| {
        let before = accesses();
        remote.load(0).unwrap();
        accesses() == before
    };
    let import = || runtime(true).import_segment(&segment.url()).unwrap();
    // Who may only read does not map what others may write.
    segment.grant(Importers::SameUser, Rights::READ).unwrap();
    assert!(!is_mapped(&import()));
    segment.grant(Importers::SameUser, Rights::ALL).unwrap();
    let remote = import();
    assert!(is_mapped(&remote));
    segment.withdraw(Importers::SameUser);
    segment.grant(Importers::SameUser, Rights::ALL).unwrap();
    assert!(!is_mapped(&remote) && !is_mapped(&import()));
    segment.export_again();
    assert!(is_mapped(&import()));
    // Rights that others have too are not lost, so nothing is taken away.
    segment.grant(Importers::Anyone, Rights::ALL).unwrap();
    let remote = import();
    segment.withdraw(Importers::SameUser);
    assert!(is_mapped(&remote));
    // Nobody's writes are inhibited here but those of this user.
    segment.inhibit_writes_of(Importers::SameUser, true).unwrap();
    assert!(!is_mapped(&remote));
    let [stranger, local] = import_twice(&segment);
    assert_eq!(refused(local.store(0, 1)), Refused::Inhibited);
    stranger.store(0, 1).unwrap();
    segment.export_again();
    assert!(!is_mapped(&import()));
    segment.inhibit_writes_of(Importers::SameUser, false).unwrap();
    segment.export_again();
    assert!(is_mapped(&import()));
}

#[test]
fn nothing_is_granted_to_nobody() {
    let segment = runtime(true).export_segment("Nobody", Settings::new(64)).unwrap();
    for granted in [
        segment.grant(Importers::Principal("alice"), Rights::READ),
        segment.inhibit_writes_of(Importers::Principal("alice"), true),
    ] {
        let why = granted.unwrap_err();
        assert_eq!(why.call_failed().map(|why| why.kind()), Some(Kind::Local));
        assert!(why.to_string().contains("has no keys"), "{why}");
    }
    segment.withdraw(Importers::Principal("alice"));
    segment.grant(Importers::Anyone, Rights::NONE).unwrap();
    let [stranger, local] = import_twice(&segment);
    assert_eq!((stranger.rights(), local.rights()), (Rights::NONE, Rights::NONE));
}

#[test]
fn the_clerks_table_has_the_rights_that_anyone_has_now() {
    use farcall::memory::clerk::{self, Clerk};
    let exporter = runtime(false);
    let clerk = Clerk::start(&exporter, clerk::Settings::default()).unwrap();
    let segment = exporter.export_segment("Listed", Settings::new(64).anyone(Rights::READ)).unwrap();
    let rights = || clerk.look_up("Listed", None).unwrap().rights();
    assert_eq!(rights(), Rights::READ);
    segment.grant(Importers::Anyone, Rights::WRITE).unwrap();
    assert_eq!(rights(), Rights::READ | Rights::WRITE);
    segment.withdraw(Importers::Anyone);
    assert_eq!(rights(), Rights::NONE);
}

/// Takes all notices that wait: the offset of each, and how many writes and reads it covers.
fn take(segment: &Segment) -> Vec<(u64, u64, u64)> {
    let facts = |notice: Notice| (notice.offset, notice.writes, notice.reads);
    std::iter::from_fn(|| segment.try_notice()).map(facts).collect()
}

#[test]
fn notices_follow_the_rule_that_is_set() {
    let segment = runtime(false).export_segment("Heard", Settings::new(64).anyone(Rights::ALL)).unwrap();
    let remote = runtime(false).import_segment(&segment.url()).unwrap();
    // Accesses of all kinds, one with a wish for notice.
    let access = || {
        remote.load(0).unwrap();
        remote.read_each(&mut [(8, &mut [0; 8]), (16, &mut [0; 8])]).unwrap();
        remote.store(24, 5).unwrap();
        assert_eq!(remote.compare_and_swap(32, segment.load(32).unwrap(), 1).unwrap_or(9) & !1, 0);
        remote.compare_and_swap(40, 7, 8).unwrap();
        remote.post_notify(48, &[1; 8]).unwrap();
        remote.flush().unwrap();
        assert!(remote.read(60, &mut [0; 8]).is_err(), "of what is refused there is no notice");
        take(&segment)
    };
    assert_eq!(access(), []);
    segment.set_notify(Notify::Asked).unwrap();
    assert_eq!(access(), [(48, 1, 0)]);
    segment.set_notify(Notify::Always).unwrap();
    let all = [(0, 0, 1), (8, 0, 1), (16, 0, 1), (24, 1, 0), (32, 1, 0), (40, 0, 1), (48, 1, 0)];
    assert_eq!(access(), all);
    assert_eq!(remote.start_read(8, 8).wait().unwrap().len(), 8);
    assert_eq!(take(&segment), [(8, 0, 1)]);
    segment.set_notify(Notify::When(Condition::Touched { offset: 15, len: 2 })).unwrap();
    assert_eq!(access(), [(8, 0, 1), (16, 0, 1), (48, 1, 0)]);
    segment.set_notify(Notify::When(Condition::Written { offset: 15, len: 18 })).unwrap();
    assert_eq!(access(), [(24, 1, 0), (32, 1, 0), (48, 1, 0)]);
    segment.set_notify(Notify::Never).unwrap();
    assert_eq!(access(), []);

    assert_eq!(
        segment.set_notify(Notify::When(Condition::Reaches { offset: 4, value: 1 })),
        Err(Refused::NotAWord.into())
    );
    let outside = Notify::When(Condition::Written { offset: 60, len: 8 });
    assert_eq!(segment.set_notify(outside), Err(Refused::OutOfRange(64).into()));
    let why = runtime(false).export_segment("Outside", Settings::new(64).notify(outside)).unwrap_err();
    assert!(why.to_string().contains("64 bytes"), "{why}");
    assert_eq!(access(), []);
}

#[test]
fn the_exporter_is_notified_when_a_word_reaches_a_value() {
    let notify = Notify::When(Condition::Reaches { offset: 16, value: 100 });
    let settings = Settings::new(64).anyone(Rights::ALL).notify(notify);
    let segment = runtime(true).export_segment("Counted", settings).unwrap();
    // Writes of this user are served, because nothing checks the condition of what is mapped.
    let remotes = import_twice(&segment);
    std::thread::scope(|scope| {
        for remote in &remotes {
            scope.spawn(|| {
                for _ in 0..50 {
                    while {
                        let word = remote.load(16).unwrap();
                        remote.compare_and_swap(16, word, word + 1).unwrap() != word
                    } {}
                    remote.store(24, 1_000).unwrap();
                }
            });
        }
    });
    assert_eq!(take(&segment), [(16, 1, 0)]);
    // A part of the word makes it greater.
    remotes[0].write(20, &[1]).unwrap();
    remotes[0].write(12, &[0; 12]).unwrap();
    assert_eq!(take(&segment), [(20, 1, 0)]);
    remotes[0].write_each(&[(8, &[0; 8]), (16, &100_u64.to_le_bytes()), (16, &[0; 8])], false).unwrap();
    assert_eq!(take(&segment), [(16, 1, 0)], "each range is a write");
}

#[test]
fn who_has_mapped_the_memory_is_parted_if_the_exporter_must_be_notified() {
    let exporter = runtime(true);
    let segment = exporter.export_segment("Parted", Settings::new(64).same_user(Rights::ALL)).unwrap();
    let import = || runtime(true).import_segment(&segment.url()).unwrap();
    let accesses = || exporter.stats().exports.iter().map(|export| export.accesses).sum::<u64>();
    let is_mapped = |remote: &Remote| {
        let before = accesses();
        remote.load(0).unwrap();
        accesses() == before
    };
    let remote = import();
    remote.write_notify(0, b"unheard").unwrap();
    assert!(is_mapped(&remote));
    // The importer was not told to ask.
    segment.set_notify(Notify::Asked).unwrap();
    remote.write_notify(8, b"heard").unwrap();
    assert_eq!(take(&segment), [(8, 1, 0)]);
    segment.export_again();
    let remote = import();
    remote.write_notify(8, b"heard").unwrap();
    assert!(is_mapped(&remote) && take(&segment) == [(8, 1, 0)]);
    // Now it was told.
    segment.set_notify(Notify::Never).unwrap();
    segment.set_notify(Notify::Asked).unwrap();
    remote.write_notify(8, b"heard").unwrap();
    assert_eq!(take(&segment), [(8, 1, 0)]);
    for notify in [Notify::Always, Notify::When(Condition::Written { offset: 0, len: 8 })] {
        segment.set_notify(Notify::Asked).unwrap();
        segment.export_again();
        let remote = import();
        assert!(is_mapped(&remote));
        segment.set_notify(notify).unwrap();
        remote.store(0, 7).unwrap();
        assert_eq!(take(&segment), [(0, 1, 0)]);
        segment.export_again();
        let remote = import();
        remote.store(0, 7).unwrap();
        assert_eq!(take(&segment), [(0, 1, 0)], "it is not mapped again");
    }
}

#[test]
fn reads_that_nobody_takes_notice_of_are_merged() {
    let settings = Settings::new(64).anyone(Rights::READ).notify(Notify::Always);
    let segment = Arc::new(runtime(false).export_segment("Read", settings).unwrap());
    let remote = runtime(false).import_segment(&segment.url()).unwrap();
    (0..1_000).for_each(|n| assert_eq!(remote.load(n % 8 * 8), Ok(0)));
    let notices = take(&segment);
    assert!(notices.len() <= 64, "{}", notices.len());
    assert_eq!(notices.iter().map(|notice| notice.2).sum::<u64>(), 1_000);
}
