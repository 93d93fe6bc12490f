//! The policy of certificates: who is believed, and which certificates get which grants.
//!
//! ```text
//! # bundle  spiffe://TRUST-DOMAIN | dns  FILE
//! # allow   IDENTITY PRINCIPAL RIGHT NAME [RIGHT NAME]... [hours=N]
//! # deny    IDENTITY
//! bundle spiffe://example.org  example.pem
//! bundle dns                   hosts.pem
//! deny   spiffe://example.org/test/*
//! allow  spiffe://example.org/store    store   export Store/main import Bank
//! allow  spiffe://example.org/team/*   team-*  import Store hours=8
//! allow  dns:*.hosts.example.org       host-*  import Store
//! ```
//!
//! - A bundle's file has the certificates of authorities, in PEM. Those of a trust domain can name only
//!   identifiers of that domain, and those behind `dns` only DNS names.
//! - IDENTITY is a SPIFFE identifier, or the beginning of some with `/*` behind it; or `dns:` and a name, or
//!   `dns:*.` and the end of names.
//! - PRINCIPAL may end with `*`, which stands for what the `*` of the identity stands for.
//! - RIGHT is `export`, `import` or `export,import`, and NAME is TYPE, TYPE/INSTANCE or `*`. Each pair is a
//!   grant. Grants count for 24 hours, or for as many as `hours=` says, but never longer than the
//!   certificates.
//! - The first rule that fits decides. What no rule fits is denied.

use std::collections::BTreeMap;

use farcall_base::work;

use super::bundle::Bundle;
use super::chain::CertificateChain;
use super::spiffe::{self, SpiffeId};
use super::subject::{Leaf, Subject, is_dns_name};
use crate::fault::LineFault;
use crate::grant::Rights;
use crate::lines;
use crate::name::{Pattern, PrincipalName, Scope};
use crate::policy::MAX_RULES;
use crate::refusal::{Refusal, RefusalKind};
use crate::text::shown;

/// The most grants that a rule gives.
pub const MAX_GRANTS_OF_RULE: usize = 4;

/// The most bundles of a policy.
const MAX_BUNDLES: usize = 100;

const HOUR: u64 = 3600;
const DEFAULT_HOURS: u64 = 24;
const MAX_HOURS: u64 = 24 * 90;

/// Which certificates are believed, and which grants they get.
///
/// ```
/// use farcall_keys::CertificatePolicy;
///
/// let rules = "bundle spiffe://example.org bundle.pem\n\
///              allow spiffe://example.org/store store export Store/main";
/// let why = CertificatePolicy::parse(rules.as_bytes(), |_| None).unwrap_err().to_string();
/// assert!(why.starts_with("line 1: expected a bundle that can be read; found \"bundle.pem\""));
/// ```
#[derive(Clone, Debug, Default)]
pub struct CertificatePolicy {
    bundles: BTreeMap<Domain, Bundle>,
    rules: Vec<Rule>,
}

/// What a bundle is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Domain {
    Dns,
    Spiffe(String),
}

#[derive(Clone, Debug)]
struct Rule {
    identity: Identities,
    /// What is allowed; `None` denies.
    allowed: Option<Allowed>,
}

/// The identities that a rule is about.
#[derive(Clone, Debug)]
enum Identities {
    Spiffe { trust_domain: String, path: Words },
    Dns(Words),
}

/// A word, or a `*` that stands for any words before or behind this part.
#[derive(Clone, Debug)]
struct Words {
    part: String,
    is_open: bool,
}

/// What a rule gives.
#[derive(Clone, Debug)]
struct Allowed {
    principal: Pattern,
    grants: Vec<(Rights, Scope)>,
    seconds: u64,
}

/// What a certificate gets.
#[derive(Debug)]
pub(super) struct Judgement {
    pub(super) subject: Subject,
    pub(super) principal: PrincipalName,
    pub(super) grants: Vec<(Rights, Scope)>,
    /// When the grants end, in Unix seconds.
    pub(super) expires: u64,
}

const FORM: &str =
    "bundle spiffe://TRUST-DOMAIN|dns FILE, allow IDENTITY PRINCIPAL RIGHT NAME..., or deny IDENTITY";
const ADVICE: &str = "write a rule as: allow spiffe://example.org/store store export Store/main";

impl CertificatePolicy {
    /// Reads a policy. `read` returns what the file of a bundle has.
    ///
    /// # Errors
    /// The first fault of a line, or of a bundle, with the line that names it.
    pub fn parse(
        content: &[u8],
        mut read: impl FnMut(&str) -> Option<Vec<u8>>,
    ) -> Result<CertificatePolicy, LineFault> {
        let mut policy = CertificatePolicy::default();
        for line in lines::lines(content) {
            let line = line?;
            policy.add(line.text(), &mut read).map_err(|why| why.at(line.number))?;
        }
        Ok(policy)
    }

