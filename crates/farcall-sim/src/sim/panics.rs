//! Notes every panic of simulated code, even panics that are caught.
//!
//! Farcall catches a panic in a procedure, reports it to the caller, and continues. A test should then fail.
//! So a panic hook notes the panic.

use std::panic::{self, PanicHookInfo};
use std::sync::Once;

use super::world::{here, text_of};

/// Installs the simulator's panic hook, once. The hook also calls the one that was installed before.
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
