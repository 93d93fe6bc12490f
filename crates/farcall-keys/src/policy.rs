//! The policy: which principal may call what.
//!
//! ```text
//! # allow | deny  PRINCIPAL  TYPE[/INSTANCE]  [PROCEDURE,...]
//! deny  eve       *
//! allow alice     Store/main   get,list_*
//! allow backup-*  Store        @memory:read
//! allow monitor   @health,@counters
//! allow ops       *
//! ```
//!
//! - The first rule that fits decides. What no rule fits is denied. So an empty policy denies everything;
//!   without a policy, everything is allowed.
//! - PRINCIPAL is a name, a beginning of names with `*` behind it, or `*`.
//! - TYPE is a type or `*`. INSTANCE is an instance, a beginning with `*` behind it, or `*`. TYPE alone means
//!   all of its instances.
//! - The last word lists procedures, with commas and without blanks: names, beginnings with `*` behind them,
//!   or `*` for all procedures. Besides, it may list what is no procedure: `@describe` (the interface),
//!   `@health`, `@counters`, `@memory:read`, `@memory:write`, and `@memory` for both.
//! - A rule without this list is about everything that the export offers: its procedures, and what begins
//!   with `@`. A rule whose third word begins with `@` is about all names: `allow monitor @health`.

use std::fmt;
use std::str::FromStr;

use crate::fault::LineFault;
use crate::lines::{self, ParseLine, Word, Words};
use crate::name::{Pattern, Scope};
use crate::text::shown;

/// The most rules of a policy.
pub const MAX_RULES: usize = 10_000;

const FORM: &str = "(allow | deny) PRINCIPAL TYPE[/INSTANCE] [PROCEDURE,...]";
const ADVICE: &str = "write a rule as: allow alice Store/main get,put";

/// Rules who may do what, in their order.
///
/// Its text has a rule on each line: `(allow | deny) PRINCIPAL TYPE[/INSTANCE] [PROCEDURE,...]`. The first
/// rule that fits decides, and what no rule fits is denied. A name may end with `*`. In place of procedures a
/// rule may have `@describe`, `@health`, `@counters`, `@memory:read`, `@memory:write` or `@memory`; a rule
/// without procedures is about all of these and all procedures.
///
/// ```
/// use farcall_keys::{Action, Policy};
///
/// let policy: Policy = "deny  eve *\n\
///                       allow alice Store/main get,list_*\n\
///                       allow monitor @health".parse()?;
/// let alice = policy.rights("alice", "Store", "main");
/// assert!(alice.allows_procedure("get") && !alice.allows_procedure("put"));
/// assert!(policy.rights("monitor", "Store", "main").allows(Action::Health));
/// # Ok::<(), farcall_keys::LineFault>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
}

/// A line of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    allows: bool,
    principal: Pattern,
    scope: Scope,
    about: About,
}

/// What a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
struct About {
    procedures: Vec<Pattern>,
    /// A bit for each [`Action`].
    actions: u8,
}

/// What can be done with an export besides calling its procedures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// Reads the description of its interface: `@describe`.
    Describe,
    /// Asks for its health: `@health`.
    Health,
    /// Reads the counters of its server: `@counters`.
    Counters,
    /// Reads its memory: `@memory:read`.
    MemoryRead,
    /// Writes and swaps words of its memory: `@memory:write`.
    MemoryWrite,
}

/// What one principal may do with one export. A server asks for it once for a conversation and an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether a procedure that none of `procedures` fits may be called.
    default: bool,
    /// The first that fits decides.
    procedures: Vec<(Pattern, bool)>,
    /// A bit for each [`Action`] that is allowed.
    actions: u8,
    /// Whether a policy has allowed [`Action::Counters`].
    sees_others: bool,
    /// Whether a segment's facts may be learnt by whom neither reading nor writing is allowed.
    learns_facts: bool,
    /// What has to allow everything as well.
    also: Option<Box<Decision>>,
}

impl Policy {
    /// Returns the policy that denies everything.
    pub fn new() -> Policy {
        Policy::default()
    }

    /// Adds a rule behind the others, as a line of a policy's text.
    ///
    /// # Errors
    /// If it is not a rule, or there are [`MAX_RULES`] already.
    pub fn with_rule(mut self, line: &str) -> Result<Policy, LineFault> {
        self.add(lines::parse_alone(line)?)?;
        Ok(self)
    }

