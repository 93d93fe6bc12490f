//! Starts the XDP program that answers readers of a runtime's segments, if the settings ask for it.

use std::sync::Arc;

use farcall_memory::{SharedMemory, SharingTerms};

use super::{Inner, State};
use crate::kernel::Kernel;
use crate::server::Server;

impl Inner {
    /// Lets the kernel answer readers of the server's segments, if the settings ask for it and the kernel
    /// can.
    pub(super) fn start_kernel(&self, state: &mut State, server: &Arc<Server>) {
        let interfaces = &self.settings.kernel_served;
        // A simulated network has no kernel.
        if interfaces.is_empty() || !self.env.shares_memory() {
            return;
        }
        if self.settings.has_keys() {
            let why = "this runtime has keys, and the kernel cannot open what is sealed";
            state.kernel = Some(Err(why.to_owned()));
            return;
        }
        let started = Kernel::start(interfaces, server.address().port());
        state.kernel = Some(started.map(|kernel| {
            let attached = kernel.attached();
            server.set_kernel(kernel);
            attached
        }));
    }

    /// Returns memory of `len` bytes that the kernel serves, if it may and can.
    pub(super) fn share_with_kernel(
        self: &Arc<Self>,
        len: usize,
        terms: &SharingTerms,
    ) -> Option<Box<dyn SharedMemory>> {
        if self.settings.kernel_served.is_empty() {
            return None;
        }
        // The program belongs to the server, which the export of the segment needs in any case.
        self.server().ok()?.kernel()?.share(len, terms)
    }
}
