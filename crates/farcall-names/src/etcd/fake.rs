//! A server that answers the requests of a test as the test says.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use serde_json::Value;

use super::gateway::Gateway;
use super::settings::Access;

/// Returns a gateway to a server that answers with what `answer` returns for a path and a request: a status
/// and a body. It answers one request after the other, and then closes the connection.
pub(super) fn gateway(answer: impl FnMut(&str, &Value) -> (u16, Value) + Send + 'static) -> Arc<Gateway> {
    let place = format!("etcd://{}/test", server(answer));
    Arc::new(Gateway::new(place.parse().unwrap(), &Access::default()))
}

/// Returns the address of a server that answers as the server of [`gateway`] does.
pub(super) fn server(mut answer: impl FnMut(&str, &Value) -> (u16, Value) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = BufReader::new(connection.unwrap());
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                if connection.read_until(b'\n', &mut head).unwrap() == 0 {
                    break;
                }
            }
            let head = String::from_utf8(head).unwrap().to_lowercase();
            let Some(path) = head.split(' ').nth(1).and_then(|path| path.strip_prefix("/v3/")) else {
                continue;
            };
            let len = head.split("content-length: ").nth(1).unwrap().lines().next().unwrap();
            let mut body = vec![0; len.parse().unwrap()];
            connection.read_exact(&mut body).unwrap();
            let (status, body) = answer(path, &serde_json::from_slice(&body).unwrap());
            let body = format!("{body}\n");
            let len = body.len();
            let head = format!("HTTP/1.1 {status} x\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n");
            // A client may have gone meanwhile.
            let _ = connection.get_mut().write_all(format!("{head}{body}").as_bytes());
        }
    });
    address
}

/// A server of which the system accepts connections, and that answers nothing.
pub(super) struct Silent(TcpListener);

impl Silent {
    pub(super) fn new() -> Silent {
        Silent(TcpListener::bind(("127.0.0.1", 0)).unwrap())
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    /// Returns how many connections were made.
    pub(super) fn asked(&self) -> usize {
        self.0.set_nonblocking(true).unwrap();
        std::iter::from_fn(|| self.0.accept().ok()).count()
    }
}
