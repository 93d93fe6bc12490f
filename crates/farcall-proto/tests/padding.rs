//! Lengths of sealed datagrams that are padded.
#![cfg(feature = "secure")]

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::trust::{client, server};
use common::*;
use farcall_proto::secure::Padding;
use farcall_proto::{ClientConfig, ServerConfig};

/// The number of the scheme *secure*.
const SECURE: u8 = 3;

#[test]
fn lengths_tell_nothing_of_what_is_sent() {
    for (padding, short) in [(Padding::Block, &[64, 128, 192, 256, 320][..]), (Padding::Datagram, &[1_200])] {
        let client = ClientConfig { padding, ..client() };
        let mut pair = Pair::acquainted_with(client, ServerConfig { padding, ..server() });
        let mut token = 0;
        // The last arguments and results are sent in fragments.
        for len in (0..200).step_by(4).chain([1_000, 1_200, 5_000]) {
            token += 1;
            pair.start(token, &vec![7; len]);
            let mut lengths = [BTreeSet::new(), BTreeSet::new()];
            pair.carry(token as usize, Duration::from_secs(1), |_, datagram, to| {
                if datagram[1] == SECURE {
                    lengths[usize::from(to == To::Client)].insert(datagram.len());
                }
                true
            });
            assert_eq!(pair.told.last(), Some(&(token, Told::Result(vec![7; len]))));
            let right = |sent: &usize| match len {
                0..200 => short.contains(sent),
                _ => padding.of(*sent) == *sent || *sent >= 1_200,
            };
            assert!(
                lengths.iter().all(|sent| !sent.is_empty() && sent.iter().all(right)),
                "{len}: {lengths:?}"
            );
        }
    }
}
