//! Parses a path from a client into one that cannot name anything above the served directory.

use crate::{FileError, MAX_PATH};

/// A path of plain names: relative, without `..`, without NUL. The path may contain symbolic links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Below(String);

impl Below {
    /// Parses the path, and omits `.` and empty names.
    pub(crate) fn parse(path: &str) -> Result<Below, FileError> {
        let bad = |why: &str| Err(FileError::BadPath(why.into()));
        if path.len() > MAX_PATH {
            return bad("it is too long");
        }
        if path.contains('\0') {
            return bad("it contains a NUL");
        }
        if path.starts_with('/') {
            return bad("it begins with '/'; paths are relative to the directory that is served");
        }
        if path.split('/').any(|name| name == "..") {
            return bad("it contains '..'");
        }
        let names: Vec<&str> = path.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
        Ok(Below(names.join("/")))
    }

    /// Returns the path for system calls, which is never empty.
    pub(crate) fn as_str(&self) -> &str {
        match self.0.as_str() {
            "" => ".",
            path => path,
        }
    }

    /// Returns the directories on the path, and the last name, which is `.` for the served directory itself.
    pub(crate) fn split(&self) -> (impl Iterator<Item = &str>, &str) {
        let (way, last) = self.as_str().rsplit_once('/').unwrap_or(("", self.as_str()));
        (way.split('/').filter(|name| !name.is_empty()), last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_paths_are_taken() {
        for (path, is) in
            [("", "."), (".", "."), ("a", "a"), ("./a//b/./c/", "a/b/c"), ("..a/b..", "..a/b..")]
        {
            assert_eq!(Below::parse(path).unwrap().as_str(), is, "{path:?}");
        }
    }

    #[test]
    fn others_are_refused() {
        let long = "a".repeat(MAX_PATH + 1);
        for path in ["/", "/etc/passwd", "..", "../a", "a/..", "a/../../b", "a\0b", "//a", &long] {
            assert!(matches!(Below::parse(path), Err(FileError::BadPath(_))), "{path:?}");
        }
    }

    #[test]
    fn paths_are_split_at_the_last_name() {
        let parts = |path: &str| {
            let below = Below::parse(path).unwrap();
            let (way, last) = below.split();
            (way.map(str::to_owned).collect::<Vec<_>>(), last.to_owned())
        };
        assert_eq!(parts("a/b/c"), (vec!["a".into(), "b".into()], "c".into()));
        assert_eq!(parts("a"), (vec![], "a".into()));
        assert_eq!(parts(""), (vec![], ".".into()));
    }
}
