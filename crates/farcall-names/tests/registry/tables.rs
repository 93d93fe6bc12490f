//! Tests that every registry must pass. Each runs with the registry in memory and with the one in a file.

use std::sync::Arc;

use crate::common::{Scratch, entry, instances, label};
use farcall_names::{
    Error, File, Fingerprint, MAX_EXPORT, MAX_FINGERPRINTS, MAX_LABEL, MAX_PUBLIC_KEY, Memory, Registry,
};

fn with_each(test: fn(Arc<dyn Registry>)) {
    test(Arc::new(Memory::new()));
    let scratch = Scratch::new();
    test(Arc::new(File::at(scratch.join("registry"))));
}

#[test]
fn an_empty_registry_has_nothing() {
    with_each(|registry| {
        let ty = label("FileAccess");
        assert_eq!(registry.instances(&ty).unwrap(), []);
        assert_eq!(registry.lookup(&ty, &label("ebbets")).unwrap(), None);
        assert_eq!(registry.list().unwrap().entries, []);
        assert!(!registry.withdraw(&ty, &label("ebbets")).unwrap());
    });
}

#[test]
fn what_is_published_is_found_as_it_was() {
    with_each(|registry| {
        let mut ebbets = entry("ebbets");
        ebbets.fingerprints = [0, 7].map(|number| Fingerprint { number, types: u64::MAX, name: 1 }).into();
        ebbets.public_key = vec![0, 1, 0xff];
        let luther = entry("luther");
        let mut mail = entry("ebbets");
        mail.type_name = label("Mail");
        let _kept: Vec<_> = [&luther, &mail, &ebbets].map(|e| registry.publish(e).unwrap()).into();

        let ty = label("FileAccess");
        assert_eq!(registry.lookup(&ty, &label("ebbets")).unwrap().as_ref(), Some(&ebbets));
        assert_eq!(registry.lookup(&ty, &label("Ebbets")).unwrap(), None);
        assert_eq!(registry.instances(&ty).unwrap(), [ebbets.clone(), luther.clone()]);
        assert_eq!(registry.list().unwrap().entries, [ebbets, luther, mail]);
    });
}

#[test]
fn dropping_or_withdrawing_a_registration_withdraws_the_entry() {
    with_each(|registry| {
        let dropped = registry.publish(&entry("dropped")).unwrap();
        let withdrawn = registry.publish(&entry("withdrawn")).unwrap();
        let named = registry.publish(&entry("named")).unwrap();

        drop(dropped);
        assert_eq!(instances(&registry.list().unwrap().entries), ["named", "withdrawn"]);
        assert!(withdrawn.withdraw().unwrap());
        assert_eq!(instances(&registry.list().unwrap().entries), ["named"]);
        assert!(registry.withdraw(&label("FileAccess"), &label("named")).unwrap());
        assert_eq!(registry.list().unwrap().entries, []);
        assert!(!named.withdraw().unwrap(), "it was withdrawn already");
    });
}

#[test]
fn a_name_that_this_process_exports_is_refused_until_it_is_withdrawn() {
    with_each(|registry| {
        let first = registry.publish(&entry("ebbets")).unwrap();
        let mut other = entry("ebbets");
        (other.export, other.address) = (7, "udp://[::1]:7001".parse().unwrap());
        for second in [entry("ebbets"), other] {
            let refused = registry.publish(&second).unwrap_err();
            let here = std::process::id();
            let expected =
                format!("FileAccess/ebbets is already exported by process {here} at udp://127.0.0.1:7000");
            assert!(matches!(refused, Error::Taken { .. }));
            assert_eq!(refused.to_string(), expected);
        }
        assert_eq!(registry.list().unwrap().entries, [entry("ebbets")]);
        assert!(first.withdraw().unwrap());
        drop(registry.publish(&entry("ebbets")).unwrap());
    });
}

