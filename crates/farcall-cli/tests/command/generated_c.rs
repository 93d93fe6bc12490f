//! Tests the way from an interface in Rust to a program in C: `farcall gen --to x`, rpcgen, gcc, and a server
//! of this project that the program calls.

use std::io::Write;
use std::process::Command;
use std::sync::Arc;

use crate::common::Place;
use farcall::Runtime;
use farcall::names::File;
use farcall_onc::Server;
use farcall_onc::server::Transport;

/// Where one is, in a plane.
#[derive(Clone, Debug, PartialEq, farcall::Xdr)]
struct Point {
    x: i32,
    y: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, farcall::Xdr)]
enum Colour {
    Red = 5,
    Green,
}

#[derive(Clone, Debug, PartialEq, farcall::Xdr)]
enum Shape {
    Nothing,
    Circle { radius: f64 },
    Polygon(Vec<Point>, Option<Colour>),
    Named(#[xdr(max = 9)] String),
}

#[derive(Clone, Debug, PartialEq, farcall::Xdr)]
struct Drawing {
    title: String,
    shapes: Vec<Shape>,
    digest: [u8; 5],
    corner: Option<Box<Drawing>>,
    grid: [[i16; 2]; 3],
    taken: bool,
}

#[farcall::interface(program = 0x2000_0091, version = 4)]
trait Gallery {
    #[procedure(0)]
    fn null(&self) -> farcall::Result<()> {
        Ok(())
    }
    /// How many points there are in all of a drawing's polygons.
    fn points(&self, drawing: &Drawing) -> farcall::Result<u32>;
    fn mirror(&self, drawing: &Drawing) -> farcall::Result<Drawing>;
    fn add(&self, a: i64, b: u8, c: f32) -> farcall::Result<f64>;
    fn reverse(&self, octets: &[u8]) -> farcall::Result<Vec<u8>>;
    fn find(&self, titles: &[String], wanted: &str) -> farcall::Result<Option<u32>>;
}

struct Hall;

impl Gallery for Hall {
    fn points(&self, drawing: &Drawing) -> farcall::Result<u32> {
        let of = |shape: &Shape| match shape {
            Shape::Polygon(points, _) => points.len() as u32,
            _ => 0,
        };
        Ok(drawing.shapes.iter().map(of).sum())
    }

    fn mirror(&self, drawing: &Drawing) -> farcall::Result<Drawing> {
        Ok(drawing.clone())
    }

    fn add(&self, a: i64, b: u8, c: f32) -> farcall::Result<f64> {
        Ok(a as f64 + f64::from(b) + f64::from(c))
    }

    fn reverse(&self, octets: &[u8]) -> farcall::Result<Vec<u8>> {
        Ok(octets.iter().rev().copied().collect())
    }

    fn find(&self, titles: &[String], wanted: &str) -> farcall::Result<Option<u32>> {
        Ok(titles.iter().position(|title| title == wanted).map(|at| at as u32))
    }
}

/// Returns the output of a shell script, or the reason why it failed.
fn shell(script: &str, place: &Place, arguments: &[&str]) -> Result<String, String> {
    let mut shell = Command::new("sh");
    let output = shell.args(["-e", "-c", script, "sh"]).args(arguments).current_dir(place.path("")).output();
    let output = output.map_err(|why| why.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed = || format!("{said}{}", String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(said) } else { Err(failed()) }
}

#[test]
fn a_program_in_c_calls_an_interface_in_rust() {
    let place = Place::new();
    if shell("command -v rpcgen gcc && test -e /usr/include/tirpc/rpc/rpc.h", &place, &[]).is_err() {
        let _ = writeln!(std::io::stderr(), "skipped: a program in C: needs rpcgen, gcc and libtirpc");
        return;
    }
    let runtime = Runtime::builder().registry(File::at(place.registry())).build().unwrap();
    let _export = runtime.export::<dyn Gallery>("Gallery", Arc::new(Hall)).unwrap();
    let arguments =
        ["gen", "Gallery", "--to", "x", "--program", "0x20000091", "--version", "4", "-o", "gallery.x"];
    let said = place.run(&arguments);
    assert_eq!(said.code, 0, "{said:?}");
    let here = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/command/gallery_check.c");
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../farcall-onc/tests/interop");
    let make = "rpcgen -N -C gallery.x
        gcc -w -I. -I/usr/include/tirpc -I$2 -o check $1 gallery_clnt.c gallery_xdr.c -ltirpc -lpthread";
    shell(make, &place, &[here, beside]).unwrap();
    let builder = Server::builder().program::<dyn Gallery>(Arc::new(Hall));
    // Some machines have no IPv6.
    let hosts =
        ["127.0.0.1:0", "[::1]:0"].into_iter().filter(|host| std::net::TcpListener::bind(host).is_ok());
    let server = hosts.fold(builder, |builder, host| builder.address(host.parse().unwrap())).start().unwrap();
    for (transport, address) in server.addresses() {
        let network = if *transport == Transport::Udp { "udp" } else { "tcp" };
        let network = format!("{network}{}", if address.is_ipv6() { "6" } else { "" });
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        let said = shell("exec ./check $1 $2 $3", &place, &[&network, &host, &port]);
        assert_eq!(said.as_deref(), Ok("all is well\n"), "{network}");
        println!("interop: libtirpc, by `farcall gen --to x` | {network} | serve");
    }
}
