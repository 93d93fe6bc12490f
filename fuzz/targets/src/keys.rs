//! Fuzz targets for what shows who an end is: grants, presentations, proofs of registry
//! entries, revocation lists, key files and policies.

use farcall_keys::{
    EnrolmentToken, EntryProof, Grant, Identity, Keyring, Policy, Presentation, RevocationList, fuzz_key_file,
};

/// Decodes a grant, encodes what was decoded, and checks its signature.
pub fn grant(data: &[u8]) {
    if let Ok(grant) = Grant::decode(data) {
        assert_eq!(grant.encode(), data);
        let _ = grant.is_genuine();
    }
}

/// Decodes a presentation, and encodes what was decoded.
pub fn presentation(data: &[u8]) {
    if let Ok(presentation) = Presentation::decode(data) {
        assert_eq!(presentation.encode(), data);
        assert!(presentation.grants().iter().all(|grant| grant.terms().key == presentation.key()));
    }
}

/// Checks a proof of a registry entry. One that its key has signed is judged.
pub fn entry_proof(data: &[u8]) {
    let Ok(proof) = EntryProof::verify("Store", "main", b"", data) else { return };
    let importer = Keyring::new(Identity::from_entropy([7; 32]));
    // It trusts nobody.
    assert!(importer.check_entry(&proof, proof.expires().saturating_sub(1)).is_err());
}

/// Decodes a revocation list, encodes what was decoded, and finds what it has.
pub fn revocation_list(data: &[u8]) {
    let Ok(list) = RevocationList::decode(data) else { return };
    assert_eq!(list.encode(), data);
    let _ = list.is_genuine();
    assert!(list.revoked().grants().iter().all(|serial| list.has_grant(*serial)));
    assert!(list.revoked().keys().all(|key| list.has_key(&key)));
}

/// Reads the bytes after the first as the key file that the first byte names.
pub fn key_file(data: &[u8]) {
    fuzz_key_file(data);
}

/// Reads a policy and asks it for rights, and reads an enrolment token.
pub fn policy(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(policy) = text.parse::<Policy>() {
        let decision = policy.rights("alice", "Store", "main");
        assert!(!decision.denies_everything() || !decision.allows_procedure("get"));
        assert!(!decision.allows_every_procedure() || decision.allows_procedure("get"));
    }
    if let Ok(token) = text.parse::<EnrolmentToken>() {
        assert_eq!(token.to_text().as_str(), text.trim());
    }
}
