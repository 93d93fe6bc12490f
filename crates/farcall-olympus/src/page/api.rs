//! What the page asks for, and does.
//!
//! | request | answer |
//! |---|---|
//! | `GET /api/graph` | the graph as JSON, its version, and its problems |
//! | `PUT /api/graph` | replaces the graph; the body is JSON, text or PNML |
//! | `POST /api/edit` | makes small edits: `{"version": 7, "edits": […]}` |
//! | `GET /api/graph.json`, `.olympus`, `.pnml`, `.svg` | the graph to keep |
//! | `GET /api/exports` | what is exported now |
//! | `POST /api/command` | controls the run |
//! | `GET /api/changes?since=NUMBER` | a line of JSON for each change of the run, for as long as the client reads |
//! | `GET /api/stopped` | the firings that are stopped now |
//! | `GET /api/firing?id=NUMBER` | a firing that is under way or stopped |
//! | `GET /api/tokens?place=NAME` | the tokens in a place |
//!
//! A `GET` changes nothing.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use http_body_util::channel::{Channel, Sender};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::admission::{Admission, Refusal};
use super::document::{Document, Edit, Problem};
use super::{Backend, Command, Settings, files, formats};
use crate::model::Graph;

/// The most edits in a request.
const MAX_EDITS: usize = 1000;

/// The most problems in an answer.
const MAX_PROBLEMS: usize = 200;

/// How long a stream of changes waits for a change. Then it sends a line in any case: so it notices that the
/// client is gone, and the page sees that the program is there.
const CHANGES_WAIT: Duration = Duration::from_secs(1);

/// The time between two lines of a stream of changes. People see no more.
const CHANGES_PAUSE: Duration = Duration::from_millis(40);

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

type Body = BoxBody<Bytes, Infallible>;
type Answer = Result<Response<Body>, (StatusCode, String)>;

/// What the server's connections share.
pub(super) struct Site {
    admission: Admission,
    backend: Arc<dyn Backend>,
    document: Mutex<Document>,
    max_body_bytes: usize,
    request_time: Duration,
}

impl Site {
    /// Makes a site that shows `graph`.
    pub(super) fn new(
        graph: Graph,
        backend: Arc<dyn Backend>,
        admission: Admission,
        settings: &Settings,
    ) -> Site {
        Site {
            admission,
            backend,
            document: Mutex::new(Document::new(formats::with_positions(graph))),
            max_body_bytes: settings.max_body_bytes,
            request_time: settings.request_time,
        }
    }

