//! Three name servers, one of which knows the name. Run it by `cargo run --example first_answer`.

use std::collections::BTreeMap;
use std::io::{Write as _, stdout};
use std::sync::Arc;
use std::time::Duration;

use farcall::Runtime;
use farcall_many_servers::lookup::NameServer;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut servers = Vec::new();
    for (name, person) in
        [("NameServer/east", "Lauer"), ("NameServer/north", "Birrell"), ("NameServer/west", "Nelson")]
    {
        let people = BTreeMap::from([(person.to_owned(), format!("room {}", person.len()))]);
        servers.push(Runtime::builder().build()?.export::<dyn NameServer>(name, Arc::new(people))?);
    }

    let names = farcall::import_all::<dyn NameServer>("NameServer")?;
    let (server, room) = names.multi().lookup("Birrell").within(Duration::from_secs(1)).first()?;
    writeln!(stdout(), "{server} says: {room}")?;

    // A server that does not know the name raises an exception. It does not count as an answer here.
    if let Err(nobody) = names.multi().lookup("Siegel").first() {
        writeln!(stdout(), "{nobody}")?;
    }
    Ok(())
}
