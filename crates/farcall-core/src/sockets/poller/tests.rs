//! Tests both pollers: what they report, to how many threads, and in which order.

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

use crate::env::{Interest, Poller as _, Source};

const READ: Interest = Interest::READ;
const WRITE: Interest = Interest::WRITE;

fn of(stream: &UnixStream) -> Source<'_> {
    Source::Descriptor(stream.as_fd())
}

macro_rules! tests {
    ($asks:ident) => {
        mod $asks {
            use super::super::$asks::SystemPoller;
            use super::*;

            #[test]
            fn a_socket_is_told_of_once_for_each_time_that_it_is_armed() {
                let (ready, (ours, mut theirs)) = (SystemPoller::new().unwrap(), UnixStream::pair().unwrap());
                let (other, _other) = UnixStream::pair().unwrap();
                ready.add(of(&ours), 7).unwrap();
                ready.add(of(&other), 8).unwrap();
                theirs.write_all(b"x").unwrap();
                // Socket 7 is not armed yet.
                ready.arm(of(&other), 8, WRITE).unwrap();
                assert_eq!(ready.wait(), Some((8, WRITE)));
                ready.arm(of(&ours), 7, READ).unwrap();
                assert_eq!(ready.wait(), Some((7, READ)));
                // Socket 7 is still readable, but is reported again only when it is armed again.
                ready.arm(of(&other), 8, WRITE).unwrap();
                assert_eq!(ready.wait(), Some((8, WRITE)));
                ready.arm(of(&ours), 7, Interest { read: true, write: true }).unwrap();
                assert_eq!(ready.wait(), Some((7, Interest { read: true, write: true })));
                (&ours).read_exact(&mut [0]).unwrap();
                drop(theirs);
                ready.arm(of(&ours), 7, READ).unwrap();
                assert!(ready.wait().is_some_and(|(key, interest)| key == 7 && interest.read));
                ready.remove(of(&ours), 7);
                assert!(ready.arm(of(&ours), 7, READ).is_err());
            }

            #[test]
            fn a_socket_that_is_armed_while_somebody_waits_is_told_of() {
                let (ready, (ours, mut theirs)) = (SystemPoller::new().unwrap(), UnixStream::pair().unwrap());
                ready.add(of(&ours), 7).unwrap();
                std::thread::scope(|scope| {
                    for _ in 0..100 {
                        let waits = scope.spawn(|| {
                            loop {
                                if let Some(told) = ready.wait() {
                                    return told;
                                }
                            }
                        });
                        ready.arm(of(&ours), 7, READ).unwrap();
                        theirs.write_all(b"x").unwrap();
                        assert_eq!(waits.join().unwrap(), (7, READ));
                        (&ours).read_exact(&mut [0]).unwrap();
                    }
                });
            }

            #[test]
            fn who_is_always_ready_does_not_keep_others_from_their_turn() {
                let ready = SystemPoller::new().unwrap();
                let pairs = [(); 5].map(|()| UnixStream::pair().unwrap());
                for (key, (ours, _)) in pairs.iter().enumerate() {
                    ready.add(of(ours), key as u64).unwrap();
                    ready.arm(of(ours), key as u64, WRITE).unwrap();
                }
                let mut told = [0; 5];
                for _ in 0..50 {
                    let (key, _) = ready.wait().unwrap();
                    told[key as usize] += 1;
                    ready.arm(of(&pairs[key as usize].0), key, WRITE).unwrap();
                }
                assert_eq!(told, [10; 5]);
            }

            #[test]
            fn the_bell_wakes_all_who_wait_now_or_later() {
                let ready = SystemPoller::new().unwrap();
                std::thread::scope(|scope| {
                    let waits = [(); 4].map(|()| scope.spawn(|| ready.wait()));
                    ready.wake();
                    waits.into_iter().for_each(|waits| assert_eq!(waits.join().unwrap(), None));
                });
                assert_eq!(ready.wait(), None);
            }
        }
    };
}

#[cfg(target_os = "linux")]
tests!(epoll);
tests!(poll);
