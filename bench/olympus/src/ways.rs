//! How a procedure is called, and the server of all ways, which is a process of its own.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use farcall::{Export, Runtime};
use farcall_olympus::model::Procedure;
use farcall_olympus::procedures::Procedures;

/// The measured procedures.
#[farcall::interface(program = 0x2000_0777, version = 1)]
pub trait Null {
    /// Returns its argument.
    #[procedure(1)]
    fn same(&self, number: u32) -> farcall::Result<u32>;
    /// Does nothing.
    #[procedure(2)]
    fn nothing(&self) -> farcall::Result<()>;
    /// Takes as long as [`PAUSE`].
    #[procedure(3)]
    #[blocking]
    fn pause(&self) -> farcall::Result<()>;
}

/// How long the procedure `pause` takes.
pub const PAUSE: Duration = Duration::from_millis(10);

struct Same;

impl Null for Same {
    fn same(&self, number: u32) -> farcall::Result<u32> {
        Ok(number)
    }

    fn nothing(&self) -> farcall::Result<()> {
        Ok(())
    }

    fn pause(&self) -> farcall::Result<()> {
        std::thread::sleep(PAUSE);
        Ok(())
    }
}

/// What tokens and calls carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Carry {
    /// Nothing: tokens without values, and calls without arguments and results.
    Nothing,
    /// A number each way, which the graph's expressions name.
    Number,
}

impl Carry {
    pub fn word(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// How a procedure is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// The node has no procedure.
    NoCall,
    /// The exporter is in the same process.
    Local,
    /// Shared memory.
    Memory,
    /// Farcall's protocol over UDP.
    Udp,
    /// ONC RPC over UDP.
    OncUdp,
    /// ONC RPC over TCP.
    OncTcp,
}

/// The server, and where it is.
pub struct Server {
    url: String,
    onc_udp: SocketAddr,
    onc_tcp: SocketAddr,
    child: Option<Child>,
}

/// What finds the procedure, and what it looks for.
pub struct Found {
    pub procedures: Procedures,
    /// `None` if the node has no procedure.
    pub wanted: Option<Procedure>,
    _export: Option<Export>,
}

impl Found {
    /// Returns what finds another procedure.
    pub fn calling(self, wanted: Procedure) -> Found {
        Found { wanted: Some(wanted), ..self }
    }
}

impl Way {
    pub const ALL: [Way; 6] = [Way::NoCall, Way::Local, Way::Memory, Way::Udp, Way::OncUdp, Way::OncTcp];

    pub fn name(self) -> &'static str {
        match self {
            Way::NoCall => "no call",
            Way::Local => "local",
            Way::Memory => "memory",
            Way::Udp => "udp",
            Way::OncUdp => "onc udp",
            Way::OncTcp => "onc tcp",
        }
    }

    /// The word by which a process is told the way.
    pub fn word(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns what finds the procedure that carries this, in this way.
    pub fn found(self, carry: Carry, server: &Server) -> Result<Found> {
        let registry = farcall::names::Memory::new();
        let runtime = Runtime::builder().registry(registry).shared_memory(self == Way::Memory).build()?;
        let export = match self {
            Way::Local => Some(runtime.export::<dyn Null>("Null/local", Arc::new(Same))?),
            _ => None,
        };
        let (address, definition) = match self {
            Way::NoCall => {
                return Ok(Found { procedures: Procedures::new(&runtime), wanted: None, _export: None });
            }
            Way::Local => ("Null".to_owned(), None),
            Way::Memory | Way::Udp => (server.url.clone(), None),
            Way::OncUdp => (format!("udp://{}", server.onc_udp), Some("null.x")),
            Way::OncTcp => (format!("tcp://{}", server.onc_tcp), Some("null.x")),
        };
        let (name, arguments) = match (carry, definition) {
            (Carry::Nothing, None) => ("nothing", None),
            (Carry::Nothing, Some(_)) => ("NOTHING", None),
            (Carry::Number, None) => ("same", Some("[n]".parse()?)),
            (Carry::Number, Some(_)) => ("SAME", Some("[n]".parse()?)),
        };
        let wanted = Procedure {
            server: address,
            definition: definition.map(str::to_owned),
            name: name.to_owned(),
            arguments,
            idempotent: false,
        };
        let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
        let procedures = Procedures::new(&runtime).in_directory(directory);
        Ok(Found { procedures, wanted: Some(wanted), _export: export })
    }
}

impl Server {
    /// Starts the server.
    pub fn start() -> Result<Server> {
        let program = std::env::current_exe()?;
        let mut child =
            Command::new(program).arg("server").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("the server has no output")?).read_line(&mut line)?;
        let mut server = Server::known(line.trim())?;
        server.child = Some(child);
        Ok(server)
    }

    /// Returns a server that runs, by the line that it has printed.
    pub fn known(line: &str) -> Result<Server> {
        let mut words = line.split(' ').map(str::to_owned);
        let mut word = || words.next().context("the server has said too little");
        let (url, udp, tcp) = (word()?, word()?, word()?);
        Ok(Server { url, onc_udp: udp.parse()?, onc_tcp: tcp.parse()?, child: None })
    }

    /// Returns the line by which another process knows this server.
    pub fn line(&self) -> String {
        format!("{} {} {}", self.url, self.onc_udp, self.onc_tcp)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Serves in all ways until standard input ends.
pub fn serve() -> Result<()> {
    // Each call of `pause` keeps a worker.
    let runtime = Runtime::builder().registry(farcall::names::Memory::new()).workers(128).build()?;
    let export = runtime.export::<dyn Null>("Null", Arc::new(Same))?;
    let onc = farcall_onc::Server::builder().program::<dyn Null>(Arc::new(Same));
    let onc = onc.address("127.0.0.1:0".parse()?).start()?;
    let [udp, tcp] = [onc.udp(), onc.tcp()].map(|address| address.context("the server has no address"));
    let url = export.url();
    println!("{}", Server { url: url.to_string(), onc_udp: udp?, onc_tcp: tcp?, child: None }.line());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Returns a path for a journal.
pub fn journal() -> PathBuf {
    std::env::temp_dir().join(format!("olympus-bench-{}", std::process::id()))
}
