//! A registry whose entries exporters sign and importers check (docs/names.md).
//!
//! The owner of the registry can withhold entries. It cannot add one, change one, or put an old one back for
//! longer than signatures count. For that an exporter signs its entries anew from time to time.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use farcall_keys::{ENTRY_SECONDS, EntryProof, Keyring, Refusal};
use farcall_names::{Entry, Error, Label, Listing, Registration, Registry, Renewal, Result};

use super::Keys;
use crate::env::{Env, Event};
use crate::{guard, lock};

/// After how many seconds an entry is signed anew. It counts for three times as long, so that a registry may
/// be away for a while.
const RENEW_AFTER_SECONDS: u64 = ENTRY_SECONDS / 3;

/// How often entries are looked at that may have to be signed anew.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The maximum number of checked signatures that are kept.
const MAX_CHECKED: usize = 1 << 15;

/// How many signed entries that are not known yet may be refused of one answer. The owner of a registry can
/// fill it with such entries, each of which takes time to check.
const MAX_REFUSED: usize = 1_000;

/// A registry whose entries are signed with the keys of a runtime, and checked by them.
pub(crate) struct SignedNames {
    registry: Arc<dyn Registry>,
    keys: Keys,
    env: Arc<dyn Env>,
    checked: Mutex<Checked>,
    signer: Arc<Signer>,
}

/// What was found of signatures, by the digest of the entry and its proof. It never changes.
type Checked = HashMap<[u8; 32], std::result::Result<Arc<EntryProof>, Refusal>>;

/// Signs the entries of exports anew.
struct Signer {
    keys: Keys,
    env: Arc<dyn Env>,
    /// Wakes the thread when the runtime is gone.
    ended: Arc<dyn Event>,
    state: Mutex<Signed>,
    say: fn(&dyn Env, &str),
}

#[derive(Default)]
struct Signed {
    /// The entries that are published, by numbers in their order.
    entries: BTreeMap<u64, Kept>,
    /// The number of the next entry.
    next: u64,
    /// Whether the thread runs.
    runs: bool,
}

/// An entry that is published, and when it was signed.
#[derive(Clone)]
struct Kept {
    entry: Entry,
    renewal: Renewal,
    /// In Unix seconds.
    signed: u64,
    /// The keys with which it was signed, which may be gone.
    keyring: Weak<Keyring>,
    /// Whether it was told that it cannot be signed anew.
    told: bool,
}

impl SignedNames {
    /// Returns the registry with signatures. `say` tells the user what goes wrong in the background.
    pub(crate) fn new(
        registry: Arc<dyn Registry>,
        keys: &Keys,
        env: &Arc<dyn Env>,
        say: fn(&dyn Env, &str),
    ) -> SignedNames {
        let (keys, env) = (keys.clone(), env.clone());
        let (ended, state) = (env.event(), Mutex::default());
        let signer = Signer { keys: keys.clone(), env: env.clone(), ended, state, say };
        SignedNames { registry, keys, env, checked: Mutex::default(), signer: Arc::new(signer) }
    }

    /// Publishes an entry with a signature, and has it signed anew as long as it is published.
    fn publish_signed(
        &self,
        entry: &Entry,
        publish: impl FnOnce(&Entry) -> Result<Registration>,
    ) -> Result<Registration> {
        let (keyring, now) = (self.keys.keyring(), self.env.unix_seconds());
        let registration = publish(&signed(entry, &keyring, now))?;
        let Some(renewal) = registration.renewal() else {
            return Err(not_permitted(
                "exporters with keys must be able to replace their entries (Registration::renewing), and \
                 this registry lets nobody do that"
                    .to_owned(),
            ));
        };
        self.signer.start().map_err(|why| not_permitted(format!("no thread can be started: {why}")))?;
        let keyring = Arc::downgrade(&keyring);
        let kept = Kept { entry: entry.clone(), renewal, signed: now, keyring, told: false };
        let mut state = lock(&self.signer.state);
        let number = state.next;
        state.next += 1;
        state.entries.insert(number, kept);
        Ok(registration)
    }

