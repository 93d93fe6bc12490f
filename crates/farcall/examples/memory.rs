//! An example of memory without calls. `memory serve` exports a segment in one terminal. `memory HELLO` in
//! another terminal reads it, counts itself in it, and writes a word of its own there. (Calls through shared
//! memory are the example `shared_memory_calls`.)

use farcall::memory::{self, Memory, Notify, Rights, Settings, Word};

/// The offsets in the segment: the number of visitors, and the last visitor's word.
const VISITORS: u64 = 0;
const SAID: u64 = 8;
const SAID_BYTES: usize = 56;

fn main() -> memory::Result<()> {
    let word = std::env::args().nth(1).unwrap_or("hello".into());
    if word == "serve" {
        return serve();
    }
    let visits = memory::import("Visits")?;
    println!("the last of {} visitors said {:?}", visits.load(VISITORS)?, said(&visits)?);

    let mut text = [0; SAID_BYTES];
    text.iter_mut().zip(word.bytes()).for_each(|(to, byte)| *to = byte);
    Word::new(&visits, VISITORS)?.fetch_add(1)?; // by compare and swap: however many come at once, each is counted
    visits.write_notify(SAID, &text)?;
    visits.flush()
}

/// Exports the segment. No code of this process runs when others read and count. It only wants notice of
/// words that are written.
fn serve() -> memory::Result<()> {
    let settings = Settings::new(SAID as usize + SAID_BYTES).anyone(Rights::ALL).notify(Notify::Asked);
    let visits = memory::export("Visits", settings)?;
    println!("{} bytes are exported as {}", visits.size(), visits.url());
    loop {
        let notice = visits.notice();
        println!("visitor {} says {:?}, in {} bytes", visits.load(VISITORS)?, said(&visits)?, notice.len);
    }
}

fn said(visits: &impl Memory) -> memory::Result<String> {
    let mut text = [0; SAID_BYTES];
    visits.read_bytes(SAID, &mut text)?;
    Ok(String::from_utf8_lossy(&text).trim_end_matches('\0').to_owned())
}
