//! The arguments of `farcall call`, of which one may be a stream: a JSON array, or lines of standard input.

use std::borrow::Cow;
use std::io::{BufRead, Read};
use std::sync::{Arc, Mutex, PoisonError};

use farcall::dynamic::{Encoded, STREAM};
use farcall::xdr::schema::Type;
use farcall::{CallFailed, Kind, Ran, Stream};
use farcall_idl::{Argument, Interface, Procedure};
use serde_json::{Value, json};

use super::{MAX_LINE, encode, json_of, wrong};
use crate::failure::{Failure, Outcome};

/// The word that stands for the lines of standard input.
pub const LINES: &str = "-";

/// The arguments of a call.
pub struct Prepared {
    /// The encoded arguments.
    pub bytes: Vec<u8>,
    /// The items of the argument that is a stream.
    pub items: Option<Items>,
}

impl Prepared {
    /// Returns whether the items are the lines of standard input.
    pub fn reads_lines(&self) -> bool {
        matches!(self.items, Some(Items::Lines))
    }
}

pub enum Items {
    /// The encoded items.
    Given(Vec<Vec<u8>>),
    /// The items are the lines of standard input.
    Lines,
}

/// Returns the procedure as it is shown in examples: a list in the place of a stream.
pub fn as_lists(procedure: &Procedure) -> Cow<'_, Procedure> {
    let Some((index, item)) = procedure.argument_stream() else { return Cow::Borrowed(procedure) };
    let element = Box::new(item.clone());
    let mut procedure = procedure.clone();
    procedure.arguments[index].ty = Type::List { max: u32::MAX, element };
    Cow::Owned(procedure)
}

/// Encodes the arguments of a procedure. The argument at `index` is a stream.
pub fn prepare(interface: &Interface, procedure: &Procedure, index: usize, text: &str) -> Outcome<Prepared> {
    let wrong = |why: &str| wrong(interface, procedure, why);
    if text == LINES && procedure.arguments.len() == 1 {
        return Ok(Prepared { bytes: STREAM.to_vec(), items: Some(Items::Lines) });
    }
    let mut value = json_of(text).map_err(|why| wrong(&why))?;
    let name = &procedure.arguments[index].name;
    let place = match &mut value {
        Value::Array(arguments) => arguments.get_mut(index),
        Value::Object(arguments) => arguments.get_mut(name),
        alone if procedure.arguments.len() == 1 => Some(alone),
        _ => None,
    };
    let place = place.ok_or_else(|| wrong(&format!("{name} is missing")))?;
    // In the encoded arguments, the stream is represented by the number of its exchange.
    let items = match std::mem::replace(place, json!(u32::from_be_bytes(STREAM))) {
        Value::String(lines) if lines == LINES && text == LINES => {
            return Err(wrong("standard input has the arguments already"));
        }
        Value::String(lines) if lines == LINES => Items::Lines,
        Value::Array(items) => {
            let encoder = ItemEncoder::new(interface, procedure);
            let encoded = items.iter().zip(1..).map(|(item, number)| {
                encoder.encode(item).map_err(|why| wrong(&format!("item {number} of {name}: {why}")))
            });
            Items::Given(encoded.collect::<Outcome<_>>()?)
        }
        _ => return Err(wrong(&format!("{name} is an array, or \"-\" for the lines of standard input"))),
    };
    let mut numbered = procedure.clone();
    numbered.arguments[index].ty = Type::U32;
    let bytes = encode(interface, None, &numbered, &value).map_err(|why| wrong(&why))?;
    Ok(Prepared { bytes, items: Some(items) })
}

/// Encodes the items of an argument.
struct ItemEncoder {
    interface: Interface,
    /// A procedure whose only argument is an item.
    item: Procedure,
}

impl ItemEncoder {
    fn new(interface: &Interface, procedure: &Procedure) -> ItemEncoder {
        let mut item = procedure.clone();
        let stream = procedure.argument_stream();
        let argument = stream
            .map(|(index, ty)| Argument { name: procedure.arguments[index].name.clone(), ty: ty.clone() });
        item.arguments = argument.into_iter().collect();
        ItemEncoder { interface: interface.clone(), item }
    }

    fn encode(&self, item: &Value) -> Result<Vec<u8>, String> {
        encode(&self.interface, None, &self.item, &json!([item]))
    }
}

/// Why a line of standard input was no item.
#[derive(Clone, Default)]
pub struct Trouble(Arc<Mutex<Option<Failure>>>);

impl Trouble {
    pub fn take(&self) -> Outcome {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }

    fn put(&self, why: Failure) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }
}

impl Items {
    /// Returns the stream to send. A line that is no item ends the stream, and is noted in `trouble`.
    pub fn stream(self, interface: &Interface, procedure: &Procedure, trouble: &Trouble) -> Stream<Encoded> {
        if let Items::Given(items) = self {
            return Stream::of(items.into_iter().map(Encoded));
        }
        let (encoder, trouble) = (ItemEncoder::new(interface, procedure), trouble.clone());
        let mut number = 0;
        Stream::new(std::iter::from_fn(move || {
            let read = next_line(&mut number).and_then(|line| {
                let Some(line) = line else { return Ok(None) };
                let item = serde_json::from_str(&line).map_err(|why| why.to_string());
                let item = item.and_then(|item| encoder.encode(&item));
                item.map(|item| Some(Encoded(item))).map_err(|why| bad_line(number, &why))
            });
            read.transpose().map(|item| {
                item.map_err(|why| {
                    trouble.put(why);
                    CallFailed::new(Kind::Local, Ran::Yes).because("an item cannot be sent").into()
                })
            })
        }))
    }
}

/// Returns the next line of standard input that is not empty. `number` counts all lines.
fn next_line(number: &mut u64) -> Outcome<Option<String>> {
    loop {
        let mut line = Vec::new();
        *number += 1;
        if std::io::stdin().lock().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        if line.len() as u64 == MAX_LINE {
            return Err(bad_line(*number, &format!("longer than {MAX_LINE} bytes")));
        }
        let line = String::from_utf8_lossy(&line);
        if !line.trim().is_empty() {
            return Ok(Some(line.into_owned()));
        }
    }
}

fn bad_line(number: u64, why: &str) -> Failure {
    Failure::usage(format!("line {number} of standard input: {why}"))
        .hint("the server was sent the lines before it")
}
