//! Lists whole directories, for callers of [`FileAccess`].

use crate::{Entry, FileAccess, FileError};

/// Returns all entries of a directory, by ascending name, a page at a time.
///
/// ```
/// # #[cfg(unix)] {
/// # let files = farcall_file_access::Directory::open(env!("CARGO_MANIFEST_DIR")).unwrap();
/// let names: Vec<String> = farcall_file_access::entries(&files, "src")
///     .map(|entry| Ok(entry?.name))
///     .collect::<farcall::Result<_, _>>()
///     .unwrap();
/// assert!(names.contains(&"lib.rs".to_string()));
/// # }
/// ```
pub fn entries<'a, F: FileAccess + ?Sized>(
    files: &'a F,
    path: &'a str,
) -> impl Iterator<Item = farcall::Result<Entry, FileError>> + 'a {
    let mut after = Some(String::new());
    let pages = std::iter::from_fn(move || {
        let page = match files.list(path, &after.take()?) {
            Ok(page) => page,
            Err(why) => return Some(vec![Err(why)]),
        };
        // A page with `more` but without entries ends the listing, so that no server makes a caller loop.
        after = page.entries.last().filter(|_| page.more).map(|entry| entry.name.clone());
        Some(page.entries.into_iter().map(Ok).collect())
    });
    pages.flatten()
}
