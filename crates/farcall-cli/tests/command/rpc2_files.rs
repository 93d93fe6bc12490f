//! Tests `.rpc2` files: `gen`, `describe`, `call`, and that the Rust of real files compiles without warnings.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use farcall_rpc2::Server;
use serde_json::json;

use crate::common::Place;
use crate::corpus::{collect, compile};

const CLOCK: &str = "Subsystem \"clock\" 70 1;
timeout(SECONDS);
#include \"zone.rpc2\"
/* Tells the time. */
Ask(IN Zone Zone, OUT RPC2_Unsigned Now, OUT RPC2_Byte Exact);
Sound(IN OUT SE_Descriptor Chimes);
";

const ZONE: &str = "/* A place's time. */\ntypedef RPC2_Byte Zone[ZONE_BYTES];\n";

fn with_clock() -> Place {
    let place = Place::new();
    place.write("clock.rpc2", CLOCK);
    place.write("lib/zone.rpc2", ZONE);
    place
}

const READING: [&str; 6] = ["-I", "lib", "-D", "ZONE_BYTES=8", "-D", "SECONDS=30"];

#[test]
fn rust_is_made_of_a_file() {
    let place = with_clock();
    let rust = place.run(&[&["gen", "clock.rpc2", "--from-server", "Sound"], &READING[..]].concat()).ok();
    for expected in [
        "//! Made of `clock.rpc2` by farcall.",
        "/// A place's time.\npub type Zone = [u8; 8];",
        "#[::farcall::interface]\npub trait Clock {",
        "    /// Tells the time.\n    #[procedure(1)]\n    #[deadline(ms = 30000)]",
        "-> ::farcall::Result<AskResults, AskError>;",
        "-> ::farcall::Result<::farcall::Bulk<Rpc2Failure>, Rpc2Failure>;",
    ] {
        assert!(rust.contains(expected), "{expected:?} is not in {rust}");
    }
}

#[test]
fn a_file_is_described() {
    let place = with_clock();
    let describe = |more: &[&'static str]| [&["describe"], more, &READING[..]].concat();
    let text = place.run(&describe(&["clock.rpc2"])).ok();
    for expected in
        ["interface Clock {", "1  ask(zone: opaque[8]) -> AskResults raises AskError, within 30000 ms"]
    {
        assert!(text.contains(expected), "{expected:?} is not in {text}");
    }
    let json = &place.run(&describe(&["clock.rpc2", "--json"])).json()[0];
    assert_eq!((&json["program"]["number"], &json["procedures"][0]["spelled"]), (&70.into(), &"Ask".into()));
    assert!(place.run(&describe(&["lib/zone.rpc2"])).ok().ends_with("1 types, no program\n"));
}

#[test]
fn what_is_wrong_is_underlined() {
    let place = with_clock();
    let said = place.run(&["gen", "clock.rpc2", "-I", "lib"]);
    let expected = "error: no number of the name `ZONE_BYTES` is defined
 --> lib/zone.rpc2:2:24
  |
2 | typedef RPC2_Byte Zone[ZONE_BYTES];
  |                        ^^^^^^^^^^
  |
  = note: included from clock.rpc2:3
";
    assert!(said.code == 1 && said.err.contains(expected), "{}", said.err);
    assert!(said.err.contains("clock.rpc2 cannot be read as an .rpc2 file"), "{}", said.err);
    let said = place.run(&["gen", "nowhere.rpc2"]);
    assert!(said.err.contains("the path of an .rpc2 file is wanted"), "{}", said.err);
}

/// What `Ask` of the file takes and gives.
#[derive(Debug, farcall::Xdr)]
struct AskResults {
    now: u32,
    exact: u8,
}

#[derive(Debug, farcall::Xdr)]
struct AskError {
    return_code: i32,
    now: u32,
    exact: u8,
}

#[farcall::interface]
trait Clock {
    fn ask(&self, zone: &[u8; 8]) -> farcall::Result<AskResults, AskError>;
}

struct Here;

impl Clock for Here {
    fn ask(&self, zone: &[u8; 8]) -> farcall::Result<AskResults, AskError> {
        match zone {
            b"Salisbur" => Ok(AskResults { now: 4000, exact: 1 }),
            _ => Err(AskError { return_code: 2, now: 0, exact: 0 }.into()),
        }
    }
}

#[test]
fn a_server_of_rpc2_is_called_by_its_file() {
    let place = with_clock();
    let server = Server::builder().subsystem::<dyn Clock>(70, Arc::new(Here));
    let server = server.udp("127.0.0.1:0".parse().unwrap()).start().unwrap();
    let address = format!("rpc2://{}/70", server.address());
    let call = |address: &str, zone: &str| {
        let arguments = json!({ "Zone": { "text": zone } }).to_string();
        place.run(&[&["call", address, "clock.rpc2", "Ask", &arguments, "--json"], &READING[..]].concat())
    };
    assert_eq!(call(&address, "Salisbur").json(), [json!({ "Now": 4000, "Exact": 1 })]);
    let said = call(&address, "Nowhere!");
    assert_eq!(said.code, 3);
    assert!(said.out.contains(r#"{"exception":{"ReturnCode":2,"Now":0,"Exact":0}}"#), "{}", said.out);
    let said = call(&address.replace("/70", "/71"), "Salisbur");
    assert!(said.code != 0 && said.err.contains("refuses the bind"), "{}", said.err);
    let said = call("udp://127.0.0.1:1", "Salisbur");
    assert!(said.code != 0 && said.err.contains("rpc2://HOST:PORT/SUBSYSTEM"), "{}", said.err);
}

/// The Rust of every file below `$FARCALL_RPC2_CORPUS` compiles without warnings, except that of files that
/// `rp2gen` refuses too.
#[test]
fn what_is_made_of_real_files_compiles() {
    let Some(corpus) = std::env::var_os("FARCALL_RPC2_CORPUS").map(PathBuf::from) else {
        let _ = writeln!(std::io::stderr(), "skipped: FARCALL_RPC2_CORPUS names no directory of .rpc2 files");
        return;
    };
    let mut files = Vec::new();
    collect(&corpus, &["rpc2", "rpc"], &mut files);
    files.sort();
    let place = Place::new();
    let shared = files.iter().rfind(|file| file.ends_with("vicedep/vcrcommon.rpc2"));
    let shared = shared.and_then(|file| file.parent()).unwrap_or(Path::new(".")).to_owned();
    let mut made = Vec::new();
    for (number, file) in files.iter().enumerate() {
        let output = format!("src/f{number}.rs");
        place.write(&output, "");
        let command = ["gen", file.to_str().unwrap(), "-o", &output, "-I", shared.to_str().unwrap()];
        let said = place.run(&command);
        let refused = file.ends_with("manual/auth.rpc") || file.ends_with("manual/comp.rpc");
        assert_eq!(said.code, i32::from(refused), "{}: {}", file.display(), said.err);
        assert!(
            !refused || said.err.contains("a NEW_CONNECTION procedure has the parameters"),
            "{}",
            said.err
        );
        made.push(!refused);
    }
    let failing = compile(&place, &made);
    let refused = made.iter().filter(|made| !**made).count();
    println!("{} files, {refused} refused as they are by rp2gen", files.len());
    assert!(failing.is_empty(), "{:?}", failing.iter().map(|number| &files[*number]).collect::<Vec<_>>());
}
