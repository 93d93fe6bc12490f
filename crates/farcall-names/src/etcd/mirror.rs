//! A copy of the entries of some types, which a watch keeps up to date.
//!
//! The watch begins with the first question for the registry's version, that is, when a program follows a
//! group. A type is copied when it is first asked for after that.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use farcall_base::{lock, work};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use super::document::{self, Keys, MAX_DOCUMENT};
use super::gateway::{Gateway, Lines, decoded_text, jittered, number, parsed};
use crate::{Entry, Error, Label, Result};

/// How many entries the first answer brings at most. The number doubles up to the second one: etcd 3.4 looks
/// at all the rest for each answer.
const PAGE: usize = 1000;
const MAX_PAGE: usize = 16_000;

/// How many entries are asked for if an answer with more is too large or takes too long, because somebody has
/// put large values there.
const SMALL_PAGE: usize = 16;

/// The most entries that are copied, of all types together. Types beyond that are read from etcd each time.
const MAX_COPIED: usize = 200_000;

/// The most keys that are read at once, those that are not of entries included, and the most bytes that they
/// and their documents have together, as etcd's JSON has them.
const MAX_KEYS: usize = 250_000;
const MAX_BYTES: usize = 128 << 20;

/// How long all pages of entries may take together. A caller that binds waits for them.
const READ_PATIENCE: Duration = Duration::from_secs(60);

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
    /// Wakes the thread when it is to end.
    stopping: Condvar,
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
    /// How many entries all types have together.
    copied: usize,
}

/// Entries as of one revision.
#[derive(Default)]
pub(super) struct Read {
    pub(super) revision: u64,
    pub(super) entries: Vec<Entry>,
}

impl Mirror {
    pub(super) fn new(gateway: Arc<Gateway>, keys: Keys) -> Mirror {
        Mirror {
            gateway,
            keys,
            process: std::process::id(),
            state: Mutex::default(),
            stopping: Condvar::new(),
        }
    }

