//! Requests to etcd by its JSON gateway: endpoints, repetition, and authentication.

use std::hash::{BuildHasher as _, RandomState};
use std::io::{BufRead, BufReader, Read};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use farcall_base::{lock, work};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use ureq::http::Response;
use ureq::{Agent, Body};

use super::settings::{Access, Credentials, Location};
use super::version;
use crate::{Error, Result};

/// How long a request may take, from its first try at the first endpoint to its last at the last one.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long one endpoint may take for a request at most.
pub(super) const ENDPOINT_PATIENCE: Duration = Duration::from_secs(2);

/// How long one endpoint may take to tell its version.
const VERSION_PATIENCE: Duration = Duration::from_secs(1);

/// The shortest time that a request may take.
const MIN_TIMEOUT: Duration = Duration::from_millis(1);

/// How long to wait for the connection to an endpoint.
const CONNECT_PATIENCE: Duration = Duration::from_millis(500);

/// How long to wait for the connection and TLS's handshake.
const SECURE_CONNECT_PATIENCE: Duration = Duration::from_secs(1);

/// A watch that has brought nothing for this long is opened anew, because its connection may be dead.
const WATCH_PATIENCE: Duration = Duration::from_secs(20);

/// The pause after all endpoints have failed; it doubles up to the second number.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The most bytes of an answer.
const MAX_ANSWER: u64 = 16 << 20;

/// The most bytes of a line of a watch.
const MAX_LINE: u64 = 64 << 20;

/// The most values of JSON in an answer or in a line of a watch. A value takes up to a hundred bytes of
/// memory, whatever it takes in the answer. A page of 16,000 entries has 160,000 values.
const MAX_VALUES: usize = 1 << 20;

/// The codes of gRPC errors that the gateway passes on.
const INVALID_ARGUMENT: i64 = 3;
const PERMISSION_DENIED: i64 = 7;
const FAILED_PRECONDITION: i64 = 9;
const UNAUTHENTICATED: i64 = 16;

/// An etcd cluster.
pub(super) struct Gateway {
    location: Location,
    credentials: Option<Credentials>,
    agents: Mutex<Agents>,
    /// The index of the endpoint that answered last.
    current: AtomicUsize,
    /// Whether no endpoint has answered the last request within its patience.
    away: AtomicBool,
    token: Mutex<Option<Arc<str>>>,
    /// The process whose connections the agents keep open.
    process: u32,
}

/// What makes connections.
#[derive(Clone)]
struct Agents {
    /// For requests.
    agent: Agent,
    /// For watches.
    watcher: Agent,
    /// The files for TLS, as they were read.
    #[cfg(feature = "etcd-tls")]
    tls: Option<super::tls::EtcdTls>,
}

impl Agents {
    #[cfg_attr(not(feature = "etcd-tls"), allow(unused_variables, reason = "only TLS needs access"))]
    fn new(location: &Location, access: &Access) -> Agents {
        let connect = if location.is_secure() { SECURE_CONNECT_PATIENCE } else { CONNECT_PATIENCE };
        let builder = || {
            let builder = Agent::config_builder()
                .http_status_as_error(false)
                .max_redirects(0)
                .timeout_connect(Some(connect));
            #[cfg(feature = "etcd-tls")]
            let builder = builder.tls_config(super::tls::config(access.tls.as_ref()));
            builder
        };
        let agent = builder().build().into();
        let watcher = builder()
            .timeout_recv_response(Some(ENDPOINT_PATIENCE))
            .timeout_per_read(Some(WATCH_PATIENCE))
            .max_idle_connections(0)
            .build()
            .into();
        Agents {
            agent,
            watcher,
            #[cfg(feature = "etcd-tls")]
            tls: access.tls.clone(),
        }
    }
}

/// How often, and for how long, a request is sent.
#[derive(Clone, Copy)]
enum Tries {
    /// Once, for this time at most.
    One(Duration),
    /// To one endpoint after another, until this time.
    Until(Instant),
}

impl Tries {
    /// Returns how long the next of `untried` endpoints may take.
    fn share(self, untried: usize) -> Duration {
        let share = match self {
            Tries::One(within) => within,
            Tries::Until(_) => self.left() / u32::try_from(untried).unwrap_or(u32::MAX),
        };
        share.min(ENDPOINT_PATIENCE)
    }

