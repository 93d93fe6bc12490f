//! `farcall keys grant`: signs a grant.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueHint};
use farcall_keys::{KeyFiles, PrincipalName, PublicKey, Rights, Scope, Template, Terms};

use super::{date, describe_grant, faulty, new_serial, now};
use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// Sign a grant: who a key is, and which names it may export or import
///
/// Prints a line for the file `grants` of the end that has the key.
#[derive(Debug, Args)]
pub struct Grant {
    /// The authority's file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    authority: PathBuf,
    /// The public key that the grant is for
    #[arg(long)]
    key: PublicKey,
    #[command(flatten)]
    wanted: Wanted,
}

/// What a grant says, besides the key that it is for.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("right").args(["export", "import"]).required(true).multiple(true))]
pub(super) struct Wanted {
    /// Who that is: 1 to 64 letters, digits and -_.@/:
    #[arg(long)]
    principal: PrincipalName,
    /// Let it export these names: TYPE, TYPE/INSTANCE, TYPE/BEGINNING*, or *
    #[arg(long, value_name = "NAME")]
    export: Option<Scope>,
    /// Let it import these names; with --export, the same ones
    #[arg(long, value_name = "NAME")]
    import: Option<Scope>,
    /// For how many days the grant counts
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,
}

const DAY: u32 = 86_400;

impl Grant {
    pub fn run(&self, output: &Output) -> Outcome {
        let Template { principal, rights, scope, seconds } = self.wanted.template()?;
        let authority = KeyFiles::read_identity(&self.authority).map_err(faulty)?;
        let (serial, expires) = (new_serial()?, now() + u64::from(seconds));
        let terms = Terms { key: self.key, principal, rights, scope, serial, expires };
        let grant = authority.grant(terms).map_err(|why| Failure::usage(why.to_string()))?;
        let text = grant.to_text();
        output.line(
            || {
                let mut described = describe_grant(&grant);
                described["grant"] = text.as_str().into();
                described
            },
            || {
                let terms = grant.terms();
                let until = date(terms.expires);
                let (principal, rights, scope) = (&terms.principal, terms.rights, &terms.scope);
                format!("{text} # {principal} {rights} {scope} serial {serial} until {until}")
            },
        )
    }
}

impl Wanted {
    /// Returns what the grant is to say.
    ///
    /// # Errors
    /// If it names two different scopes.
    pub(super) fn template(&self) -> Outcome<Template> {
        let (rights, scope) = self.rights()?;
        // Fewer than 36,500 days were asked for.
        let seconds = self.days.saturating_mul(DAY);
        Ok(Template { principal: self.principal.clone(), rights, scope, seconds })
    }

    fn rights(&self) -> Outcome<(Rights, Scope)> {
        match (&self.export, &self.import) {
            (Some(export), Some(import)) if export != import => {
                Err(Failure::usage("a grant has one name").hint("sign a grant for each name"))
            }
            (Some(scope), Some(_)) => Ok((Rights::BOTH, scope.clone())),
            (Some(scope), None) => Ok((Rights::EXPORT, scope.clone())),
            (None, Some(scope)) => Ok((Rights::IMPORT, scope.clone())),
            (None, None) => Err(Failure::usage("a grant has a right: --export NAME or --import NAME")),
        }
    }
}