    /// Returns the latest revision that is known. Opens the watch if there is none. Waits for etcd for
    /// `within` at most.
    pub(super) fn version(self: &Arc<Self>, within: Duration) -> Result<u64> {
        {
            let state = lock(&self.state);
            if state.runs && self.process == std::process::id() {
                return Ok(state.revision);
            }
        }
        let mut request = self.keys.all();
        request.insert("count_only".into(), true.into());
        let answer: Page = self.gateway.call_until(after(within), "kv/range", &request.into())?;
        let revision = answer.header.revision;
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
    /// copy serves: an entry is a hint in any case. Waits for etcd for `within` at most.
    pub(super) fn instances(&self, type_name: &Label, within: Duration) -> Result<Vec<Entry>> {
        let deadline = after(within.min(READ_PATIENCE));
        let read = || read_until(&self.gateway, &self.keys, self.keys.of_type(type_name), deadline);
        for _ in 0..MAX_READS {
            if let Some(copied) = self.copied(type_name, true) {
                return Ok(copied);
            }
            let read = match read() {
                Ok(read) => read,
                Err(why) => return self.copied(type_name, false).ok_or(why),
            };
            if self.copy(type_name, &read) {
                return Ok(read.entries);
            }
        }
        Ok(read()?.entries)
    }

    /// Returns the entries of a type as etcd has them, whatever the copy says. If etcd is out of reach, the
    /// copy serves.
    pub(super) fn instances_now(&self, type_name: &Label, within: Duration) -> Result<Vec<Entry>> {
        let deadline = after(within.min(READ_PATIENCE));
        match read_until(&self.gateway, &self.keys, self.keys.of_type(type_name), deadline) {
            Ok(read) => Ok(read.entries),
            Err(why) => self.copied(type_name, false).ok_or(why),
        }
    }

    /// Ends the watch and its thread.
    pub(super) fn stop(&self) {
        lock(&self.state).stopped = true;
        self.stopping.notify_all();
        self.gateway.end_watches();
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
        if state.copied + read.entries.len() <= MAX_COPIED {
            state.copy_type(type_name, &read.entries);
        }
        true
    }

    /// Keeps a watch open until this is stopped.
    fn run(&self) {
        let mut pause = FIRST_PAUSE;
        while !lock(&self.state).stopped {
            let heard = self.follow();
            lock(&self.state).live = false;
            // A watch that is opened and ends at once must not be opened again without end.
            pause = if heard { FIRST_PAUSE } else { (2 * pause).min(MAX_PAUSE) };
            self.wait(jittered(pause));
        }
    }

    /// Waits for that long, or until this is stopped.
    fn wait(&self, time: Duration) {
        let state = lock(&self.state);
        let stopped = self.stopping.wait_timeout_while(state, time, |state| !state.stopped);
        drop(stopped.unwrap_or_else(|why| why.into_inner()));
    }

    /// Opens a watch, and follows it to its end. Returns whether it was open.
    fn follow(&self) -> bool {
        let known = lock(&self.state).revision;
        let mut create = self.keys.all();
        create.insert("start_revision".into(), known.saturating_add(1).to_string().into());
        // Otherwise etcd may put a thousand revisions into one line, whatever their size.
        create.insert("fragment".into(), true.into());
        let Ok(mut lines) = self.gateway.watch(&json!({"create_request": create})) else { return false };
        let Some(created) = lines.next().filter(|line| line["result"]["created"].as_bool() == Some(true))
        else {
            self.gateway.avoid_current();
            return false;
        };
        // Either this member is behind, or etcd was restored from a backup. Then its revisions begin anew,
        // and the watch would wait in silence until they reach the one that is known.
        if number(&created["result"]["header"]["revision"]) < known && !self.read_again() {
            return false;
        }
        if lock(&self.state).revision < known {
            return true;
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
            state.apply_line(&self.keys, result);
        }
        true
    }

    /// Reads all copied types anew. Returns false if etcd is out of reach.
    fn read_again(&self) -> bool {
        let Ok(all) = read(&self.gateway, &self.keys, self.keys.all()) else { return false };
        let mut state = lock(&self.state);
        // Also the types that were copied meanwhile: their copies may be older than this.
        state.types.values_mut().for_each(BTreeMap::clear);
        state.copied = 0;
        for entry in all.entries {
            let State { types, copied, .. } = &mut *state;
            if let Some(entries) = types.get_mut(&entry.type_name) {
                let former = entries.insert(entry.instance.clone(), entry);
                *copied += usize::from(former.is_none());
            }
        }
        state.revision = all.revision;
        true
    }
}

impl State {
    /// Copies the entries of a type, in the place of those that were copied before.
    fn copy_type(&mut self, type_name: &Label, entries: &[Entry]) {
        let entries = entries.iter().map(|entry| (entry.instance.clone(), entry.clone()));
        let entries: BTreeMap<Label, Entry> = entries.collect();
        self.copied += entries.len();
        let former = self.types.insert(type_name.clone(), entries);
        self.copied -= former.map_or(0, |former| former.len());
    }

    /// Applies the changes of a line of a watch to the copies.
    fn apply_line(&mut self, keys: &Keys, result: &Value) {
        // The rest of a revision may be in the next line.
        let is_whole = result["fragment"].as_bool() != Some(true);
        for event in result["events"].as_array().into_iter().flatten() {
            self.apply(keys, event, is_whole);
        }
    }

