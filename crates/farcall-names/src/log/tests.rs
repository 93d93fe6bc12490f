//! Tests of the registry file's content: it reads back, wherever it is cut, and whichever bytes are spoilt.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::format::MAX_FILE;
use crate::format::tests::any_entry;

const BOOT: u64 = 0x8f;

fn label(text: &str) -> Label {
    text.parse().unwrap()
}

fn entry(instance: &str) -> Entry {
    let address = "udp://127.0.0.1:7000".parse().unwrap();
    let mut entry = Entry::new(label("A"), label(instance), address, 0xff);
    entry.owner = Owner { pid: 4711, started: 99, boot: BOOT, namespace: 5 };
    entry
}

/// Applies what is to be written to the bytes of a file.
fn write(file: &mut Vec<u8>, log: &mut Log) {
    match log.writing(BOOT, MAX_FILE) {
        Writing::Append(text) => file.extend_from_slice(text.as_bytes()),
        Writing::Replace(text) => *file = text.into_bytes(),
    }
}

fn parsed(file: &[u8]) -> Log {
    Log::parse(file, BOOT).unwrap()
}

/// Returns a file of two entries, and four changes behind them, each written alone.
fn written() -> (Vec<u8>, Log) {
    let (mut file, mut log) = (Vec::new(), Log::default());
    log.begin(57);
    log.put(entry("a"));
    let b = log.put(entry("b"));
    write(&mut file, &mut log);
    let mut renewed = entry("b");
    renewed.proof = vec![1, 2, 3];
    assert!(log.renew(&renewed, b) && !log.renew(&renewed, b + 1));
    write(&mut file, &mut log);
    log.put(entry("c"));
    write(&mut file, &mut log);
    assert!(log.remove(&label("A"), &label("a")) && !log.remove(&label("A"), &label("a")));
    write(&mut file, &mut log);
    assert!(!log.remove_revision(&label("A"), &label("b"), b + 1));
    assert!(log.remove_revision(&label("A"), &label("b"), b));
    write(&mut file, &mut log);
    (file, log)
}

#[test]
fn entries_and_changes_read_back() {
    let (file, log) = written();
    let read = parsed(&file);
    assert_eq!(read, log);
    assert_eq!((read.table().version(), read.table().len()), (63, 1));
    assert_eq!(read.live_bytes(), line_bytes(read.table().held().next().unwrap()));
    let text = String::from_utf8(file).unwrap();
    assert!(text.starts_with("farcall-names 2 59 2 000000000000008f "), "{text}");
    assert_eq!(text.lines().count(), 7);
}

#[test]
fn the_documented_check_is_the_one_that_is_written() {
    // FNV-1a with 64 bits over the 16 digits before and the line.
    let by_hand = b"000000000000002a-A/b".iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    assert_eq!(check_of("-A/b", 42), by_hand);
}

/// A writer can be killed after any byte, and a reader can come at any time.
#[test]
fn a_file_that_was_cut_anywhere_has_the_changes_before() {
    let (file, _) = written();
    let mut known: Option<Log> = None;
    let snapshot = file.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(2).unwrap().0 + 1;
    for length in 0..=file.len() {
        let cut = &file[..length];
        let Ok(read) = Log::parse(cut, BOOT) else {
            assert!(length < snapshot, "{length} bytes were not read");
            continue;
        };
        assert!(length >= snapshot, "{length} bytes were read, and entries are missing");
        let changes = cut.iter().filter(|byte| **byte == b'\n').count() - 3;
        assert_eq!(read.table().version(), 59 + changes as u64);
        assert_eq!(read.is_appendable, cut.ends_with(b"\n"));
        // A reader that knows what was there before continues, also if it has seen a part of a line.
        if let Some(mut log) = known.take() {
            let from = log.continues_at().unwrap();
            assert!(log.read_on(&cut[from..], BOOT));
            assert_eq!(log, read);
        }
        known = Some(read);
    }
}

#[test]
fn what_was_cut_is_replaced_by_the_next_writer() {
    let (file, _) = written();
    let mut cut = file[..file.len() - 3].to_vec();
    let mut log = parsed(&cut);
    log.put(entry("d"));
    write(&mut cut, &mut log);
    assert_eq!(parsed(&cut), log);
    assert_eq!(cut.iter().filter(|byte| **byte == b'\n').count(), 1 + log.table().len());
}

