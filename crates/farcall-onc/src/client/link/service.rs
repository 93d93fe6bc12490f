//! The service thread, which serves started calls while no caller waits for them, and receives for tasks.
//!
//! One thread serves all links of the process. It does not start while threads only make calls and wait for
//! them. It sends calls that were held back, sends datagrams again, ends calls whose time is over, and
//! receives for tasks, which cannot lead (receive for all) themselves. While calls are being started it
//! sleeps for fixed short times, because a wake-up for each call would cost more than the call.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use farcall::env::{Alarm, Env, Interest, Time, Wanted};
use farcall::lock;

use super::Link;

/// The shortest nap. It bounds how long a call is held back while calls are being started. It is so short
/// that a thread may have to wait longer for a processor.
const MIN_NAP: Duration = Duration::from_micros(100);
/// The longest nap between two rounds while calls are being started.
const MAX_NAP: Duration = Duration::from_micros(400);
/// The number of rounds without a newly started call after which the thread sleeps until it is woken.
const MAX_QUIET_ROUNDS: u32 = 8;

/// The service thread's state, which all links of one environment share.
pub(super) struct Service {
    env: Arc<dyn Env>,
    alarm: Arc<dyn Alarm>,
    newcomers: Mutex<Vec<Arc<Link>>>,
    /// Whether the thread sleeps until it is woken, or is about to.
    sleeping: AtomicBool,
}

/// Makes the service thread look after a link that has work for which no caller waits.
pub(super) fn engage(link: &Arc<Link>) {
    let unlisted = !mem::replace(&mut link.lock().listed, true);
    look_after(link, unlisted);
}

/// Makes the service thread look after a link. If `unlisted`, the calling thread has just set
/// `Table::listed`, so the link is added to the service's list.
pub(super) fn look_after(link: &Arc<Link>, unlisted: bool) {
    let Some(service) = link.service() else {
        // The next start or poll tries again to start the service thread. Until then started calls progress
        // only while a thread waits.
        link.lock().listed = false;
        return;
    };
    if unlisted {
        lock(&service.newcomers).push(link.clone());
    }
    service.wake();
}

impl Link {
    /// Wakes the service thread even from a nap, because a task waits, and tasks cannot receive.
    pub(super) fn wake_service_now(&self) {
        self.service.get().inspect(|service| service.alarm.ring());
    }

    /// Wakes the service thread, if this link has one and it sleeps. A napping thread wakes by itself.
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
    /// Returns the service of an environment. The first call starts its thread. Returns `None` if the system
    /// refuses the thread or its alarm.
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
        // Under a lock, the calling thread has written what the service thread is to see. The service thread
        // takes that lock after it sets `sleeping`. So either the service thread sees what was written, or
        // this thread sees `sleeping`.
        if self.sleeping.load(Ordering::Acquire) {
            self.alarm.ring();
        }
    }

    fn live(&self) {
        let mut links: Vec<ServedLink> = Vec::new();
        let mut nap = MIN_NAP;
        loop {
            self.sleeping.store(true, Ordering::Release);
            links.extend(lock(&self.newcomers).drain(..).map(ServedLink::new));
            let now = self.env.now();
            links.retain_mut(|served| served.serve(now));
            let time = match links.iter().any(|served| served.quiet < MAX_QUIET_ROUNDS) {
                true => {
                    self.sleeping.store(false, Ordering::Release);
                    let moved = links.iter().any(|served| served.quiet == 0);
                    nap = if moved { MIN_NAP } else { (nap * 2).min(MAX_NAP) };
                    Some(nap)
                }
                false => {
                    let next = links.iter().filter_map(|served| served.until).min();
                    next.map(|next| next.since(now))
                }
            };
            self.sleep(&mut links, time);
        }
    }

    /// Sleeps until the alarm rings, a link is ready or `time` has passed. Then acts on the ready links.
    fn sleep(&self, links: &mut [ServedLink], time: Option<Duration>) {
        let mut wanted = vec![Wanted::new(self.alarm.source(), Interest::READ)];
        wanted.extend(links.iter().filter_map(ServedLink::wanted));
        let holds = links.iter().any(|served| served.interest.read && served.link.carrier.holds());
        let _ = self.env.wait_any(&mut wanted, if holds { Some(Duration::ZERO) } else { time });
        let ready: Vec<Interest> = wanted.iter().skip(1).map(|wanted| wanted.ready).collect();
        self.sleeping.store(false, Ordering::Release);
        self.alarm.quiet();
        let waited_for = links.iter().filter(|served| served.wanted().is_some());
        for (served, ready) in waited_for.zip(ready) {
            served.act(ready, self.env.now());
        }
    }
}

/// A link that the service thread looks after.
struct ServedLink {
    link: Arc<Link>,
    /// The number of calls that had been started on the link at the last round.
    started: u64,
    /// The number of rounds since a call was started on the link.
    quiet: u32,
    /// The readiness for which to wait.
    interest: Interest,
    /// When the link's next timer is due.
    until: Option<Time>,
}

impl ServedLink {
    fn new(link: Arc<Link>) -> ServedLink {
        ServedLink { link, started: 0, quiet: 0, interest: Interest::default(), until: None }
    }

    /// Does the work of the link that is due. Returns false if the link needs the service thread no longer.
    fn serve(&mut self, now: Time) -> bool {
        let mut table = self.link.lock();
        let (ended, messages) = table.run_timers(now, &|heard| self.link.late(heard));
        let moved = mem::replace(&mut self.started, table.started) != table.started;
        self.quiet = if moved { 0 } else { self.quiet.saturating_add(1) };
        let wanted = table.is_unattended()
            || table.needs_service()
            || table.timer.is_some()
            || !table.send_queue.out.is_empty()
            || self.link.is_served_back();
        if table.broken.is_some() || !(wanted || self.quiet < MAX_QUIET_ROUNDS) {
            table.listed = false;
            table.watched = false;
            drop(table);
            ended.into_iter().for_each(|watcher| watcher.wake(false));
            return false;
        }
        let patient = self.quiet >= MAX_QUIET_ROUNDS && table.is_unattended();
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
        // If another thread leads by now, `look` does nothing and that thread receives the data.
        if self.interest.read && (ready.read || self.link.carrier.holds() || overdue) {
            self.link.look();
        }
    }
}