    /// Applies a change of a key to the copy. If the line is not the whole, its last revision is not known
    /// yet.
    fn apply(&mut self, keys: &Keys, event: &Value, is_whole: bool) {
        work::step();
        let kv = &event["kv"];
        let revision = number(&kv["mod_revision"]).saturating_sub(u64::from(!is_whole));
        self.revision = self.revision.max(revision);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let kv = Kv { key: text(&kv["key"]), value: text(&kv["value"]) };
        let Some((type_name, instance)) = decoded_text(&kv.key).and_then(|key| keys.parse(&key)) else {
            return;
        };
        let Some(entries) = self.types.get_mut(&type_name) else { return };
        let is_gone = event["type"].as_str() == Some("DELETE");
        match entry_of(keys, &kv).filter(|_| !is_gone) {
            Some(entry) => self.copied += usize::from(entries.insert(instance, entry).is_none()),
            None => self.copied -= usize::from(entries.remove(&instance).is_some()),
        };
        if self.copied > MAX_COPIED {
            self.copied -= entries.len();
            self.types.remove(&type_name);
        }
    }
}

/// Returns when that much time has passed: in a year at the latest.
pub(super) fn after(within: Duration) -> Instant {
    Instant::now() + within.min(Duration::from_secs(365 * 24 * 3600))
}

/// Reads the entries of a range, by ascending name. Keys and documents that are not those of entries are
/// passed over.
///
/// # Errors
/// [`Error::TooLarge`] if there are more than [`MAX_KEYS`] keys, or they have more than [`MAX_BYTES`] bytes;
/// [`Error::Unavailable`] if the pages have no end within [`READ_PATIENCE`]; otherwise those of a request.
pub(super) fn read(gateway: &Gateway, keys: &Keys, request: Map<String, Value>) -> Result<Read> {
    read_until(gateway, keys, request, Instant::now() + READ_PATIENCE)
}

/// Reads the entries of a range, as [`read`] does, until `deadline` at most.
fn read_until(
    gateway: &Gateway,
    keys: &Keys,
    request: Map<String, Value>,
    deadline: Instant,
) -> Result<Read> {
    let mut read = read_pages(gateway, keys, request.clone(), deadline);
    for _ in 1..MAX_READS {
        // etcd was compacted between two pages.
        let Err(Error::Refused { code: OUT_OF_RANGE, .. }) = read else { break };
        read = read_pages(gateway, keys, request.clone(), deadline);
    }
    // etcd sorts keys as texts, in which `/` stands between `-` and digits.
    let by_name = |a: &Entry, b: &Entry| (&a.type_name, &a.instance).cmp(&(&b.type_name, &b.instance));
    read.map(|mut read| {
        read.entries.sort_by(by_name);
        read
    })
}

/// Reads the entries of a range in pages of one revision.
fn read_pages(
    gateway: &Gateway,
    keys: &Keys,
    mut request: Map<String, Value>,
    deadline: Instant,
) -> Result<Read> {
    let (mut pages, mut page) = (Pages::default(), PAGE);
    loop {
        if deadline <= Instant::now() {
            let why = format!("the pages of entries have no end within {READ_PATIENCE:?}");
            return Err(Error::Unavailable { registry: gateway.location().to_string(), why });
        }
        request.insert("limit".into(), page.to_string().into());
        let asked = Value::Object(request.clone());
        let answer = if page > SMALL_PAGE {
            // If it takes too long, there is time left for a smaller page.
            let half = deadline.saturating_duration_since(Instant::now()) / 2;
            gateway.call_once(half, "kv/range", &asked)
        } else {
            gateway.call_until(deadline, "kv/range", &asked)
        };
        let answer = match answer {
            Err(Error::TooLarge { .. } | Error::Unavailable { .. }) if page > SMALL_PAGE => {
                page = SMALL_PAGE;
                continue;
            }
            Err(Error::TooLarge { .. }) if page > 1 => {
                page /= 2;
                continue;
            }
            // No document is as large as this value, so only its key is needed.
            Err(Error::TooLarge { .. }) => read_key(gateway, request.clone(), deadline)?,
            answer => answer?,
        };
        page = (2 * page).min(MAX_PAGE);
        let next = pages.add(keys, &answer)?;
        request.insert("revision".into(), pages.read.revision.to_string().into());
        let Some(next) = next else { return Ok(pages.read) };
        request.insert("key".into(), super::gateway::encoded(next).into());
    }
}

/// A page of a range, of which only what is needed is kept.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Page {
    header: Header,
    kvs: Vec<Kv>,
    /// Whether there are further keys.
    more: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Header {
    #[serde(deserialize_with = "revision")]
    revision: u64,
}

/// A key and its value, both in base64.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Kv {
    key: String,
    value: String,
}

