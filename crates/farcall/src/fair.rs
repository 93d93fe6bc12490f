//! A bounded queue that is fair between hosts, and between the callers of a host: they take turns, and when
//! it is full the host that has most in it makes way, by the newest of its caller that has most (Nagle 1987,
//! "On packet switches with infinite storage").

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// What waits in a queue.
pub trait Waits {
    /// Who pays for it: a host.
    type Payer: Copy + Eq + Hash;
    /// Who of a payer's callers it waits for. No other payer's has the same name.
    type Caller: Copy + Eq + Hash;
    /// What tells it from others.
    type Key: PartialEq;

    /// What tells it from others of its caller.
    fn key(&self) -> Self::Key;
    /// Who pays for it.
    fn payer(&self) -> Self::Payer;
    /// Whom it waits for.
    fn caller(&self) -> Self::Caller;
    /// What it costs to keep.
    fn bytes(&self) -> usize;
}

/// What waits for its turn, and what is held: that has none until it is admitted.
pub struct FairQueue<T: Waits> {
    most: usize,
    most_bytes: usize,
    all: Weight,
    /// Whoever is here has something here.
    callers: HashMap<T::Caller, Line<T>>,
    payers: HashMap<T::Payer, Turns<T::Caller>>,
    /// Payers with anything that waits for its turn.
    turns: VecDeque<T::Payer>,
    /// How much is held.
    held: usize,
    /// How many have come.
    arrivals: u64,
}

/// How much somebody has in the queue, held or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Weight {
    len: usize,
    bytes: usize,
}

/// What waits, and what is held back, of one caller.
struct Line<T: Waits> {
    /// Whoever paid for the first: a conversation that moves meanwhile stands where it stood.
    payer: T::Payer,
    waiting: VecDeque<T>,
    held: VecDeque<T>,
    weight: Weight,
    /// The number of what came last, of all arrivals.
    latest: u64,
}

/// The callers of one payer, and what they hold together.
struct Turns<C> {
    weight: Weight,
    latest: u64,
    /// Its callers with anything that waits for its turn.
    turns: VecDeque<C>,
}

impl<C> Default for Turns<C> {
    fn default() -> Turns<C> {
        Turns { weight: Weight::default(), latest: 0, turns: VecDeque::new() }
    }
}

impl Weight {
    fn add(&mut self, bytes: usize) {
        self.len += 1;
        self.bytes += bytes;
    }

    fn remove(&mut self, bytes: usize) {
        self.len -= 1;
        self.bytes -= bytes;
    }
}