    /// Returns those of the entries that count for this end, and why the first of the others does not.
    fn genuine(&self, entries: Vec<Entry>) -> (Vec<Entry>, Option<Error>) {
        if !self.registry.is_published_to() {
            return (entries, None);
        }
        let (keyring, now) = (self.keys.keyring(), self.env.unix_seconds());
        let (mut genuine, mut first, mut refused) = (Vec::with_capacity(entries.len()), None, 0);
        for entry in entries {
            match self.check(&entry, &keyring, now, &mut refused) {
                Ok(()) => genuine.push(entry),
                Err(why) => {
                    first.get_or_insert_with(|| Error::NotGenuine { name: entry.name(), why });
                }
            }
        }
        (genuine, first)
    }

    /// Checks that an entry was signed lately by a key that may export its name. Counts in `refused` the
    /// entries that were checked for the first time and are refused.
    fn check(
        &self,
        entry: &Entry,
        keyring: &Keyring,
        now: u64,
        refused: &mut usize,
    ) -> std::result::Result<(), String> {
        let (type_name, instance) = (entry.type_name.as_str(), entry.instance.as_str());
        let contents = entry.contents();
        // If the name of an entry is made up, nobody has signed it.
        let proof = if entry.by_type { &[][..] } else { &entry.proof };
        let digest = EntryProof::digest(type_name, instance, &contents, proof);
        let known = lock(&self.checked).get(&digest).cloned();
        // An entry without a signature costs nothing to refuse.
        let is_new = known.is_none() && !proof.is_empty();
        let verified = match known {
            Some(verified) => verified,
            None if is_new && *refused >= MAX_REFUSED => {
                return Err(format!("{MAX_REFUSED} other signed entries do not count; look who writes them"));
            }
            None => {
                let verified = EntryProof::verify(type_name, instance, &contents, proof).map(Arc::new);
                if is_new {
                    self.remember(digest, verified.clone());
                }
                verified
            }
        };
        let judged = verified.and_then(|verified| keyring.check_entry(&verified, now));
        *refused += usize::from(is_new && judged.is_err());
        judged.map(drop).map_err(|why| why.to_string())
    }

    fn remember(&self, digest: [u8; 32], verified: std::result::Result<Arc<EntryProof>, Refusal>) {
        let mut checked = lock(&self.checked);
        if checked.len() >= MAX_CHECKED {
            checked.clear();
        }
        checked.insert(digest, verified);
    }

    /// Returns the instances of a type among these entries that count for this end.
    fn genuine_instances(&self, type_name: &Label, mut entries: Vec<Entry>) -> Result<Vec<Entry>> {
        entries.retain(|entry| entry.type_name == *type_name);
        match self.genuine(entries) {
            (genuine, Some(why)) if genuine.is_empty() => Err(why),
            (genuine, _) => Ok(genuine),
        }
    }

    /// Returns the entry of a name, if it counts for this end.
    fn genuine_instance(&self, name: (&Label, &Label), found: Option<Entry>) -> Result<Option<Entry>> {
        let found = found.filter(|entry| (&entry.type_name, &entry.instance) == name);
        match self.genuine(found.into_iter().collect()) {
            (_, Some(why)) => Err(why),
            (genuine, None) => Ok(genuine.into_iter().next()),
        }
    }

    /// Returns the version of the registry for this end: another one also when the keys have changed, and
    /// now and then for what has expired.
    fn version_here(&self, version: u64) -> u64 {
        // Registries count in their lower bits: no change of theirs undoes one of the keys.
        version.wrapping_add(self.keys.generation() << 40)
    }
}

impl Registry for SignedNames {
    fn publish(&self, entry: &Entry) -> Result<Registration> {
        self.publish_signed(entry, |signed| self.registry.publish(signed))
    }

    fn publish_exclusively(&self, entry: &Entry) -> Result<Registration> {
        self.publish_signed(entry, |signed| self.registry.publish_exclusively(signed))
    }

