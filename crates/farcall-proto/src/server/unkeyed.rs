//! Stands in for `handshake.rs` in a build without the feature `secure`: no server has keys.

use std::net::SocketAddr;
use std::sync::Arc;

use super::Server;
use crate::secure::Cipher;
use crate::{Met, Shown, Time};

/// What computing a handshake leads to. In this build nothing computes one.
pub(super) type Responded = std::convert::Infallible;

impl Server {
    /// Returns the cipher by which a sealed datagram opens. In this build there is none.
    pub fn cipher(&mut self, _: Time, _: &SocketAddr, _: &[u8]) -> Option<Arc<Cipher>> {
        None
    }

    /// Returns whether handshakes wait since the last call. In this build there is none.
    #[inline]
    pub fn take_handshake_news(&mut self) -> bool {
        false
    }

    /// Meets a client that proves secrets. In this build there are none.
    pub fn meet(&mut self, _: Time, _: &Shown<'_>) -> Option<Met> {
        None
    }

    /// Notes that a datagram did not open.
    pub fn note_unopened(&mut self, _: Time, _: &[u8]) {}
}