impl<T: Waits> FairQueue<T> {
    /// An empty one for so many, and so many bytes.
    pub fn new(most: usize, most_bytes: usize) -> FairQueue<T> {
        let (callers, payers, turns) = (HashMap::new(), HashMap::new(), VecDeque::new());
        FairQueue { most, most_bytes, all: Weight::default(), callers, payers, turns, held: 0, arrivals: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.all.len == 0
    }

    pub fn len(&self) -> usize {
        self.all.len
    }

    /// How many bytes all costs to keep.
    pub fn bytes(&self) -> usize {
        self.all.bytes
    }

    /// Whether as many are here as may be.
    pub fn is_full(&self) -> bool {
        self.all.len >= self.most
    }

    /// Whether anything is held.
    pub fn holds_any(&self) -> bool {
        self.held > 0
    }

    /// Whether anything of a caller is held.
    pub fn holds(&self, caller: T::Caller) -> bool {
        self.callers.get(&caller).is_some_and(|line| !line.held.is_empty())
    }

    /// Adds one, which may be held, if there is room. Gives back what there is no room for: this one, or the
    /// newest of who has much more here.
    #[must_use]
    pub fn push(&mut self, new: T, held: bool) -> Vec<T> {
        let mut evicted = Vec::new();
        while !self.has_room(&new) {
            let latest = self.makes_way_for(&new).and_then(|caller| self.take_latest(caller));
            let Some(latest) = latest else {
                evicted.push(new);
                return evicted;
            };
            evicted.push(latest);
        }
        if held {
            self.hold(new)
        } else {
            self.add(new)
        }
        evicted
    }

    /// Adds one that waits for its turn, whether there is room or not.
    pub fn add(&mut self, new: T) {
        self.arrivals += 1;
        let (caller, line) = (new.caller(), self.enter(&new, self.arrivals));
        let has_turn = !line.waiting.is_empty();
        line.waiting.push_back(new);
        self.line_up(caller, has_turn, false);
    }

    fn hold(&mut self, new: T) {
        self.arrivals += 1;
        self.enter(&new, self.arrivals).held.push_back(new);
        self.held += 1;
    }

    /// Gives one back its place at the head.
    pub fn put_back(&mut self, first: T) {
        let (caller, line) = (first.caller(), self.enter(&first, 0));
        let has_turn = !line.waiting.is_empty();
        line.waiting.push_front(first);
        self.line_up(caller, has_turn, true);
    }

    /// What a caller has held waits for its turn from now on, as long as it may. Whether there is any.
    pub fn admit(&mut self, caller: T::Caller, mut may: impl FnMut(&T) -> bool) -> bool {
        let Some(line) = self.callers.get_mut(&caller) else { return false };
        let (before, has_turn) = (line.held.len(), !line.waiting.is_empty());
        while line.held.front().is_some_and(&mut may)
            && let Some(admitted) = line.held.pop_front()
        {
            line.waiting.push_back(admitted);
        }
        let admitted = before - line.held.len();
        self.held -= admitted;
        if admitted > 0 {
            self.line_up(caller, has_turn, false);
        }
        admitted > 0
    }

    /// Whose turn it is.
    pub fn front(&self) -> Option<&T> {
        let caller = self.payers.get(self.turns.front()?)?.turns.front()?;
        self.callers.get(caller)?.waiting.front()
    }

    /// Whether anything of a payer is here.
    pub fn has_any_of(&self, payer: T::Payer) -> bool {
        self.payers.contains_key(&payer)
    }

    /// Looks at some payers in turn for the first whose next may be taken out: it is that one's turn then.
    /// Whether there is one.
    pub fn turn_to(&mut self, looks: usize, mut may: impl FnMut(&T) -> bool) -> bool {
        for _ in 0..self.turns.len().min(looks) {
            if self.front().is_some_and(&mut may) {
                return true;
            }
            self.turns.rotate_left(1);
        }
        false
    }

    /// Takes out whose turn it is. Its caller's next comes after those of all others.
    pub fn pop(&mut self) -> Option<T> {
        self.pop_if(|_| true)
    }

    /// Takes out the first, of those whose turn it is at their payers, that may be.
    pub fn pop_if(&mut self, mut may: impl FnMut(&T) -> bool) -> Option<T> {
        let FairQueue { callers, payers, turns, .. } = self;
        let first = |payer: &T::Payer| callers.get(payers.get(payer)?.turns.front()?)?.waiting.front();
        let place = turns.iter().position(|payer| first(payer).is_some_and(&mut may))?;
        let payer = turns.remove(place)?;
        turns.push_back(payer);
        let caller = *payers.get(&payer)?.turns.front()?;
        let first = callers.get_mut(&caller)?.waiting.pop_front()?;
        payers.get_mut(&payer)?.turns.rotate_left(1);
        self.leave(caller, first.bytes());
        Some(first)
    }

    /// The first of each caller that waits for its turn.
    pub fn firsts(&self) -> impl Iterator<Item = &T> {
        self.callers.values().filter_map(|line| line.waiting.front())
    }

    /// Takes one out.
    pub fn remove(&mut self, caller: T::Caller, key: T::Key) -> Option<T> {
        let line = self.callers.get_mut(&caller)?;
        let find = |all: &VecDeque<T>| all.iter().position(|one| one.key() == key);
        let removed = match find(&line.held) {
            Some(at) => line.held.remove(at).inspect(|_| self.held -= 1)?,
            None => line.waiting.remove(find(&line.waiting)?)?,
        };
        self.leave(caller, removed.bytes());
        Some(removed)
    }

    fn has_room(&self, new: &T) -> bool {
        self.all.len < self.most && self.all.bytes.saturating_add(new.bytes()) <= self.most_bytes
    }

    /// The caller that has most at the payer that has most, if that is much more than the payer of this one
    /// has; else of the latter's callers the one that has most, if that is much more than the caller of this
    /// one has.
    #[cold]
    fn makes_way_for(&self, new: &T) -> Option<T::Caller> {
        let bytes = self.all.bytes.saturating_add(new.bytes());
        let by_bytes = bytes > self.most_bytes;
        let amount = |weight: &Weight| if by_bytes { weight.bytes } else { weight.len };
        // Among equals, of whom the newest is.
        // As much as it brings, and as much as must go: with less more might have to go than is of any use.
        let much = if by_bytes { new.bytes().saturating_add(bytes - self.most_bytes) } else { 2 };
        let caller = new.caller();
        let payer = self.callers.get(&caller).map_or_else(|| new.payer(), |line| line.payer);
        let own = self.payers.get(&payer).map_or(0, |turns| amount(&turns.weight));
        let heaviest = self.payers.iter().max_by_key(|(_, turns)| (amount(&turns.weight), turns.latest));
        let heavier = heaviest.filter(|(_, turns)| amount(&turns.weight) > own.saturating_add(much));
        let pays = heavier.map_or(payer, |(heavier, _)| *heavier);
        let callers = self.callers.iter().filter(|(_, line)| line.payer == pays);
        let (heaviest, line) = callers.max_by_key(|(_, line)| (amount(&line.weight), line.latest))?;
        let own = self.callers.get(&caller).map_or(0, |line| amount(&line.weight));
        (heavier.is_some() || amount(&line.weight) > own.saturating_add(much)).then_some(*heaviest)
    }

    /// Takes out the newest of a caller.
    fn take_latest(&mut self, caller: T::Caller) -> Option<T> {
        let line = self.callers.get_mut(&caller)?;
        let latest = match line.held.pop_back() {
            Some(held) => {
                self.held -= 1;
                held
            }
            None => line.waiting.pop_back()?,
        };
        self.leave(caller, latest.bytes());
        Some(latest)
    }

    /// Counts one that comes, as the latest if it has that number.
    fn enter(&mut self, new: &T, latest: u64) -> &mut Line<T> {
        let bytes = new.bytes();
        let (waiting, held, weight) = (VecDeque::new(), VecDeque::new(), Weight::default());
        let line = || Line { payer: new.payer(), waiting, held, weight, latest };
        let line = self.callers.entry(new.caller()).or_insert_with(line);
        line.weight.add(bytes);
        line.latest = line.latest.max(latest);
        let payer = self.payers.entry(line.payer).or_default();
        payer.weight.add(bytes);
        payer.latest = payer.latest.max(latest);
        self.all.add(bytes);
        line
    }

    /// Gives a caller a turn, the last or the next, if it has none or is to have the next.
    fn line_up(&mut self, caller: T::Caller, has_turn: bool, next: bool) {
        if has_turn && !next {
            return;
        }
        let Some(line) = self.callers.get(&caller) else { return };
        let Some(payer) = self.payers.get_mut(&line.payer) else { return };
        let payer_has_turn = !payer.turns.is_empty();
        if !next {
            payer.turns.push_back(caller);
            if !payer_has_turn {
                self.turns.push_back(line.payer);
            }
            return;
        }
        if has_turn {
            drop_turn(&mut payer.turns, caller);
        }
        if payer_has_turn {
            drop_turn(&mut self.turns, line.payer);
        }
        payer.turns.push_front(caller);
        self.turns.push_front(line.payer);
    }

    /// Counts one that was taken out. Who has nothing left is forgotten.
    fn leave(&mut self, caller: T::Caller, bytes: usize) {
        self.all.remove(bytes);
        let Some(line) = self.callers.get_mut(&caller) else { return };
        line.weight.remove(bytes);
        let (name, waits, is_over) = (line.payer, !line.waiting.is_empty(), line.weight.len == 0);
        if is_over {
            self.callers.remove(&caller);
        }
        let Some(payer) = self.payers.get_mut(&name) else { return };
        payer.weight.remove(bytes);
        if !waits {
            drop_turn(&mut payer.turns, caller);
        }
        if payer.turns.is_empty() {
            drop_turn(&mut self.turns, name);
        }
        if payer.weight.len == 0 {
            self.payers.remove(&name);
        }
    }
}

/// Takes a name out. It stands at the end if its turn was the last.
fn drop_turn<N: Copy + PartialEq>(turns: &mut VecDeque<N>, name: N) {
    if turns.back() == Some(&name) {
        turns.pop_back();
    } else if let Some(at) = turns.iter().position(|other| *other == name) {
        turns.remove(at);
    }
}

#[cfg(test)]
mod tests;