    /// Returns what a principal may do with an instance of a type. Takes time in proportion to the number of
    /// rules.
    pub fn rights(&self, principal: &str, type_name: &str, instance: &str) -> Decision {
        let mut decision = Decision::nothing();
        let (mut is_default_open, mut open_actions) = (true, Action::ALL);
        let fits = |rule: &&Rule| rule.principal.fits(principal) && rule.scope.covers(type_name, instance);
        for rule in self.rules.iter().filter(fits) {
            if rule.allows {
                decision.actions |= rule.about.actions & open_actions;
            }
            open_actions &= !rule.about.actions;
            for procedure in rule.about.procedures.iter().take_while(|_| is_default_open) {
                if procedure.is_any() {
                    decision.default = rule.allows;
                    is_default_open = false;
                    break;
                }
                decision.procedures.push((procedure.clone(), rule.allows));
            }
            if !is_default_open && open_actions == 0 {
                break;
            }
        }
        decision.sees_others = decision.actions & Action::Counters.bit() != 0;
        decision
    }

    /// Returns the rules, in their order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Returns whether there are no rules, so that everything is denied.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Adds a rule behind the others.
    ///
    /// # Errors
    /// If there are [`MAX_RULES`] already.
    pub(crate) fn add(&mut self, rule: Rule) -> Result<(), LineFault> {
        if self.rules.len() == MAX_RULES {
            let advice = "join rules: a name may end with *, and a rule may list procedures";
            return Err(LineFault::new(format!("at most {MAX_RULES} rules"), "another rule", advice));
        }
        self.rules.push(rule);
        Ok(())
    }
}

impl Decision {
    /// Returns the decision where there is no policy: everything is allowed, except seeing what other clients
    /// do ([`Decision::shows_others`]).
    pub fn without_policy() -> Decision {
        Decision { default: true, actions: Action::ALL, ..Decision::nothing() }
    }

    /// Returns the decision that allows nothing except to learn a segment's facts.
    pub(crate) fn facts_alone() -> Decision {
        Decision { learns_facts: true, ..Decision::nothing() }
    }

    fn nothing() -> Decision {
        Decision {
            default: false,
            procedures: Vec::new(),
            actions: 0,
            sees_others: false,
            learns_facts: false,
            also: None,
        }
    }

    /// Returns the decision that allows what both of these allow.
    #[must_use]
    pub(crate) fn restricted_by(self, other: Decision) -> Decision {
        Decision { also: Some(Box::new(other)), ..self }
    }

    /// Returns whether the procedure may be called.
    pub fn allows_procedure(&self, procedure: &str) -> bool {
        let first = self.procedures.iter().find(|(pattern, _)| pattern.fits(procedure));
        first.map_or(self.default, |(_, allows)| *allows)
            && self.also.as_ref().is_none_or(|also| also.allows_procedure(procedure))
    }

    /// Returns whether the action is allowed.
    pub fn allows(&self, action: Action) -> bool {
        self.actions & action.bit() != 0 && self.also.as_ref().is_none_or(|also| also.allows(action))
    }

    /// Returns whether the client may learn a segment's facts: its size, its generation, and who may do what
    /// with it. Whoever may read or write it may.
    pub fn allows_facts(&self) -> bool {
        self.learns_facts || self.allows(Action::MemoryRead) || self.allows(Action::MemoryWrite)
    }

    /// Returns whether the client may see the conversations of other clients. A policy has to allow
    /// `@counters` for that: without one, a client sees its own conversations only.
    pub fn shows_others(&self) -> bool {
        self.sees_others && self.also.as_ref().is_none_or(|also| also.shows_others())
    }

    /// Returns whether every procedure may be called.
    pub fn allows_every_procedure(&self) -> bool {
        self.default
            && self.procedures.iter().all(|(_, allows)| *allows)
            && self.also.as_ref().is_none_or(|also| also.allows_every_procedure())
    }

    /// Returns whether nothing at all is allowed, as far as one policy says.
    pub fn denies_everything(&self) -> bool {
        let denies = self.actions == 0
            && !self.default
            && !self.learns_facts
            && self.procedures.iter().all(|(_, allows)| !allows);
        denies || self.also.as_ref().is_some_and(|also| also.denies_everything())
    }
}