fn revision<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<u64, D::Error> {
    Value::deserialize(from).map(|value| number(&value))
}

/// The pages that were read of a range.
#[derive(Default)]
struct Pages {
    read: Read,
    /// How many keys they have, those that are not of entries included, and how many bytes of keys and
    /// documents.
    keys: usize,
    bytes: usize,
}

impl Pages {
    /// Adds the entries of a page. Returns the key with which the next page begins, if there is one.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if there are too many keys or bytes.
    fn add(&mut self, keys: &Keys, page: &Page) -> Result<Option<Vec<u8>>> {
        let Page { header, kvs, more } = page;
        if self.read.revision == 0 {
            self.read.revision = header.revision;
        }
        self.keys += kvs.len();
        work::steps(1 + kvs.len());
        if self.keys > MAX_KEYS {
            return Err(Error::TooLarge { what: "keys in the registry", size: self.keys, limit: MAX_KEYS });
        }
        self.bytes += kvs.iter().map(|kv| kv.key.len() + kv.value.len()).sum::<usize>();
        if self.bytes > MAX_BYTES {
            let what = "bytes of keys and documents in the registry";
            return Err(Error::TooLarge { what, size: self.bytes, limit: MAX_BYTES });
        }
        self.read.entries.extend(kvs.iter().filter_map(|kv| entry_of(keys, kv)));
        if !more {
            return Ok(None);
        }
        // The key that is next after the last one.
        let next = kvs.last().and_then(|kv| decoded_text(&kv.key));
        Ok(next.map(|mut next| {
            next.push(0);
            next
        }))
    }
}

/// Reads each line as a page of entries, and as a line of a watch for the types of these entries.
pub(super) fn fuzz(lines: &[u8]) {
    let (keys, mut pages, mut state) = (Keys::new("test"), Pages::default(), State::default());
    for line in lines.split(|byte| *byte == b'\n') {
        let Some(answer) = parsed::<Value>(line) else { continue };
        let former = pages.read.entries.len();
        if parsed(line).is_some_and(|page: Page| pages.add(&keys, &page).is_err()) {
            return;
        }
        for entry in &pages.read.entries[former..] {
            if !state.types.contains_key(&entry.type_name) {
                state.copy_type(&entry.type_name, std::slice::from_ref(entry));
            }
        }
        state.apply_line(&keys, &answer["result"]);
        for entry in &pages.read.entries[former..] {
            let (type_name, instance) = (entry.type_name.clone(), entry.instance.clone());
            let again = document::parse(type_name, instance, document::render(entry).as_bytes());
            assert_eq!(again.as_ref(), Ok(entry));
        }
    }
    assert_eq!(state.copied, state.types.values().map(BTreeMap::len).sum::<usize>());
}

/// Reads the key that a request would read, without its value.
fn read_key(gateway: &Gateway, mut request: Map<String, Value>, deadline: Instant) -> Result<Page> {
    request.insert("keys_only".into(), true.into());
    gateway.call_until(deadline, "kv/range", &request.into())
}

/// Returns the entry of a key and its value, if they are those of an entry.
fn entry_of(keys: &Keys, kv: &Kv) -> Option<Entry> {
    let (type_name, instance) = keys.parse(&decoded_text(&kv.key)?)?;
    // In base64 a document takes a third more.
    if kv.value.len() > 2 * MAX_DOCUMENT {
        return None;
    }
    document::parse(type_name, instance, &decoded_text(&kv.value)?).ok()
}

#[cfg(test)]
mod tests {
    use super::super::fake;
    use super::super::settings::Access;
    use super::*;
    use serde_json::json;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::mpsc;

