//! Values as words of a line, which the program in C reads too.

use std::fmt;

use farcall::idl::Interface as Description;
use farcall::stub::Interface;
use farcall::xdr::schema::{Body, Type};
use farcall_rpc2::codec::Part;

use crate::{PROCEDURES, bytes, covering, hex};

/// The arguments or the results of a procedure.
pub struct Case {
    /// The procedure as the file spells it.
    pub procedure: String,
    pub part: Part,
    values: Vec<String>,
}

fn description() -> &'static Description {
    <dyn covering::Covering>::interface()
}

/// Returns the types of a part of a procedure.
fn types(procedure: &str, part: Part) -> Vec<Type> {
    let (_, name, _) = PROCEDURES.iter().find(|(known, ..)| *known == procedure).expect("a procedure");
    let procedure = description().by_name(name).unwrap();
    match part {
        Part::Arguments => procedure.arguments.iter().map(|argument| argument.ty.clone()).collect(),
        Part::Result => vec![procedure.result.clone()],
    }
}

impl Case {
    pub fn random(procedure: &str, part: Part, dice: &mut fastrand::Rng) -> Case {
        let mut values = Vec::new();
        types(procedure, part).iter().for_each(|ty| roll(ty, dice, &mut values));
        Case { procedure: procedure.to_owned(), part, values }
    }

    pub fn parse(line: &str) -> Case {
        let mut words = line.split(' ').map(str::to_owned);
        let procedure = words.next().expect("a procedure");
        let part = match words.next().as_deref() {
            Some("request") => Part::Arguments,
            Some("response") => Part::Result,
            other => panic!("{other:?}"),
        };
        Case { procedure, part, values: words.collect() }
    }

    /// Returns the values as XDR.
    pub fn xdr(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut values = self.values.iter().map(String::as_str);
        types(&self.procedure, self.part).iter().for_each(|ty| write(ty, &mut values, &mut out));
        assert_eq!(values.next(), None, "{self}");
        out
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = if self.part == Part::Arguments { "request" } else { "response" };
        write!(f, "{} {part} {}", self.procedure, self.values.join(" "))
    }
}

fn roll(ty: &Type, dice: &mut fastrand::Rng, values: &mut Vec<String>) {
    let some = |count: usize, dice: &mut fastrand::Rng| (0..count).map(|_| dice.u8(..)).collect::<Vec<u8>>();
    match ty {
        Type::I32 => values.push(dice.i32(..).to_string()),
        Type::U32 => values.push(dice.u32(..).to_string()),
        Type::U8 => values.push(dice.u8(..).to_string()),
        Type::F64 => values.push(format!("{:016x}", dice.u64(..))),
        Type::Opaque { size } => values.push(format!("x{}", hex(&some(*size as usize, dice)))),
        Type::Bytes { .. } => {
            let length = dice.usize(0..20);
            values.push(format!("x{}", hex(&some(length, dice))));
        }
        Type::String { .. } => {
            let text: Vec<u8> = (0..dice.usize(0..20)).map(|_| dice.u8(1..)).collect();
            values.push(format!("x{}", hex(&text)));
        }
        Type::List { element, .. } => {
            let count = dice.usize(0..6);
            values.push(count.to_string());
            (0..count).for_each(|_| roll(element, dice, values));
        }
        Type::Named(place) => match &description().types.get(*place).unwrap().body {
            Body::Struct { fields, .. } => fields.iter().for_each(|field| roll(&field.ty, dice, values)),
            Body::Union { arms } => {
                values.push(dice.choice(arms).and_then(|arm| arm.tag).unwrap_or_default().to_string());
            }
        },
        other => panic!("{other:?}"),
    }
}

fn write<'v>(ty: &Type, values: &mut impl Iterator<Item = &'v str>, out: &mut Vec<u8>) {
    match ty {
        Type::Named(place) => match &description().types.get(*place).unwrap().body {
            Body::Struct { fields, .. } => {
                return fields.iter().for_each(|field| write(&field.ty, values, out));
            }
            Body::Union { .. } => return write(&Type::I32, values, out),
        },
        Type::List { element, .. } => {
            let count: u32 = values.next().unwrap().parse().unwrap();
            out.extend(count.to_be_bytes());
            return (0..count).for_each(|_| write(element, values, out));
        }
        _ => {}
    }
    let value = values.next().expect("a value");
    match ty {
        Type::I32 => out.extend(value.parse::<i32>().unwrap().to_be_bytes()),
        Type::U32 | Type::U8 => out.extend(value.parse::<u32>().unwrap().to_be_bytes()),
        Type::F64 => out.extend(u64::from_str_radix(value, 16).unwrap().to_be_bytes()),
        _ => {
            let value = bytes(&value[1..]);
            if !matches!(ty, Type::Opaque { .. }) {
                out.extend((value.len() as u32).to_be_bytes());
            }
            out.extend(&value);
            out.resize(out.len().next_multiple_of(4), 0);
        }
    }
}
