//! Replaces the XDP program in programs that were built without the feature `xdp`. The kernel answers
//! nothing.

use std::net::SocketAddr;
use std::sync::Arc;

use farcall_memory::{SharedMemory, SharingTerms};

/// The XDP program of one server. There is none.
#[derive(Debug)]
pub(crate) enum Kernel {}

impl Kernel {
    pub(crate) fn start(_: &[String], _: u16) -> Result<Arc<Kernel>, String> {
        Err("this program was built without the feature `xdp`".to_owned())
    }

    pub(crate) fn attached(&self) -> String {
        match *self {}
    }

    pub(crate) fn share(&self, _: usize, _: &SharingTerms) -> Option<Box<dyn SharedMemory>> {
        match *self {}
    }

    pub(crate) fn answered(&self, _: &SocketAddr, _: &[u8], _: &[u8]) {
        match *self {}
    }

    pub(crate) fn stop(&self) {
        match *self {}
    }
}
