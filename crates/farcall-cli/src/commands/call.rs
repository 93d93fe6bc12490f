//! `farcall call`: calls any procedure of any exporter, with JSON.

mod signals;
mod streams;

use std::io::{BufRead, BufWriter, Read, Write};
use std::time::Duration;

use clap::{Args, ValueHint};
use farcall::dynamic::{Dynamic, Encoded};
use farcall::xdr::schema::{Type, Types};
use farcall::xdr::{Decoder, Encoder};
use farcall::{CallFailed, Error, Stream};
use farcall_idl::values::{Question, Subject};
use farcall_idl::x::Version;
use farcall_idl::{Interface, Procedure, values};
use serde_json::{Value, json};

use crate::courier;
use crate::failure::{Failure, Outcome};
use crate::onc::{self, Manner};
use crate::output::{Output, say, say_json, standard_output};
use crate::remote::Deadline;
use crate::rpc2;
use crate::text::printable_json;
use crate::whole;
use crate::x_file;
use signals::{Answers, On};
use streams::{LINES, Prepared, Trouble, as_lists};

/// Call a procedure of any exporter, or of a server of ONC RPC, Courier or RPC2, with JSON
///
/// The exporter describes its interface, so no source is needed. The command prints the result as JSON. It
/// prints a declared exception as {"exception": …}, with exit code 3. `farcall describe NAME` lists the
/// procedures.
///
/// If the result is a stream, each item is printed as a line of JSON. An argument that is a stream is an
/// array, or "-" for the lines of standard input. If the server raises a signal in the call, --on answers it.
/// Without --on the command asks on the terminal; without a terminal it unwinds the call.
///
/// A server of ONC RPC does not describe itself. So its address is followed by an .x file, or by the name of
/// a protocol that needs no file: nfs3, mount, rpcbind, vxi11. The address is tcp://HOST:PORT,
/// udp://HOST:PORT, unix:PATH, or a HOST, whose port mapper is asked for the port.
///
/// The address of a server of Courier, tcp://HOST:PORT or unix:PATH, is followed by a .cr file; that of RPC2,
/// rpc2://HOST:PORT/SUBSYSTEM, by an .rpc2 file.
#[derive(Debug, Args)]
#[command(override_usage = "farcall call [OPTIONS] <NAME> <PROCEDURE> [JSON]
       farcall call [OPTIONS] <ADDRESS> <FILE.x|FILE.cr|FILE.rpc2> <PROCEDURE> [JSON]")]
pub struct Call {
    /// The exporter, by its name; or the server of ONC RPC, Courier or RPC2, by its address
    #[arg(value_hint = ValueHint::Hostname)]
    name: String,

    /// The procedure; for ONC RPC, Courier and RPC2, first the .x, .cr or .rpc2 file and then the procedure
    #[arg(value_name = "PROCEDURE", value_hint = ValueHint::FilePath)]
    procedure: String,

    /// The arguments: an object with their names, an array, or the value of a single argument; - reads them
    /// from standard input. Opaque bytes are base64, {"hex": "…"}, {"text": "…"} or "@FILE"
    #[arg(value_name = "JSON", allow_negative_numbers = true, num_args = 0..=2)]
    arguments: Vec<String>,

    /// Print example arguments, and do not call
    #[arg(long)]
    example: bool,

    /// Call once for each line of standard input, which holds the arguments; print a line for each call:
    /// {"result": …}, {"exception": …}, or {"error": …} with the exit code of that call
    #[arg(long, conflicts_with = "example")]
    batch: bool,

    /// Exit with 6 if the result has VALUE at PATH, as in status=NFS3ERR_STALE or entries[0].name=a; may be
    /// repeated
    #[arg(long, value_name = "PATH=VALUE")]
    fail: Vec<Question>,

    /// Exit with 6 unless the result has VALUE at PATH; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    expect: Vec<Question>,

    /// Answer SIGNAL with VALUE, which is JSON, or `unwind`, which ends the call; may be repeated
    #[arg(long, value_name = "SIGNAL=VALUE")]
    on: Vec<On>,

    #[command(flatten)]
    deadline: Deadline,

    #[command(flatten)]
    manner: Manner,
}

