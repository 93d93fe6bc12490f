//! Tests keys, signatures and encodings against fixed bytes.

use curve25519_dalek::MontgomeryPoint;
use farcall_keys::{
    Context, Grant, Identity, KeyError, MAX_GRANT_BYTES, MAX_PRESENTATION_BYTES, Presentation, PublicKey,
    RevocationList, Revoked, Rights, Terms,
};

use crate::common::{AUTHORITY, CLIENT, NOW, OTHER, grant, hex, identity, key, terms, unhex};

/// Seeds and keys of RFC 8032, section 7.1, tests 1 to 3.
const RFC_8032: [(&str, &str); 3] = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
    ),
];

/// Encodings of the points whose order divides 8, also those that are not canonical.
const WEAK: [&str; 8] = [
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
];

fn array<const N: usize>(text: &str) -> [u8; N] {
    unhex(text).try_into().unwrap()
}

#[test]
fn public_keys_are_those_of_rfc_8032() {
    for (seed, public) in RFC_8032 {
        assert_eq!(hex(Identity::from_entropy(array(seed)).public().as_bytes()), public);
    }
}

#[test]
fn exchange_keys_are_those_of_libsodium() {
    // libsodium, test/default/ed25519_convert.
    let identity =
        Identity::from_entropy(array("421151a459faeade3d247115f94aedae42318124095afabe4d1451a559faedee"));
    assert_eq!(
        hex(&identity.public().exchange_key()),
        "f1814f0e8ff1043d8a44d25babff3cedcae6c22c3edaa48f857ae70de2baae50"
    );
    assert_eq!(
        hex(identity.exchange_secret().as_slice()),
        "8052030376d47112be7f73ed7a019293dd12ad910b654455798b4667d73de166"
    );
}

#[test]
fn the_exchange_key_is_x25519_of_the_exchange_secret() {
    for number in 0..=255 {
        let identity = identity(number);
        let computed = MontgomeryPoint::mul_base_clamped(*identity.exchange_secret());
        assert_eq!(computed.to_bytes(), identity.public().exchange_key());
    }
    let [a, b] = [identity(1), identity(2)];
    let shared = |own: &Identity, other: &Identity| {
        MontgomeryPoint(other.public().exchange_key()).mul_clamped(*own.exchange_secret())
    };
    assert_eq!(shared(&a, &b), shared(&b, &a));
}

