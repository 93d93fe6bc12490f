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
use crate::lines;
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

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
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
        self.add(parse_rule(line)?)?;
        Ok(self)
    }

    /// Returns what a principal may do with an instance of a type. Takes time in proportion to the number of
    /// rules.
    pub fn rights(&self, principal: &str, type_name: &str, instance: &str) -> Decision {
        let mut decision = Decision { default: false, procedures: Vec::new(), actions: 0 };
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
        decision
    }

    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Returns whether there are no rules, so that everything is denied.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    pub(crate) fn parse(content: &[u8]) -> Result<Policy, LineFault> {
        let mut policy = Policy::new();
        for line in lines::lines(content) {
            let (number, text) = line?;
            parse_rule(text).and_then(|rule| policy.add(rule)).map_err(|why| why.at(number))?;
        }
        Ok(policy)
    }

    fn add(&mut self, rule: Rule) -> Result<(), LineFault> {
        if self.rules.len() == MAX_RULES {
            let advice = "join rules: a name may end with *, and a rule may list procedures";
            return Err(LineFault::new(format!("at most {MAX_RULES} rules"), "another rule", advice));
        }
        self.rules.push(rule);
        Ok(())
    }
}

impl Decision {
    /// Returns the decision that allows everything.
    pub fn everything() -> Decision {
        Decision { default: true, procedures: Vec::new(), actions: Action::ALL }
    }

    /// Returns whether the procedure may be called.
    pub fn allows_procedure(&self, procedure: &str) -> bool {
        let first = self.procedures.iter().find(|(pattern, _)| pattern.fits(procedure));
        first.map_or(self.default, |(_, allows)| *allows)
    }

    /// Returns whether the action is allowed.
    pub fn allows(&self, action: Action) -> bool {
        self.actions & action.bit() != 0
    }

    /// Returns whether every procedure may be called.
    pub fn allows_every_procedure(&self) -> bool {
        self.default && self.procedures.iter().all(|(_, allows)| *allows)
    }

    /// Returns whether nothing at all is allowed.
    pub fn denies_everything(&self) -> bool {
        self.actions == 0 && !self.default && self.procedures.iter().all(|(_, allows)| !allows)
    }
}

impl Action {
    /// The bits of all actions.
    const ALL: u8 = 0b1_1111;

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

fn parse_rule(line: &str) -> Result<Rule, LineFault> {
    let wrong = |found: String| LineFault::new(FORM, found, ADVICE);
    let mut words = line.split_whitespace();
    let allows = match words.next() {
        Some("allow") => true,
        Some("deny") => false,
        other => {
            return Err(wrong(format!("{} in place of allow or deny", shown(other.unwrap_or_default()))));
        }
    };
    let principal = words.next().ok_or_else(|| wrong("no principal".to_owned()))?;
    let principal = Pattern::principal(principal).map_err(|why| LineFault::name(why, ADVICE))?;
    let name = words.next().ok_or_else(|| wrong("no name".to_owned()))?;
    let (scope, list) = match name.starts_with('@') {
        true => (Scope::any(), Some(name)),
        false => (name.parse().map_err(|why| LineFault::name(why, ADVICE))?, words.next()),
    };
    if let Some(more) = words.next() {
        return Err(LineFault::new(
            FORM,
            format!("{} behind the rule", shown(more)),
            "list procedures without blanks",
        ));
    }
    let about = list.map_or_else(|| Ok(About::everything()), About::parse)?;
    Ok(Rule { allows, principal, scope, about })
}

impl About {
    fn everything() -> About {
        About { procedures: vec![Pattern::any()], actions: Action::ALL }
    }

    fn parse(list: &str) -> Result<About, LineFault> {
        let mut about = About { procedures: Vec::new(), actions: 0 };
        for item in list.split(',') {
            about.actions |= match item {
                "@describe" => Action::Describe.bit(),
                "@health" => Action::Health.bit(),
                "@counters" => Action::Counters.bit(),
                "@memory:read" => Action::MemoryRead.bit(),
                "@memory:write" => Action::MemoryWrite.bit(),
                "@memory" => Action::MemoryRead.bit() | Action::MemoryWrite.bit(),
                unknown if unknown.starts_with('@') => {
                    let expected = "@describe, @health, @counters, @memory, @memory:read or @memory:write";
                    return Err(LineFault::new(expected, shown(unknown), ADVICE));
                }
                procedure => {
                    let procedure =
                        Pattern::procedure(procedure).map_err(|why| LineFault::name(why, ADVICE))?;
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
        Policy::parse(text.as_bytes())
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
