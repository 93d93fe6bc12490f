//! The command line.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

#[cfg(feature = "keys")]
use crate::commands::keys;
#[cfg(not(all(feature = "keys", feature = "olympus")))]
use crate::commands::lacking::Lacking;
#[cfg(feature = "olympus")]
use crate::commands::olympus;
use crate::commands::{
    call, cat, check, clerk, completions, debug, describe, dump, r#gen, get, list, ls, multi, names, ping,
    put, serve, top,
};
use crate::demo;
use crate::failure::{Failure, Outcome};
use crate::output::{Output, remark, report, standard_output};
use crate::text::is_printable;

/// Calls procedures, serves files, and shows what goes on between programs that use farcall.
///
/// A NAME is a type (FileAccess, any instance of it), a type and an instance (FileAccess/ebbets), or an
/// address (udp://10.0.0.7:7000/FileAccess).
#[derive(Debug, Parser)]
#[command(name = "farcall", version, max_term_width = 100, after_long_help = AFTER)]
pub struct Arguments {
    /// Print JSON: one value, or one value per line for a list; errors too, on standard error
    #[arg(long, global = true)]
    pub json: bool,

    #[command(subcommand)]
    pub command: Command,
}

/// What follows the help. No line has more than 80 columns, so that no terminal breaks it.
const AFTER: &str = "\
Exit codes:
  0  success
  1  the command failed; `check`: something breaks; `demo`: something was not as
     expected
  2  the command line, or JSON on it, is not valid
  3  the procedure raised an exception that its interface declares
  4  the call failed; the procedure did not run and never will
  5  the call failed; the procedure ran or may have run
  6  `call`: the result has a value that --fail names, or lacks one that
     --expect names
  `multi` and `call --batch` exit with the greatest code of a member or a line.

