//! Rebuilds a run from its journal.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::interpreter::{Effect, FiringId, Interpreter, Problem};
use crate::journal::{Damaged, Journal, Record, VERSION, read};
use crate::model::{Graph, NodeId, PlaceId};
use crate::rules::Rules;

/// A run as its journal tells it. [`Run::resume`](super::Run::resume) goes on with it.
pub struct Past {
    pub(super) interpreter: Interpreter,
    pub(super) journal: Option<Journal>,
    /// The firings that were under way, whose calls may have been sent, and whether their procedures may be
    /// called again.
    pub(super) called: BTreeMap<FiringId, bool>,
    /// How many calls were made for each firing that has not ended.
    pub(super) attempts: HashMap<FiringId, u32>,
    /// What the graph's clock showed last.
    pub(super) now: Duration,
}

/// What was read of a journal.
struct Reader {
    rules: Rules,
    past: Option<Past>,
}

impl Past {
    /// Reads the journal in a file, and opens the file to add to it. `rules` are those of the recorded run.
    ///
    /// # Errors
    /// When the file cannot be read or written, another process has it open, or it is no journal of a run.
    pub fn open(path: &Path, rules: Rules) -> Result<Past, Damaged> {
        let mut reader = Reader { rules, past: None };
        let journal = Journal::open(path, |record| reader.take(record))?;
        Ok(reader.end()?.with_journal(journal))
    }

    /// Reads a journal. `rules` are those of the recorded run.
    ///
    /// # Errors
    /// When the bytes cannot be read, or are no journal of a run.
    pub fn read(from: impl BufRead, rules: Rules) -> Result<Past, Damaged> {
        let mut reader = Reader { rules, past: None };
        read(from, |record| reader.take(record))?;
        reader.end()
    }

    /// Has the run record in this journal what happens from now on. It must hold the records that were read.
    #[must_use]
    pub fn with_journal(self, journal: Journal) -> Past {
        Past { journal: Some(journal), ..self }
    }

    /// Returns the interpreter as the run has left it: the graph, the marking, and the firings under way.
    pub fn interpreter(&self) -> &Interpreter {
        &self.interpreter
    }

    /// Returns the firings whose calls may have been sent, and have no outcome.
    pub fn may_have_run(&self) -> impl Iterator<Item = FiringId> {
        self.called.keys().copied()
    }

    fn take(&mut self, record: Record) -> Result<(), Damaged> {
        let interpreter = &mut self.interpreter;
        match record {
            Record::Graph { graph, .. } => drop(edit(interpreter, graph).map_err(differs)?),
            Record::Begin { firing, node, now, calls, again } => {
                let now = Duration::from_nanos(now);
                self.now = self.now.max(now);
                let begun = interpreter.begin_node(NodeId(node), now);
                let begun = begun
                    .map_err(|why| Damaged::contradiction(format!("node {node} cannot begin: {why:?}")))?;
                if begun.id.0 != firing {
                    let why = format!("firing {firing} has the number {}", begun.id.0);
                    return Err(Damaged::contradiction(why));
                }
                if calls {
                    self.calls(FiringId(firing), again);
                }
            }
            Record::Call { firing, again } => {
                if interpreter.firing(FiringId(firing)).is_none() {
                    return Err(Damaged::contradiction(format!("firing {firing} is not under way")));
                }
                self.calls(FiringId(firing), again);
            }
            Record::Due { firing, now } => {
                let now = Duration::from_nanos(now);
                self.now = self.now.max(now);
                if interpreter.due(now).map(|due| due.id.0) != Some(firing) {
                    return Err(Damaged::contradiction(format!("firing {firing} is not due")));
                }
            }
            Record::End { firing, ended } => {
                let firing = FiringId(firing);
                let effect = interpreter.end(firing, ended).map_err(differs)?;
                self.called.remove(&firing);
                if effect != Effect::Stopped {
                    self.attempts.remove(&firing);
                }
            }
            Record::Put { place, tokens } => interpreter.put(PlaceId(place), tokens).map_err(differs)?,
            Record::Take { place, count } => drop(interpreter.take(PlaceId(place), count as usize)),
            Record::Decide { firing, decision } => {
                let firing = FiringId(firing);
                let effect = interpreter.decide(firing, decision).map_err(differs)?;
                if !matches!(effect, Effect::Stopped | Effect::Again) {
                    self.attempts.remove(&firing);
                }
            }
        }
        Ok(())
    }

    /// Notes that the procedure of a firing is called.
    fn calls(&mut self, firing: FiringId, again: bool) {
        self.called.insert(firing, again);
        let attempts = self.attempts.entry(firing).or_default();
        *attempts = attempts.saturating_add(1);
    }
}

fn differs(why: Problem) -> Damaged {
    Damaged::contradiction(why.to_string())
}

impl Reader {
    fn take(&mut self, record: Record) -> Result<(), Damaged> {
        if let Some(past) = &mut self.past {
            return past.take(record);
        }
        let Record::Graph { version, seed, graph } = record else {
            return Err(Damaged::contradiction("the first record is not the graph"));
        };
        if version != VERSION {
            let why = format!("the journal has version {version}; this program reads version {VERSION}");
            return Err(Damaged::contradiction(why));
        }
        let interpreter = Interpreter::new(Arc::new(graph), self.rules.clone(), seed).map_err(differs)?;
        let (called, attempts, now) = (BTreeMap::new(), HashMap::new(), Duration::ZERO);
        self.past = Some(Past { interpreter, journal: None, called, attempts, now });
        Ok(())
    }

    fn end(self) -> Result<Past, Damaged> {
        self.past.ok_or_else(|| Damaged::contradiction("the journal has no graph"))
    }
}

/// Has the interpreter go on with an edited graph. A place or node is the one of the same name; if no other
/// has its name or its index, it is the one of the same index. Returns, for each former node, which node of
/// the new graph it is.
///
/// # Errors
/// When the run does not fit the new graph. Nothing has changed then.
pub(super) fn edit(interpreter: &mut Interpreter, graph: Graph) -> Result<Vec<Option<NodeId>>, Problem> {
    let before = interpreter.graph().clone();
    let places = renamed(
        before.places.iter().map(|place| place.name.as_str()).collect(),
        graph.places.iter().map(|place| place.name.as_str()).collect(),
    );
    let nodes = renamed(
        before.nodes.iter().map(|node| node.name.as_str()).collect(),
        graph.nodes.iter().map(|node| node.name.as_str()).collect(),
    );
    let nodes: Vec<Option<NodeId>> = nodes.into_iter().map(|node| node.map(NodeId)).collect();
    interpreter.edit(
        Arc::new(graph),
        |place| places.get(place.0 as usize).copied().flatten().map(PlaceId),
        |node| nodes.get(node.0 as usize).copied().flatten(),
    )?;
    Ok(nodes)
}

/// Returns, for each old name, the index that it has among the new names.
fn renamed(old: Vec<&str>, new: Vec<&str>) -> Vec<Option<u32>> {
    let index = |names: &[&str]| -> HashMap<String, u32> {
        names.iter().enumerate().map(|(at, name)| ((*name).to_owned(), at as u32)).collect()
    };
    let (known, now) = (index(&old), index(&new));
    let find = |(at, name): (usize, &&str)| {
        let same = now.get(*name).copied();
        same.or_else(|| new.get(at).filter(|name| !known.contains_key(**name)).map(|_| at as u32))
    };
    old.iter().enumerate().map(find).collect()
}

impl fmt::Debug for Past {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Past").field("called", &self.called).field("now", &self.now).finish_non_exhaustive()
    }
}