    fn document(&self) -> MutexGuard<'_, Document> {
        self.document.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers a request.
pub(super) async fn answer(request: Request<Incoming>, site: Arc<Site>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let mut response = match respond(head, body, site).await {
        Ok(response) => response,
        Err((status, why)) => refusal(status, &why),
    };
    files::protect(response.headers_mut());
    response
}

async fn respond(head: Parts, body: Incoming, site: Arc<Site>) -> Answer {
    site.admission.admit(&head).map_err(said)?;
    let path = head.uri.path();
    let Some(name) = path.strip_prefix("/api/") else { return file(&head.method, path) };
    site.admission.admit_to_api(&head).map_err(said)?;
    match (&head.method, name) {
        (&Method::GET, "changes") => Ok(stream(site, number(&head, "since")?.unwrap_or(0))),
        (&Method::GET, _) => read(site, head).await,
        (&Method::POST, "edit" | "command") | (&Method::PUT, "graph") => {
            let body = whole(body, &site).await?;
            write(site, head, body).await
        }
        _ => Err((StatusCode::METHOD_NOT_ALLOWED, "there is no such request".into())),
    }
}

/// Returns a file of the page. These are the same for everybody and need no token.
fn file(method: &Method, path: &str) -> Answer {
    if method != Method::GET && method != Method::HEAD {
        return Err((StatusCode::METHOD_NOT_ALLOWED, "a file of the page can be read only".into()));
    }
    match files::find(path) {
        Some((of, text)) => Ok(response(of, text)),
        None => Err((StatusCode::NOT_FOUND, "the page has no such file".into())),
    }
}

/// Answers what changes nothing.
async fn read(site: Arc<Site>, head: Parts) -> Answer {
    blocking(move || match head.uri.path().trim_start_matches("/api/") {
        "graph" => {
            let document = site.document();
            let problems = formats::problems(&document.graph);
            Ok(json_of(&Drawn {
                graph: Some(&document.graph),
                ..Drawn::new(document.version, problems, None)
            }))
        }
        "exports" => match site.backend.exports() {
            Ok(exports) => Ok(json_of(&exports)),
            Err(error) => Err((StatusCode::BAD_GATEWAY, error)),
        },
        "stopped" => Ok(json_of(&site.backend.stopped())),
        "firing" => {
            let id = number(&head, "id")?.ok_or_else(|| bad("the request has no id"))?;
            match site.backend.firing(id) {
                Some(firing) => Ok(json_of(&firing)),
                None => Err((
                    StatusCode::NOT_FOUND,
                    "this firing is neither under way nor stopped any more".into(),
                )),
            }
        }
        "tokens" => {
            let place = parameter(&head, "place").ok_or_else(|| bad("the request has no place"))?;
            match site.backend.tokens(&place) {
                Some(tokens) => Ok(json_of(&tokens)),
                None => Err((StatusCode::NOT_FOUND, format!("the run has no place {place}"))),
            }
        }
        name => match name.strip_prefix("graph.").and_then(formats::Format::named) {
            Some(format) => {
                let graph = site.document().graph.clone();
                Ok(response(format.media_type(), format.print(&graph).map_err(|error| bad(&error))?))
            }
            None => Err((StatusCode::NOT_FOUND, "there is no such request".into())),
        },
    })
    .await
}

/// Answers what changes the graph or the run.
async fn write(site: Arc<Site>, head: Parts, body: Bytes) -> Answer {
    blocking(move || match head.uri.path().trim_start_matches("/api/") {
        "command" => {
            let command: Command = parse(&head, &body)?;
            site.backend.command(command).map_err(|error| (StatusCode::CONFLICT, error))?;
            Ok(json_of(&json!({})))
        }
        "edit" => edit(&site, parse(&head, &body)?),
        _ => {
            let text = str::from_utf8(&body).map_err(|_| bad("the file is not text in UTF-8"))?;
            let graph = formats::with_positions(formats::read(text).map_err(|error| bad(&error))?);
            let mut document = site.document();
            document.replace(graph).map_err(|error| bad(&error))?;
            let (problems, refused) = apply(&site, &document.graph);
            Ok(json_of(&Drawn {
                graph: Some(&document.graph),
                ..Drawn::new(document.version, problems, refused)
            }))
        }
    })
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Edits {
    version: u64,
    edits: Vec<Edit>,
}

/// The graph, or what became of an edit of it.
#[derive(Serialize)]
struct Drawn<'a> {
    version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    graph: Option<&'a Graph>,
    problems: Vec<Problem>,
    /// Why the run goes on with an older graph.
    refused: Option<String>,
}

impl Drawn<'_> {
    fn new(version: u64, mut problems: Vec<Problem>, refused: Option<String>) -> Drawn<'static> {
        problems.truncate(MAX_PROBLEMS);
        Drawn { version, graph: None, problems, refused }
    }
}

fn edit(site: &Site, Edits { version, edits }: Edits) -> Answer {
    if edits.len() > MAX_EDITS {
        return Err(bad(&format!("the request has {} edits, at most {MAX_EDITS}", edits.len())));
    }
    let mut document = site.document();
    if document.version != version {
        return Err((StatusCode::CONFLICT, "the graph has been changed elsewhere meanwhile".into()));
    }
    let changes_meaning = edits.iter().any(Edit::changes_meaning);
    document.edit(edits).map_err(|error| bad(&error))?;
    let (problems, refused) = match changes_meaning {
        true => apply(site, &document.graph),
        false => (formats::problems(&document.graph), None),
    };
    Ok(json_of(&Drawn::new(document.version, problems, refused)))
}

