//! Rust made of `.rpc2` files.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use farcall::stub::{Interface, local};
use farcall::xdr::{ByteString, from_slice, to_vec};
use farcall::{Bulk, Group};
use farcall_idl::language::{self, Version};
use farcall_idl::rpc2::{self, NEW_CONNECTION, Options};

#[allow(clippy::too_many_arguments)]
mod covering {
    farcall::include_rpc2!("tests/rpc2/covering.rpc2", async, from_server("Fetch"));
}

/// The names that a crate other than farcall may offer under its own name.
mod offered {
    #[allow(unused_imports)]
    pub use farcall::{Exception, Multi, Never, Pending, Result, Xdr, idl, interface, multi, stub, xdr};
}

macro_rules! include_rpc2_here {
    ($($arguments:tt)*) => { farcall::include_rpc2!(crate = $crate::generated::offered, $($arguments)*); };
}

mod clock {
    include_rpc2_here!("tests/rpc2/clock.rpc2");
}

/// A file without a subsystem, and a number that a header of C would define.
#[allow(dead_code)]
mod common {
    farcall::include_rpc2!("tests/rpc2/common.rpc2", define = "NAME_BYTES=20");
}

use covering::*;

fn version(file: &str, options: &Options) -> Version {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rpc2").join(file);
    let tree = rpc2::read(&path, options).unwrap_or_else(|why| panic!("{why}"));
    language::interfaces(&tree).unwrap().remove(0)
}

/// Asserts that the description of a file equals that of the trait that was made of it.
#[track_caller]
fn same<I: Interface + ?Sized>(file: &str, options: &Options) {
    let (version, compiled) = (version(file, options), I::interface());
    for (made, compiled) in version.interface.types.definitions().iter().zip(compiled.types.definitions()) {
        assert_eq!(made, compiled);
    }
    assert_eq!(&version.interface, compiled);
}

#[test]
fn tools_see_what_the_compiler_sees() {
    let from_server = Options { from_server: vec!["Fetch".into()], ..Options::default() };
    same::<dyn Covering>("covering.rpc2", &from_server);
    same::<dyn clock::Clock>("clock.rpc2", &Options::default());
    let names = version("covering.rpc2", &from_server).procedure_names;
    assert_eq!(names[..3], ["Welcome", "Nothing", "AllIn"]);
}

#[test]
fn opcodes_and_time_outs_are_those_of_the_file() {
    let described: Vec<_> = <dyn Covering>::interface()
        .procedures
        .iter()
        .map(|procedure| (procedure.number, procedure.name.as_str(), procedure.deadline_ms))
        .collect();
    let seconds = |count: u64| Some(count * 1000);
    let expected = [
        (NEW_CONNECTION, "welcome", None),
        (1, "nothing", seconds(40)),
        (2, "all_in", seconds(5)),
        (5, "all_out", seconds(40)),
        (6, "all_both", seconds(40)),
        (10, "arrays", seconds(40)),
        (11, "double", seconds(60)),
        (12, "names", seconds(40)),
        (20, "store", seconds(40)),
        (21, "fetch", seconds(40)),
        (22, "count", seconds(40)),
    ];
    assert_eq!(described, expected);
    let clock: Vec<_> =
        <dyn clock::Clock>::interface().procedures.iter().map(|one| one.deadline_ms).collect();
    assert_eq!(clock, [None]);
    let covering = version("covering.rpc2", &Options::default());
    assert_eq!((covering.program, covering.version), (COVERING_ID, 2));
}

#[test]
fn constants_are_read_as_c_reads_them() {
    assert_eq!((OCTAL, LEAST, GREETING, DEFAULT_SECONDS), (15, -5, "good morning", 40));
    assert_eq!((Colour::Azure as i32, Colour::Green as i32), (Colour::Blue as i32, 7));
    assert_eq!(size_of::<common::ShortName>(), 20);
    assert_eq!(size_of::<ShortName>(), 12);
}

struct Server;

impl Covering for Server {
    fn welcome(&self, _: i32, _: i32, _: i32, _: i32, _: &[u8]) -> farcall::Result<()> {
        Ok(())
    }

    fn nothing(&self) -> farcall::Result<(), Rpc2Failure> {
        Err(Rpc2Failure { return_code: 17 }.into())
    }

    fn all_in(
        &self,
        signed: i32,
        _: u32,
        _: u8,
        _: Weight,
        text: &ByteString,
        counted: &[u8],
        bounded: &Rpc2BoundedBs,
        _: &[u8; 8],
        _: Colour,
        _: &Digest,
        five: &Odd,
        whole: &Everything,
    ) -> farcall::Result<(), Rpc2Failure> {
        assert_eq!((signed, text, counted, five), (-1, &"text".into(), &[1, 2][..], &[5; 5]));
        assert_eq!((bounded.max_seq_len, whole.inner.high), (9, 8));
        Ok(())
    }

    fn all_out(&self, bounded: &Rpc2BoundedBs) -> farcall::Result<AllOutResults, AllOutError> {
        Ok(AllOutResults { bounded: bounded.clone(), paint: Colour::Green, ..Default::default() })
    }

