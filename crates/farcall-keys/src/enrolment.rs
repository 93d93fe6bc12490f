//! Enrolment: how a new machine shows that it was given a token, and gets its first grant for it.
//!
//! It is one question and one answer. Nothing in them is secret, and the token's secret is in neither.
//! Numbers are big-endian. A MAC is [`EnrolmentToken::mac`] over a byte that says what it is for (0 name, 1
//! request, 2 answer) and the bytes that the table names.
//!
//! ```text
//! request   version 1 (1 byte) · the token's name: 16 bytes of a MAC over nothing · the machine's key (32) ·
//!           32 random bytes · signature (64) by that key over the byte 27, "farcall enrolment request 1" and
//!           everything above · MAC (32) over everything above
//! answer    version 1 (1 byte) · the authority's key (32) · the grant after its length (2) ·
//!           MAC (32) over the request and everything above
//! ```
//!
//! Who does not have the token cannot make a request or an answer, nor change one. The machine knows the
//! authority by its fingerprint in the token, and by its signature of the grant; a stranger with the token
//! could be neither. A request that comes again gets the same answer, and another key gets none.

use std::fmt;

use zeroize::Zeroizing;

use crate::codec::{Read, Reader};
use crate::entry::MAX_CLOCK_DIFFERENCE_SECONDS;
use crate::grant::{Grant, Terms, TooLarge};
use crate::identity::Identity;
use crate::key::{Context, PublicKey, SIGNATURE_BYTES};
use crate::refusal::{Refusal, RefusalKind};
use crate::token::{EnrolmentToken, MAC_BYTES};

/// The maximum length of a request or an answer in bytes.
pub const MAX_ENROLMENT_BYTES: usize = 512;

/// How many requests with a wrong MAC end an enrolment. A secret of 128 bits is not found by guessing; this
/// only says so without computing.
pub const MAX_WRONG_ATTEMPTS: u32 = 100;

const VERSION: u8 = 1;
const NAME_BYTES: usize = 16;
const REQUEST: Context = Context::new("farcall enrolment request 1");

/// What a MAC is for.
#[derive(Clone, Copy)]
enum Purpose {
    Name = 0,
    Request = 1,
    Answer = 2,
}

/// A new machine's request for its grant. It is made once for each token, and sent until an answer comes.
///
/// ```
/// use farcall_keys::{EnrolmentRequest, EnrolmentToken, Identity, OpenEnrolment, Rights, Template};
///
/// let [authority, machine] = [1, 2].map(|byte| Identity::from_entropy([byte; 32]));
/// let template = Template {
///     principal: "alice".parse()?,
///     rights: Rights::IMPORT,
///     scope: "Store".parse()?,
///     seconds: 90 * 86_400,
/// };
/// let now = 1_800_000_000;
/// let token = EnrolmentToken::issue(&authority.public(), "10.0.0.7:7000", template, [9; 16], now)?;
/// let carried: EnrolmentToken = token.to_text().parse()?;
///
/// let mut enrolment = OpenEnrolment::new(token);
/// let request = EnrolmentRequest::new(&carried, &machine, &[3; 32]);
/// let answer = enrolment.answer(&authority, request.as_bytes(), 17, now)?;
/// let (found, grant) = request.accept(&carried, &answer, now)?;
/// assert_eq!((found, grant.terms().key), (authority.public(), machine.public()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct EnrolmentRequest {
    key: PublicKey,
    bytes: Vec<u8>,
}

/// An enrolment that an authority waits for: a token, and whether it was used. It lives in memory alone, so a
/// token is worth nothing once its process has ended.
#[derive(Debug)]
pub struct OpenEnrolment {
    token: EnrolmentToken,
    name: [u8; NAME_BYTES],
    wrong_attempts: u32,
    /// The grant that was signed, for the key that has used the token.
    signed: Option<Grant>,
}

