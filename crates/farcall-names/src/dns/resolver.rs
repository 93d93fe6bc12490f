//! Asks DNS servers: by UDP, and by TCP if an answer is too long for that.

use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::message::{Answer, Message, Question};
use super::place::Servers;

/// How often each server is asked. It gets the last of these questions without extensions.
const ROUNDS: usize = 2;

/// How many questions are asked at the same time. Each has a socket of its own.
const MAX_CONCURRENT: usize = 32;

/// The shortest wait for an answer. A timeout of zero would be refused.
const MIN_WAIT: Duration = Duration::from_millis(1);

/// Why a server was given up.
const TOO_LATE: &str = "it does not answer in time";

/// How long an answer is still awaited after the network has reported that the server cannot be reached.
/// Anybody can forge such a report, and then the answer comes nevertheless.
const WAIT_AFTER_REPORT: Duration = Duration::from_millis(250);

/// The longest datagram that is received.
const MAX_DATAGRAM: usize = 4096;

/// Servers that are asked in turn.
pub(super) struct Resolver {
    servers: Servers,
    /// The number of the server that has answered last.
    current: AtomicUsize,
}

/// A question that has been sent by UDP.
struct Sent<'a> {
    question: &'a Question,
    id: u16,
    socket: UdpSocket,
}

/// One attempt: the server, and until when it may answer.
#[derive(Clone, Copy)]
struct Attempt {
    server: SocketAddr,
    extended: bool,
    end: Instant,
}

impl Resolver {
    pub(super) fn new(servers: Servers) -> Resolver {
        Resolver { servers, current: AtomicUsize::new(0) }
    }

    /// Asks questions, and returns the answers in the same order.
    ///
    /// # Errors
    /// A text for each question that no server has answered by the deadline.
    pub(super) fn ask(&self, questions: &[Question], deadline: Instant) -> Vec<Result<Answer, String>> {
        let servers = self.servers.addresses();
        questions.chunks(MAX_CONCURRENT).flat_map(|some| self.ask_some(&servers, some, deadline)).collect()
    }

    fn ask_some(
        &self,
        servers: &[SocketAddr],
        questions: &[Question],
        deadline: Instant,
    ) -> Vec<Result<Answer, String>> {
        let silent = || Err("no server answers in time".to_owned());
        let mut answers: Vec<Result<Answer, String>> = questions.iter().map(|_| silent()).collect();
        let first = self.current.load(Ordering::Relaxed);
        let attempts = ROUNDS * servers.len();
        for number in 0..attempts {
            let which = (first + number) % servers.len();
            let now = Instant::now();
            let left = deadline.saturating_duration_since(now);
            if left.is_zero() {
                break;
            }
            let share = left / u32::try_from(attempts - number).unwrap_or(1);
            let extended = number + servers.len() < attempts;
            let attempt = Attempt { server: servers[which], extended, end: now + share };
            let open: Vec<usize> = (0..questions.len()).filter(|which| answers[*which].is_err()).collect();
            let sent: Vec<_> = open.iter().map(|which| attempt.send(&questions[*which])).collect();
            for (place, sent) in open.iter().zip(sent) {
                let answer = sent.and_then(|sent| attempt.receive(&sent));
                if answer.is_ok() {
                    self.current.store(which, Ordering::Relaxed);
                }
                answers[*place] = answer.map_err(|why| format!("{}: {why}", attempt.server));
            }
            if answers.iter().all(Result::is_ok) {
                break;
            }
        }
        answers
    }
}

impl Attempt {
    /// Sends a question from a port that no other question has.
    fn send<'a>(&self, question: &'a Question) -> Result<Sent<'a>, String> {
        let any: IpAddr = match self.server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let id = random();
        let send = || {
            let socket = UdpSocket::bind((any, 0))?;
            // A connected socket receives nothing from other addresses, and learns if the port is closed.
            socket.connect(self.server)?;
            socket.send(&question.encode(id, self.extended))?;
            Ok(socket)
        };
        let socket = send().map_err(|why: io::Error| why.to_string())?;
        Ok(Sent { question, id, socket })
    }

    /// Waits for the answer. Whatever else comes is passed over.
    fn receive(&self, sent: &Sent<'_>) -> Result<Answer, String> {
        let mut buffer = [0; MAX_DATAGRAM];
        let (mut end, mut reported) = (self.end, None);
        loop {
            let now = Instant::now();
            let left = end.saturating_duration_since(now);
            // The wait for the answer to another question may have taken all the time, and this one be there.
            sent.socket.set_read_timeout(Some(left.max(MIN_WAIT))).map_err(|why| why.to_string())?;
            let received = sent.socket.recv(&mut buffer);
            let len = match received {
                Ok(len) => len,
                Err(_) if left.is_zero() => return Err(reported.unwrap_or_else(|| TOO_LATE.to_owned())),
                Err(why)
                    if matches!(
                        why.kind(),
                        ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut
                    ) =>
                {
                    continue;
                }
                Err(why) => {
                    if reported.is_none() {
                        (end, reported) = (end.min(now + WAIT_AFTER_REPORT), Some(why.to_string()));
                    }
                    continue;
                }
            };
            match sent.question.parse_answer(sent.id, &buffer[..len]) {
                Message::Answer(answer) => return Ok(answer),
                Message::Truncated => return self.ask_by_tcp(sent.question),
                Message::Failed(why) => return Err(why),
                Message::Foreign if left.is_zero() => return Err(TOO_LATE.to_owned()),
                Message::Foreign => {}
            }
        }
    }

    /// Asks again by TCP, which carries an answer of any length.
    fn ask_by_tcp(&self, question: &Question) -> Result<Answer, String> {
        let id = random();
        let bytes = self.exchange(&question.encode(id, self.extended)).map_err(|why| why.to_string())?;
        match question.parse_answer(id, &bytes) {
            Message::Answer(answer) => Ok(answer),
            Message::Failed(why) => Err(why),
            Message::Truncated => Err("its answer by TCP is truncated".to_owned()),
            Message::Foreign => Err("its answer by TCP is to another question".to_owned()),
        }
    }

    /// Sends a message by TCP, and returns the first one that comes back.
    fn exchange(&self, message: &[u8]) -> io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&self.server, time_left(self.end)?)?;
        let len = u16::try_from(message.len()).map_err(|_| ErrorKind::InvalidInput)?;
        stream.set_write_timeout(Some(time_left(self.end)?))?;
        stream.write_all(&[&len.to_be_bytes(), message].concat())?;
        let mut len = [0; 2];
        self.read(&mut stream, &mut len)?;
        let mut answer = vec![0; usize::from(u16::from_be_bytes(len))];
        self.read(&mut stream, &mut answer)?;
        Ok(answer)
    }

    /// Fills a buffer, however slowly the bytes come, unless the time ends.
    fn read(&self, stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            stream.set_read_timeout(Some(time_left(self.end)?))?;
            match stream.read(&mut buffer[filled..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => filled += len,
                Err(why)
                    if matches!(
                        why.kind(),
                        ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut
                    ) => {}
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }
}

/// Returns the time until `end`, which is not zero: a timeout of zero would be refused.
fn time_left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::Error::new(ErrorKind::TimedOut, TOO_LATE));
    }
    Ok(left)
}

/// Returns a number that nobody can guess. The keys of the hash come from the system's randomness.
fn random() -> u16 {
    (RandomState::new().hash_one(0) >> 16) as u16
}
