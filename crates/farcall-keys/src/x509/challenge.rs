//! The challenges of an authority: what makes each request a new one, and each request count once.
//!
//! A challenge is when it was issued (8 bytes, Unix seconds), random bytes (16), and a MAC (32): HMAC-SHA-256
//! over the length of "farcall certificate challenge 1", these words, and the bytes before. The MAC's secret
//! is the service's own. So the service keeps nothing for a challenge until a host has used it.

use std::collections::BTreeSet;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::key::Context;
use crate::refusal::{Refusal, RefusalKind};

/// The length of a challenge in bytes.
pub const CHALLENGE_BYTES: usize = HEAD_BYTES + MAC_BYTES;

/// For how many seconds a challenge counts.
pub const CHALLENGE_SECONDS: u64 = 60;

/// The most enrolments within [`CHALLENGE_SECONDS`]. What was used is remembered for so long.
pub const MAX_ENROLMENTS_A_MINUTE: usize = 50_000;

const HEAD_BYTES: usize = 8 + RANDOM_BYTES;
const RANDOM_BYTES: usize = 16;
const MAC_BYTES: usize = 32;
const MAC: Context = Context::new("farcall certificate challenge 1");

/// The challenges of a service. They are worth nothing once it has ended.
pub(super) struct Challenges {
    secret: Zeroizing<[u8; 32]>,
    /// The heads of the challenges that were used and still count. The oldest comes first.
    used: BTreeSet<[u8; HEAD_BYTES]>,
    /// The latest time that was seen. A clock that goes back revives no challenge.
    latest: u64,
}

impl Challenges {
    pub(super) fn new(secret: [u8; 32]) -> Challenges {
        Challenges { secret: Zeroizing::new(secret), used: BTreeSet::new(), latest: 0 }
    }

    /// Makes a challenge of random bytes.
    pub(super) fn issue(&self, random: [u8; RANDOM_BYTES], now: u64) -> [u8; CHALLENGE_BYTES] {
        let mut challenge = [0; CHALLENGE_BYTES];
        let (head, mac) = challenge.split_at_mut(HEAD_BYTES);
        head[..8].copy_from_slice(&now.max(self.latest).to_be_bytes());
        head[8..].copy_from_slice(&random);
        mac.copy_from_slice(&self.hmac(head).finalize().into_bytes());
        challenge
    }

    /// Checks that a challenge is this service's, and was neither used nor issued too long ago.
    pub(super) fn check(&mut self, challenge: &[u8; CHALLENGE_BYTES], now: u64) -> Result<(), Refusal> {
        const ADVICE: &str = "run `farcall keys enrol` again";
        let refused = |kind, expected: &str, found: String| Err(Refusal::new(kind, expected, found, ADVICE));
        let (head, mac) = challenge.split_at(HEAD_BYTES);
        if self.hmac(head).verify_slice(mac).is_err() {
            let found = "one that somebody else issued, or that was issued before this one was restarted";
            return refused(RefusalKind::StaleChallenge, "a challenge of this authority", found.to_owned());
        }
        self.forget(now);
        let age = self.latest.saturating_sub(issued(head));
        if age >= CHALLENGE_SECONDS {
            let expected = format!("a challenge of the last {CHALLENGE_SECONDS} s");
            return refused(RefusalKind::StaleChallenge, &expected, format!("one that is {age} s old"));
        }
        if self.used.contains(head) {
            let found = "a proof that has come before".to_owned();
            return refused(RefusalKind::UsedChallenge, "a proof for a challenge that was not used", found);
        }
        if self.used.len() >= MAX_ENROLMENTS_A_MINUTE {
            let expected = format!("at most {MAX_ENROLMENTS_A_MINUTE} enrolments in {CHALLENGE_SECONDS} s");
            let advice = "try again in a minute";
            return Err(Refusal::new(RefusalKind::Overloaded, expected, "another one", advice));
        }
        Ok(())
    }

    /// Notes that a challenge, which was checked, was used.
    pub(super) fn use_up(&mut self, challenge: &[u8; CHALLENGE_BYTES]) {
        let mut head = [0; HEAD_BYTES];
        head.copy_from_slice(&challenge[..HEAD_BYTES]);
        self.used.insert(head);
    }

    /// Forgets the challenges that no longer count.
    fn forget(&mut self, now: u64) {
        self.latest = self.latest.max(now);
        while let Some(first) = self.used.first()
            && self.latest.saturating_sub(issued(first)) >= CHALLENGE_SECONDS
        {
            self.used.pop_first();
        }
    }

    fn hmac(&self, head: &[u8]) -> Hmac<Sha256> {
        let hmac =
            Hmac::<Sha256>::new_from_slice(self.secret.as_slice()).expect("HMAC takes keys of any length");
        hmac.chain_update(MAC.message(head))
    }
}

/// Returns when a challenge was issued.
fn issued(head: &[u8]) -> u64 {
    head.first_chunk().map_or(0, |time| u64::from_be_bytes(*time))
}
