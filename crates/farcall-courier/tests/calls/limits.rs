//! The limits of a server: time, bytes and connections.

use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use farcall_courier::wire::message::Versions;
use farcall_courier::wire::packet::{Datastream, PacketWriter};

use crate::common::{Peer, Work, Worker, bytes, connect_from, own_address, serve, work};

/// A limit that passes soon. Nothing depends on how long it is.
const SOON: Duration = Duration::from_millis(30);

#[test]
fn an_idle_connection_ends() {
    let (_server, address) = serve(Arc::default(), |builder| builder.idle(SOON));
    let mut silent = Peer::connect(&address, Versions::THREE);
    assert_eq!(silent.receive(), None);
    // A client whose connection has ended meanwhile makes another. On a busy machine the server may end that
    // one, too, before the call arrives. Then the test calls again.
    let work = work(&address);
    let again = |number| (0..100).find_map(|_| work.again(number).ok());
    assert_eq!(again(7), Some(7));
    let mut third = Peer::connect(&address, Versions::THREE);
    assert_eq!(third.receive(), None, "by now the client's connection has ended, too");
    assert_eq!(again(8), Some(8));
}

#[test]
fn a_peer_that_sends_byte_after_byte_does_not_keep_its_connection() {
    let (_server, address) =
        serve(Arc::default(), |builder| builder.idle(Duration::from_secs(3600)).message_time(SOON));
    let mut packet = Vec::new();
    let mut writer = PacketWriter::default();
    writer.write(Datastream::Messages, &[0; 500], false, &mut packet);
    let mut peer = Peer::connect(&address, Versions::THREE);
    // It sends parts of a message until the connection has ended.
    let mut socket = peer.socket.try_clone().unwrap();
    let (ended, end) = channel();
    let sender = std::thread::spawn(move || {
        let mut bytes = packet.iter().cycle();
        while end.try_recv().is_err() && socket.write_all(&[*bytes.next().unwrap()]).is_ok() {
            std::thread::yield_now();
        }
    });
    assert_eq!(peer.receive(), None);
    let _ = ended.send(());
    sender.join().unwrap();
}

#[test]
fn discarded_bulk_data_takes_no_time_from_the_next_message() {
    let time = Duration::from_millis(500);
    let (_server, address) = serve(Arc::default(), |builder| builder.message_time(time));
    let mut peer = Peer::connect(&address, Versions::THREE);
    // The server receives packets of this in part.
    peer.send_bulk(&[7; 100_000], true);
    // The time of a message passes: that of another client's, which stays without its end.
    let mut other = Peer::connect(&address, Versions::THREE);
    other.send(&[0, 0], false);
    assert_eq!(other.receive(), None);
    let words = [&[0x9c, 0x40][..], &[7; 80_000]].concat();
    peer.call(0x100, (900, 3), 4, &words);
    assert_eq!(peer.receive(), Some([&bytes("0002 0100")[..], &words].concat()));
}

#[test]
fn a_client_that_takes_no_replies_does_not_keep_its_connection() {
    let (_server, address) = serve(Arc::default(), |builder| builder.message_time(SOON));
    let mut peer = Peer::connect(&address, Versions::THREE);
    let words = [&[0xff, 0xff][..], &[7; 131_070]].concat();
    // The server's replies fill both sockets, then the calls do.
    let mut sent = 0;
    let mut out = Vec::new();
    let mut writer = PacketWriter::default();
    let header = bytes("0000 0001 0000 0384 0003 0004");
    writer.write(Datastream::Messages, &[&header[..], &words].concat(), true, &mut out);
    while peer.socket.write_all(&out).is_ok() {
        sent += 1;
    }
    assert!(sent > 1, "some calls were sent");
    assert_eq!(work(&address).next(1), Ok(2), "others are served");
}

#[test]
fn a_message_that_is_too_long_ends_its_connection() {
    let (_server, address) = serve(Arc::default(), |builder| builder.messages(1000));
    let mut peer = Peer::connect(&address, Versions::THREE);
    peer.call(1, (900, 3), 4, &[&[0, 100][..], &[7; 200]].concat());
    assert_eq!(peer.receive().unwrap().len(), 4 + 202);
    peer.call(2, (900, 3), 4, &[&[1, 0xf0][..], &[7; 0x3e0]].concat());
    assert_eq!(peer.receive(), None);
}

#[test]
fn at_the_limit_a_new_connection_ends_at_once_while_the_others_work() {
    let (server, address) = serve(Arc::default(), |builder| builder.connections(3));
    let clients: Vec<_> = (0..3).map(|_| work(&address)).collect();
    clients.iter().for_each(|client| assert_eq!(client.next(1), Ok(2)));
    let mut fourth = Peer::connect(&address, Versions::THREE);
    assert_eq!(fourth.receive(), None, "no other has been silent for long");
    clients.iter().for_each(|client| assert_eq!(client.next(2), Ok(3)));
    assert_eq!(server.connections(), 3);
}

