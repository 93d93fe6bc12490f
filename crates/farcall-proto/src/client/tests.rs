//! Tests of what a conversation keeps of calls: their arguments, and its buffers.

use super::*;

#[test]
fn arguments_are_counted_until_their_calls_have_ended() {
    const LEN: usize = MAX_UNCOUNTED_ARGUMENT_BYTES;
    let now = Time::from_nanos(1);
    let config = ClientConfig {
        arguments: Arc::new(farcall_base::ArgumentBudget::new(12 * LEN)),
        ..Default::default()
    };
    let mut conversation = Conversation::new(config.clone(), 7);
    let call = Call { export: 1, procedure: 1, deadline: None, trace: None, token: 0 };
    let calls = [4, LEN, LEN + 4, 2 * LEN]
        .map(|len| conversation.start(|| now, &call, &mut vec![0; len]).expect("room for it"));
    let shared = SharedArguments::new(vec![0; 2 * LEN]);
    let fifth = conversation.start_shared(|| now, &call, &shared).expect("room for it");
    assert_eq!((conversation.argument_bytes(), config.arguments.used()), (5 * LEN + 4, 5 * LEN + 4));
    let mut other = Conversation::new(config.clone(), 8);
    other.start_shared(|| now, &call, &shared).expect("room for it");
    assert_eq!((other.argument_bytes(), config.arguments.used()), (2 * LEN, 5 * LEN + 4));
    assert!(conversation.has_room(LEN, None) && !conversation.has_room(LEN + 4, None));
    assert!(conversation.has_room(2 * LEN - 8, Some(&shared)), "it is counted already");
    assert!(other.has_room(2 * LEN, None));
    conversation.cancel(now, calls[2]);
    conversation.handle_timeout(now, &mut |_| {});
    assert_eq!((conversation.argument_bytes(), conversation.stats().outstanding), (4 * LEN, 4));
    let all = calls.into_iter().chain([fifth]);
    all.for_each(|call| conversation.cancel(now, call));
    conversation.handle_timeout(now, &mut |event| drop(event));
    assert_eq!((conversation.argument_bytes(), conversation.stats().outstanding), (0, 0));
    assert!(conversation.has_room(1 << 30, None), "the only call may have arguments of any length");
    drop(shared);
    assert_eq!(config.arguments.used(), 2 * LEN, "the other conversation shares them");
    other.start(|| now, &call, &mut vec![0; 4 * LEN]).expect("room for it");
    drop(other);
    assert_eq!(config.arguments.used(), 0, "a conversation that ends gives its share back");
}

#[test]
fn a_call_that_is_not_started_returns_its_arguments_and_the_reason() {
    let config = ClientConfig { max_outstanding: 1, ..ClientConfig::default() };
    let mut conversation = Conversation::new(config, 7);
    let call = Call { export: 1, procedure: 1, deadline: None, trace: None, token: 0 };
    let mut start = |len: usize| {
        let mut args = vec![0; len];
        let started = conversation.start(|| Time::from_nanos(1), &call, &mut args);
        started.map_err(|failure| (failure.kind, failure.ran, args.len() == len)).map(|_| ())
    };
    assert_eq!(start(3), Err((Kind::TooLarge, Ran::No, true)));
    assert_eq!([8, 8].map(&mut start), [Ok(()), Err((Kind::Overloaded, Ran::No, true))]);
    assert_eq!(conversation.stats().calls, 1);
    let longest = u32::MAX as usize - 3;
    assert_eq!([0, 2, longest, longest + 4].map(is_encodable), [true, false, true, false]);
}

/// Starts and cancels `calls` calls with arguments of `len` bytes. Returns the capacity of the argument
/// buffer that each activity keeps.
fn kept(calls: usize, len: usize) -> Vec<usize> {
    let now = Time::from_nanos(1);
    let mut conversation = Conversation::new(ClientConfig::default(), 7);
    let call = Call { export: 1, procedure: 1, deadline: None, trace: None, token: 0 };
    for _ in 0..calls {
        let id = conversation.start(|| now, &call, &mut vec![0; len]).expect("room for it");
        conversation.cancel(now, id);
    }
    let mut ended = 0;
    conversation.handle_timeout(now, &mut |_| ended += 1);
    assert_eq!(ended, calls);
    assert!(conversation.buffer().is_empty());
    (0..calls).map(|activity| conversation.slots.at(activity as u32).args.capacity()).collect()
}

#[test]
fn the_more_calls_there_were_the_less_room_for_arguments_is_kept() {
    const LEN: usize = 8 << 10;
    let long = kept(2000, LEN);
    assert!(long[..128].iter().all(|room| *room >= LEN), "each keeps its buffer for the next call");
    assert!(long.iter().sum::<usize>() <= ALL_SPARE_BYTES, "{}", long.iter().sum::<usize>());
    let short = kept(5000, SHORT_BUFFER);
    assert!(short[..4999].iter().all(|room| *room == SHORT_BUFFER), "short buffers are kept");
    assert_eq!([SPARE_BYTES, SPARE_BYTES + 4].map(|len| kept(2, len)[0]), [SPARE_BYTES, 0]);
}
