//! Clerks, the client's side of the service: a clerk serves the programs of one machine. There are several
//! kinds of clerks, called structures.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::memory::{Memory, Rights, Settings};
use farcall::stub::{Binding, Client};
use farcall::{CallFailed, Kind, Ran, Result, Runtime};
use farcall_file_access::{FileAccess, FileError};

use crate::areas::{self, Areas, IDENTITY};
use crate::attaching::{Attaching, Attachment};
use crate::calls::ByCalls;
use crate::copies::Copies;
use crate::direct::Direct;
use crate::hybrid::{ANSWERS, Hybrid, Object, Post};
use crate::imported::Imported;
use crate::mirror::{Layout, Mirror};
use crate::table::Hints;
use crate::tally::Counted;
use crate::{Addresses, Files, MoreFiles, MoreFilesClient, Reads, Shape, Tally};

/// How a clerk executes its clients' requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Structure {
    /// The clerk reads the server's memory. It asks the server only for entries that are not there.
    Dx,
    /// The clerk reads the server's memory and keeps copies. Before it uses a copy, it checks in the server's
    /// memory whether the copy is current.
    DxCopies,
    /// The server writes changed entries into the clerk's memory, without notice, before a change is over;
    /// the clerk asks the server to write, and keeps copies of blocks (*write requests only*).
    Wr,
    /// The clerk writes a request into the server's memory, with notice; the server writes the answer into
    /// the clerk's memory.
    Hy,
    /// The clerk calls the server.
    Rpc,
}

impl Structure {
    /// All structures.
    pub const ALL: [Structure; 5] =
        [Structure::Dx, Structure::DxCopies, Structure::Wr, Structure::Hy, Structure::Rpc];

    /// Returns the paper's name of the structure.
    pub fn name(self) -> &'static str {
        match self {
            Structure::Dx => "DX",
            Structure::DxCopies => "DX with copies",
            Structure::Wr => "WR",
            Structure::Hy => "HY",
            Structure::Rpc => "RPC",
        }
    }
}

/// A clerk of a server.
pub struct Clerk {
    /// The interface that the clerk's clients call: see [`client`](crate::client).
    pub files: Arc<dyn Files>,
    /// The counts of the clerk's accesses and calls.
    pub tally: Arc<Tally>,
}

impl Clerk {
    /// Starts a clerk in this process. The server may be on any machine that this machine can reach.
    ///
    /// # Errors
    /// When the server does not answer, or has too many clerks.
    pub fn new(runtime: &Runtime, server: &Addresses, structure: Structure) -> Result<Clerk, FileError> {
        let tally = Arc::new(Tally::default());
        let files: Arc<dyn Files> = match structure {
            Structure::Rpc => Arc::new(by_calls(runtime, server, &tally)?),
            Structure::Hy => Arc::new(attaching(runtime, server, &tally, |runtime, server, tally| {
                let attached = attach(runtime, server, tally, Reads::Answers)?;
                by_letters(&attached.post, Object::Files, Object::More, tally)
            })?),
            Structure::Dx => Arc::new(attaching(runtime, server, &tally, |runtime, server, tally| {
                direct(attach(runtime, server, tally, Reads::ServerMemory)?, tally, None)
            })?),
            Structure::DxCopies => Arc::new(attaching(runtime, server, &tally, |runtime, server, tally| {
                let attached = attach(runtime, server, tally, Reads::ServerMemory)?;
                let copies = Copies::new(runtime, &format!("{}-copies", attached.name), &attached.shape)?;
                direct(attached, tally, Some(copies))
            })?),
            Structure::Wr => Arc::new(attaching(runtime, server, &tally, pushed)?),
        };
        Ok(Clerk { files, tally })
    }
}

/// Attaches a clerk to a server, and again whenever the server does not know it any more.
fn attaching<A: Attachment + 'static>(
    runtime: &Runtime,
    server: &Addresses,
    tally: &Arc<Tally>,
    attach: fn(&Runtime, &Addresses, &Arc<Tally>) -> Result<A, FileError>,
) -> Result<Attaching<A>, FileError> {
    let (runtime, server, tally) = (runtime.clone(), server.clone(), tally.clone());
    Attaching::new(Box::new(move |paths| {
        let attached = attach(&runtime, &server, &tally)?;
        Ok(match paths {
            Some(paths) => attached.with_paths(paths),
            None => attached,
        })
    }))
}

