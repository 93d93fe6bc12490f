//! Rights that are withdrawn while other processes read: none of them sees what is written afterwards.
//!
//! The test program runs itself again as the readers. No test waits for time to pass.
//! `FARCALL_WITHDRAWALS=200 cargo test --release -p farcall --test processes withdrawn_rights -- --nocapture`
//! makes the whole number of runs.

use std::env;

use farcall::memory::{Importers, Memory, Refused, Remote, Rights, Segment, Settings};
use farcall::{Error, Runtime};

use crate::common;
use crate::other::{Other, ROLE, URL};

const SIZE: usize = 16 << 10;
/// What is in each word while nobody has the right to read it.
const SECRET: u64 = 0x5ec7_e75e_c7e7_5ec7;
/// Every other reader is served over the network. The others map the memory.
const READERS: u64 = 4;
/// Where readers are told that the run is over. Before it there is a word for each, which counts its reads.
const OVER: u64 = READERS * 8;

fn runtime(shares: bool) -> Runtime {
    common::builder().shared_memory(shares).build().unwrap()
}

#[test]
fn a_process_that_a_test_starts() {
    let (Ok(number), Ok(urls)) = (env::var(ROLE), env::var(URL)) else { return };
    let (number, (secret, counts)) = (number.parse::<u64>().unwrap(), urls.split_once(' ').unwrap());
    let runtime = runtime(number % 2 == 1);
    let [remote, counts] = [secret, counts].map(|url| runtime.import_segment(url).unwrap());
    println!("reads {}", read_until_over(&remote, &counts, number));
}

/// Reads the whole segment again and again. Returns how many reads succeeded.
fn read_until_over(remote: &Remote, counts: &Remote, number: u64) -> u64 {
    let (mut bytes, mut reads) = (vec![0; SIZE], 0);
    while counts.load(OVER).unwrap() == 0 {
        match remote.read(0, &mut bytes) {
            Ok(()) => {
                let secret = SECRET.to_le_bytes();
                assert!(
                    bytes.as_chunks().0.iter().all(|word| *word != secret),
                    "what came after the withdrawal"
                );
                reads += 1;
                counts.store(number * 8, reads).unwrap();
            }
            Err(why) => assert_eq!(why, Error::Declared(Refused::NotPermitted)),
        }
    }
    reads
}

fn fill(segment: &Segment, word: u64) {
    segment.write(0, &word.to_le_bytes().repeat(SIZE / 8)).unwrap();
}

fn withdraw(segment: &Segment) {
    segment.withdraw(Importers::SameUser);
    segment.withdraw(Importers::Anyone);
    fill(segment, SECRET);
}

#[test]
fn no_process_reads_what_was_written_after_its_right_was_withdrawn() {
    let runs = env::var("FARCALL_WITHDRAWALS").map_or(2, |runs| runs.parse().unwrap());
    let (exporter, mut reads) = (runtime(true), [0; READERS as usize]);
    for _ in 0..runs {
        let secret = exporter.export_segment("Secret", Settings::new(SIZE).mappable(Rights::READ)).unwrap();
        let counts = exporter.export_segment("Counts", Settings::new(64).anyone(Rights::ALL)).unwrap();
        secret.grant(Importers::Anyone, Rights::READ).unwrap();
        let urls = format!("{} {}", secret.url(), counts.url());
        let mut readers: Vec<_> =
            (0..READERS).map(|number| Other::start(module_path!(), &number.to_string(), &urls)).collect();
        for withdrawal in 0..10 {
            let count = || [0, 1, 2, 3].map(|number| counts.load(number * 8).unwrap());
            // All readers are at work again.
            let before = count();
            while count().iter().zip(before).any(|(now, before)| *now == before) {
                assert!(readers.iter_mut().all(Other::runs), "a reader ended in withdrawal {withdrawal}");
                std::thread::yield_now();
            }
            withdraw(&secret);
            fill(&secret, 0);
            secret.grant(Importers::Anyone, Rights::READ).unwrap();
        }
        withdraw(&secret);
        counts.store(OVER, 1).unwrap();
        for (reader, reads) in readers.into_iter().zip(&mut reads) {
            let mut reader = reader;
            *reads += reader.hear("reads ").parse::<u64>().unwrap();
            assert!(reader.end().success());
        }
    }
    let [served, mapped] = [reads[0] + reads[2], reads[1] + reads[3]];
    println!("{runs} runs, {served} reads served, {mapped} mapped, and served after the first withdrawal");
}