impl Call {
    pub fn run(&self, output: &Output) -> Outcome {
        if x_file::is_any_definition(&self.procedure) {
            return self.run_by_file(output);
        }
        let found = self.deadline.import(&self.name)?;
        let exporter = found.map_err(|why| onc::unnamed(why, onc::AFTER_ADDRESS))?;
        let procedure = procedure(exporter.interface(), &self.procedure)?;
        let arguments = match self.arguments.as_slice() {
            [] => "{}",
            [arguments] if !self.batch => arguments,
            [..] if self.batch => return Err(Failure::usage(STDIN)),
            [..] => return Err(Failure::usage("the arguments are one JSON value")),
        };
        if self.example {
            return show(output, &example(exporter.interface(), procedure)?);
        }
        let called = Called { command: self, procedure, interface: exporter.interface(), version: None };
        called.check_streams()?;
        let first = if self.batch { None } else { Some(called.encoded(arguments)?) };
        let stdin_is_free = first.as_ref().is_some_and(|first| arguments != LINES && !first.reads_lines());
        let answers = Answers::new(exporter.interface(), &self.on, stdin_is_free)?;
        called.run(&answers.of(&exporter), first, output)
    }

    /// Calls a procedure of a server of ONC RPC, Courier or RPC2. The words of the command are an address, a
    /// definition, a procedure, and its arguments.
    fn run_by_file(&self, output: &Output) -> Outcome {
        let versions = self.manner.versions(&self.procedure, output)?;
        let (name, arguments) = match self.arguments.as_slice() {
            [name] => (name, "{}"),
            [name, arguments] if !self.batch => (name, arguments.as_str()),
            [_, _] => return Err(Failure::usage(STDIN)),
            [..] => {
                let known = Manner::procedures(&versions);
                return Err(Failure::usage(format!("which procedure of {}?", self.procedure)).hint(known));
            }
        };
        let (version, place) = Manner::find(versions, name)?;
        let procedure = &version.spelled.procedures[place];
        if self.example {
            return show(output, &example(&version.spelled, procedure)?);
        }
        // The arguments are checked before the server is looked for.
        let called =
            Called { command: self, procedure, interface: &version.spelled, version: Some(&version) };
        if !self.on.is_empty() {
            return Err(Failure::usage("ONC RPC, Courier and RPC2 have no signals"));
        }
        let first = if self.batch { None } else { Some(called.encoded(arguments)?) };
        let server = if x_file::is_courier(&self.procedure) {
            courier::bind(&self.name, &version, &self.deadline)?
        } else if x_file::is_rpc2(&self.procedure) {
            rpc2::bind(&self.name, &version, &self.deadline)?
        } else {
            self.manner.bind(&self.name, &version, &self.deadline)?
        };
        called.run(&server, first, output)
    }
}

const STDIN: &str = "with --batch the arguments are the lines of standard input";

/// The most bytes of an input line with --batch.
const MAX_LINE: u64 = 64 << 20;

/// The procedure to call, and what the command knows of it.
struct Called<'a> {
    command: &'a Call,
    procedure: &'a Procedure,
    interface: &'a Interface,
    /// The file's description of the program, if the server does not describe itself.
    version: Option<&'a Version>,
}

