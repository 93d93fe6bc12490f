//! Carries calls by writes into memory, as the scheme Hybrid-1 does (Thekkath et al. 1994, section 5.1). The
//! request is one write with notice into the server's memory. The answer is one write into the caller's
//! memory, where the caller waits for a word to change.
//!
//! The stubs of any interface work over it. The server serves the interfaces that clerks need ([`Object`]).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use farcall::memory::Segment;
use farcall::stub::{Call, Channel, Dispatched, PendingCall, Reply, Sink, bad_arguments};
use farcall::xdr::{self, Decoder, Encoder};
use farcall::{Bytes, CallFailed, Kind, Ran};

use crate::areas::COUNTER;
use crate::imported::Imported;
use crate::letter::Mailbox;

/// The object whose procedure a call calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    /// The directory.
    Files,
    /// The procedures that a directory does not offer.
    More,
    /// The directory; results are kept in the server's memory.
    FilesAndKeep,
    /// The procedures that a directory does not offer; results are kept in the server's memory.
    MoreAndKeep,
}

/// A clerk's two mailboxes, which carry one call at a time.
pub(crate) struct Post {
    pub(crate) server: Arc<Imported>,
    /// The mailbox for requests, in the server's memory.
    pub(crate) requests: Mailbox,
    pub(crate) answers: Segment,
    /// The number of the last letter.
    pub(crate) last: Mutex<u64>,
    /// How long to wait for an answer before the clerk checks that the server is there, and repeats the
    /// letter.
    pub(crate) patience: Duration,
}

/// Carries the calls of one object by letters.
pub(crate) struct Hybrid {
    pub(crate) post: Arc<Post>,
    pub(crate) object: Object,
}

/// The mailbox for answers in a clerk's segment. It has room for the longest page of a directory.
pub(crate) const ANSWERS: Mailbox = Mailbox::new(0, 512 << 10);

/// The most times that a letter is sent to a server that is there.
const MAX_SENDS: usize = 3000;

impl Post {
    /// Sends a letter and waits for the answer to it.
    fn exchange(&self, letter: &[u8]) -> farcall::Result<Vec<u8>> {
        if letter.len() > self.requests.most() {
            let why = format!("{} bytes; a letter has at most {}", letter.len(), self.requests.most());
            return Err(CallFailed::new(Kind::TooLarge, Ran::No).because(why).into());
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = last.wrapping_add(1);
        for _ in 0..MAX_SENDS {
            self.server.with(|memory| self.requests.post(memory, *last, letter))?;
            if self.has_come(*last)? {
                return Ok(ANSWERS.letter(&self.answers).map_err(own)?);
            }
            // The server may have missed the letter. It recognises a repeated letter by its number.
            self.server.with(|memory| memory.flush().and_then(|()| memory.load(COUNTER)))?;
        }
        // The server considers this clerk dead, and has given its mailbox to another clerk.
        Err(CallFailed::new(Kind::Forgotten, Ran::Maybe)
            .because("the server is there but does not answer")
            .into())
    }

    /// Waits for the answer with this number, for as long as the patience lasts. Returns whether the answer
    /// has come.
    fn has_come(&self, number: u64) -> farcall::Result<bool> {
        let begin = Instant::now();
        for looked in 0_u64.. {
            if ANSWERS.number(&self.answers).map_err(own)? == number {
                return Ok(true);
            }
            match looked {
                0..200 => std::hint::spin_loop(),
                _ => std::thread::yield_now(),
            }
            if looked % 64 == 63 && begin.elapsed() >= self.patience {
                break;
            }
        }
        Ok(false)
    }
}

impl Channel for Hybrid {
    fn call(&self, call: Call<'_>, sink: Sink<'_>) {
        let mut letter = Vec::new();
        if let Err(why) = write_request(&mut letter, self.object, &call) {
            return sink(Reply::Failed(bad_arguments(why)));
        }
        match self.post.exchange(&letter) {
            Ok(answer) => read_answer(&answer.into(), sink),
            Err(why) => sink(Reply::Failed(why.into())),
        }
    }

