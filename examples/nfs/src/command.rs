//! The command line of farcall-nfs, and its commands.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use farcall_nfs::client::Mounted;
use farcall_nfs::files::Files;
use farcall_nfs::protocol::mount::MountV3;
use farcall_nfs::protocol::nfs::{Ftype3, NfsV3};
use farcall_nfs::{Export, Mounts};
use rustix::fs::Mode;

/// Serves a directory by NFS version 3, and lists and copies files of any NFS server.
///
/// A URL is nfs://HOST/PATH, for a host with a port mapper, or nfs://HOST:PORT/PATH, for a server that has
/// MOUNT and NFS at one port.
#[derive(Parser)]
#[command(name = "farcall-nfs")]
enum Command {
    /// Serve a directory; clients read and write it as the user that runs this
    Serve {
        /// The directory
        directory: PathBuf,
        /// The address to listen at, over UDP and TCP
        #[arg(long, default_value = "127.0.0.1:2049")]
        address: SocketAddr,
        /// The name under which clients mount it
        #[arg(long, default_value = "/")]
        name: String,
    },
    /// List a directory
    Ls { url: String },
    /// Copy a file to standard output
    Cat { url: String },
    /// Copy a local file to the server
    Put { from: PathBuf, url: String },
}

pub fn main() -> ExitCode {
    match run(Command::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // Where nothing can be written, the exit code says it.
            let _ = writeln!(io::stderr(), "farcall-nfs: {why}");
            ExitCode::FAILURE
        }
    }
}

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn run(command: Command) -> Result<()> {
    match command {
        Command::Serve { directory, address, name } => serve(directory, address, &name),
        Command::Ls { url } => list(&url).map_err(|why| format!("{url}: {why}").into()),
        Command::Cat { url } => print(&url).map_err(|why| format!("{url}: {why}").into()),
        Command::Put { from, url } => {
            let mut from = File::open(&from).map_err(|why| format!("{}: {why}", from.display()))?;
            put(&mut from, &url).map_err(|why| format!("{url}: {why}").into())
        }
    }
}

fn list(url: &str) -> Result<()> {
    let (mounted, path) = mount(url)?;
    for (name, attributes) in mounted.list(&mounted.find(path)?)? {
        let (kind, size) =
            attributes.map_or(('?', 0), |attributes| (letter(attributes.r#type), attributes.size));
        writeln!(io::stdout(), "{kind} {size:>12} {}", escaped(&name))?;
    }
    Ok(())
}

fn print(url: &str) -> Result<()> {
    let (mounted, path) = mount(url)?;
    mounted.read(&mounted.find(path)?, &mut io::stdout().lock())?;
    Ok(())
}

fn put(from: &mut File, url: &str) -> Result<()> {
    let (mounted, path) = mount(url)?;
    writeln!(io::stdout(), "{} bytes", mounted.write(path, from)?)?;
    Ok(())
}

/// Serves until SIGTERM or SIGINT. Then the calls that have begun are finished.
fn serve(directory: PathBuf, address: SocketAddr, name: &str) -> Result<()> {
    // Clients have already applied their own umask to the modes that they ask for.
    rustix::process::umask(Mode::empty());
    let files = Files::open(&directory).map_err(|why| format!("{}: {why}", directory.display()))?;
    let files = Arc::new(files);
    let server = farcall_onc::Server::builder()
        .program::<dyn NfsV3>(Arc::new(Export::new(files.clone())))
        .program::<dyn MountV3>(Arc::new(Mounts::new(files, name)))
        .address(address)
        .start()?;
    if let Some(address) = server.tcp() {
        // The server serves also if nobody reads what it says.
        let _ = writeln!(io::stdout(), "{} is nfs://{address}{name}, over UDP and TCP", directory.display());
    }
    Ok(server.until_signal()?)
}

/// Mounts the exported directory that the path of a URL begins with. Returns that directory and the rest of
/// the path.
fn mount(url: &str) -> Result<(Mounted, &str)> {
    let rest = url.strip_prefix("nfs://").ok_or("a URL begins with nfs://")?;
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let address = if has_port { format!("tcp://{host}") } else { host.to_owned() };
    Ok(Mounted::mount(&address, &address, path)?)
}

/// Returns a name as `ls -b` shows it, with octal escapes for control characters and bytes that are not
/// UTF-8.
fn escaped(name: &[u8]) -> String {
    let mut shown = String::new();
    let octal =
        |shown: &mut String, bytes: &[u8]| bytes.iter().for_each(|byte| *shown += &format!("\\{byte:03o}"));
    for part in name.utf8_chunks() {
        for letter in part.valid().chars() {
            match letter {
                '\\' => shown += "\\\\",
                '\n' => shown += "\\n",
                '\t' => shown += "\\t",
                letter if letter.is_control() || is_direction(letter) => {
                    octal(&mut shown, letter.encode_utf8(&mut [0; 4]).as_bytes());
                }
                letter => shown.push(letter),
            }
        }
        octal(&mut shown, part.invalid());
    }
    shown
}

/// Returns whether a character changes the order in which later characters are shown (one of Unicode's
/// bidirectional controls).
fn is_direction(letter: char) -> bool {
    matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn letter(kind: Ftype3) -> char {
    match kind {
        Ftype3::Nf3reg => '-',
        Ftype3::Nf3dir => 'd',
        Ftype3::Nf3blk => 'b',
        Ftype3::Nf3chr => 'c',
        Ftype3::Nf3lnk => 'l',
        Ftype3::Nf3sock => 's',
        Ftype3::Nf3fifo => 'p',
    }
}