#[test]
fn weak_and_malformed_keys_are_refused() {
    for weak in WEAK {
        assert!(PublicKey::from_bytes(array(weak)).is_err(), "{weak}");
    }
    assert_eq!(PublicKey::from_bytes(array(WEAK[0])), Err(KeyError::Weak));
    // y = p + 3 is another encoding of the point with y = 3.
    let double = "f0ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f";
    assert_eq!(PublicKey::from_bytes(array(double)), Err(KeyError::NotAPoint));
    assert_eq!(PublicKey::from_bytes([2; 32]), Err(KeyError::NotAPoint));
    let text = key(1).to_string();
    for (text, why) in [
        ("", "a public key has 44 characters of base64, not 0"),
        (&text[..43], "a public key has 44 characters of base64, not 43"),
        (&text.replace('=', "A"), "a public key is standard base64 of 32 bytes"),
        (&text.replace('=', "*"), "a public key is standard base64 of 32 bytes"),
        ("AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "this public key is weak: anybody can sign for it"),
        (&identity(1).to_text(), "this is a private key, and a public key is expected"),
    ] {
        assert_eq!(text.parse::<PublicKey>().unwrap_err().to_string(), why);
    }
}

#[test]
fn texts_of_keys_are_read_back_and_secrets_are_not_shown() {
    let identity = identity(7);
    let public = identity.public();
    assert_eq!(public.to_string().parse(), Ok(public));
    assert_eq!(public.fingerprint().to_string(), "5c58-ec2b-a2c6-7495-ee20-a3e6-cee8-3667");
    let text = identity.to_text();
    assert_eq!(*text, "private:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=");
    assert_eq!(Identity::from_text(&text).unwrap().public(), public);
    for wrong in ["", "private:", &text[8..], &text[..50], &format!("{}A", *text), "private:****"] {
        assert!(Identity::from_text(wrong).is_none(), "{wrong}");
    }
    let shown = format!("{identity:?} {:?}", farcall_keys::Keyring::new(Identity::from_entropy([7; 32])));
    assert!(
        shown.contains("private key hidden") && !shown.contains("BwcH") && !shown.contains("7, 7"),
        "{shown}"
    );
}

#[test]
fn a_signature_counts_in_its_own_context_only() {
    const THIS: Context = Context::new("test 1");
    let signature = identity(1).sign(THIS, b"bytes");
    assert!(key(1).verify(THIS, b"bytes", &signature));
    assert!(!key(1).verify(THIS, b"byte", &signature));
    assert!(!key(2).verify(THIS, b"bytes", &signature));
    assert!(!key(1).verify(Context::new("test 2"), b"bytes", &signature));
    // No context is the beginning of another with its bytes.
    assert!(!key(1).verify(Context::new("test 1b"), b"ytes", &signature));
}

#[test]
fn a_grant_has_these_bytes() {
    let grant = grant(CLIENT, "alice", Rights::IMPORT, "Store/replica-*");
    let expected = "\
         018a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f \
         5ced4928c628d1c2c6eae90338905995612959273a5c63f93636c14614ac8737 \
         d1020000000000000007000000006bc0790005616c6963650553746f72650972 \
         65706c6963612d2a080d20beb602e40e4d9025e353277a291c64a61102d9333a \
         e7de695c6ea50408488f6374ae5c15f35354b9ba2e2b50b2831999da8b1e86c6 \
         522bca15d72b5d0f";
    assert_eq!(hex(&grant.encode()), expected.split_whitespace().collect::<String>());
    let decoded = Grant::decode(&unhex(expected)).unwrap();
    assert!(decoded == grant && decoded.is_genuine() && decoded.authority() == key(AUTHORITY));
    assert_eq!(Grant::from_text(&grant.to_text()), Ok(grant));
}

#[test]
fn a_presentation_has_these_bytes() {
    let presentation = Presentation::new(key(CLIENT), [grant(CLIENT, "a", Rights::BOTH, "*")]);
    let expected = "\
         01ed4928c628d1c2c6eae90338905995612959273a5c63f93636c14614ac8737 \
         d1010098018a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf37488 \
         01b40f6f5ced4928c628d1c2c6eae90338905995612959273a5c63f93636c146 \
         14ac8737d1030000000000000007000000006bc079000161012a012a855ea1bf \
         0df4d035e429c66d2da92880300a2df1ae63732f7b101eaf19af2664353297a0 \
         abe3bffb0638604865fd5fb9f2ce92f2b69f9b4f63602096e2c4e008";
    assert_eq!(hex(&presentation.encode()), expected.split_whitespace().collect::<String>());
    assert_eq!(Presentation::decode(&unhex(expected)), Ok(presentation));
}

#[test]
fn a_revocation_list_has_these_bytes() {
    let revoked = Revoked::new([key(OTHER), key(CLIENT), key(OTHER)], [9, 4, 9]).unwrap();
    let list = identity(AUTHORITY).revoke(3, NOW, 604_800, revoked);
    let expected = "\
         018a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f \
         5c0000000000000003000000006b49d2000000000000093a8000000002ca93ac \
         1705187071d67b83c7ff0efe8108e8ec4530575d7726879333dbdabe7ced4928 \
         c628d1c2c6eae90338905995612959273a5c63f93636c14614ac8737d1000000 \
         0200000000000000040000000000000009d837ccdef073492dd4a0ec22d405bc \
         c478d437a0bc8177e9582cc2cb6607d0bf1d0ff434eb8c46f783ab8cc02c6341 \
         d1216426fa287bb2ab623421d8a79a1c0b";
    assert_eq!(hex(&list.encode()), expected.split_whitespace().collect::<String>());
    let decoded = RevocationList::decode(&unhex(expected)).unwrap();
    assert!(decoded == list && decoded.is_genuine());
    assert_eq!((decoded.serial(), decoded.issued(), decoded.greatest_age()), (3, NOW, 604_800));
    assert_eq!(decoded.revoked().grants(), [4, 9]);
    assert_eq!(decoded.revoked().keys().count(), 2);
}

#[test]
fn what_is_wrong_in_a_grant_is_said_with_its_place() {
    let good = grant(CLIENT, "alice", Rights::IMPORT, "Store/main").encode();
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        Grant::decode(&bytes).unwrap_err().to_string()
    };
    assert_eq!(with(0, 2), "not a grant: at byte 1: version 2 is unknown; this farcall reads version 1");
    assert_eq!(with(65, 4), "not a grant: at byte 66: rights are 1, 2 or 3, not 4");
    assert_eq!(
        with(83, b' '),
        "not a grant: at byte 88: expected a principal: 1 to 64 letters, digits and -_.@/:; found \" lice\""
    );
    assert_eq!(with(88, 255), "not a grant: at byte 89: expected 255 bytes, found 74: it is truncated");
    assert!(with(89, b'*').ends_with("found \"*tore\""), "{}", with(89, b'*'));
    let more = Grant::decode(&[good.clone(), vec![0]].concat()).unwrap_err();
    assert_eq!(
        (more.to_string().as_str(), more.at()),
        ("not a grant: at byte 163: 1 bytes follow the end", 163)
    );
    let large = Grant::decode(&[0; MAX_GRANT_BYTES + 1]).unwrap_err().to_string();
    assert_eq!(large, "not a grant: at byte 0: 321 bytes, and a grant has at most 320");
    for length in 0..good.len() {
        assert!(Grant::decode(&good[..length]).is_err(), "{length}");
    }
    let why = Grant::from_text("no base64").unwrap_err().to_string();
    assert_eq!(why, "not a grant: at byte 0: \"no base64\" is not standard base64");
}