/// Why an authority does not answer a request with a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EnrolmentError {
    /// The bytes are no request.
    Malformed(String),
    /// The request is for another token.
    OtherToken,
    /// The token has expired, so many seconds ago.
    Expired(u64),
    /// The request was not made with the token, or was changed.
    WrongMac,
    /// Too many requests were not made with the token.
    TooManyAttempts,
    /// Another key has used the token: the one with this fingerprint.
    Used(crate::Fingerprint),
    /// The request's key has not signed it.
    NotItsKey,
    /// The names of the grant are too long.
    TooLarge(TooLarge),
}

impl EnrolmentRequest {
    /// Makes the request of a machine, with entropy of the operating system.
    pub fn new(token: &EnrolmentToken, machine: &Identity, random: &[u8; 32]) -> EnrolmentRequest {
        let key = machine.public();
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&name(token));
        bytes.extend_from_slice(key.as_bytes());
        bytes.extend_from_slice(random);
        bytes.extend_from_slice(&machine.sign(REQUEST, &bytes));
        bytes.extend_from_slice(&token.mac(&covered(Purpose::Request, &[&bytes])));
        EnrolmentRequest { key, bytes }
    }

    /// Returns the bytes to send.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the authority's key and the grant, if an answer to this request has them: the authority is the
    /// one that the token names, and has signed the grant that the token promises, for this machine's key.
    ///
    /// # Errors
    /// The reason why it is no such answer.
    pub fn accept(
        &self,
        token: &EnrolmentToken,
        answer: &[u8],
        now: u64,
    ) -> Result<(PublicKey, Grant), Refusal> {
        const ADVICE: &str = "ask for another token; if it happens again, somebody interferes";
        let refused = |kind, expected: &str, found: String| Refusal::new(kind, expected, found, ADVICE);
        let (authority, grant, head, mac) = read_answer(answer).map_err(|why| {
            refused(RefusalKind::Malformed, "an answer to a request for enrolment", why.to_string())
        })?;
        let covered = covered(Purpose::Answer, &[&self.bytes, head]);
        if !token.is_mac(&covered, &mac) {
            let found = "an answer by somebody who does not have it, or that was changed".to_owned();
            return Err(refused(RefusalKind::Forged, "an answer by the authority that has the token", found));
        }
        if authority.fingerprint() != token.authority() {
            let expected = format!("the authority with the fingerprint {}", token.authority());
            let found = format!("the key {authority}, whose fingerprint is {}", authority.fingerprint());
            return Err(refused(RefusalKind::OtherKey, &expected, found));
        }
        if grant.authority() != authority || !grant.is_genuine() {
            let found = format!("a grant for {:?} with another signature", &**grant.terms().principal);
            return Err(refused(RefusalKind::Forged, "a grant that the authority signed", found));
        }
        self.check_terms(token, &grant, now)?;
        Ok((authority, grant))
    }

    /// Checks that a grant is for this machine's key, and says what the token promises.
    fn check_terms(&self, token: &EnrolmentToken, grant: &Grant, now: u64) -> Result<(), Refusal> {
        const ADVICE: &str = "ask for another token; the authority's program signs something else";
        let (terms, template) = (grant.terms(), token.template());
        let found = format!(
            "a grant for {:?} ({}) to {} {} until {}",
            &**terms.principal, terms.key, terms.rights, terms.scope, terms.expires
        );
        if terms.key != self.key {
            let expected = format!("a grant for the key {}", self.key);
            return Err(Refusal::new(RefusalKind::OtherKey, expected, found, ADVICE));
        }
        if (&terms.principal, terms.rights, &terms.scope)
            != (&template.principal, template.rights, &template.scope)
        {
            let expected =
                format!("a grant for {:?} to {} {}", &**template.principal, template.rights, template.scope);
            return Err(Refusal::new(RefusalKind::WrongName, expected, found, ADVICE));
        }
        let latest = now.saturating_add(template.seconds.into()).saturating_add(MAX_CLOCK_DIFFERENCE_SECONDS);
        if terms.expires <= now || terms.expires > latest {
            let expected = format!("a grant that counts for {} s, by this clock ({now})", template.seconds);
            let advice = "set the clocks of both machines right, and ask for another token";
            return Err(Refusal::new(RefusalKind::WrongClock, expected, found, advice));
        }
        Ok(())
    }
}

