//! The laws of the interpreter: what every run of every net keeps to.

#[path = "reachable/random.rs"]
mod random;

use std::sync::Arc;
use std::time::Duration;

use farcall::Ran;
use farcall_olympus::interpreter::{Decision, Effect, Ended, FiringId, FiringState, Interpreter};
use farcall_olympus::model::{Graph, NodeId, PlaceId};
use farcall_olympus::rules::Rules;
use farcall_olympus::text;
use proptest::prelude::*;
use serde_json::{Value, json};

const NOW: Duration = Duration::ZERO;

fn unknown(why: &str) -> Ended {
    Ended::Failed { why: why.to_owned(), ran: Ran::Maybe }
}

/// Something that a driver or a user does.
#[derive(Clone, Debug)]
enum Step {
    Begin,
    /// Ends the firing at this position of those under way.
    End(prop::sample::Index, u8),
    /// Decides about a firing.
    Decide(prop::sample::Index, u8),
    Put(prop::sample::Index, u8),
    Take(prop::sample::Index, u8),
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        6 => Just(Step::Begin),
        6 => (index(), 0u8..8).prop_map(|(which, how)| Step::End(which, how)),
        2 => (index(), 0u8..4).prop_map(|(which, how)| Step::Decide(which, how)),
        1 => (index(), 0u8..4).prop_map(|(place, count)| Step::Put(place, count)),
        1 => (index(), 0u8..4).prop_map(|(place, count)| Step::Take(place, count)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_step_of_every_net_keeps_the_laws(
        net in 0u64..100_000,
        seed in 0u64..3,
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut graph = random::graph(net);
        // Every token is another, so that the order shows.
        for (at, place) in graph.places.iter_mut().enumerate() {
            place.tokens = (0..place.tokens.len()).map(|token| json!([at, token])).collect();
        }
        let graph = Arc::new(graph);
        let mut interpreter = Interpreter::new(Arc::clone(&graph), Rules::standard(), seed).unwrap();
        for step in steps {
            take_step(&graph, &mut interpreter, &step)?;
            keeps_the_laws(&graph, &interpreter)?;
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_run(net in 0u64..100_000, seed in 0u64..100) {
        let graph = Arc::new(random::graph(net));
        prop_assert_eq!(run(&graph, seed, 200), run(&graph, seed, 200));
    }
}

/// Begins and ends firings, the last one first, and returns the nodes in the order of their starts.
fn run(graph: &Arc<Graph>, seed: u64, most: usize) -> Vec<NodeId> {
    let mut interpreter = Interpreter::new(Arc::clone(graph), Rules::standard(), seed).unwrap();
    let mut nodes = Vec::new();
    while nodes.len() < most
        && let Some(firing) = interpreter.begin(NOW)
    {
        let (id, node) = (firing.id, firing.node);
        nodes.push(node);
        let _ = interpreter.end(id, Ended::Returned(json!({"ok": true})));
    }
    nodes
}

fn take_step(graph: &Graph, interpreter: &mut Interpreter, step: &Step) -> Result<(), TestCaseError> {
    let mut firings: Vec<FiringId> = interpreter.under_way().map(|firing| firing.id).collect();
    firings.sort_unstable();
    let before = interpreter.marking().clone();
    match step {
        Step::Begin => {
            if let Some(id) = interpreter.begin(NOW).map(|firing| firing.id) {
                // What does not run leaves everything as it was.
                let mut other = interpreter.clone();
                prop_assert_eq!(other.end(id, Ended::NotRun("no".into())), Ok(Effect::PutBack));
                prop_assert_eq!(other.marking(), &before);
            }
        }
        Step::End(which, how) if !firings.is_empty() => {
            let ended = match how {
                0 => Ended::NotRun("no server".into()),
                1 => unknown("no answer"),
                2 => Ended::Declared { name: "Full".into(), value: json!(1) },
                3 => Ended::Declared { name: "Odd".into(), value: json!(2) },
                4 => Ended::Returned(Value::Null),
                how => Ended::Returned(json!({"ok": *how == 5})),
            };
            let _ = interpreter.end(*which.get(&firings), ended);
        }
        Step::Decide(which, how) if !firings.is_empty() => {
            let decision = match how {
                0 => Decision::Retry,
                1 => Decision::PutBack,
                2 => Decision::Discard,
                _ => Decision::Return(json!({"ok": true})),
            };
            let _ = interpreter.decide(*which.get(&firings), decision);
        }
        Step::Put(place, count) => {
            let place = PlaceId(place.index(graph.places.len()) as u32);
            let room = before.get(place).unwrap().room();
            let put = interpreter.put(place, vec![json!("put"); usize::from(*count)]);
            prop_assert_eq!(put.is_ok(), room >= u32::from(*count));
        }
        Step::Take(place, count) => {
            let place = PlaceId(place.index(graph.places.len()) as u32);
            let taken = interpreter.take(place, usize::from(*count));
            prop_assert_eq!(taken.len(), (before.count(place) as usize).min(usize::from(*count)));
        }
        _ => {}
    }
    Ok(())
}

fn keeps_the_laws(graph: &Arc<Graph>, interpreter: &Interpreter) -> Result<(), TestCaseError> {
    // The interpreter finds a node that may begin exactly if there is one, though it looks at few nodes.
    let enabled = |of: &Interpreter| {
        let nodes = (0..graph.nodes.len()).map(|at| NodeId(at as u32));
        nodes.filter(|node| of.may_begin(*node)).collect::<Vec<_>>()
    };
    let mut other = interpreter.clone();
    let begun = other.begin(NOW).map(|firing| firing.node);
    prop_assert_eq!(begun.is_some(), !enabled(interpreter).is_empty());
    prop_assert!(begun.is_none_or(|node| enabled(interpreter).contains(&node)));
    // A place exceeds its capacity only by tokens that were put back. So does the room that is reserved.
    for (at, place) in graph.places.iter().enumerate() {
        let there = interpreter.marking().get(PlaceId(at as u32)).unwrap();
        let fits = |firing: &&farcall_olympus::interpreter::Firing| {
            let node = &graph.nodes[firing.node.0 as usize];
            node.outputs.iter().any(|output| output.place.0 as usize == at)
        };
        if interpreter.under_way().filter(fits).count() == 0 {
            prop_assert_eq!(there.reserved, 0, "{}", place.name);
        }
    }
    // A run that is saved goes on as the same run.
    let saved = interpreter.save();
    let written: farcall_olympus::interpreter::Saved =
        serde_json::from_str(&serde_json::to_string(&saved).unwrap()).unwrap();
    prop_assert_eq!(&written, &saved);
    let resumed = Interpreter::resume(Arc::clone(graph), Rules::standard(), written).unwrap();
    prop_assert_eq!(resumed.marking(), interpreter.marking());
    prop_assert_eq!(resumed.save(), saved);
    prop_assert_eq!(enabled(&resumed), enabled(interpreter));
    Ok(())
}

/// An interpreter of a graph in the text format, and its places by name.
struct Net(Interpreter);

impl Net {
    fn of(source: &str) -> Net {
        let graph = text::parse("net.olympus", source).unwrap_or_else(|errors| panic!("{errors}"));
        Net(Interpreter::new(Arc::new(graph), Rules::standard(), 0).unwrap())
    }

    fn begin(&mut self) -> Option<(FiringId, String)> {
        let firing = self.0.begin(NOW)?;
        let (id, node) = (firing.id, firing.node);
        Some((id, self.0.graph().nodes[node.0 as usize].name.clone()))
    }

    fn end(&mut self, id: FiringId, value: Value) -> Effect {
        self.0.end(id, Ended::Returned(value)).unwrap()
    }

    /// Begins and ends firings until no node may begin, and returns how many there were.
    fn run(&mut self) -> usize {
        let mut count = 0;
        while let Some((id, _)) = self.begin() {
            assert_eq!(self.end(id, Value::Null), Effect::Put);
            count += 1;
        }
        count
    }

    fn tokens(&self, place: &str) -> Vec<Value> {
        let place = self.0.graph().place(place).unwrap();
        self.0.marking().get(place).unwrap().tokens.iter().cloned().collect()
    }
}

#[test]
fn deterministic_nets_fire_as_often_as_their_formula_says() {
    // A chain of n nodes with k tokens: n k. A tree of depth d: 2^d - 1. Pairs joined to one of n: n - 1.
    for (n, k) in [(1, 1), (5, 3), (40, 7)] {
        let mut chain = format!("place p0 tokens {k}\n");
        for at in 1..=n {
            chain += &format!("place p{at}\nnode n{at}\n  in p{}\n  out p{at}\n", at - 1);
        }
        let mut net = Net::of(&chain);
        assert_eq!((net.run(), net.tokens(&format!("p{n}")).len()), (n * k, k));
    }
    for depth in [1, 4, 9] {
        let mut tree = "place p1 tokens 1\n".to_owned();
        for at in 1..1 << depth {
            let (left, right) = (2 * at, 2 * at + 1);
            tree += &format!(
                "place p{left}\nplace p{right}\nnode n{at}\n  in p{at}\n  out p{left}\n  out p{right}\n"
            );
        }
        assert_eq!(Net::of(&tree).run(), (1 << depth) - 1);
    }
    for n in [1, 2, 3, 100] {
        let mut net = Net::of(&format!("place p tokens {n}\nnode n\n  in p *2\n  out p\n"));
        assert_eq!((net.run(), net.tokens("p").len()), (n - 1, 1));
    }
    // Producer and consumer: 2 n. A precedence graph: each node once.
    let mut net = Net::of(
        "place work tokens 9\nplace buffer capacity 2\nnode produce\n  in work\n  out buffer\n\
                           node consume\n  in buffer\n",
    );
    assert_eq!(net.run(), 18);
    let precedence = include_str!("nets/precedence.olympus");
    assert_eq!(Net::of(precedence).run(), precedence.matches("\nnode ").count());
}

#[test]
fn values_flow_from_inputs_and_results_to_outputs() {
    let mut net = Net::of(
        "place a = 1, 2\nplace b = \"x\", \"y\"\nplace c = {\"k\": 5}\nplace d\nnode n\n  in a *2 as both\n  in b as b\n  \
         read c as c\n  guard c.k == 5 && len(both) == 2\n  call S p [both[1], b]\n  out d = [both, result.ok]\n  \
         out d = c.k + both[0]\n",
    );
    let firing = net.0.begin(NOW).unwrap().clone();
    assert_eq!(firing.arguments, Some(json!([2, "x"])));
    assert_eq!(net.end(firing.id, json!({"ok": true})), Effect::Put);
    assert_eq!(net.tokens("d"), [json!([[1, 2], true]), json!(6)]);
    assert_eq!((net.tokens("c").len(), net.tokens("b")), (1, vec![json!("y")]));
}

#[test]
fn what_did_not_run_goes_back_in_order_before_all_others() {
    let mut net = Net::of("place a = 1, 2, 3, 4, 5\nplace b\nnode n\n  in a *2 as x\n  out b = x\n");
    let (first, _) = net.begin().unwrap();
    let (second, _) = net.begin().unwrap();
    assert_eq!(net.tokens("a"), [json!(5)]);
    let not_run = || Ended::NotRun("no server".into());
    assert_eq!(net.0.end(second, not_run()), Ok(Effect::PutBack));
    assert_eq!(net.tokens("a"), [json!(3), json!(4), json!(5)]);
    assert_eq!(net.0.end(first, not_run()), Ok(Effect::PutBack));
    assert_eq!(net.tokens("a"), [json!(1), json!(2), json!(3), json!(4), json!(5)]);
    assert!(net.0.end(first, not_run()).is_err());
}

#[test]
fn room_is_reserved_from_the_start_to_the_end() {
    let mut net = Net::of("place a tokens 3\nplace b capacity 2\nnode n\n  in a\n  out b\nnode m\n  in b\n");
    let (first, _) = net.begin().unwrap();
    let (second, _) = net.begin().unwrap();
    assert!(net.begin().is_none(), "the room of b is reserved");
    assert!(net.0.put(net.0.graph().place("b").unwrap(), vec![Value::Null]).is_err());
    net.end(first, Value::Null);
    let (third, node) = net.begin().unwrap();
    assert_eq!(node, "m");
    let (fourth, node) = net.begin().unwrap();
    assert_eq!(node, "n", "m has taken its token at its start");
    for firing in [second, third, fourth] {
        net.end(firing, Value::Null);
    }
    assert_eq!(net.tokens("b").len(), 2);
}

#[test]
fn room_that_an_end_does_not_use_is_free_for_others() {
    for when in [" if result == 1", " on Full"] {
        let mut net = Net::of(&format!(
            "place a tokens 1\nplace b capacity 1\nplace c tokens 1\nnode n\n  in a\n  call S p\n  split one\n  out b{when}\n\
             node m\n  in c\n  out b\n"
        ));
        let (first, node) = net.begin().unwrap();
        assert_eq!((&*node, net.begin()), ("n", None), "the room of b is reserved");
        assert_eq!(net.end(first, json!(2)), Effect::Put);
        assert_eq!(net.begin().map(|(_, node)| node).as_deref(), Some("m"), "{when}");
    }
}

#[test]
fn greater_priorities_begin_first_and_equal_ones_take_turns() {
    let mut net = Net::of(
        "place a tokens 6\nplace b tokens 1\nnode low\n  in a\nnode even1\n  in a\n  priority 1\nnode even2\n  in a\n  \
         priority 1\nnode high\n  in b\n  in a\n  priority 2\n",
    );
    let order: Vec<String> = std::iter::from_fn(|| net.begin().map(|(_, node)| node)).collect();
    assert_eq!(order, ["high", "even1", "even2", "even1", "even2", "even1"]);
}

#[test]
fn inhibitors_refuse_while_there_are_tokens() {
    let mut net = Net::of("place a tokens 5\nplace b tokens 1\nnode n\n  in a\n  inhibit b *2\n");
    let b = net.0.graph().place("b").unwrap();
    assert!(net.begin().is_some());
    net.0.put(b, vec![Value::Null]).unwrap();
    assert!(net.begin().is_none());
    net.0.take(b, 1);
    assert!(net.begin().is_some());
}

#[test]
fn joins_take_from_all_any_or_one() {
    for (join, tokens, left) in [
        ("all", [1, 1], Some([0, 0])),
        ("all", [2, 0], None),
        ("any", [1, 1], Some([0, 0])),
        ("any", [0, 2], Some([0, 1])),
        ("any", [0, 0], None),
        ("one", [1, 1], Some([0, 1])),
        ("one", [0, 1], Some([0, 0])),
        ("one", [0, 0], None),
    ] {
        let [a, b] = tokens;
        let source = format!(
            "place a tokens {a}\nplace b tokens {b}\nplace c\nnode n\n  join {join}\n  in a as x\n  in b as y\n  out c = [x, y]\n"
        );
        let mut net = Net::of(&source);
        let begun = net.begin().map(|_| [net.tokens("a").len(), net.tokens("b").len()]);
        assert_eq!(begun, left, "{join} {tokens:?}");
    }
}

#[test]
fn splits_put_to_all_any_or_one() {
    for (split, result, put) in [
        ("all", 3, [1, 1, 1]),
        ("any", 3, [1, 1, 1]),
        ("any", 1, [0, 1, 1]),
        ("one", 3, [1, 0, 0]),
        ("one", 1, [0, 1, 0]),
        ("one", 0, [0, 0, 1]),
    ] {
        let when = if split == "all" { ["", ""] } else { [" if result > 2", " if result > 0"] };
        let source = format!(
            "place go tokens 1\nplace a\nplace b\nplace c\nnode n\n  in go\n  split {split}\n  out a{}\n  out b{}\n  out c\n",
            when[0], when[1]
        );
        let mut net = Net::of(&source);
        let (id, _) = net.begin().unwrap();
        assert_eq!(net.end(id, json!(result)), Effect::Put);
        assert_eq!(["a", "b", "c"].map(|place| net.tokens(place).len()), put, "{split} {result}");
    }
}

#[test]
fn timed_nodes_take_at_once_and_call_later() {
    let mut net = Net::of("place a = 1, 2\nplace b\nnode n\n  in a as x\n  after 10ms\n  out b = x\n");
    let ms = Duration::from_millis;
    let first = net.0.begin(ms(1)).unwrap().id;
    let second = net.0.begin(ms(5)).unwrap().id;
    assert_eq!((net.tokens("a").len(), net.0.next_time()), (0, Some(ms(11))));
    assert!(net.0.end(first, Ended::Returned(Value::Null)).is_err(), "it has not been called");
    assert!(net.0.due(ms(10)).is_none());
    assert_eq!(net.0.due(ms(11)).map(|firing| firing.id), Some(first));
    assert!(net.0.due(ms(14)).is_none());
    let resumed = Interpreter::resume(Arc::clone(net.0.graph()), Rules::standard(), net.0.save()).unwrap();
    assert_eq!(resumed.next_time(), Some(ms(15)));
    assert_eq!(net.0.due(ms(20)).map(|firing| firing.id), Some(second));
    net.end(second, Value::Null);
    net.end(first, Value::Null);
    assert_eq!((net.tokens("b"), net.0.next_time()), (vec![json!(2), json!(1)], None));
}

#[test]
fn a_node_that_is_held_begins_when_its_time_has_come() {
    let mut net = Net::of("place a tokens 2\nnode n\n  in a\n");
    let (id, _) = net.begin().unwrap();
    net.0.end(id, Ended::NotRun("no server".into())).unwrap();
    let until = Duration::from_secs(1);
    net.0.hold(NodeId(0), until);
    assert!(net.begin().is_none());
    assert_eq!(net.0.next_time(), Some(until));
    assert!(net.0.begin(until).is_some());
    assert_eq!(net.0.next_time(), None);
}

#[test]
fn what_is_not_known_to_have_run_stops_the_node_until_somebody_decides() {
    let source = "place a = 1, 2, 3, 4, 5\nplace b\nplace c\nnode n\n  in a as x\n  call S p [x]\n  out b = result\n  \
                  out c on Known = [x, error]\n";
    let mut net = Net::of(source);
    let (first, _) = net.begin().unwrap();
    let (second, _) = net.begin().unwrap();
    assert_eq!(net.0.end(first, unknown("no answer")), Ok(Effect::Stopped));
    assert!(net.begin().is_none(), "the node has stopped");
    assert!(matches!(net.0.firing(first).unwrap().state, FiringState::Stopped(_)));
    assert!(net.0.decide(second, Decision::Discard).is_err(), "it has not stopped");
    let known = Ended::Declared { name: "Known".into(), value: json!("e") };
    assert_eq!(net.0.end(second, known), Ok(Effect::Put));
    assert_eq!(net.tokens("c"), [json!([2, "e"])]);
    assert_eq!(net.0.decide(first, Decision::Retry), Ok(Effect::Again));
    let odd = Ended::Declared { name: "Odd".into(), value: Value::Null };
    assert_eq!(net.0.end(first, odd), Ok(Effect::Stopped), "no output is for the exception");
    assert_eq!(net.0.decide(first, Decision::Return(json!("as if"))), Ok(Effect::Put));
    assert_eq!(net.tokens("b"), [json!("as if")]);
    let (third, _) = net.begin().unwrap();
    net.0.end(third, unknown("")).unwrap();
    assert_eq!(net.0.decide(third, Decision::PutBack), Ok(Effect::PutBack));
    assert_eq!(net.tokens("a"), [json!(3), json!(4), json!(5)]);
    let (fourth, _) = net.begin().unwrap();
    net.0.end(fourth, unknown("")).unwrap();
    assert_eq!(net.0.decide(fourth, Decision::Discard), Ok(Effect::Discarded));
    assert_eq!((net.tokens("a").len(), net.0.under_way_count()), (2, 0));
    assert!(net.begin().is_some());
}

#[test]
fn what_cannot_be_computed_stops_the_firing_and_keeps_its_tokens() {
    let mut net = Net::of(
        "place a = 1, {\"f\": 2}\nplace b\nnode n\n  in a as x\n  call S p [x.f]\n  out b = result.g\n",
    );
    let firing = net.0.begin(NOW).unwrap();
    let id = firing.id;
    assert!(matches!(firing.state, FiringState::Stopped(_)), "{:?}", firing.state);
    assert_eq!(net.0.decide(id, Decision::Discard), Ok(Effect::Discarded));
    let (id, _) = net.begin().unwrap();
    assert_eq!(net.end(id, json!(1)), Effect::Stopped);
    assert_eq!(net.0.decide(id, Decision::Return(json!({"g": 7}))), Ok(Effect::Put));
    assert_eq!(net.tokens("b"), [json!(7)]);
    let mut net = Net::of("place a = 1\nnode n\n  in a as x\n  guard x.f\n");
    assert!(net.begin().is_none());
    let complaints: Vec<_> = net.0.complaints().map(|(_, why)| why.to_owned()).collect();
    assert_eq!(complaints, ["the guard x.f: a number has no field f"]);
    net.0.take(PlaceId(0), 1);
    net.0.put(PlaceId(0), vec![json!({"f": true})]).unwrap();
    assert!(net.begin().is_some());
    assert_eq!(net.0.complaints().count(), 0);
}

/// A call that is made again has the arguments that the node gives it now.
#[test]
fn a_retry_computes_the_arguments_of_the_edited_node() {
    let source =
        |arguments: &str| format!("place a = {{\"f\": 2}}\nnode n\n  in a as x\n  call S p {arguments}\n");
    let mut net = Net::of(&source("[x.g]"));
    let id = net.0.begin(NOW).unwrap().id;
    let edit = |net: &mut Net, arguments: &str| {
        let new = Arc::new(text::parse("edited", &source(arguments)).unwrap());
        net.0.edit(new, Some, Some).unwrap();
    };
    let why = |net: &Net| match &net.0.firing(id).unwrap().state {
        FiringState::Stopped(failure) => (failure.to_string(), failure.ran()),
        state => panic!("{state:?}"),
    };
    assert_eq!(net.0.decide(id, Decision::Retry), Ok(Effect::Stopped));
    assert_eq!(why(&net), ("the arguments [x.g]: the object has no field g".into(), Ran::No));
    edit(&mut net, "[x.f]");
    assert_eq!(net.0.decide(id, Decision::Retry), Ok(Effect::Again));
    assert_eq!(net.0.firing(id).unwrap().arguments, Some(json!([2])));
    assert_eq!(net.0.end(id, unknown("no answer")), Ok(Effect::Stopped));
    edit(&mut net, "[x.f + 1]");
    assert_eq!(net.0.decide(id, Decision::Retry), Ok(Effect::Again));
    assert_eq!(net.0.firing(id).unwrap().arguments, Some(json!([3])));
    // What may have run is not said to have not run because the next call could not be made.
    assert_eq!(net.0.end(id, unknown("no answer")), Ok(Effect::Stopped));
    edit(&mut net, "[x.h]");
    assert_eq!(net.0.decide(id, Decision::Retry), Ok(Effect::Stopped));
    assert_eq!(why(&net), ("the arguments [x.h]: the object has no field h".into(), Ran::Maybe));
    assert_eq!(net.0.decide(id, Decision::PutBack), Ok(Effect::PutBack));
    assert_eq!(net.tokens("a").len(), 1);
}

#[test]
fn an_edited_graph_goes_on_with_its_tokens_and_firings() {
    let mut net = Net::of("place a = 1, 2\nplace b\nnode n\n  in a as x\n  out b = x\n");
    let (id, _) = net.begin().unwrap();
    let source =
        "place c tokens 1\nplace b\nplace a\nnode m\n  in b\n  out c\nnode n\n  in a as x\n  out b = [x]\n";
    let new = Arc::new(text::parse("edited", source).unwrap());
    let old = Arc::clone(net.0.graph());
    let place = |id: PlaceId| new.place(&old.places[id.0 as usize].name);
    let node = |id: NodeId| new.node(&old.nodes[id.0 as usize].name);
    let without = Arc::new(text::parse("edited", "place a\nplace b\n").unwrap());
    assert!(
        net.0
            .edit(Arc::clone(&without), |id| without.place(&old.places[id.0 as usize].name), |_| None)
            .is_err()
    );
    assert_eq!(net.tokens("a"), [json!(2)], "an edit that is refused changes nothing");
    net.0.edit(Arc::clone(&new), place, node).unwrap();
    assert_eq!((net.tokens("a"), net.tokens("c").len()), (vec![json!(2)], 1));
    assert_eq!(net.end(id, Value::Null), Effect::Put);
    assert_eq!(net.tokens("b"), [json!([1])]);
    assert_eq!((net.run(), net.tokens("c").len()), (3, 3));
}

#[test]
fn users_may_add_rules() {
    /// Lets nodes begin only while the place `open` has a token, if they have an arc to it.
    #[derive(Debug)]
    struct AtMost(u32);
    impl farcall_olympus::rules::Rule for AtMost {
        fn applies(&self, node: &farcall_olympus::model::Node) -> bool {
            !node.outputs.is_empty()
        }

        fn begin(
            &self,
            look: &farcall_olympus::rules::Look<'_>,
            _: &mut Vec<u32>,
        ) -> Result<(), farcall_olympus::rules::Blocked> {
            let place = look.node.outputs[0].place;
            if look.marking.count(place) < self.0 {
                Ok(())
            } else {
                Err(farcall_olympus::rules::Blocked::Fewer(place))
            }
        }
    }
    let graph = text::parse("rules", "place a tokens 5\nplace b\nnode n\n  in a\n  out b\n").unwrap();
    let interpreter = Interpreter::new(Arc::new(graph), Rules::standard().with(AtMost(2)), 0).unwrap();
    let mut net = Net(interpreter);
    assert_eq!((net.run(), net.tokens("b").len()), (2, 2));
    net.0.take(PlaceId(1), 1);
    assert_eq!(net.run(), 1);
}

#[test]
fn ten_thousand_nodes_at_one_place_are_not_looked_at_again_and_again() {
    let mut source = "place pool tokens 1\nplace go tokens 20000\nplace never\n".to_owned();
    for at in 0..10_000 {
        source += &format!("node n{at}\n  in never\n  in pool\n");
    }
    source += "node busy\n  in go\n  read pool\n";
    let mut net = Net::of(&source);
    assert_eq!(net.run(), 20_000);
}

/// The copies of a large token are bounded together, not each.
#[test]
fn an_arc_does_not_copy_a_large_value_without_bound() {
    let graph = json!({
        "places": [{"name": "from", "tokens": ["x".repeat(1 << 20)]}, {"name": "to"}],
        "nodes": [{
            "name": "n", "in": [{"place": 0, "as": "x"}],
            "out": [{"place": 1, "weight": 1 << 20, "value": "x"}],
        }],
    });
    let graph = Arc::new(serde_json::from_value(graph).unwrap());
    let mut interpreter = Interpreter::new(graph, Rules::standard(), 0).unwrap();
    let firing = interpreter.begin(Duration::ZERO).unwrap().id;
    assert_eq!(interpreter.end(firing, Ended::Returned(json!(null))), Ok(Effect::Stopped));
}