    fn add(&self, entry: &Entry) -> Result<()> {
        self.registry.add(entry)
    }

    fn is_published_to(&self) -> bool {
        self.registry.is_published_to()
    }

    fn withdraw(&self, type_name: &Label, instance: &Label) -> Result<bool> {
        self.registry.withdraw(type_name, instance)
    }

    /// Returns the instances that count for this end.
    ///
    /// # Errors
    /// [`Error::NotGenuine`] if there are some, and none of them counts.
    fn instances(&self, type_name: &Label) -> Result<Vec<Entry>> {
        self.genuine_instances(type_name, self.registry.instances(type_name)?)
    }

    fn instances_within(&self, type_name: &Label, within: Duration) -> Result<Vec<Entry>> {
        self.genuine_instances(type_name, self.registry.instances_within(type_name, within)?)
    }

    fn instances_now(&self, type_name: &Label, within: Duration) -> Result<Vec<Entry>> {
        self.genuine_instances(type_name, self.registry.instances_now(type_name, within)?)
    }

    /// Returns the entry of one instance, if it counts for this end.
    ///
    /// # Errors
    /// [`Error::NotGenuine`] if it does not.
    fn lookup(&self, type_name: &Label, instance: &Label) -> Result<Option<Entry>> {
        self.genuine_instance((type_name, instance), self.registry.lookup(type_name, instance)?)
    }

    fn lookup_within(&self, type_name: &Label, instance: &Label, within: Duration) -> Result<Option<Entry>> {
        let found = self.registry.lookup_within(type_name, instance, within)?;
        self.genuine_instance((type_name, instance), found)
    }

    /// Returns the entries that count for this end.
    fn list(&self) -> Result<Listing> {
        let listing = self.registry.list()?;
        Ok(Listing::new(self.version_here(listing.version), self.genuine(listing.entries).0))
    }

    fn version(&self) -> Result<u64> {
        Ok(self.version_here(self.registry.version()?))
    }

    fn version_within(&self, within: Duration) -> Result<u64> {
        Ok(self.version_here(self.registry.version_within(within)?))
    }

    fn keeps_deadlines(&self) -> bool {
        self.registry.keeps_deadlines()
    }

    fn routes(&self) -> Vec<IpAddr> {
        self.registry.routes()
    }

    fn is_shared(&self) -> bool {
        self.registry.is_shared()
    }
}

impl Signer {
    /// Starts the thread, if it does not run.
    fn start(self: &Arc<Self>) -> io::Result<()> {
        let mut state = lock(&self.state);
        if state.runs {
            return Ok(());
        }
        let (signer, ended) = (Arc::downgrade(self), self.ended.clone());
        self.env.spawn("farcall-names", Box::new(move || run(&signer, &*ended)))?;
        state.runs = true;
        Ok(())
    }

    /// Signs entries anew that were signed some time ago, or with other keys than the present ones.
    fn sign_anew(&self) {
        let (keyring, now) = (self.keys.keyring(), self.env.unix_seconds());
        let due: Vec<(u64, Kept)> = {
            let mut state = lock(&self.state);
            state.entries.retain(|_, kept| !kept.renewal.is_over());
            let due = state.entries.iter().filter(|(_, kept)| kept.is_due(&keyring, now));
            due.map(|(number, kept)| (*number, kept.clone())).collect()
        };
        for (number, kept) in due {
            // The registry may be the user's, and may take its time, so nothing is locked meanwhile.
            guard::run_alone("the renewal of a registry entry", || {
                let renewed = kept.renewal.renew(&signed(&kept.entry, &keyring, now));
                self.note((number, &kept), &keyring, now, renewed);
            });
        }
    }