    fn mirror(answer: impl FnMut(&str, &Value) -> (u16, Value) + Send + 'static) -> Arc<Mirror> {
        Arc::new(Mirror::new(fake::gateway(answer), Keys::new("test")))
    }

    /// Returns a deadline that does not come while a test runs.
    fn far() -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    fn at(revision: u64) -> Value {
        json!({"revision": revision.to_string()})
    }

    fn event(instance: &str, revision: u64) -> Value {
        let key = super::super::encoded(format!("test/v1/Store/{instance}"));
        let value = super::super::encoded(r#"{"addresses": ["udp://127.0.0.1:7"]}"#);
        json!({"kv": {"key": key, "value": value, "mod_revision": revision.to_string()}})
    }

    #[test]
    fn an_etcd_that_was_restored_from_a_backup_is_followed() {
        let mut asked = 0;
        let (told, opened) = mpsc::channel();
        let mirror = mirror(move |path, request| {
            if path == "watch" {
                let _ = told.send(request["create_request"]["start_revision"].as_str().unwrap().to_owned());
                return (200, json!({"result": {"header": at(500), "created": true}}));
            }
            asked += 1;
            (200, json!({"header": at(if asked == 1 { 1000 } else { 500 })}))
        });
        assert_eq!(mirror.version(READ_PATIENCE).unwrap(), 1000);
        assert_eq!([opened.recv().unwrap(), opened.recv().unwrap()], ["1001", "501"]);
        assert_eq!(mirror.version(READ_PATIENCE).unwrap(), 500);
        mirror.stop();
    }

    #[test]
    fn the_greatest_revision_is_followed() {
        let mirror = mirror(move |_, _| (200, json!({"result": {"header": at(u64::MAX), "created": true}})));
        lock(&mirror.state).revision = u64::MAX;
        assert!(mirror.follow());
    }

    #[test]
    fn a_revision_counts_as_known_once_all_of_it_has_come() {
        let mirror = mirror(|_, _| (200, json!({})));
        let mut state = lock(&mirror.state);
        state.apply(&mirror.keys, &event("a", 7), true);
        state.apply(&mirror.keys, &event("b", 9), false);
        assert_eq!(state.revision, 8);
        state.apply(&mirror.keys, &event("c", 9), true);
        assert_eq!(state.revision, 9);
    }

    #[test]
    fn a_copy_that_grows_beyond_the_bound_is_given_up() {
        let mirror = mirror(|_, _| (200, json!({})));
        let mut state = lock(&mirror.state);
        let kv = serde_json::from_value(event("a", 1)["kv"].take()).unwrap();
        let (type_name, entry) = ("Store".parse::<Label>().unwrap(), entry_of(&mirror.keys, &kv).unwrap());
        let instance = |which: usize| format!("i{which}").parse().unwrap();
        let entries: Vec<Entry> =
            (0..MAX_COPIED).map(|which| Entry { instance: instance(which), ..entry.clone() }).collect();
        state.copy_type(&type_name, &entries);
        state.apply(&mirror.keys, &event("i0", 2), true);
        assert!(state.types.contains_key(&type_name), "an entry that changes takes no more");
        state.apply(&mirror.keys, &event("another", 3), true);
        assert!(!state.types.contains_key(&type_name));
    }

    #[test]
    fn a_type_that_is_copied_while_all_are_read_again_misses_nothing() {
        let own = Arc::new(std::sync::OnceLock::<Arc<Mirror>>::new());
        let them = own.clone();
        let mirror = mirror(move |_, _| {
            // Another thread has copied the type as of an earlier revision.
            let mut state = lock(&them.get().unwrap().state);
            state.types.entry("Store".parse().unwrap()).or_default();
            (200, json!({"header": at(9), "kvs": [event("a", 9)["kv"]]}))
        });
        let _ = own.set(mirror.clone());
        assert!(mirror.read_again());
        assert_eq!(lock(&mirror.state).types.values().map(BTreeMap::len).sum::<usize>(), 1);
    }

    #[test]
    fn a_server_that_has_ever_more_keys_is_given_up() {
        let mirror =
            mirror(|_, _| (200, json!({"header": at(9), "kvs": vec![json!({}); PAGE], "more": true})));
        let why = read_until(&mirror.gateway, &mirror.keys, mirror.keys.all(), far()).err().unwrap();
        assert!(matches!(why, Error::TooLarge { .. }), "{why}");
    }

    #[test]
    fn a_server_that_has_ever_more_bytes_is_given_up() {
        let kv = json!({"key": super::super::encoded("test/v1/Store/a"), "value": "x".repeat(5 << 20)});
        let mirror = mirror(move |_, _| (200, json!({"header": at(9), "kvs": [kv], "more": true})));
        let why = read_until(&mirror.gateway, &mirror.keys, mirror.keys.all(), far()).err().unwrap();
        assert!(matches!(why, Error::TooLarge { limit: MAX_BYTES, .. }), "{why}");
    }

    #[test]
    fn pages_without_end_are_read_until_the_deadline() {
        let kv = json!({"key": super::super::encoded("test/v1/Store/a")});
        let (told, asked) = mpsc::channel();
        let mirror = mirror(move |_, _| {
            let _ = told.send(());
            (200, json!({"header": at(9), "kvs": [kv], "more": true}))
        });
        let until = |deadline| read_until(&mirror.gateway, &mirror.keys, mirror.keys.all(), deadline);
        let late = until(Instant::now()).err().unwrap();
        assert!(matches!(late, Error::Unavailable { .. }), "{late}");
        assert!(asked.try_recv().is_err(), "nothing is asked after the deadline");
        let reading = until(Instant::now() + Duration::from_millis(50)).err().unwrap();
        // (A page may be under way when the time is over.)
        assert!(matches!(reading, Error::Unavailable { .. }), "{reading}");
        assert!(asked.try_recv().is_ok());
    }

    #[test]
    fn an_answer_of_many_small_values_is_not_parsed() {
        let mirror = mirror(|_, _| (200, json!({"header": at(9), "kvs": vec![0; 1 << 20]})));
        let why = mirror.gateway.call_once::<Page>(Duration::from_secs(10), "kv/range", &json!({}));
        let why = why.err().unwrap();
        assert!(matches!(why, Error::TooLarge { .. }), "{why}");
    }

    #[test]
    fn a_mirror_that_is_stopped_closes_its_watch_at_once() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let place = format!("etcd://{}/test", listener.local_addr().unwrap());
        let gateway = Arc::new(Gateway::new(place.parse().unwrap(), &Access::default()));
        let mirror = Arc::new(Mirror::new(gateway, Keys::new("test")));
        let followed = mirror.clone();
        let following = std::thread::spawn(move || followed.follow());
        let mut etcd = listener.accept().unwrap().0;
        let created = json!({"result": {"header": at(1), "created": true}});
        etcd.write_all(format!("HTTP/1.1 200 OK\r\n\r\n{created}\n").as_bytes()).unwrap();
        while !lock(&mirror.state).live {
            std::thread::yield_now();
        }
        mirror.stop();
        // The request is read, and then the end. Without a stop the watch would stay open for 20 s.
        etcd.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        etcd.read_to_end(&mut Vec::new()).unwrap();
        assert!(following.join().unwrap());
    }

    #[test]
    fn a_forked_child_asks_for_the_version_each_time() {
        let mut asked = 0;
        let gateway = fake::gateway(move |_, _| {
            asked += 1;
            (200, json!({"header": at(asked)}))
        });
        let mut child = Mirror::new(gateway, Keys::new("test"));
        child.process = 0;
        lock(&child.state).runs = true;
        let child = Arc::new(child);
        assert_eq!([child.version(READ_PATIENCE).unwrap(), child.version(READ_PATIENCE).unwrap()], [1, 2]);
    }
}
