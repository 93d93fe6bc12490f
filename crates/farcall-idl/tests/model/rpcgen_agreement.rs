//! Encodes random values of `.x` files by this crate and by the C that rpcgen generates from the same file,
//! and compares the bytes.
//!
//! With `FARCALL_X_CORPUS=directory` the test also tries all files below a directory, and prints the outcome
//! for each. `FARCALL_SEED=n` replays a run.

use std::collections::HashSet;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use farcall_idl::x::{Undeclared, tree::Specification};
use farcall_idl::{Procedure, to_x, values, x};
use farcall_xdr::schema::{Arm, Body, Field, Type, Types};
use farcall_xdr::{Decoder, Encoder};
use serde_json::{Value, json};

/// The number of values of each type.
const VALUES: usize = 20;
/// The most levels by which options and lists nest in a value.
const DEPTH: usize = 5;

#[test]
fn c_encodes_the_same_bytes() {
    if !there_is_c() {
        return;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (file, at_least) in [
        ("tests/model/rpcgen/wire.x", 14),
        ("../farcall-onc/x/nfs3.x", 14),
        ("../farcall-onc/x/mount.x", 14),
        ("../farcall-onc/x/vxi11.x", 14),
        ("../farcall-onc/tests/dialects/c_types.x", 7),
        ("../farcall-onc/tests/dialects/line_ends.x", 1),
        ("../farcall-onc/tests/dialects/many_arguments.x", 1),
        ("../farcall-onc/tests/dialects/preprocessed.x", 4),
    ] {
        let types = compare(&here.join(file)).unwrap_or_else(|why| panic!("{file}: {why}"));
        println!("{file}: {types} types");
        assert!(types >= at_least, "{file}: only {types} types");
    }
    let mut wrong = Vec::new();
    for file in corpus() {
        match compare(&file) {
            Ok(types) => println!("{}: {types} types", file.display()),
            Err(why @ Failure::Differ(_)) => wrong.push(format!("{}: {why}", file.display())),
            Err(why) => println!("{}: {why}", file.display()),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Tests `farcall gen --to x` and `farcall_idl::to_x`. A written file is read back: by this crate as the same
/// tree, and by rpcgen as a tree whose values have the same bytes. An interface that cannot be written is
/// refused with a reason.
#[test]
fn what_is_written_is_read_back_by_us_and_by_c() {
    if !there_is_c() {
        return;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let own =
        ["nfs3", "mount", "rpcbind", "vxi11"].map(|name| here.join(format!("../farcall-onc/x/{name}.x")));
    for file in own.iter().chain([&here.join("tests/model/rpcgen/wire.x")]) {
        println!(
            "{}: {:?}",
            file.display(),
            written(file).unwrap_or_else(|why| panic!("{}: {why}", file.display()))
        );
    }
    let (mut wrong, mut refused, mut taken) = (Vec::new(), 0, 0);
    for file in corpus() {
        match written(&file) {
            Ok(_) => taken += 1,
            Err(why @ Failure::NotOurs(_)) => {
                refused += 1;
                println!("{}: {why}", file.display());
            }
            Err(why) => wrong.push(format!("{}: {why}", file.display())),
        }
    }
    println!("{taken} written, {refused} refused");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Writes a file again, and reads the result. Returns how many types were compared with C.
fn written(file: &Path) -> Result<usize, Failure> {
    let refused = |why: &dyn std::fmt::Display| Failure::NotOurs(why.to_string());
    let tree = read(file).map_err(|why| refused(&why))?;
    let text = x::to_x(&tree).map_err(|why| refused(&why))?;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("written.x");
    fs::write(&path, &text).unwrap();
    let again = x::read(&path, &x::Options::default()).map_err(|why| Failure::Differ(why.to_string()))?;
    let both = [&tree, &again].map(|tree| x::interfaces(tree).unwrap());
    let [before, after] = &both;
    if before.len() != after.len() {
        return Err(Failure::Differ("other programs".into()));
    }
    for (before, after) in before.iter().zip(after) {
        let facts = |version: &x::Version| {
            let x::Version {
                program_name, version_name, program, version, procedure_names, interface, ..
            } = version;
            let signatures: Vec<String> =
                interface.procedures.iter().map(|each| interface.signature(each)).collect();
            let names = (program_name.clone(), version_name.clone(), procedure_names.clone());
            (*program, *version, names, interface.fingerprints(), signatures)
        };
        if facts(before) != facts(after) {
            return Err(Failure::Differ(format!("{:?} became {:?}", facts(before), facts(after))));
        }
        interface_written(before)?;
    }
    match compare_as(&path, &tree) {
        Err(Failure::NoC("it declares no types")) => Ok(0),
        Err(Failure::NoC(why)) => Err(Failure::Differ(why.into())),
        other => other,
    }
}

/// Every example can be used in a call. A procedure without an example has a type that is not described.
#[test]
fn every_example_is_a_value() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let own =
        ["nfs3", "mount", "rpcbind", "vxi11"].map(|name| here.join(format!("../farcall-onc/x/{name}.x")));
    let mut shown = 0;
    for file in own.into_iter().chain(corpus()) {
        let Ok(versions) = read(&file).map_err(|_| ()).and_then(|tree| x::interfaces(&tree).map_err(|_| ()))
        else {
            continue;
        };
        for version in &versions {
            for interface in [&version.spelled, &version.interface] {
                for procedure in &interface.procedures {
                    let example = match values::example(interface, procedure) {
                        Ok(example) => example,
                        Err(why) => {
                            assert!(
                                why.what().contains("declared elsewhere"),
                                "{}: {}: {why}",
                                file.display(),
                                procedure.name
                            );
                            continue;
                        }
                    };
                    // The arguments use the file's names, and also Rust's.
                    let settings = values::Settings { also: Some(&version.interface), ..Default::default() };
                    let mut bytes = Vec::new();
                    let of_file = version.spelled.by_number(procedure.number).unwrap();
                    values::encode_arguments_with(
                        &version.spelled,
                        of_file,
                        &example,
                        settings,
                        &mut Encoder::new(&mut bytes),
                    )
                    .unwrap_or_else(|why| panic!("{}: {}: {why}: {example}", file.display(), procedure.name));
                    let mut decoder = Decoder::new(&bytes);
                    for argument in &procedure.arguments {
                        let back = values::decode(&interface.types, &argument.ty, &mut decoder).unwrap();
                        assert_eq!(back, example[&argument.name], "{}: {}", file.display(), procedure.name);
                    }
                    decoder.finish().unwrap();
                    shown += 1;
                }
            }
        }
    }
    println!("{shown} examples");
    assert!(shown > 100);
}

/// Prints an interface as an exporter describes it, and reads it back. Names may differ, but the bytes of
/// values must not.
fn interface_written(before: &x::Version) -> Result<(), Failure> {
    let text = match to_x(&before.interface, before.program, before.version) {
        Ok(text) => text,
        // The error names the type that is not described.
        Err(_) => return Ok(()),
    };
    let differ = |how: String| Failure::Differ(format!("{}, by itself: {how}", before.version_name));
    let tree = x::read_text(Path::new("interface.x"), &text, &x::Options::default());
    let after = x::interfaces(&tree.map_err(|why| differ(format!("{why}\n{text}")))?)
        .map_err(|why| differ(why.to_string()))?;
    let [after] = after.as_slice() else { return Err(differ("not one version".into())) };
    let (seed, types) = (seed(), &before.interface.types);
    let mut random = Random { state: seed | 1, types };
    for procedure in &before.interface.procedures {
        let same = after.interface.by_number(procedure.number);
        let Some(same) = same.filter(|same| same.arguments.len() == procedure.arguments.len()) else {
            return Err(differ(format!("no {} of as many arguments", procedure.name)));
        };
        let arguments = |procedure: &Procedure| {
            procedure.arguments.iter().map(|each| each.ty.clone()).collect::<Vec<_>>()
        };
        let both = arguments(procedure).into_iter().zip(arguments(same));
        for (ty, other) in both.chain([(procedure.result.clone(), same.result.clone())]) {
            let bytes = |types, ty, value| {
                let mut out = Vec::new();
                values::encode(types, ty, value, &mut Encoder::new(&mut out)).map(|()| out)
            };
            let value = random.value(&ty, DEPTH);
            let ours = bytes(types, &ty, &value).map_err(|why| differ(why.to_string()))?;
            let read = values::decode(&after.interface.types, &other, &mut Decoder::new(&ours));
            let read =
                read.map_err(|why| differ(format!("{}, seed {seed}: {why}: {value}", procedure.name)))?;
            if bytes(&after.interface.types, &other, &read).ok().as_ref() != Some(&ours) {
                return Err(differ(format!("{}, seed {seed}: {value} is {read}", procedure.name)));
            }
        }
    }
    Ok(())
}

fn there_is_c() -> bool {
    let there = Path::new("/usr/include/tirpc/rpc/rpc.h").exists()
        && Command::new("rpcgen").arg("--version").output().is_ok();
    if !there {
        let _ = writeln!(std::io::stderr(), "skipped: needs rpcgen, gcc and libtirpc");
    }
    there
}

/// Returns the files of `$FARCALL_X_CORPUS`, if it is set.
pub fn corpus() -> Vec<PathBuf> {
    let mut files = Vec::new();
    if let Some(corpus) = std::env::var_os("FARCALL_X_CORPUS") {
        collect(Path::new(&corpus), &mut files);
    }
    files.sort();
    files
}

fn seed() -> u64 {
    std::env::var("FARCALL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x5eed)
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "x") {
            files.push(path);
        }
    }
}

enum Failure {
    /// There is no C to compare with.
    NoC(&'static str),
    /// This crate refuses the file.
    NotOurs(String),
    /// The bytes differ.
    Differ(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::NoC(what) => write!(f, "no C: {what}"),
            Failure::NotOurs(why) => write!(f, "not ours: {why}"),
            Failure::Differ(how) => write!(f, "DIFFERS: {how}"),
        }
    }
}

/// Compares values of all types of a file. Returns the number of types.
fn compare(file: &Path) -> Result<usize, Failure> {
    let tree = read(file).map_err(|why| Failure::NotOurs(why.to_string()))?;
    compare_as(file, &tree)
}

/// Compares values of all types of a file whose meaning is `tree`. Returns the number of types.
fn compare_as(file: &Path, tree: &Specification) -> Result<usize, Failure> {
    let directory = tempfile::tempdir().unwrap();
    let names = make_c(file, directory.path())?;
    let described = x::types(tree).map_err(|why| Failure::NotOurs(why.to_string()))?;
    let harness = directory.path().join("harness");
    let mut c = Command::new(harness).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let compared = compare_types(&names, &described, c.stdin.take().unwrap(), c.stdout.take().unwrap());
    c.wait().unwrap();
    compared
}

/// Reads a file. Declarations of C's headers are replaced: types have no values, and constants get arbitrary
/// values.
pub fn read(file: &Path) -> Result<Specification, x::Diagnostics> {
    let mut options = x::Options::default();
    loop {
        let why = match x::read(file, &options) {
            Ok(tree) => return Ok(tree),
            Err(why) => why,
        };
        for fault in why.iter() {
            match fault.undeclared() {
                Some(Undeclared::Type(name)) => options.external.push(name.clone()),
                Some(Undeclared::Constant(name)) => {
                    options.defines.push((name.clone(), (1000 + options.defines.len()).to_string()));
                }
                _ => return Err(why),
            }
        }
    }
}

fn compare_types(
    names: &[String],
    described: &x::Described,
    mut to: ChildStdin,
    mut from: ChildStdout,
) -> Result<usize, Failure> {
    let seed = seed();
    let mut random = Random { state: seed | 1, types: &described.types };
    let mut compared = 0;
    for (index, name) in names.iter().enumerate() {
        let Some((_, ty)) = described.named.iter().find(|(spelled, _)| spelled == name) else { continue };
        if !is_known(&described.types, ty, &mut HashSet::new()) {
            continue;
        }
        for _ in 0..VALUES {
            let value = random.value(ty, DEPTH);
            let differ = |how: String| Failure::Differ(format!("{name}, seed {seed}: {how}: {value}"));
            let mut ours = Vec::new();
            let encoded = values::encode(&described.types, ty, &value, &mut Encoder::new(&mut ours));
            encoded.map_err(|why| differ(why.to_string()))?;
            let back = values::decode(&described.types, ty, &mut Decoder::new(&ours))
                .map_err(|why| differ(why.to_string()))?;
            if back != value {
                return Err(differ(format!("decoded as {back}")));
            }
            let (used, theirs) = through_c(index, &ours, &mut to, &mut from)
                .ok_or(Failure::NoC("what rpcgen makes of it crashes"))?;
            if used != ours.len() || theirs != ours {
                return Err(differ(format!("{ours:02x?}, C takes {used} of it and makes {theirs:02x?}")));
            }
        }
        compared += 1;
    }
    Ok(compared)
}

/// Returns whether the file declares all parts of a type. C's headers may declare others.
fn is_known(types: &Types, ty: &Type, seen: &mut HashSet<u32>) -> bool {
    match ty {
        Type::Array { element: inner, .. } | Type::List { element: inner, .. } => {
            is_known(types, inner, seen)
        }
        Type::Chain(inner) | Type::Optional(inner) => is_known(types, inner, seen),
        Type::Tuple(parts) => parts.iter().all(|part| is_known(types, part, seen)),
        Type::Named(place) if !seen.insert(*place) => true,
        Type::Named(place) => match &types.get(*place).unwrap().body {
            Body::Struct { fields, .. } => fields.iter().all(|field| is_known(types, &field.ty, seen)),
            Body::Union { arms } => {
                let mut fields = arms.iter().flat_map(|arm| &arm.fields);
                !arms.is_empty() && fields.all(|field| is_known(types, &field.ty, seen))
            }
        },
        _ => true,
    }
}

/// Decodes bytes by C and encodes the value again. Returns the new bytes, and how many bytes C decoded.
fn through_c(
    index: usize,
    bytes: &[u8],
    to: &mut impl Write,
    from: &mut impl Read,
) -> Option<(usize, Vec<u8>)> {
    let head = [index as u32, bytes.len() as u32].map(u32::to_ne_bytes).concat();
    to.write_all(&[&head, bytes].concat()).and_then(|()| to.flush()).ok()?;
    let mut head = [[0; 4]; 2];
    from.read_exact(head.as_flattened_mut()).ok()?;
    let [used, length] = head.map(|word| u32::from_ne_bytes(word) as usize);
    let mut theirs = vec![0; length];
    from.read_exact(&mut theirs).ok()?;
    Some((used, theirs))
}

/// Makes the harness for a file by rpcgen and gcc. Returns the names of the types that the harness knows.
fn make_c(file: &Path, directory: &Path) -> Result<Vec<String>, Failure> {
    let name = file.file_name().and_then(|name| name.to_str()).ok_or(Failure::NoC("its name"))?;
    // Files that it may include are copied next to it.
    for beside in fs::read_dir(file.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path()) {
        if beside.is_file() {
            let _ = fs::copy(&beside, directory.join(beside.file_name().unwrap()));
        }
    }
    let run = |line: &str| {
        let done =
            Command::new("sh").args(["-c", line]).current_dir(directory).stderr(Stdio::null()).status();
        done.is_ok_and(|status| status.success())
    };
    let made =
        run(&format!("rm -f of.h of.c; rpcgen -N -h -o of.h '{name}' && rpcgen -N -c -o of.c '{name}'"));
    let header = fs::read_to_string(directory.join("of.h")).ok().filter(|_| made);
    let header = header.ok_or(Failure::NoC("rpcgen refuses it"))?;
    let names: Vec<String> = header.lines().filter_map(routine).map(String::from).collect();
    let table: String = names.iter().map(|name| format!("TYPE({name})\n")).collect();
    fs::write(directory.join("types.inc"), table).unwrap();
    fs::write(directory.join("harness.c"), include_str!("rpcgen/harness.c")).unwrap();
    // The header is named after the argument of rpcgen.
    let own = Path::new(name).with_extension("h");
    let _ = fs::copy(directory.join("of.h"), directory.join(&own));
    let gcc = "gcc -w -I. -I/usr/include/tirpc -DTYPES='\"of.h\"' -o harness harness.c of.c -ltirpc";
    if names.is_empty() {
        return Err(Failure::NoC("it declares no types"));
    }
    if run(gcc) { Ok(names) } else { Err(Failure::NoC("gcc refuses what rpcgen makes")) }
}

/// Returns the name in a line such as `extern  bool_t xdr_NAME (XDR *, NAME*);`.
fn routine(line: &str) -> Option<&str> {
    let (name, arguments) = line.strip_prefix("extern  bool_t xdr_")?.split_once(" (")?;
    arguments.starts_with("XDR *").then_some(name)
}

struct Random<'t> {
    state: u64,
    types: &'t Types,
}

impl Random<'_> {
    /// Returns the next number of SplitMix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// Returns a number of elements: at most `max`, and 0 if no more levels may nest.
    fn count(&mut self, max: u32, depth: usize) -> usize {
        let most = if depth == 0 { 0 } else { max.min(3) as usize };
        self.below(most + 1)
    }

    /// Returns a random value as JSON, as decoding would show it.
    fn value(&mut self, ty: &Type, depth: usize) -> Value {
        let mut bytes = Vec::new();
        let mut random =
            |out: &mut Vec<u8>, length: usize| out.extend((0..length).map(|_| self.next() as u8));
        match ty {
            Type::Opaque { size } => random(&mut bytes, *size as usize),
            Type::Bytes { max } => {
                let length = self.below((*max).min(9) as usize + 1);
                bytes.extend((0..length).map(|_| self.next() as u8));
            }
            Type::String { max } => {
                let length = self.below((*max).min(9) as usize + 1);
                return (0..length)
                    .map(|_| char::from(b'a' + self.below(26) as u8))
                    .collect::<String>()
                    .into();
            }
            Type::Array { size, element } => return (0..*size).map(|_| self.value(element, depth)).collect(),
            Type::List { max, element } => {
                let count = self.count(*max, depth);
                return (0..count).map(|_| self.value(element, depth - 1)).collect();
            }
            Type::Chain(element) => {
                let count = self.count(3, depth);
                return (0..count).map(|_| self.value(element, depth - 1)).collect();
            }
            Type::Tuple(parts) => return parts.iter().map(|part| self.value(part, depth)).collect(),
            Type::Optional(_) | Type::Named(_) => return self.composed(ty, depth),
            scalar => return self.scalar(scalar),
        }
        // A value that is shown as base64 is made by encoding it and showing the result.
        let mut encoded = Vec::new();
        match ty {
            Type::Opaque { .. } => Encoder::new(&mut encoded).opaque(&bytes).unwrap(),
            _ => Encoder::new(&mut encoded).bytes(&bytes).unwrap(),
        }
        values::decode(self.types, ty, &mut Decoder::new(&encoded)).unwrap()
    }

    /// Returns a value of a scalar type, made by encoding one and showing the result. It is neither NaN nor
    /// infinite.
    fn scalar(&mut self, ty: &Type) -> Value {
        let word = self.next();
        let narrow = match ty {
            Type::Bool => word & 1,
            Type::I8 => (word as i8 as i32 as u32).into(),
            Type::I16 => (word as i16 as i32 as u32).into(),
            Type::U8 => word & 0xff,
            Type::U16 => word & 0xffff,
            Type::F32 => (word as i16 as f32).to_bits().into(),
            _ => word & 0xffff_ffff,
        };
        let encoded = match ty {
            Type::Void => return Value::Null,
            Type::I64 | Type::U64 => word.to_be_bytes().to_vec(),
            Type::F64 => (word as i32 as f64 / 8.0).to_be_bytes().to_vec(),
            _ => (narrow as u32).to_be_bytes().to_vec(),
        };
        values::decode(self.types, ty, &mut Decoder::new(&encoded)).unwrap()
    }

    fn composed(&mut self, ty: &Type, depth: usize) -> Value {
        let types = self.types;
        match ty {
            Type::Optional(inner) if depth > 0 && self.below(2) == 1 => {
                let value = self.value(inner, depth - 1);
                // A value that may be null itself is shown in brackets.
                let shown = |value: &Value| {
                    let mut out = Vec::new();
                    values::encode(types, ty, value, &mut Encoder::new(&mut out)).is_ok().then_some(out)
                };
                match shown(&value).filter(|_| !value.is_null() && !value.is_array()) {
                    Some(_) => value,
                    None if shown(&json!([value])).is_some() && !value.is_array() => json!([value]),
                    None => [json!([value]), value].into_iter().find(|value| shown(value).is_some()).unwrap(),
                }
            }
            Type::Named(place) => match &types.get(*place).unwrap().body {
                Body::Struct { fields, .. } => self.fields(fields, depth),
                Body::Union { arms } => self.union(arms, depth),
            },
            _ => Value::Null,
        }
    }

    /// Returns the fields as an object. Fields without names become an array, or the value itself if there is
    /// only one.
    fn fields(&mut self, fields: &[Field], depth: usize) -> Value {
        let unnamed = fields.iter().all(|field| field.name.parse::<usize>().is_ok());
        match (unnamed, fields) {
            (true, [only]) => self.value(&only.ty, depth),
            (true, [_, ..]) => fields.iter().map(|field| self.value(&field.ty, depth)).collect(),
            _ => fields.iter().map(|field| (field.name.clone(), self.value(&field.ty, depth))).collect(),
        }
    }

    fn union(&mut self, arms: &[Arm], depth: usize) -> Value {
        // If no more levels may nest, an arm is chosen that ends the recursion.
        let ends =
            |arm: &&Arm| depth > 0 || !arm.fields.iter().any(|field| matches!(field.ty, Type::Named(_)));
        let open: Vec<&Arm> = arms.iter().filter(ends).collect();
        let arm = match open.as_slice() {
            [] => &arms[0],
            open => open[self.below(open.len())],
        };
        let depth = depth.saturating_sub(1);
        match arm.tag {
            Some(_) if arm.fields.is_empty() => arm.name.clone().into(),
            Some(_) => json!({ &arm.name: self.fields(&arm.fields, depth) }),
            None => {
                let taken = |tag: &i32| !arms.iter().any(|arm| arm.tag == Some(*tag));
                let tag = (100..).find(taken).unwrap();
                match arm.fields.is_empty() {
                    true => json!({ &arm.name: [tag] }),
                    false => json!({ &arm.name: [tag, self.fields(&arm.fields, depth)] }),
                }
            }
        }
    }
}
