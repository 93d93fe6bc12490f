//! The common part of the subcommands that interpret a graph: the options, the display while it runs, and the
//! end.

use std::io::{IsTerminal, stdout};
use std::str::FromStr;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use clap::Args;
use farcall_olympus::model::Graph;
use farcall_olympus::run::{
    Command, DEFAULT_BOUND, FiringRecord, NotStarted, Outcome as Ended, Pace, Run, Settings, State,
};
use serde_json::json;

use super::table::table;
use crate::failure::{Failure, Outcome};
use crate::output::{Output, say, say_json};
use crate::remote::seconds;

/// How a graph is interpreted.
#[derive(Debug, Args)]
pub struct Options {
    /// How fast: fast, or how many seconds of the graph's clock pass in a second (1, 0.5, 60)
    #[arg(long, value_name = "PACE", default_value = "fast")]
    pace: Speed,

    /// The most calls under way at once
    #[arg(long, value_name = "CALLS", default_value_t = DEFAULT_BOUND)]
    bound: usize,

    /// End the run after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    end_after: Option<Duration>,
}

/// A pace, as users write it.
#[derive(Clone, Copy, Debug)]
struct Speed(Pace);

impl FromStr for Speed {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Speed, &'static str> {
        match text.parse::<f64>() {
            _ if text == "fast" => Ok(Speed(Pace::Fast)),
            Ok(speed) if speed.is_finite() && speed > 0.0 && (1.0 / speed).is_finite() => {
                Ok(Speed(Pace::Scaled(1.0 / speed)))
            }
            _ => Err("fast, or a number greater than 0, is expected"),
        }
    }
}

/// How often the table on a terminal is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(200);

impl Options {
    pub fn settings(&self) -> Outcome<Settings> {
        if self.bound == 0 {
            return Err(Failure::usage("at least 1 call must be possible at once"));
        }
        Ok(Settings { pace: self.pace.0, bound: self.bound, ..Settings::default() })
    }

    /// Shows a run until it has nothing left to do, and returns how it ended.
    pub fn watch(&self, run: &Run, output: &Output) -> Outcome {
        let graph = run.graph();
        let (interrupted, interruption) = mpsc::channel();
        // Sending fails only if the receiver is gone, and then the command is ending anyway.
        let handler = move || interrupted.send(()).unwrap_or_default();
        ctrlc::set_handler(handler).map_err(|why| Failure::new(why.to_string()))?;
        let live = !output.is_json() && stdout().is_terminal();
        let began = Instant::now();
        let mut seen = 0;
        if output.is_json() {
            say_json(&json!({ "graph": &*graph }))?;
        }
        let ended = loop {
            let ended = run.wait_for(DRAW_EVERY);
            if output.is_json() {
                let changes = run.changes(seen, Duration::ZERO);
                if changes.number > seen {
                    seen = changes.number;
                    say_json(&json!({ "change": changes }))?;
                }
            } else if live {
                say(format!("\x1b[H\x1b[2J{}", table(&graph, &run.state()).trim_end()))?;
            }
            if ended.is_some() {
                break ended;
            }
            if interruption.try_recv().is_ok() {
                break None;
            }
            if self.end_after.is_some_and(|end| began.elapsed() >= end) {
                break None;
            }
        };
        let state = run.state();
        // Nothing more can be done if the run has ended by itself.
        let _ = run.command(Command::Stop);
        if output.is_json() {
            say_json(&json!({ "outcome": ended, "state": state }))?;
        } else if !live {
            say(table(&graph, &state).trim_end())?;
        }
        verdict(ended, &state)
    }
}

/// Returns the failure of a graph that cannot be interpreted.
pub fn not_started(graph: &Graph, why: NotStarted) -> Failure {
    let failure = Failure::new(why.to_string());
    match why {
        NotStarted::Graph(_) => failure.hint("`farcall olympus check` says what is wrong").about(&graph.name),
        _ => failure,
    }
}

fn verdict(ended: Option<Ended>, state: &State) -> Outcome {
    match ended {
        Some(Ended::Quiet) => Ok(()),
        Some(Ended::Stopped(_)) => Err(stopped(&state.stopped)),
        Some(Ended::JournalFailed(why)) => Err(Failure::new(format!("the journal cannot be written: {why}"))),
        Some(Ended::Ended) | None => {
            let waiting = state.under_way.iter().find_map(|firing| Some((firing, firing.error.as_ref()?)));
            let failed = state.failures.iter().find_map(|firing| Some((firing, firing.error.as_ref()?)));
            let why = waiting.or(failed).map(|(firing, why)| format!("; {}: {why}", firing.name));
            let why = why.unwrap_or_default();
            Err(Failure::new(format!("the run was ended before it had nothing left to do{why}")))
        }
    }
}

/// Returns the failure of a run in which nodes have stopped. Its exit code is that of the worst of them.
fn stopped(firings: &[FiringRecord]) -> Failure {
    let code = |firing: &FiringRecord| match firing.ran {
        Some("no") => 4,
        Some("yes") if firing.exception.is_some() => 3,
        _ => 5,
    };
    let worst = firings.iter().map(code).max().unwrap_or(5);
    let named = firings.iter().find(|firing| code(firing) == worst);
    let why = named.map_or_else(String::new, |firing| {
        let why = firing.error.as_deref().unwrap_or_default();
        format!("{} has stopped: {why}", firing.name)
    });
    let more = if firings.len() > 1 { format!("; {} have stopped", firings.len()) } else { String::new() };
    Failure::told(worst).with_message(why + &more)
}
