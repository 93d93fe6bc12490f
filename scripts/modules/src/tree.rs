//! Reads the modules of a crate: the items that each defines, what it imports, and the paths in its code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, Meta, UseTree};

/// A path as it is written, without `::` at its beginning.
pub type Names = Vec<String>;

/// What one module says.
#[derive(Debug, Default)]
pub struct Module {
    /// The crate's name, then the modules down to this one.
    pub path: Names,
    /// Items that the module defines itself, without its child modules.
    pub items: BTreeSet<String>,
    /// Names that `use` brings in, each with the path that it stands for.
    pub imports: BTreeMap<String, Names>,
    /// The modules of which `use m::*` brings in all.
    pub globs: Vec<Names>,
    /// All paths in the module's code, those of `use` included.
    pub paths: BTreeSet<Names>,
}

/// The modules of a crate, by path. Code that is compiled for tests only is left out.
pub fn read_crate(name: &str, root: &Path) -> Result<BTreeMap<Names, Module>, String> {
    let mut modules = BTreeMap::new();
    let children = root.parent().unwrap_or(Path::new("")).to_owned();
    read_file(vec![name.to_owned()], root, &children, &mut modules)?;
    Ok(modules)
}

/// Reads a module's file. The files of its children are in the folder `children`.
fn read_file(
    path: Names,
    file: &Path,
    children: &Path,
    modules: &mut BTreeMap<Names, Module>,
) -> Result<(), String> {
    let text = fs::read_to_string(file).map_err(|why| format!("{}: {why}", file.display()))?;
    let parsed = syn::parse_file(&text).map_err(|why| format!("{}: {why}", file.display()))?;
    read_items(path, file, children, &parsed.items, modules)
}

fn read_items(
    path: Names,
    file: &Path,
    children: &Path,
    items: &[Item],
    modules: &mut BTreeMap<Names, Module>,
) -> Result<(), String> {
    let mut reader = Reader(Module { path: path.clone(), ..Module::default() });
    for item in items {
        if let Item::Mod(child) = item {
            if !tests_only(&child.attrs) {
                read_child(&path, file, children, child, modules)?;
            }
            continue;
        }
        reader.define(item);
        reader.visit_item(item);
    }
    modules.insert(path, reader.0);
    Ok(())
}

fn read_child(
    parent: &[String],
    file: &Path,
    folder: &Path,
    child: &ItemMod,
    modules: &mut BTreeMap<Names, Module>,
) -> Result<(), String> {
    let name = unraw(&child.ident);
    let path = [parent, std::slice::from_ref(&name)].concat();
    let below = folder.join(&name);
    if let Some((_, items)) = &child.content {
        return read_items(path, file, &below, items, modules);
    }
    if let Some(said) = written_path(&child.attrs) {
        let file = file.parent().unwrap_or(Path::new("")).join(said);
        return read_file(path, &file, &below, modules);
    }
    let beside = folder.join(format!("{name}.rs"));
    let file = if beside.exists() { beside } else { below.join("mod.rs") };
    read_file(path, &file, &below, modules)
}

/// The file that `#[path = "…"]` names.
fn written_path(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}

/// Whether an item is compiled for tests only: `#[test]`, or `#[cfg(…)]` that cannot hold without `test`.
fn tests_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        if attribute.path().is_ident("test") {
            return true;
        }
        let Meta::List(list) = &attribute.meta else { return false };
        if !list.path.is_ident("cfg") {
            return false;
        }
        let condition = list.tokens.to_string().replace(' ', "");
        condition == "test" || condition.starts_with("all(test,")
    })
}

struct Reader(Module);

impl Reader {
    fn define(&mut self, item: &Item) {
        let name = match item {
            Item::Const(item) => &item.ident,
            Item::Enum(item) => &item.ident,
            Item::Fn(item) => &item.sig.ident,
            Item::Static(item) => &item.ident,
            Item::Struct(item) => &item.ident,
            Item::Trait(item) => &item.ident,
            Item::TraitAlias(item) => &item.ident,
            Item::Type(item) => &item.ident,
            Item::Union(item) => &item.ident,
            Item::Macro(syn::ItemMacro { ident: Some(name), .. }) => name,
            Item::Use(item) if !tests_only(&item.attrs) => return self.import(&item.tree, Vec::new()),
            _ => return,
        };
        if !tests_only(attributes(item)) {
            self.0.items.insert(unraw(name));
        }
    }

    fn import(&mut self, tree: &UseTree, before: Names) {
        match tree {
            UseTree::Path(path) => {
                let mut before = before;
                before.push(unraw(&path.ident));
                self.import(&path.tree, before);
            }
            UseTree::Name(name) => self.import_as(before, &unraw(&name.ident), &unraw(&name.ident)),
            UseTree::Rename(name) => self.import_as(before, &unraw(&name.ident), &unraw(&name.rename)),
            UseTree::Glob(_) => self.0.globs.push(before),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, before.clone())),
        }
    }

    fn import_as(&mut self, mut path: Names, what: &str, name: &str) {
        // `use a::{self}` brings in `a`.
        let name = if name == "self" { path.last().cloned().unwrap_or_default() } else { name.to_owned() };
        if what != "self" {
            path.push(what.to_owned());
        }
        self.0.imports.insert(name, path);
    }

    /// Notes the paths of an import, wherever it stands: in a module or in a block.
    fn note_import(&mut self, tree: &UseTree, mut before: Names) {
        match tree {
            UseTree::Path(path) => {
                before.push(unraw(&path.ident));
                self.note_import(&path.tree, before);
            }
            UseTree::Name(syn::UseName { ident, .. }) | UseTree::Rename(syn::UseRename { ident, .. }) => {
                if ident != "self" {
                    before.push(unraw(ident));
                }
                self.0.paths.insert(before);
            }
            // What a glob brings in is used by the names that are used.
            UseTree::Glob(_) => {}
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.note_import(tree, before.clone()))
            }
        }
    }

    /// Notes what looks like a path among the tokens of a macro's call.
    fn note_tokens(&mut self, tokens: TokenStream) {
        let mut path = Names::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.note_words(&mut path);
                    }
                    path.push(unraw(&name));
                    colons = 0;
                }
                TokenTree::Punct(sign) if sign.as_char() == ':' && !path.is_empty() => colons += 1,
                TokenTree::Group(group) => {
                    self.note_words(&mut path);
                    self.note_tokens(group.stream());
                    colons = 0;
                }
                _ => {
                    self.note_words(&mut path);
                    colons = 0;
                }
            }
        }
        self.note_words(&mut path);
    }

    fn note_words(&mut self, path: &mut Names) {
        if !path.is_empty() {
            self.0.paths.insert(std::mem::take(path));
        }
    }
}

impl<'a> Visit<'a> for Reader {
    fn visit_item(&mut self, item: &'a Item) {
        if !tests_only(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        if !tests_only(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        self.note_import(&item.tree, Vec::new());
    }

    /// `pub(in path)` uses nothing.
    fn visit_visibility(&mut self, _: &'a syn::Visibility) {}

    fn visit_path(&mut self, path: &'a syn::Path) {
        self.0.paths.insert(path.segments.iter().map(|segment| unraw(&segment.ident)).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'a syn::Macro) {
        self.note_tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// A name without the `r#` that makes a keyword one.
fn unraw(name: &syn::Ident) -> String {
    name.unraw().to_string()
}
