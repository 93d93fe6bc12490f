//! Deposits over a channel whose replies come when the test wants.

use super::*;
use crate::segment::Core;
use crate::{Notify, Settings};
use farcall_core::stub::{Call, Channel, Sink};
use farcall_core::xdr::{Encode, Encoder};
use farcall_core::{Error, System};
use std::sync::atomic::AtomicU64;

/// The encoded arguments of a call, and its recipient.
type Received = (Vec<u8>, Arc<dyn Recipient>);

/// A channel that keeps the recipients of its calls, unless it declines them.
#[derive(Default)]
struct Kept {
    recipients: Mutex<Vec<Received>>,
    ordinary: Mutex<Vec<Vec<u8>>>,
    declines: bool,
}

struct Nowhere;

impl Arrivals for Nowhere {
    fn wait_for(&self, _: CallKey, done: &dyn Fn() -> bool) -> std::result::Result<(), CallFailed> {
        assert!(done(), "the test gives the reply before it waits");
        Ok(())
    }

    fn watch(&self, _: CallKey, _: Waker) {}
}

impl Channel for Kept {
    fn call(&self, _: Call<'_>, sink: Sink<'_>) {
        sink(Reply::Failed(CallFailed::new(Kind::Unreachable, Ran::No)));
    }

    fn start(&self, call: Call<'_>) -> Box<dyn PendingCall> {
        let mut arguments = Vec::new();
        (call.encode)(&mut Encoder::new(&mut arguments)).unwrap();
        lock(&self.ordinary).push(arguments);
        Box::new(CallFailed::new(Kind::Unreachable, Ran::No))
    }

    fn start_for(
        &self,
        _: &Procedure,
        arguments: &[u8],
        recipient: Arc<dyn Recipient>,
    ) -> Option<(Arc<dyn Arrivals>, CallKey)> {
        if self.declines {
            return None;
        }
        lock(&self.recipients).push((arguments.to_vec(), recipient));
        Some((Arc::new(Nowhere), CallKey { activity: 0, sequence: 0, token: 0 }))
    }
}

impl Kept {
    /// Gives the oldest call its reply, as the receiving thread does.
    fn reply(&self, reply: Arrived<'_>) {
        let (_, recipient) = lock(&self.recipients).remove(0);
        let mut wakers = Vec::new();
        recipient.arrived(reply, &mut |waker| wakers.push(waker));
        wake_all(wakers);
    }

    fn result(&self, bytes: &[u8]) {
        self.reply(Arrived::Result(&opaque(bytes)));
    }
}

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::new();
    bytes.encode(&mut Encoder::new(&mut encoded)).unwrap();
    encoded
}

fn setting(declines: bool) -> (Arc<Kept>, Arc<Deposits>, Arc<Core>) {
    let channel = Arc::new(Kept { declines, ..Kept::default() });
    let deposits = Deposits::new(Arc::new(System), (Binding::new(channel.clone()), false), 1);
    let words: Arc<[AtomicU64]> = crate::words::zeros(4096).into();
    let env: Arc<dyn Env> = Arc::new(System);
    (channel, deposits, Arc::new(Core::of_words(words, Settings::new(4096).notify(Notify::Always), 5, &env)))
}

fn target(core: &Arc<Core>, offset: u64, len: usize) -> DepositTarget {
    assert!(core.check_range(offset, len).is_ok());
    DepositTarget::new(core.clone(), core.generation().unwrap(), offset, true)
}

fn bytes(core: &Core, offset: u64, len: usize) -> Vec<u8> {
    let mut found = vec![0; len];
    core.read_at(offset, &mut found);
    found
}

#[test]
fn a_result_for_a_segment_that_was_revoked_meanwhile_is_dropped_and_said() {
    let (channel, deposits, core) = setting(false);
    let other = setting(false).2;
    let first = [0; 4].map(|at| deposits.start_read(at, 2000, target(&core, 8, 2000)));
    let revoked = deposits.start_read(0, 4, target(&core, 0, 4));
    let kept = deposits.start_read(4, 4, target(&other, 0, 4));
    (0..4).for_each(|_| channel.result(&[1; 2000]));
    first.into_iter().for_each(|first| first.wait().unwrap());
    assert_eq!(bytes(&core, 8, 2000), [1; 2000]);

    // Both reads are in one packet, and the target of one is exported again.
    core.set_generation(6);
    channel.result(b"lostkept");
    assert!(revoked.is_over());
    let Err(Error::CallFailed(why)) = revoked.wait() else { panic!("it was dropped") };
    assert_eq!((why.kind(), why.ran()), (Kind::Local, Ran::Yes));
    assert!(why.to_string().contains("revoked or exported again"), "{why}");
    assert_eq!(bytes(&core, 0, 4), [0; 4]);
    assert_eq!((kept.wait(), bytes(&other, 0, 4)), (Ok(()), b"kept".to_vec()));
    let heard = |core: &Core| std::iter::from_fn(|| core.notices.fetch()).count();
    assert_eq!((heard(&core), heard(&other)), (1, 1), "no notice of what was dropped");
}

