//! Tests policies: which rule decides, and what is said about a rule that is wrong.

use farcall_keys::{Action, Decision, MAX_RULES, Policy};

fn policy(text: &str) -> Policy {
    text.parse().unwrap()
}

#[test]
fn the_first_rule_that_fits_decides_and_the_rest_is_denied() {
    let policy = policy(
        "# who may do what\n\
         deny  eve       *\n\
         allow alice     Store/main   get,list_*   # not put\n\
         deny  backup-0  Store\n\
         allow backup-*  Store        @memory:read\n\
         allow monitor   @health,@counters\n\
         allow ops       *\n\
         deny  *         Store/main   put\n\
         allow *         Store/main   *\n",
    );
    let may = |who: &str, name: &str, procedure: &str| {
        let (type_name, instance) = name.split_once('/').unwrap();
        policy.rights(who, type_name, instance).allows_procedure(procedure)
    };
    for (who, name, procedure, allowed) in [
        ("eve", "Store/main", "get", false),
        ("alice", "Store/main", "get", true),
        ("alice", "Store/main", "list_all", true),
        ("alice", "Store/main", "put", false),
        ("alice", "Store/main", "delete", true),
        ("alice", "Store/other", "get", false),
        ("backup-0", "Store/main", "delete", false),
        ("backup-1", "Store/main", "delete", true),
        ("ops", "Anything/at-all", "put", true),
        ("ops", "Store/main", "put", true),
        ("nobody", "Store/main", "put", false),
        ("nobody", "Store/main", "get", true),
        ("nobody", "Stores/main", "get", false),
    ] {
        assert_eq!(may(who, name, procedure), allowed, "{who} {name} {procedure}");
    }
}

#[test]
fn what_is_no_procedure_has_rights_of_its_own() {
    const ALL: [Action; 5] =
        [Action::Describe, Action::Health, Action::Counters, Action::MemoryRead, Action::MemoryWrite];
    let policy = policy(
        "allow monitor @health,@counters\n\
         allow db      Store/main @memory:read\n\
         allow writer  Store @memory\n\
         allow plain   Store *\n\
         allow whole   Store\n\
         deny  careful Store @memory:write\n\
         allow careful Store\n",
    );
    for (who, instance, expected) in [
        ("monitor", "main", &[Action::Health, Action::Counters][..]),
        ("db", "main", &[Action::MemoryRead]),
        ("db", "other", &[]),
        ("writer", "other", &[Action::MemoryRead, Action::MemoryWrite]),
        ("plain", "main", &[]),
        ("whole", "main", &ALL),
        ("careful", "main", &ALL[..4]),
    ] {
        let decision = policy.rights(who, "Store", instance);
        let allowed: Vec<Action> = ALL.into_iter().filter(|action| decision.allows(*action)).collect();
        assert_eq!(allowed, expected, "{who} {instance}");
        let has_procedures = matches!(who, "plain" | "whole" | "careful");
        assert_eq!(decision.allows_every_procedure(), has_procedures, "{who}");
        assert_eq!(decision.allows_procedure("get"), has_procedures, "{who}");
    }
    assert_eq!(
        ALL.map(|action| action.to_string()).join(" "),
        "@describe @health @counters @memory:read @memory:write"
    );
}

#[test]
fn decisions_know_when_they_are_simple() {
    assert!(policy("").rights("alice", "Store", "main").denies_everything());
    assert!(policy("# nothing\n\n").is_empty());
    let everything = policy("allow * *").rights("alice", "Store", "main");
    assert!(everything.allows_every_procedure() && everything.shows_others());
    let unruled = Decision::without_policy();
    assert!(unruled.allows_every_procedure() && unruled.allows(Action::Counters) && !unruled.shows_others());
    let later =
        policy("allow a Store *\ndeny a Store put\nallow a Store @health").rights("a", "Store", "main");
    assert!(later.allows_every_procedure() && later.allows_procedure("put") && later.allows(Action::Health));
    let decision = policy("deny a Store put\nallow a Store get\nallow a Store").rights("a", "Store", "main");
    assert!(!decision.allows_every_procedure() && !decision.denies_everything());
    assert!(policy("deny a Store put\ndeny a *").rights("a", "Store", "main").denies_everything());
    let built = Policy::new().with_rule("allow alice Store").unwrap();
    assert_eq!((built.clone(), built.len()), (policy("allow alice Store"), 1));
}

#[test]
fn what_is_wrong_in_a_rule_is_said_with_its_line() {
    const FORM: &str = "expected (allow | deny) PRINCIPAL TYPE[/INSTANCE] [PROCEDURE,...]; found ";
    const ADVICE: &str = "; write a rule as: allow alice Store/main get,put";
    for (text, expected) in [
        ("permit a B", format!("line 1, column 1: {FORM}\"permit\" in place of allow or deny{ADVICE}")),
        ("\n# x\nallow", format!("line 3, column 6: {FORM}no principal{ADVICE}")),
        ("allow alice # Store", format!("line 1, column 12: {FORM}no name{ADVICE}")),
        (
            "allow al*ce Store",
            format!(
                "line 1, column 7: expected a principal, a beginning of principals with a * behind it, or *; found \
                 \"al*ce\"{ADVICE}"
            ),
        ),
        ("allow a Sto*", format!("line 1, column 9: expected a whole type, or *; found \"Sto*\"{ADVICE}")),
        (
            "allow a -Store",
            format!(
                "line 1, column 9: expected at most 128 letters, digits and ._-, the first no . or -; a * may follow; \
                 found \"-Store\"{ADVICE}"
            ),
        ),
        (
            "allow a S get, put",
            format!(
                "line 1, column 16: {FORM}\"put\" behind the rule; list procedures without blanks, and begin a comment with #"
            ),
        ),
        (
            "allow a S get,",
            format!(
                "line 1, column 11: expected a procedure, a beginning of procedures with a * behind it, or *; found \
                 nothing{ADVICE}"
            ),
        ),
        (
            "allow a @memory:swap",
            format!(
                "line 1, column 9: expected @describe, @health, @counters, @memory, @memory:read or @memory:write; \
                 found \"@memory:swap\"{ADVICE}"
            ),
        ),
    ] {
        assert_eq!(text.parse::<Policy>().unwrap_err().to_string(), expected, "{text}");
    }
    let many = "allow a B\n".repeat(MAX_RULES);
    assert_eq!(policy(&many).len(), MAX_RULES);
    let why = (many + "deny a B").parse::<Policy>().unwrap_err();
    assert_eq!(why.line(), Some(MAX_RULES + 1));
    assert!(why.to_string().contains("expected at most 10000 rules"), "{why}");
}
