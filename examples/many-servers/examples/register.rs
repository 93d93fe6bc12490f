//! A file on five servers, two of which go down. Run it by `cargo run --example register`.

use std::io::{Write as _, stdout};
use std::sync::Arc;
use std::time::Duration;

use farcall::Runtime;
use farcall_many_servers::register::{Files, Memory, Replica};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The five servers could be on any machines. Here each has a runtime of its own in this process.
    let names = ["Replica/a", "Replica/b", "Replica/c", "Replica/d", "Replica/e"];
    let mut servers = Vec::new();
    for name in names {
        servers.push(Runtime::builder().build()?.export::<dyn Replica>(name, Arc::new(Memory::default()))?);
    }

    let files = Files::new(farcall::import_each::<dyn Replica>(&names)?, u64::from(std::process::id()))
        .patience(Duration::from_secs(1));
    files.write("motto", "one of many".into())?;
    writeln!(stdout(), "with all five: {:?}", files.read("motto")?)?;

    servers.truncate(3);
    writeln!(stdout(), "with a, b and c: {:?}", files.read("motto")?)?;
    files.write("motto", "most of many".into())?;
    writeln!(stdout(), "written by these three: {:?}", files.read("motto")?)?;

    servers.truncate(2);
    if let Err(short) = files.read("motto") {
        writeln!(stdout(), "with a and b: {short}")?;
    }
    Ok(())
}
