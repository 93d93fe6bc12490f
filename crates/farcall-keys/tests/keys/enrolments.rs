//! Tests enrolment: one use, ten minutes, and what somebody on the way or without the token can do.

use farcall_keys::{
    EnrolmentError, EnrolmentRequest, EnrolmentToken, MAX_ENROLMENT_BYTES, MAX_WRONG_ATTEMPTS, OpenEnrolment,
    RefusalKind, Rights, Template,
};

use crate::common::{AUTHORITY, CLIENT, NOW, OTHER, identity, key};

/// Where a request has its parts.
const NAME: usize = 1;
const KEY: usize = 17;

fn template() -> Template {
    Template {
        principal: "alice".parse().unwrap(),
        rights: Rights::IMPORT,
        scope: "Store/main".parse().unwrap(),
        seconds: 7_776_000,
    }
}

fn token(secret: u8) -> EnrolmentToken {
    EnrolmentToken::issue(&key(AUTHORITY), "10.0.0.7:7000", template(), [secret; 16], NOW).unwrap()
}

fn request(token: &EnrolmentToken, who: u8) -> EnrolmentRequest {
    EnrolmentRequest::new(token, &identity(who), &[5; 32])
}

fn answer(open: &mut OpenEnrolment, request: &[u8], now: u64) -> Result<Vec<u8>, EnrolmentError> {
    open.answer(&identity(AUTHORITY), request, 17, now)
}

#[test]
fn a_machine_with_the_token_gets_its_grant_and_the_authoritys_key() {
    let (token, mut open) = (token(9), OpenEnrolment::new(token(9)));
    let request = request(&token, CLIENT);
    let answer = answer(&mut open, request.as_bytes(), NOW + 599).unwrap();
    assert!(answer.len() <= MAX_ENROLMENT_BYTES && request.as_bytes().len() <= MAX_ENROLMENT_BYTES);
    let (authority, grant) = request.accept(&token, &answer, NOW + 599).unwrap();
    assert_eq!((authority, grant.authority()), (key(AUTHORITY), key(AUTHORITY)));
    let terms = grant.terms();
    assert_eq!((terms.key, &**terms.principal, terms.serial), (key(CLIENT), "alice", 17));
    assert_eq!((terms.rights, terms.expires), (Rights::IMPORT, NOW + 599 + 7_776_000));
    assert_eq!(open.signed(), Some(&grant));
}

#[test]
fn neither_message_has_the_secret_or_a_part_of_it() {
    let secret: [u8; 16] = std::array::from_fn(|n| 0xa0 + n as u8);
    let token = EnrolmentToken::issue(&key(AUTHORITY), "a:1", template(), secret, NOW).unwrap();
    let (request, mut open) = (request(&token, CLIENT), OpenEnrolment::new(token));
    let answer = answer(&mut open, request.as_bytes(), NOW).unwrap();
    for message in [request.as_bytes(), &answer] {
        for part in secret.windows(4) {
            assert!(!message.windows(4).any(|found| found == part));
        }
    }
}

#[test]
fn a_token_is_for_one_key_for_ten_minutes() {
    let mut open = OpenEnrolment::new(token(9));
    let (first, second) = (request(&token(9), CLIENT), request(&token(9), OTHER));
    let expired = answer(&mut open, first.as_bytes(), NOW + 600);
    assert_eq!(expired, Err(EnrolmentError::Expired(0)));
    assert_eq!(open.signed(), None);
    let given = answer(&mut open, first.as_bytes(), NOW).unwrap();
    // The answer may be lost, so the same key gets the same grant again, also for a new request.
    assert_eq!(answer(&mut open, first.as_bytes(), NOW + 9), Ok(given));
    let again = EnrolmentRequest::new(&token(9), &identity(CLIENT), &[6; 32]);
    let given = open.answer(&identity(AUTHORITY), again.as_bytes(), 18, NOW + 10).unwrap();
    let (_, grant) = again.accept(&token(9), &given, NOW + 10).unwrap();
    assert_eq!((grant.terms().serial, grant.terms().expires), (17, NOW + 7_776_000));
    let used = answer(&mut open, second.as_bytes(), NOW);
    assert_eq!(used, Err(EnrolmentError::Used(key(CLIENT).fingerprint())));
    assert_eq!(answer(&mut open, first.as_bytes(), NOW + 600), Err(EnrolmentError::Expired(0)));
}

#[test]
fn who_does_not_have_the_token_gets_nothing_and_may_not_guess_without_end() {
    let mut open = OpenEnrolment::new(token(9));
    let good = request(&token(9), CLIENT);
    // A stranger does not even know the token's name; who has seen a request knows it.
    let stranger = request(&token(8), OTHER);
    assert_eq!(answer(&mut open, stranger.as_bytes(), NOW), Err(EnrolmentError::OtherToken));
    let mut guess = stranger.as_bytes().to_vec();
    guess[NAME..KEY].copy_from_slice(&good.as_bytes()[NAME..KEY]);
    for _ in 0..MAX_WRONG_ATTEMPTS {
        assert_eq!(answer(&mut open, &guess, NOW), Err(EnrolmentError::WrongMac));
    }
    // From then on nothing is computed, so the token is lost. That is the worst that a stranger can do.
    assert_eq!(answer(&mut open, &guess, NOW), Err(EnrolmentError::TooManyAttempts));
    assert_eq!(answer(&mut open, good.as_bytes(), NOW), Err(EnrolmentError::TooManyAttempts));
    assert_eq!(open.signed(), None);
}