    /// Returns how much time is left for further tries.
    fn left(self) -> Duration {
        match self {
            Tries::One(_) => Duration::ZERO,
            Tries::Until(deadline) => deadline.saturating_duration_since(Instant::now()),
        }
    }
}

/// Why an endpoint has not done what was asked.
enum Failed {
    /// Another try, at this endpoint or another, may succeed.
    Again(String),
    /// etcd has lost or ended the session of the user's password.
    NotAuthenticated(String),
    /// etcd refuses.
    Refused { code: i64, why: String },
    /// The answer has more bytes than an answer may have.
    TooLarge,
}

impl Gateway {
    pub(super) fn new(location: Location, access: &Access) -> Gateway {
        let agents = Mutex::new(Agents::new(&location, access));
        let current = AtomicUsize::new(random(location.endpoints.len() as u64) as usize);
        let (credentials, token, process) =
            (access.credentials.clone(), Mutex::default(), std::process::id());
        Gateway { location, credentials, agents, current, away: AtomicBool::new(false), token, process }
    }

    /// Returns what makes connections.
    fn agents(&self) -> Agents {
        #[cfg(feature = "etcd-tls")]
        self.renew_agents();
        lock(&self.agents).clone()
    }

    /// Reads the files for TLS again if they have been renewed. Then watches begin anew: their connections
    /// would else end with the certificates.
    #[cfg(feature = "etcd-tls")]
    fn renew_agents(&self) {
        let mut agents = lock(&self.agents);
        if let Some(tls) = agents.tls.as_ref().and_then(super::tls::EtcdTls::renewed) {
            let access = Access { credentials: None, tls: Some(tls) };
            let former = std::mem::replace(&mut *agents, Agents::new(&self.location, &access));
            if self.process == std::process::id() {
                former.watcher.shutdown();
            }
        }
    }

    pub(super) fn location(&self) -> &Location {
        &self.location
    }

    /// Returns whether no endpoint has answered the last request.
    pub(super) fn is_away(&self) -> bool {
        self.away.load(Ordering::Relaxed)
    }

    /// Sends a request to the endpoints in turn until one answers, and returns the answer.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if no endpoint answers in time; [`Error::NotPermitted`] if etcd's rules forbid
    /// the request; [`Error::TooLarge`] if the answer is longer than [`MAX_ANSWER`]; [`Error::Refused`] for
    /// another refusal. A request that failed as unavailable may have been executed.
    pub(super) fn call(&self, path: &str, request: &Value) -> Result<Value> {
        self.call_until(Instant::now() + PATIENCE, path, request)
    }

    /// Does what [`Gateway::call`] does, but only until `deadline`, if that is earlier. Each endpoint that
    /// has not been tried gets a share of the time. An answer that is no `T` counts as none.
    pub(super) fn call_until<T: DeserializeOwned>(
        &self,
        deadline: Instant,
        path: &str,
        request: &Value,
    ) -> Result<T> {
        let now = Instant::now();
        let answer = self.repeat(Tries::Until(deadline.min(now + PATIENCE)), path, request);
        let is_away = matches!(answer, Err(Error::Unavailable { .. }));
        // Whoever has little time does not learn that etcd is away.
        if !is_away || deadline > now + PATIENCE / 2 {
            self.away.store(is_away, Ordering::Relaxed);
        }
        answer
    }

    /// Sends a request to one endpoint, once, and waits for `within` at most. If that fails, the next request
    /// goes to another endpoint. Errors are those of [`Gateway::call`].
    pub(super) fn call_once<T: DeserializeOwned>(
        &self,
        within: Duration,
        path: &str,
        request: &Value,
    ) -> Result<T> {
        self.repeat(Tries::One(within), path, request)
    }

    /// Asks each endpoint for its version, and fails if one is too old for exclusive owners. Endpoints that
    /// do not answer are passed over, if another one answers.
    ///
    /// # Errors
    /// [`Error::Unsafe`] if one is too old; [`Error::Unavailable`] if none answers.
    pub(super) fn check_versions(&self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        let mut failed = None;
        let mut is_heard = false;
        for (place, endpoint) in self.location.endpoints.iter().enumerate() {
            let left = end.saturating_duration_since(Instant::now()).min(VERSION_PATIENCE);
            if left.is_zero() {
                break;
            }
            self.current.store(place, Ordering::Relaxed);
            match self.call_once::<Value>(left, "maintenance/status", &json!({})) {
                Ok(status) => {
                    let version = status["version"].as_str().unwrap_or_default();
                    if !version::keeps_leases(version) {
                        let why = version::refusal(endpoint, &shortened(version));
                        return Err(Error::Unsafe { registry: self.location.to_string(), why });
                    }
                    is_heard = true;
                }
                Err(why) => failed = Some(why),
            }
        }
        match failed {
            Some(why) if !is_heard => Err(why),
            _ => Ok(()),
        }
    }

