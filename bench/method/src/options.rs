//! The options that all benches take.
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::pair::Block;

/// Options that every subcommand has.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Also write the rows as JSON, to this file or, for `-`, to standard output instead of the table.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also draw them.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// The peers to measure beside raw sockets and farcall, or `none`.
    #[arg(long, value_name = "A,B|none", value_delimiter = ',')]
    pub peers: Option<Vec<String>>,
    /// Cores for client and server, or `none`. [default: the first two, then none]
    #[arg(long, value_name = "0,1|none")]
    pub pin: Option<Pin>,
    /// Short blocks: a first impression, with wide intervals.
    #[arg(long)]
    pub quick: bool,
}

impl Options {
    /// Returns the selected peers, or `default`.
    pub fn peers(&self, default: &[&str]) -> Vec<String> {
        match &self.peers {
            None => default.iter().map(|&name| name.into()).collect(),
            Some(names) => names.iter().filter(|&name| name != "none").cloned().collect(),
        }
    }

    /// Returns the pinnings to measure.
    pub fn pins(&self) -> Vec<Pin> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        match self.pin {
            Some(pin) => vec![pin],
            None if cores < 2 || !cfg!(target_os = "linux") => vec![Pin::NONE],
            None => vec![Pin(Some((0, 1))), Pin::NONE],
        }
    }

    /// Returns the pinning for measurements that need only one: the first two cores, if there are two.
    pub fn pinned(&self) -> Vec<Pin> {
        self.pins().into_iter().take(1).collect()
    }

    /// Returns the number of groups of four blocks, which give two ratios each: never less than 40 ratios.
    pub fn groups(&self) -> usize {
        if self.quick { 20 } else { 40 }
    }

    /// Returns about how long a block of overlapping calls takes.
    pub fn length(&self) -> Duration {
        Duration::from_millis(if self.quick { 10 } else { 40 })
    }

    /// Returns the length of a block of timed calls.
    pub fn block(&self) -> Block {
        if self.quick { Block { warm: 50, calls: 200 } } else { Block { warm: 100, calls: 1_000 } }
    }
}

/// The cores of client and server, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin(Option<(usize, usize)>);

impl Pin {
    /// Unpinned: the kernel chooses.
    pub const NONE: Pin = Pin(None);

    /// Returns the first two cores, or none if there are not two.
    pub fn first_two() -> Pin {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if cores < 2 { Pin::NONE } else { Pin(Some((0, 1))) }
    }

    /// Returns the client's core and the server's core.
    pub fn cores(self) -> Option<(usize, usize)> {
        self.0
    }
}

impl FromStr for Pin {
    type Err = String;

    fn from_str(text: &str) -> Result<Pin, String> {
        if text == "none" {
            return Ok(Pin::NONE);
        }
        let parse = || {
            let (client, server) = text.split_once(',')?;
            Some((client.parse().ok()?, server.parse().ok()?))
        };
        Ok(Pin(Some(parse().ok_or("two cores such as `0,1`, or `none`")?)))
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("none"),
            Some((client, server)) => write!(f, "{client},{server}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins() {
        for text in ["none", "0,1", "3,3"] {
            assert_eq!(text.parse::<Pin>().unwrap().to_string(), text);
        }
        assert!("0".parse::<Pin>().is_err());
        assert!("a,b".parse::<Pin>().is_err());
    }
}
