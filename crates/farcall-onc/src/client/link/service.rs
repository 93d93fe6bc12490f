//! The thread that does what no caller does: for calls that were started while nobody waits for them, and for
//! tasks.
//!
//! There is one for all links of the process, and none while calls are only made and waited for. It sends
//! what was held back, sends datagrams again, ends calls whose time is over, and receives for tasks, which
//! cannot lead. While calls are being started it naps between two looks: to be woken for each would cost more
//! than the call.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use farcall::env::{Alarm, Env, Interest, Time, Wanted};
use farcall::lock;

use super::Link;

/// The longest that a call may be held back: less than a thread may have to wait for a processor.
const NAP: Duration = Duration::from_micros(100);
/// The longest time between two looks while calls are being started.
const LONGEST_NAP: Duration = Duration::from_micros(400);
/// After so many looks since the last call was started it naps no more.
const QUIET_LOOKS: u32 = 8;

/// What all links of one environment share.
pub(super) struct Service {
    env: Arc<dyn Env>,
    alarm: Arc<dyn Alarm>,
    newcomers: Mutex<Vec<Arc<Link>>>,
    /// It sleeps until something comes, or looks before it does.
    sleeping: AtomicBool,
}

/// Makes the service thread look after a link on which something is to be done that no caller will do.
pub(super) fn engage(link: &Arc<Link>) {
    let unlisted = !mem::replace(&mut link.lock().listed, true);
    look_after(link, unlisted);
}

/// Makes the service thread look after a link. `unlisted` says that the link was not in the service's list,
/// and that the calling thread has added it.
pub(super) fn look_after(link: &Arc<Link>, unlisted: bool) {
    let Some(service) = link.service() else {
        // Whoever comes next tries again. Until then such calls make progress only while somebody waits.
        link.lock().listed = false;
        return;
    };
    if unlisted {
        lock(&service.newcomers).push(link.clone());
    }
    service.wake();
}

impl Link {
    /// Wakes the service thread at once: somebody waits who cannot receive himself.
    pub(super) fn rouse_service(&self) {
        self.service.get().inspect(|service| service.alarm.ring());
    }

    /// Makes the service thread look at this link, if it looks after it.
    pub(super) fn wake_service(&self) {
        self.service.get().inspect(|service| service.wake());
    }

    fn service(&self) -> Option<&Arc<Service>> {
        if self.service.get().is_none() {
            let _ = self.service.set(Service::of(&self.env)?);
        }
        self.service.get()
    }
}

impl Service {
    /// The service of an environment. The first one that asks starts its thread; none while the system
    /// refuses that.
    fn of(env: &Arc<dyn Env>) -> Option<Arc<Service>> {
        static SERVICES: Mutex<Vec<Weak<Service>>> = Mutex::new(Vec::new());
        let mut services = lock(&SERVICES);
        services.retain(|service| service.strong_count() > 0);
        let mut living = services.iter().filter_map(Weak::upgrade);
        if let Some(service) = living.find(|service| Arc::ptr_eq(&service.env, env)) {
            return Some(service);
        }
        let service = Arc::new(Service {
            env: env.clone(),
            alarm: env.alarm().ok()?,
            newcomers: Mutex::default(),
            sleeping: AtomicBool::new(false),
        });
        let lives = service.clone();
        env.spawn("farcall-onc", Box::new(move || lives.live())).ok()?;
        services.push(Arc::downgrade(&service));
        Some(service)
    }

    fn wake(&self) {
        // The calling thread wrote what the service thread is to see under a lock. The service thread takes
        // that lock after it sets `sleeping`: either it sees what was written, or this thread sees `sleeping`.
        if self.sleeping.load(Ordering::Acquire) {
            self.alarm.ring();
        }
    }

