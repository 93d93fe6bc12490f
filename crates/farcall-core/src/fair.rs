//! A bounded queue for servers, fair between payers (such as hosts) and between the callers of a payer.
//! Payers take turns, and so do the callers of a payer. When the queue is full, the payer with the most
//! entries loses one: the newest entry of the caller that has the most of them (Nagle 1987, "On packet
//! switches with infinite storage").

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// An entry of a queue.
pub trait Waits {
    /// The owner of a share of the queue, such as a host.
    type Payer: Copy + Eq + Hash;
    /// A caller that belongs to a payer. Callers of different payers never compare equal.
    type Caller: Copy + Eq + Hash;
    /// The type of key that distinguishes a caller's entries.
    type Key: PartialEq;

    /// Returns the key of this entry, which differs from the keys of its caller's other entries.
    fn key(&self) -> Self::Key;
    /// Returns the payer whose share the entry uses.
    fn payer(&self) -> Self::Payer;
    /// Returns the caller whose entry this is.
    fn caller(&self) -> Self::Caller;
    /// Returns how many bytes it takes to keep this entry.
    fn bytes(&self) -> usize;
}

/// A queue of waiting and held entries. Waiting entries are taken out in turn. Held entries are not, until
/// [`admit`](FairQueue::admit) makes them wait for a turn.
pub struct FairQueue<T: Waits> {
    most: usize,
    most_bytes: usize,
    all: Weight,
    /// The callers that have an entry, waiting or held.
    callers: HashMap<T::Caller, Line<T>>,
    payers: HashMap<T::Payer, Turns<T::Caller>>,
    /// The payers that have a waiting entry, in the order of their turns.
    turns: VecDeque<T::Payer>,
    /// How many entries are held.
    held: usize,
    /// The number of entries that were ever added.
    arrivals: u64,
}

/// The number of entries and of bytes of a payer, of a caller, or of all payers. Held entries count too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Weight {
    len: usize,
    bytes: usize,
}

/// The entries of one caller.
struct Line<T: Waits> {
    /// The payer of the first entry. A caller that moves to another host meanwhile still counts for this
    /// payer.
    payer: T::Payer,
    waiting: VecDeque<T>,
    held: VecDeque<T>,
    weight: Weight,
    /// The number, among all arrivals, of the entry that came last.
    latest: u64,
}

/// The callers of one payer, and the number of their entries and bytes together.
struct Turns<C> {
    weight: Weight,
    latest: u64,
    /// The payer's callers that have a waiting entry, in the order of their turns.
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
    /// Makes a queue for at most `most` entries, of at most `most_bytes` bytes together.
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

    /// Returns how many bytes it takes to keep all entries.
    pub fn bytes(&self) -> usize {
        self.all.bytes
    }

    /// Returns whether the queue has its greatest number of entries.
    pub fn is_full(&self) -> bool {
        self.all.len >= self.most
    }

    /// Returns whether any entry is held.
    pub fn holds_any(&self) -> bool {
        self.held > 0
    }

    /// Returns whether any entry of this caller is held.
    pub fn holds(&self, caller: T::Caller) -> bool {
        self.callers.get(&caller).is_some_and(|line| !line.held.is_empty())
    }

    /// Adds an entry, which waits for its turn or is `held`. Returns the entries for which there is no room:
    /// this one, or the newest entries of callers whose entries take much more of the queue.
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

    /// Adds an entry that waits for its turn, whether there is room or not.
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

    /// Puts an entry that was taken out back at the head of the queue.
    pub fn put_back(&mut self, first: T) {
        let (caller, line) = (first.caller(), self.enter(&first, 0));
        let has_turn = !line.waiting.is_empty();
        line.waiting.push_front(first);
        self.line_up(caller, has_turn, true);
    }

    /// Makes a caller's held entries wait for their turn, in their order, up to the first one that `may`
    /// refuses. Returns whether any entry changed.
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

    /// Returns the entry whose turn it is.
    pub fn front(&self) -> Option<&T> {
        let caller = self.payers.get(self.turns.front()?)?.turns.front()?;
        self.callers.get(caller)?.waiting.front()
    }

    /// Returns whether a payer has any entry, waiting or held.
    pub fn has_any_of(&self, payer: T::Payer) -> bool {
        self.payers.contains_key(&payer)
    }

    /// Searches the next entries of at most `looks` payers, in turn, for the first one that `may` accepts,
    /// and makes it the entry whose turn it is. Returns whether there is one.
    pub fn turn_to(&mut self, looks: usize, mut may: impl FnMut(&T) -> bool) -> bool {
        for _ in 0..self.turns.len().min(looks) {
            if self.front().is_some_and(&mut may) {
                return true;
            }
            self.turns.rotate_left(1);
        }
        false
    }

    /// Takes out the entry whose turn it is. Its payer goes to the end of the payers' turns, and its caller
    /// to the end of that payer's callers.
    pub fn pop(&mut self) -> Option<T> {
        self.pop_if(|_| true)
    }

    /// Takes out the first entry, in the order of turns, that `may` accepts. Only the next entry of each
    /// payer is looked at.
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

    /// Returns the first waiting entry of each caller.
    pub fn firsts(&self) -> impl Iterator<Item = &T> {
        self.callers.values().filter_map(|line| line.waiting.front())
    }

    /// Takes out the entry of this caller with this key, waiting or held.
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

    /// Returns the caller that is to lose an entry for `new`. First compares payers: if the payer with the
    /// most entries or bytes has much more than the payer of `new`, returns the caller that has most at that
    /// payer. Otherwise compares the callers of the payer of `new`: returns the one that has most, if it has
    /// much more than the caller of `new`.
    #[cold]
    fn makes_way_for(&self, new: &T) -> Option<T::Caller> {
        let bytes = self.all.bytes.saturating_add(new.bytes());
        let by_bytes = bytes > self.most_bytes;
        let amount = |weight: &Weight| if by_bytes { weight.bytes } else { weight.len };
        // Among equals, the one with the newest entry loses. "Much more" means a difference of the size of
        // `new` plus what must be removed for `new`. With a smaller difference, more could be lost than is
        // gained.
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

    /// Takes out the newest entry of a caller: a held one, if there is any.
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

    /// Counts an entry that is added. `latest` is its arrival number, or 0 if it is put back.
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

    /// Gives a caller a turn, unless `has_turn` says that it has one: the next turn if `next`, otherwise the
    /// last turn.
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

    /// Counts an entry as taken out, and forgets callers and payers without entries.
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

/// Removes a payer or a caller, `name`, from the turns. Searches from the end, because `name` is there if it
/// has just had its turn.
fn drop_turn<N: Copy + PartialEq>(turns: &mut VecDeque<N>, name: N) {
    if turns.back() == Some(&name) {
        turns.pop_back();
    } else if let Some(at) = turns.iter().position(|other| *other == name) {
        turns.remove(at);
    }
}

#[cfg(test)]
mod tests;
