//! What the system or the network says of datagrams that do not get to a server.

use std::fmt;

/// Why datagrams to a server may not arrive, as the system or the network reports it. Anybody can forge what
/// the network reports, so an obstacle decides nothing: the failure of a call whose server is silent tells it
/// to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// This machine's system does not permit sending there.
    Forbidden,
    /// The path does not take datagrams as long as the protocol needs them.
    TooNarrow {
        /// The longest payload that the path takes, in bytes, if that is known.
        max_bytes: Option<u32>,
    },
    /// Something on the path does not let datagrams pass.
    Filtered,
    /// There is no route to the server's network.
    NoRoute,
    /// The server's host is not there.
    NoHost,
    /// No program receives at the server's port.
    NoProgram,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Forbidden => f.write_str(
                "this machine's system does not permit sending there (a rule of its firewall, or a route)",
            ),
            Obstacle::TooNarrow { max_bytes } => {
                f.write_str("the path takes no datagrams of 1200 bytes")?;
                if let Some(most) = max_bytes {
                    write!(f, ", but of {most} at most")?;
                }
                f.write_str("; calls need an MTU of at least 1228 (IPv6: 1248)")
            }
            Obstacle::Filtered => f.write_str("the network reports that a filter refuses datagrams to it"),
            Obstacle::NoRoute => f.write_str("there is no route to its network"),
            Obstacle::NoHost => f.write_str("the network reports that its host is not there"),
            Obstacle::NoProgram => f.write_str("its host reports that no program receives at that port"),
        }
    }
}
