//! Clerks, the client's side of the service: a clerk serves the programs of one machine. There are several
//! kinds of clerks, called structures.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::memory::{Memory, Rights, Settings};
use farcall::stub::{Binding, Client};
use farcall::{CallFailed, Kind, Ran, Result, Runtime};
use farcall_file_access::{FileAccess, FileError};

use crate::areas::{Areas, IDENTITY, mailbox};
use crate::calls::ByCalls;
use crate::copies::Copies;
use crate::direct::Direct;
use crate::hybrid::{ANSWERS, Hybrid, Object, Post};
use crate::imported::Imported;
use crate::table::Hints;
use crate::tally::Counted;
use crate::{Addresses, Files, MoreFiles, MoreFilesClient, Shape, Tally};

/// How a clerk executes its clients' requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Structure {
    /// The clerk reads the server's memory. It asks the server only for entries that are not there.
    Dx,
    /// The clerk reads the server's memory and keeps copies. Before it uses a copy, it checks in the server's
    /// memory whether the copy is current.
    DxCopies,
    /// The clerk writes a request into the server's memory, with notice; the server writes the answer into
    /// the clerk's memory.
    Hy,
    /// The clerk calls the server.
    Rpc,
}

impl Structure {
    /// All structures.
    pub const ALL: [Structure; 4] = [Structure::Dx, Structure::DxCopies, Structure::Hy, Structure::Rpc];

    /// Returns the paper's name of the structure.
    pub fn name(self) -> &'static str {
        match self {
            Structure::Dx => "DX",
            Structure::DxCopies => "DX with copies",
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
            Structure::Hy => {
                let attached = attach(runtime, server, &tally, false)?;
                Arc::new(by_letters(&attached.post, Object::Files, Object::More, &tally)?)
            }
            Structure::Dx => Arc::new(direct(attach(runtime, server, &tally, true)?, &tally, None)?),
            Structure::DxCopies => {
                let attached = attach(runtime, server, &tally, true)?;
                let copies = Copies::new(runtime, &format!("{}-copies", attached.name), &attached.shape)?;
                Arc::new(direct(attached, &tally, Some(copies))?)
            }
        };
        Ok(Clerk { files, tally })
    }
}

struct Attached {
    /// The clerk's name.
    name: String,
    post: Arc<Post>,
    shape: Shape,
}

fn direct(attached: Attached, tally: &Arc<Tally>, copies: Option<Copies>) -> Result<Direct, FileError> {
    let missing = by_letters(&attached.post, Object::FilesAndKeep, Object::MoreAndKeep, tally)?;
    let areas = Areas::new(&attached.shape);
    Ok(Direct { server: attached.post.server.clone(), areas, hints: Hints::new(), copies, missing })
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
    reads: bool,
) -> Result<Attached, FileError> {
    static CLERKS: AtomicU32 = AtomicU32::new(0);
    let name = format!("clerk-{}-{}", std::process::id(), CLERKS.fetch_add(1, Ordering::Relaxed));
    // The server gets all rights, so that it maps the segment if it is on this machine.
    let settings = Settings::new(ANSWERS.end() as usize).anyone(Rights::ALL);
    let answers = runtime.export_segment(&name, settings)?;

    let more: MoreFilesClient = runtime.import::<dyn MoreFiles>(&server.more)?;
    let attached = more.attach(&answers.url(), reads)?;

    let (runtime, memory, tally) = (runtime.clone(), server.memory.clone(), tally.clone());
    let import = move || {
        let memory = runtime.import_segment(&memory)?;
        // Another server of this name may have another layout, and does not know this clerk.
        if memory.load(IDENTITY).ok() != Some(attached.identity) {
            return Err(CallFailed::new(Kind::ServerRestarted, Ran::Maybe).into());
        }
        Ok(Box::new(Counted { memory, tally: tally.clone() }) as Box<dyn Memory>)
    };
    let post = Post {
        server: Arc::new(Imported::new(Box::new(import))?),
        requests: mailbox(attached.mailbox),
        answers,
        last: Mutex::new(attached.last),
        patience: Duration::from_millis(20),
    };
    Ok(Attached { name, post: Arc::new(post), shape: attached.shape })
}
