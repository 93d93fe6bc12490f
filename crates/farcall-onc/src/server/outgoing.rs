//! Replies of an ONC RPC server that are being built. A long part of a result is sent from the user's memory,
//! without a copy.

use farcall::room::{self, NoMemory};
use farcall::xdr::{Encoder, Spill};
use farcall::{Bytes, guard};

use super::flavour::{Seal, Verifier, guarded};
use crate::wire::auth::OpaqueAuth;
use crate::wire::message::{Accepted, Answer, Rejected, Reply};

/// A reply that is being built and sent.
#[derive(Default)]
pub(crate) struct Outgoing {
    bytes: Vec<u8>,
    /// A long part that is not copied into `bytes`, and its position: how many of `bytes` precede it.
    kept: Option<(usize, Bytes)>,
    /// The longest reply that can be sent, in bytes; `None` if there is no limit.
    longest: Option<usize>,
}

/// The outcome of a call, in a form that is independent of the transport and the verifier. The server keeps
/// it, to answer repetitions of the call.
#[derive(Clone)]
pub(crate) enum Outcome {
    /// The call's result: bytes, and perhaps a long part with the number of bytes that precede it.
    Result(Bytes, Option<(usize, Bytes)>),
    /// The call failed.
    Failed(Accepted<'static>),
    /// The call got no reply.
    Silence,
}

impl Outgoing {
    /// Makes an empty reply that will be a datagram of at most `longest` bytes.
    pub(crate) fn datagram(longest: usize) -> Outgoing {
        Outgoing { longest: Some(longest), ..Outgoing::default() }
    }

    /// Returns the length of the reply in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + self.kept.as_ref().map_or(0, |(_, kept)| kept.len())
    }

    /// Empties the reply after it was sent. If the reply was long, frees its memory.
    #[inline]
    pub(crate) fn clear(&mut self) {
        /// The most bytes of memory that an empty reply keeps for the next one.
        const MAX_KEPT_BYTES: usize = 256 << 10;
        self.kept = None;
        self.bytes.clear();
        self.bytes.shrink_to(MAX_KEPT_BYTES);
    }

    /// Returns the parts of the reply in the order in which they are sent.
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

    /// Appends the header of the reply to an accepted call. A verifier that is too long is replaced by
    /// AUTH_NONE.
    #[inline]
    pub(super) fn accepted(&mut self, xid: u32, verifier: Option<&Verifier>, outcome: Accepted<'_>) {
        let verifier =
            verifier.and_then(|(flavor, body)| OpaqueAuth::new(flavor.0, body)).unwrap_or(OpaqueAuth::NONE);
        Reply { xid, answer: Answer::Accepted { verifier, outcome } }.write(&mut self.bytes);
    }

    /// Appends the reply to a rejected call.
    #[cold]
    pub(super) fn rejected(&mut self, xid: u32, why: Rejected) {
        Reply::rejected(xid, why).write(&mut self.bytes);
    }

    /// Appends a result that was kept from an earlier call. If `whole`, the reply must be one contiguous
    /// part.
    ///
    /// # Errors
    /// When this process has no memory for it.
    pub(super) fn append(
        &mut self,
        result: &[u8],
        kept: Option<&(usize, Bytes)>,
        whole: bool,
    ) -> Result<(), NoMemory> {
        let (before, long, after) = match kept {
            None => (result, None, &[][..]),
            Some((at, long)) => {
                let (before, after) = result.split_at((*at).min(result.len()));
                (before, Some(long), after)
            }
        };
        let copied = long.filter(|_| whole).map_or(0, |long| long.len());
        room::reserve(&mut self.bytes, result.len() + copied)?;
        self.bytes.extend_from_slice(before);
        match long {
            Some(long) if whole => self.bytes.extend_from_slice(long),
            Some(long) => self.kept = Some((self.bytes.len(), long.clone())),
            None => {}
        }
        self.bytes.extend_from_slice(after);
        Ok(())
    }

    /// Appends a result that `result` encodes. If `whole`, the reply must be one contiguous part.
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

    /// Returns where the result begins. The header must have been written.
    #[inline]
    pub(super) fn result_at(&self) -> usize {
        self.bytes.len()
    }

    /// Makes `seal` transform the result, which begins at `at`, as a flavour of authentication requires.
    /// Returns false if `seal` panics or the reply becomes too long.
    pub(super) fn seal(&mut self, seal: Box<dyn Seal>, at: usize) -> bool {
        let bytes = &mut self.bytes;
        guarded(move || seal.seal(bytes, at)).is_some()
            && self.longest.is_none_or(|most| self.bytes.len() <= most)
    }

    /// Replaces the whole reply by a reply which says that the call failed.
    #[cold]
    pub(super) fn failed(&mut self, xid: u32, verifier: Option<&Verifier>, how: Accepted<'_>) {
        self.kept = None;
        self.bytes.clear();
        self.accepted(xid, verifier, how);
    }

    /// Returns a lasting copy of the result, which begins at `at`. The long part is shared, not copied.
    /// Without memory for a copy, a call that comes again is told that it failed, which does not say whether
    /// it ran.
    pub(super) fn outcome(&self, at: usize) -> Outcome {
        let Ok(result) = room::copied(self.bytes.get(at..).unwrap_or_default()) else {
            return Outcome::Failed(Accepted::SystemErr);
        };
        Outcome::Result(
            result.into(),
            self.kept.as_ref().map(|(place, kept)| (place.saturating_sub(at), kept.clone())),
        )
    }
}

impl Outcome {
    /// Returns how many bytes the outcome holds.
    pub(super) fn len(&self) -> usize {
        match self {
            Outcome::Result(result, kept) => result.len() + kept.as_ref().map_or(0, |(_, kept)| kept.len()),
            Outcome::Failed(_) | Outcome::Silence => 0,
        }
    }
}

/// Leaves long opaque data of a result in the user's memory, from which it is sent.
struct Keep<'a> {
    /// Where the result begins in the reply.
    base: usize,
    kept: &'a mut Option<(usize, Bytes)>,
}

impl Spill for Keep<'_> {
    /// Takes nothing, so that nothing is sent early: a record's length precedes the record, and is known only
    /// when everything is encoded.
    fn take(&mut self, _: &[u8], _: &[u8], _: usize) -> Option<usize> {
        None
    }

    fn keep(&mut self, at: usize, bytes: &Bytes) -> bool {
        *self.kept = Some((self.base + at, guard::shared(bytes)));
        true
    }
}