    /// Sends a request until an endpoint answers, or there are no more tries.
    fn repeat<T: DeserializeOwned>(&self, tries: Tries, path: &str, request: &Value) -> Result<T> {
        let mut pause = FIRST_PAUSE;
        let mut may_authenticate = true;
        loop {
            let mut last = "no time is left".to_owned();
            for untried in (1..=self.location.endpoints.len()).rev() {
                let within = tries.share(untried);
                if within.is_zero() {
                    break;
                }
                let failed = match self.try_call(within, path, request) {
                    Ok(answer) => return Ok(answer),
                    Err(failed) => failed,
                };
                match failed {
                    Failed::NotAuthenticated(_) if std::mem::take(&mut may_authenticate) => {
                        *lock(&self.token) = None;
                        last = "the password's session has ended".to_owned();
                        continue;
                    }
                    Failed::NotAuthenticated(why) => return Err(self.not_permitted(why)),
                    Failed::Refused { code: PERMISSION_DENIED, why } => return Err(self.not_permitted(why)),
                    Failed::Refused { code, why } => {
                        return Err(Error::Refused { registry: self.location.to_string(), code, why });
                    }
                    Failed::TooLarge => return Err(too_large()),
                    Failed::Again(why) => last = why,
                }
                self.current.fetch_add(1, Ordering::Relaxed);
                if tries.left().is_zero() {
                    break;
                }
            }
            let left = tries.left();
            if left <= pause {
                return Err(Error::Unavailable { registry: self.location.to_string(), why: last });
            }
            std::thread::sleep(jittered(pause).min(left));
            pause = (2 * pause).min(MAX_PAUSE);
        }
    }

    /// Opens a watch at the present endpoint. If that fails, the next attempt goes to another endpoint.
    ///
    /// # Errors
    /// [`Error::Unavailable`] and [`Error::NotPermitted`], as [`Gateway::call`].
    pub(super) fn watch(&self, request: &Value) -> Result<Lines> {
        let opened = self.send(&self.agents().watcher, None, "watch", request);
        match opened {
            Ok(response) => {
                let body = response.into_body().into_with_config().limit(u64::MAX).reader();
                Ok(Lines(BufReader::new(Box::new(body))))
            }
            Err(failed) => {
                self.current.fetch_add(1, Ordering::Relaxed);
                *lock(&self.token) = None;
                Err(match failed {
                    Failed::Again(why) => Error::Unavailable { registry: self.location.to_string(), why },
                    Failed::NotAuthenticated(why) | Failed::Refused { why, .. } => self.not_permitted(why),
                    Failed::TooLarge => too_large(),
                })
            }
        }
    }

    /// Closes the watches of this process, and lets no more be opened.
    pub(super) fn end_watches(&self) {
        // A forked child has its parent's connections, which the parent goes on using.
        if self.process == std::process::id() {
            lock(&self.agents).watcher.clone().shutdown();
        }
    }

    /// Has the next request go to another endpoint, because the present one has ended a watch.
    pub(super) fn avoid_current(&self) {
        self.current.fetch_add(1, Ordering::Relaxed);
    }

    fn not_permitted(&self, why: String) -> Error {
        Error::NotPermitted { registry: self.location.to_string(), why }
    }

    /// Sends a request to the present endpoint, and waits for `within` at most.
    fn try_call<T: DeserializeOwned>(
        &self,
        within: Duration,
        path: &str,
        request: &Value,
    ) -> std::result::Result<T, Failed> {
        let mut response = self.send(&self.agents().agent, Some(Instant::now() + within), path, request)?;
        let body = response.body_mut().with_config().limit(MAX_ANSWER).read_to_vec();
        let body = body.map_err(|why| self.failed(&why))?;
        if !has_few_values(&body) {
            return Err(Failed::TooLarge);
        }
        serde_json::from_slice(&body).map_err(|why| self.again(&why))
    }

