//! Converts comments to documentation: removes the comment marks, and escapes the text for Markdown.

/// Returns the text of the comments, in the order of the file.
pub(crate) fn clean<'a>(comments: impl IntoIterator<Item = &'a str>) -> String {
    let mut lines: Vec<String> = comments.into_iter().flat_map(bare).collect();
    let said = |line: &String| line.chars().any(char::is_alphanumeric);
    let Some(first) = lines.iter().position(said) else { return String::new() };
    let last = lines.iter().rposition(said).unwrap_or(first);
    lines.truncate(last + 1);
    lines.drain(..first);
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    if lines.iter().any(|line| is_laid_out(line)) { fenced(&lines) } else { escaped(&lines) }
}

/// Returns the lines of a comment without its marks.
fn bare(comment: &str) -> Vec<String> {
    let inner = match comment.get(..2) {
        Some("//") => comment.trim_start_matches(['/', '!']),
        Some("--") => comment.trim_matches('-'),
        _ => comment.trim_start_matches("/*").trim_end_matches("*/").trim_matches(['*', '<']),
    };
    let mut lines: Vec<String> =
        inner.lines().enumerate().map(|(place, line)| bare_line(place, line)).collect();
    // The first line follows the comment mark, so its column says nothing about the margin of the others.
    let margin = |line: &String| line.len() - line.trim_start().len();
    let least = lines.iter().skip(1).filter(|line| !line.is_empty()).map(margin).min().unwrap_or(0);
    for line in lines.iter_mut().skip(1) {
        line.drain(..least.min(line.len()));
    }
    lines
}

fn bare_line(place: usize, line: &str) -> String {
    let line = line.replace('\t', "    ").replace(|c: char| c.is_control(), "");
    let starred = line.trim_start();
    let line = match starred.strip_prefix('*') {
        Some(rest) if place > 0 => rest.trim_start_matches('*'),
        _ if place == 0 => starred,
        _ => line.as_str(),
    };
    let line = line.trim_end();
    // Lines that only frame a heading are dropped.
    if line.chars().any(char::is_alphanumeric) || line.trim().len() < 3 {
        line.to_owned()
    } else {
        String::new()
    }
}

/// Returns whether the layout of a line matters, as in a table, a drawing or a piece of code.
fn is_laid_out(line: &str) -> bool {
    line.starts_with("    ") || line.trim().contains("    ")
}

/// Puts the text between fences, so that it is neither interpreted as Markdown nor run as a documentation
/// test.
fn fenced(lines: &[&str]) -> String {
    let inner: Vec<String> = lines.iter().map(|line| line.replace("```", "'''")).collect();
    format!("```text\n{}\n```", inner.join("\n"))
}

/// Returns the text as a paragraph, with escapes for what Markdown would take for a link, a tag, a heading or
/// code.
fn escaped(lines: &[&str]) -> String {
    let mut out = Vec::new();
    for line in lines {
        let mut escaped = String::new();
        for c in line.trim().chars() {
            if matches!(c, '[' | ']' | '<' | '`' | '\\') {
                escaped.push('\\');
            }
            escaped.push(c);
        }
        if escaped.starts_with(['#', '>', '=', '-', '+', '*', '~']) && !escaped.starts_with("- ") {
            escaped.insert(0, '\\');
        }
        out.push(escaped);
    }
    out.join("\n")
}
