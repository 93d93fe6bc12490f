//! Calls that wait for a worker, or until their clients have fetched other results: bounded, and fair between conversations.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use farcall_proto::server::CallKey;
use farcall_proto::{Failure, Kind, Ran, Time};

use super::call::Work;
use super::crew::Pace;

/// Calls that wait. Each conversation has a turn after every other one.
pub(super) struct Queue {
    most: usize,
    most_bytes: usize,
    len: usize,
    bytes: usize,
    /// No conversation stands here without a call.
    waiting: HashMap<u64, VecDeque<Work>>,
    turns: VecDeque<u64>,
    /// Calls that wait for their conversations' share of what is being sent: they have no turn.
    held: HashMap<u64, VecDeque<Work>>,
}

impl Queue {
    pub(super) fn new(most: usize, most_bytes: usize) -> Queue {
        Queue {
            most,
            most_bytes,
            len: 0,
            bytes: 0,
            waiting: HashMap::new(),
            turns: VecDeque::new(),
            held: HashMap::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether calls of any conversation, or of this, are held.
    pub(super) fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    pub(super) fn holds(&self, conversation: u64) -> bool {
        self.held.contains_key(&conversation)
    }

    /// Adds a call, which may be held. Gives one back when there is no room: this one, or the latest of whoever has many
    /// more here, so that one caller's flood does not shut the others out.
    #[must_use]
    pub(super) fn push(&mut self, work: Work, held: bool) -> Option<Work> {
        let mut evicted = None;
        if !self.has_room(&work) {
            let Some(latest) = self.latest_of_many(&work) else { return Some(work) };
            evicted = self.remove(latest);
        }
        if held {
            self.hold(work)
        } else {
            self.add(work)
        }
        evicted
    }

    /// The latest call of the conversation that has most here, if that are many more than the conversation of this one has, and it
    /// makes room enough.
    fn latest_of_many(&self, work: &Work) -> Option<CallKey> {
        let calls =
            |conversation| [&self.waiting, &self.held].into_iter().filter_map(move |line| line.get(conversation));
        let count = |conversation| calls(conversation).map(VecDeque::len).sum::<usize>();
        let counts =
            self.waiting.keys().chain(self.held.keys()).map(|conversation| (count(conversation), conversation));
        let (_, most) = counts.max().filter(|(many, _)| *many > count(&work.call.key.conversation) + 1)?;
        let latest = calls(most).next_back()?.back()?;
        (self.bytes - latest.bytes() + work.bytes() <= self.most_bytes).then_some(latest.call.key)
    }

    /// Adds a call for which a worker comes at once: it does not wait.
    pub(super) fn pass(&mut self, work: Work) {
        self.add(work);
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// How long the call whose turn it is will take; `None` if none has a turn.
    pub(super) fn next_pace(&self) -> Option<Pace> {
        Some(self.waiting.get(self.turns.front()?)?.front()?.pace())
    }

    /// Takes out a call that has waited for a worker for that long, if there is one. (Those that are held wait for their
    /// own clients.)
    pub(super) fn pop_late(&mut self, now: Time, time: Duration) -> Option<Work> {
        let mut fronts = self.waiting.values().filter_map(VecDeque::front);
        let key = fronts.find(|work| now.since(work.arrived()) >= time)?.call.key;
        self.remove(key)
    }

    /// Why there is no room for a call.
    pub(super) fn full(&self) -> Failure {
        let why = match self.len < self.most {
            true => format!("{} bytes of arguments wait for a worker (FARCALL_QUEUE_BYTES)", self.bytes),
            false => format!("{} calls wait for a worker (FARCALL_QUEUE)", self.len),
        };
        Failure::new(Kind::Overloaded, Ran::No).with_detail(why)
    }

    fn has_room(&self, work: &Work) -> bool {
        self.len < self.most && self.bytes + work.bytes() <= self.most_bytes
    }

    fn hold(&mut self, work: Work) {
        self.len += 1;
        self.bytes += work.bytes();
        self.held.entry(work.call.key.conversation).or_default().push_back(work);
    }

    /// The calls of a conversation that need not be held any more wait for a worker from now on. Whether there are any.
    pub(super) fn admit(&mut self, conversation: u64, mut may: impl FnMut(&Work) -> bool) -> bool {
        let Some(mut held) = self.held.remove(&conversation) else { return false };
        let before = held.len();
        while held.front().is_some_and(&mut may)
            && let Some(work) = held.pop_front()
        {
            self.line_up(conversation, work);
        }
        let admitted = held.len() < before;
        if !held.is_empty() {
            self.held.insert(conversation, held);
        }
        admitted
    }

    fn add(&mut self, work: Work) {
        self.len += 1;
        self.bytes += work.bytes();
        self.line_up(work.call.key.conversation, work);
    }

    fn line_up(&mut self, conversation: u64, work: Work) {
        let calls = self.waiting.entry(conversation).or_default();
        if calls.is_empty() {
            self.turns.push_back(conversation);
        }
        calls.push_back(work);
    }

    /// The call whose turn it is.
    pub(super) fn pop(&mut self) -> Option<Work> {
        let conversation = self.turns.pop_front()?;
        let calls = self.waiting.get_mut(&conversation)?;
        let work = calls.pop_front()?;
        if calls.is_empty() {
            self.waiting.remove(&conversation);
        } else {
            self.turns.push_back(conversation);
        }
        self.len -= 1;
        self.bytes -= work.bytes();
        Some(work)
    }

    /// Gives a call back its place at the head.
    pub(super) fn unpop(&mut self, work: Work) {
        let conversation = work.call.key.conversation;
        self.len += 1;
        self.bytes += work.bytes();
        let calls = self.waiting.entry(conversation).or_default();
        calls.push_front(work);
        self.turns.retain(|turn| *turn != conversation);
        self.turns.push_front(conversation);
    }

    /// Takes out a call whose caller has given it up.
    pub(super) fn remove(&mut self, key: CallKey) -> Option<Work> {
        let work = match take(&mut self.held, key) {
            Some(work) => work,
            None => take(&mut self.waiting, key)?,
        };
        if !self.waiting.contains_key(&key.conversation) {
            self.turns.retain(|turn| *turn != key.conversation);
        }
        self.len -= 1;
        self.bytes -= work.bytes();
        Some(work)
    }
}

/// Takes a call out of those that wait.
fn take(line: &mut HashMap<u64, VecDeque<Work>>, key: CallKey) -> Option<Work> {
    let calls = line.get_mut(&key.conversation)?;
    let work = calls.remove(calls.iter().position(|work| work.call.key == key)?)?;
    if calls.is_empty() {
        line.remove(&key.conversation);
    }
    Some(work)
}
