//! Who may export and import what, in a registry file's directory: the document `acl`.
//!
//! ```text
//! # The first rule that fits decides. What no rule fits is denied.
//! allow export Store/main by stored
//! allow export Store/replica-* by stored,storectl
//! deny  import Secret
//! allow import *
//! ```
//!
//! All processes that can open the directory are the same user's, so the operating system cannot tell them
//! apart by more than their programs, and a program that does not use farcall can write what it likes. The
//! document keeps well-meant programs apart, as etcd's roles do among machines.

use std::sync::OnceLock;

use crate::{Label, MAX_LABEL, MAX_NAME};

/// The most bytes of the document.
pub(crate) const MAX_ACL: usize = 64 << 10;

/// The most programs of a rule.
const MAX_PROGRAMS: usize = 64;

/// What is to be done with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Export,
    Import,
}

/// The rules, in their order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Acl {
    rules: Vec<Rule>,
}

#[derive(Debug, PartialEq, Eq)]
struct Rule {
    line: usize,
    text: String,
    allows: bool,
    action: Action,
    type_name: Pattern,
    instance: Pattern,
    /// The programs for which the rule is; empty if it is for all.
    programs: Vec<String>,
}

/// A name, or its beginning.
#[derive(Debug, PartialEq, Eq)]
struct Pattern {
    text: String,
    /// Whether anything may follow.
    open: bool,
}

impl Acl {
    /// Reads the document.
    ///
    /// # Errors
    /// The line, counted from 1, and what is wrong there.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Acl, (usize, String)> {
        let text = crate::format::text(bytes, MAX_ACL)?;
        let mut rules = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            let rule = line.split('#').next().unwrap_or_default().trim();
            if !rule.is_empty() {
                rules.push(parse_rule(rule, number).map_err(|why| (number, why))?);
            }
        }
        Ok(Acl { rules })
    }

    /// Checks whether a program may do something with an instance of a type.
    ///
    /// # Errors
    /// The rule that denies it.
    pub(crate) fn check(
        &self,
        action: Action,
        type_name: &Label,
        instance: &Label,
        program: &str,
    ) -> Result<(), String> {
        let fits = |rule: &&Rule| {
            rule.action == action
                && rule.type_name.fits(type_name.as_str())
                && rule.instance.fits(instance.as_str())
                && (rule.programs.is_empty() || rule.programs.iter().any(|each| each == program))
        };
        match self.rules.iter().find(fits) {
            Some(rule) if rule.allows => Ok(()),
            Some(rule) => Err(format!("line {}: {}", rule.line, rule.text)),
            None => {
                let action = if action == Action::Export { "export" } else { "import" };
                Err(format!("no rule lets {program:?} {action} {type_name}/{instance}"))
            }
        }
    }
}

fn parse_rule(text: &str, line: usize) -> Result<Rule, String> {
    const FORM: &str = "write (allow | deny) (export | import) TYPE[/INSTANCE] [by PROGRAM[,PROGRAM…]]";
    let mut words = text.split_whitespace();
    let allows = match words.next() {
        Some("allow") => true,
        Some("deny") => false,
        other => return Err(format!("{:?} is neither allow nor deny; {FORM}", shown(other))),
    };
    let action = match words.next() {
        Some("export") => Action::Export,
        Some("import") => Action::Import,
        other => return Err(format!("{:?} is neither export nor import; {FORM}", shown(other))),
    };
    let name = words.next().ok_or_else(|| format!("the name is missing; {FORM}"))?;
    let (type_name, instance) = name.split_once('/').unwrap_or((name, "*"));
    let (type_name, instance) = (Pattern::parse(type_name)?, Pattern::parse(instance)?);
    let programs = match (words.next(), words.next()) {
        (None, _) => Vec::new(),
        (Some("by"), Some(programs)) => parse_programs(programs)?,
        (other, _) => return Err(format!("{:?} cannot follow the name; {FORM}", shown(other))),
    };
    match words.next() {
        None => Ok(Rule { line, text: text.to_owned(), allows, action, type_name, instance, programs }),
        other => Err(format!("{:?} cannot follow the programs; {FORM}", shown(other))),
    }
}

