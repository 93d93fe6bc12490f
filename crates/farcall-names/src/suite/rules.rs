//! The rules for a registry that one thread uses.

use super::subject::{Subject, address, broken, entry, expect, label, require};
use crate::{
    Address, Entry, Error, Fingerprint, Liveness, MAX_EXPORT, MAX_FINGERPRINTS, MAX_LABEL, MAX_PROOF,
};

/// Each checks some rules of an empty registry.
pub(super) const RULES: &[fn(&Subject<'_>)] = &[
    an_empty_registry,
    published_entries,
    the_end_of_an_entry,
    a_taken_name,
    an_older_registration,
    a_renewed_entry,
    versions,
    ascending_order,
    labels_at_their_limits,
    entries_at_their_bounds,
    entries_beyond_their_bounds,
    many_entries,
    a_dead_owner,
    owners,
    the_routes,
];

/// The number of entries of a large registry.
const MANY: usize = 100;

fn an_empty_registry(subject: &Subject<'_>) {
    let (registry, store, ebbets) = (subject.registry, label("Store"), label("ebbets"));
    subject.has("a new registry lists no entries", &[]);
    expect("a type that nobody exports has no instances", vec![], || registry.instances(&store));
    expect("a name that nobody exports is not found", None, || registry.lookup(&store, &ebbets));
    expect("withdrawing what is not there returns false", false, || registry.withdraw(&store, &ebbets));
    subject.has("withdrawing what is not there makes nothing", &[]);
}

fn published_entries(subject: &Subject<'_>) {
    let (registry, mut ebbets) = (subject.registry, entry("Store", "ebbets"));
    ebbets.export = u64::MAX;
    ebbets.fingerprints = [0, 7].map(|number| Fingerprint { number, types: u64::MAX, name: 1 }).into();
    ebbets.proof = vec![0, 1, 0xff];
    let mut luther = entry("Store", "luther");
    luther.address = Address::Shm(([127, 0, 0, 1], 7001).into());
    let mut mail = entry("Mail", "ebbets");
    mail.address = Address::Udp("[fd00::7]:7000".parse().expect("it is an address"));
    let _published = [&luther, &mail, &ebbets].map(|entry| subject.publish(entry));
    for published in [&ebbets, &luther, &mail] {
        subject.holds("a published entry is found by its name, as it was", Some(published.clone()), || {
            registry.lookup(&published.type_name, &published.instance)
        });
    }
    subject.holds(
        "the instances of a type are all its entries, and no others",
        vec![ebbets.clone(), luther.clone()],
        || registry.instances(&label("Store")),
    );
    subject.has("the list has all entries, as they were", &[&mail, &ebbets, &luther]);
    for (type_name, instance) in [("Store", "Ebbets"), ("store", "ebbets"), ("Mail", "luther")] {
        let (type_name, instance) = (label(type_name), label(instance));
        expect("a name is found only if type and instance are the same to the letter", None, || {
            registry.lookup(&type_name, &instance)
        });
    }
}

/// `/` sorts after `-` and `.`, and before digits and letters: the names as texts have another order than the
/// types and instances.
fn ascending_order(subject: &Subject<'_>) {
    let registry = subject.registry;
    let types = ["9", "A", "A-", "A.b", "A0", "AB", "_", "a"];
    let instances = ["0", "Z", "_", "z", "z-", "z.", "z0", "za"];
    let all: Vec<Entry> =
        types.iter().flat_map(|type_name| instances.map(|instance| entry(type_name, instance))).collect();
    // They are published in another order: 29 and the number of entries have no common divisor.
    let _published: Vec<_> =
        (0..all.len()).map(|which| subject.publish(&all[which * 29 % all.len()])).collect();
    subject.has("the list is by ascending type, then by ascending instance", &Vec::from_iter(&all));
    for (type_name, expected) in types.iter().zip(all.chunks(instances.len())) {
        subject.holds(
            "instances are by ascending name, and are not those of a type with a similar name",
            expected.to_vec(),
            || registry.instances(&label(type_name)),
        );
    }
}

fn labels_at_their_limits(subject: &Subject<'_>) {
    let registry = subject.registry;
    let all = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    let (longest, rest) = ("x".repeat(MAX_LABEL), "y".repeat(MAX_EXPORT - 1 - MAX_LABEL));
    for (type_name, instance) in
        [("x", "y"), (all, all), (&longest, "y"), ("x", &longest), (&longest, &rest), ("_.-", "0")]
    {
        let named = entry(type_name, instance);
        let registration = subject.publish(&named);
        subject.holds("every well-formed name can be published and found", Some(named.clone()), || {
            registry.lookup(&named.type_name, &named.instance)
        });
        subject.holds("every well-formed name is listed", vec![named.clone()], || {
            registry.instances(&named.type_name)
        });
        expect("every well-formed name can be withdrawn", true, || registration.withdraw());
    }
}

fn the_end_of_an_entry(subject: &Subject<'_>) {
    let (registry, named) = (subject.registry, entry("Store", "named"));
    let dropped = subject.publish(&entry("Store", "dropped"));
    let withdrawn = subject.publish(&entry("Store", "withdrawn"));
    let kept = subject.publish(&named);
    drop(dropped);
    subject.has(
        "dropping a registration withdraws its entry, and no other",
        &[&named, &entry("Store", "withdrawn")],
    );
    expect("withdrawing a registration returns whether its entry was there", true, || withdrawn.withdraw());
    subject.has("withdrawing a registration withdraws its entry, and no other", &[&named]);
    let withdraw = || registry.withdraw(&named.type_name, &named.instance);
    expect("an entry of this process can be withdrawn by its name", true, withdraw);
    subject.has("withdrawing a name withdraws its entry", &[]);
    subject
        .holds("a withdrawn name is not found", None, || registry.lookup(&named.type_name, &named.instance));
    expect("a name can be withdrawn once", false, withdraw);
    expect("a registration whose entry is gone returns false", false, || kept.withdraw());
}

fn a_taken_name(subject: &Subject<'_>) {
    let (registry, first) = (subject.registry, entry("Store", "ebbets"));
    let registration = subject.publish(&first);
    let mut moved = first.clone();
    (moved.export, moved.address) = (7, address(7001));
    for second in [&first, &moved] {
        let rule = "a name that a live process exports, this one too, is refused as taken";
        let refused = match registry.publish(second) {
            Ok(_) => panic!("{}: it was published again", broken(rule)),
            Err(refused) => refused,
        };
        let is_taken = matches!(&refused, Error::Taken { name, owner, address }
            if *name == first.name() && *owner == first.owner && *address == first.address);
        require(rule, is_taken, || format!("the error is {refused:?}, which is not of the first export"));
        subject.has("a refused publication changes nothing", &[&first]);
    }
    expect("the entry of a refused publication stays its owner's", true, || registration.withdraw());
    drop(subject.publish(&moved));
}

fn an_older_registration(subject: &Subject<'_>) {
    let (registry, first) = (subject.registry, entry("Store", "ebbets"));
    let older = subject.publish(&first);
    expect("an entry of this process can be withdrawn by its name", true, || {
        registry.withdraw(&first.type_name, &first.instance)
    });
    // The export is the same, so only the registration itself distinguishes the two entries.
    let mut moved = first.clone();
    moved.address = address(7001);
    let newer = subject.publish(&moved);
    subject.has("a name that was published again is found as it is now", &[&moved]);
    let rule = "a registration withdraws only the entry that it published";
    expect(rule, false, || older.withdraw());
    subject.has(rule, &[&moved]);
    expect("the newer registration withdraws its entry", true, || newer.withdraw());
}

/// For registries that can replace entries.
fn a_renewed_entry(subject: &Subject<'_>) {
    let (registry, first) = (subject.registry, entry("Store", "ebbets"));
    let registration = subject.publish(&first);
    let Some(renewal) = registration.renewal() else { return };
    let fence = registration.ownership().and_then(crate::Ownership::fence);
    let mut second = first.clone();
    (second.proof, second.address) = (vec![7; 300], address(7001));
    let read = |what: &str| {
        registry.version().unwrap_or_else(|why| panic!("the registry fails {what} a renewal: {why}"))
    };
    let before = read("before");
    expect("an entry that is published can be replaced", true, || renewal.renew(&second));
    subject.has("an entry that was replaced is the new one", &[&second]);
    subject.holds("the version changes when an entry is replaced", true, || Ok(read("after") != before));
    let same = registration.ownership().and_then(crate::Ownership::fence) == fence;
    require("an ownership and its fence stay when the entry is replaced", same, || "they changed".to_owned());
    let mut larger = second.clone();
    larger.proof = vec![7; MAX_PROOF + 1];
    let renewed = renewal.renew(&larger);
    let is_refused = matches!(renewed, Err(Error::TooLarge { .. }));
    require("an entry is not replaced by one beyond a bound", is_refused, || format!("it is {renewed:?}"));
    subject.has("a refused replacement changes nothing", &[&second]);
    let is_taken = matches!(registry.publish(&first), Err(Error::Taken { .. }));
    require("a name whose entry was replaced stays taken", is_taken, || "it was published".to_owned());
    expect("an entry that was replaced can be withdrawn by its name", true, || {
        registry.withdraw(&first.type_name, &first.instance)
    });
    expect("an entry that was withdrawn is not replaced", false, || renewal.renew(&second));
    let next = subject.publish(&first);
    expect("an earlier registration replaces no later entry", false, || renewal.renew(&second));
    subject.has("an earlier registration changes no later entry", &[&first]);
    drop(registration);
    expect("a registration that was dropped replaces no entry", false, || renewal.renew(&second));
    subject.expect_withdrawn(next);
}

fn versions(subject: &Subject<'_>) {
    let registry = subject.registry;
    let version = || match registry.list() {
        Ok(listing) => listing.version,
        Err(why) => panic!("{}: {why}", broken("a registry can be listed")),
    };
    let mut seen = vec![version()];
    let mut changed = |by: &str| {
        let rule = format!("{by} changes the version");
        let before = seen.clone();
        subject.holds(&rule, false, || Ok(before.contains(&registry.version()?)));
        if subject.patience.is_zero() {
            let now = version();
            expect("a listing has the version that the registry has", now, || registry.version());
            seen.push(now);
        } else {
            seen = vec![version()];
        }
    };
    let first = subject.publish(&entry("Store", "ebbets"));
    changed("a publication");
    let second = subject.publish(&entry("Store", "luther"));
    changed("a second publication");
    drop(second);
    changed("dropping a registration");
    expect("an entry of this process can be withdrawn by its name", true, || {
        registry.withdraw(&label("Store"), &label("ebbets"))
    });
    changed("withdrawing a name");
    if subject.patience.is_zero() {
        let before = version();
        drop(first);
        expect("a version stays while nothing is published or withdrawn", before, || registry.version());
    }
}

/// Returns entries of which each is at one bound, or is beyond it by `excess`, with that bound.
fn entries_at_bounds(excess: usize) -> [(Entry, usize); 3] {
    let mut entries = ["named", "known", "proved"].map(|instance| entry("Store", instance));
    entries[0].type_name = label(&"T".repeat(MAX_LABEL));
    entries[0].instance = label(&"i".repeat(MAX_EXPORT - 1 - MAX_LABEL + excess));
    entries[1].fingerprints = vec![Fingerprint { number: 1, types: 2, name: 3 }; MAX_FINGERPRINTS + excess];
    entries[2].proof = vec![7; MAX_PROOF + excess];
    let mut bounds = [MAX_EXPORT, MAX_FINGERPRINTS, MAX_PROOF].into_iter();
    entries.map(|entry| (entry, bounds.next().unwrap_or_default()))
}

fn entries_at_their_bounds(subject: &Subject<'_>) {
    for (large, _) in entries_at_bounds(0) {
        let _registration = subject.publish(&large);
        subject.has("an entry at a bound is published as it is", &[&large]);
    }
}

fn entries_beyond_their_bounds(subject: &Subject<'_>) {
    let rule = "an entry beyond a bound is refused as too large";
    for (larger, bound) in entries_at_bounds(1) {
        let published = subject.registry.publish(&larger).map(drop);
        let is_refused = matches!(published, Err(Error::TooLarge { size, limit, .. })
            if (size, limit) == (bound + 1, bound));
        require(rule, is_refused, || format!("the answer is {published:?} for the bound {bound}"));
        subject.has("an entry that is refused is not there", &[]);
    }
}

fn many_entries(subject: &Subject<'_>) {
    let all: Vec<Entry> = (0..MANY).map(|which| entry("Store", &format!("i{which:03}"))).collect();
    let mut published: Vec<_> = all.iter().map(|entry| subject.publish(entry)).collect();
    subject.has("a registry lists all of many entries", &Vec::from_iter(&all));
    drop(published.split_off(MANY / 2));
    subject.has("many entries can be withdrawn", &Vec::from_iter(&all[..MANY / 2]));
    drop(published);
    subject.has("all entries can be withdrawn", &[]);
}

/// A registry of one process need not look whether an owner is alive.
fn a_dead_owner(subject: &Subject<'_>) {
    let (registry, mut dead, living) = (subject.registry, entry("Store", "ebbets"), entry("Store", "ebbets"));
    // No system gives a process this number.
    dead.owner.pid = i32::MAX as u32;
    (dead.export, dead.address) = (7, address(7001));
    if dead.owner.liveness() != Liveness::Dead {
        return;
    }
    let former = subject.publish(&dead);
    let rule = "an entry that is passed over because its owner is dead can be replaced";
    if !matches!(registry.lookup(&dead.type_name, &dead.instance), Ok(None)) {
        return;
    }
    expect("an entry that is not found is not among the instances either", vec![], || {
        registry.instances(&dead.type_name)
    });
    subject.has("an entry that is not found is not listed either", &[]);
    let _registration =
        registry.publish(&living).unwrap_or_else(|why| panic!("{}: it was refused: {why}", broken(rule)));
    subject.has(rule, &[&living]);
    expect("the registration of a replaced entry returns false", false, || former.withdraw());
    subject.has("the registration of a replaced entry withdraws nothing", &[&living]);
}

/// For registries that keep two processes from owning one name.
fn owners(subject: &Subject<'_>) {
    let (mut newest, mut former) = (0, None);
    for _ in 0..3 {
        let registration = subject.publish(&entry("Store", "ebbets"));
        let Some(ownership) = registration.ownership().cloned() else { return };
        let fence = ownership.fence();
        let grows = fence > Some(newest);
        require("each owner's fence is greater than those before", grows, || {
            format!("{fence:?} after {newest}")
        });
        newest = fence.unwrap_or_default();
        let lasts = |ownership: crate::Ownership| ownership.fence().is_some();
        let still = former.replace(ownership).is_some_and(lasts);
        require("an ownership ends before another begins", !still, || "the former one lasts".to_owned());
        subject.expect_withdrawn(registration);
    }
    let (registry, published) = (subject.registry, entry("Store", "ebbets"));
    let registration = subject.publish(&published);
    expect("a process can withdraw its own entry by its name", true, || {
        registry.withdraw(&published.type_name, &published.instance)
    });
    let still = registration.ownership().is_some_and(|ownership| ownership.fence().is_some());
    require("an entry that is withdrawn by its name is owned no more", !still, || "it lasts".to_owned());
}

fn the_routes(subject: &Subject<'_>) {
    let routes = subject.registry.routes();
    require(
        "each of the registry's addresses is that of one host",
        !routes.iter().any(|ip| ip.is_unspecified()),
        || format!("they are {routes:?}, and one of them is all addresses of a host"),
    );
}
