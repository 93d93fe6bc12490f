//! Reads every `.x` file under a directory, beside rpcgen, and prints what each makes of it.
//!
//! `cargo run -p farcall-idl --features x --example corpus -- DIRECTORY`. Exits with 1 if rpcgen takes a file that we refuse.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use farcall_idl::x::tree::Specification;
use farcall_idl::x::{Options, read};

fn main() -> ExitCode {
    let Some(directory) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: corpus DIRECTORY");
        return ExitCode::from(2);
    };
    let mut files = Vec::new();
    collect(&directory, &mut files);
    files.sort();
    let (mut both, mut ours, mut theirs, mut neither) = (0, 0, 0, 0);
    println!("{:<6} {:<6} file", "rpcgen", "ours");
    for file in &files {
        let peer = rpcgen(file);
        let told = match read(file, &Options::default()) {
            Ok(tree) => Ok(features(&tree)),
            Err(why) => Err(why.iter().next().map_or(String::new(), |first| {
                format!("{}:{}:{}: {}", first.file(), first.line(), first.column(), first.message())
            })),
        };
        match (peer, told.is_ok()) {
            (Some(true), true) => both += 1,
            (Some(true), false) => theirs += 1,
            (_, true) => ours += 1,
            (_, false) => neither += 1,
        }
        let peer = peer.map_or("?", |taken| if taken { "takes" } else { "-" });
        let name = file.strip_prefix(&directory).unwrap_or(file).display();
        match told {
            Ok(what) => println!("{peer:<6} takes  {name}: {what}"),
            Err(why) => println!("{peer:<6} -      {name}: {why}"),
        }
    }
    println!("both {both}, ours alone {ours}, rpcgen alone {theirs}, neither {neither}");
    ExitCode::from(u8::from(theirs > 0))
}

/// What a file has in it, in short.
fn features(tree: &Specification) -> String {
    let procedures = tree.programs.iter().flat_map(|program| &program.versions).map(|version| version.procedures.len());
    let mut told = format!(
        "{} constants, {} types, {} procedures",
        tree.constants.len(),
        tree.types.len(),
        procedures.sum::<usize>()
    );
    let foreign = format!("{tree:?}").matches("Foreign(").count();
    for (count, what) in [(foreign, "from elsewhere"), (tree.warnings.len(), "warnings")] {
        if count > 0 {
            told.push_str(&format!(", {count} {what}"));
        }
    }
    if std::env::var_os("WARNINGS").is_some() {
        tree.warnings.iter().for_each(|warning| told.push_str(&format!("\n{warning}")));
    }
    told
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.extension().and_then(|extension| extension.to_str()) {
            _ if path.is_dir() => collect(&path, files),
            Some("x" | "rpcl") => files.push(path),
            _ => {}
        }
    }
}

/// Whether rpcgen takes a file, in its old or its new style; nothing if there is no rpcgen.
fn rpcgen(file: &Path) -> Option<bool> {
    let run = |style: &str| {
        let mut command = Command::new("rpcgen");
        command.args([style, "-h"]).arg(file.file_name()?).current_dir(file.parent()?);
        command.output().ok().map(|output| output.status.success())
    };
    Some(run("-C")? || run("-N")?)
}
