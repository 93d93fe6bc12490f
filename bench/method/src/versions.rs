//! The versions of crates in this workspace's `Cargo.lock`.

/// Returns the version of a crate in `Cargo.lock`, or an empty text if the crate is not in it.
pub fn version_of(name: &str) -> String {
    const LOCK: &str = include_str!("../../Cargo.lock");
    let name = format!("name = \"{name}\"");
    let mut lines = LOCK.lines().skip_while(|line| *line != name);
    let version = lines.nth(1).and_then(|line| line.strip_prefix("version = "));
    version.unwrap_or_default().trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_stand_in_the_lock_file() {
        assert!(version_of("anyhow").starts_with("1."));
        assert_eq!(version_of("no such crate"), "");
    }
}
