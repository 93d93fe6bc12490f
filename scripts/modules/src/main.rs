//! Finds modules that use one another in a circle, and draws the workspace's crates.
//!
//! `modules FOLDER…` reads `src/lib.rs` and `src/main.rs` of each crate's folder, and exits with 1 if it
//! finds a circle. A path counts as an arrow to the module that defines what it names; re-exports are seen
//! through. For every module, the children (each taken with all below it) must have no circle among them.
//! Methods and fields are not seen: they belong to a type, and code that has a value of that type has named
//! the type or was given the value.
//!
//! `modules --crates` prints a table of the workspace's crates, `--crates --write` writes it into
//! ARCHITECTURE.md, and `--crates --check` exits with 1 if the table there is another one.

mod circles;
mod crates;
mod names;
mod tree;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use circles::{Arrow, Circle};
use names::World;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        [] => Err("usage: modules FOLDER… | modules --crates [--write | --check]".to_owned()),
        ["--crates"] => crates::draw().map(|table| print!("{table}")),
        ["--crates", "--write"] => crates::write(),
        ["--crates", "--check"] => crates::check(),
        folders => read(folders).and_then(|world| report(&world)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn read(folders: &[&str]) -> Result<World, String> {
    let mut modules = BTreeMap::new();
    for folder in folders {
        let folder = Path::new(folder);
        let name = folder.file_name().ok_or("a folder has no name")?.to_string_lossy().replace('-', "_");
        let (library, program) = (folder.join("src/lib.rs"), folder.join("src/main.rs"));
        if !library.exists() && !program.exists() {
            return Err(format!("{}: no crate: it has neither src/lib.rs nor src/main.rs", folder.display()));
        }
        for (name, root) in [(name.clone(), library), (format!("{name} (program)"), program)] {
            if root.exists() {
                modules.extend(tree::read_crate(&name, &root)?);
            }
        }
    }
    Ok(World(modules))
}

/// Prints the circles, and fails if there are any.
fn report(world: &World) -> Result<(), String> {
    let arrows = circles::arrows(world);
    let circles = circles::circles(world, &arrows);
    for circle in &circles {
        print_circle(circle);
    }
    let inside: usize = circles.iter().map(|circle| circle.children.len()).sum();
    let sum = format!("{} modules, {} circles with {inside} modules in them", world.0.len(), circles.len());
    if !circles.is_empty() {
        return Err(sum);
    }
    println!("{sum}");
    Ok(())
}

fn print_circle(circle: &Circle) {
    println!("in {}: {} use one another", circle.parent.join("::"), circle.children.join(", "));
    let mut by_pair: BTreeMap<(&str, &str), Vec<&Arrow>> = BTreeMap::new();
    for arrow in &circle.arrows {
        let at = circle.parent.len();
        by_pair.entry((&arrow.from[at], &arrow.to[at])).or_default().push(arrow);
    }
    for ((from, to), arrows) in by_pair {
        println!("  {from} -> {to}");
        for arrow in arrows {
            println!("    {} uses {}: {}", arrow.from.join("::"), arrow.to.join("::"), arrow.path.join("::"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    /// A crate's folder with these files under `src`, which is removed when it is dropped.
    struct Planted(PathBuf);

    impl Planted {
        fn new(name: &str, files: &[(&str, &str)]) -> Planted {
            let folder = std::env::temp_dir().join(format!("modules-{}", std::process::id())).join(name);
            for (file, text) in files {
                let file = folder.join("src").join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
            Planted(folder)
        }

        /// The modules of each circle, with those of their parent in front.
        fn circles(&self) -> Vec<String> {
            let world = read(&[&self.0.to_string_lossy()]).unwrap();
            let circles = circles::circles(&world, &circles::arrows(&world));
            circles
                .iter()
                .map(|circle| format!("{}: {}", circle.parent.join("::"), circle.children.join(" ")))
                .collect()
        }
    }

    impl Drop for Planted {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_circle_through_a_re_export_is_found() {
        let root = "mod a; mod b; mod c; pub use b::Second;";
        let a = "use crate::Second; pub struct First(Second);";
        let planted = Planted::new(
            "re-export",
            &[("lib.rs", root), ("a.rs", a), ("b.rs", "pub struct Second;"), ("c.rs", "")],
        );
        assert_eq!(planted.circles(), [""; 0]);
        let b = "pub struct Second; fn f() { println!(\"{}\", size_of::<crate::c::Renamed>()) }";
        let c = "pub use super::a::First as Renamed;";
        let files = [("lib.rs", root), ("a.rs", a), ("b.rs", b), ("c.rs", c)];
        assert_eq!(Planted::new("through-c", &files).circles(), ["through_c: a b"]);
    }

    #[test]
    fn a_circle_between_folders_is_found_through_their_modules() {
        let files = [
            ("lib.rs", "mod left; mod right;"),
            ("left/mod.rs", "pub mod deep;"),
            ("left/deep.rs", "pub fn down() { crate::right::up() }"),
            ("right.rs", "pub fn up() {} pub mod inner { use crate::left::deep::*; fn again() { down() } }"),
        ];
        assert_eq!(Planted::new("folders", &files).circles(), ["folders: left right"]);
    }

    #[test]
    fn tests_parents_and_variables_make_no_circle() {
        let files = [
            ("lib.rs", "mod a; mod b; pub struct Shared;"),
            ("a.rs", "pub fn f(b: u32) -> u32 { super::b::g(b) }"),
            (
                "b.rs",
                "use super::Shared; pub fn g(n: u32) -> u32 { n } #[cfg(test)] mod tests { use crate::a::f; }",
            ),
        ];
        assert_eq!(Planted::new("none", &files).circles(), [""; 0]);
    }
}