    fn all_both(
        &self,
        signed: i32,
        unsigned: u32,
        _: u8,
        _: Weight,
        _: &Rpc2BoundedBs,
        _: &[u8; 8],
        _: Colour,
        _: &Range,
    ) -> farcall::Result<AllBothResults, AllBothError> {
        Err(AllBothError { return_code: 4, signed: signed + 1, unsigned, ..Default::default() }.into())
    }

    fn arrays(
        &self,
        given: &[Range],
        taken_size_max: u32,
        _: u32,
        changed: &[Range],
        _: Key,
    ) -> farcall::Result<ArraysResults, ArraysError> {
        let taken = given.iter().take(taken_size_max as usize).copied().collect();
        Ok(ArraysResults { taken, changed: changed.to_vec() })
    }

    fn double(&self, number: u32) -> farcall::Result<u32, DoubleError> {
        Ok(2 * number)
    }

    fn names(&self, first: &ByteString, second: &ByteString) -> farcall::Result<u32, NamesError> {
        Ok((first.len() + second.len()) as u32)
    }

    fn store(&self, _: &ByteString, content: Bulk) -> farcall::Result<u32, StoreError> {
        let mut content = content;
        let bytes = content.copy_to(&mut std::io::sink(), u64::MAX).bytes;
        Ok(bytes as u32)
    }

    fn fetch(&self, name: &ByteString) -> farcall::Result<Bulk<Rpc2Failure>, Rpc2Failure> {
        match name.is_empty() {
            true => Err(Rpc2Failure { return_code: 2 }.into()),
            false => Ok(Bulk::from_bytes(name.to_vec())),
        }
    }

    fn count(&self, calls: &CallCountEntry) -> farcall::Result<CallCountEntry, CountError> {
        Ok(CallCountEntry { countent: calls.countent + 1, ..calls.clone() })
    }
}

#[test]
fn a_subsystem_is_called_as_any_interface() {
    let covering = local::<dyn Covering>(Arc::new(Server));
    assert_eq!(covering.nothing().unwrap_err().declared(), Some(&Rpc2Failure { return_code: 17 }));
    let bounded = Rpc2BoundedBs { max_seq_len: 9, seq_body: vec![7] };
    let whole = Everything { inner: Range { high: 8, ..Default::default() }, ..Default::default() };
    let text = "text".into();
    let digest = Default::default();
    covering
        .all_in(-1, 0, 0, 0.5, &text, &[1, 2], &bounded, &[0; 8], Colour::Red, &digest, &[5; 5], &whole)
        .unwrap();
    assert_eq!(covering.all_out(&bounded).unwrap().bounded, bounded);
    // A failure brings the results along.
    let failed =
        covering.all_both(1, 3, 0, 0.0, &bounded, &[0; 8], Colour::Red, &Range::default()).unwrap_err();
    let failed = failed.declared().cloned().unwrap();
    assert_eq!((failed.return_code, failed.signed, failed.unsigned), (4, 2, 3));
    let ranges = [Range { low: 1, ..Default::default() }, Range::default()];
    let arrays = covering.arrays(&ranges, 1, 9, &ranges[1..], 0).unwrap();
    assert_eq!((arrays.taken, arrays.changed), (ranges[..1].to_vec(), ranges[1..].to_vec()));
    assert_eq!(covering.names(&"ab".into(), &"c".into()).unwrap(), 3);
    assert_eq!(covering.count(&CallCountEntry::default()).unwrap().countent, 1);
}

#[test]
fn one_call_goes_to_many_servers() {
    let members = (0..3).map(|index| (format!("server-{index}"), local::<dyn Covering>(Arc::new(Server))));
    let doubled = Group::of(members).multi().double(21).quorum(3).unwrap();
    assert_eq!(doubled.results().map(|(_, twice)| *twice).collect::<Vec<u32>>(), [42; 3]);
}

#[test]
fn bulk_data_has_the_direction_that_was_asked_for() {
    let covering = local::<dyn Covering>(Arc::new(Server));
    assert_eq!(covering.store(&"name".into(), Bulk::from_bytes(vec![1; 70_000])).unwrap(), 70_000);
    let mut fetched = Vec::new();
    covering.fetch(&"some bytes".into()).unwrap().read_to_end(&mut fetched).unwrap();
    assert_eq!(fetched, b"some bytes");
    let failed = covering.fetch(&"".into()).err().unwrap();
    assert_eq!(failed.declared(), Some(&Rpc2Failure { return_code: 2 }));
    // Without the option the client sends.
    let otherwise = version("covering.rpc2", &Options::default()).interface;
    assert!(otherwise.by_name("fetch").unwrap().argument_stream().is_some());
}

#[test]
fn values_cross() {
    let everything = Everything {
        small: 255,
        heavy: 0.25,
        text: "text".into(),
        bounded: Rpc2BoundedBs { max_seq_len: 4, seq_body: vec![1, 2] },
        paint: Colour::Blue,
        ..Default::default()
    };
    let bytes = to_vec(&everything).unwrap();
    assert_eq!(from_slice::<Everything>(&bytes).unwrap(), everything);
}