/// A part of a line stays behind the last one while the disk is full, and until the next change when a writer
/// was killed.
#[test]
fn a_part_of_a_line_does_not_have_the_whole_file_read_for_each_question() {
    let (mut file, mut log) = (Vec::new(), Log::default());
    for which in 0..1_000 {
        log.put(entry(&format!("i{which}")));
    }
    write(&mut file, &mut log);
    file.extend_from_slice(b"A/part udp://127");
    let mut known = parsed(&file);
    let from = known.continues_at().expect("a place from which to continue");
    let (continued, steps) = farcall_base::work::counted(|| known.read_on(&file[from..], BOOT));
    assert!(continued && steps < 10, "{steps} steps");
    assert_eq!(known.table().len(), 1_000);
    assert!(matches!(known.writing(BOOT, MAX_FILE), Writing::Replace(_)), "nothing is added to a part");
}

#[test]
fn another_file_in_its_place_is_noticed() {
    let (mut file, mut log) = written();
    let from = log.continues_at().unwrap();
    let mut other = log.clone();
    other.put(entry("x"));
    let Writing::Replace(replaced) = other.writing(BOOT, 0) else { panic!("it was appended") };
    assert!(!log.clone().read_on(replaced.as_bytes().get(from..).unwrap_or_default(), BOOT));
    assert!(!log.clone().read_on(b"", BOOT));
    // A line that does not follow the last one that was read is not believed.
    let former = file.clone();
    log.put(entry("x"));
    write(&mut file, &mut log);
    let mut spoilt = file[from..].to_vec();
    let last = former.len() - 2 - from;
    spoilt[last] = if spoilt[last] == b'0' { b'1' } else { b'0' };
    assert!(!parsed(&former).read_on(&spoilt, BOOT));
}

#[test]
fn a_spoilt_line_is_named_and_after_a_crash_of_the_machine_it_is_the_end() {
    let (file, _) = written();
    let text = String::from_utf8(file).unwrap();
    let spoilt = text.replacen("A/c ", "A/x ", 1);
    let Err(Fault::Line(line, why)) = Log::parse(spoilt.as_bytes(), BOOT) else { panic!("it was read") };
    assert_eq!(line, 5);
    assert!(why.contains("does not follow the line before"), "{why}");
    let read = Log::parse(spoilt.as_bytes(), BOOT + 1).unwrap();
    assert_eq!((read.table().version(), read.is_appendable), (60, false));
    // The system has written a later block and not this one.
    let at = text.find("A/c ").unwrap();
    let mut zeroed = text.clone().into_bytes();
    zeroed[at..at + 40].fill(0);
    assert_eq!(Log::parse(&zeroed, BOOT + 1).unwrap().table(), read.table());
    assert!(Log::parse(&zeroed, BOOT).is_err());
}

#[test]
fn a_fault_says_which_line_and_what() {
    let sealed = |lines: &[&str]| {
        let mut text = "farcall-names 2 57 0 000000000000008f 000000000000002a\n".to_owned();
        let mut check = 42;
        for line in lines {
            let mut line = (*line).to_owned();
            check = seal(&mut line, check);
            text += &line;
        }
        text
    };
    let good = format::line(&Held { entry: entry("b"), revision: 58 });
    assert!(Log::parse(sealed(&[&good, "-A/b"]).as_bytes(), BOOT).is_ok());
    let cases = [
        ("farcall-names 2\n".to_owned(), 1, "a registry begins with"),
        ("farcall-names 2 1 0 00 00\n".to_owned(), 1, "a registry begins with"),
        ("farcall-names 2 1 0 0000000000000000 0000000000000000".to_owned(), 1, "a registry begins with"),
        (format!("farcall-names 2 {} 0 {:016x} {:016x}\n", u64::MAX, 0, 0), 1, "greater than"),
        (sealed(&[]).replacen(" 0 ", " 1 ", 1), 2, "truncated: 1 more entries"),
        (sealed(&["-A/b"]).replacen(" 0 ", " 1 ", 1), 2, "an entry is expected here"),
        (sealed(&[&good, &good]).replacen(" 0 ", " 2 ", 1), 3, "an earlier line has the same name"),
        (sealed(&["-A/b"]), 2, "no entry \"A/b\" to remove"),
        (sealed(&["-A"]), 2, "TYPE/INSTANCE"),
        (sealed(&[""]), 2, "TYPE/INSTANCE"),
        (sealed(&[&format!("{good} colour=red")]), 2, "unknown field"),
        (sealed(&[]) + "A/b\n", 2, "\"check\" is missing"),
        ("farcall-names 3 1\n".to_owned(), 0, "3"),
    ];
    for (text, line, what) in cases {
        let (at, why) = match Log::parse(text.as_bytes(), BOOT) {
            Err(Fault::Line(at, why)) => (at, why),
            Err(Fault::Version(found)) => (0, found),
            Ok(_) => panic!("{text:?} was read"),
        };
        assert!(at == line && why.contains(what), "{text:?}: line {at}: {why}");
    }
}

