//! Interfaces written in Rust, as `.x` files: the same wire types when read again, and C that compiles.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use farcall::stub::{Interface as _, Program};
use farcall::xdr::schema::{Body, Field, Type, Types};
use farcall::xdr::{ByteString, Chain};
use farcall_idl::{Interface, Procedure, to_x, x};

/// A point in the plane. */ int main(void);
#[derive(Clone, Debug, farcall::Xdr)]
struct Point {
    x: i32,
    y: i32,
}

#[derive(Clone, Debug, farcall::Xdr)]
enum Colour {
    Red = 5,
    Green,
}

#[derive(Clone, Debug, farcall::Xdr)]
enum Shape {
    Nothing,
    Circle {
        radius: f64,
    },
    Polygon(Vec<Point>, Option<Colour>),
    Named(#[xdr(max = 9)] String),
    #[xdr(default)]
    Other(i32, [u8; 5]),
}

#[derive(Clone, Debug, farcall::Xdr)]
struct Tree {
    int: u8,
    children: Vec<Tree>,
    above: Option<Box<Tree>>,
    unit: (),
    shape: Shape,
}

#[derive(Clone, Debug, farcall::Xdr)]
struct Page<T> {
    items: Vec<T>,
    next: Option<String>,
    pairs: Vec<(u16, Vec<u8>)>,
    chain: Chain<Point>,
    grid: [[i64; 2]; 3],
    maybe: Option<Option<bool>>,
}

#[farcall::interface(program = 0x2000_0007, version = 4)]
trait Everything {
    #[procedure(0)]
    fn null(&self) -> farcall::Result<()> {
        Ok(())
    }
    /// Draws */ it.
    fn draw(&self, shape: &Shape, at: (i8, i16, u32)) -> farcall::Result<Option<Point>, Gone>;
    fn page(
        &self,
        name: &str,
        octets: &[u8],
        #[xdr(max = 7)] raw: &ByteString,
    ) -> farcall::Result<Page<Colour>>;
    fn tree(&self, tree: &Tree) -> farcall::Result<Vec<Vec<f32>>>;
    fn list(&self, numbers: &[u64]) -> farcall::Result<Chain<String>>;
}

#[derive(Clone, Debug, farcall::Xdr)]
struct Gone;

fn text() -> String {
    to_x(<dyn Everything>::interface(), <dyn Everything>::PROGRAM, <dyn Everything>::VERSION).unwrap()
}

#[test]
fn what_is_read_again_has_the_same_wire_types() {
    let text = text();
    let tree = x::read_text(Path::new("everything.x"), &text, &x::Options::default());
    let tree = tree.unwrap_or_else(|why| panic!("{why}\n{text}"));
    let version = &x::interfaces(&tree).unwrap()[0];
    assert_eq!((version.program, version.version), (0x2000_0007, 4));
    let (written, read) = (<dyn Everything>::interface(), &version.interface);
    assert_eq!(written.procedures.len(), read.procedures.len());
    for (before, after) in written.procedures.iter().zip(&read.procedures) {
        let bytes = |interface: &Interface, procedure: &Procedure| {
            let parts = procedure.arguments.iter().map(|argument| &argument.ty).chain([&procedure.result]);
            parts.map(|ty| flat(&interface.types, ty, 4)).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(bytes(written, before), bytes(read, after), "{text}");
    }
}

/// Returns the wire types of a type one after another, without their grouping, down to `depth`.
fn flat(types: &Types, ty: &Type, depth: usize) -> String {
    let Some(deeper) = depth.checked_sub(1) else { return "…".into() };
    let fields = |fields: &[Field], depth| -> Vec<String> {
        fields.iter().map(|field| flat(types, &field.ty, depth)).filter(|flat| !flat.is_empty()).collect()
    };
    match ty {
        Type::Void => String::new(),
        Type::Tuple(parts) => parts.iter().map(|part| flat(types, part, depth)).collect::<Vec<_>>().join(" "),
        Type::Array { size, element } => format!("{size}[{}]", flat(types, element, deeper)),
        Type::List { max, element } => format!("{max}<{}>", flat(types, element, deeper)),
        Type::Optional(inner) => format!("({})?", flat(types, inner, deeper)),
        Type::Chain(inner) => format!("({})*", flat(types, inner, deeper)),
        Type::Named(place) => match &types.get(*place).unwrap().body {
            Body::Struct { fields: all, .. } => fields(all, depth).join(" "),
            Body::Union { .. } if deeper == 0 => "…".into(),
            Body::Union { arms } => {
                let arms = arms
                    .iter()
                    .map(|arm| format!("{:?}: {}", arm.tag, fields(&arm.fields, deeper).join(" ")));
                format!("{{{}}}", arms.collect::<Vec<_>>().join(", "))
            }
        },
        other => format!("{other:?}"),
    }
}

#[test]
fn rpcgen_and_gcc_take_it() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("everything.x"), text()).unwrap();
    let shell = "rpcgen -N everything.x && gcc -c -w -I/usr/include/tirpc everything_xdr.c everything_clnt.c everything_svc.c";
    if Command::new("rpcgen").arg("--version").output().is_err()
        || !Path::new("/usr/include/tirpc/rpc/rpc.h").exists()
    {
        let _ = writeln!(std::io::stderr(), "skipped: needs rpcgen, gcc and libtirpc");
        return;
    }
    let made = Command::new("sh").args(["-c", shell]).current_dir(&directory).output().unwrap();
    assert!(made.status.success(), "{}\n{}", String::from_utf8_lossy(&made.stderr), text());
}
