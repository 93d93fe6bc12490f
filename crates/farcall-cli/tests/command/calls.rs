//! Tests calls of any exporter by its description: `describe`, `call`, `ping`, `names`, `check`.

use std::sync::Arc;

use crate::common::Place;
use farcall::{Export, Runtime};

/// Keeps values.
#[farcall::interface]
pub trait Store {
    /// The value under `key`.
    ///
    /// Or why there is none.
    #[idempotent]
    fn get(&self, key: &str) -> farcall::Result<Value, NoSuchKey>;

    fn sum(&self, numbers: Vec<i64>, blob: &[u8]) -> farcall::Result<i64>;

    fn fail(&self) -> farcall::Result<()>;
}

#[derive(farcall::Xdr)]
pub struct Value {
    /// Of the value.
    pub version: u32,
    pub text: Option<String>,
}

#[derive(Debug, farcall::Xdr)]
pub enum NoSuchKey {
    Never,
    Deleted { version: u32 },
}

struct Server;

impl Store for Server {
    fn get(&self, key: &str) -> farcall::Result<Value, NoSuchKey> {
        match key {
            "answer" => Ok(Value { version: 7, text: Some("42".into()) }),
            "deleted" => Err(NoSuchKey::Deleted { version: 8 }.into()),
            _ => Err(NoSuchKey::Never.into()),
        }
    }

    fn sum(&self, numbers: Vec<i64>, blob: &[u8]) -> farcall::Result<i64> {
        Ok(numbers.iter().sum::<i64>() + blob.len() as i64)
    }

    fn fail(&self) -> farcall::Result<()> {
        panic!("as the test wants")
    }
}

mod later {
    /// A later version of the interface: `get` gives something else, and `sum` is gone.
    #[farcall::interface]
    pub trait Store {
        #[idempotent]
        fn get(&self, key: &str) -> farcall::Result<u64, String>;

        #[procedure(3)]
        fn fail(&self) -> farcall::Result<()>;
    }

    pub struct Server;

    impl Store for Server {
        fn get(&self, _: &str) -> farcall::Result<u64, String> {
            Ok(42)
        }

        fn fail(&self) -> farcall::Result<()> {
            Ok(())
        }
    }
}

/// Exports the server from this process.
fn export(place: &Place, name: &str) -> Export {
    let registry = farcall::names::File::at(place.registry());
    let runtime = Runtime::builder().registry(registry).build().unwrap();
    runtime.export::<dyn Store>(name, Arc::new(Server)).unwrap()
}

