//! `farcall describe` for an `.x`, `.cr` or `.rpc2` file.

use farcall::xdr;
use farcall_idl::x::{self, Version, types};
use serde_json::{Value, json};

use super::{Described, Numbers, interface_as_json, types_as_text};
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::x_file::Reading;

/// Shows each version of each program. If the file has no program, shows its types.
pub fn describe(name: &str, reading: &Reading, output: &Output) -> Outcome {
    let tree = reading.definition(name, output)?;
    let refused = |why: farcall_idl::x::Refused| Failure::new(why.to_string()).about(name);
    let versions = x::interfaces(&tree).map_err(refused)?;
    if versions.is_empty() {
        let count = tree.types.len();
        let types = types_as_text(&types(&tree).map_err(refused)?.types);
        return output.page(
            || json!({ "programs": [], "types": types.trim_end() }),
            || format!("{types}{count} types, no program"),
        );
    }
    for version in versions {
        let model = xdr::to_vec(&version.interface).map_err(|why| Failure::new(why.to_string()))?;
        output.page(|| as_json(&version, &model), || as_text(&version))?;
    }
    Ok(())
}

/// Returns each version of each program in the file.
pub fn interfaces(name: &str, reading: &Reading, output: &Output) -> Outcome<Vec<Described>> {
    let versions = x::interfaces(&reading.definition(name, output)?);
    let versions = versions.map_err(|why| Failure::new(why.to_string()).about(name))?;
    let described = |Version { interface, program, version, .. }| Described {
        interface,
        numbers: Some(Numbers { program, version }),
    };
    Ok(versions.into_iter().map(described).collect())
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
    format!("{interface}\n\n{}\n", types_as_text(&interface.types).trim_end())
}
