//! How `farcall call` answers the signals that a server raises: by `--on`, or by asking on a terminal.

use std::io::{self, BufRead, IsTerminal, Write};
use std::str::FromStr;

use farcall::dynamic::{Dynamic, Encoded, Raised};
use farcall::xdr::{Decoder, Encoder};
use farcall::{Answer, CallFailed, Kind, Ran};
use farcall_idl::{Interface, Procedure, spell, values};
use serde_json::{Map, Value};

use crate::failure::{Failure, Outcome};
use crate::text::{printable, printable_json};

/// The word that unwinds a call, which the user gives instead of a value.
const UNWIND: &str = "unwind";

/// An answer as the user wrote it: `SIGNAL=VALUE`.
#[derive(Clone, Debug)]
pub struct On {
    signal: String,
    value: String,
}

impl FromStr for On {
    type Err = String;

    fn from_str(text: &str) -> Result<On, String> {
        let (signal, value) =
            text.split_once('=').ok_or("expected SIGNAL=VALUE, as in `full=10` or `full=unwind`")?;
        Ok(On { signal: signal.to_owned(), value: value.to_owned() })
    }
}

/// Answers signals, as the handler of a program would.
pub struct Answers {
    interface: Interface,
    given: Vec<(String, Given)>,
    /// Whether the user is asked about other signals.
    asks: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Given {
    /// The encoded value with which the procedure is resumed.
    Resume(Vec<u8>),
    Unwind,
}

impl Answers {
    /// Reads the answers that the user gave beforehand. `stdin_is_free` says that nothing else reads the
    /// standard input, so that the user can be asked there.
    pub fn new(interface: &Interface, given: &[On], stdin_is_free: bool) -> Outcome<Answers> {
        let mut answers = Answers { interface: interface.clone(), given: Vec::new(), asks: false };
        for On { signal, value } in given {
            let described =
                answers.interface.signal_by_name(signal).ok_or_else(|| unknown(interface, signal))?;
            if answers.given.iter().any(|(other, _)| other == signal) {
                return Err(Failure::usage(format!("two answers to the signal {signal}")));
            }
            let given = answers.read(described, value).map_err(|why| {
                Failure::usage(format!("--on {signal}: {why}")).hint(interface.signature(described))
            })?;
            answers.given.push((signal.clone(), given));
        }
        answers.asks = stdin_is_free && io::stdin().is_terminal() && io::stderr().is_terminal();
        Ok(answers)
    }

    /// Returns a binding whose calls' signals are answered.
    pub fn of(self, exporter: &Dynamic) -> Dynamic {
        if self.interface.signals.is_empty() {
            return exporter.clone();
        }
        exporter.catching(move |raised| self.answer(raised))
    }

    fn answer(&self, &Raised { signal, arguments, .. }: &Raised<'_>) -> Answer<Encoded> {
        let raised = format!("the server raised {}", self.shown(signal, arguments));
        let given = self.given.iter().find(|(name, _)| *name == signal.name);
        let (given, why) = match given {
            Some((_, given)) => (given.clone(), "and --on says to unwind the call"),
            None if self.asks => {
                let asked = self.ask(signal, &raised, &mut io::stdin().lock(), &mut io::stderr());
                (asked, "and the user unwound the call")
            }
            None => (Given::Unwind, "and nothing answers it"),
        };
        match given {
            Given::Resume(value) => Answer::Resume(Encoded(value)),
            Given::Unwind => {
                Answer::fail(CallFailed::new(Kind::Unwound, Ran::Yes).because(format!("{raised}, {why}")))
            }
        }
    }

    /// Asks until the answer can be understood. The end of the input unwinds the call.
    fn ask(&self, signal: &Procedure, raised: &str, input: &mut dyn BufRead, out: &mut dyn Write) -> Given {
        // An error is ignored, because if the terminal is gone, the input ends too.
        let mut tell = |text: &str| {
            let _ = out.write_all(printable(text).as_bytes()).and_then(|()| out.flush());
        };
        let wanted = spell(&self.interface.types, &signal.result);
        loop {
            tell(&format!("{raised}. Resume with ({wanted} in JSON, or {UNWIND}): "));
            let mut line = String::new();
            match input.read_line(&mut line) {
                Ok(0) | Err(_) => return Given::Unwind,
                Ok(_) => {}
            }
            match self.read(signal, line.trim()) {
                Ok(given) => return given,
                Err(why) => tell(&format!("{why}. ")),
            }
        }
    }

    fn read(&self, signal: &Procedure, value: &str) -> Result<Given, String> {
        if value == UNWIND {
            return Ok(Given::Unwind);
        }
        let value: Value = serde_json::from_str(value).map_err(|why| why.to_string())?;
        let mut encoded = Vec::new();
        values::encode(&self.interface.types, &signal.result, &value, &mut Encoder::new(&mut encoded))
            .map_err(|why| why.to_string())?;
        Ok(Given::Resume(encoded))
    }

    /// Returns a signal with its arguments, for people.
    fn shown(&self, signal: &Procedure, arguments: &[u8]) -> String {
        let mut decoder = Decoder::new(arguments);
        let decoded = signal.arguments.iter().map(|argument| {
            let value = values::decode(&self.interface.types, &argument.ty, &mut decoder)?;
            Ok((argument.name.clone(), value))
        });
        let arguments = decoded.collect::<Result<Map<String, Value>, values::Error>>().map(Value::Object);
        match arguments {
            Ok(arguments) => format!("{} {}", signal.name, printable_json(arguments.to_string())),
            Err(_) => signal.name.clone(),
        }
    }
}

/// Returns the failure for a signal that the interface does not declare.
fn unknown(interface: &Interface, signal: &str) -> Failure {
    let names: Vec<&str> = interface.signals.iter().map(|signal| signal.name.as_str()).collect();
    let hint = match names.is_empty() {
        true => "it has no signals".to_owned(),
        false => format!("it has {}", names.join(", ")),
    };
    Failure::usage(format!("{} has no signal {signal}", interface.name)).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_asked_until_the_answer_can_be_understood() {
        let mut store = Interface::new("Store");
        store.signal("full").argument::<u64>("needed").result::<u32>();
        let answers = Answers::new(&store, &[], false).unwrap();
        let ask = |input: &str| {
            let mut out = Vec::new();
            let raised = answers.shown(&store.signals[0], &7u64.to_be_bytes());
            let given = answers.ask(&store.signals[0], &raised, &mut input.as_bytes(), &mut out);
            (given, String::from_utf8(out).unwrap())
        };
        let (given, told) = ask("many\n-1\n3\n");
        assert_eq!(given, Given::Resume(vec![0, 0, 0, 3]));
        assert_eq!(
            told.matches("full {\"needed\":\"7\"}. Resume with (u32 in JSON, or unwind): ").count(),
            3
        );
        assert!(told.contains("expected u32, found -1"), "{told}");
        assert_eq!((ask("unwind\n").0, ask("").0), (Given::Unwind, Given::Unwind));
    }
}
