//! Calls between our client and our server.

use std::sync::Arc;

use farcall::{Kind, Ran};
use farcall_courier::cooper::{self, Server};

use crate::common::{Newer, PasswordLookup, Users, lookup, server, server_with};

#[test]
fn calls_return_over_tcp_and_over_a_unix_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("courier");
    let (server, address, _) = server_with(|builder| builder.unix(&path));
    let unix = cooper::import::<dyn PasswordLookup>(&format!("unix:{}", path.display())).unwrap();
    for lookup in [lookup(address), unix] {
        assert_eq!(lookup.lookup_user("daemon").unwrap().name, "daemon");
        assert_eq!(lookup.words(65_534).unwrap().len(), 65_534);
        assert_eq!(lookup.sum(vec![1; 65_534]).unwrap(), 65_534);
        assert_eq!(lookup.start().again(3).wait().unwrap(), 3);
    }
    assert_eq!(server.troubles(), 0);
    drop(server);
    assert!(!path.exists());
}

#[test]
fn calls_without_results_are_executed_in_order() {
    let (_server, address, _) = server();
    let lookup = lookup(address);
    let numbers: Vec<u16> = (0..2_000).collect();
    for number in &numbers {
        match number % 3 {
            // Started calls have their turns among the blocking ones.
            0 => lookup.start().note(*number).wait().unwrap(),
            _ => lookup.note(*number).unwrap(),
        }
    }
    assert_eq!(lookup.noted().unwrap(), numbers);
}

#[test]
fn many_threads_share_a_stub() {
    let (_server, address, _) = server();
    let lookup = lookup(address);
    std::thread::scope(|scope| {
        for thread in 0..8u16 {
            let lookup = &lookup;
            scope.spawn(move || {
                for call in 0..100 {
                    let number = thread * 1000 + call;
                    assert_eq!(lookup.again(number).unwrap(), number);
                }
            });
        }
    });
}

#[test]
fn a_server_has_several_programs_by_name() {
    let server = Server::builder()
        .program::<dyn PasswordLookup>(Arc::new(Users::default()))
        .program_as("Second", Arc::new(Users::default()) as Arc<dyn PasswordLookup>)
        .tcp("127.0.0.1:0".parse().unwrap())
        .start()
        .unwrap();
    let address = format!("tcp://{}", server.addresses()[0]);
    let first = cooper::import::<dyn PasswordLookup>(&address).unwrap();
    let second = cooper::Builder::default().program("Second").import::<dyn PasswordLookup>(&address).unwrap();
    first.note(1).unwrap();
    second.note(2).unwrap();
    assert_eq!((first.noted().unwrap(), second.noted().unwrap()), (vec![1], vec![2]));
}

#[test]
fn a_refusal_is_the_error() {
    let (_server, address, troubles) = server();
    let why = cooper::import::<dyn Newer>(&format!("tcp://{address}")).unwrap_err();
    assert_eq!((why.kind(), why.ran()), (Kind::NotExported, Ran::No));
    assert!(why.to_string().contains("Unknown Courier program."), "{why}");
    assert_eq!(*troubles.lock().unwrap(), ["no program has the name \"Newer\""]);
}

#[test]
fn an_unknown_procedure_ends_the_connection() {
    let (_server, address, troubles) = server();
    let builder = cooper::Builder::default().program("PasswordLookup");
    let newer = builder.import::<dyn Newer>(&format!("tcp://{address}")).unwrap();
    let why = newer.missing().unwrap_err();
    let why = why.call_failed().unwrap();
    assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::Maybe));
    assert!(why.to_string().contains("missing of Newer at tcp://"), "{why}");
    let reported = || troubles.lock().unwrap().last().unwrap().clone();
    assert_eq!(reported(), "PasswordLookup has no procedure 99; the connection was ended");
    // The next call makes a new connection.
    assert_eq!(newer.again(4).unwrap(), 4);
    // Nothing is known of a call without a result.
    newer.missing_silently().unwrap();
}

#[test]
fn a_procedure_that_fails_ends_the_connection_if_its_caller_waits() {
    let (server, address, troubles) = server();
    let lookup = lookup(address);
    lookup.panic_silently().unwrap();
    assert_eq!(lookup.again(1).unwrap(), 1);
    assert_eq!(server.troubles(), 1);
    let why = lookup.panic().unwrap_err();
    assert_eq!(why.ran(), Ran::Maybe);
    // A result of more than 65,535 words.
    assert_eq!(lookup.words(65_535).unwrap_err().ran(), Ran::Maybe);
    assert_eq!(lookup.again(2).unwrap(), 2);
    let troubles = troubles.lock().unwrap();
    assert_eq!(troubles.len(), 3, "{troubles:?}");
    assert!(troubles[1].contains("as it was told"), "{troubles:?}");
}

#[test]
fn arguments_that_are_too_long_are_not_sent() {
    let (server, address, _) = server();
    let lookup = lookup(address);
    let why = lookup.sum(vec![1; 65_535]).unwrap_err();
    let why = why.call_failed().unwrap();
    assert_eq!((why.kind(), why.ran()), (Kind::TooLarge, Ran::No));
    assert_eq!(server.calls(), 0);
}

#[test]
fn a_call_with_bulk_data_is_not_made() {
    let (server, address, troubles) = server();
    let client = lookup(address);
    let sent = farcall_courier::bulk::send(&b"data"[..], || client.note(1));
    let text = format!("{sent:?}");
    assert!(text.contains("Cooper's dialect has no bulk data"), "{text}");
    client.note(2).unwrap();
    assert_eq!(client.noted().unwrap(), [2]);
    assert!(troubles.lock().unwrap().is_empty() && server.connections() == 1);
}