impl Called<'_> {
    /// Refuses options that do not work with streams.
    fn check_streams(&self) -> Outcome {
        let Called { command, procedure, .. } = self;
        if command.batch && procedure.has_streams() {
            return Err(Failure::usage("--batch cannot call a procedure with streams"));
        }
        let judges = !command.fail.is_empty() || !command.expect.is_empty();
        if judges && procedure.result_stream().is_some() {
            return Err(Failure::usage("--fail and --expect cannot check a result that is a stream"));
        }
        Ok(())
    }

    fn encoded(&self, arguments: &str) -> Outcome<Prepared> {
        match self.procedure.argument_stream().filter(|_| self.version.is_none()) {
            Some((index, _)) => streams::prepare(self.interface, self.procedure, index, arguments),
            None => {
                let also = self.version.map(|version| &version.interface);
                let bytes = encoded(self.interface, also, self.procedure, arguments)?;
                Ok(Prepared { bytes, items: None })
            }
        }
    }

    /// Calls once with these arguments. If there are none, calls once for each line of standard input.
    fn run(&self, exporter: &Dynamic, arguments: Option<Prepared>, output: &Output) -> Outcome {
        let deadline = &self.command.deadline;
        let within = |time: Option<Duration>| time.map(|time| exporter.within(time));
        if let Some(arguments) = arguments {
            // Finding the server has taken a part of the time.
            let first = within(deadline.left());
            return self.call(first.as_ref().unwrap_or(exporter), arguments, output);
        }
        let exporter = &within(deadline.within).unwrap_or_else(|| exporter.clone());
        let mut input = std::io::stdin().lock();
        let mut worst: Option<Failure> = None;
        loop {
            let mut line = Vec::new();
            if (&mut input).take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
                // The failure of each line has been reported already.
                return worst.map_or(Ok(()), |worst| Err(Failure::told(worst.code().into())));
            }
            if line.len() as u64 == MAX_LINE {
                return Err(Failure::usage(format!("a line is longer than {MAX_LINE} bytes")));
            }
            let line = String::from_utf8_lossy(&line);
            if line.trim().is_empty() {
                continue;
            }
            let arguments = match line.trim() {
                "-" => Err(Failure::usage(STDIN)),
                line => self.encoded(line),
            };
            if let Err(why) = arguments.and_then(|arguments| self.call(exporter, arguments, output)) {
                if why.is_broken_pipe() {
                    return Err(why);
                }
                if let Some(mut error) = why.as_json() {
                    error["exit"] = why.code().into();
                    say_json(&json!({ "error": error }))?;
                }
                worst = Some(why.or_worse(worst));
            }
        }
    }

    fn call(&self, exporter: &Dynamic, arguments: Prepared, output: &Output) -> Outcome {
        let Called { procedure, interface, .. } = self;
        let is_by_file = self.version.is_some();
        let trouble = Trouble::default();
        let items = arguments.items.map(|items| items.stream(interface, procedure, &trouble));
        if !is_by_file && let Some(item) = procedure.result_stream() {
            let begun = exporter.call_stream(procedure, &arguments.bytes, items);
            let printed = match begun {
                Ok(stream) => self.print_items(item, stream, output),
                Err(why) => self.failed(why, output),
            };
            return trouble.take().and(printed);
        }
        let outcome = match items {
            None => exporter.call(procedure, &arguments.bytes),
            Some(items) => exporter.call_sending(procedure, &arguments.bytes, items),
        };
        trouble.take()?;
        match outcome {
            Ok(result) => {
                let judged = self.judge(&result).and_then(|judgement| {
                    let around = if self.command.batch { Some("result") } else { None };
                    self.print(&procedure.result, &result, around, judgement.as_deref(), output)?;
                    Ok(judgement)
                });
                match judged {
                    Ok(None) => Ok(()),
                    // In a batch, the output line reports the failed check.
                    Ok(Some(_)) if self.command.batch => Err(Failure::judged("")),
                    Ok(Some(judgement)) => {
                        Err(Failure::judged(format!("the result fails a check: {judgement}")))
                    }
                    Err(why) if is_by_file && why.is_unreadable() => Err(onc::unreadable(
                        why.about(format!("{} of {}", procedure.name, self.command.name)),
                    )),
                    Err(why) => Err(why),
                }
            }
            Err(why) => self.failed(why, output),
        }
    }

    /// Prints an exception, or returns the failure of the call.
    fn failed(&self, why: Error<Vec<u8>>, output: &Output) -> Outcome {
        let Called { procedure, .. } = self;
        match why {
            Error::Declared(exception) => {
                self.print(&procedure.exception, &exception, Some("exception"), None, output)?;
                Err(Failure::exception())
            }
            Error::CallFailed(why) => Err(self.explained(why, &procedure.name)),
        }
    }

    /// Returns the failure of a call, with a hint of the protocol that carried it.
    fn explained(&self, why: CallFailed, procedure: &str) -> Failure {
        match self.version {
            None => why.into(),
            Some(version) if x_file::is_courier(&self.command.procedure) => {
                courier::failed(why, version).about(procedure)
            }
            Some(_) if x_file::is_rpc2(&self.command.procedure) => rpc2::failed(why).about(procedure),
            Some(_) => onc::failed(why).about(procedure),
        }
    }

    /// Prints the items of a stream as they arrive, each on a line.
    fn print_items(&self, item: &Type, stream: Stream<Encoded, Encoded>, output: &Output) -> Outcome {
        for next in stream {
            match next {
                Ok(Encoded(bytes)) => self.print(item, &bytes, None, None, output)?,
                Err(why) => return self.failed(why.map_declared(|Encoded(exception)| exception), output),
            }
        }
        Ok(())
    }

    /// Returns the first of the checks by --fail and --expect that the result fails.
    fn judge(&self, result: &[u8]) -> Outcome<Option<String>> {
        let subject = Subject {
            types: &self.interface.types,
            also: self.version.map(|version| &version.interface.types),
            switches: self.version.map(|version| &version.switches),
        };
        let is_so = |question: &Question| {
            question.is_so(subject, &self.procedure.result, result).map_err(|why| strange(why.to_string()))
        };
        for question in &self.command.fail {
            if is_so(question)? == Some(true) {
                return Ok(Some(format!("--fail {question}")));
            }
        }
        for question in &self.command.expect {
            match is_so(question)? {
                Some(true) => {}
                Some(false) => return Ok(Some(format!("--expect {question}"))),
                None => return Ok(Some(format!("--expect {question}, but the result has no such part"))),
            }
        }
        Ok(None)
    }

    /// Prints a value while it decodes it, so that a long value takes no memory besides its encoded bytes.
    fn print(
        &self,
        ty: &Type,
        bytes: &[u8],
        around: Option<&str>,
        judgement: Option<&str>,
        output: &Output,
    ) -> Outcome {
        let one_line = output.is_json() || self.command.batch || self.procedure.result_stream().is_some();
        let layout = values::Layout { pretty: !one_line && around.is_none(), text: printable_json };
        let mut out = BufWriter::new(standard_output()?);
        // The head is written together with the first part of the value, once it is known that the value can
        // be decoded.
        let mut writer = Headed { head: around.map(|name| format!("{{\"{name}\":")), out: &mut out };
        values::write(&self.interface.types, ty, bytes, layout, &mut writer)
            .map_err(|why| strange(why.to_string()))??;
        if let Some(judgement) = judgement.filter(|_| self.command.batch) {
            write!(out, ",\"failed\":{}", json!(judgement))?;
        }
        writeln!(out, "{}", if around.is_some() { "}" } else { "" })?;
        Ok(out.flush()?)
    }
}

