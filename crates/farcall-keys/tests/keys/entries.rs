//! Tests proofs of registry entries: what they count for, and that whatever is changed in one is noticed.

use farcall_keys::{
    ENTRY_SECONDS, EntryProof, Grant, Keyring, MAX_CLOCK_DIFFERENCE_SECONDS, MAX_ENTRY_PROOF_BYTES, Refusal,
    RefusalKind, Revoked, Rights,
};

use crate::common::{AUTHORITY, CLIENT, DAY, NOW, OTHER, SERVER, grant, identity, key, terms, unhex};

const CONTENTS: &[u8] = b"udp://10.0.0.7:7000";

/// Returns the keys of a client that trusts the authority.
fn client() -> Keyring {
    Keyring::new(identity(CLIENT)).with_authority(key(AUTHORITY))
}

fn exporter(who: u8, grants: impl IntoIterator<Item = Grant>) -> Keyring {
    grants.into_iter().fold(Keyring::new(identity(who)), |keyring, grant| keyring.with_grant(grant).unwrap())
}

/// Returns the keys of a server that may export the names of a scope.
fn server(scope: &str) -> Keyring {
    exporter(SERVER, [grant(SERVER, "stored", Rights::EXPORT, scope)])
}

/// Judges a proof of `Store/main` as an importer does.
fn judge(client: &Keyring, proof: &[u8], now: u64) -> Result<String, Refusal> {
    let checked = EntryProof::verify("Store", "main", CONTENTS, proof)?;
    client.check_entry(&checked, now).map(|principal| principal.name.to_string())
}

/// Returns why a proof of `Store/main` is refused.
fn refused(client: &Keyring, proof: &[u8], now: u64) -> RefusalKind {
    let why = judge(client, proof, now).unwrap_err();
    let text = why.to_string();
    assert!(text.starts_with("expected ") && text.contains("; found ") && !text.contains('\n'), "{text}");
    why.kind()
}

#[test]
fn an_entry_counts_if_its_key_may_export_the_name() {
    for scope in ["Store/main", "Store/m*", "Store", "*"] {
        let proof = server(scope).prove_entry("Store", "main", CONTENTS, NOW);
        assert_eq!(judge(&client(), &proof, NOW).unwrap(), "stored", "{scope}");
    }
    // A key of `known_servers` needs no grant.
    let pinned = client().with_known_server(format!("Store/main {}", key(OTHER)).parse().unwrap());
    let proof = exporter(OTHER, []).prove_entry("Store", "main", CONTENTS, NOW);
    assert!(judge(&pinned, &proof, NOW).is_ok());
    // It keeps the grants of other keys from counting for its name.
    let proof = server("Store").prove_entry("Store", "main", CONTENTS, NOW);
    assert_eq!(refused(&pinned, &proof, NOW), RefusalKind::Pinned);
}

#[test]
fn an_entry_of_a_key_that_may_not_export_the_name_does_not_count() {
    // The exporter shows no grant for another name, so these are made as if it did.
    let by = |grant: Grant| {
        let proof = exporter(SERVER, [grant]).prove_entry("", "", CONTENTS, NOW);
        let checked = EntryProof::verify("", "", CONTENTS, &proof).unwrap();
        assert_eq!(checked.expires(), NOW + ENTRY_SECONDS);
        proof
    };
    let other_name = by(grant(SERVER, "cached", Rights::EXPORT, "Cache"));
    // What was signed for no name is none for this one.
    assert_eq!(refused(&client(), &other_name, NOW), RefusalKind::Forged);
    let without = exporter(SERVER, [grant(SERVER, "cached", Rights::EXPORT, "Cache")]);
    let proof = without.prove_entry("Store", "main", CONTENTS, NOW);
    assert_eq!(refused(&client(), &proof, NOW), RefusalKind::UnknownKey);
    let importer = exporter(SERVER, [grant(SERVER, "stored", Rights::IMPORT, "Store")]);
    let proof = importer.prove_entry("Store", "main", CONTENTS, NOW);
    assert_eq!(refused(&client(), &proof, NOW), RefusalKind::UnknownKey);
    let untrusting = Keyring::new(identity(CLIENT));
    let proof = server("Store").prove_entry("Store", "main", CONTENTS, NOW);
    assert_eq!(refused(&untrusting, &proof, NOW), RefusalKind::UntrustedAuthority);
}