/// Makes the run go on with a graph if it can be interpreted.
fn apply(site: &Site, graph: &Graph) -> (Vec<Problem>, Option<String>) {
    let problems = formats::problems(graph);
    if problems.iter().any(|problem| !problem.warning) {
        return (problems, Some("the graph has problems".into()));
    }
    let refused = site.backend.apply(graph).err();
    (problems, refused)
}

/// Streams the changes of the run, from a thread that may block.
fn stream(site: Arc<Site>, since: u64) -> Response<Body> {
    let (lines, body) = Channel::new(1);
    let runtime = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || runtime.block_on(send_changes(site, since, lines)));
    Response::builder()
        .header(CONTENT_TYPE, "application/x-ndjson")
        .body(body.boxed())
        .unwrap_or_else(|_| Response::new(empty()))
}

async fn send_changes(site: Arc<Site>, mut since: u64, mut lines: Sender<Bytes>) {
    loop {
        let changes = site.backend.changes(since, CHANGES_WAIT);
        since = changes.number;
        let Ok(mut line) = serde_json::to_vec(&changes) else { return };
        line.push(b'\n');
        // The client is gone, or is so slow that its connection was cut.
        if lines.send_data(line.into()).await.is_err() {
            return;
        }
        thread::sleep(CHANGES_PAUSE);
    }
}

/// Reads the body of a request.
async fn whole(body: Incoming, site: &Site) -> Result<Bytes, (StatusCode, String)> {
    let body = Limited::new(body, site.max_body_bytes).collect();
    match tokio::time::timeout(site.request_time, body).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err((
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the request has more than {} bytes", site.max_body_bytes),
        )),
        Ok(Err(_)) => Err(bad("the request's body is broken")),
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the request came too slowly".into())),
    }
}

fn parse<T: for<'de> Deserialize<'de>>(head: &Parts, body: &[u8]) -> Result<T, (StatusCode, String)> {
    if head.headers.get(CONTENT_TYPE).is_none_or(|of| of != JSON) {
        return Err((
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            format!("the request's Content-Type is not {JSON}"),
        ));
    }
    serde_json::from_slice(body).map_err(|error| bad(&error.to_string()))
}

/// Does on another thread what may block, or takes long.
async fn blocking(work: impl FnOnce() -> Answer + Send + 'static) -> Answer {
    match tokio::task::spawn_blocking(work).await {
        Ok(answer) => answer,
        Err(_) => Err((StatusCode::INTERNAL_SERVER_ERROR, "the request could not be answered".into())),
    }
}

fn number(head: &Parts, name: &str) -> Result<Option<u64>, (StatusCode, String)> {
    let Some(text) = parameter(head, name) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| bad(&format!("{name} is not a number")))
}

/// Returns a parameter of the request's query, without its percent signs.
fn parameter(head: &Parts, name: &str) -> Option<String> {
    let mut pairs = head.uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(key, _)| *key == name)?;
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

fn said((status, why): Refusal) -> (StatusCode, String) {
    (status, why.to_owned())
}

fn bad(why: &str) -> (StatusCode, String) {
    (StatusCode::BAD_REQUEST, why.to_owned())
}

fn refusal(status: StatusCode, why: &str) -> Response<Body> {
    let mut refusal = response(TEXT, format!("{why}\n"));
    *refusal.status_mut() = status;
    if status == StatusCode::METHOD_NOT_ALLOWED {
        refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, POST, PUT"));
    }
    refusal
}

fn json_of(value: &impl Serialize) -> Response<Body> {
    match serde_json::to_vec(value) {
        Ok(text) => response(JSON, text),
        Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn response(of: &'static str, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(text.into()).boxed());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(of));
    response
}

fn empty() -> Body {
    Full::new(Bytes::new()).boxed()
}
