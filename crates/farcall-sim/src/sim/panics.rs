//! Learns of every panic of simulated code, also of those that something catches.
//!
//! A panic in a procedure is caught by farcall, which tells the caller and goes on. A test wants to
//! fail then: that is what the hook is for.

use std::panic::{self, PanicHookInfo};
use std::sync::Once;

use super::world::{here, text_of};

/// Puts our hook before the one that is there, once.
pub(super) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let former = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            tell(info);
            former(info);
        }));
    });
}

fn tell(info: &PanicHookInfo<'_>) {
    let Some(here) = here() else { return };
    let place = info.location().map(|place| format!("{}:{}", place.file(), place.line()));
    here.world.panicked(here.thread, &text_of(info.payload()), place);
}
