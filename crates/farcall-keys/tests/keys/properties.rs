//! Property tests: decoders are total, and nothing that was changed is genuine.

use farcall_keys::{
    EnrolmentRequest, EnrolmentToken, EntryProof, Grant, Identity, OpenEnrolment, Policy, Presentation,
    PublicKey, RevocationList, Revoked, Rights, Template, Terms,
};
use proptest::prelude::*;

use crate::common::{AUTHORITY, CLIENT, NOW, grant, identity, key};

fn rights() -> impl Strategy<Value = Rights> {
    prop_oneof![Just(Rights::EXPORT), Just(Rights::IMPORT), Just(Rights::BOTH)]
}

prop_compose! {
    fn any_terms()(
        key in any::<[u8; 32]>(),
        principal in "[A-Za-z0-9_.@/:-]{1,64}",
        rights in rights(),
        type_name in "[A-Za-z0-9_][A-Za-z0-9._-]{0,30}|\\*",
        instance in "[A-Za-z0-9_][A-Za-z0-9._-]{0,30}\\*?|\\*",
        serial in any::<u64>(),
        expires in any::<u64>(),
    ) -> Terms {
        let scope = format!("{type_name}/{instance}").parse().unwrap();
        let principal = principal.parse().unwrap();
        Terms { key: Identity::from_entropy(key).public(), principal, rights, scope, serial, expires }
    }
}

proptest! {
    #[test]
    fn grants_are_read_back(terms in any_terms()) {
        let grant = identity(AUTHORITY).grant(terms.clone()).unwrap();
        let decoded = Grant::decode(&grant.encode()).unwrap();
        prop_assert!(decoded.is_genuine());
        prop_assert_eq!(decoded.terms(), &terms);
        prop_assert_eq!(decoded, grant);
    }

    #[test]
    fn a_changed_grant_is_not_genuine(at in any::<prop::sample::Index>(), flip in 1_u8..) {
        let good = grant(CLIENT, "alice", Rights::IMPORT, "Store/main").encode();
        let mut bytes = good.clone();
        bytes[at.index(good.len())] ^= flip;
        if let Ok(changed) = Grant::decode(&bytes) {
            prop_assert!(!changed.is_genuine());
            prop_assert_eq!(changed.encode(), bytes);
        }
    }

    #[test]
    fn a_changed_revocation_list_is_not_genuine(at in any::<prop::sample::Index>(), flip in 1_u8..) {
        let revoked = Revoked::new([key(CLIENT)], [1, 2]).unwrap();
        let mut bytes = identity(AUTHORITY).revoke(1, NOW, 60, revoked).encode();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        if let Ok(changed) = RevocationList::decode(&bytes) {
            prop_assert!(!changed.is_genuine());
            prop_assert_eq!(changed.encode(), bytes);
        }
    }

    #[test]
    fn decoders_are_total(bytes in prop::collection::vec(any::<u8>(), 0..800)) {
        let _ = (Grant::decode(&bytes), Presentation::decode(&bytes), RevocationList::decode(&bytes));
        farcall_keys::fuzz_key_file(&bytes);
        let text = String::from_utf8_lossy(&bytes);
        let _ = (text.parse::<PublicKey>(), text.parse::<Policy>(), text.parse::<EnrolmentToken>());
        let _ = (Identity::from_text(&text), Grant::from_text(&text));
        prop_assert!(EntryProof::verify("Store", "main", b"", &bytes).is_err());
        let template = Template {
            principal: "alice".parse().unwrap(),
            rights: Rights::IMPORT,
            scope: "Store".parse().unwrap(),
            seconds: 60,
        };
        let token = EnrolmentToken::issue(&key(AUTHORITY), "a:1", template, [9; 16], NOW).unwrap();
        let request = EnrolmentRequest::new(&token, &identity(CLIENT), &[5; 32]);
        prop_assert!(request.accept(&token, &bytes, NOW).is_err());
        prop_assert!(OpenEnrolment::new(token).answer(&identity(AUTHORITY), &bytes, 1, NOW).is_err());
    }

    #[test]
    fn decoders_are_total_near_what_is_sound(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        cut in any::<prop::sample::Index>(),
    ) {
        let [store, all] = ["Store", "*"].map(|scope| grant(CLIENT, "alice", Rights::IMPORT, scope));
        let mut bytes = Presentation::new(key(CLIENT), [store, all]).encode();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        if let Ok(presentation) = Presentation::decode(&bytes) {
            prop_assert_eq!(presentation.encode(), bytes);
        }
    }

    #[test]
    fn a_key_that_is_accepted_has_an_exchange_key(bytes in any::<[u8; 32]>()) {
        if let Ok(key) = PublicKey::from_bytes(bytes) {
            prop_assert_ne!(key.exchange_key(), [0; 32]);
            prop_assert_eq!(key.to_string().parse(), Ok(key));
        }
    }
}
