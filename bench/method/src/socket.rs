//! Settings of peers' sockets that the standard library does not offer.
use std::net::UdpSocket;

/// The bytes of the receive buffer: enough for all outstanding calls.
const BUFFER: usize = 16 << 20;

/// Asks for a large receive buffer, beyond the system's limit if that is permitted.
pub fn enlarge(socket: &UdpSocket) {
    #[cfg(target_os = "linux")]
    if rustix::net::sockopt::set_socket_recv_buffer_size_force(socket, BUFFER).is_ok() {
        return;
    }
    // A smaller buffer is accepted.
    let _ = socket2::SockRef::from(socket).set_recv_buffer_size(BUFFER);
}
