//! A forwarder between one client and one server, which a test can cut.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Sends a datagram that came from an address on.
type PassOn = Box<dyn Fn(&[u8], SocketAddr) + Send>;

/// Forwards datagrams between one client and one server until it is cut. Returns the forwarder's address.
pub fn cut_by(server: SocketAddr, cut: Arc<AtomicBool>) -> SocketAddr {
    let bind = || Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
    let (front, back) = (bind(), bind());
    let (address, client) = (front.local_addr().unwrap(), Arc::new(Mutex::new(None)));
    let pass = move |from: Arc<UdpSocket>, send: PassOn| {
        let cut = cut.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 65536];
            while let Ok((len, sender)) = from.recv_from(&mut buffer) {
                if !cut.load(Ordering::SeqCst) {
                    send(&buffer[..len], sender);
                }
            }
        });
    };
    let (heard, out) = (client.clone(), back.clone());
    pass(
        front.clone(),
        Box::new(move |bytes, sender| {
            *heard.lock().unwrap() = Some(sender);
            let _ = out.send_to(bytes, server);
        }),
    );
    pass(
        back,
        Box::new(move |bytes, _| {
            let client = client.lock().unwrap().expect("the client sends first");
            let _ = front.send_to(bytes, client);
        }),
    );
    address
}
