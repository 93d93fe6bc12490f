//! A reply on its way out: its bytes, and perhaps a long part that is sent from where it authenticated.

use farcall::xdr::{Encoder, Spill};
use farcall::{Bytes, guard};

use super::flavour::{Seal, Verifier, guarded};
use crate::wire::auth::OpaqueAuth;
use crate::wire::message::{Accepted, Answer, Rejected, Reply};

/// A reply.
#[derive(Default)]
pub(crate) struct Outgoing {
    bytes: Vec<u8>,
    /// What belongs behind the first so many of `bytes`.
    kept: Option<(usize, Bytes)>,
    /// The longest reply that can be sent; none if any can.
    longest: Option<usize>,
}

/// What a call was answered with, without what another transport or another verifier would change: it may be
/// said again.
#[derive(Clone)]
pub(crate) enum Outcome {
    /// This result, and perhaps a long part that belongs behind the first so many of its bytes.
    Result(Bytes, Option<(usize, Bytes)>),
    /// There was none.
    Failed(Accepted<'static>),
    /// Nothing was said.
    Silence,
}

impl Outgoing {
    /// For replies that are datagrams of at most so many bytes.
    pub(crate) fn datagram(longest: usize) -> Outgoing {
        Outgoing { longest: Some(longest), ..Outgoing::default() }
    }

    /// How many bytes there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + self.kept.as_ref().map_or(0, |(_, kept)| kept.len())
    }

    /// It was sent. What a long one needed is given back.
    #[inline]
    pub(crate) fn clear(&mut self) {
        const WORTH_KEEPING: usize = 256 << 10;
        self.kept = None;
        self.bytes.clear();
        self.bytes.shrink_to(WORTH_KEEPING);
    }

    /// The bytes in the order in which they are sent.
    #[inline]
    pub(crate) fn parts(&self) -> [&[u8]; 3] {
        match &self.kept {
            None => [&self.bytes, &[], &[]],
            Some((at, kept)) => {
                let (before, after) = self.bytes.split_at((*at).min(self.bytes.len()));
                [before, kept, after]
            }
        }
    }

    /// The reply to a call that is accepted. A verifier that would be too long is none.
    #[inline]
    pub(super) fn accepted(&mut self, xid: u32, verifier: Option<&Verifier>, outcome: Accepted<'_>) {
        let verifier =
            verifier.and_then(|(flavor, body)| OpaqueAuth::new(flavor.0, body)).unwrap_or(OpaqueAuth::NONE);
        Reply { xid, answer: Answer::Accepted { verifier, outcome } }.write(&mut self.bytes);
    }

    /// The reply to a call that is not accepted.
    #[cold]
    pub(super) fn rejected(&mut self, xid: u32, why: Rejected) {
        Reply::rejected(xid, why).write(&mut self.bytes);
    }

    /// Has a result appended that was given before. `whole`: it must stand in one piece.
    pub(super) fn append(&mut self, result: &[u8], kept: Option<&(usize, Bytes)>, whole: bool) {
        let (before, long, after) = match kept {
            None => (result, None, &[][..]),
            Some((at, long)) => {
                let (before, after) = result.split_at((*at).min(result.len()));
                (before, Some(long), after)
            }
        };
        self.bytes.extend_from_slice(before);
        match long {
            Some(long) if whole => self.bytes.extend_from_slice(long),
            Some(long) => self.kept = Some((self.bytes.len(), long.clone())),
            None => {}
        }
        self.bytes.extend_from_slice(after);
    }

    /// Has a result appended. `whole`: it must stand in one piece.
    #[inline]
    pub(super) fn encode<R>(&mut self, whole: bool, result: impl FnOnce(&mut Encoder<'_>) -> R) -> R {
        if let Some(longest) = self.longest {
            let left = longest.saturating_sub(self.bytes.len());
            return result(&mut Encoder::with_limit(&mut self.bytes, left));
        }
        if whole {
            return result(&mut Encoder::new(&mut self.bytes));
        }
        let mut keep = Keep { base: self.bytes.len(), kept: &mut self.kept };
        result(&mut Encoder::with_spill(&mut self.bytes, &mut keep))
    }

    /// Where its result begins, once the header is written.
    #[inline]
    pub(super) fn result_at(&self) -> usize {
        self.bytes.len()
    }

    /// Puts its result into the form that a flavour gives it; false if there is none.
    pub(super) fn seal(&mut self, seal: Box<dyn Seal>, at: usize) -> bool {
        let bytes = &mut self.bytes;
        guarded(move || seal.seal(bytes, at)).is_some()
            && self.longest.is_none_or(|most| self.bytes.len() <= most)
    }

    /// The call has no result after all.
    #[cold]
    pub(super) fn failed(&mut self, xid: u32, verifier: Option<&Verifier>, how: Accepted<'_>) {
        self.kept = None;
        self.bytes.clear();
        self.accepted(xid, verifier, how);
    }

    /// A copy of the result that lasts, of all but the part that is shared anyway.
    pub(super) fn outcome(&self, at: usize) -> Outcome {
        let result = Bytes::copy_from_slice(self.bytes.get(at..).unwrap_or_default());
        Outcome::Result(
            result,
            self.kept.as_ref().map(|(place, kept)| (place.saturating_sub(at), kept.clone())),
        )
    }
}

impl Outcome {
    /// How many bytes it takes.
    pub(super) fn len(&self) -> usize {
        match self {
            Outcome::Result(result, kept) => result.len() + kept.as_ref().map_or(0, |(_, kept)| kept.len()),
            Outcome::Failed(_) | Outcome::Silence => 0,
        }
    }
}

/// Keeps long opaque data where it authenticated.
struct Keep<'a> {
    base: usize,
    kept: &'a mut Option<(usize, Bytes)>,
}

impl Spill for Keep<'_> {
    /// A record's length authenticated in front of it, so nothing of it can leave before all is encoded.
    fn take(&mut self, _: &[u8], _: &[u8], _: usize) -> Option<usize> {
        None
    }

    fn keep(&mut self, at: usize, bytes: &Bytes) -> bool {
        *self.kept = Some((self.base + at, guard::shared(bytes)));
        true
    }
}
