//! The other end: prints its byte order and its addresses, reads those of the first end, checks what that
//! exports, says so, and checks its own memory when the first end has done the same.
#![forbid(unsafe_code)]

use std::io::{Write as _, stdin, stdout};

use farcall_byte_orders::{End, Failure};

fn main() -> Result<(), Failure> {
    let end = End::new()?;
    let order = if cfg!(target_endian = "big") { "big" } else { "little" };
    say(&format!("{order} {}", end.addresses()))?;
    end.check(&line()?)?;
    say("checked")?;
    line()?;
    end.check_changes()?;
    say("done")?;
    // The first end may still be reading.
    line()?;
    Ok(())
}

fn say(text: &str) -> Result<(), Failure> {
    writeln!(stdout(), "{text}")?;
    Ok(stdout().flush()?)
}

fn line() -> Result<String, Failure> {
    let mut line = String::new();
    stdin().read_line(&mut line)?;
    Ok(line)
}
