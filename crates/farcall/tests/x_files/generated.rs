//! Rust made of `.x` files: it compiles, crosses the wire, and is described as tools describe it without a
//! compiler.

use std::path::Path;
use std::sync::Arc;

use farcall::stub::{Program, local};
use farcall::xdr::{Bounded, ByteString, Chain, Linked, from_slice, to_vec};
use farcall_idl::x;

#[allow(clippy::too_many_arguments)]
mod covering {
    farcall::include_x!("tests/x/covering.x", async);
}

/// The names that a crate other than farcall may offer under its own name.
mod offered {
    pub use farcall::{Multi, Never, Pending, Result, Xdr, idl, interface, multi, stub, xdr};
}

macro_rules! include_x_here {
    ($($arguments:tt)*) => { farcall::include_x!(crate = $crate::generated::offered, $($arguments)*); };
}

mod nfs {
    include_x_here!("../farcall-onc/x/nfs3.x", async);
}

mod rpcbind {
    farcall::include_x!("../farcall-onc/x/rpcbind.x");
}

use covering::*;

fn versions(path: &str) -> Vec<x::Version> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    x::interfaces(&x::read(&path, &x::Options::default()).unwrap()).unwrap()
}

/// Asserts that two descriptions are equal, and shows where they differ.
#[track_caller]
fn same<I: Program + ?Sized>(version: &x::Version) {
    let (made, compiled) = (&version.interface, I::interface());
    assert_eq!((version.program, version.version), (I::PROGRAM, I::VERSION));
    for (made, compiled) in made.types.definitions().iter().zip(compiled.types.definitions()) {
        assert_eq!(made, compiled);
    }
    assert_eq!(made, compiled);
}

#[test]
fn tools_see_what_the_compiler_sees() {
    let made = versions("tests/x/covering.x");
    same::<dyn CoveringV1>(&made[0]);
    same::<dyn CoveringV2>(&made[1]);
    assert_eq!(made[0].procedure_names[1], "LOOKUP");
    same::<dyn nfs::NfsV3>(&versions("../farcall-onc/x/nfs3.x")[0]);
    let made = versions("../farcall-onc/x/rpcbind.x");
    same::<dyn rpcbind::PmapVers>(&made[0]);
    same::<dyn rpcbind::Rpcbvers>(&made[1]);
    same::<dyn rpcbind::Rpcbvers4>(&made[2]);
}

struct Server;

impl CoveringV1 for Server {
    fn lookup(&self, filename: &Filename) -> farcall::Result<Lookup> {
        Ok(match &**filename {
            b"here" => Lookup::Ok(vec![Entry { fileid: 7, name: filename.clone() }]),
            b"denied" => Lookup::Denied(filename.clone()),
            _ => Lookup::Default(Status::NoEntry, vec![1, 2]),
        })
    }

    fn read(&self, handle: &Handle, number: u64, _: u32) -> farcall::Result<Readres> {
        Ok(if number == 0 { Readres::Case0(handle.to_vec()) } else { Readres::Default(-1) })
    }

    fn list(&self) -> farcall::Result<Chain<Entry>> {
        Ok((0..3).map(|fileid| Entry { fileid, name: "x".into() }).collect())
    }

    fn echo(&self, text: &ByteString) -> farcall::Result<ByteString> {
        Ok(text.clone())
    }

    fn canonical(&self, path: &[Bounded<Filename, 255>]) -> farcall::Result<Bounded<Filename, 255>> {
        Ok(path.iter().flat_map(|part| part.to_vec()).collect::<Vec<u8>>()).map(|whole| Bounded(whole.into()))
    }

    fn start_(&self, status: Status, _: bool) -> farcall::Result<Status> {
        Ok(status)
    }

    fn add(&self, numbers: &Numbers, _: &[u8]) -> farcall::Result<Numbers> {
        Ok(*numbers)
    }

    fn all(&self, strings: &Strings) -> farcall::Result<Strings> {
        Ok(strings.clone())
    }

    fn eval(&self, expression: &Expression) -> farcall::Result<Expression> {
        Ok(expression.clone())
    }

    fn walk(&self, entry: &Linked<Entry>) -> farcall::Result<Linked<Entry>> {
        Ok(entry.clone())
    }

    fn attr(&self, attributes: &Attributes, _: &Chain<Entry>) -> farcall::Result<Attributes> {
        Ok(*attributes)
    }

