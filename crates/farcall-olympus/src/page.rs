//! The page in the browser, on which people draw a graph and watch and control its run; and the server of the
//! page.
//!
//! - `admission`: which requests are answered: token, `Host` and `Origin`;
//! - `api`: what the page asks for, and does;
//! - `backend`: what the page needs of a run;
//! - `connections`: the HTTP server and its limits;
//! - `document`: the graph as it is drawn, and small edits of it;
//! - `formats`: graphs as files, and what is wrong with a graph;
//! - `restartable`: a run that can be started again, as the page's backend;
//! - `files`: the page's own files, which the program contains, and the headers of each answer.
//!
//! A user of the page can call every procedure that the program can call. So only the person who started the
//! program is admitted; `docs/security.md` says how.

mod admission;
mod api;
mod backend;
mod connections;
mod document;
mod files;
mod formats;
mod restartable;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::model::Graph;
use admission::Admission;
use api::Site;

pub use backend::{Backend, Changes, Command, NodeCounts, RunState};
pub use document::Problem;
pub use restartable::RestartableRun;

/// How the page is served.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The TCP port on `127.0.0.1`; 0 lets the system choose.
    pub port: u16,
    /// The most connections at a time. A browser uses at most 6.
    pub max_connections: usize,
    /// The most bytes of a request's body.
    pub max_body_bytes: usize,
    /// How long a client may take to send a request, and how long a connection may be idle.
    pub request_time: Duration,
    /// How long a client may accept no bytes of an answer.
    pub write_time: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            port: 0,
            max_connections: 32,
            max_body_bytes: 16 << 20,
            request_time: Duration::from_secs(20),
            write_time: Duration::from_secs(20),
        }
    }
}

/// A page that is being served. When it is dropped, the server ends.
///
/// ```
/// use std::sync::Arc;
/// use farcall_olympus::page::{Page, RestartableRun, Settings};
/// use farcall_olympus::procedures::Procedures;
/// use farcall_olympus::run::{self, Run};
/// use farcall_olympus::text;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = farcall::Runtime::builder().registry(farcall::names::Memory::new()).build()?;
/// let procedures = Procedures::new(&runtime);
/// let of_runs = procedures.clone();
/// let start = move |graph| {
///     let settings = run::Settings { paused: true, ..run::Settings::default() };
///     Run::start(graph, &of_runs, settings).map_err(|why| why.to_string())
/// };
/// let graph = text::parse("queue.olympus", "place jobs\n")?;
/// let run = RestartableRun::new(graph.clone(), procedures, start)?;
/// let page = Page::serve(graph, Arc::new(run), Settings::default())?;
/// println!("open {}", page.url());
/// # Ok(())
/// # }
/// ```
pub struct Page {
    address: SocketAddr,
    token: String,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Page {
    /// Serves a page that draws `graph` and controls `backend`, on a thread of its own.
    ///
    /// # Errors
    /// If the port is in use, or the system gives no random bytes or no thread.
    pub fn serve(graph: Graph, backend: Arc<dyn Backend>, settings: Settings) -> io::Result<Page> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, settings.port))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let token = admission::new_token()?;
        let site = Arc::new(Site::new(graph, backend, Admission::new(address.port(), &token), &settings));
        // The page streams changes for as long as it is open, each stream on a thread that may block.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(2 * settings.max_connections)
            .build()?;
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let thread = thread::Builder::new().name("olympus page".into()).spawn(move || {
            runtime.block_on(async {
                tokio::spawn(connections::serve(listener, site, settings));
                let _ = stopped.await;
            });
            runtime.shutdown_background();
        })?;
        Ok(Page { address, token, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the address at which the page is served.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL that opens the page. It contains the token: who knows it may call what the program
    /// may.
    ///
    /// The token is in the fragment, which browsers do not send to servers and do not pass on to other pages.
    pub fn url(&self) -> String {
        format!("http://{}/#token={}", self.address, self.token)
    }

    /// Returns the token that each request to `/api/` must have, as `Authorization: Bearer TOKEN`.
    pub fn token(&self) -> &str {
        &self.token
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
