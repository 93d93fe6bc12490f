//! calc.x in Rust, its server, and the programs in C that rpcgen makes of it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use farcall_onc::Server;
use farcall_onc::server::ServerBuilder;

#[farcall::interface(program = 0x2000_0088, version = 3)]
pub trait Calc {
    #[procedure(1)]
    fn add(&self, a: i32, b: i32) -> farcall::Result<i32>;
    fn turn(&self, sample: Sample) -> farcall::Result<Sample>;
    fn count_down(&self, from: u32) -> farcall::Result<Listing>;
    fn total(&self, listing: Listing) -> farcall::Result<i64>;
    fn join(&self, first: &str, again: &str, times: i32) -> farcall::Result<String>;
    fn nothing(&self) -> farcall::Result<()>;
}

#[derive(Clone, Debug, PartialEq, farcall::Xdr)]
pub struct Point {
    pub x: i32,
    pub y: i32,
}

#[derive(Clone, Debug, PartialEq, farcall::Xdr)]
pub enum Shape {
    #[xdr(tag = 0)]
    Red,
    #[xdr(tag = 1)]
    Green(Point),
    #[xdr(tag = 5)]
    Blue(#[xdr(max = 64)] String),
}

#[derive(Clone, Debug, PartialEq, farcall::Xdr)]
pub struct Entry {
    pub name: String,
    pub size: i64,
}

#[derive(Clone, Debug, PartialEq, farcall::Xdr)]
pub struct Listing {
    #[xdr(chain)]
    pub entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, farcall::Xdr)]
pub struct Sample {
    pub flag: bool,
    pub count: u32,
    pub total: u64,
    pub single: f32,
    pub twice: f64,
    pub digest: [u8; 16],
    pub data: Vec<u8>,
    pub numbers: Vec<i32>,
    pub fixed: [i32; 3],
    #[xdr(max = 8)]
    pub shapes: Vec<Shape>,
}

pub struct Calculator;

impl Calc for Calculator {
    fn add(&self, a: i32, b: i32) -> farcall::Result<i32> {
        Ok(a.wrapping_add(b))
    }

    fn turn(&self, mut sample: Sample) -> farcall::Result<Sample> {
        sample.flag = !sample.flag;
        sample.count = sample.count.wrapping_add(1);
        sample.total = sample.total.wrapping_sub(1);
        (sample.single, sample.twice) = (sample.single * 2.0, sample.twice * 2.0);
        sample.digest.reverse();
        sample.data.reverse();
        sample.numbers.reverse();
        sample.fixed.reverse();
        sample.shapes.reverse();
        for shape in &mut sample.shapes {
            if let Shape::Green(at) = shape {
                (at.x, at.y) = (at.y, at.x);
            }
        }
        Ok(sample)
    }

    fn count_down(&self, from: u32) -> farcall::Result<Listing> {
        let entry = |n: u32| Entry { name: n.to_string(), size: i64::from(n) << 32 };
        Ok(Listing { entries: (1..=from.min(1000)).rev().map(entry).collect() })
    }

    fn total(&self, listing: Listing) -> farcall::Result<i64> {
        Ok(listing.entries.iter().fold(0, |total, entry| total.wrapping_add(entry.size)))
    }

    fn join(&self, first: &str, again: &str, times: i32) -> farcall::Result<String> {
        Ok(first.to_string() + &again.repeat(times.clamp(0, 1000) as usize))
    }

    fn nothing(&self) -> farcall::Result<()> {
        Ok(())
    }
}

/// A server of ours at a port of 127.0.0.1.
pub fn serve(settings: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Server {
    let builder = Server::builder().program::<dyn Calc>(Arc::new(Calculator));
    settings(builder.address("127.0.0.1:0".parse().unwrap())).start().unwrap()
}

/// Makes the programs in C, once: where they are, or why there are none.
pub fn programs() -> Result<&'static Path, String> {
    static MADE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    MADE.get_or_init(make).as_deref().map_err(Clone::clone)
}

fn make() -> Result<PathBuf, String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop");
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("interop-{}", std::process::id()));
    std::fs::create_dir_all(&out).map_err(|why| why.to_string())?;
    std::fs::copy(here.join("calc.x"), out.join("calc.x")).map_err(|why| why.to_string())?;
    for (flag, file) in [("-h", "calc.h"), ("-c", "calc_xdr.c"), ("-l", "calc_clnt.c"), ("-m", "calc_svc.c")] {
        run(Command::new("rpcgen").args(["-C", "-N", flag, "-o", file, "calc.x"]).current_dir(&out))?;
    }
    for (program, half) in [("check", "calc_clnt.c"), ("serve", "calc_svc.c")] {
        let source = here.join(format!("{program}.c"));
        let mut gcc = Command::new("gcc");
        gcc.args(["-w", "-I", ".", "-I", "/usr/include/tirpc", "-o", program]).arg(source).args([half, "calc_xdr.c"]);
        run(gcc.args(["-ltirpc", "-lpthread"]).current_dir(&out))?;
    }
    Ok(out)
}

/// What a program prints.
pub fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|why| format!("{name} cannot be run: {why}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        return Err(format!("{name}: {said}{}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(said)
}

/// A row of the table of what was shown.
pub fn shown(counterpart: &str, transport: &str, direction: &str) {
    println!("interop: {counterpart} | {transport} | {direction} | passes");
}

/// Says why a test is skipped. Not through the macro: what that prints is shown of failing tests only.
pub fn skip(why: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}
