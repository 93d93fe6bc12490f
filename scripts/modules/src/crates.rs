//! Draws the workspace's crates as a table in Markdown, and keeps the copy of it in ARCHITECTURE.md current.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde_json::Value;

/// The document that holds the table, between [`BEGIN`] and [`END`]. Relative to the current directory.
const DOCUMENT: &str = "ARCHITECTURE.md";
const BEGIN: &str = "<!-- crates -->\n";
const END: &str = "<!-- /crates -->";

/// A crate of the workspace.
#[derive(Debug)]
pub struct Crate {
    pub name: String,
    /// What the crate is for, as its Cargo.toml says.
    pub job: String,
    /// The crates of the workspace that are normal dependencies of this one.
    pub uses: Vec<String>,
}

/// The table of the crates of the workspace in the current directory.
pub fn draw() -> Result<String, String> {
    Ok(table(&read()?))
}

/// Writes the table into the document.
pub fn write() -> Result<(), String> {
    let text = text()?;
    fs::write(DOCUMENT, with_table(&text, &draw()?)?).map_err(|why| format!("{DOCUMENT}: {why}"))
}

/// Fails if the table in the document is not the one that would be drawn.
pub fn check() -> Result<(), String> {
    let text = text()?;
    match with_table(&text, &draw()?)? == text {
        true => Ok(()),
        false => Err(format!(
            "the table of crates in {DOCUMENT} is not current: cargo run -p modules -- --crates --write"
        )),
    }
}

fn text() -> Result<String, String> {
    fs::read_to_string(DOCUMENT).map_err(|why| format!("{DOCUMENT}: {why}"))
}

fn read() -> Result<Vec<Crate>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .output()
        .map_err(|why| format!("cargo metadata: {why}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let metadata: Value =
        serde_json::from_slice(&output.stdout).map_err(|why| format!("cargo metadata: {why}"))?;
    Ok(crates(&metadata))
}

/// The packages in what `cargo metadata` prints, with their dependencies on one another.
fn crates(metadata: &Value) -> Vec<Crate> {
    let packages = || metadata["packages"].as_array().into_iter().flatten();
    let is_ours = |name: &str| packages().any(|package| package["name"] == name);
    let read = |package: &Value| {
        // The kind of a normal dependency is null; others are for builds and for tests.
        let mut uses: Vec<String> = package["dependencies"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|dependency| dependency["kind"].is_null())
            .map(|dependency| string(&dependency["name"]))
            .filter(|name| is_ours(name))
            .collect();
        uses.sort();
        uses.dedup();
        Crate { name: string(&package["name"]), job: string(&package["description"]), uses }
    };
    packages().map(read).collect()
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A line for each crate. Each stands above all that it depends on.
fn table(crates: &[Crate]) -> String {
    let heights = heights(crates);
    let mut rows: Vec<&Crate> = crates.iter().collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(heights[row.name.as_str()]), &row.name));
    let mut table = String::from("| crate | its one job | depends on |\n|---|---|---|\n");
    for Crate { name, job, uses } in rows {
        let uses: Vec<String> = uses.iter().map(|name| format!("`{name}`")).collect();
        table += &format!("| `{name}` | {} | {} |\n", job.trim_end_matches('.'), uses.join(", "));
    }
    table
}

/// For each crate the number of arrows on the longest way down from it. (Cargo permits no circles.)
fn heights(crates: &[Crate]) -> BTreeMap<&str, usize> {
    let mut heights: BTreeMap<&str, usize> = crates.iter().map(|one| (one.name.as_str(), 0)).collect();
    for _ in crates {
        for Crate { name, uses, .. } in crates {
            let below = uses.iter().map(|used| heights[used.as_str()] + 1).max();
            heights.insert(name, below.unwrap_or(0));
        }
    }
    heights
}

/// The document with this table between its two marks.
fn with_table(text: &str, table: &str) -> Result<String, String> {
    let parts = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) =
        parts.ok_or_else(|| format!("{DOCUMENT} has no lines {} and {END}", BEGIN.trim_end()))?;
    Ok(format!("{before}{BEGIN}{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_crate_stands_above_those_that_it_depends_on() {
        let normal = |name: &str| json!({ "name": name, "kind": null });
        let metadata = json!({ "packages": [
            { "name": "bottom", "description": "Holds.", "dependencies": [{ "name": "top", "kind": "dev" }] },
            { "name": "aside", "description": null, "dependencies": [normal("elsewhere"), normal("middle")] },
            { "name": "top", "description": "Shows", "dependencies": [normal("middle"), normal("bottom"), normal("bottom")] },
            { "name": "middle", "description": "Carries", "dependencies": [normal("bottom")] },
        ]});
        let drawn = table(&crates(&metadata));
        let rows: Vec<&str> = drawn.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| `aside` |  | `middle` |",
                "| `top` | Shows | `bottom`, `middle` |",
                "| `middle` | Carries | `bottom` |",
                "| `bottom` | Holds |  |",
            ]
        );
    }

    #[test]
    fn the_table_is_put_between_the_marks() {
        let text = format!("a\n{BEGIN}old\n{END}\nb\n");
        assert_eq!(with_table(&text, "new\n").unwrap(), format!("a\n{BEGIN}new\n{END}\nb\n"));
        assert!(with_table("a\nb\n", "new\n").is_err());
    }
}
