//! `farcall call`: calls any procedure of any exporter, with JSON.

use std::io::Read;

use clap::{Args, ValueHint};
use farcall::Error;
use farcall::dynamic::Dynamic;
use farcall::xdr::schema::{Type, Types};
use farcall::xdr::{Decoder, Encoder};
use farcall_idl::{Interface, Procedure, values};
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
use crate::onc::{self, Manner};
use crate::output::{Output, say};
use crate::remote::Deadline;

/// Call a procedure of any exporter, or of a server of ONC RPC, with JSON
///
/// The exporter describes its interface; no source is needed. The result is printed as JSON, and so is a declared
/// exception, in {"exception": …} and with exit code 3. `farcall describe NAME` lists the procedures.
///
/// A server of ONC RPC describes nothing: after its address comes what does, an .x file or nfs3, mount, rpcbind, vxi11.
/// The address is tcp://HOST:PORT, udp://HOST:PORT, unix:PATH, or a host, whose port mapper is asked.
#[derive(Debug, Args)]
#[command(override_usage = "farcall call [OPTIONS] <NAME> <PROCEDURE> [JSON]
       farcall call [OPTIONS] <ADDRESS> <FILE.x> <PROCEDURE> [JSON]")]
pub struct Call {
    /// Who is called
    #[arg(value_hint = ValueHint::Hostname)]
    name: String,

    /// The procedure; before it, for ONC RPC, the .x file
    #[arg(value_name = "PROCEDURE", value_hint = ValueHint::FilePath)]
    procedure: String,

    /// The arguments: an object by their names, an array, or a single one's value; - reads them from standard input. Opaque
    /// bytes are base64, {"hex": "…"}, {"text": "…"} or "@FILE"
    #[arg(value_name = "JSON", allow_negative_numbers = true, num_args = 0..=2)]
    arguments: Vec<String>,

    /// Print what the arguments may look like, and do not call
    #[arg(long)]
    example: bool,

    #[command(flatten)]
    deadline: Deadline,

    #[command(flatten)]
    manner: Manner,
}

impl Call {
    pub fn run(&self, output: &Output) -> Outcome {
        if onc::is_definition(&self.procedure) {
            return self.run_onc(output);
        }
        let exporter = Dynamic::import(&self.deadline.runtime()?, &self.name)
            .map_err(|why| onc::unnamed(why, onc::AFTER_ADDRESS))?;
        let procedure = procedure(exporter.interface(), &self.procedure)?;
        let arguments = match self.arguments.as_slice() {
            [] => "{}",
            [arguments] => arguments,
            [..] => return Err(Failure::usage("the arguments are one JSON value")),
        };
        if self.example {
            return show(output, &example(exporter.interface(), procedure)?);
        }
        let arguments = encoded(exporter.interface(), procedure, &procedure.name, arguments)?;
        self.call(&exporter, procedure, &arguments, output)
    }

    /// The same of a server of ONC RPC: the words are an address, a definition, a procedure, its arguments.
    fn run_onc(&self, output: &Output) -> Outcome {
        let versions = self.manner.versions(&self.procedure, output)?;
        let (name, arguments) = match self.arguments.as_slice() {
            [name] => (name, "{}"),
            [name, arguments] => (name, arguments.as_str()),
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
        // Before anybody is asked where the server is.
        let arguments = encoded_as(&version.spelled, Some(&version.interface), procedure, name, arguments)?;
        let server = self.manner.bind(&self.name, &version, &self.deadline)?;
        self.call(&server, procedure, &arguments, output)
    }

    fn call(&self, exporter: &Dynamic, procedure: &Procedure, arguments: &[u8], output: &Output) -> Outcome {
        let interface = exporter.interface();
        let is_onc = onc::is_definition(&self.procedure);
        let exporter = match self.deadline.within {
            Some(deadline) => &exporter.within(deadline),
            None => exporter,
        };
        match exporter.call(procedure, arguments) {
            Ok(result) => match decoded(&interface.types, &procedure.result, &result) {
                Ok(value) => show(output, &value),
                Err(why) if is_onc => Err(onc::unreadable(why.about(format!("{} of {}", procedure.name, self.name)))),
                Err(why) => Err(why),
            },
            Err(Error::Declared(exception)) => {
                let exception = decoded(&interface.types, &procedure.exception, &exception)?;
                show(output, &json!({ "exception": exception }))?;
                Err(Failure::exception())
            }
            Err(Error::CallFailed(why)) if is_onc => Err(onc::failed(why).about(&procedure.name)),
            Err(Error::CallFailed(why)) => Err(why.into()),
        }
    }
}

/// The arguments as a user writes them: JSON, or where that is to be read from.
pub fn encoded(interface: &Interface, procedure: &Procedure, called: &str, arguments: &str) -> Outcome<Vec<u8>> {
    encoded_as(interface, None, procedure, called, arguments)
}

/// The same, with the names of another description of the interface taken too.
fn encoded_as(
    interface: &Interface,
    also: Option<&Interface>,
    procedure: &Procedure,
    called: &str,
    arguments: &str,
) -> Outcome<Vec<u8>> {
    let wrong = |why: String| {
        let example = values::example(interface, procedure).map(|example| format!(", such as '{example}'"));
        Failure::usage(format!("the arguments of {called}: {why}")).hint(format!(
            "{}{}",
            interface.signature(procedure),
            example.unwrap_or_default()
        ))
    };
    let text = match arguments {
        "-" => from_stdin()?,
        text => text.to_owned(),
    };
    let arguments: Value = serde_json::from_str(&text).map_err(|why| wrong(why.to_string()))?;
    let mut encoded = Vec::new();
    let read = |path: &str| std::fs::read(path).map_err(|why| format!("{path}: {why}"));
    let settings = values::Settings { files: Some(&read), also };
    values::encode_arguments_with(interface, procedure, &arguments, settings, &mut Encoder::new(&mut encoded))
        .map_err(|why| wrong(why.to_string()))?;
    Ok(encoded)
}

/// Arguments that can be called with.
fn example(interface: &Interface, procedure: &Procedure) -> Outcome<Value> {
    values::example(interface, procedure)
        .map_err(|why| Failure::new(format!("there is no example of {}: {why}", procedure.name)))
}

/// A result or an exception as JSON.
pub fn decoded(types: &Types, ty: &Type, bytes: &[u8]) -> Outcome<Value> {
    let strange = |why: String| Failure::new(format!("the reply is not what was described: {why}"));
    let mut decoder = Decoder::new(bytes);
    let value = values::decode(types, ty, &mut decoder).map_err(|why| strange(why.to_string()))?;
    decoder.finish().map_err(|why| strange(why.to_string()))?;
    Ok(value)
}

fn show(output: &Output, value: &Value) -> Outcome {
    match output.is_json() {
        true => say(value),
        false => say(format!("{value:#}")),
    }
}

/// The procedure of that name.
pub fn procedure<'a>(interface: &'a Interface, name: &str) -> Outcome<&'a Procedure> {
    interface.by_name(name).ok_or_else(|| {
        let names: Vec<&str> = interface.procedures.iter().map(|procedure| procedure.name.as_str()).collect();
        Failure::usage(format!("{} has no procedure {name}", interface.name))
            .hint(format!("it has {}", names.join(", ")))
    })
}

fn from_stdin() -> Outcome<String> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    Ok(text)
}
