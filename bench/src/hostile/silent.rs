//! Hostile processes of the server's own user: connections by which memory is to be shared, and which say
//! nothing.
use std::net::SocketAddr;

/// So many at a time.
#[cfg(target_os = "linux")]
const MOST: usize = 64;

#[cfg(target_os = "linux")]
#[derive(Default)]
pub struct Silent(std::collections::VecDeque<farcall_shm::UnixChannel>);

#[cfg(target_os = "linux")]
impl Silent {
    /// One more connection, in the place of the oldest if there are many.
    pub fn connect(&mut self, server: SocketAddr) {
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        // The server may have enough of them.
        self.0.extend(farcall_shm::UnixChannel::connect(server).ok());
    }
}

#[cfg(not(target_os = "linux"))]
#[derive(Default)]
pub struct Silent;

#[cfg(not(target_os = "linux"))]
impl Silent {
    pub fn connect(&mut self, _: SocketAddr) {}
}
