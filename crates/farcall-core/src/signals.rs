//! Tells servers that the system asks this process to end: by SIGTERM or SIGINT.
//!
//! Nothing here happens unless the program asks for it. Then a thread takes these signals. The first one
//! tells the servers that wait for it. The second one ends the process as it would have done by default: the
//! operator does not want to wait for the drain. (Other systems than Unix have no such signals.)

use std::time::Duration;

use crate::stopper::Stopper;
use crate::{CallFailed, Kind, Ran};

/// How long a server that was asked to end waits for calls that have begun: less than the 30 s after which
/// Kubernetes kills a container.
const DRAIN: Duration = Duration::from_secs(25);

/// Waits until the process is asked to end or the stopper is used, and calls `drain` with the time that it
/// has.
///
/// # Errors
/// When the system lets no thread take the signals, or `drain` returns that some calls did not end.
#[doc(hidden)]
pub fn serve_until_signal(stopper: &Stopper, drain: impl FnOnce(Duration) -> bool) -> crate::Result<()> {
    #[cfg(unix)]
    taking::tell(stopper.event()).map_err(|why| CallFailed::local("take SIGTERM and SIGINT", why))?;
    stopper.wait();
    if drain(DRAIN) {
        return Ok(());
    }
    let why = "the server was asked to end, and some calls did not end within 25 s";
    Err(CallFailed::new(Kind::Draining, Ran::Maybe).because(why).into())
}

/// Takes SIGTERM and SIGINT over from now on: the next `until_signal` of a server drains and returns when the
/// first one comes, or at once if one has come meanwhile. A `main` begins with this if its process may be
/// told to end before it serves: a signal would else end the process without a drain, or be lost if the
/// process is the first one of a container. A second signal ends the process.
///
/// ```no_run
/// # #[farcall::interface]
/// # pub trait Echo { fn echo(&self, text: &str) -> farcall::Result<String>; }
/// # struct Server;
/// # impl Echo for Server { fn echo(&self, text: &str) -> farcall::Result<String> { Ok(text.to_owned()) } }
/// fn main() -> farcall::Result<()> {
///     farcall::take_signals()?;
///     farcall::export::<dyn Echo>("Echo", std::sync::Arc::new(Server))?.until_signal()
/// }
/// ```
///
/// # Errors
/// When the system lets no thread take the signals.
#[cfg(unix)]
pub fn take_signals() -> crate::Result<()> {
    Ok(taking::begin().map_err(|why| CallFailed::local("take SIGTERM and SIGINT", why))?)
}

/// The thread that takes the signals.
#[cfg(unix)]
mod taking {
    use std::io;
    use std::sync::{Arc, Mutex, MutexGuard, Weak};

    use farcall_base::lock;
    use signal_hook::consts::{SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;
    use signal_hook::low_level::emulate_default_handler;

    use crate::env::Event;

    /// What this process does about the signals.
    enum Watch {
        /// They have their default effect.
        None,
        /// A thread waits for the first one, and these wait for the thread.
        Waits(Vec<Weak<dyn Event>>),
        /// It has come.
        Told,
    }

    static WATCH: Mutex<Watch> = Mutex::new(Watch::None);

    /// Sets `event` when the first SIGTERM or SIGINT comes, or at once if one has come since the signals were
    /// taken over.
    ///
    /// # Errors
    /// When the signals cannot be taken over.
    pub(super) fn tell(event: &Arc<dyn Event>) -> io::Result<()> {
        match &mut *watch()? {
            Watch::Told => event.set(),
            Watch::Waits(waiting) => {
                waiting.retain(|one| one.strong_count() > 0);
                waiting.push(Arc::downgrade(event));
            }
            Watch::None => unreachable!("the thread was started"),
        }
        Ok(())
    }

    /// Takes the signals over.
    ///
    /// # Errors
    /// When the system does not allow that.
    pub(super) fn begin() -> io::Result<()> {
        watch().map(drop)
    }

    /// Returns what this process does about the signals. Starts the thread that takes them, if there is none.
    fn watch() -> io::Result<MutexGuard<'static, Watch>> {
        let mut watch = lock(&WATCH);
        if let Watch::None = *watch {
            let signals = Signals::new([SIGTERM, SIGINT])?;
            let thread = std::thread::Builder::new().name("farcall-signals".into());
            thread.spawn(move || take(signals))?;
            *watch = Watch::Waits(Vec::new());
        }
        Ok(watch)
    }

    /// Takes the signals until the process ends.
    fn take(mut signals: Signals) {
        for signal in signals.forever() {
            // The process ends here unless this is the first signal.
            let former = std::mem::replace(&mut *lock(&WATCH), Watch::Told);
            match former {
                Watch::Waits(waiting) => {
                    waiting.iter().filter_map(Weak::upgrade).for_each(|event| event.set());
                }
                Watch::None | Watch::Told => {
                    // It fails for unknown signals only.
                    let _ = emulate_default_handler(signal);
                }
            }
        }
    }
}