#[test]
fn one_host_has_four_fifths_of_the_connections() {
    let (server, address) = serve(Arc::default(), |builder| builder.connections(5));
    let clients: Vec<_> = (0..4).map(|_| work(&address)).collect();
    clients.iter().for_each(|client| assert_eq!(client.next(1), Ok(2)));
    let mut fifth = Peer::connect(&address, Versions::THREE);
    assert_eq!(fifth.receive(), None);
    assert_eq!(server.connections(), 4);
}

#[test]
fn half_messages_of_two_hosts_do_not_keep_a_third_one_out() {
    let (server, address) = serve(Arc::default(), |builder| builder.connections(8));
    let honest = work(&address);
    assert_eq!(honest.next(1), Ok(2));
    let mut half = Vec::new();
    PacketWriter::default().write(Datastream::Messages, &[0; 500], false, &mut half);
    let attackers = || [2, 3].map(|host| [(); 4].map(|()| connect_from(host, &address)));
    let mut all = attackers();
    for peer in all.as_flattened_mut() {
        // The server serves this one: it has said its versions. It may have been ended for the next.
        let _ = peer.socket.write_all(&half[..300]);
    }
    let newcomer = work(&address);
    for number in 0..20 {
        assert_eq!(newcomer.next(number), Ok(number + 1));
        assert_eq!(honest.next(number), Ok(number + 1), "who has few connections keeps them");
        let _again = attackers();
    }
    assert!(server.connections() <= 8);
}

#[test]
fn half_messages_of_many_addresses_do_not_keep_another_network_out() {
    let Some(own) = own_address() else { return };
    let (server, address) =
        serve(Arc::default(), |builder| builder.tcp("0.0.0.0:0".parse().unwrap()).connections(8));
    let port = server.addresses()[1].port();
    let address = address.rsplit_once(':').map(|(host, _)| format!("{host}:{port}")).unwrap();
    let mut half = Vec::new();
    PacketWriter::default().write(Datastream::Messages, &[0; 500], false, &mut half);
    let mut attackers: Vec<_> = (2..10).map(|host| connect_from(host, &address)).collect();
    for peer in &mut attackers {
        let _ = peer.socket.write_all(&half[..300]);
    }
    let newcomer = work(&format!("tcp://{own}:{port}"));
    for number in 0..20 {
        assert_eq!(newcomer.next(number), Ok(number + 1));
        attackers.push(connect_from(2 + (number % 200) as u8, &address));
    }
}

#[test]
fn calls_of_many_addresses_that_take_long_leave_connections_to_another_network() {
    let Some(own) = own_address() else { return };
    let worker = Arc::new(Worker::default());
    let (server, address) =
        serve(worker.clone(), |builder| builder.tcp("0.0.0.0:0".parse().unwrap()).connections(8));
    let port = server.addresses()[1].port();
    let attackers: Vec<_> = (2..12)
        .map(|host| {
            let mut peer = connect_from(host, &address);
            peer.call(1, (900, 3), 7, &[]);
            peer
        })
        .collect();
    worker.gate.wait_for(7);
    let newcomer = work(&format!("tcp://{own}:{port}"));
    assert_eq!(newcomer.next(1), Ok(2));
    (0..7).for_each(|_| worker.gate.open());
    drop(attackers);
}

#[test]
fn replies_that_nobody_takes_do_not_keep_others_out() {
    let hour = Duration::from_secs(3600);
    let (_server, address) = serve(Arc::default(), |builder| builder.connections(8).message_time(hour));
    let words = [&[0xff, 0xff][..], &[7; 131_070]].concat();
    let (mut call, header) = (Vec::new(), bytes("0000 0001 0000 0384 0003 0004"));
    PacketWriter::default().write(Datastream::Messages, &[&header[..], &words].concat(), true, &mut call);
    let mut attackers = [2, 3].map(|host| [(); 4].map(|()| connect_from(host, &address)));
    // The server's replies fill both sockets, then the calls do.
    let (mut sent, mut quiet) = ([0; 8], 0);
    while quiet < 1_000 {
        quiet += 1;
        for (peer, sent) in attackers.as_flattened_mut().iter_mut().zip(&mut sent) {
            peer.socket.set_nonblocking(true).unwrap();
            while let Ok(more) = peer.socket.write(&call[*sent..]) {
                (*sent, quiet) = ((*sent + more) % call.len(), 0);
            }
        }
        std::thread::yield_now();
    }
    // While the server executes a call of each, it ends none.
    let answer = (0..1_000).find_map(|_| {
        std::thread::yield_now();
        work(&address).next(1).ok()
    });
    assert_eq!(answer, Some(2));
}
