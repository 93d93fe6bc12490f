//! Servers of ONC RPC on the command line: where they are, and what they understand.

use std::path::Path;

use clap::{Args, ValueEnum};
use farcall::dynamic::Dynamic;
use farcall_idl::x::{self, Version, interfaces};
use farcall_onc::rpcbind::Rpcbind;
use farcall_onc::{AuthSys, Client, standard};

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::x_file::{self, Reading};

/// How a server of ONC RPC is called.
#[derive(Clone, Debug, Default, Args)]
pub struct Manner {
    /// ONC RPC: who calls
    #[arg(long, value_enum, default_value_t, help_heading = "ONC RPC")]
    auth: Auth,
    /// ONC RPC: the version of the program, where the file has several
    #[arg(long, value_name = "NUMBER", help_heading = "ONC RPC")]
    program_version: Option<u32>,
    /// ONC RPC: call over UDP where the address does not say how
    #[arg(long, help_heading = "ONC RPC")]
    udp: bool,
    #[command(flatten)]
    reading: Reading,
}

/// The flavour of authentication (RFC 5531 section 8.2).
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Auth {
    /// This user of this machine, as AUTH_SYS says it
    #[default]
    Sys,
    /// Nobody
    None,
}

/// Whether this is an `.x` file, or the name of a protocol that needs none.
pub fn is_definition(name: &str) -> bool {
    standard::definition(name).is_some() || x_file::is_meant(name)
}

impl Manner {
    /// The versions of programs that a definition has, the latest first.
    pub fn versions(&self, definition: &str, output: &Output) -> Outcome<Vec<Version>> {
        let tree = match standard::definition(definition) {
            Some(text) => x::read_text(Path::new(definition), text, &x::Options::default())
                .map_err(|why| Failure::new(why.to_string()))?,
            None => self.reading.read(Path::new(definition), output)?,
        };
        let mut versions = interfaces(&tree).map_err(|why| Failure::new(why.to_string()).about(definition))?;
        versions.sort_by_key(|version| std::cmp::Reverse((version.program, version.version)));
        if let Some(wanted) = self.program_version {
            versions.retain(|version| version.version == wanted);
        }
        match versions.is_empty() {
            true => Err(Failure::usage(format!("{definition} has no such program and version"))),
            false => Ok(versions),
        }
    }

    /// The latest version that has a procedure, by the file's spelling or by Rust's, and its place in it.
    pub fn find(versions: Vec<Version>, name: &str) -> Outcome<(Version, usize)> {
        let place = |version: &Version| {
            let spelt = version.procedure_names.iter().position(|known| known == name);
            spelt.or_else(|| version.interface.procedures.iter().position(|procedure| procedure.name == name))
        };
        let known: Vec<String> = versions.iter().flat_map(|version| version.procedure_names.clone()).collect();
        let found = versions.into_iter().find_map(|version| place(&version).map(|place| (version, place)));
        found.ok_or_else(|| {
            Failure::usage(format!("there is no procedure {name}")).hint(format!("there are {}", known.join(", ")))
        })
    }

    /// A server of a program at an address: `tcp://HOST:PORT`, `udp://HOST:PORT`, `unix:PATH`, `HOST:PORT` (TCP), or a host
    /// whose port mapper is asked.
    pub fn connect(&self, address: &str, program: u32, version: u32) -> Outcome<Client> {
        let has_port = address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let address = match address {
            _ if address.contains("://") || address.starts_with("unix:") => address.to_owned(),
            _ if self.udp => format!("udp://{address}"),
            _ if has_port => format!("tcp://{address}"),
            host => host.to_owned(),
        };
        let builder = match self.auth {
            Auth::Sys => Client::builder().auth(AuthSys::of_process()),
            Auth::None => Client::builder(),
        };
        builder.find(&address, program, version).map_err(failed)
    }

    /// The same, bound to what a file says of it.
    pub fn bind(&self, address: &str, version: &Version) -> Outcome<Dynamic> {
        let client = self.connect(address, version.program, version.version)?;
        Ok(Dynamic::described(client.program(version.program, version.version), version.interface.clone()))
    }

    /// The version of a program that is meant: the one that was asked for, or the latest that the host has registered.
    pub fn program_version(&self, program: u32, host: &str) -> Outcome<u32> {
        if let Some(version) = self.program_version {
            return Ok(version);
        }
        if host.contains(':') {
            return Err(Failure::usage("which version of the program?").hint("--program-version NUMBER"));
        }
        let entries = Rpcbind::of(host).and_then(|mapper| mapper.entries()).map_err(failed)?;
        let versions = entries.iter().filter(|entry| entry.program == program).map(|entry| entry.version);
        versions.max().ok_or_else(|| not_registered(host, program))
    }
}

fn not_registered(host: &str, program: u32) -> Failure {
    Failure::new(format!("{host} has not registered program {program}"))
        .hint(format!("`farcall list {host}` shows what it has"))
}

/// What a call of ONC RPC that failed says; what helps elsewhere would not help here.
pub fn failed(why: impl Into<farcall::CallFailed>) -> Failure {
    Failure::from(why.into()).in_place_of_hint("`farcall list HOST` shows what a host has registered")
}
