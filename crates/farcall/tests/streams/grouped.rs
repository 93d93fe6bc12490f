//! Calls with streams and signals of every member of a group.

use farcall::Group;
use farcall::multi::{Next, Outcome};

use super::common::block_on;
use super::*;

/// Runs a test with a group of three servers that are called through the network, and one in this process.
fn everywhere(test: impl Fn(&Group<NumbersClient>)) {
    let names = farcall::names::Memory::new();
    let runtime = || farcall::Runtime::builder().registry(names.clone()).build().unwrap();
    let (here, there) = (runtime(), [runtime(), runtime(), runtime()]);
    let export = |(runtime, name): (&farcall::Runtime, &str)| {
        runtime.export::<dyn Numbers>(&format!("Numbers/{name}"), Arc::new(Server::default())).unwrap()
    };
    let _exports: Vec<_> = there.iter().zip(["a", "b", "c"]).map(export).collect();
    test(&here.import_all::<dyn Numbers>("Numbers").unwrap());
}

#[test]
fn every_member_sends_a_stream() {
    everywhere(|group| {
        let gathered = group.multi().below(5_000).all();
        let mut count = 0;
        for outcome in gathered {
            let (name, Outcome::Result(stream)) = outcome else { panic!("a member failed") };
            assert!(name.starts_with("Numbers/"), "{name}");
            let all: Result<Vec<u64>> = stream.collect();
            assert_eq!(all.unwrap(), (0..5_000).collect::<Vec<u64>>());
            count += 1;
        }
        assert_eq!(count, 3);
        let (_, first) = group.multi().below(10).first().unwrap();
        assert_eq!(first.count(), 10);
        let (_, first) = block_on(group.multi().below(10).start().first()).unwrap();
        assert_eq!(first.count(), 10);
        // The streams of several members arrive side by side.
        let mut streams = Vec::new();
        group.multi().below(1_000).each(|reply| {
            streams.push(reply.result.unwrap());
            Next::Continue
        });
        for n in 0..1_000 {
            for stream in &mut streams {
                assert_eq!(stream.next().unwrap().unwrap(), n);
            }
        }
        assert!(streams.iter_mut().all(|stream| stream.next().is_none()));
    });
}

/// Answers by the length of the member's name, and notes who asked.
struct Asked(String, Arc<Mutex<Vec<String>>>);

impl NumbersHandler for Asked {
    fn which(&self, _: NumbersRaiser, time: u64) -> Answer<u64> {
        self.1.lock().unwrap().push(self.0.clone());
        Answer::Resume(time + 10)
    }
}

#[test]
fn a_handler_of_a_group_learns_which_member_asks() {
    everywhere(|group| {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let catching = group.multi().catching(|member| Asked(member.to_owned(), asked.clone()));
        for outcome in catching.asked(2).all() {
            let (_, Outcome::Result(stream)) = outcome else { panic!("a member failed") };
            assert_eq!(stream.collect::<Result<Vec<u64>>>().unwrap(), [10, 11]);
        }
        let mut all = std::mem::take(&mut *asked.lock().unwrap());
        all.sort();
        assert_eq!(all, ["Numbers/a", "Numbers/a", "Numbers/b", "Numbers/b", "Numbers/c", "Numbers/c"]);
    });
}

#[test]
fn a_group_of_one_member_is_called_alike() {
    let numbers = farcall::stub::local::<dyn Numbers>(Arc::new(Server::default()));
    let group = Group::of([("alone", numbers)]);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let catching = group.multi().catching(|member| Asked(member.to_owned(), asked.clone()));
    let (name, stream) = catching.asked(3).first().unwrap();
    assert_eq!((name.as_str(), stream.count()), ("alone", 3));
    assert_eq!(*asked.lock().unwrap(), ["alone"; 3]);
    for outcome in group.multi().texts(vec![], None).all() {
        assert!(matches!(outcome, (_, Outcome::Exception(Odd { number: 0 }))), "{outcome:?}");
    }
}