/// The rule of Nagle, and its end: the last reads are sent although nobody waits for them.
#[test]
fn reads_under_way_share_packets_and_none_is_left() {
    let (channel, deposits, core) = setting(false);
    let reads: Vec<_> = (0..7).map(|i| deposits.start_read(i, 4, target(&core, i * 4, 4))).collect();
    let waiting = |channel: &Kept| lock(&channel.recipients).iter().map(|(bytes, _)| bytes.len()).collect();
    let lengths: Vec<usize> = waiting(&channel);
    assert_eq!(lengths, [20, 20, 20, 32], "1, 1, 1 and 2 reads, and 2 wait");
    (0..3).for_each(|_| channel.result(&[7; 4]));
    channel.result(&[7; 8]);
    assert_eq!(waiting(&channel), [32], "nothing was under way any more");
    channel.result(&[7; 8]);
    reads.into_iter().for_each(|read| read.wait().unwrap());
    assert_eq!(bytes(&core, 0, 28), [7; 28]);
}

#[test]
fn a_dropped_import_sends_what_waits() {
    let (channel, deposits, core) = setting(false);
    (0..7).for_each(|i| drop(deposits.start_read(i, 4, target(&core, i * 4, 4))));
    drop(deposits);
    assert_eq!(lock(&channel.recipients).len(), 5);
    (0..3).for_each(|_| channel.result(&[7; 4]));
    (0..2).for_each(|_| channel.result(&[7; 8]));
    assert_eq!(bytes(&core, 0, 28), [7; 28]);
}

#[test]
fn batches_are_used_again_and_keep_no_segment() {
    let (channel, deposits, core) = setting(false);
    for round in 0..1000 {
        let reads = [0, 1].map(|i| deposits.start_read(i, 1000, target(&core, 1000 * i, 1000)));
        (0..2).for_each(|_| channel.result(&[round as u8; 1000]));
        reads.into_iter().for_each(|read| read.wait().unwrap());
    }
    assert!(lock(&deposits.batches).sent.len() <= 2);
    assert_eq!(Arc::strong_count(&core), 1);
}

#[test]
fn a_call_that_fails_is_started_in_the_ordinary_way() {
    let (channel, deposits, core) = setting(false);
    let read = deposits.start_read(3, 4, target(&core, 0, 4));
    let arguments = lock(&channel.recipients)[0].0.clone();
    channel.reply(Arrived::Failed);
    assert!(matches!(read.wait(), Err(Error::CallFailed(why)) if why.kind() == Kind::Unreachable));
    assert_eq!(*lock(&channel.ordinary), [arguments]);
    // A swap may have been done, so it is never started twice.
    let swap = deposits.start_swap(8, (1, 2), target(&core, 0, 8));
    assert!(lock(&channel.recipients).is_empty());
    assert!(swap.wait().is_err());
    assert_eq!(deposits.under_way.load(Ordering::Relaxed), 0);
}

#[test]
fn refusals_and_wrong_results_are_told_to_each() {
    for declines in [false, true] {
        let (channel, deposits, core) = setting(declines);
        let reads = [0, 1, 2].map(|i| deposits.start_read(i, 4, target(&core, i * 4, 4)));
        if !declines {
            channel.result(&[1; 5]);
            let mut refused = Vec::new();
            Refused::Stale.encode(&mut Encoder::new(&mut refused)).unwrap();
            channel.reply(Arrived::Exception(&refused));
            channel.reply(Arrived::Result(&[9; 3]));
        }
        let outcomes = reads.map(|read| read.wait());
        let kind = |outcome: &Result<()>| match outcome {
            Err(Error::CallFailed(why)) => Some(why.kind()),
            _ => None,
        };
        match declines {
            true => assert!(outcomes.iter().all(|outcome| kind(outcome) == Some(Kind::Unreachable))),
            false => {
                assert_eq!(kind(&outcomes[0]), Some(Kind::BadResult));
                assert_eq!(outcomes[1], Err(Error::Declared(Refused::Stale)));
                assert_eq!(kind(&outcomes[2]), Some(Kind::BadResult));
            }
        }
        assert_eq!(bytes(&core, 0, 12), [0; 12]);
    }
}