    /// Sends a request to the present endpoint. Returns the response if it is a success. Both the password
    /// and the request, with its answer, take until `end` at most, or for as long as the agent lets them.
    fn send(
        &self,
        agent: &Agent,
        end: Option<Instant>,
        path: &str,
        request: &Value,
    ) -> std::result::Result<Response<Body>, Failed> {
        let token = self.token(agent, end)?;
        self.send_with(agent, end, path, request, token.as_deref())
    }

    fn send_with(
        &self,
        agent: &Agent,
        end: Option<Instant>,
        path: &str,
        request: &Value,
        token: Option<&str>,
    ) -> std::result::Result<Response<Body>, Failed> {
        // Two processes that used one connection would get each other's answers, so a forked child opens its
        // own.
        let own = (self.process != std::process::id()).then(|| agent.config().clone().new_agent());
        let mut post = own.as_ref().unwrap_or(agent).post(format!("{}/v3/{path}", self.endpoint()));
        if let Some(token) = token {
            post = post.header("Authorization", token);
        }
        if let Some(end) = end {
            // A timeout of zero would be none.
            let left = end.saturating_duration_since(Instant::now()).max(MIN_TIMEOUT);
            post = post.config().timeout_global(Some(left)).build();
        }
        let response = post.send(request.to_string()).map_err(|why| self.failed(&why))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = response.into_body().into_with_config().limit(64 << 10).read_to_string();
        Err(self.refusal(status.as_u16(), &body.unwrap_or_default()))
    }

    /// Returns the token of the user's session, if a user and a password were given.
    fn token(&self, agent: &Agent, end: Option<Instant>) -> std::result::Result<Option<Arc<str>>, Failed> {
        let Some(Credentials { user, password }) = &self.credentials else { return Ok(None) };
        if let Some(token) = lock(&self.token).clone() {
            return Ok(Some(token));
        }
        let request = json!({"name": user, "password": password});
        let mut response = match self.send_with(agent, end, "auth/authenticate", &request, None) {
            Ok(response) => response,
            // This cluster has no users. It does not ask for the password, so none is needed.
            Err(Failed::Refused { code: FAILED_PRECONDITION, .. }) => return Ok(None),
            Err(Failed::Refused { why, .. }) => return Err(Failed::Refused { code: PERMISSION_DENIED, why }),
            Err(failed) => return Err(failed),
        };
        let body = response.body_mut().with_config().limit(64 << 10).read_to_string();
        let answer: Value = body
            .map_err(|why| self.again(&why))
            .and_then(|body| serde_json::from_str(&body).map_err(|why| self.again(&why)))?;
        let token = answer["token"].as_str().ok_or_else(|| self.again(&"an answer without a token"))?;
        let token: Arc<str> = token.into();
        *lock(&self.token) = Some(token.clone());
        Ok(Some(token))
    }

    /// Says what an endpoint's answer of failure means (etcd's gateway: `{"error": .., "code": ..}`; since
    /// 3.7 `{"message": .., "code": ..}`).
    fn refusal(&self, status: u16, body: &str) -> Failed {
        let answer: Value = serde_json::from_str(body).unwrap_or_default();
        let code = answer["code"].as_i64();
        let text = answer["message"].as_str().or(answer["error"].as_str()).unwrap_or(body);
        let why = format!("{}: {}", self.endpoint(), shortened(text));
        match code {
            Some(UNAUTHENTICATED) => Failed::NotAuthenticated(why),
            Some(INVALID_ARGUMENT) if text.contains("auth") || text.contains("user name is empty") => {
                match text.contains("old") {
                    true => Failed::NotAuthenticated(why),
                    false => Failed::Refused { code: PERMISSION_DENIED, why },
                }
            }
            Some(code) if status < 500 && code != 0 => Failed::Refused { code, why },
            _ => Failed::Again(why),
        }
    }

    /// Says why there is no answer.
    fn failed(&self, why: &ureq::Error) -> Failed {
        if let ureq::Error::BodyExceedsLimit(_) = why {
            return Failed::TooLarge;
        }
        #[cfg(feature = "etcd-tls")]
        if let Some(explained) = super::tls::explained(why).filter(|_| self.location.is_secure()) {
            return self.again(&explained);
        }
        self.again(why)
    }

    fn again(&self, why: &dyn std::fmt::Display) -> Failed {
        Failed::Again(format!("{}: {why}", self.endpoint()))
    }

    fn endpoint(&self) -> &str {
        let endpoints = &self.location.endpoints;
        &endpoints[self.current.load(Ordering::Relaxed) % endpoints.len()]
    }
}

