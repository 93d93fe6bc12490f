//! The first answer of many name servers: one is slow, one is dead, one does not know the name, and the
//! fourth answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use farcall_many_servers::lookup::{NameServer, Unknown};
use farcall_sim::{check, sim};

/// A server that takes some time.
struct Slow(BTreeMap<String, String>);

impl NameServer for Slow {
    fn lookup(&self, person: &str) -> farcall::Result<String, Unknown> {
        sim::sleep(Duration::from_secs(3));
        self.0.lookup(person)
    }
}

#[test]
fn the_first_who_knows_answers_for_all() {
    check(50, |sim| {
        let knows = || BTreeMap::from([("Nelson".to_owned(), "room 5".to_owned())]);
        let slow =
            move || farcall::export::<dyn NameServer>("NameServer/slow", Arc::new(Slow(knows())))?.wait();
        let good = move || farcall::export::<dyn NameServer>("NameServer/good", Arc::new(knows()))?.wait();
        let dead = move || farcall::export::<dyn NameServer>("NameServer/dead", Arc::new(knows()))?.wait();
        let empty =
            || farcall::export::<dyn NameServer>("NameServer/empty", Arc::new(BTreeMap::new()))?.wait();
        sim.server("slow", slow);
        sim.server("good", good);
        sim.server("empty", empty);
        let dead = sim.server("dead", dead);
        let names = farcall::import_all::<dyn NameServer>("NameServer")?;
        dead.crash();
        let before = sim::now();
        let (server, room) = names.multi().lookup("Nelson").first().expect("one of them knows");
        assert_eq!((server.as_str(), room.as_str()), ("NameServer/good", "room 5"));
        assert!(sim::now() - before < Duration::from_millis(10));
        // No server knows the name. This is certain only when all have said so.
        let nobody = names.multi().lookup("Siegel").within(Duration::from_secs(4)).first().unwrap_err();
        assert_eq!((nobody.counted(), nobody.outcomes().len()), (0, 4));
        Ok::<(), farcall::Error>(())
    });
}
