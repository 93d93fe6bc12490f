//! `farcall call`: calls any procedure of any exporter, with JSON.

mod example;

use std::io::Read;

use clap::Args;
use farcall::Error;
use farcall::dynamic::Dynamic;
use farcall::xdr::schema::{Type, Types};
use farcall::xdr::{Decoder, Encoder};
use farcall_idl::{Interface, Procedure, values};
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
use crate::output::{Output, say};
use crate::remote::{Deadline, runtime};

/// Call a procedure of any exporter, with JSON
///
/// The exporter describes its interface; no source is needed. The result is printed as JSON, and so is a declared
/// exception, in {"exception": …} and with exit code 3. `farcall describe NAME` lists the procedures.
#[derive(Debug, Args)]
pub struct Call {
    /// Who is called
    name: String,

    /// The procedure
    procedure: String,

    /// The arguments: an object by their names, or an array; - reads them from standard input
    #[arg(value_name = "JSON", default_value = "{}", allow_hyphen_values = true)]
    arguments: String,

    /// Print what the arguments may look like, and do not call
    #[arg(long)]
    example: bool,

    #[command(flatten)]
    deadline: Deadline,
}

impl Call {
    pub fn run(&self, output: &Output) -> Outcome {
        let mut exporter = Dynamic::import(&runtime()?, &self.name)?;
        if let Some(deadline) = self.deadline.within {
            exporter = exporter.within(deadline);
        }
        let interface = exporter.interface();
        let procedure = procedure(interface, &self.procedure)?;
        if self.example {
            return show(output, &example::arguments(interface, procedure));
        }
        let arguments = encoded(interface, procedure, &self.arguments)?;
        match exporter.call(procedure, &arguments) {
            Ok(result) => show(output, &decoded(&interface.types, &procedure.result, &result)?),
            Err(Error::Declared(exception)) => {
                let exception = decoded(&interface.types, &procedure.exception, &exception)?;
                show(output, &json!({ "exception": exception }))?;
                Err(Failure::exception())
            }
            Err(Error::CallFailed(why)) => Err(why.into()),
        }
    }
}

/// The arguments as a user writes them: JSON, or where that is to be read from.
pub fn encoded(interface: &Interface, procedure: &Procedure, arguments: &str) -> Outcome<Vec<u8>> {
    let wrong = |why: String| {
        let example = example::arguments(interface, procedure);
        Failure::usage(format!("the arguments of {}: {why}", procedure.name))
            .hint(format!("{}, such as '{example}'", interface.signature(procedure)))
    };
    let text = match arguments {
        "-" => from_stdin()?,
        text => text.to_owned(),
    };
    let arguments: Value = serde_json::from_str(&text).map_err(|why| wrong(why.to_string()))?;
    let mut encoded = Vec::new();
    values::encode_arguments(interface, procedure, &arguments, &mut Encoder::new(&mut encoded))
        .map_err(|why| wrong(why.to_string()))?;
    Ok(encoded)
}

/// A result or an exception as JSON.
pub fn decoded(types: &Types, ty: &Type, bytes: &[u8]) -> Outcome<Value> {
    let strange = |why: String| Failure::new(format!("the reply is not what the exporter described: {why}"));
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
