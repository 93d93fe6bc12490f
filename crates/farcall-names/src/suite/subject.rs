//! The registry that is checked, and how a broken rule is told.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use crate::{Address, Entry, Label, Registration, Registry, Result};

/// The pause between two looks at a registry that shows its changes late.
const PAUSE: Duration = Duration::from_millis(1);

/// A registry that is checked.
pub(super) struct Subject<'a> {
    pub(super) registry: &'a dyn Registry,
    /// How long a change may take until readers see it.
    pub(super) patience: Duration,
}

impl Subject<'_> {
    /// Publishes an entry whose name is free.
    pub(super) fn publish(&self, entry: &Entry) -> Registration {
        self.registry.publish(entry).unwrap_or_else(|why| {
            panic!("{}: {} was refused: {why}", broken("a free name can be published"), entry.name())
        })
    }

    /// Withdraws a registration, whose entry must still be there.
    pub(super) fn expect_withdrawn(&self, registration: Registration) {
        expect("withdrawing a published entry returns true", true, || registration.withdraw());
    }

    /// Waits until `look` returns what the rule demands.
    pub(super) fn holds<T: PartialEq + Debug>(&self, rule: &str, expected: T, look: impl Fn() -> Result<T>) {
        let end = Instant::now() + self.patience;
        while !matches!(look(), Ok(found) if found == expected) {
            if end <= Instant::now() {
                return expect(rule, expected, look);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Waits until the registry has exactly these entries, in this order.
    pub(super) fn has(&self, rule: &str, entries: &[&Entry]) {
        let expected: Vec<Entry> = entries.iter().map(|entry| (*entry).clone()).collect();
        self.holds(rule, expected, || Ok(self.registry.list()?.entries));
    }
}

/// Panics unless `look` returns what the rule demands.
pub(super) fn expect<T: PartialEq + Debug>(rule: &str, expected: T, look: impl FnOnce() -> Result<T>) {
    match look() {
        Ok(found) if found == expected => {}
        Ok(found) => {
            let (found, expected) = (format!("{found:?}"), format!("{expected:?}"));
            let same = found.bytes().zip(expected.bytes()).take_while(|(a, b)| a == b).count();
            panic!("{}: found {}, not {}", broken(rule), around(&found, same), around(&expected, same));
        }
        Err(why) => {
            panic!("{}: found the error {why:?}, not {}", broken(rule), around(&format!("{expected:?}"), 0))
        }
    }
}

/// Returns the part of a text around a place, because a listing can be long.
fn around(text: &str, at: usize) -> String {
    const BEFORE: usize = 150;
    const LENGTH: usize = 400;
    let skipped = at.saturating_sub(BEFORE);
    let shown: String = text.chars().skip(skipped).take(LENGTH).collect();
    let before = if skipped > 0 { "…" } else { "" };
    let after = if skipped + LENGTH < text.chars().count() { "…" } else { "" };
    format!("{before}{shown}{after}")
}

/// Panics unless the rule holds; `found` says what was found instead.
pub(super) fn require(rule: &str, holds: bool, found: impl FnOnce() -> String) {
    if !holds {
        panic!("{}: {}", broken(rule), found());
    }
}

pub(super) fn broken(rule: &str) -> String {
    format!("the registry breaks the rule that {rule}")
}

/// Returns an entry of this process.
pub(super) fn entry(type_name: &str, instance: &str) -> Entry {
    Entry::new(label(type_name), label(instance), address(7000), 0x5eed)
}

pub(super) fn address(port: u16) -> Address {
    Address::Udp(([127, 0, 0, 1], port).into())
}

/// Returns the label of a text that is one.
pub(super) fn label(text: &str) -> Label {
    text.parse().expect("the suite's labels are well-formed")
}
