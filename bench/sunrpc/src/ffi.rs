//! Safe functions around the C programs.

use std::ffi::{c_int, c_uint};
use std::net::{SocketAddrV4, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, IntoRawFd};

use anyhow::{Result, ensure};

unsafe extern "C" {
    fn bench_local(bytes: c_int, iterations: c_uint);
    fn bench_serve_datagrams(socket: c_int);
    fn bench_serve_connection(connection: c_int);
    fn bench_call_datagrams(
        socket: c_int,
        address: c_uint,
        port: u16,
        polls: c_int,
        bytes: c_int,
        calls: c_uint,
    ) -> c_uint;
    fn bench_call_connection(connection: c_int, polls: c_int, bytes: c_int, calls: c_uint) -> c_uint;
}

/// Executes a loop around a local call, or an empty loop if `bytes` is negative.
pub fn local(bytes: i32, iterations: u32) {
    // SAFETY: the function has no preconditions.
    unsafe { bench_local(bytes, iterations) }
}

/// Serves a UDP socket by the C program until it fails.
pub fn serve_datagrams(socket: UdpSocket) {
    // SAFETY: the socket is given away, and open for as long as the process lives.
    unsafe { bench_serve_datagrams(socket.into_raw_fd()) }
}

/// Serves a connection by the C program until it ends.
pub fn serve_connection(connection: TcpStream) {
    // SAFETY: the connection is given away, and the function closes it.
    unsafe { bench_serve_connection(connection.into_raw_fd()) }
}

/// Makes calls by the C program. `polls` says whether each receive follows a poll.
pub fn call_datagrams(
    socket: &UdpSocket,
    to: SocketAddrV4,
    polls: bool,
    bytes: i32,
    calls: u32,
) -> Result<()> {
    let (address, port) = (to.ip().to_bits(), to.port());
    // SAFETY: the socket is open for as long as it is borrowed.
    let made = unsafe { bench_call_datagrams(socket.as_raw_fd(), address, port, polls.into(), bytes, calls) };
    complete(made, calls)
}

/// Makes calls by the C program. `polls` says whether each receive follows a poll.
pub fn call_connection(connection: &TcpStream, polls: bool, bytes: i32, calls: u32) -> Result<()> {
    // SAFETY: the connection is open for as long as it is borrowed.
    let made = unsafe { bench_call_connection(connection.as_raw_fd(), polls.into(), bytes, calls) };
    complete(made, calls)
}

fn complete(made: u32, calls: u32) -> Result<()> {
    ensure!(made == calls, "call {made} of {calls} had no reply");
    Ok(())
}

#[cfg(libtirpc)]
pub use sun::{Sun, serve_sun};

#[cfg(libtirpc)]
mod sun {
    use std::ffi::c_void;
    use std::ptr::NonNull;

    use anyhow::Context;

    use super::*;

    unsafe extern "C" {
        fn bench_serve_sun(socket: c_int);
        fn bench_connect_sun(socket: c_int, address: c_uint, port: u16) -> *mut c_void;
        fn bench_call_sun(client: *mut c_void, bytes: c_int, calls: c_uint) -> c_uint;
    }

    /// Serves a UDP socket by libtirpc. Returns only if that cannot be.
    pub fn serve_sun(socket: UdpSocket) {
        // SAFETY: the socket is given away, and open for as long as the process lives.
        unsafe { bench_serve_sun(socket.into_raw_fd()) }
    }

    /// A client of libtirpc. It is never destroyed, because the process ends with it.
    pub struct Sun(NonNull<c_void>);

    impl Sun {
        /// Makes a client of the server at this address.
        pub fn new(socket: UdpSocket, to: SocketAddrV4) -> Result<Sun> {
            // SAFETY: the socket is given away, and open for as long as the process lives.
            let client = unsafe { bench_connect_sun(socket.into_raw_fd(), to.ip().to_bits(), to.port()) };
            NonNull::new(client).map(Sun).context("libtirpc makes no client")
        }

        /// Makes calls.
        pub fn call(&mut self, bytes: i32, calls: u32) -> Result<()> {
            // SAFETY: the client came from `bench_connect_sun`, and nobody else uses it.
            complete(unsafe { bench_call_sun(self.0.as_ptr(), bytes, calls) }, calls)
        }
    }
}
