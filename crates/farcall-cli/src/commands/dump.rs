//! `farcall dump`: shows captured packets as text.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;

use clap::Args;
use farcall_cli::capture::{self, Captured, Unreadable};
use farcall_proto::dump::{Dump as Taken, NotOurs, dump, from_hex};
#[cfg(feature = "secure")]
use farcall_proto::key_log::{KeyLog, dump_with};
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
use crate::output::{Output, remark};
use crate::text::counted;
#[cfg(feature = "secure")]
use crate::whole;

/// Show captured packets as text
///
/// Reads captures of tcpdump, tshark and others: pcap and pcapng, captured on Ethernet, on Linux's `any`
/// device, or from the IP header on. Or reads lines of hexadecimal digits, one datagram per line. Counts the
/// datagrams that are not farcall's.
///
/// `tcpdump -i lo -w - udp | farcall dump -`
#[derive(Debug, Args)]
pub struct Dump {
    /// The capture; - for standard input
    file: PathBuf,

    /// A log of secrets, by which sealed datagrams are read: a program writes one by `Keys::log_secrets`
    #[cfg(feature = "secure")]
    #[arg(long, value_name = "FILE")]
    key_log: Option<PathBuf>,

    /// Also show each datagram that is not farcall's, with the reason
    #[arg(long)]
    all: bool,
}

/// The numbers of datagrams that were read.
#[derive(Default)]
struct Counts {
    /// The datagrams of farcall's protocol.
    ours: u64,
    /// All other datagrams.
    others: u64,
}

/// Converts a datagram to text.
type Reader = Box<dyn FnMut(&[u8]) -> Result<Taken, NotOurs>>;

impl Dump {
    pub fn run(&self, output: &Output) -> Outcome {
        let about = |why: Failure| why.about(self.file.display());
        let input: Box<dyn Read + Send> = match self.file.to_str() {
            Some("-") => Box::new(io::stdin()),
            _ => Box::new(File::open(&self.file).map_err(|why| about(why.into()))?),
        };
        let mut input = BufReader::new(input);
        let mut counts = Counts::default();
        let mut reader = self.reader()?;
        let is_capture = capture::is_one(input.fill_buf()?);
        let mut take = |captured: Captured<'_>| self.show(&captured, &mut *reader, &mut counts, output);
        match is_capture {
            true => capture::read(input, &mut take).map_err(about)?,
            false => read_lines(input, &mut take).map_err(about)?,
        }
        if counts.others > 0 && !self.all && !output.is_json() {
            let others = counted(counts.others, "other datagram");
            remark(&format!("farcall: skipped {others}; --all shows each, and why it is not farcall's"));
        }
        match counts.ours {
            0 => Err(Failure::new("there is no datagram of farcall's in the input")
                .hint("check that the input has UDP packets; --all shows every datagram in it")),
            _ => Ok(()),
        }
    }

    /// Returns what converts a datagram to text.
    fn reader(&self) -> Result<Reader, Failure> {
        #[cfg(feature = "secure")]
        if let Some(path) = &self.key_log {
            let about = |why: Failure| why.about(path.display());
            let text = File::open(path).and_then(|file| whole::text_from(file, whole::MAX_FILE_BYTES));
            let text = text.map_err(|why| about(why.into()))?;
            let mut log = KeyLog::default();
            for (number, line) in text.lines().enumerate() {
                let at = |why| about(Failure::new(format!("line {}: {why}", number + 1)));
                log.add(line).map_err(at)?;
            }
            return Ok(Box::new(move |datagram| dump_with(datagram, &mut log)));
        }
        Ok(Box::new(dump))
    }

    fn show(
        &self,
        captured: &Captured<'_>,
        read: &mut dyn FnMut(&[u8]) -> Result<Taken, NotOurs>,
        counts: &mut Counts,
        output: &Output,
    ) -> Outcome {
        match read(captured.bytes) {
            Ok(taken) => {
                counts.ours += 1;
                output.line(|| with(captured, of(&taken)), || format!("{}{taken}", heading(captured)))
            }
            Err(why) => {
                counts.others += 1;
                if !self.all {
                    return Ok(());
                }
                output.line(
                    || with(captured, other(&why)),
                    || format!("{}not farcall's: {why}", heading(captured)),
                )
            }
        }
    }
}

fn of(taken: &Taken) -> Value {
    let mut facts = json!({
        "conversation": format!("{:016x}", taken.conversation()),
        "number": taken.number(),
        "frames": taken.frames(),
    });
    if taken.is_unchecked() {
        facts["seal_checked"] = false.into();
    }
    facts
}

fn other(why: &NotOurs) -> Value {
    json!({ "not_ours": why.to_string() })
}

impl From<Unreadable> for Failure {
    fn from(why: Unreadable) -> Failure {
        Failure::new(why.to_string())
    }
}

/// Returns the time and the addresses of a datagram, as far as they are known, for the beginning of its line.
fn heading(captured: &Captured<'_>) -> String {
    let at = captured.at.map(|at| format!("{:.6} ", at.as_secs_f64())).unwrap_or_default();
    let between = captured.between.map(|(from, to)| format!("{from} > {to} ")).unwrap_or_default();
    at + &between
}

/// Adds the time, the addresses and the length of a datagram to `facts`.
fn with(captured: &Captured<'_>, mut facts: Value) -> Value {
    if let Some(at) = captured.at {
        facts["at_s"] = at.as_secs_f64().into();
    }
    if let Some((from, to)) = captured.between {
        facts["from"] = from.to_string().into();
        facts["to"] = to.to_string().into();
    }
    facts["bytes"] = captured.bytes.len().into();
    facts
}

/// The most bytes of an input line. The digits of the largest datagram fit, with a space after each byte.
const MAX_LINE_BYTES: u64 = 1 << 18;

/// Reads one datagram per line, in hexadecimal digits. Skips empty lines and lines that begin with #.
fn read_lines(mut input: impl BufRead, take: &mut dyn FnMut(Captured<'_>) -> Outcome) -> Outcome {
    for number in 1u64.. {
        let mut line = String::new();
        if (&mut input).take(MAX_LINE_BYTES).read_line(&mut line)? == 0 {
            break;
        }
        let digits = line.trim();
        if digits.is_empty() || digits.starts_with('#') {
            continue;
        }
        let bytes = from_hex(digits).map_err(|why| Failure::new(format!("line {number}: {why}")))?;
        take(Captured { at: None, between: None, bytes: &bytes })?;
    }
    Ok(())
}