#[test]
fn an_entry_counts_for_ten_minutes_and_its_grant_and_key_may_end_earlier() {
    let proof = server("Store").prove_entry("Store", "main", CONTENTS, NOW);
    assert!(judge(&client(), &proof, NOW + ENTRY_SECONDS - 1).is_ok());
    assert_eq!(refused(&client(), &proof, NOW + ENTRY_SECONDS), RefusalKind::Expired);
    // The importer's clock may be late, but not by so much that an entry would count for longer.
    assert!(judge(&client(), &proof, NOW - MAX_CLOCK_DIFFERENCE_SECONDS).is_ok());
    let too_late = NOW - MAX_CLOCK_DIFFERENCE_SECONDS - 1;
    assert_eq!(refused(&client(), &proof, too_late), RefusalKind::WrongClock);
    for now in [0, u64::MAX] {
        assert!(judge(&client(), &proof, now).is_err(), "{now}");
    }

    let mut short = terms(SERVER, "stored", Rights::EXPORT, "Store");
    short.expires = NOW + 60;
    let proof = exporter(SERVER, [identity(AUTHORITY).grant(short).unwrap()]);
    let proof = proof.prove_entry("Store", "main", CONTENTS, NOW);
    assert!(judge(&client(), &proof, NOW + 59).is_ok());
    assert_eq!(refused(&client(), &proof, NOW + 60), RefusalKind::Expired);

    let proof = server("Store").prove_entry("Store", "main", CONTENTS, NOW);
    let list = |keys: &[_], grants: &[u64]| {
        let revoked = Revoked::new(keys.iter().copied(), grants.iter().copied()).unwrap();
        client().with_revocations(identity(AUTHORITY).revoke(1, NOW, DAY, revoked)).unwrap()
    };
    assert!(judge(&list(&[key(OTHER)], &[8]), &proof, NOW).is_ok());
    assert_eq!(refused(&list(&[key(SERVER)], &[]), &proof, NOW), RefusalKind::Revoked);
    assert_eq!(refused(&list(&[], &[7]), &proof, NOW), RefusalKind::Revoked);
    let late = server("Store").prove_entry("Store", "main", CONTENTS, NOW + 2 * DAY);
    assert_eq!(refused(&list(&[], &[]), &late, NOW + 2 * DAY), RefusalKind::StaleRevocations);
}

#[test]
fn whatever_is_changed_in_an_entry_or_its_proof_is_noticed() {
    let proof = server("Store").prove_entry("Store", "main", CONTENTS, NOW);
    for (type_name, instance, contents) in [
        ("Store", "mai", CONTENTS),
        ("Stor", "emain", CONTENTS),
        ("Store", "other", CONTENTS),
        ("Cache", "main", CONTENTS),
        ("Store", "main", b"udp://10.0.0.8:7000".as_slice()),
        ("Store", "main", b""),
    ] {
        let why = EntryProof::verify(type_name, instance, contents, &proof).unwrap_err();
        assert_eq!(why.kind(), RefusalKind::Forged, "{type_name}/{instance}");
    }
    for at in 0..proof.len() {
        for bit in [1, 0x80] {
            let mut changed = proof.clone();
            changed[at] ^= bit;
            assert!(judge(&client(), &changed, NOW).is_err(), "byte {at}");
        }
        assert_eq!(
            refused(&client(), &proof[..at], NOW),
            match at {
                0 => RefusalKind::Unsigned,
                _ => RefusalKind::Malformed,
            }
        );
    }
    assert_eq!(refused(&client(), &[&proof[..], &[0]].concat(), NOW), RefusalKind::Malformed);
    assert_eq!(refused(&client(), &[1; MAX_ENTRY_PROOF_BYTES + 1], NOW), RefusalKind::Malformed);
}

