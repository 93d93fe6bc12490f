//! Long [`Bytes`] of a result, which are sent from where they stand instead of being copied into it.

use std::time::Duration;

use farcall_proto::server::Insert;

use super::Outlet;
use crate::xdr::Spill;
use crate::{Bytes, guard};

/// Shorter `Bytes` are copied. No datagram is longer, whatever is configured.
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