    /// Notes what has become of an entry that was to be signed anew.
    fn note(&self, (number, of): (u64, &Kept), keyring: &Arc<Keyring>, now: u64, renewed: Result<bool>) {
        let mut state = lock(&self.state);
        let Some(kept) = state.entries.get_mut(&number) else { return };
        match renewed {
            Ok(true) => {
                (kept.signed, kept.keyring, kept.told) = (now, Arc::downgrade(keyring), false);
            }
            Ok(false) => {
                state.entries.remove(&number);
                drop(state);
                // Whoever has withdrawn the name knows it.
                if !of.renewal.is_over() {
                    (self.say)(&*self.env, &lost_name(of));
                }
            }
            Err(why) => {
                let is_told = std::mem::replace(&mut kept.told, true);
                drop(state);
                if !is_told {
                    (self.say)(&*self.env, &not_renewed(of, &why));
                }
            }
        }
    }
}

impl Drop for Signer {
    fn drop(&mut self) {
        self.ended.set();
    }
}

impl Kept {
    /// Returns whether the entry is to be signed anew.
    fn is_due(&self, keyring: &Arc<Keyring>, now: u64) -> bool {
        let fresh = self.signed..self.signed.saturating_add(RENEW_AFTER_SECONDS);
        // A clock that was set back makes it due, too.
        !fresh.contains(&now) || self.keyring.as_ptr() != Arc::as_ptr(keyring)
    }
}

/// Signs entries anew until the runtime is gone.
fn run(signer: &Weak<Signer>, ended: &dyn Event) {
    while let Some(signer) = signer.upgrade() {
        signer.sign_anew();
        drop(signer);
        ended.wait(Some(LOOK_EVERY));
    }
}

/// Returns an entry with the proof that its exporter has signed it.
fn signed(entry: &Entry, keyring: &Keyring, now: u64) -> Entry {
    let (type_name, instance) = (entry.type_name.as_str(), entry.instance.as_str());
    let proof = keyring.prove_entry(type_name, instance, &entry.contents(), now);
    let mut signed = entry.clone();
    signed.proof = proof;
    signed
}

fn not_permitted(why: String) -> Error {
    Error::NotPermitted { registry: "in use".to_owned(), why }
}

#[cold]
fn lost_name(kept: &Kept) -> String {
    format!(
        "the registry no longer has {} of this exporter: callers do not find it; somebody has withdrawn or \
         replaced the entry. Export the name again",
        kept.entry.name()
    )
}

#[cold]
fn not_renewed(kept: &Kept, why: &Error) -> String {
    let ends = kept.signed.saturating_add(ENTRY_SECONDS);
    format!("{} is found until {ends} (Unix seconds), for it cannot be signed anew: {why}", kept.entry.name())
}

#[cfg(test)]
mod tests {
    use farcall_keys::Identity;
    use farcall_names::Memory;

    use super::*;
    use crate::System;

    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

    #[test]
    fn an_exporter_that_has_lost_its_name_says_so_once_and_one_that_has_withdrawn_it_says_nothing() {
        let (registry, env): (Memory, Arc<dyn Env>) = (Memory::new(), Arc::new(System));
        let keyring = |byte| Keyring::new(Identity::from_entropy([byte; 32]));
        let keys = Keys::new(keyring(1));
        let say = |_: &dyn Env, line: &str| lock(&SAID).push(line.to_owned());
        let names = SignedNames::new(Arc::new(registry.clone()), &keys, &env, say);
        let entry = |instance: &str| {
            let [type_name, instance] = ["Store", instance].map(|label| label.parse::<Label>().unwrap());
            Entry::new(type_name, instance, "udp://127.0.0.1:7000".parse().unwrap(), 1)
        };
        let (lost, withdrawn) =
            (names.publish(&entry("lost")).unwrap(), names.publish(&entry("withdrawn")).unwrap());
        withdrawn.withdraw().unwrap();
        assert!(registry.withdraw(&entry("lost").type_name, &entry("lost").instance).unwrap());
        // With other keys all entries are due.
        keys.replace(keyring(2));
        names.signer.sign_anew();
        names.signer.sign_anew();
        let said = lock(&SAID).clone();
        assert!(said.len() == 1 && said[0].contains("no longer has Store/lost"), "{said:?}");
        drop(lost);
    }
}