    fn live(&self) {
        let mut links: Vec<Tended> = Vec::new();
        let mut nap = NAP;
        loop {
            self.sleeping.store(true, Ordering::Release);
            links.extend(lock(&self.newcomers).drain(..).map(Tended::new));
            let now = self.env.now();
            links.retain_mut(|tended| tended.tend(now));
            let time = match links.iter().any(|tended| tended.quiet < QUIET_LOOKS) {
                true => {
                    self.sleeping.store(false, Ordering::Release);
                    let moved = links.iter().any(|tended| tended.quiet == 0);
                    nap = if moved { NAP } else { (nap * 2).min(LONGEST_NAP) };
                    Some(nap)
                }
                false => {
                    let next = links.iter().filter_map(|tended| tended.until).min();
                    next.map(|next| next.since(now))
                }
            };
            self.sleep(&mut links, time);
        }
    }

    /// Sleeps until it is woken, or one of the links is ready, and acts on those that are.
    fn sleep(&self, links: &mut [Tended], time: Option<Duration>) {
        let mut wanted = vec![Wanted::new(self.alarm.source(), Interest::READ)];
        wanted.extend(links.iter().filter_map(Tended::wanted));
        let holds = links.iter().any(|tended| tended.interest.read && tended.link.carrier.holds());
        let _ = self.env.wait_any(&mut wanted, if holds { Some(Duration::ZERO) } else { time });
        let ready: Vec<Interest> = wanted.iter().skip(1).map(|wanted| wanted.ready).collect();
        self.sleeping.store(false, Ordering::Release);
        self.alarm.quiet();
        let waited_for = links.iter().filter(|tended| tended.wanted().is_some());
        for (tended, ready) in waited_for.zip(ready) {
            tended.act(ready, self.env.now());
        }
    }
}

/// A link that is looked after.
struct Tended {
    link: Arc<Link>,
    /// How many calls had been started on it at the last look, and how many looks ago that was less.
    started: u64,
    quiet: u32,
    /// What to wait for, and until when.
    interest: Interest,
    until: Option<Time>,
}

impl Tended {
    fn new(link: Arc<Link>) -> Tended {
        Tended { link, started: 0, quiet: 0, interest: Interest::default(), until: None }
    }

    /// Does what is due; false if there is nothing more to look after.
    fn tend(&mut self, now: Time) -> bool {
        let mut table = self.link.lock();
        let (ended, messages) = table.run_timers(now, &|heard| self.link.late(heard));
        let moved = mem::replace(&mut self.started, table.started) != table.started;
        self.quiet = if moved { 0 } else { self.quiet.saturating_add(1) };
        let wanted = table.is_unattended()
            || table.needs_service()
            || table.timer.is_some()
            || !table.send_queue.out.is_empty()
            || self.link.is_served_back();
        if table.broken.is_some() || !(wanted || self.quiet < QUIET_LOOKS) {
            table.listed = false;
            table.watched = false;
            drop(table);
            ended.into_iter().for_each(|watcher| watcher.wake(false));
            return false;
        }
        let patient = self.quiet >= QUIET_LOOKS && table.is_unattended();
        let read = (table.needs_service() || patient || self.link.is_served_back()) && self.link.is_unled();
        table.watched = read;
        self.until = table.timer;
        drop(table);
        if read {
            self.until = [self.until, self.link.due()].into_iter().flatten().min();
        }
        self.link.send_held();
        self.interest = Interest { read, write: self.link.is_blocked() };
        for (message, resealer) in messages {
            let message = resealer.map_or(Some(message), |resealer| resealer.another());
            message.iter().for_each(|message| self.link.send_datagram(message));
        }
        ended.into_iter().for_each(|watcher| watcher.wake(false));
        true
    }

    fn wanted(&self) -> Option<Wanted<'_>> {
        let wanted = Wanted::new(self.link.carrier.source(), self.interest);
        (self.interest != Interest::default()).then_some(wanted)
    }

    fn act(&self, ready: Interest, now: Time) {
        if ready.write {
            self.link.unblock();
        }
        let overdue = self.link.due().is_some_and(|due| due <= now);
        // A thread that leads now hears of it too.
        if self.interest.read && (ready.read || self.link.carrier.holds() || overdue) {
            self.link.look();
        }
    }
}
