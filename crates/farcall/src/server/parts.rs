//! Handles long [`Bytes`] in a result. A worker sends them from where they are, instead of copying them into
//! the reply. (An encoder offers long data to its [`Spill`], which may take it.)

use std::time::Duration;

use farcall_proto::server::Insert;

use super::Outlet;
use crate::xdr::Spill;
use crate::{Bytes, guard};

/// The fewest bytes that are sent without a copy. A datagram is never longer than this, so longer `Bytes`
/// need several datagrams in any case.
const MIN_LONG_BYTES: usize = 64 << 10;

/// The long part of a result, if it has one.
#[derive(Default)]
pub(super) struct LongParts(pub(super) Option<Insert>);

impl Spill for LongParts {
    fn take(&mut self, _before: &[u8], _bytes: &[u8], _more: usize) -> Option<usize> {
        None
    }

    fn keep(&mut self, at: usize, bytes: &Bytes) -> bool {
        let long = bytes.len() >= MIN_LONG_BYTES;
        if long {
            self.0 = Some(Insert { at, bytes: guard::shared(bytes) });
        }
        long
    }
}

impl Outlet for LongParts {
    fn took(&self) -> Duration {
        Duration::ZERO
    }
}