impl OpenEnrolment {
    /// Opens the enrolment of whoever is given the token.
    pub fn new(token: EnrolmentToken) -> OpenEnrolment {
        OpenEnrolment { name: name(&token), token, wrong_attempts: 0, signed: None }
    }

    /// Answers a request with a grant, as the authority: `serial` is the grant's number, which the authority
    /// uses once, and `now` the time in Unix seconds. The token is used then: a request of the same key gets
    /// the same grant, and every other request is refused.
    ///
    /// # Errors
    /// The reason why the request gets no grant.
    pub fn answer(
        &mut self,
        authority: &Identity,
        request: &[u8],
        serial: u64,
        now: u64,
    ) -> Result<Vec<u8>, EnrolmentError> {
        let asked = Request::read(request).map_err(|why| EnrolmentError::Malformed(why.to_string()))?;
        if asked.name != self.name {
            return Err(EnrolmentError::OtherToken);
        }
        if let Err(ended) = self.token.check_time(now) {
            return Err(match ended {
                crate::TokenError::Expired(ago) => EnrolmentError::Expired(ago),
                _ => EnrolmentError::OtherToken,
            });
        }
        if self.wrong_attempts >= MAX_WRONG_ATTEMPTS {
            return Err(EnrolmentError::TooManyAttempts);
        }
        if !self.token.is_mac(&covered(Purpose::Request, &[asked.before_mac]), &asked.mac) {
            self.wrong_attempts += 1;
            return Err(EnrolmentError::WrongMac);
        }
        if !asked.key.verify(REQUEST, asked.before_signature, &asked.signature) {
            return Err(EnrolmentError::NotItsKey);
        }
        let grant = match &self.signed {
            Some(signed) if signed.terms().key != asked.key => {
                return Err(EnrolmentError::Used(signed.terms().key.fingerprint()));
            }
            Some(signed) => signed.clone(),
            None => self.sign(authority, asked.key, serial, now)?,
        };
        Ok(self.encode_answer(authority, &grant, request))
    }

    /// Returns the grant that was signed, if the token was used.
    pub fn signed(&self) -> Option<&Grant> {
        self.signed.as_ref()
    }

    /// Returns the token.
    pub fn token(&self) -> &EnrolmentToken {
        &self.token
    }

    fn sign(
        &mut self,
        authority: &Identity,
        key: PublicKey,
        serial: u64,
        now: u64,
    ) -> Result<Grant, EnrolmentError> {
        let template = self.token.template();
        let terms = Terms {
            key,
            principal: template.principal.clone(),
            rights: template.rights,
            scope: template.scope.clone(),
            serial,
            expires: now.saturating_add(template.seconds.into()),
        };
        let grant = authority.grant(terms).map_err(EnrolmentError::TooLarge)?;
        self.signed = Some(grant.clone());
        Ok(grant)
    }

    fn encode_answer(&self, authority: &Identity, grant: &Grant, request: &[u8]) -> Vec<u8> {
        let grant = grant.encode();
        let mut answer = vec![VERSION];
        answer.extend_from_slice(authority.public().as_bytes());
        answer.extend_from_slice(&(grant.len() as u16).to_be_bytes());
        answer.extend_from_slice(&grant);
        let mac = self.token.mac(&covered(Purpose::Answer, &[request, &answer]));
        answer.extend_from_slice(&mac);
        answer
    }
}

