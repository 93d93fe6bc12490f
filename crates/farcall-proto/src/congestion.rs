//! The congestion window of a conversation: CUBIC (RFC 9438), with HyStart++ (RFC 9406) while it doubles.
//!
//! The window doubles each round trip until round trips grow or something is lost. From then on it approaches
//! the size at which something was last lost, quickly at first and slowly near it, and then goes beyond, ever
//! faster. It grows with time and not with round trips, so conversations over long paths get their share.

use std::time::Duration;

use crate::Time;
use crate::config::BASE_DATAGRAM;
use crate::transfer::Room;

/// The constants of CUBIC (RFC 9438 sections 4.1 and 4.6): how fast the window grows, what is left of it
/// after a loss, and by how much Reno's window would grow each round trip with this reduction, in datagrams.
const GROWTH: f64 = 0.4;
const LEFT: f64 = 0.7;
const RENO_GROWTH: f64 = 3.0 * (1.0 - LEFT) / (1.0 + LEFT);

/// The window is at most one and a half times as large after a round trip in which nothing was lost, once it
/// no longer doubles (RFC 9438 section 4.2).
const MOST_GROWTH: f64 = 1.5;

/// How many bytes are under way, and may be.
#[derive(Clone, Debug)]
pub(crate) struct Congestion {
    /// The window in bytes. [`Congestion::window`] applies the minimum.
    window: u32,
    /// The window doubles each round trip while it is below this.
    threshold: u32,
    /// What has become of fragments. A conversation that has sent nothing long has none.
    history: Option<Box<History>>,
}

/// What has become of fragments, and how the window follows it.
#[derive(Clone, Debug, Default)]
struct History {
    /// When the window last shrank.
    recovering_since: Option<Time>,
    rounds: Rounds,
    cubic: Cubic,
    /// What was true when the window last shrank, until the losses prove real.
    before: Option<Before>,
    /// The number of bytes that counted as lost since then and have not proven to be only late.
    unproven: u32,
    /// Whether they counted as lost because somebody waited in vain, and not because later ones had arrived.
    waited: bool,
}

#[derive(Clone, Copy, Debug)]
struct Before {
    window: u32,
    threshold: u32,
    plateau: f64,
}

/// How the window grows once it no longer doubles.
#[derive(Clone, Copy, Debug, Default)]
struct Cubic {
    /// The window at which something was last lost, in bytes.
    plateau: f64,
    /// The present growth, or `None` if none has begun since the window last shrank or was not used.
    growth: Option<Growth>,
}

#[derive(Clone, Copy, Debug)]
struct Growth {
    began: Time,
    /// The window at which the growth is slowest, in bytes.
    plateau: f64,
    /// After how many seconds the window reaches the plateau.
    rise: f64,
    /// The window in bytes, with the parts of bytes.
    window: f64,
    /// The window that Reno would have.
    reno: f64,
}

/// The round trips of fragments while the window doubles (RFC 9406).
#[derive(Clone, Copy, Debug)]
struct Rounds {
    /// When the present round began. It ends with the first answer to a fragment that was sent since.
    began: Time,
    /// The shortest round trips of the last and of the present round.
    last: Duration,
    present: Duration,
    /// How many round trips of the present round were measured.
    samples: u8,
    /// While the window grows slowly, because round trips have grown: the shortest one when that began, and
    /// how many rounds it still lasts.
    slow: Option<(Duration, u8)>,
}

impl Default for Congestion {
    fn default() -> Congestion {
        Congestion { window: 10 * BASE_DATAGRAM as u32, threshold: u32::MAX, history: None }
    }
}

impl Congestion {
    /// Returns how many bytes may be unacknowledged when datagrams have `datagram` bytes. The window is never
    /// less than four datagrams or eight small ones, so that a path with losses is slow but not stuck.
    pub fn window(&self, datagram: usize) -> u32 {
        self.window.max(Self::floor(datagram))
    }

    fn history(&mut self) -> &mut History {
        self.history.get_or_insert_default()
    }

    fn floor(datagram: usize) -> u32 {
        (4 * datagram).max(8 * BASE_DATAGRAM) as u32
    }

    /// Returns the room for one message while `in_flight` bytes are unacknowledged and `others` more messages
    /// wait. Its receiver is asked for a report after at most a quarter of the window, so that bursts stay
    /// short. At most `most` bytes may be unacknowledged.
    pub fn room(&self, datagram: usize, in_flight: u32, others: usize, most: u32) -> Room {
        let window = self.window(datagram).min(most);
        let share = u32::try_from(others + 1).map_or(0, |sharers| window / 4 / sharers);
        let quantum = share.min(8 * datagram as u32);
        Room { window, left: window.saturating_sub(in_flight), quantum, shared: others > 0 }
    }

    /// Notes that `bytes` of the `in_flight` unacknowledged bytes have arrived, over a path whose round trip
    /// takes `round_trip`. The window grows, up to `most`, but only if it was the bound on sending (RFC 9002
    /// section 7.8).
    pub fn arrived(
        &mut self,
        (now, round_trip): (Time, Duration),
        (bytes, in_flight): (u32, u32),
        (datagram, most): (usize, u32),
    ) {
        let window = self.window(datagram);
        if in_flight < window / 2 {
            if let Some(history) = &mut self.history {
                history.cubic.growth = None;
            }
            return;
        }
        let grown = if window < self.threshold {
            let is_slow = self.history.as_ref().is_some_and(|history| history.rounds.slow.is_some());
            window.saturating_add(if is_slow { bytes / SLOWER } else { bytes })
        } else {
            self.history().cubic.grow(now, round_trip, window, bytes, datagram)
        };
        self.window = grown.min(most.max(window));
    }