#[test]
fn a_genuine_grant_of_another_key_is_worth_nothing() {
    // Who owns the registry has seen the server's grant, and signs with a key of its own.
    let own = exporter(OTHER, []).prove_entry("Store", "main", CONTENTS, NOW);
    assert_eq!(refused(&client(), &own, NOW), RefusalKind::UnknownKey);
    let shown = server("Store").prove_entry("Store", "main", CONTENTS, NOW);
    let mut stolen = shown.clone();
    // The key stands after the version, the expiry, the length, and the version of the presentation.
    stolen[12..44].copy_from_slice(key(OTHER).as_bytes());
    assert_eq!(refused(&client(), &stolen, NOW), RefusalKind::Malformed, "the grant is for another key");
    // A grant that it signed itself, for a key of its own.
    let forged = identity(OTHER).grant(terms(OTHER, "stored", Rights::EXPORT, "Store")).unwrap();
    let proof = exporter(OTHER, [forged]).prove_entry("Store", "main", CONTENTS, NOW);
    assert_eq!(refused(&client(), &proof, NOW), RefusalKind::UntrustedAuthority);
}

#[test]
fn a_grant_with_another_signature_makes_the_proof_no_proof() {
    let good = terms(OTHER, "stored", Rights::EXPORT, "Store");
    let mut forged = identity(AUTHORITY).grant(good).unwrap().encode();
    *forged.last_mut().unwrap() ^= 1;
    // No keyring takes the grant, so the proof is put together by hand: a signature over what a proof shows.
    let shown = farcall_keys::Presentation::new(key(OTHER), [Grant::decode(&forged).unwrap()]).encode();
    let mut proof = vec![1];
    proof.extend_from_slice(&(NOW + ENTRY_SECONDS).to_be_bytes());
    proof.extend_from_slice(&(shown.len() as u16).to_be_bytes());
    proof.extend_from_slice(&shown);
    let message = [&proof[..], b"\x05Store\x04main", CONTENTS].concat();
    let context = farcall_keys::Context::new("farcall registry entry 1");
    proof.extend_from_slice(&identity(OTHER).sign(context, &message));
    assert_eq!(refused(&client(), &proof, NOW), RefusalKind::Forged);
    // In another context the same signature is none.
    let genuine = exporter(OTHER, []).prove_entry("Store", "main", CONTENTS, NOW);
    let head = &genuine[..genuine.len() - 64];
    let message = [head, b"\x05Store\x04main", CONTENTS].concat();
    let other = identity(OTHER).sign(farcall_keys::Context::new("farcall grant 1"), &message);
    assert_eq!(refused(&client(), &[head, &other[..]].concat(), NOW), RefusalKind::Forged);
}

#[test]
fn the_largest_proof_is_within_its_bound_and_a_digest_covers_all_parts() {
    let (type_name, instance) = ("T".repeat(30), "i".repeat(20));
    let grants = [AUTHORITY, OTHER].map(|authority| {
        let scope = format!("{type_name}/{instance}");
        let terms = terms(SERVER, &"p".repeat(32), Rights::EXPORT, &scope);
        identity(authority).grant(terms).unwrap()
    });
    let proof = exporter(SERVER, grants).prove_entry(&type_name, &instance, CONTENTS, NOW);
    assert_eq!(proof.len(), MAX_ENTRY_PROOF_BYTES);
    let checked = EntryProof::verify(&type_name, &instance, CONTENTS, &proof).unwrap();
    assert!(client().check_entry(&checked, NOW).is_ok());
    let digest = EntryProof::digest("Store", "main", CONTENTS, b"proof");
    for (type_name, instance, contents, proof) in [
        ("Stor", "emain", CONTENTS, b"proof".as_slice()),
        ("Store", "mai", CONTENTS, b"proof"),
        ("Store", "main", b"udp://10.0.0.8:7000", b"proof"),
        ("Store", "main", CONTENTS, b"proo"),
    ] {
        assert_ne!(EntryProof::digest(type_name, instance, contents, proof), digest);
    }
    assert_eq!(EntryProof::digest("Store", "main", CONTENTS, b"proof"), digest);
}

#[test]
fn a_proof_has_these_bytes() {
    let proof = exporter(SERVER, []).prove_entry("Store", "main", CONTENTS, NOW);
    let expected = "\
        01000000006b49d4580022018139770ea87d175f56a35466c34c7ecccb8d8a91 \
        b4ee37a25df60f5b8fc9b394006d3e9c55fd3479506752aed1571598c60f14f4 \
        902ea1e8bc2e290f64d1ad006a832085cf6ab356cf357071029b33fc85abdef1 \
        0a2b331b34e3dd223ec9e1fe05";
    assert_eq!(proof, unhex(expected));
}