/// The lines of a watch, each a JSON value.
pub(super) struct Lines(BufReader<Box<dyn Read + Send>>);

impl Lines {
    /// Blocks until there is a line. Returns `None` if the watch has ended or brings nothing any more.
    pub(super) fn next(&mut self) -> Option<Value> {
        let mut line = Vec::new();
        let len = (&mut self.0).take(MAX_LINE).read_until(b'\n', &mut line).ok()?;
        if len == 0 { None } else { parsed(&line) }
    }
}

/// Parses a text of JSON, unless it has too many values.
pub(super) fn parsed<T: DeserializeOwned>(text: &[u8]) -> Option<T> {
    if has_few_values(text) { serde_json::from_slice(text).ok() } else { None }
}

/// Returns whether a text of JSON has at most [`MAX_VALUES`] values. Each value but the first of a list
/// stands behind a comma, and each first one behind a bracket. (Texts of etcd's JSON are base64, which has
/// neither.)
fn has_few_values(text: &[u8]) -> bool {
    work::steps(text.len() / 16);
    text.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count() < MAX_VALUES
}

/// Returns bytes as etcd's JSON has them.
pub(super) fn encoded(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

/// Returns the bytes of a value of etcd's JSON, or none if it is not base64.
pub(super) fn decoded(value: &Value) -> Option<Vec<u8>> {
    decoded_text(value.as_str().unwrap_or_default())
}

/// Returns the bytes that a text of etcd's JSON stands for, or none if it is not base64.
pub(super) fn decoded_text(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// Returns a number of etcd's JSON, in which integers of 64 bits are strings and 0 is left out.
pub(super) fn number(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(0)
}

/// Returns a time between half of `time` and `time`, so that many processes do not come at once.
pub(super) fn jittered(time: Duration) -> Duration {
    time / 2 + Duration::from_nanos(random((time / 2).as_nanos() as u64 + 1))
}

/// Returns a number below `bound`, which is not 0.
fn random(bound: u64) -> u64 {
    RandomState::new().hash_one(0) % bound
}

fn too_large() -> Error {
    let limit = MAX_ANSWER as usize;
    Error::TooLarge { what: "bytes or more in an answer of etcd", size: limit + 1, limit }
}

fn shortened(text: &str) -> String {
    const MAX_CHARS: usize = 300;
    text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Silent, server};
    use super::*;
    use crate::{Etcd, Label, Registry};

    /// A deadline between the time that a silent endpoint takes at most and the time that all take.
    const SHORT: Duration = Duration::from_millis(1_500);

    fn label() -> Label {
        "Store".parse().unwrap()
    }

    #[test]
    fn an_endpoint_that_is_silent_gets_a_share_of_the_time_alone() {
        let silent = Silent::new();
        let good = server(|_, _| (200, json!({"header": {"revision": "7"}})));
        let place = format!("etcd://{},{good}/test", silent.address());
        // Which endpoint is asked first is a matter of chance.
        while silent.asked() == 0 {
            let gateway = Gateway::new(place.parse().unwrap(), &Access::default());
            let answer = gateway.call_until::<Value>(Instant::now() + SHORT, "kv/range", &json!({}));
            assert_eq!(number(&answer.unwrap()["header"]["revision"]), 7);
        }
    }

    #[test]
    fn a_silent_etcd_is_asked_no_longer_than_its_caller_waits() {
        let silent = Silent::new();
        let etcd = Etcd::at(&format!("etcd://{}/test", silent.address())).unwrap();
        let begun = Instant::now();
        let within = Duration::from_millis(100);
        let unavailable = |why: Error| assert!(matches!(why, Error::Unavailable { .. }), "{why}");
        unavailable(etcd.instances_within(&label(), within).unwrap_err());
        unavailable(etcd.lookup_within(&label(), &label(), within).unwrap_err());
        unavailable(etcd.version_within(within).unwrap_err());
        // All of this took 19 s when no caller could say how long it waits: 7, 5 and 7.
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert!(silent.asked() < 10, "few requests fit into that time");
    }

    #[test]
    fn nothing_is_asked_when_no_time_is_left() {
        let silent = Silent::new();
        let etcd = Etcd::at(&format!("etcd://{}/test", silent.address())).unwrap();
        assert!(etcd.instances_within(&label(), Duration::ZERO).is_err());
        assert!(etcd.lookup_within(&label(), &label(), Duration::ZERO).is_err());
        assert_eq!(silent.asked(), 0);
    }
}
