//! Long [`Bytes`] of a result, which are not copied into it: they are sent from where they stand.

use std::time::Duration;

use farcall_proto::server::Insert;

use super::Outlet;
use crate::xdr::Spill;
use crate::{Bytes, guard};

/// Shorter ones are copied: less than a datagram is, too, whatever is configured.
const SHORTEST: usize = 64 << 10;

/// What of a result is kept apart, if anything.
#[derive(Default)]
pub(super) struct Apart(pub(super) Option<Insert>);

impl Spill for Apart {
    fn take(&mut self, _before: &[u8], _bytes: &[u8], _more: usize) -> Option<usize> {
        None
    }

    fn keep(&mut self, at: usize, bytes: &Bytes) -> bool {
        let long = bytes.len() >= SHORTEST;
        if long {
            self.0 = Some(Insert { at, bytes: guard::shared(bytes) });
        }
        long
    }
}

impl Outlet for Apart {
    fn took(&self) -> Duration {
        Duration::ZERO
    }
}
