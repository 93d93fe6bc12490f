//! Calls that wait for a worker: bounded, and fair between conversations.

use std::collections::{HashMap, VecDeque};

use farcall_proto::server::CallKey;

use super::call::Work;

/// Calls that wait. Each conversation has a turn after every other one.
pub(super) struct Queue {
    most: usize,
    most_bytes: usize,
    len: usize,
    bytes: usize,
    /// No conversation stands here without a call.
    waiting: HashMap<u64, VecDeque<Work>>,
    turns: VecDeque<u64>,
}

impl Queue {
    pub(super) fn new(most: usize, most_bytes: usize) -> Queue {
        Queue { most, most_bytes, len: 0, bytes: 0, waiting: HashMap::new(), turns: VecDeque::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a call. Gives one back when there is no room: this one, or the latest of whoever has many
    /// more here, so that one caller's flood does not shut the others out.
    #[must_use]
    pub(super) fn push(&mut self, work: Work) -> Option<Work> {
        if self.has_room(&work) {
            self.add(work);
            return None;
        }
        let ours = self.waiting.get(&work.call.key.conversation).map_or(0, VecDeque::len);
        let lengths = self.waiting.iter().map(|(conversation, calls)| (calls.len(), *conversation));
        let Some((_, longest)) = lengths.max().filter(|(len, _)| *len > ours + 1) else { return Some(work) };
        let latest = self.waiting.get(&longest).and_then(|calls| calls.back()).map(|latest| latest.call.key);
        let Some(evicted) = latest.and_then(|latest| self.remove(latest)) else { return Some(work) };
        if !self.has_room(&work) {
            self.add(evicted);
            return Some(work);
        }
        self.add(work);
        Some(evicted)
    }

    /// Adds a call for which a worker comes at once: it does not wait.
    pub(super) fn pass(&mut self, work: Work) {
        self.add(work);
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn has_room(&self, work: &Work) -> bool {
        self.len < self.most && self.bytes + work.bytes() <= self.most_bytes
    }

    fn add(&mut self, work: Work) {
        let bytes = work.bytes();
        self.len += 1;
        self.bytes += bytes;
        let conversation = work.call.key.conversation;
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
        let calls = self.waiting.get_mut(&key.conversation)?;
        let work = calls.remove(calls.iter().position(|work| work.call.key == key)?)?;
        if calls.is_empty() {
            self.waiting.remove(&key.conversation);
            self.turns.retain(|turn| *turn != key.conversation);
        }
        self.len -= 1;
        self.bytes -= work.bytes();
        Some(work)
    }
}