    /// Notes how long the round trip of a fragment took that was sent at `sent`. When round trips grow, a
    /// queue on the path grows. Then the window grows more slowly for some rounds, and no longer doubles if
    /// they stay as long, because a queue that overflows loses much at once.
    pub fn took(&mut self, sent: Time, now: Time) {
        if self.window < self.threshold && self.history().rounds.took(sent, now) {
            self.threshold = self.window;
            self.history().cubic = Cubic::default();
        }
    }

    /// Shrinks the window because fragments were lost, the earliest of them sent at `since`. `bytes` of them
    /// were never counted as lost before. Losses of fragments that were sent before the window last shrank do
    /// not shrink it again. `waited` says that somebody waited in vain.
    pub fn lost(&mut self, now: Time, (since, bytes): (Time, u32), datagram: usize, waited: bool) {
        let (window, threshold, full) = (self.window, self.threshold, f64::from(self.window(datagram)));
        let history = self.history();
        if history.recovering_since.is_some_and(|t| since < t) {
            return self.doubt(bytes);
        }
        let plateau = history.cubic.plateau;
        history.recovering_since = Some(now);
        // Repetitions do not prove to be only late, so nothing restores a window that shrank for them alone.
        history.before = (bytes > 0).then_some(Before { window, threshold, plateau });
        (history.unproven, history.waited) = (bytes, waited);
        // A conversation that has less than it had makes room for others sooner (RFC 9438 section 4.7).
        let plateau = if full < plateau { full * (1.0 + LEFT) / 2.0 } else { full };
        history.cubic = Cubic { plateau, growth: None };
        self.window = ((full * LEFT) as u32).max(Self::floor(datagram));
        self.threshold = self.window;
    }

    /// Returns whether fragments counted as lost because later ones had arrived, once for each time that the
    /// window shrinks.
    pub fn was_overtaken(&mut self) -> bool {
        !std::mem::replace(&mut self.history().waited, true)
    }

    /// Notes that `bytes` count as lost, without shrinking the window.
    pub fn doubt(&mut self, bytes: u32) {
        let unproven = &mut self.history().unproven;
        *unproven = unproven.saturating_add(bytes);
    }

    /// Notes that `bytes` which counted as lost were only late. If all were that counted as lost since the
    /// window shrank, nothing was lost, and the window is restored (RFC 4015 section 3.2). The numbers of the
    /// datagrams make this certain, where TCP must conclude it from time stamps or later segments (RFC 3522,
    /// RFC 5682).
    pub fn restore(&mut self, bytes: u32) {
        let history = self.history();
        history.unproven = history.unproven.saturating_sub(bytes);
        if history.unproven == 0
            && let Some(before) = history.before.take()
        {
            history.cubic = Cubic { plateau: before.plateau, growth: None };
            self.window = self.window.max(before.window);
            self.threshold = self.threshold.max(before.threshold);
        }
    }
}

impl Cubic {
    /// Returns the window after `bytes` of it have arrived.
    fn grow(&mut self, now: Time, round_trip: Duration, window: u32, bytes: u32, datagram: usize) -> u32 {
        let (datagram, bytes, whole) = (datagram as f64, f64::from(bytes), f64::from(window));
        let top = self.plateau.max(whole);
        let growth = self.growth.get_or_insert_with(|| Growth {
            began: now,
            plateau: top,
            rise: ((top - whole) / datagram / GROWTH).cbrt(),
            window: whole,
            reno: whole,
        });
        // The window can have been restored or bounded since.
        if growth.window as u32 != window {
            growth.window = whole;
        }
        let since_plateau = (now.since(growth.began) + round_trip).as_secs_f64() - growth.rise;
        let curve = growth.plateau + GROWTH * datagram * since_plateau * since_plateau * since_plateau;
        let target = curve.clamp(growth.window, growth.window * MOST_GROWTH);
        let share = bytes / growth.window;
        growth.reno += RENO_GROWTH * datagram * share;
        growth.window = (growth.window + (target - growth.window) * share).max(growth.reno);
        growth.window as u32
    }
}

/// By how much slower the window grows than by doubling, and for how many rounds, before it stops to double
/// (RFC 9406 section 4.3).
const SLOWER: u32 = 4;
const SLOW_ROUNDS: u8 = 5;

/// How many round trips of a round are measured before it is compared with the last one. The RFC has 8 of its
/// acknowledgements; ours are fewer, at least four in a window.
const SAMPLES: u8 = 4;

impl Default for Rounds {
    fn default() -> Rounds {
        let never = Duration::MAX;
        Rounds { began: Time::default(), last: never, present: never, samples: 0, slow: None }
    }
}

impl Rounds {
    /// Notes how long a round trip took. Returns whether the window is no longer to double.
    fn took(&mut self, sent: Time, now: Time) -> bool {
        if sent >= self.began {
            (self.last, self.present, self.samples, self.began) = (self.present, Duration::MAX, 0, now);
            if let Some((_, left)) = &mut self.slow {
                *left -= 1;
                if *left == 0 {
                    self.slow = None;
                    return true;
                }
            }
        }
        self.present = self.present.min(now.since(sent));
        self.samples = self.samples.saturating_add(1);
        if self.samples < SAMPLES || self.last == Duration::MAX {
            return false;
        }
        match self.slow {
            None => {
                let margin = (self.last / 8).clamp(Duration::from_millis(4), Duration::from_millis(16));
                let grows = self.present >= self.last + margin;
                self.slow = grows.then_some((self.present, SLOW_ROUNDS));
            }
            // The queue was not ours, or has gone.
            Some((least, _)) if self.present < least => self.slow = None,
            Some(_) => {}
        }
        false
    }
}

#[cfg(test)]
mod tests;