    #[allow(clippy::too_many_arguments)]
    fn clone_(
        &self,
        _: &Tree,
        _: &Vec_,
        _: &VEC,
        _: &Bits,
        _: &Chosen,
        _: Option_,
        _: &Matrix,
    ) -> farcall::Result<()> {
        Ok(())
    }
}

#[test]
fn a_program_is_called_as_any_interface() {
    let covering = local::<dyn CoveringV1>(Arc::new(Server));
    covering.null().unwrap();
    let found = covering.lookup(&"here".into()).unwrap();
    assert_eq!(found.ok().unwrap()[0].fileid, 7);
    let why = covering.lookup(&"denied".into()).unwrap().into_ok().unwrap_err();
    assert_eq!((why, why.to_string()), (Status::Denied, "DENIED".to_string()));
    assert_eq!(covering.lookup(&"gone".into()).unwrap().ok(), Err(Status::Enoent));
    assert_eq!(covering.read(&[5; 16], 0, 0).unwrap().ok(), Ok(&vec![5; 16]));
    assert_eq!(covering.read(&[5; 16], 1, 0).unwrap().into_ok(), Err(-1));
    assert_eq!(covering.list().unwrap().len(), 3);
    assert_eq!(covering.start_(Status::Denied, true).unwrap(), Status::Denied);
    assert_eq!(covering.canonical(&["a".into(), "b".into()]).unwrap().0, "ab");
    let long: Filename = vec![b'x'; 256].into();
    let why = covering.lookup(&long).unwrap_err();
    assert!(why.to_string().contains("lookup.filename: length 256 is over the maximum of 255"), "{why}");
    let why = covering.canonical(&vec!["".into(); 5]).unwrap_err();
    assert!(why.to_string().contains("length 5 is over the maximum of 4"), "{why}");
}

#[test]
fn types_cross_in_their_form() {
    let entry = Entry { fileid: 1, name: "ab".into() };
    let node = [&[0; 7][..], &[1, 0, 0, 0, 2], b"ab\0\0"].concat();
    let list = [&[0, 0, 0, 1][..], &node, &[0; 4]].concat();
    assert_eq!(to_vec(&entry).unwrap(), node);
    assert_eq!(to_vec(&Lookup::Ok(vec![entry.clone()])).unwrap(), [&[0; 4][..], &list].concat());
    assert_eq!(to_vec(&Linked::from(entry)).unwrap(), list[4..]);
    assert_eq!(to_vec(&Bits::Case4294967295(Empty {})).unwrap(), [255; 4]);
    let sum = Expression::Default(Colour::Blue, vec![Expression::Red(1), Expression::Green(None)]);
    let wire = [0, 0, 0, 7, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 6, 0, 0, 0, 0];
    assert_eq!(to_vec(&sum).unwrap(), wire);
    assert_eq!(from_slice::<Expression>(&wire).unwrap(), sum);
    let tree = Tree { value: 1, left: None, right: Some(Box::default()) };
    assert_eq!(from_slice::<Tree>(&to_vec(&tree).unwrap()).unwrap(), tree);
    assert_eq!((NEGATIVE, HUGE, GREETING), (-7, u64::MAX, "hello"));
}

#[test]
fn what_no_rust_can_be_is_refused() {
    let refused = |text: &str| {
        let tree = x::read_text(Path::new("t.x"), text, &x::Options::default()).unwrap();
        x::generate(&tree, &x::Config::new()).unwrap_err().to_string()
    };
    let nested: String = (1..200).map(|n| format!("struct s{n} {{ s{} inner; }};\n", n - 1)).collect();
    let why = refused(&format!("struct s0 {{ int x; }};\n{nested}"));
    assert_eq!(why, "`s100` refers to a type that refers to a type and so on, more than 100 types deep");
    let options = x::Options { external: vec!["timeval".into()], ..x::Options::default() };
    let tree = x::read_text(Path::new("t.x"), "struct s { timeval t; };", &options).unwrap();
    let config = x::Config::new().extern_type("timeval", "std::process::exit(1)");
    assert_eq!(
        x::generate(&tree, &config).unwrap_err().to_string(),
        "`std::process::exit(1)` is not a path in Rust"
    );
    let config = x::Config::new().extern_type("timeval", "crate::Timeval");
    let text = x::to_rust(&tree, &config).unwrap();
    assert!(text.contains("pub t: crate::Timeval"), "{text}");
    let text = x::to_rust(&tree, &x::Config::new()).unwrap();
    assert!(text.contains("pub struct Timeval(pub farcall::xdr::Foreign)"), "{text}");
}
