//! Runs the user's code on threads that serve others, so that a panic in it stops none of them.
//!
//! A procedure, a type's encoding and decoding, an interceptor, a waker or an executor may panic. So may the
//! drop of any of these, and the drop of the value with which they panicked. [`run`] catches all of these
//! panics. Where no caller can be told of the panic, [`run_alone`] writes it to standard error. Code of the
//! user's may also block: before a thread that *receives* for others runs such code, it lets another thread
//! receive (`server.rs` says how).

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::Bytes;
use crate::messages::say;

/// The value with which the user's code panicked. Dropping that value is the user's code too, and may panic
/// without harm.
#[derive(Debug)]
pub struct Panic(Option<Box<dyn Any + Send>>);

/// The value with which a simulation unwinds the threads of a process that has ended. It is not an error.
pub struct ProcessGone;

/// Runs the user's code. If the code panics and leaves state half changed, that is the user's own affair.
///
/// # Errors
/// When the code panicked.
#[inline]
pub fn run<R>(user: impl FnOnce() -> R) -> Result<R, Panic> {
    catch_unwind(AssertUnwindSafe(user)).map_err(|payload| Panic(Some(payload)))
}

/// Runs the user's code where no caller can be told of its panic, and writes the panic to standard error.
/// `what` names the code in that report.
pub fn run_alone(what: &str, user: impl FnOnce()) {
    let Err(panic) = run(user) else { return };
    if panic.0.as_ref().is_some_and(|payload| payload.is::<ProcessGone>()) {
        return;
    }
    let why = panic.message().unwrap_or("(no text)");
    say(format_args!("{what} panicked: {why}"));
}

impl Panic {
    /// Returns the message of the panic, if it is text.
    pub fn message(&self) -> Option<&str> {
        let payload = self.0.as_ref()?;
        let text = payload.downcast_ref::<&'static str>().copied();
        text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
    }
}

impl Drop for Panic {
    fn drop(&mut self) {
        let payload = self.0.take();
        if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            // Dropping `second` might panic with a third value, so it is leaked.
            std::mem::forget(second);
        }
    }
}

/// Wraps bytes so that the drop of the last reference to them cannot panic. It could, because the owner of
/// the bytes may be a type of the user's.
pub fn shared(bytes: &Bytes) -> Bytes {
    Bytes::from_owner(Shared(bytes.clone()))
}

struct Shared(Bytes);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.0);
        run_alone("the drop of a result", || drop(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new(Bomb));
        }
    }

    #[test]
    fn a_panic_whose_payload_panics_for_ever_is_caught() {
        let panic = run(|| std::panic::resume_unwind(Box::new(Bomb))).expect_err("it panicked");
        assert_eq!(panic.message(), None);
        drop(panic);
        run_alone("a test", || std::panic::resume_unwind(Box::new("as it wants")));
    }

    #[test]
    fn a_panic_says_what_its_text_says() {
        let panic =
            run(|| std::panic::resume_unwind(Box::new(String::from("text")))).expect_err("it panicked");
        assert_eq!(panic.message(), Some("text"));
        assert_eq!(run(|| 7).ok(), Some(7));
    }
}
