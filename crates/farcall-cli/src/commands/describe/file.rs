//! What an `.x` file says.

use farcall::xdr;
use farcall_idl::x::tree::{self, Declared, Named, Procedure, Specification, Type};
use farcall_idl::x::{Version, interfaces};
use serde_json::{Value, json};

use super::{interface_as_json, interface_as_text, types_as_text};
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::x_file::Reading;

/// Shows each version of each program of a file; of a file without programs, its types.
pub fn describe(name: &str, reading: &Reading, output: &Output) -> Outcome {
    let mut tree = reading.definition(name, output)?;
    let refused = |why: farcall_idl::x::Refused| Failure::new(why.to_string()).about(name);
    if tree.programs.is_empty() {
        let count = tree.types.len();
        tree.programs.push(every_type(&tree));
        let versions = interfaces(&tree).map_err(refused)?;
        let types = versions.first().map_or(String::new(), |version| types_as_text(&version.interface.types));
        return output.page(
            || json!({ "programs": [], "types": types.trim_end() }),
            || format!("{types}{count} types, no program"),
        );
    }
    for version in interfaces(&tree).map_err(refused)? {
        let model = xdr::to_vec(&version.interface).map_err(|why| Failure::new(why.to_string()))?;
        output.page(|| as_json(&version, &model), || as_text(&version))?;
    }
    Ok(())
}

fn as_json(version: &Version, model: &[u8]) -> Value {
    let mut all = interface_as_json(&version.interface, model);
    all["program"] = json!({ "name": version.program_name, "number": version.program });
    all["version"] = json!({ "name": version.version_name, "number": version.version });
    for (place, name) in version.procedure_names.iter().enumerate() {
        all["procedures"][place]["spelled"] = name.as_str().into();
    }
    all
}

fn as_text(Version { interface, .. }: &Version) -> String {
    format!("{}\n{}\n", interface_as_text(interface), types_as_text(&interface.types).trim_end())
}

/// A program that has to do with each type, so that each is described.
fn every_type(tree: &Specification) -> tree::Program {
    let procedure = |(place, number): (usize, u32)| Procedure {
        named: Named::default(),
        number,
        arguments: Vec::new(),
        result: Declared::One(Type::Defined(place)),
    };
    let procedures = (0..tree.types.len()).zip(0..).map(procedure).collect();
    let version = tree::Version { named: Named::default(), number: 0, procedures };
    tree::Program { named: Named::default(), number: 0, versions: vec![version] }
}