Environment:
  FARCALL_REGISTRY        where processes publish their names: a directory,
                          `memory`, or etcd://HOST[,HOST] (etcds:// with TLS);
                          or where names can only be read: file:///PATH,
                          dns://DOMAIN
  FARCALL_ADDRESS         the address on which exports listen
                          [default: a free port of 127.0.0.1]
  FARCALL_ADVERTISE       the ADDRESS[:PORT][,ADDRESS[:PORT]…] that exports
                          publish [default: where they listen; for 0.0.0.0 and
                          [::], this machine's addresses]
  FARCALL_OPEN            1: other machines may call, without keys
  FARCALL_KEYS            the directory of key files: calls are sealed
  FARCALL_LEVEL           secure, or authenticated: seals do not hide contents
                          [default: secure]
  FARCALL_PADDING         how long sealed datagrams are made [default: none]
  FARCALL_PATIENCE_MS     how long a server may be silent before a call fails
                          [default: 10000]
  FARCALL_SERVER_PATIENCE_MS
                          how long this program may be silent, as in a debugger,
                          before servers cancel its calls [default: 12000]
  FARCALL_FULL_PATIENCE   on: as long even if the server's host refuses packets
                          [default: off]
  FARCALL_WORKERS         the most procedures that execute at once; waiting ones
                          do not count
  FARCALL_THREADS         the most threads that serve calls [default: 1024]
  FARCALL_QUEUE           the most calls that wait for a worker [default: 1024]
  FARCALL_QUEUE_BYTES     the most bytes of arguments that wait for a worker
                          [default: 67108864]
  FARCALL_QUEUE_MS        how long a call waits for a worker before it is refused
                          [default: 10000]
  FARCALL_SPIN_US         how long to poll for a packet before blocking
                          [default: 0]
  FARCALL_SOCKET_BUFFER   the size of socket buffers to ask for, in bytes
                          [default: 4194304]
  FARCALL_ARGUMENT_BYTES  how many bytes of arguments unfinished calls may keep
                          [default: 536870912]
  FARCALL_SHM             off: no calls through shared memory [default: on]
  FARCALL_XDP             the network interfaces at which the kernel answers
                          readers of segments, with commas between them
  FARCALL_DESCRIBE        0: exports neither describe themselves nor show their
                          counters
  FARCALL_SLOW_MS         report calls that take longer, on standard error
  FARCALL_ETCD_USER       the user of etcd, and
  FARCALL_ETCD_PASSWORD   the user's password
  FARCALL_ETCD_CA         the authorities of etcd's certificates (etcds://),
  FARCALL_ETCD_CERT       this client's certificate, and
  FARCALL_ETCD_KEY        its private key: PEM files
  FARCALL_DNS_SERVER      the IP[:PORT][,IP[:PORT]…] of servers of DNS
                          [default: those of /etc/resolv.conf]
  FARCALL_DNS_LOCAL_ADDRESSES
                          1: hosts in DNS may have loopback addresses

Examples:
  farcall demo                           see it work, on your own files
  farcall serve ~/notes --name FileAccess/notes &
                                         let others read a directory
  farcall ls && farcall cat todo.txt     read it from elsewhere
  farcall get thesis.pdf --continue      copy a file, whatever interrupts it
  farcall describe FileAccess            what can be called, and how
  farcall call FileAccess stat '{\"path\": \"todo.txt\"}'
  farcall multi FileAccess stat '[\"todo.txt\"]'
                                         call every file server at once
  farcall top --once                     what this user's servers do now
  farcall debug Store/ebbets             how a process sees its servers
  farcall check old.x new.x              what a new version breaks
  farcall gen phone.x -o src/phone.rs    make Rust of an ONC RPC protocol
  farcall list 10.0.0.7                  the ONC RPC programs of a host
  farcall call 10.0.0.7 mount MOUNTPROC3_EXPORT
                                         call one, by its .x file or a known name
  farcall olympus run pipeline.olympus   call the procedures of a graph";

#[derive(Debug, Subcommand)]
pub enum Command {
    Demo(demo::Demo),
    Serve(serve::Serve),
    List(list::List),
    Ls(ls::Ls),
    Cat(cat::Cat),
    Get(get::Get),
    Put(put::Put),
    Call(call::Call),
    Multi(multi::Multi),
    Describe(describe::Describe),
    Ping(ping::Ping),
    Names(names::Names),
    Clerk(clerk::Clerks),
    Top(top::Top),
    Debug(debug::Debug),
    #[cfg(feature = "keys")]
    Keys(keys::Keys),
    /// Make keys and sign grants (not in this build, which lacks the feature `keys`)
    #[cfg(not(feature = "keys"))]
    Keys(Lacking),
    Check(check::Check),
    #[cfg(feature = "olympus")]
    Olympus(olympus::Olympus),
    /// Run graphs of remote procedures (not in this build, which lacks the feature `olympus`)
    #[cfg(not(feature = "olympus"))]
    Olympus(Lacking),
    Dump(dump::Dump),
    Gen(r#gen::Gen),
    Completions(completions::Completions),
    /// A process of the demo
    #[command(name = demo::ROLE, hide = true)]
    Role(demo::Role),
}

impl Command {
    pub fn run(&self, output: &Output) -> Outcome {
        match self {
            Command::Demo(command) => command.run(output),
            Command::Serve(command) => command.run(output),
            Command::List(command) => command.run(output),
            Command::Ls(command) => command.run(output),
            Command::Cat(command) => command.run(output),
            Command::Get(command) => command.run(output),
            Command::Put(command) => command.run(output),
            Command::Call(command) => command.run(output),
            Command::Multi(command) => command.run(output),
            Command::Describe(command) => command.run(output),
            Command::Ping(command) => command.run(output),
            Command::Names(command) => command.run(output),
            Command::Clerk(command) => command.run(output),
            Command::Top(command) => command.run(output),
            Command::Debug(command) => command.run(output),
            #[cfg(feature = "keys")]
            Command::Keys(command) => command.run(output),
            #[cfg(not(feature = "keys"))]
            Command::Keys(command) => command.refuse("keys", "keys"),
            Command::Check(command) => command.run(output),
            #[cfg(feature = "olympus")]
            Command::Olympus(command) => command.run(output),
            #[cfg(not(feature = "olympus"))]
            Command::Olympus(command) => command.refuse("olympus", "olympus"),
            Command::Dump(command) => command.run(output),
            Command::Gen(command) => command.run(output),
            Command::Completions(command) => command.run(Arguments::command()),
            Command::Role(command) => command.run(output),
        }
    }
}

/// Prints the help or the version that the user asked for, or what is wrong with the command line. Returns the
/// exit code. Help that cannot be printed is a failure.
pub fn answer(answer: &clap::Error) -> ExitCode {
    let code = answer.exit_code();
    let text = answer.render().to_string();
    if answer.use_stderr() && !text.lines().all(is_printable) {
        // It repeats the user's words, which may be those of others.
        text.lines().for_each(remark);
        return ExitCode::from(u8::try_from(code).unwrap_or(1));
    }
    let printed = match answer.use_stderr() {
        true => answer.print(),
        // `print` locks standard output itself.
        false => {
            standard_output().map(drop).and_then(|()| answer.print()).and_then(|()| std::io::stdout().flush())
        }
    };
    match printed {
        Err(why) if !answer.use_stderr() => report(&Failure::from(why), false),
        _ => ExitCode::from(u8::try_from(code).unwrap_or(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }
}
