//! The end of every bench: prints its rows as a table, and writes them as JSON with their conditions.
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};

use crate::options::Options;
use crate::row::Row;
use crate::table::table;

/// Writes `rows` to where the options say, each with `conditions`, and prints why some are void.
pub fn report(
    mut rows: Vec<Row>,
    conditions: &[String],
    void: &[String],
    options: &Options,
) -> Result<Vec<Row>> {
    for row in &mut rows {
        row.conditions = Some(conditions.join("; "));
    }
    if options.json.as_deref() != Some(Path::new("-")) {
        println!("{}\n{}", table(&rows), conditions.join("\n"));
    }
    for reason in void {
        eprintln!("void: {reason}");
    }
    if let Some(path) = &options.json {
        write_json(path, &rows)?;
    }
    Ok(rows)
}

/// Writes an array with one row per line; to standard output for `-`.
///
/// # Errors
/// When the file cannot be written.
pub fn write_json(path: &Path, rows: &[Row]) -> Result<()> {
    let lines: Vec<String> = rows.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    let text = format!("[\n{}\n]\n", lines.join(",\n"));
    if path == Path::new("-") {
        return Ok(std::io::stdout().write_all(text.as_bytes())?);
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
