//! A request on its way from the connections to a subsystem, and back.

use std::net::SocketAddr;

use crate::packet::INIT1_OPEN;

/// A request to execute.
pub(super) struct Request {
    pub from: SocketAddr,
    pub subsystem: u32,
    /// The opcode, or that of a bind.
    pub opcode: i32,
    /// The packed arguments.
    pub body: Vec<u8>,
    /// The server's handle of the connection.
    pub handle: u32,
    /// When the request was sent, by the client's clock.
    pub timestamp: u32,
}

impl Request {
    /// Returns whether a client binds: the NEW_CONNECTION procedure is called.
    pub fn is_bind(&self) -> bool {
        self.opcode == INIT1_OPEN
    }
}