#[test]
fn a_registration_withdraws_nothing_that_was_published_after_it() {
    with_each(|registry| {
        let older = registry.publish(&entry("ebbets")).unwrap();
        assert!(registry.withdraw(&label("FileAccess"), &label("ebbets")).unwrap());
        // The export is the same, so only the registration's own mark distinguishes the two entries.
        let mut moved = entry("ebbets");
        moved.address = "udp://[::1]:7001".parse().unwrap();
        let newer = registry.publish(&moved).unwrap();
        assert!(!older.withdraw().unwrap());
        assert_eq!(registry.list().unwrap().entries, [moved]);
        assert!(matches!(registry.publish(&entry("ebbets")), Err(Error::Taken { .. })));
        assert!(newer.withdraw().unwrap());
    });
}

#[test]
fn an_entry_that_is_withdrawn_by_its_name_is_owned_no_more() {
    with_each(|registry| {
        let registration = registry.publish(&entry("ebbets")).unwrap();
        let Some(former) = registration.ownership().unwrap().fence() else { panic!("it is not owned") };
        assert!(registry.withdraw(&label("FileAccess"), &label("ebbets")).unwrap());
        assert_eq!(registration.ownership().unwrap().fence(), None);
        let next = registry.publish(&entry("ebbets")).unwrap();
        assert!(next.ownership().unwrap().fence() > Some(former));
        assert!(!registration.withdraw().unwrap());
    });
}

#[test]
fn every_change_changes_the_version() {
    with_each(|registry| {
        let mut seen = vec![registry.version().unwrap()];
        let mut next = |registry: &dyn Registry| {
            let version = registry.version().unwrap();
            assert_eq!(version, registry.list().unwrap().version);
            assert!(!seen.contains(&version), "{version} was there before: {seen:?}");
            seen.push(version);
        };
        let first = registry.publish(&entry("ebbets")).unwrap();
        next(&registry);
        let second = registry.publish(&entry("luther")).unwrap();
        next(&registry);
        drop(second);
        next(&registry);
        assert!(registry.withdraw(&label("FileAccess"), &label("ebbets")).unwrap());
        next(&registry);
        let before = registry.version().unwrap();
        drop(first);
        assert_eq!(registry.version().unwrap(), before, "nothing was withdrawn");
    });
}

#[test]
fn an_entry_at_a_bound_is_published_and_one_beyond_it_is_refused() {
    with_each(|registry| {
        for more in [0, 1] {
            let (mut named, mut known, mut proved) = (entry("ebbets"), entry("ebbets"), entry("ebbets"));
            named.type_name = label(&"T".repeat(MAX_LABEL));
            named.instance = label(&"i".repeat(MAX_EXPORT - 1 - MAX_LABEL + more));
            known.fingerprints = vec![Fingerprint { number: 1, types: 2, name: 3 }; MAX_FINGERPRINTS + more];
            proved.public_key = vec![0; MAX_PUBLIC_KEY + more];
            for (large, bound) in [(named, MAX_EXPORT), (known, MAX_FINGERPRINTS), (proved, MAX_PUBLIC_KEY)] {
                let published = registry.publish(&large);
                if more == 0 {
                    assert_eq!(registry.list().unwrap().entries, [large]);
                    continue;
                }
                let refused = published.unwrap_err();
                let exceeds = |size, limit| (size, limit) == (bound + 1, bound);
                let says_so = matches!(refused, Error::TooLarge { size, limit, .. } if exceeds(size, limit));
                assert!(says_so, "{refused:?}");
                assert_eq!(registry.list().unwrap().entries, []);
            }
        }
    });
}

#[test]
fn a_registry_of_this_machine_is_reached_by_loopback() {
    with_each(|registry| {
        assert_eq!(registry.routes(), [std::net::IpAddr::from(std::net::Ipv4Addr::LOCALHOST)])
    });
}

#[test]
fn threads_of_one_process_publish_at_once() {
    with_each(|registry| {
        let kept: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|thread| {
                    let registry = &registry;
                    scope.spawn(move || {
                        for round in 0..10 {
                            let brief = registry.publish(&entry(&format!("brief-{thread}-{round}"))).unwrap();
                            assert!(brief.withdraw().unwrap());
                        }
                        registry.publish(&entry(&format!("kept-{thread}"))).unwrap()
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(instances(&registry.list().unwrap().entries), ["kept-0", "kept-1", "kept-2", "kept-3"]);
        drop(kept);
    });
}
