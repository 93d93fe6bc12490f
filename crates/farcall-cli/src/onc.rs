//! Servers of ONC RPC on the command line: their addresses, and the definitions of their programs.

use clap::{Args, ValueEnum};
use farcall::dynamic::Dynamic;
use farcall::{CallFailed, Kind, Ran};
use farcall_idl::x::{Version, interfaces};
use farcall_onc::{AuthSys, Builder, Client, routines};

use crate::failure::{Failure, NAMES, Outcome};
use crate::output::Output;
use crate::remote::Deadline;
use crate::x_file::{self, Reading};

/// How a server of ONC RPC is called.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "ONC RPC")]
pub struct Manner {
    /// The identity of the caller
    #[arg(long, value_enum, default_value_t)]
    auth: Auth,
    /// The version of the program, if there are several [default: the latest]
    #[arg(long, value_name = "NUMBER")]
    program_version: Option<u32>,
    /// Use UDP if the address names no transport
    #[arg(long)]
    udp: bool,
    #[command(flatten)]
    reading: Reading,
}

/// The flavour of authentication (RFC 5531 section 8.2).
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Auth {
    /// This user and machine, by AUTH_SYS
    #[default]
    Sys,
    /// No identity, by AUTH_NONE
    None,
}

impl Manner {
    /// Returns the versions of programs in a definition, the latest first.
    pub fn versions(&self, definition: &str, output: &Output) -> Outcome<Vec<Version>> {
        let tree = self.reading.definition(definition, output)?;
        let mut versions =
            interfaces(&tree).map_err(|why| Failure::new(why.to_string()).about(definition))?;
        versions.sort_by_key(|version| std::cmp::Reverse((version.program, version.version)));
        let Some(wanted) = self.program_version else { return some(versions, definition) };
        let known = versions.iter().map(|version| format!("{} of {}", version.version, version.program_name));
        let hint = format!("it has {}", known.collect::<Vec<String>>().join(", "));
        versions.retain(|version| version.version == wanted);
        some(versions, definition).map_err(|why| why.hint(hint))
    }

    /// Returns the latest version that has a procedure with this name, and the procedure's index in that
    /// version. The name may be spelt as in the `.x` file or as in Rust.
    pub fn find(versions: Vec<Version>, name: &str) -> Outcome<(Version, usize)> {
        let known = Manner::procedures(&versions);
        let found = Version::latest_with(versions, name);
        found.ok_or_else(|| Failure::usage(format!("there is no procedure {name}")).hint(known))
    }

    /// Returns the names of the procedures, for a hint.
    pub fn procedures(versions: &[Version]) -> String {
        let known = versions.iter().flat_map(|version| &version.procedure_names).map(String::as_str);
        format!("there are {}", known.collect::<Vec<_>>().join(", "))
    }

    /// Returns a server of a program at an address: `tcp://HOST:PORT`, `udp://HOST:PORT`, `unix:PATH`,
    /// `HOST:PORT` (TCP), or a host whose port mapper is asked.
    pub fn connect(&self, address: &str, program: u32, version: u32, deadline: &Deadline) -> Outcome<Client> {
        self.settings(deadline)
            .find(&self.whole(address), program, version)
            .map_err(|why| unfound(why, address))
    }

    /// Returns a binding to the server at an address, for the program that an `.x` file describes.
    pub fn bind(&self, address: &str, version: &Version, deadline: &Deadline) -> Outcome<Dynamic> {
        let client = self.connect(address, version.program, version.version, deadline)?;
        Ok(Dynamic::described(client.program(version.program, version.version), version.spelled.clone()))
    }

    /// Returns the program's selected version, or the latest that the server has.
    pub fn program_version(&self, program: u32, address: &str, deadline: &Deadline) -> Outcome<u32> {
        match self.program_version {
            Some(version) => Ok(version),
            None => routines::versions(&self.settings(deadline), &self.whole(address), program)
                .map(|versions| versions.high)
                .map_err(|why| unfound(why, address)),
        }
    }