    /// Judges a chain of certificates at a time in Unix seconds: whom it names, whether an authority of that
    /// name's bundle says so, and what the rules give. That the other end has the private key is not judged.
    pub(super) fn judge(&self, chain: &CertificateChain, now: u64) -> Result<Judgement, Refusal> {
        let Leaf { subject, not_after } = Leaf::read(chain.leaf(), now)?;
        let path_ends = self.bundle(&subject)?.verify(chain, now)?;
        let (principal, allowed) = self.rule(&subject)?;
        let expires = now.saturating_add(allowed.seconds).min(not_after).min(path_ends);
        Ok(Judgement { subject, principal, grants: allowed.grants.clone(), expires })
    }

    fn add(&mut self, line: &str, read: &mut impl FnMut(&str) -> Option<Vec<u8>>) -> Result<(), LineFault> {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        let words: Vec<&str> = words.collect();
        match (first, words.as_slice()) {
            ("bundle", [domain, file]) => self.add_bundle(domain, file, read),
            ("deny", [identity]) => self.add_rule(identity, None),
            ("allow", [identity, principal, rest @ ..]) => {
                let allowed = Allowed::parse(principal, rest)?;
                self.add_rule(identity, Some(allowed))
            }
            _ => Err(LineFault::new(FORM, shown(line), ADVICE)),
        }
    }

    fn add_bundle(
        &mut self,
        domain: &str,
        file: &str,
        read: &mut impl FnMut(&str) -> Option<Vec<u8>>,
    ) -> Result<(), LineFault> {
        const ADVICE: &str = "write a line as: bundle spiffe://example.org example.pem";
        let wrong = |expected: String, found: String| Err(LineFault::new(expected, found, ADVICE));
        let domain = match (domain, domain.strip_prefix(spiffe::SCHEME)) {
            ("dns", _) => Domain::Dns,
            (_, Some(name)) if spiffe::is_trust_domain(name) => Domain::Spiffe(name.to_owned()),
            _ => return wrong("spiffe://TRUST-DOMAIN, or dns".to_owned(), shown(domain)),
        };
        if self.bundles.contains_key(&domain) {
            return wrong(format!("one bundle for {domain}"), "another one".to_owned());
        }
        if self.bundles.len() == MAX_BUNDLES {
            return wrong(format!("at most {MAX_BUNDLES} bundles"), "another one".to_owned());
        }
        let Some(pem) = read(file) else {
            return wrong("a bundle that can be read".to_owned(), shown(file));
        };
        let bundle = Bundle::from_pem(&pem).map_err(|why| why.about(file))?;
        self.bundles.insert(domain, bundle);
        Ok(())
    }

    fn add_rule(&mut self, identity: &str, allowed: Option<Allowed>) -> Result<(), LineFault> {
        if self.rules.len() == MAX_RULES {
            let advice = "join rules: an identity may end with /*";
            return Err(LineFault::new(format!("at most {MAX_RULES} rules"), "another rule", advice));
        }
        let identity = Identities::parse(identity)?;
        let domain = identity.domain();
        if !self.bundles.contains_key(&domain) {
            let advice = format!("write a line above it: bundle {domain} FILE");
            return Err(LineFault::new(format!("a bundle for {domain} above the rule"), "none", advice));
        }
        let is_open = allowed.as_ref().is_some_and(|allowed| allowed.principal.exact().is_none());
        if is_open && !identity.is_open() {
            let found = "a principal with a * for an identity without one";
            return Err(LineFault::new("a whole principal", found, ADVICE));
        }
        self.rules.push(Rule { identity, allowed });
        Ok(())
    }

    /// Returns the bundle whose authorities may name the subject.
    fn bundle(&self, subject: &Subject) -> Result<&Bundle, Refusal> {
        let domain = match subject {
            Subject::Spiffe(id) => Domain::Spiffe(id.trust_domain.clone()),
            Subject::Dns(_) => Domain::Dns,
        };
        self.bundles.get(&domain).ok_or_else(|| {
            let found = format!("{}, of another", shown(&subject.to_string()));
            let advice = "the authority's operator can add a bundle for it";
            let expected = "a certificate of a trust domain that the authority knows";
            Refusal::new(RefusalKind::OtherTrustDomain, expected, found, advice)
        })
    }

    /// Returns what the first rule that fits says.
    fn rule(&self, subject: &Subject) -> Result<(PrincipalName, &Allowed), Refusal> {
        const ADVICE: &str = "the authority's operator can add a rule for it";
        let refused =
            |expected: &str, found: String| Refusal::new(RefusalKind::NoRule, expected, found, ADVICE);
        let name = shown(&subject.to_string());
        let rules = self.rules.iter();
        let (rule, rest) = rules
            .inspect(|_| work::step())
            .filter_map(|rule| Some((rule, rule.identity.rest(subject)?)))
            .next()
            .ok_or_else(|| refused("a certificate that a rule is about", format!("none for {name}")))?;
        let Some(allowed) = &rule.allowed else {
            return Err(refused("a certificate that a rule allows", format!("one that denies {name}")));
        };
        let principal = match allowed.principal.exact() {
            Some(whole) => whole.to_owned(),
            None => allowed.principal.to_string().trim_end_matches('*').to_owned() + rest,
        };
        let principal = principal.parse().map_err(|why| {
            refused("a certificate whose rule makes a principal of its name", format!("{name} ({why})"))
        })?;
        Ok((principal, allowed))
    }
}

