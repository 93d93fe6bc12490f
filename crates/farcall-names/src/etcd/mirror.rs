//! A copy of the entries of some types, which a watch keeps up to date.
//!
//! The watch begins with the first question for the registry's version, that is, when a program follows a
//! group. A type is copied when it is first asked for after that.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall_base::lock;
use serde_json::{Map, Value, json};

use super::document::{self, Keys};
use super::gateway::{Gateway, Lines, decoded, jittered, number};
use crate::{Entry, Error, Label, Result};

/// The most entries that one answer brings, so that an answer has a bounded size.
const PAGE: usize = 1000;

/// The most entries that are copied, of all types together. Types beyond that are read from etcd each time.
const MAX_COPIED: usize = 200_000;

/// The pause before a watch that failed is opened anew; it doubles up to the second number.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// How many times entries are read, if they change while they are read.
const MAX_READS: usize = 3;

/// The code of etcd's answer that it no longer has the entries of a revision.
const OUT_OF_RANGE: i64 = 11;

pub(super) struct Mirror {
    gateway: Arc<Gateway>,
    keys: Keys,
    /// The process that has the thread. A forked child has a copy of this without the thread.
    process: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    runs: bool,
    stopped: bool,
    /// Whether the watch is open, so that the copy is as new as the network lets it be.
    live: bool,
    /// The latest revision that is known.
    revision: u64,
    types: HashMap<Label, BTreeMap<Label, Entry>>,
}

/// Entries as of one revision.
pub(super) struct Read {
    pub(super) revision: u64,
    pub(super) entries: Vec<Entry>,
}

impl Mirror {
    pub(super) fn new(gateway: Arc<Gateway>, keys: Keys) -> Mirror {
        Mirror { gateway, keys, process: std::process::id(), state: Mutex::default() }
    }

    /// Returns the latest revision that is known. Opens the watch if there is none.
    pub(super) fn version(self: &Arc<Self>) -> Result<u64> {
        {
            let state = lock(&self.state);
            if state.runs {
                return Ok(state.revision);
            }
        }
        let mut request = self.keys.all();
        request.insert("count_only".into(), true.into());
        let revision = number(&self.gateway.call("kv/range", &request.into())?["header"]["revision"]);
        let mut state = lock(&self.state);
        if !state.runs && !state.stopped && self.process == std::process::id() {
            state.revision = revision;
            let mirror = self.clone();
            let thread = std::thread::Builder::new().name("farcall-etcd-watch".into());
            // Without the thread each question is put to etcd.
            state.runs = thread.spawn(move || mirror.run()).is_ok();
        }
        Ok(revision)
    }

    /// Returns the entries of a type, from the copy if that is up to date. If etcd is out of reach, an older
    /// copy serves: an entry is a hint in any case.
    pub(super) fn instances(&self, type_name: &Label) -> Result<Vec<Entry>> {
        for _ in 0..MAX_READS {
            if let Some(copied) = self.copied(type_name, true) {
                return Ok(copied);
            }
            let read = match read(&self.gateway, &self.keys, self.keys.of_type(type_name)) {
                Ok(read) => read,
                Err(why) => return self.copied(type_name, false).ok_or(why),
            };
            if self.copy(type_name, &read) {
                return Ok(read.entries);
            }
        }
        Ok(read(&self.gateway, &self.keys, self.keys.of_type(type_name))?.entries)
    }

    /// Ends the watch's thread when it next wakes.
    pub(super) fn stop(&self) {
        lock(&self.state).stopped = true;
    }

    /// Returns the copy of a type's entries, if there is one. With `live`, only if the watch is open.
    fn copied(&self, type_name: &Label, live: bool) -> Option<Vec<Entry>> {
        let state = lock(&self.state);
        let usable = (state.live || !live) && self.process == std::process::id();
        let entries = state.types.get(type_name).filter(|_| usable)?;
        Some(entries.values().cloned().collect())
    }

    /// Copies the entries of a type if the watch is open. Returns false if the watch has gone beyond them, so
    /// that they must be read again.
    fn copy(&self, type_name: &Label, read: &Read) -> bool {
        let mut state = lock(&self.state);
        if !state.live {
            return true;
        }
        if state.revision > read.revision {
            return false;
        }
        let copied: usize = state.types.values().map(BTreeMap::len).sum();
        if copied + read.entries.len() <= MAX_COPIED {
            let entries = read.entries.iter().map(|entry| (entry.instance.clone(), entry.clone()));
            state.types.insert(type_name.clone(), entries.collect());
        }
        true
    }