#[test]
fn procedures_are_called_with_json() {
    let place = Place::new();
    let _export = export(&place, "Store");
    let call =
        |procedure: &str, arguments: &str| place.run(&["--json", "call", "Store", procedure, arguments]);
    assert_eq!(call("get", r#"{"key": "answer"}"#).ok(), "{\"version\":7,\"text\":\"42\"}\n");
    assert_eq!(call("get", r#"["answer"]"#).ok(), "{\"version\":7,\"text\":\"42\"}\n");
    assert_eq!(call("get", r#""answer""#).ok(), "{\"version\":7,\"text\":\"42\"}\n");
    assert_eq!(call("sum", r#"{"numbers": [1, -3, 5], "blob": "AAECAw=="}"#).ok(), "\"7\"\n");
    let from_stdin = place.run_with(&["call", "Store", "get", "-"], br#"{"key": "answer"}"#).ok();
    assert_eq!(from_stdin, "{\n  \"version\": 7,\n  \"text\": \"42\"\n}\n");
}

#[test]
fn an_exception_is_json_and_an_exit_code() {
    let place = Place::new();
    let _export = export(&place, "Store");
    let said = place.run(&["call", "Store", "get", "[\"deleted\"]", "--json"]);
    assert_eq!((said.code, said.out.as_str()), (3, "{\"exception\":{\"Deleted\":{\"version\":8}}}\n"));
    let said = place.run(&["call", "Store", "get", "[\"x\"]", "--json"]);
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (3, "{\"exception\":\"Never\"}\n", ""));
}

#[test]
fn a_failed_call_says_whether_it_ran() {
    let place = Place::new();
    let _export = export(&place, "Store");
    let said = place.run(&["call", "Store", "fail"]);
    assert_eq!(said.code, 5);
    assert!(said.err.contains("the procedure panicked") && said.err.contains("; it ran"), "{said:?}");
    let said = place.run(&["call", "Store/other", "fail"]);
    assert_eq!(said.code, 4);
    assert!(said.err.contains("; it did not run"), "{said:?}");
}

#[test]
fn nonsense_on_the_command_line_is_explained() {
    let place = Place::new();
    let _export = export(&place, "Store");
    for (arguments, why) in [
        (["get", "{\"key\": 7}"], "at $.key"),
        (["get", "{\"kee\": \"x\"}"], "kee"),
        (["get", "{\"key\""], "EOF"),
        (["put", "{}"], "it has get, sum, fail"),
    ] {
        let said = place.run(&["call", "Store", arguments[0], arguments[1]]);
        assert_eq!(said.code, 2, "{said:?}");
        assert!(said.err.contains(why) && said.err.contains("\nhint: "), "{said:?}");
    }
    let example = place.run(&["call", "Store", "sum", "--example", "--json"]).ok();
    assert_eq!(example, "{\"numbers\":[],\"blob\":\"\"}\n");
}

#[test]
fn an_exporter_is_described() {
    let place = Place::new();
    let export = export(&place, "Store/here");
    let text = place.run(&["describe", "Store"]).ok();
    for line in [
        "/// Keeps values.",
        "    ///",
        "    /// Or why there is none.",
        "interface Store {",
        "      1  get(key: string<>) -> Value raises NoSuchKey, idempotent",
        "struct Value {",
        "    /// Of the value.",
        "    text: string<>?",
        "union NoSuchKey {",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} is not in {text}");
    }
    let json = place.run(&["--json", "describe", &export.url()]).json();
    assert_eq!(json[0]["procedures"][1]["signature"], "sum(numbers: i64<>, blob: opaque<>) -> i64");
}

#[test]
fn versions_are_compared() {
    let place = Place::new();
    let export = export(&place, "Store/old");
    let description = place.run(&["describe", "Store/old", "--json"]).ok();
    place.write("old.json", &description);
    assert_eq!(place.run(&["check", "old.json", "Store/old"]).ok(), "no difference\n");
    let x = place.run(&["gen", "--to", "x", "Store/old", "--program", "0x20000042", "--version", "3"]).ok();
    assert!(x.contains("version STORE_VERS_3 {") && x.ends_with("} = 0x20000042;\n"), "{x}");
    assert_eq!(
        place.run(&["gen", "--to", "x", "old.json", "--program", "536870978", "--version", "3"]).ok(),
        x
    );
    drop(export);

    let registry = farcall::names::File::at(place.registry());
    let runtime = Runtime::builder().registry(registry).build().unwrap();
    let _later = runtime.export::<dyn later::Store>("Store/new", Arc::new(later::Server)).unwrap();
    let said = place.run(&["check", "old.json", "Store/new"]);
    assert_eq!((said.code, said.err.as_str()), (1, ""));
    assert!(said.out.contains("breaking: Store.get result: "), "{said:?}");
    assert!(said.out.contains("breaking: Store.sum: procedure 2 is gone\n"), "{said:?}");
    let said = place.run(&["--json", "check", "old.json", "Store/new"]);
    assert!(
        said.out
            .lines()
            .all(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["place"].is_string())
    );

    for (file, why) in [
        ("{", "EOF"),
        ("{}", "no \"model\""),
        ("{\"model\": \"!\"}", "symbol"),
        ("{\"model\": \"AAAA\"}", ""),
    ] {
        place.write("bad.json", file);
        let said = place.run(&["check", "bad.json", "Store/new"]);
        assert_eq!(said.code, 1);
        assert!(said.err.starts_with("farcall: bad.json: ") && said.err.contains("hint: "), "{said:?}");
        assert!(said.err.to_lowercase().contains(&why.to_lowercase()), "{said:?}");
    }
}

#[test]
fn names_are_listed_and_pinged() {
    let place = Place::new();
    assert_eq!(place.run(&["names"]).ok(), "");
    let one = export(&place, "Store/one");
    let _two = export(&place, "Other/two");
    let all = place.run(&["--json", "names"]).json();
    assert_eq!(
        all.iter().map(|entry| entry["name"].as_str().unwrap()).collect::<Vec<_>>(),
        ["Other/two", "Store/one"]
    );
    assert_eq!(all[1]["url"], one.url());
    let some = place.run(&["names", "Store"]).ok();
    assert!(some.starts_with("Store/one  udp://127.0.0.1:") && some.lines().count() == 1, "{some}");
    assert_eq!(place.run(&["names", "no such name"]).code, 2);
    let said = place.run(&["ping", "no such name"]);
    assert!(
        said.code == 2 && said.err.starts_with("farcall: in the name \"no such name\", at byte 2: "),
        "{said:?}"
    );

    let ping = place.run(&["--json", "ping", "Store", "-c", "3"]).json();
    assert_eq!(ping[0]["count"], 3);
    // Earlier calls may still be counted, because a result is sent before its call ends.
    assert!((1..=3).contains(&ping[0]["running"].as_u64().unwrap()), "{ping:?}");
    assert!(place.run(&["ping", &one.url()]).ok().contains("5 calls, fastest"));
    assert!(place.run(&["ping", &one.url(), "-c", "1"]).ok().contains("1 call, fastest"));
}

#[test]
fn names_are_watched_and_removed() {
    let place = Place::new();
    let first = export(&place, "Store/first");
    let mut watch = place.start(&["--json", "names", "Store", "--watch"]);
    assert_eq!(watch.fact("name"), "Store/first");
    let mut change = || -> (String, String) {
        let line: serde_json::Value = serde_json::from_str(&watch.line()).unwrap();
        let field = |name: &str| line[name].as_str().unwrap().to_owned();
        (field("change"), field("name"))
    };
    let second = export(&place, "Store/second");
    assert_eq!(change(), ("new".to_owned(), "Store/second".to_owned()));
    drop(first);
    assert_eq!(change(), ("gone".to_owned(), "Store/first".to_owned()));

    let refused = place.run(&["names", "--remove", "Store/second"]);
    assert!(refused.code == 1 && refused.err.contains("exports Store/second at udp://"), "{refused:?}");
    assert_eq!(place.run(&["names", "--remove", "Store/first"]).code, 1);
    assert_eq!(place.run(&["names", "--remove", "Store"]).code, 2);
    // The entry of a process that was killed stays in the file until somebody removes it.
    let dead = "farcall-names 1 7\nStore/dead udp://127.0.0.1:7 export=0000000000000007 \
        owner=4194304,1,0000000000000000,0 revision=7\nend 1\n";
    drop(second);
    std::fs::write(place.registry().join("names"), dead).unwrap();
    let removed = place.run(&["names", "--remove", "Store/dead"]);
    assert!(removed.code <= 1, "{removed:?}");
    assert!(!std::fs::read_to_string(place.registry().join("names")).unwrap().contains("Store/dead"));
}

#[test]
fn an_entry_is_added_by_hand_and_stays_until_it_is_removed() {
    let place = Place::new();
    let own = Runtime::builder().registry(farcall::names::Memory::new()).build().unwrap();
    let server = own.export::<dyn Store>("Store/far", Arc::new(Server)).unwrap();
    let at = format!("udp://127.0.0.1:9,udp://{}", server.address());
    assert_eq!(place.run(&["names", "--add", "Store/far", "--at", &at]).code, 0);
    let listed = &place.run(&["--json", "names"]).json()[0];
    assert_eq!(
        (&listed["owner"], &listed["addresses"][0]),
        (&"no known process".into(), &"udp://127.0.0.1:9".into())
    );
    assert_eq!(place.run(&["ping", "Store/far", "-c", "1"]).code, 0);
    let again = place.run(&["names", "--add", "Store/far", "--at", &at]);
    assert!(again.code == 1 && again.err.contains("added by hand"), "{again:?}");
    let here = Runtime::builder().registry(farcall::names::File::at(place.registry())).build().unwrap();
    assert!(here.export::<dyn Store>("Store/far", Arc::new(Server)).is_err());
    assert_eq!(place.run(&["names", "--remove", "Store/far"]).code, 0);
    let _export = here.export::<dyn Store>("Store/far", Arc::new(Server)).unwrap();
    for wrong in [
        &["names", "--add", "Store", "--at", &at][..],
        &["names", "--add", "Store/x"],
        &["names", "--add", "Store/x", "--at", "x"],
    ] {
        assert_eq!(place.run(wrong).code, 2, "{wrong:?}");
    }
}

#[test]
fn top_follows_servers_that_come_and_go() {
    let place = Place::new();
    let runtime = || Runtime::builder().registry(farcall::names::File::at(place.registry())).build().unwrap();
    let (here, there) = (runtime(), runtime());
    let _first = here.export::<dyn Store>("Store/first", Arc::new(Server)).unwrap();
    let mut top = place.start(&["--json", "top", "Store", "--every", "0.02"]);
    assert_eq!(top.fact("address"), here.address().unwrap().to_string());
    let second = there.export::<dyn Store>("Store/second", Arc::new(Server)).unwrap();
    let address = second.address().to_string();
    let mut next = |gone: bool| {
        let line: serde_json::Value = serde_json::from_str(&top.line()).unwrap();
        line["address"] == *address && line["gone"].as_bool().unwrap_or(false) == gone
    };
    while !next(false) {}
    drop(second);
    while !next(true) {}
    let _second = there.export::<dyn Store>("Store/second", Arc::new(Server)).unwrap();
    while !next(false) {}
}

#[test]
fn debug_and_top_show_the_members_of_a_process_s_balancers() {
    let place = Place::new();
    let runtime = || Runtime::builder().registry(farcall::names::File::at(place.registry())).build().unwrap();
    let _first = runtime().export::<dyn Store>("Store/first", Arc::new(Server)).unwrap();
    let _second = runtime().export::<dyn Store>("Store/second", Arc::new(Server)).unwrap();
    let caller = runtime();
    let own = caller.export::<dyn Store>("Other", Arc::new(Server)).unwrap();
    let balancer = caller.import_all::<dyn Store>("Store").unwrap().balancer();
    let stub = balancer.round_robin();
    for _ in 0..4 {
        stub.get("answer").unwrap();
    }
    let address = own.address().to_string();
    let shown = place.run(&["--json", "debug", &address]).json();
    let [process] = &shown[..] else { panic!("{shown:?}") };
    assert_eq!((&process["address"], &process["exports"][0]["calls"]), (&address.clone().into(), &0.into()));
    let group = &process["balancers"][0];
    assert_eq!((&group["group"], &group["untold"]), (&"Store".into(), &0.into()));
    assert_eq!(
        process["settings"],
        serde_json::json!({ "program": ["FARCALL_REGISTRY"], "variables": [], "misspelt": [] })
    );
    let security = &process["security"];
    assert_eq!((&security["level"], &security["identity"]), (&"open".into(), &serde_json::Value::Null));
    assert_eq!(security["conversations"], serde_json::Value::Array(Vec::new()));
    let members = group["members"].as_array().unwrap();
    assert_eq!(members.len(), 2, "{members:?}");
    for member in members {
        assert!(member["calls"].as_u64() >= Some(2) && member["latency_us"].as_f64() > Some(0.0), "{member}");
        assert_eq!(member["on_its_machine"], true);
    }
    let shown = place.run(&["debug", "Other"]).ok();
    assert!(shown.contains("balances Store  2 members") && shown.contains("Store/second"), "{shown}");
    assert!(shown.contains("level open, no keys: clients are not known\n"), "{shown}");
    assert!(shown.contains("set by the program: FARCALL_REGISTRY\n"), "{shown}");
    let shown = place.run(&["top", "--once", "Other"]).ok();
    assert!(shown.contains("balances Store  2 members"), "{shown}");
    let shown = place.run(&["--json", "top", "--once", &address]).json();
    assert_eq!(shown[0]["balancers"][0]["group"], "Store");
    let shown = place.run(&["debug", "Store/second"]).ok();
    assert!(shown.contains("no balancers"), "{shown}");
    let said = place.run(&["debug", "Nothing"]);
    assert!(said.code == 1 && said.err.contains("nobody exports Nothing"), "{said:?}");
}

#[test]
fn top_shows_what_a_server_counts() {
    let place = Place::new();
    let export = export(&place, "Store/ebbets");
    for key in ["answer", "answer", "deleted"] {
        place.run(&["call", "Store", "get", &format!("[\"{key}\"]")]);
    }
    let address = export.address().to_string();
    for host in ["Store", "Store/ebbets", &address, &format!("udp://{address}"), &export.url()] {
        let shown = place.run(&["--json", "top", "--once", host]).json();
        let [server] = &shown[..] else { panic!("{shown:?}") };
        assert_eq!(
            (&server["address"], &server["process"]),
            (&address.clone().into(), &std::process::id().into())
        );
        let get = &server["exports"][0]["procedures"][0];
        assert_eq!(
            (&get["name"], &get["results"], &get["exceptions"]),
            (&"get".into(), &2.into(), &1.into())
        );
    }
    let shown = place.run(&["top", "--once"]).ok();
    assert!(shown.contains("Store/ebbets") && shown.contains(&address), "{shown}");
    let said = Place::new().run(&["top"]);
    assert!(said.code == 1 && said.err.contains("exports anything"), "{}", said.err);
    let said = place.run(&["top", "--once", "Nothing"]);
    assert!(said.code == 1 && said.err.contains("nobody exports Nothing"), "{said:?}");
}
