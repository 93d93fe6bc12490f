//! Brings trees into a form in which those of the same meaning are equal.

use std::collections::BTreeMap;

use super::super::tree::*;

/// Returns the parts of a tree that matter for its meaning: types, programs and constants. Names replace
/// indexes. Comments and namespaces are removed.
pub(super) fn comparable(
    tree: &Specification,
) -> (BTreeMap<String, Definition>, Vec<Program>, BTreeMap<String, Value>) {
    let mut tree = tree.clone();
    let names: Vec<String> = tree.types.iter().map(|definition| definition.named.name.clone()).collect();
    // Replaces an index by a name.
    let by_name = |ty: &mut Type| {
        if let Type::Defined(place) = ty {
            *ty = Type::Foreign(names[*place].clone());
        }
    };
    let bools: Vec<bool> = tree
        .types
        .iter()
        .map(|definition| match &definition.body {
            Body::Union(union) => *crate::language::plan::stripped(&tree, &union.discriminant) == Type::Bool,
            _ => false,
        })
        .collect();
    for (definition, is_bool) in tree.types.iter_mut().zip(bools) {
        definition.namespace.clear();
        definition.named.docs.clear();
        super::super::resolve::each_type(&mut definition.body, &mut { by_name });
        definition.body.fields_mut().into_iter().for_each(|field| field.named.docs.clear());
        match &mut definition.body {
            Body::Alias(_) | Body::Struct(_) | Body::Exception(_) => {}
            Body::Enum(all) => all.iter_mut().for_each(|each| each.named.docs.clear()),
            Body::Union(union) => {
                union.switch.docs.clear();
                for arm in &mut union.arms {
                    arm.docs.clear();
                    // `TRUE`, `true` and 1 are equal labels of a boolean.
                    arm.labels.iter_mut().filter(|_| is_bool).for_each(|label| label.name = None);
                }
            }
        }
    }
    super::super::resolve::each_type_of_programs(&mut tree, &mut { by_name });
    for program in &mut tree.programs {
        program.named.docs.clear();
        for version in &mut program.versions {
            version.named.docs.clear();
            version.procedures.iter_mut().for_each(|procedure| procedure.named.docs.clear());
        }
    }
    let types =
        tree.types.into_iter().map(|definition| (definition.named.name.clone(), definition)).collect();
    let constants =
        tree.constants.into_iter().map(|constant| (constant.named.name, constant.value)).collect();
    (types, tree.programs, constants)
}
