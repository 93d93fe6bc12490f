//! The thread that does what no caller does: for calls that were started while nobody waits for them, and for tasks.
//!
//! There is one for all links of the process, and none while calls are only made and waited for. It sends what was held
//! back, sends datagrams again, ends calls whose time is over, and receives for tasks, which cannot lead. While calls
//! are being started it naps between two looks: to be woken for each would cost more than the call.

use std::mem;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use super::Link;
use crate::client::alarm::Alarm;
use crate::client::carrier::timespec;

/// The longest that a call may be held back: less than a thread may have to wait for a processor.
const NAP: Duration = Duration::from_micros(100);
/// The longest time between two looks while calls are being started.
const LONGEST_NAP: Duration = Duration::from_micros(400);
/// After so many looks since the last call was started it naps no more.
const QUIET: u32 = 8;

struct Service {
    alarm: Alarm,
    newcomers: Mutex<Vec<Arc<Link>>>,
    /// It sleeps until something comes, or looks before it does.
    sleeping: AtomicBool,
}

/// Not there while the system refuses: then calls that nobody waits for make no progress until somebody does.
static SERVICE: OnceLock<Service> = OnceLock::new();

/// Something is to be done on this link that no thread will do.
pub(crate) fn engage(link: &Arc<Link>) {
    let unlisted = !mem::replace(&mut link.lock().listed, true);
    look_after(link, unlisted);
}

/// Has the service look after a link. `unlisted` says that the link was not in the service's list, and that
/// the calling thread has added it.
pub(crate) fn look_after(link: &Arc<Link>, unlisted: bool) {
    let Some(service) = SERVICE.get().or_else(Service::start) else {
        // Whoever comes next tries again.
        link.lock().listed = false;
        return;
    };
    if unlisted {
        service.newcomers().push(link.clone());
    }
    service.wake();
}

/// Somebody waits who cannot receive himself: it is not to nap on.
pub(crate) fn rouse() {
    if let Some(service) = SERVICE.get() {
        service.alarm.ring();
    }
}

/// A link that is looked after needs a look.
pub(crate) fn wake() {
    if let Some(service) = SERVICE.get() {
        service.wake();
    }
}

impl Service {
    /// Only the first one that starts has a thread.
    fn start() -> Option<&'static Service> {
        static STARTING: Mutex<()> = Mutex::new(());
        let _one = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        if SERVICE.get().is_none() {
            let alarm = Alarm::new().ok()?;
            let run = || SERVICE.wait().live();
            thread::Builder::new().name("farcall-onc".into()).spawn(run).ok()?;
            let service = Service { alarm, newcomers: Mutex::default(), sleeping: AtomicBool::new(false) };
            SERVICE.get_or_init(|| service);
        }
        SERVICE.get()
    }

    fn wake(&self) {
        // What it is to see was written before, under a lock that it takes after saying that it sleeps.
        if self.sleeping.load(Ordering::SeqCst) {
            self.alarm.ring();
        }
    }

    fn newcomers(&self) -> MutexGuard<'_, Vec<Arc<Link>>> {
        self.newcomers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn live(&self) {
        let mut links: Vec<Tended> = Vec::new();
        let mut nap = NAP;
        loop {
            self.sleeping.store(true, Ordering::SeqCst);
            links.extend(self.newcomers().drain(..).map(Tended::new));
            let now = Instant::now();
            links.retain_mut(|tended| tended.tend(now));
            let time = match links.iter().any(|tended| tended.quiet < QUIET) {
                true => {
                    self.sleeping.store(false, Ordering::SeqCst);
                    let moved = links.iter().any(|tended| tended.quiet == 0);
                    nap = if moved { NAP } else { (nap * 2).min(LONGEST_NAP) };
                    Some(nap)
                }
                false => {
                    let next = links.iter().filter_map(|tended| tended.until).min();
                    next.map(|next| next.saturating_duration_since(now))
                }
            };
            self.sleep(&mut links, time);
        }
    }

    /// Sleeps until it is woken, or one of the links is ready, and acts on those that are.
    fn sleep(&self, links: &mut [Tended], time: Option<Duration>) {
        let mut fds = vec![PollFd::from_borrowed_fd(self.alarm.descriptor(), PollFlags::IN)];
        fds.extend(links.iter().filter_map(Tended::interest));
        if links.iter().any(|tended| tended.read && tended.link.carrier().holds()) {
            let _ = poll(&mut fds, Some(&timespec(Duration::ZERO)));
        } else {
            let _ = poll(&mut fds, time.map(timespec).as_ref());
        }
        let ready: Vec<PollFlags> = fds.iter().skip(1).map(PollFd::revents).collect();
        self.sleeping.store(false, Ordering::SeqCst);
        self.alarm.quiet();
        let polled = links.iter().filter(|tended| tended.interest().is_some());
        for (tended, ready) in polled.zip(ready) {
            tended.act(ready);
        }
    }
}

/// A link that is looked after.
struct Tended {
    link: Arc<Link>,
    /// How many calls had been started on it at the last look, and how many looks ago that was less.
    started: u64,
    quiet: u32,
    /// What to wait for.
    read: bool,
    write: bool,
    until: Option<Instant>,
}

impl Tended {
    fn new(link: Arc<Link>) -> Tended {
        Tended { link, started: 0, quiet: 0, read: false, write: false, until: None }
    }

    /// Does what is due; false if there is nothing more to look after.
    fn tend(&mut self, now: Instant) -> bool {
        let mut table = self.link.lock();
        let (ended, messages) = table.run_timers(now, &|heard| self.link.late(heard));
        let moved = mem::replace(&mut self.started, table.started) != table.started;
        self.quiet = if moved { 0 } else { self.quiet.saturating_add(1) };
        let wanted = table.is_unattended()
            || table.is_hurried()
            || table.timer.is_some()
            || !table.way.out.is_empty()
            || self.link.is_served_back();
        if table.broken.is_some() || !(wanted || self.quiet < QUIET) {
            table.listed = false;
            table.watched = false;
            drop(table);
            ended.into_iter().for_each(|watcher| watcher.wake(false));
            return false;
        }
        let patient = self.quiet >= QUIET && table.is_unattended();
        self.read = (table.is_hurried() || patient || self.link.is_served_back()) && !table.is_led();
        table.watched = self.read;
        self.until = table.timer;
        drop(table);
        if self.read {
            self.until = [self.until, self.link.due()].into_iter().flatten().min();
        }
        self.link.send_held();
        self.write = self.link.is_blocked();
        for (message, copies) in messages {
            let message = copies.map_or(Some(message), |copies| copies.another());
            message.iter().for_each(|message| self.link.send_datagram(message));
        }
        ended.into_iter().for_each(|watcher| watcher.wake(false));
        true
    }

    fn interest(&self) -> Option<PollFd<'_>> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, self.read);
        flags.set(PollFlags::OUT, self.write);
        let fd: BorrowedFd<'_> = self.link.carrier().descriptor();
        (!flags.is_empty()).then(|| PollFd::from_borrowed_fd(fd, flags))
    }

    fn act(&self, ready: PollFlags) {
        let trouble = ready.intersects(PollFlags::HUP | PollFlags::ERR);
        if self.write && (trouble || ready.contains(PollFlags::OUT)) {
            self.link.unblock();
        }
        let overdue = self.read && self.link.due().is_some_and(|due| due <= Instant::now());
        let some = trouble || ready.contains(PollFlags::IN) || self.link.carrier().holds() || overdue;
        // One who leads now hears of it too.
        if self.read && some && self.link.lock().try_lead() {
            self.link.look();
        }
    }
}