impl Identities {
    fn parse(text: &str) -> Result<Identities, LineFault> {
        const EXPECTED: &str =
            "spiffe://TRUST-DOMAIN/PATH, such a beginning with /* behind it, dns:NAME, or dns:*.NAME";
        let wrong = || LineFault::new(EXPECTED, shown(text), ADVICE);
        if let Some(name) = text.strip_prefix("dns:") {
            let name = name.to_ascii_lowercase();
            let end = name.strip_prefix("*.");
            if !is_dns_name(end.unwrap_or(&name)) {
                return Err(wrong());
            }
            let part = end.map_or_else(|| name.clone(), |end| format!(".{end}"));
            return Ok(Identities::Dns(Words { part, is_open: end.is_some() }));
        }
        let (whole, is_open) = text.strip_suffix('*').map_or((text, false), |start| (start, true));
        // What the star stands for could be any word.
        let sample = if is_open && whole.ends_with('/') { format!("{whole}x") } else { whole.to_owned() };
        let SpiffeId { trust_domain, path } = SpiffeId::parse(&sample).map_err(|_| wrong())?;
        let part = if is_open { path.strip_suffix('x').ok_or_else(wrong)?.to_owned() } else { path };
        match is_open && !whole.ends_with('/') {
            true => Err(wrong()),
            false => Ok(Identities::Spiffe { trust_domain, path: Words { part, is_open } }),
        }
    }

    fn domain(&self) -> Domain {
        match self {
            Identities::Spiffe { trust_domain, .. } => Domain::Spiffe(trust_domain.clone()),
            Identities::Dns(_) => Domain::Dns,
        }
    }

    fn is_open(&self) -> bool {
        match self {
            Identities::Spiffe { path, .. } => path.is_open,
            Identities::Dns(name) => name.is_open,
        }
    }

    /// Returns what the `*` stands for in the subject's name, if it is one of these.
    fn rest<'a>(&self, subject: &'a Subject) -> Option<&'a str> {
        match (self, subject) {
            (Identities::Spiffe { trust_domain, path }, Subject::Spiffe(id)) => {
                let rest = id.path.strip_prefix(&path.part)?;
                (*trust_domain == id.trust_domain && path.is_open != rest.is_empty()).then_some(rest)
            }
            (Identities::Dns(name), Subject::Dns(names)) => names.iter().find_map(|found| {
                let rest = found.strip_suffix(&name.part)?;
                (name.is_open != rest.is_empty()).then_some(rest)
            }),
            (Identities::Spiffe { .. }, Subject::Dns(_)) | (Identities::Dns(_), Subject::Spiffe(_)) => None,
        }
    }
}

impl Allowed {
    fn parse(principal: &str, words: &[&str]) -> Result<Allowed, LineFault> {
        let principal = Pattern::principal(principal).map_err(|why| LineFault::name(why, ADVICE))?;
        let hours = words.last().and_then(|last| last.strip_prefix("hours="));
        let words = if hours.is_some() { &words[..words.len() - 1] } else { words };
        let hours = hours.map_or(Ok(DEFAULT_HOURS), |hours| {
            let number = hours.parse().ok().filter(|hours| (1..=MAX_HOURS).contains(hours));
            number.ok_or_else(|| LineFault::new(format!("hours= and 1 to {MAX_HOURS}"), shown(hours), ADVICE))
        })?;
        let wrong = |found: String| LineFault::new("one to four pairs of RIGHT NAME", found, ADVICE);
        if words.is_empty() || words.len() > 2 * MAX_GRANTS_OF_RULE {
            return Err(wrong(format!("{} words", words.len())));
        }
        let mut grants = Vec::new();
        for pair in words.chunks(2) {
            let [right, name] = pair else { return Err(wrong(format!("{} without a name", shown(pair[0])))) };
            let rights = match *right {
                "export" => Rights::EXPORT,
                "import" => Rights::IMPORT,
                "export,import" | "import,export" => Rights::BOTH,
                other => return Err(LineFault::new("export, import or export,import", shown(other), ADVICE)),
            };
            grants.push((rights, name.parse().map_err(|why| LineFault::name(why, ADVICE))?));
        }
        Ok(Allowed { principal, grants, seconds: hours * HOUR })
    }
}

impl std::fmt::Display for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Domain::Dns => f.write_str("dns"),
            Domain::Spiffe(name) => write!(f, "{}{name}", spiffe::SCHEME),
        }
    }
}
