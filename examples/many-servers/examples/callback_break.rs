//! Four clients with copies of a file, one of which dies before the file is replaced. Run it by `cargo run
//! --example callback_break`.

use std::io::{Write as _, stdout};
use std::sync::Arc;
use std::time::Duration;

use farcall::Runtime;
use farcall_many_servers::callback::{Files, Server, Workstation};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Arc::new(Server::new(Duration::from_millis(300)));
    let _export = Runtime::builder().build()?.export::<dyn Files>("Files/server", server.clone())?;

    // Each client has its own runtime, as it would have on its own machine.
    let mut clients = Vec::new();
    for name in ["Copies/amber", "Copies/beech", "Copies/cedar", "Copies/dove"] {
        let client = || Workstation::new(farcall::import::<dyn Files>("Files/server")?, name);
        clients.push(Runtime::builder().build()?.enter(client)?);
    }
    clients[0].write("news", "rain".into())?;
    for client in &clients {
        client.read("news").map_err(|why| why.to_string())?;
    }
    writeln!(stdout(), "all have a copy, and the server has promised {} times", server.promises())?;

    clients.pop();
    clients[0].write("news", "sun".into())?;
    writeln!(stdout(), "amber has written; promises left: {}", server.promises())?;
    for client in &clients {
        let has = client.has("news");
        writeln!(
            stdout(),
            "a copy: {has}; it reads {:?}",
            client.read("news").map_err(|why| why.to_string())?
        )?;
    }
    Ok(())
}