struct Attached {
    /// The clerk's name.
    name: String,
    post: Arc<Post>,
    mailbox: u32,
    /// The number of the clerk's lease.
    lease: u64,
    shape: Shape,
}

fn direct(attached: Attached, tally: &Arc<Tally>, copies: Option<Copies>) -> Result<Direct, FileError> {
    let missing = by_letters(&attached.post, Object::FilesAndKeep, Object::MoreAndKeep, tally)?;
    let areas = Areas::new(&attached.shape);
    let (server, hints) = (attached.post.server.clone(), Hints::new());
    Ok(Direct { server, areas, hints, copies, mirror: None, missing })
}

/// Returns a clerk into whose memory the server pushes entries.
fn pushed(runtime: &Runtime, server: &Addresses, tally: &Arc<Tally>) -> Result<Direct, FileError> {
    let attached = attach(runtime, server, tally, Reads::PushedEntries)?;
    let Attached { mailbox, lease, shape, .. } = attached;
    let only_blocks = Shape { attributes: 1, names: 1, links: 1, pages: 1, ..shape };
    let copies = Copies::new(runtime, &format!("{}-copies", attached.name), &only_blocks)?;
    let more: MoreFilesClient = runtime.import::<dyn MoreFiles>(&server.more)?;
    let mirror = Mirror::new(attached.post.clone(), &shape, mailbox, lease, more);
    let direct = direct(attached, tally, Some(copies))?;
    Ok(Direct { mirror: Some(mirror), ..direct })
}

fn by_calls(runtime: &Runtime, server: &Addresses, tally: &Arc<Tally>) -> Result<ByCalls, FileError> {
    let files = runtime.import::<dyn FileAccess>(&server.files)?;
    let more = runtime.import::<dyn MoreFiles>(&server.more)?;
    ByCalls::new(files, more, tally.clone())
}

fn by_letters(
    post: &Arc<Post>,
    files: Object,
    more: Object,
    tally: &Arc<Tally>,
) -> Result<ByCalls, FileError> {
    ByCalls::new(stub(post, files), stub(post, more), tally.clone())
}

/// Returns a stub whose calls are carried by letters.
fn stub<C: Client>(post: &Arc<Post>, object: Object) -> C {
    Binding::new(Arc::new(Hybrid { post: post.clone(), object })).into()
}

/// Registers the clerk with the server by a call.
fn attach(
    runtime: &Runtime,
    server: &Addresses,
    tally: &Arc<Tally>,
    reads: Reads,
) -> Result<Attached, FileError> {
    static CLERKS: AtomicU32 = AtomicU32::new(0);
    let name = format!("clerk-{}-{}", std::process::id(), CLERKS.fetch_add(1, Ordering::Relaxed));
    // The server gets all rights, so that it maps the segment if it is on this machine.
    let more: MoreFilesClient = runtime.import::<dyn MoreFiles>(&server.more)?;
    let pushed = if reads == Reads::PushedEntries { Some(more.shape()?) } else { None };
    let size = pushed.map_or(ANSWERS.end(), |shape| Layout::new(&shape).size());
    let answers = runtime.export_segment(&name, Settings::new(size as usize).anyone(Rights::ALL))?;
    let attached = more.attach(&answers.url(), reads)?;

    if pushed.is_some_and(|shape| shape != attached.shape) {
        let why = "the server was restarted with tables of another size";
        return Err(CallFailed::new(Kind::ServerRestarted, Ran::Maybe).because(why).into());
    }
    let (mailbox, lease, shape) = (attached.mailbox, attached.last, attached.shape);
    let (runtime, memory, tally) = (runtime.clone(), server.memory.clone(), tally.clone());
    let import = move || {
        let memory = runtime.import_segment(&memory)?;
        // Another server of this name may have another layout, and does not know this clerk.
        if memory.load(IDENTITY).ok() != Some(attached.identity) {
            return Err(CallFailed::new(Kind::ServerRestarted, Ran::Maybe).into());
        }
        Ok(Counted { memory, tally: tally.clone() })
    };
    let post = Post {
        server: Arc::new(Imported::new(import)?),
        requests: areas::mailbox(mailbox),
        answers,
        last: Mutex::new(lease),
        patience: Duration::from_millis(20),
    };
    Ok(Attached { name, post: Arc::new(post), mailbox, lease, shape })
}