/// A request as it was read.
struct Request<'a> {
    name: [u8; NAME_BYTES],
    key: PublicKey,
    before_signature: &'a [u8],
    signature: [u8; SIGNATURE_BYTES],
    before_mac: &'a [u8],
    mac: [u8; MAC_BYTES],
}

impl Request<'_> {
    fn read(bytes: &[u8]) -> Read<Request<'_>> {
        const BEFORE_SIGNATURE: usize = 1 + NAME_BYTES + 32 + 32;
        let mut reader = Reader::new("a request for enrolment", bytes);
        reader.version(VERSION)?;
        let (name, key) = (reader.array()?, reader.key()?);
        let _random: [u8; 32] = reader.array()?;
        let (signature, mac) = (reader.array()?, reader.array()?);
        reader.end()?;
        let before_signature = bytes.get(..BEFORE_SIGNATURE).unwrap_or_default();
        let before_mac = bytes.get(..BEFORE_SIGNATURE + SIGNATURE_BYTES).unwrap_or_default();
        Ok(Request { name, key, before_signature, signature, before_mac, mac })
    }
}

/// Reads the authority's key, the grant, everything before the MAC, and the MAC.
fn read_answer(bytes: &[u8]) -> Read<(PublicKey, Grant, &[u8], [u8; MAC_BYTES])> {
    let mut reader = Reader::new("an answer to a request for enrolment", bytes);
    if bytes.len() > MAX_ENROLMENT_BYTES {
        return Err(reader.wrong(format!("{} bytes, and one has at most {MAX_ENROLMENT_BYTES}", bytes.len())));
    }
    reader.version(VERSION)?;
    let authority = reader.key()?;
    let length = usize::from(reader.u16()?);
    let grant = Grant::decode(reader.take(length)?).map_err(|why| reader.wrong(why.to_string()))?;
    let mac = reader.array()?;
    reader.end()?;
    let head = bytes.get(..bytes.len().saturating_sub(MAC_BYTES)).unwrap_or_default();
    Ok((authority, grant, head, mac))
}

/// Returns the name by which a request says which token it was made with. It tells nothing of the secret.
fn name(token: &EnrolmentToken) -> [u8; NAME_BYTES] {
    let mac = Zeroizing::new(token.mac(&covered(Purpose::Name, &[])));
    let mut name = [0; NAME_BYTES];
    name.copy_from_slice(&mac[..NAME_BYTES]);
    name
}

/// Returns what a MAC is over. A request has a fixed length, so the parts cannot be divided in another way.
fn covered(purpose: Purpose, parts: &[&[u8]]) -> Vec<u8> {
    let mut covered = vec![purpose as u8];
    parts.iter().for_each(|part| covered.extend_from_slice(part));
    covered
}

impl fmt::Display for EnrolmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const OTHER: &str = "get another token";
        match self {
            EnrolmentError::Malformed(why) => {
                write!(f, "expected a request for enrolment; found {why}; use the same version of farcall")
            }
            EnrolmentError::OtherToken => {
                write!(f, "expected a request with this authority's present token; found another; {OTHER}")
            }
            EnrolmentError::Expired(ago) => {
                write!(f, "expected a token of the last ten minutes; found one that expired {ago} s ago; {OTHER}")
            }
            EnrolmentError::WrongMac => write!(
                f,
                "expected a MAC by the token's secret; found another; copy the whole token that was printed"
            ),
            EnrolmentError::TooManyAttempts => write!(
                f,
                "expected a token that nobody tries to guess; found {MAX_WRONG_ATTEMPTS} wrong attempts; {OTHER}"
            ),
            EnrolmentError::Used(by) => {
                write!(f, "expected a token that was not used; found one that the key {by} has used; {OTHER}")
            }
            EnrolmentError::NotItsKey => f.write_str(
                "expected a request that its key has signed; found another signature; run `farcall keys enrol` again",
            ),
            EnrolmentError::TooLarge(why) => write!(f, "{why}"),
        }
    }
}

impl std::error::Error for EnrolmentError {}
