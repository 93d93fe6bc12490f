//! A test suite for registries: checks an implementation of [`Registry`] against the rules of that trait.
//!
//! Who writes a registry runs [`check`] on it in a test. A registry that can only be read, because its
//! entries are made elsewhere, is for [`check_read_only`]. Both panic with a message that names the broken
//! rule.
//!
//! ```
//! use std::collections::BTreeMap;
//! use std::sync::{Arc, Mutex};
//!
//! use farcall_names::{Entry, Error, Label, Listing, Registration, Registry, Result, suite};
//!
//! /// A registry within one process.
//! #[derive(Clone, Default)]
//! struct Shelf(Arc<Mutex<(u64, BTreeMap<(Label, Label), (u64, Entry)>)>>);
//!
//! impl Registry for Shelf {
//!     fn publish(&self, entry: &Entry) -> Result<Registration> {
//!         entry.check()?;
//!         let key = (entry.type_name.clone(), entry.instance.clone());
//!         let mut shelf = self.0.lock().unwrap();
//!         if let Some((_, found)) = shelf.1.get(&key) {
//!             return Err(found.taken());
//!         }
//!         shelf.0 += 1;
//!         let serial = shelf.0;
//!         shelf.1.insert(key.clone(), (serial, entry.clone()));
//!         let this = self.clone();
//!         Ok(Registration::new(entry.name(), move || {
//!             let is_same = this.0.lock().unwrap().1.get(&key).is_some_and(|(found, _)| *found == serial);
//!             if is_same { this.withdraw(&key.0, &key.1) } else { Ok(false) }
//!         }))
//!     }
//!
//!     fn withdraw(&self, type_name: &Label, instance: &Label) -> Result<bool> {
//!         let mut shelf = self.0.lock().unwrap();
//!         let found = shelf.1.remove(&(type_name.clone(), instance.clone())).is_some();
//!         shelf.0 += u64::from(found);
//!         Ok(found)
//!     }
//!
//!     fn instances(&self, type_name: &Label) -> Result<Vec<Entry>> {
//!         Ok(self.list()?.entries.into_iter().filter(|entry| entry.type_name == *type_name).collect())
//!     }
//!
//!     fn lookup(&self, type_name: &Label, instance: &Label) -> Result<Option<Entry>> {
//!         Ok(self.instances(type_name)?.into_iter().find(|entry| entry.instance == *instance))
//!     }
//!
//!     fn list(&self) -> Result<Listing> {
//!         let shelf = self.0.lock().unwrap();
//!         Ok(Listing::new(shelf.0, shelf.1.values().map(|(_, entry)| entry.clone()).collect()))
//!     }
//!
//!     fn version(&self) -> Result<u64> {
//!         Ok(self.0.lock().unwrap().0)
//!     }
//! }
//!
//! suite::check(Shelf::default);
//! ```

mod concurrent;
mod read_only;
mod rules;
mod subject;

use std::time::Duration;

use crate::Registry;
pub use read_only::check_read_only;
use subject::Subject;

/// Checks a registry whose changes are seen at once. `fresh` returns a new and empty registry whenever it is
/// called, which is about twenty times; a registry that is dropped may leave its medium behind.
///
/// # Panics
/// If the registry breaks a rule of [`Registry`]. The message names the rule.
pub fn check<R: Registry>(fresh: impl FnMut() -> R) {
    check_within(Duration::ZERO, fresh);
}

/// Checks a registry whose readers may see a change late, by up to `patience`. It is otherwise like
/// [`check`]. A registry that fails takes that long to do so.
///
/// # Panics
/// If the registry breaks a rule of [`Registry`]. The message names the rule.
pub fn check_within<R: Registry>(patience: Duration, mut fresh: impl FnMut() -> R) {
    for rule in rules::RULES.iter().chain(concurrent::RULES) {
        rule(&Subject { registry: &fresh(), patience });
    }
    let (exporter, entry) = (fresh(), subject::entry("Store", "ebbets"));
    let registration = Subject { registry: &exporter, patience }.publish(&entry);
    drop(exporter);
    subject::expect("a registration outlives the registry's handle that made it", true, || {
        registration.withdraw()
    });
}
