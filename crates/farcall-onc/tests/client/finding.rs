//! Tests of how a client finds a program's server by a host's port mapper.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use crate::common::{Echo, EchoClient};
use farcall::{Kind, Ran};
use farcall_onc::rpcbind::Mapper;
use farcall_onc::{Client, Server};

struct Here;

impl Echo for Here {
    fn null(&self) -> farcall::Result<()> {
        Ok(())
    }

    fn echo(&self, data: &[u8]) -> farcall::Result<Vec<u8>> {
        Ok(data.to_vec())
    }

    fn again(&self, number: u32) -> farcall::Result<u32> {
        Ok(number)
    }

    fn next(&self, number: u32) -> farcall::Result<u32> {
        Ok(number + 1)
    }
}

const ANY: &str = "127.0.0.1:0";

/// Starts a port mapper. Returns it with its port.
fn mapper() -> (Server, Mapper, u16) {
    let mapper = Mapper::default();
    let server = Server::builder().mapper(&mapper).address(ANY.parse().unwrap()).start().unwrap();
    let port = server.addresses()[0].1.port();
    (server, mapper, port)
}

/// Returns an address where nothing receives.
fn nowhere() -> SocketAddr {
    UdpSocket::bind(ANY).unwrap().local_addr().unwrap()
}

fn find(port: u16) -> Result<EchoClient, farcall::CallFailed> {
    let builder = Client::builder().mapper_port(port);
    Ok(builder.find("127.0.0.1", 0x2000_0077, 3)?.bind::<dyn Echo>())
}

#[test]
fn a_host_whose_server_has_gone_leaves_nothing_open() {
    let (_server, mapper, port) = mapper();
    for network in [&[true, false][..], &[true], &[false]] {
        let gone = nowhere();
        network.iter().for_each(|stream| assert!(mapper.register(0x2000_0077, 3, *stream, gone)));
        let Err(why) = find(port) else { panic!("nobody is there") };
        assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::No), "{network:?}: {why}");
        network.iter().for_each(|stream| assert!(mapper.unregister(0x2000_0077, 3, *stream, gone)));
    }
    let Err(why) = find(port) else { panic!("nothing is registered") };
    assert_eq!((why.kind(), why.ran()), (Kind::NotExported, Ran::No), "{why}");
}

#[test]
fn a_host_whose_server_is_there_over_udp_alone_is_called_there() {
    let (_server, mapper, port) = mapper();
    assert!(mapper.register(0x2000_0077, 3, true, nowhere()));
    let server = Server::builder().program::<dyn Echo>(Arc::new(Here)).address(ANY.parse().unwrap());
    let server = server.start().unwrap();
    assert!(mapper.register(0x2000_0077, 3, false, server.addresses()[0].1));
    assert_eq!(find(port).unwrap().next(1), Ok(2));
}