    /// Keeps a watch open until this is stopped.
    fn run(&self) {
        let mut pause = FIRST_PAUSE;
        while !lock(&self.state).stopped {
            let heard = self.follow();
            lock(&self.state).live = false;
            if heard {
                pause = FIRST_PAUSE;
                continue;
            }
            std::thread::sleep(jittered(pause));
            pause = (2 * pause).min(MAX_PAUSE);
        }
    }

    /// Opens a watch, and follows it to its end. Returns whether it was open.
    fn follow(&self) -> bool {
        let next = lock(&self.state).revision + 1;
        let mut create = self.keys.all();
        create.insert("start_revision".into(), next.to_string().into());
        let Ok(mut lines) = self.gateway.watch(&json!({"create_request": create})) else { return false };
        match lines.next() {
            Some(line) if line["result"]["created"].as_bool() == Some(true) => {}
            _ => {
                self.gateway.avoid_current();
                return false;
            }
        }
        lock(&self.state).live = true;
        self.follow_lines(&mut lines)
    }

    fn follow_lines(&self, lines: &mut Lines) -> bool {
        while let Some(line) = lines.next() {
            let result = &line["result"];
            if result["canceled"].as_bool() == Some(true) || !line["error"].is_null() {
                self.gateway.avoid_current();
                // etcd no longer has the changes since the last revision that is known.
                return number(&result["compact_revision"]) > 0 && self.read_again();
            }
            let mut state = lock(&self.state);
            if state.stopped {
                return true;
            }
            for event in result["events"].as_array().into_iter().flatten() {
                self.apply(&mut state, event);
            }
        }
        true
    }

    /// Applies a change of a key to the copy.
    fn apply(&self, state: &mut State, event: &Value) {
        let kv = &event["kv"];
        state.revision = state.revision.max(number(&kv["mod_revision"]));
        let Some((type_name, instance)) = decoded(&kv["key"]).and_then(|key| self.keys.parse(&key)) else {
            return;
        };
        let Some(entries) = state.types.get_mut(&type_name) else { return };
        let is_gone = event["type"].as_str() == Some("DELETE");
        match entry_of(&self.keys, kv).filter(|_| !is_gone) {
            Some(entry) => entries.insert(instance, entry),
            None => entries.remove(&instance),
        };
    }

    /// Reads all copied types anew. Returns false if etcd is out of reach.
    fn read_again(&self) -> bool {
        let types: Vec<Label> = lock(&self.state).types.keys().cloned().collect();
        let Ok(all) = read(&self.gateway, &self.keys, self.keys.all()) else { return false };
        let mut state = lock(&self.state);
        for type_name in types {
            let entries = all.entries.iter().filter(|entry| entry.type_name == type_name);
            let entries = entries.map(|entry| (entry.instance.clone(), entry.clone())).collect();
            state.types.insert(type_name, entries);
        }
        state.revision = all.revision;
        true
    }
}

/// Reads the entries of a range, by ascending name. Keys and documents that are not those of entries are passed
/// over.
pub(super) fn read(gateway: &Gateway, keys: &Keys, request: Map<String, Value>) -> Result<Read> {
    let mut read = read_pages(gateway, keys, request.clone());
    for _ in 1..MAX_READS {
        // etcd was compacted between two pages.
        let Err(Error::Refused { code: OUT_OF_RANGE, .. }) = read else { break };
        read = read_pages(gateway, keys, request.clone());
    }
    read
}

/// Reads the entries of a range in pages of one revision.
fn read_pages(gateway: &Gateway, keys: &Keys, mut request: Map<String, Value>) -> Result<Read> {
    let mut all = Read { revision: 0, entries: Vec::new() };
    request.insert("limit".into(), PAGE.to_string().into());
    loop {
        let answer = gateway.call("kv/range", &Value::Object(request.clone()))?;
        if all.revision == 0 {
            all.revision = number(&answer["header"]["revision"]);
            request.insert("revision".into(), all.revision.to_string().into());
        }
        let kvs = answer["kvs"].as_array().map_or(&[][..], |kvs| kvs);
        all.entries.extend(kvs.iter().filter_map(|kv| entry_of(keys, kv)));
        let last = kvs.last().and_then(|kv| decoded(&kv["key"]));
        let (Some(mut last), true) = (last, answer["more"].as_bool() == Some(true)) else { return Ok(all) };
        // The next page begins with the key that is next after the last one.
        last.push(0);
        request.insert("key".into(), super::gateway::encoded(last).into());
    }
}

/// Returns the entry of a key and its value, if they are those of an entry.
pub(super) fn entry_of(keys: &Keys, kv: &Value) -> Option<Entry> {
    let (type_name, instance) = keys.parse(&decoded(&kv["key"])?)?;
    document::parse(type_name, instance, &decoded(&kv["value"])?).ok()
}