fn parse_programs(text: &str) -> Result<Vec<String>, String> {
    let programs: Vec<String> = text.split(',').map(str::to_owned).take(MAX_PROGRAMS + 1).collect();
    if programs.len() > MAX_PROGRAMS {
        return Err(format!("it names more than {MAX_PROGRAMS} programs"));
    }
    match programs.iter().any(|program| program.is_empty() || program.contains('/')) {
        true => Err(format!("{:?} is not the file names of programs", shown(Some(text)))),
        false => Ok(programs),
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Pattern, String> {
        let (start, open) = text.strip_suffix('*').map_or((text, false), |start| (start, true));
        let is_label = start.parse::<Label>().is_ok() || open && start.is_empty();
        if !is_label || start.len() > MAX_LABEL {
            return Err(format!(
                "{:?} is not a name, or the beginning of one with a * behind it",
                shown(Some(text))
            ));
        }
        Ok(Pattern { text: start.to_owned(), open })
    }

    fn fits(&self, name: &str) -> bool {
        if self.open { name.starts_with(&self.text) } else { name == self.text }
    }
}

fn shown(word: Option<&str>) -> String {
    word.unwrap_or_default().chars().take(MAX_NAME).collect()
}

/// Returns the file name of the program that this process runs.
pub(crate) fn program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let path = std::env::current_exe().unwrap_or_default();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // So Linux names a program whose file was replaced.
        name.strip_suffix(" (deleted)").map_or(name.clone(), str::to_owned)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(acl: &str, action: Action, name: &str, program: &str) -> Result<(), String> {
        let (type_name, instance) = name.split_once('/').unwrap();
        let acl = Acl::parse(acl.as_bytes()).unwrap();
        acl.check(action, &type_name.parse().unwrap(), &instance.parse().unwrap(), program)
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let acl = "# who may do what\n\
                   allow export Store/main by stored\n\
                   allow export Store/replica-* by stored,storectl  # both\n\
                   deny  import Secret\n\
                   allow import *\n";
        for (action, name, program, allowed) in [
            (Action::Export, "Store/main", "stored", true),
            (Action::Export, "Store/main", "storectl", false),
            (Action::Export, "Store/replica-7", "storectl", true),
            (Action::Export, "Store/other", "stored", false),
            (Action::Import, "Store/other", "anything", true),
            (Action::Import, "Secret/other", "anything", false),
        ] {
            assert_eq!(check(acl, action, name, program).is_ok(), allowed, "{action:?} {name} by {program}");
        }
        let why = check(acl, Action::Import, "Secret/a", "x").unwrap_err();
        assert_eq!(why, "line 4: deny  import Secret");
        let why = check(acl, Action::Export, "Store/other", "stored").unwrap_err();
        assert_eq!(why, "no rule lets \"stored\" export Store/other");
    }

    #[test]
    fn what_is_wrong_in_a_rule_is_said_with_its_line() {
        for (acl, line, why) in [
            ("permit export A", 1, "neither allow nor deny"),
            ("\nallow call A", 2, "neither export nor import"),
            ("allow export", 1, "name is missing"),
            ("allow export A*b", 1, "\"A*b\" is not a name"),
            ("allow export A/", 1, "is not a name"),
            ("allow export A/b/c", 1, "is not a name"),
            ("allow export A for x", 1, "cannot follow the name"),
            ("allow export A by", 1, "cannot follow the name"),
            ("allow export A by x y", 1, "cannot follow the programs"),
            ("allow export A by /usr/bin/x", 1, "file names"),
            ("allow export A by x,,y", 1, "file names"),
        ] {
            let (found, said) = Acl::parse(acl.as_bytes()).unwrap_err();
            assert!(found == line && said.contains(why), "{acl:?}: line {found}: {said}");
        }
        assert_eq!(Acl::parse(b"# x\n\xff").unwrap_err().0, 2);
        assert!(Acl::parse(&vec![b'#'; MAX_ACL + 1]).is_err());
        let many = format!("allow export A by {}", vec!["x"; MAX_PROGRAMS + 1].join(","));
        assert!(Acl::parse(many.as_bytes()).is_err());
    }
}