#[test]
fn the_largest_grants_fit_and_larger_ones_are_not_signed() {
    let long = |principal: usize, instance: usize| Terms {
        principal: "p".repeat(principal).parse().unwrap(),
        scope: format!("Store/{}", "i".repeat(instance)).parse().unwrap(),
        ..terms(CLIENT, "x", Rights::BOTH, "*")
    };
    let largest = identity(AUTHORITY).grant(long(64, 102)).unwrap();
    assert_eq!(largest.encode().len(), MAX_GRANT_BYTES);
    let shown = |grant: &Grant| {
        let shown = Presentation::new(key(CLIENT), [grant.clone(), grant.clone(), grant.clone()]);
        let encoded = shown.encode();
        let facts = (shown.grants().len(), encoded.len());
        assert!(Presentation::decode(&encoded) == Ok(shown));
        facts
    };
    // Any grant can be shown, and a second one if there is room.
    assert_eq!(shown(&largest), (1, 356));
    let half = |instance| identity(AUTHORITY).grant(long(32, instance)).unwrap();
    assert_eq!(shown(&half(45)), (2, MAX_PRESENTATION_BYTES));
    assert_eq!(shown(&half(46)).0, 1);
    let why = identity(AUTHORITY).grant(long(64, 103)).unwrap_err();
    assert_eq!(
        why.to_string(),
        "the principal, the type and the instance of a grant have at most 171 bytes together; these have \
         172; use shorter names, or a beginning of the instance with * behind it"
    );
}

#[test]
fn what_is_wrong_in_a_presentation_is_said() {
    let good = Presentation::new(key(CLIENT), [grant(CLIENT, "a", Rights::BOTH, "*")]).encode();
    let why = |bytes: &[u8]| Presentation::decode(bytes).unwrap_err().to_string();
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        why(&bytes)
    };
    assert!(with(0, 0).contains("version 0 is unknown"));
    assert_eq!(with(33, 3), "not a presentation: at byte 34: 3 grants, and at most 2 can be shown");
    assert!(with(33, 2).contains("it is truncated"));
    assert!(with(33, 0).contains("bytes follow the end"));
    assert!(with(36, 9).contains("not a grant: at byte 1: version 9"));
    let mut stolen = good.clone();
    stolen[1..33].copy_from_slice(key(OTHER).as_bytes());
    assert!(why(&stolen).ends_with("this grant is for another key than the one that shows it"));
    assert!(why(&[0; MAX_PRESENTATION_BYTES + 1]).contains("501 bytes, and a presentation has at most 500"));
    assert!(Presentation::new(key(OTHER), [grant(CLIENT, "a", Rights::BOTH, "*")]).grants().is_empty());
}

#[test]
fn a_revocation_list_has_bounds_and_an_order() {
    let list = |grants: std::ops::Range<u64>| {
        Revoked::new([], grants).map(|revoked| identity(AUTHORITY).revoke(1, NOW, 1, revoked))
    };
    assert!(list(0..100_001).is_none());
    let largest = list(0..100_000).unwrap();
    assert!(RevocationList::decode(&largest.encode()).as_ref() == Ok(&largest) && largest.is_genuine());
    let bytes = list(0..2).unwrap().encode();
    let mut many = bytes.clone();
    many[57..61].copy_from_slice(&100_001_u32.to_be_bytes());
    assert!(
        RevocationList::decode(&many).unwrap_err().to_string().contains("100001 entries of 32 bytes, but")
    );
    let mut together = bytes[..57].to_vec();
    together.extend_from_slice(&60_000_u32.to_be_bytes());
    (0..60_000_u32).for_each(|key| together.extend_from_slice(&[&key.to_be_bytes()[..], &[0; 28]].concat()));
    together.extend_from_slice(&60_000_u32.to_be_bytes());
    (0..60_000_u64).for_each(|serial| together.extend_from_slice(&serial.to_be_bytes()));
    together.extend_from_slice(&[0; 64]);
    let why = RevocationList::decode(&together).unwrap_err().to_string();
    assert!(why.contains("60000 entries of 8 bytes, but"), "{why}");
    let mut swapped = bytes.clone();
    swapped[65..73].copy_from_slice(&bytes[73..81]);
    swapped[73..81].copy_from_slice(&bytes[65..73]);
    assert!(RevocationList::decode(&swapped).unwrap_err().to_string().contains("not in ascending order"));
    swapped[65..73].copy_from_slice(&bytes[65..73]);
    assert!(RevocationList::decode(&swapped).is_err(), "twice the same");
}
