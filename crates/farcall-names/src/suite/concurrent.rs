//! The rules for a registry that several threads use at once.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;

use super::subject::{Subject, broken, entry, expect, require};
use crate::{Entry, Error, Registration};

/// Each checks some rules of an empty registry.
pub(super) const RULES: &[fn(&Subject<'_>)] = &[several_names, one_name];

const THREADS: usize = 4;
const ROUNDS: usize = 10;

/// Threads publish and withdraw names of their own, while another one reads.
fn several_names(subject: &Subject<'_>) {
    let finished = AtomicBool::new(false);
    let kept: Vec<Registration> = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !finished.load(Ordering::Relaxed) {
                check_listing(subject);
            }
        });
        let writers: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || publish_some(subject, thread))).collect();
        let results: Vec<_> = writers.into_iter().map(ScopedJoinHandle::join).collect();
        finished.store(true, Ordering::Relaxed);
        reader.join().unwrap_or_else(|panicked| resume_unwind(panicked));
        results.into_iter().map(|result| result.unwrap_or_else(|panicked| resume_unwind(panicked))).collect()
    });
    let expected: Vec<Entry> = (0..THREADS).map(kept_by).collect();
    let rule = "threads that publish and withdraw at once do not disturb one another";
    subject.has(rule, &Vec::from_iter(&expected));
    // Another thread may drop what the threads have published.
    std::thread::scope(|scope| drop(scope.spawn(|| drop(kept))));
    subject.has("a registration can be dropped by another thread", &[]);
}

fn kept_by(thread: usize) -> Entry {
    entry("Store", &format!("kept-{thread}"))
}

/// Publishes and withdraws some entries, and then publishes one that stays.
fn publish_some(subject: &Subject<'_>, thread: usize) -> Registration {
    for round in 0..ROUNDS {
        let brief = subject.publish(&entry("Store", &format!("brief-{thread}-{round}")));
        expect("an entry is there until it is withdrawn", true, || brief.withdraw());
    }
    subject.publish(&kept_by(thread))
}

/// Checks that what is read while others write is the whole of one state.
fn check_listing(subject: &Subject<'_>) {
    let rule = "a registry can be read while others write to it";
    let listing =
        subject.registry.list().unwrap_or_else(|why| panic!("{}: the error is {why:?}", broken(rule)));
    let names: Vec<_> = listing.entries.iter().map(|entry| &entry.instance).collect();
    let rule = "a listing is in ascending order, each name once, also while others write";
    require(rule, names.is_sorted_by(|a, b| a < b), || format!("the instances are {names:?}"));
}

/// Threads publish the same name.
fn one_name(subject: &Subject<'_>) {
    let wanted = entry("Store", "ebbets");
    let attempts: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|_| scope.spawn(|| subject.registry.publish(&wanted))).collect();
        let join = |thread: ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panicked| resume_unwind(panicked))
        };
        threads.into_iter().map(join).collect()
    });
    let rule = "of several that publish one name at once, one succeeds, and the others are refused as taken";
    let succeeded = attempts.iter().filter(|attempt| attempt.is_ok()).count();
    require(rule, succeeded == 1, || format!("{succeeded} of {THREADS} have succeeded"));
    for refused in attempts.iter().filter_map(|attempt| attempt.as_ref().err()) {
        require(rule, matches!(refused, Error::Taken { .. }), || format!("the error is {refused:?}"));
    }
    subject.has(rule, &[&wanted]);
}
