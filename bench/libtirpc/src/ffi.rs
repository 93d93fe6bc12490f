//! Safe functions around the C side (`echo.c`).
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::IntoRawFd;
use std::ptr::NonNull;

use anyhow::{Context, Result, ensure};

unsafe extern "C" {
    fn bench_serve(socket: c_int, stream: c_int);
    fn bench_connect(socket: c_int, stream: c_int, port: u16) -> *mut c_void;
    fn bench_null(client: *mut c_void) -> c_int;
    fn bench_echo(client: *mut c_void, data: *mut c_char, length: c_uint) -> c_int;
    fn bench_fetch(client: *mut c_void, bytes: c_uint) -> c_int;
}

pub fn serve_udp(socket: UdpSocket) {
    // SAFETY: the socket is given away, and open for as long as the process lives.
    unsafe { bench_serve(socket.into_raw_fd(), 0) }
}

pub fn serve_tcp(listener: TcpListener) {
    // SAFETY: as above.
    unsafe { bench_serve(listener.into_raw_fd(), 1) }
}

/// A client. It is never destroyed, because the process ends with it.
pub struct Client(NonNull<c_void>);

// SAFETY: a CLIENT of libtirpc is bound to no thread, and whoever has it exclusively is its only user.
unsafe impl Send for Client {}

impl Client {
    pub fn udp(socket: UdpSocket, port: u16) -> Result<Client> {
        // SAFETY: the socket is given away, and open for as long as the process lives.
        let handle = unsafe { bench_connect(socket.into_raw_fd(), 0, port) };
        Ok(Client(NonNull::new(handle).context("no client")?))
    }

    pub fn tcp(stream: TcpStream, port: u16) -> Result<Client> {
        // SAFETY: as above.
        let handle = unsafe { bench_connect(stream.into_raw_fd(), 1, port) };
        Ok(Client(NonNull::new(handle).context("no client")?))
    }

    pub fn null(&mut self) -> Result<()> {
        // SAFETY: the handle came from `bench_connect` and is used by this thread alone.
        checked(unsafe { bench_null(self.0.as_ptr()) })
    }

    pub fn echo(&mut self, data: &mut [u8]) -> Result<()> {
        let length = data.len().try_into()?;
        // SAFETY: as above; `data` is as long as it says, and not kept.
        checked(unsafe { bench_echo(self.0.as_ptr(), data.as_mut_ptr().cast(), length) })
    }

    pub fn fetch(&mut self, bytes: usize) -> Result<()> {
        // SAFETY: as above.
        checked(unsafe { bench_fetch(self.0.as_ptr(), bytes.try_into()?) })
    }
}

fn checked(status: c_int) -> Result<()> {
    ensure!(status == 0, "clnt_call says {status}");
    Ok(())
}