    fn whole(&self, address: &str) -> String {
        let names_network = address.contains("://") || address.starts_with("unix:");
        if self.udp && !names_network { format!("udp://{address}") } else { address.to_owned() }
    }

    fn settings(&self, deadline: &Deadline) -> Builder {
        match self.auth {
            Auth::Sys => settings(deadline).auth(AuthSys::of_process()),
            Auth::None => settings(deadline),
        }
    }
}

fn some(versions: Vec<Version>, definition: &str) -> Outcome<Vec<Version>> {
    match versions.is_empty() {
        true => Err(Failure::usage(format!("{definition} has no such program and version"))),
        false => Ok(versions),
    }
}

/// Returns a client whose timeout also covers finding and connecting to the server.
pub fn settings(deadline: &Deadline) -> Builder {
    match deadline.left() {
        Some(left) => Client::builder().patience(Some(left)).connect_within(left),
        None => Client::builder(),
    }
}

/// Returns the failure of an ONC RPC call, without hints that only apply to farcall.
pub fn failed(why: impl Into<CallFailed>) -> Failure {
    let why = why.into();
    let hint = match why.kind() {
        Kind::NoSuchName => "an address is HOST, HOST:PORT, tcp://HOST:PORT, udp://HOST:PORT or unix:PATH",
        Kind::Mismatch => {
            "--program-version NUMBER asks for another; `farcall list HOST` shows what a host has registered"
        }
        Kind::NotPermitted => "--auth chooses the identity of the caller",
        Kind::NoSuchProcedure => "the server has fewer procedures than the .x file",
        Kind::BadArguments => "is the .x file the one that the server was made of?",
        // The bytes that came are no reply at all. A result that does not fit the `.x` file is reported by
        // `unreadable` instead.
        Kind::BadResult => {
            "what answers at that address may not speak ONC RPC: is it the port of another service?"
        }
        // The server answered SYSTEM_ERR (RFC 5531 section 9).
        Kind::Other => {
            "the server runs and took the call, but the procedure failed there: its own log may say why"
        }
        Kind::Deadline => "--within SECONDS gives it more time",
        _ => "does it run there? `farcall list HOST` shows what a host has registered",
    };
    Failure::from(why).in_place_of_hint(hint)
}

/// Returns the failure for a server that was not found. If the address has no port, the failure says that the
/// host's port mapper was asked.
fn unfound(why: CallFailed, address: &str) -> Failure {
    let place = address.split_once("://").map_or(address, |(_, place)| place);
    // An IPv6 address without a port has more colons.
    let has_port = place.contains("]:") || place.matches(':').count() == 1 && !place.starts_with('[');
    let looked_for = matches!(why.kind(), Kind::Unreachable | Kind::NotExported | Kind::Deadline);
    match looked_for && !has_port {
        // Only the port mapper was asked, so the procedure did not run.
        true => failed(CallFailed::new(why.kind(), Ran::No).because(why.detail().to_owned())).in_place_of_hint(format!(
            "the port mapper (rpcbind) of {place} is asked for the port, and `farcall list {place}` shows what it knows; HOST:PORT \
             needs none"
        )),
        false => failed(why),
    }
}

/// Returns a failure about an unknown name, with a hint about what the user may have meant.
pub fn unnamed(why: impl Into<CallFailed>, meant: &str) -> Failure {
    let why = why.into();
    match why.kind() {
        Kind::NoSuchName => {
            let more = format!("{NAMES}. {meant}, or what needs no file: {}", x_file::known());
            Failure::from(why).in_place_of_hint(more)
        }
        _ => why.into(),
    }
}

/// The hint for a missing description: an ONC RPC server does not describe itself, so the command line must
/// name an `.x` file.
pub const AFTER_ADDRESS: &str = "In ONC RPC an .x file follows the address";

/// Returns the failure for a result that does not have its declared type. The procedure ran.
pub fn unreadable(why: Failure) -> Failure {
    why.hint("is the file the one that the server was made of?").ran()
}