impl Action {
    const EACH: [Action; 5] =
        [Action::Describe, Action::Health, Action::Counters, Action::MemoryRead, Action::MemoryWrite];

    /// The bits of all actions.
    const ALL: u8 = 0b1_1111;

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl ParseLine for Rule {
    fn parse_line(mut words: Words<'_>, _: &str) -> Result<Rule, LineFault> {
        let first = words.expect(FORM, "allow or deny", ADVICE)?;
        let allows = match first.text {
            "allow" => true,
            "deny" => false,
            other => {
                let found = format!("{} in place of allow or deny", shown(other));
                return Err(first.fault(FORM, found, ADVICE));
            }
        };
        let principal = words.expect(FORM, "principal", ADVICE)?;
        let principal =
            Pattern::principal(principal.text).map_err(|why| principal.name_fault(why, ADVICE))?;
        let name = words.expect(FORM, "name", ADVICE)?;
        let (scope, list) = match name.text.starts_with('@') {
            true => (Scope::any(), Some(name)),
            false => (name.text.parse().map_err(|why| name.name_fault(why, ADVICE))?, words.next()),
        };
        if let Some(more) = words.next() {
            let found = format!("{} behind the rule", shown(more.text));
            return Err(more.fault(
                FORM,
                found,
                "list procedures without blanks, and begin a comment with #",
            ));
        }
        let about = list.map_or_else(|| Ok(About::everything()), About::parse)?;
        Ok(Rule { allows, principal, scope, about })
    }
}

impl About {
    fn everything() -> About {
        About { procedures: vec![Pattern::any()], actions: Action::ALL }
    }

    fn parse(list: Word<'_>) -> Result<About, LineFault> {
        let mut about = About { procedures: Vec::new(), actions: 0 };
        for item in list.text.split(',') {
            about.actions |= match item {
                "@describe" => Action::Describe.bit(),
                "@health" => Action::Health.bit(),
                "@counters" => Action::Counters.bit(),
                "@memory:read" => Action::MemoryRead.bit(),
                "@memory:write" => Action::MemoryWrite.bit(),
                "@memory" => Action::MemoryRead.bit() | Action::MemoryWrite.bit(),
                unknown if unknown.starts_with('@') => {
                    let expected = "@describe, @health, @counters, @memory, @memory:read or @memory:write";
                    return Err(list.fault(expected, shown(unknown), ADVICE));
                }
                procedure => {
                    let procedure = Pattern::procedure(procedure);
                    let procedure = procedure.map_err(|why| list.name_fault(why, ADVICE))?;
                    about.procedures.push(procedure);
                    0
                }
            };
        }
        Ok(about)
    }
}

impl FromStr for Policy {
    type Err = LineFault;

    fn from_str(text: &str) -> Result<Policy, LineFault> {
        let mut policy = Policy::new();
        for line in lines::parse(text.as_bytes()) {
            let (number, rule) = line?;
            policy.add(rule).map_err(|why| why.at(number))?;
        }
        Ok(policy)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Action::Describe => "@describe",
            Action::Health => "@health",
            Action::Counters => "@counters",
            Action::MemoryRead => "@memory:read",
            Action::MemoryWrite => "@memory:write",
        })
    }
}

/// Says what the rule does, in a sentence.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rule { allows, principal, scope, about } = self;
        let who = if principal.is_any() { "everybody".to_owned() } else { principal.to_string() };
        write!(f, "{} {who} ", if *allows { "allows" } else { "denies" })?;
        let is_everything = about.actions == Action::ALL && about.procedures.iter().any(Pattern::is_any);
        if is_everything {
            f.write_str("everything")?;
        }
        let procedures = about.procedures.iter().map(|procedure| match procedure.is_any() {
            true => "every procedure".to_owned(),
            false => procedure.to_string(),
        });
        let actions = Action::EACH.iter().filter(|action| about.actions & action.bit() != 0);
        let all = procedures.chain(actions.map(Action::to_string)).filter(|_| !is_everything);
        for (number, word) in all.enumerate() {
            write!(f, "{}{word}", if number == 0 { "" } else { ", " })?;
        }
        match scope == &Scope::any() {
            true => f.write_str(" of every name"),
            false => write!(f, " of {scope}"),
        }
    }
}