    fn start(&self, _: Call<'_>) -> Box<dyn PendingCall> {
        Box::new(CallFailed::new(Kind::Local, Ran::No).because("calls over Hybrid-1 block"))
    }
}

/// Executes the call in a letter. Returns the answer.
pub(crate) fn answer(
    letter: Vec<u8>,
    dispatch: impl FnOnce(Object, u32, &mut Decoder<'_>, &mut Encoder<'_>) -> Dispatched,
) -> Vec<u8> {
    let letter = Bytes::from(letter);
    let mut request = Decoder::with_packet(&letter);
    let mut answer = vec![0; 4];
    let dispatched = match read_request(&mut request) {
        Ok((object, procedure)) => {
            farcall::stub::catch(|| dispatch(object, procedure, &mut request, &mut Encoder::new(&mut answer)))
        }
        Err(why) => Dispatched::BadArguments(why),
    };
    let too_large = || CallFailed::new(Kind::TooLarge, Ran::Yes);
    let mut outcome = if matches!(dispatched, Dispatched::Exception) { EXCEPTION } else { RESULT };
    if let Some(why) = dispatched.failure().or_else(|| (answer.len() > ANSWERS.most()).then(too_large)) {
        outcome = FAILED;
        answer.truncate(4);
        write_failure(&mut answer, &why);
    }
    answer[..4].copy_from_slice(&outcome.to_be_bytes());
    answer
}

const RESULT: u32 = 0;
const EXCEPTION: u32 = 1;
const FAILED: u32 = 2;

fn write_request(letter: &mut Vec<u8>, object: Object, call: &Call<'_>) -> Result<(), xdr::Error> {
    let mut e = Encoder::new(letter);
    e.u32(object as u32)?;
    e.u32(call.procedure.number)?;
    (call.encode)(&mut e)
}

fn read_request(d: &mut Decoder<'_>) -> Result<(Object, u32), xdr::Error> {
    let objects = [Object::Files, Object::More, Object::FilesAndKeep, Object::MoreAndKeep];
    let number = d.u32()? as usize;
    let unknown = || d.error(xdr::ErrorKind::Invalid("an object that is not served".into()));
    Ok((*objects.get(number).ok_or_else(unknown)?, d.u32()?))
}

fn write_failure(answer: &mut Vec<u8>, why: &CallFailed) {
    let text: String = why.to_string().chars().take(200).collect();
    let mut e = Encoder::new(answer);
    let written = e
        .u32(why.kind().code().into())
        .and_then(|()| e.bool(why.ran() == Ran::No))
        .and_then(|()| e.bytes(text.as_bytes()));
    debug_assert!(written.is_ok());
}

fn read_answer(answer: &Bytes, sink: Sink<'_>) {
    let mut d = Decoder::with_packet(answer);
    match d.u32() {
        Ok(RESULT) => sink(Reply::Result(d)),
        Ok(EXCEPTION) => sink(Reply::Exception(d)),
        _ => sink(Reply::Failed(
            read_failure(&mut d)
                .unwrap_or_else(|why| CallFailed::new(Kind::BadResult, Ran::Maybe).caused_by(why)),
        )),
    }
}

fn read_failure(d: &mut Decoder<'_>) -> Result<CallFailed, xdr::Error> {
    let kind = Kind::from_code(u16::try_from(d.u32()?).unwrap_or(0));
    let ran = if d.bool()? { Ran::No } else { Ran::Maybe };
    Ok(CallFailed::new(kind, ran).because(d.string()?.to_owned()))
}

/// Converts the error of an access to the clerk's own segment.
pub(crate) fn own(why: farcall::Error<farcall::memory::Refused>) -> CallFailed {
    CallFailed::new(Kind::Local, Ran::Maybe).because(why.to_string())
}
