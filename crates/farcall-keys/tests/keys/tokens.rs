//! Tests enrolment tokens.

use farcall_keys::{EnrolmentToken, Rights, Template, TokenError};

use crate::common::{AUTHORITY, NOW, hex, key};

fn token() -> EnrolmentToken {
    let template = Template {
        principal: "alice".parse().unwrap(),
        rights: Rights::IMPORT,
        scope: "Store/main".parse().unwrap(),
        seconds: 7_776_000,
    };
    EnrolmentToken::issue(&key(AUTHORITY), "10.0.0.7:7000", template, [9; 16], NOW).unwrap()
}

#[test]
fn a_token_is_carried_as_one_word() {
    let text = token().to_text();
    assert_eq!(
        *text,
        "farcall-enrol:AQHdMTCHEMDy01T8Esno_iUJCQkJCQkJCQkJCQkJCQkJAA\
         AAAGtJ1FgAdqcAAg0xMC4wLjAuNzo3MDAwBWFsaWNlBVN0b3JlBG1haW4"
    );
    let carried: EnrolmentToken = text.parse().unwrap();
    assert_eq!(carried.address(), "10.0.0.7:7000");
    assert_eq!(carried.authority(), key(AUTHORITY).fingerprint());
    assert_eq!(carried.template(), token().template());
    assert_eq!(carried.to_text(), text);
    let shown = format!("{carried:?}");
    assert!(shown.contains("10.0.0.7") && !shown.contains("secret") && !shown.contains("9, 9"), "{shown}");
}

#[test]
fn a_mac_counts_for_its_bytes_its_token_and_ten_minutes() {
    let mac = token().mac(b"key");
    assert_eq!(hex(&mac), "88889617548bf6a1992be57f31ee66be89c6ae277b6939e504041839ac0ba6a7");
    assert_eq!(token().check_mac(b"key", &mac, NOW + 599), Ok(()));
    assert_eq!(token().check_mac(b"key", &mac, NOW + 600), Err(TokenError::Expired(0)));
    let why = token().check_mac(b"other", &mac, NOW).unwrap_err();
    assert_eq!(
        why.to_string(),
        "expected a MAC by the token's secret; found another; use the token that was printed last"
    );
    let why = token().check_mac(b"key", &mac, NOW + 605).unwrap_err();
    assert_eq!(why, TokenError::Expired(5));
    assert_eq!(
        why.to_string(),
        "expected a token of the last ten minutes; found one that expired 5 s ago; get another"
    );
}

#[test]
fn what_is_no_token_is_refused() {
    let text = token().to_text();
    let why = |text: &str| text.parse::<EnrolmentToken>().unwrap_err().to_string();
    for (text, part) in [
        ("hello", "does not begin with \"farcall-enrol:\""),
        ("farcall-enrol:***", "not base64url"),
        (&text[..60], "it is truncated"),
        (&text[..14], "it is truncated"),
        (&format!("{}{}", *text, "A".repeat(2048)), "too long"),
    ] {
        let why = why(text);
        assert!(
            why.contains(part) && why.ends_with("; copy the whole token that the authority printed"),
            "{why}"
        );
    }
    let template = token().template().clone();
    for address in ["", "two words", "größe", &"a".repeat(256)] {
        let issued = EnrolmentToken::issue(&key(AUTHORITY), address, template.clone(), [9; 16], NOW);
        assert_eq!(issued.unwrap_err(), TokenError::Address);
    }
}
