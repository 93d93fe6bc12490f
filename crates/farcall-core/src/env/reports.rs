//! Which errors of a socket come from the network. An ICMP message that names a socket's address and port
//! becomes an error of that socket, and anybody can forge one. So such an error is a hint about one
//! destination. It never ends receiving, and never stops a send to somebody else.

use std::fmt;
use std::io::{self, ErrorKind};
use std::time::Duration;

use farcall_base::Obstacle;

use super::Env;

/// Returns whether an error of a datagram socket may come from the network: from an ICMP message, or from
/// the route to one destination. Every error does, except those that say that the socket or this process
/// lacks something. Linux makes an error of its own of nearly every ICMP message, and may add more.
pub fn is_network_report(error: &io::Error) -> bool {
    if quoted(error).is_some() {
        return true;
    }
    match code(error) {
        Some(code) => !is_own(code),
        None => !is_own_kind(error.kind()),
    }
}

/// Returns why datagrams may not arrive, if the error of a send says so. That a datagram was too long counts
/// only if it was no longer than every path has to take.
pub fn obstacle(error: &io::Error) -> Option<Obstacle> {
    #[cfg(unix)]
    {
        use rustix::io::Errno;
        match code(error) {
            Some(Errno::MSGSIZE) => return Some(Obstacle::TooNarrow { max_bytes: None }),
            Some(Errno::PERM | Errno::ACCESS) => return Some(Obstacle::Forbidden),
            Some(Errno::HOSTDOWN) => return Some(Obstacle::NoHost),
            _ => {}
        }
    }
    match error.kind() {
        ErrorKind::PermissionDenied => Some(Obstacle::Forbidden),
        ErrorKind::NetworkUnreachable => Some(Obstacle::NoRoute),
        ErrorKind::HostUnreachable => Some(Obstacle::NoHost),
        ErrorKind::ConnectionRefused => Some(Obstacle::NoProgram),
        _ => None,
    }
}

/// How many reports in a row a thread passes over before it [rests](rest).
pub const MAX_REPORTS_IN_A_ROW: usize = 64;

/// Makes a thread wait that a socket has given nothing but errors for long. A flood of reports ends after a
/// while, but a socket that is broken in an unknown way gives its error at once, again and again.
#[cold]
pub fn rest(env: &dyn Env) {
    const REST: Duration = Duration::from_millis(1);
    env.event().wait(Some(REST));
}

/// Returns whether an error of accept(2) concerns only the connection that was to be accepted. Linux passes
/// on what the network reported of that connection. Other errors say that this process lacks something, such
/// as file descriptors.
pub fn is_of_one_connection(error: &io::Error) -> bool {
    error.kind() == ErrorKind::Interrupted || is_network_report(error)
}

/// Returns the beginning of the datagram that a network report quotes, if the report quotes one. Only
/// somebody on the datagram's path can quote it.
pub fn quoted(error: &io::Error) -> Option<&[u8]> {
    let report: &QuotingReport = error.get_ref()?.downcast_ref()?;
    Some(&report.quoted)
}

/// Returns an error that quotes a datagram.
pub fn quoting(error: io::Error, quoted: Vec<u8>) -> io::Error {
    io::Error::new(error.kind(), QuotingReport { error, quoted })
}

/// An error of a socket, with the beginning of the datagram that raised it.
#[derive(Debug)]
struct QuotingReport {
    error: io::Error,
    quoted: Vec<u8>,
}

impl fmt::Display for QuotingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for QuotingReport {}

#[cfg(unix)]
fn code(error: &io::Error) -> Option<rustix::io::Errno> {
    rustix::io::Errno::from_io_error(error)
}

/// Returns whether an error says that the socket or this process lacks something.
#[cfg(unix)]
fn is_own(code: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
    match code {
        // The wait is over.
        Errno::AGAIN | Errno::INTR => true,
        // The socket was closed or is none, or the arguments of the system call are wrong.
        Errno::BADF | Errno::NOTSOCK | Errno::INVAL | Errno::FAULT | Errno::AFNOSUPPORT => true,
        Errno::NOTCONN | Errno::ISCONN | Errno::DESTADDRREQ | Errno::PIPE => true,
        // The system lacks memory, files or a device.
        Errno::NOMEM | Errno::NOBUFS | Errno::MFILE | Errno::NFILE => true,
        _ => false,
    }
}

#[cfg(not(unix))]
fn code(_: &io::Error) -> Option<i32> {
    None
}

#[cfg(not(unix))]
fn is_own(_: i32) -> bool {
    true
}

/// Returns whether an error without a system number, such as a simulated socket gives, is the socket's own.
fn is_own_kind(kind: ErrorKind) -> bool {
    use ErrorKind::{AddrInUse, AddrNotAvailable, BrokenPipe, InvalidInput, NotConnected, OutOfMemory};
    use ErrorKind::{Interrupted, TimedOut, UnexpectedEof, Unsupported, WouldBlock};
    matches!(kind, AddrInUse | AddrNotAvailable | BrokenPipe | InvalidInput | NotConnected | OutOfMemory)
        || matches!(kind, Interrupted | TimedOut | UnexpectedEof | Unsupported | WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn every_error_of_linux_icmp_tables_is_a_report_and_none_of_the_socket_itself() {
        use rustix::io::Errno;
        // net/ipv4/icmp.c (icmp_err_convert), net/ipv6/icmp.c (tab_unreach), and each protocol's default.
        let reports = [
            Errno::NETUNREACH,
            Errno::HOSTUNREACH,
            Errno::NOPROTOOPT,
            Errno::CONNREFUSED,
            Errno::MSGSIZE,
            Errno::OPNOTSUPP,
            Errno::HOSTDOWN,
            Errno::ACCESS,
            Errno::PROTO,
        ];
        let is = |code: Errno| is_network_report(&code.into());
        for code in reports {
            assert!(is(code), "{code}");
        }
        #[cfg(target_os = "linux")]
        assert!(is(Errno::NONET));
        for own in [Errno::BADF, Errno::NOTSOCK, Errno::INVAL, Errno::NOMEM, Errno::MFILE, Errno::AGAIN] {
            assert!(!is(own), "{own}");
        }
    }

    #[test]
    fn a_report_keeps_its_kind_and_what_it_quotes() {
        let error = quoting(ErrorKind::ConnectionRefused.into(), b"call".to_vec());
        assert_eq!((error.kind(), quoted(&error)), (ErrorKind::ConnectionRefused, Some(&b"call"[..])));
        assert!(is_network_report(&error));
        assert!(!is_network_report(&ErrorKind::WouldBlock.into()));
    }
}
