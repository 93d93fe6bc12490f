//! What peers' sockets need beyond the standard library.
use std::net::UdpSocket;

/// Room for all calls that may be outstanding.
const BUFFER: usize = 16 << 20;

/// Asks for a large buffer for what arrives: beyond the system's limit where that is allowed.
pub fn enlarge(socket: &UdpSocket) {
    #[cfg(target_os = "linux")]
    if rustix::net::sockopt::set_socket_recv_buffer_size_force(socket, BUFFER).is_ok() {
        return;
    }
    // What the system gives must do.
    let _ = socket2::SockRef::from(socket).set_recv_buffer_size(BUFFER);
}