#[test]
fn a_file_of_format_1_is_read_and_replaced() {
    let old = "farcall-names 1 57\nA/b udp://127.0.0.1:7000 export=00000000000000ff \
               owner=4711,99,00000000000000aa,5 revision=57\nend 1\n";
    let mut log = parsed(old.as_bytes());
    assert_eq!((log.table().version(), log.table().len(), log.continues_at()), (57, 1, None));
    log.put(entry("c"));
    let mut file = old.as_bytes().to_vec();
    write(&mut file, &mut log);
    assert!(file.starts_with(b"farcall-names 2 58 2 "));
    assert_eq!(parsed(&file), log);
}

/// Each replacement is paid for by the lines before it.
#[test]
fn many_changes_write_a_few_times_their_own_bytes() {
    let (mut file, mut log) = (Vec::new(), Log::default());
    let (mut written, mut of_changes, mut replaced) = (0, 0, 0);
    let mut step = |log: &mut Log| {
        of_changes += log.pending.len();
        let before = file.len();
        match log.writing(BOOT, MAX_FILE) {
            Writing::Append(text) => {
                written += text.len();
                file.extend_from_slice(text.as_bytes());
            }
            Writing::Replace(text) => {
                (written, replaced) = (written + text.len(), replaced + 1);
                file = text.into_bytes();
            }
        }
        assert!(file.len() <= (4 * log.live_bytes()).max(MIN_REWRITTEN_BYTES), "{before}");
    };
    let mut revisions = Vec::new();
    for n in 0..5_000 {
        revisions.push(log.put(entry(&format!("n{n}"))));
        step(&mut log);
    }
    for round in 1..6_u8 {
        for (n, revision) in revisions.iter().enumerate() {
            let mut signed = entry(&format!("n{n}"));
            signed.proof = vec![round; 32];
            assert!(log.renew(&signed, *revision));
            step(&mut log);
        }
    }
    for n in 0..5_000 {
        assert!(log.remove(&label("A"), &label(&format!("n{n}"))));
        step(&mut log);
    }
    println!("{of_changes} bytes of changes, {written} written, {replaced} replacements");
    assert!(written <= 3 * of_changes && replaced < 30, "{written} of {of_changes}, {replaced}");
    assert_eq!(parsed(&file), log);
}

#[test]
fn what_people_add_outlasts_a_crash_of_the_machine() {
    let (mut file, mut log) = written();
    assert!(!log.is_durable() && !log.is_changed());
    log.put(entry("d"));
    assert!(!log.is_durable() && log.is_changed());
    let mut by_hand = entry("hand");
    by_hand.owner = Owner::NONE;
    log.put(by_hand);
    assert!(log.is_durable());
    write(&mut file, &mut log);
    assert!(!log.is_durable() && !log.is_changed());
    log.remove(&label("A"), &label("hand"));
    assert!(log.is_durable());
}

fn any_log() -> impl Strategy<Value = (Vec<u8>, Log)> {
    let steps = vec((any_entry(), 0..4_u8, any::<bool>()), 0..8);
    (1..MAX_VERSION / 2, steps).prop_map(|(version, steps)| {
        let (mut file, mut log) = (Vec::new(), Log::default());
        log.begin(version);
        for (entry, what, writes) in steps {
            let first = log.table().held().next().cloned();
            match (what, first) {
                (0, Some(held)) => drop(log.remove(&held.entry.type_name, &held.entry.instance)),
                (1, Some(held)) => drop(log.renew(&held.entry, held.revision)),
                (2, Some(held)) => drop(log.put(held.entry)),
                _ => drop(log.put(entry)),
            }
            if writes {
                write(&mut file, &mut log);
            }
        }
        write(&mut file, &mut log);
        (file, log)
    })
}

proptest! {
    #[test]
    fn any_content_reads_back((file, log) in any_log()) {
        prop_assert_eq!(parsed(&file), log);
    }

    #[test]
    fn any_bytes_are_a_content_or_a_fault(bytes in vec(any::<u8>(), 0..400), boot in 0..2_u64) {
        let _ = Log::parse(&bytes, boot);
        let _ = Log::parse(&[b"farcall-names 2 1 0 0000000000000001 0000000000000000\n", &bytes[..]].concat(), boot);
    }

    #[test]
    fn a_spoilt_file_is_a_content_or_a_fault(
        (file, _) in any_log(),
        spoil in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = file;
        for (at, byte) in spoil {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        for boot in [BOOT, BOOT + 1] {
            if let Ok(mut log) = Log::parse(&bytes, boot) {
                let Writing::Replace(again) = log.writing(boot, 0) else { panic!("it was appended") };
                let read = Log::parse(again.as_bytes(), boot);
                prop_assert_eq!(read.as_ref().map(Log::table), Ok(log.table()));
            }
        }
    }
}