#[test]
fn somebody_on_the_way_can_change_nothing() {
    let good = request(&token(9), CLIENT);
    for at in 0..good.as_bytes().len() {
        let mut changed = good.as_bytes().to_vec();
        changed[at] ^= 1;
        let mut open = OpenEnrolment::new(token(9));
        assert!(answer(&mut open, &changed, NOW).is_err(), "byte {at}");
        assert!(answer(&mut open, &good.as_bytes()[..at], NOW).is_err(), "{at} bytes");
        assert_eq!(open.signed(), None);
    }
    let mut open = OpenEnrolment::new(token(9));
    assert!(answer(&mut open, &[good.as_bytes(), &[0]].concat(), NOW).is_err());
    let given = answer(&mut open, good.as_bytes(), NOW).unwrap();
    for at in 0..given.len() {
        let mut changed = given.clone();
        changed[at] ^= 1;
        assert!(good.accept(&token(9), &changed, NOW).is_err(), "byte {at}");
        assert!(good.accept(&token(9), &given[..at], NOW).is_err(), "{at} bytes");
    }
    // An answer is for one request, and a request is no answer.
    let other = EnrolmentRequest::new(&token(9), &identity(CLIENT), &[6; 32]);
    assert_eq!(other.accept(&token(9), &given, NOW).unwrap_err().kind(), RefusalKind::Forged);
    assert!(good.accept(&token(9), good.as_bytes(), NOW).is_err());
    assert!(answer(&mut open, &given, NOW).is_err());
}

#[test]
fn somebody_with_the_token_cannot_be_the_authority_nor_enrol_a_key_that_is_not_his() {
    let good = request(&token(9), CLIENT);
    // He answers in the authority's place, with the token's MAC and a grant of his own.
    let mut his = OpenEnrolment::new(token(9));
    let given = his.answer(&identity(OTHER), good.as_bytes(), 17, NOW).unwrap();
    let why = good.accept(&token(9), &given, NOW).unwrap_err();
    assert_eq!(why.kind(), RefusalKind::OtherKey);
    assert!(why.to_string().contains(&key(AUTHORITY).fingerprint().to_string()), "{why}");
    // He shows the authority's key with his own grant.
    let mut mixed = given;
    mixed[1..33].copy_from_slice(key(AUTHORITY).as_bytes());
    let end = mixed.len() - 32;
    let mac = token(9).mac(&[&[2], good.as_bytes(), &mixed[..end]].concat());
    mixed[end..].copy_from_slice(&mac);
    assert_eq!(good.accept(&token(9), &mixed, NOW).unwrap_err().kind(), RefusalKind::Forged);
    // He asks for a grant for a key of somebody else.
    let mut stolen = request(&token(9), OTHER).as_bytes().to_vec();
    stolen[KEY..KEY + 32].copy_from_slice(key(CLIENT).as_bytes());
    let end = stolen.len() - 32;
    let mac = token(9).mac(&[&[1], &stolen[..end]].concat());
    stolen[end..].copy_from_slice(&mac);
    let mut open = OpenEnrolment::new(token(9));
    assert_eq!(answer(&mut open, &stolen, NOW), Err(EnrolmentError::NotItsKey));
}

#[test]
fn a_machine_takes_only_the_grant_that_its_token_promises() {
    let good = request(&token(9), CLIENT);
    // The authority's program signs by another template than the token says.
    let by = |change: fn(&mut Template), now| {
        let mut other = template();
        change(&mut other);
        let token_there = EnrolmentToken::issue(&key(AUTHORITY), "a:1", other, [9; 16], now).unwrap();
        let given = answer(&mut OpenEnrolment::new(token_there), good.as_bytes(), now).unwrap();
        good.accept(&token(9), &given, NOW).map_err(|why| why.kind())
    };
    assert!(by(|_| {}, NOW).is_ok());
    assert_eq!(by(|it| it.principal = "eve".parse().unwrap(), NOW), Err(RefusalKind::WrongName));
    assert_eq!(by(|it| it.rights = Rights::BOTH, NOW), Err(RefusalKind::WrongName));
    assert_eq!(by(|it| it.scope = "*".parse().unwrap(), NOW), Err(RefusalKind::WrongName));
    assert_eq!(by(|it| it.seconds += 301, NOW), Err(RefusalKind::WrongClock));
    assert_eq!(by(|it| it.seconds = 0, NOW), Err(RefusalKind::WrongClock));
    assert!(by(|_| {}, NOW + 300).is_ok());
    assert_eq!(by(|_| {}, NOW + 301), Err(RefusalKind::WrongClock));
}

#[test]
fn errors_say_what_was_expected_and_what_to_do() {
    for why in [
        EnrolmentError::Malformed("nothing".to_owned()),
        EnrolmentError::OtherToken,
        EnrolmentError::Expired(3),
        EnrolmentError::WrongMac,
        EnrolmentError::TooManyAttempts,
        EnrolmentError::Used(key(CLIENT).fingerprint()),
        EnrolmentError::NotItsKey,
    ] {
        let text = why.to_string();
        assert!(text.starts_with("expected ") && text.contains("; found "), "{text}");
        assert_eq!(text.split("; ").count(), 3, "{text}");
    }
}
