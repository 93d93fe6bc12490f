//! Lists what is exported now, with its procedures, for people who annotate nodes.

use std::collections::BTreeMap;

use farcall::CallFailed;
use farcall::dynamic::describe;
use farcall::names::Entry;
use serde::Serialize;

use super::Procedures;

/// A type of the registry, and what its exporters say of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Exported {
    /// The type's name.
    pub name: String,
    /// The instances that are published.
    pub instances: Vec<String>,
    /// The procedures; none if no exporter described itself.
    pub procedures: Vec<ExportedProcedure>,
    /// Why there are no procedures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A procedure of an exporter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExportedProcedure {
    /// The procedure's name.
    pub name: String,
    /// The names and types of the arguments, the result and the exception, for people.
    pub signature: String,
    /// The names of the arguments.
    pub arguments: Vec<String>,
    /// The documentation, in Markdown.
    pub docs: String,
    /// Whether the procedure may run twice without harm.
    pub idempotent: bool,
}

/// The most types that are asked for their description.
const MAX_TYPES: usize = 200;

impl Procedures {
    /// Returns what the registry has, at most 200 types, and asks one exporter of each for its procedures.
    /// Blocks meanwhile. An exporter that does not answer has no procedures, but an error.
    ///
    /// # Errors
    /// When the registry cannot be read.
    pub fn exports(&self) -> Result<Vec<Exported>, String> {
        let runtime = &self.0.runtime;
        let listing = runtime.registry().list().map_err(|why| why.to_string())?;
        let mut types: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for Entry { type_name, instance, .. } in listing.entries {
            types.entry(type_name.to_string()).or_default().push(instance.to_string());
        }
        Ok(types
            .into_iter()
            .take(MAX_TYPES)
            .map(|(name, instances)| self.exported(name, instances))
            .collect())
    }

    fn exported(&self, name: String, instances: Vec<String>) -> Exported {
        let described = describe(&self.0.runtime, &name);
        let (procedures, error) = match described {
            Ok(described) => {
                let interface = described.interface;
                let procedures = interface.procedures.iter().map(|procedure| ExportedProcedure {
                    name: procedure.name.clone(),
                    signature: interface.signature(procedure),
                    arguments: procedure.arguments.iter().map(|argument| argument.name.clone()).collect(),
                    docs: procedure.docs.clone(),
                    idempotent: procedure.idempotent,
                });
                (procedures.collect(), None)
            }
            Err(why) => (Vec::new(), Some(CallFailed::from(why).to_string())),
        };
        Exported { name, instances, procedures, error }
    }
}