/// A writer that writes `head` before the first bytes.
struct Headed<'w> {
    head: Option<String>,
    out: &'w mut dyn Write,
}

impl Write for Headed<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if let Some(head) = self.head.take() {
            self.out.write_all(head.as_bytes())?;
        }
        self.out.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

/// Returns the failure for a reply that cannot be decoded as its described type.
fn strange(why: String) -> Failure {
    Failure::unreadable(format!("the reply does not have the described type: {why}"))
}

/// Encodes the arguments that a user wrote: JSON, or - for standard input. The names in the JSON may be those
/// of the interface, or those of `also`, which describes the interface with other names.
pub fn encoded(
    interface: &Interface,
    also: Option<&Interface>,
    procedure: &Procedure,
    arguments: &str,
) -> Outcome<Vec<u8>> {
    let encoded = json_of(arguments).and_then(|value| encode(interface, also, procedure, &value));
    encoded.map_err(|why| wrong(interface, procedure, &why))
}

/// Returns the failure for arguments that do not fit the procedure.
fn wrong(interface: &Interface, procedure: &Procedure, why: &str) -> Failure {
    let example = values::example(interface, &as_lists(procedure));
    let example = example.map(|example| format!(", such as '{example}'"));
    let hint = interface.signature(procedure) + &example.unwrap_or_default();
    Failure::usage(format!("the arguments of {}: {why}", procedure.name)).hint(hint)
}

/// Parses the JSON that a user wrote, or the JSON in standard input if the user wrote -.
fn json_of(text: &str) -> Result<Value, String> {
    let text = match text {
        LINES => {
            whole::text_from(std::io::stdin(), whole::MAX_ARGUMENT_BYTES).map_err(|why| why.to_string())?
        }
        text => text.to_owned(),
    };
    serde_json::from_str(&text).map_err(|why| why.to_string())
}

fn encode(
    interface: &Interface,
    also: Option<&Interface>,
    procedure: &Procedure,
    arguments: &Value,
) -> Result<Vec<u8>, String> {
    let mut encoded = Vec::new();
    let read =
        |path: &str| whole::read(path, whole::MAX_ARGUMENT_BYTES).map_err(|why| format!("{path}: {why}"));
    let settings = values::Settings { files: Some(&read), also };
    let mut out = Encoder::new(&mut encoded);
    values::encode_arguments_with(interface, procedure, arguments, settings, &mut out)
        .map_err(|why| why.to_string())?;
    Ok(encoded)
}

/// Returns example arguments of a procedure.
fn example(interface: &Interface, procedure: &Procedure) -> Outcome<Value> {
    values::example(interface, &as_lists(procedure))
        .map_err(|why| Failure::new(format!("there is no example of {}: {why}", procedure.name)))
}

/// Returns a result or an exception as JSON.
pub fn decoded(types: &Types, ty: &Type, bytes: &[u8]) -> Outcome<Value> {
    let mut decoder = Decoder::new(bytes);
    let value = values::decode(types, ty, &mut decoder).map_err(|why| strange(why.to_string()))?;
    decoder.finish().map_err(|why| strange(why.to_string()))?;
    Ok(value)
}

fn show(output: &Output, value: &Value) -> Outcome {
    match output.is_json() {
        true => say_json(value),
        false => say(printable_json(format!("{value:#}"))),
    }
}

/// Returns the procedure of that name.
pub fn procedure<'a>(interface: &'a Interface, name: &str) -> Outcome<&'a Procedure> {
    interface.by_name(name).ok_or_else(|| {
        let names: Vec<&str> = interface.procedures.iter().map(|procedure| procedure.name.as_str()).collect();
        Failure::usage(format!("{} has no procedure {name}", interface.name))
            .hint(format!("it has {}", names.join(", ")))
    })
}
