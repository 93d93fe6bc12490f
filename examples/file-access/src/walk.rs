//! What callers of [`FileAccess`] do with it time and again.

use crate::{Entry, FileAccess, FileError, MAX_READ};

/// All entries of a directory, by ascending name, a page at a time.
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
        // A page that says there is more and does not get on ends the listing: no server makes a caller loop.
        after = page.entries.last().filter(|_| page.more).map(|entry| entry.name.clone());
        Some(page.entries.into_iter().map(Ok).collect())
    });
    pages.flatten()
}

/// Reads a file from byte `offset` to its end, in calls of at most `each` bytes, and hands every part to `take`.
/// Returns the number of bytes.
///
/// # Errors
/// As [`FileAccess::read`]; and whatever `take` says, which ends the reading.
pub fn read_all<F: FileAccess + ?Sized, E: From<farcall::Error<FileError>>>(
    files: &F,
    path: &str,
    offset: u64,
    each: u32,
    mut take: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<u64, E> {
    let each = each.clamp(1, MAX_READ);
    let mut at = offset;
    loop {
        let part = files.read(path, at, each)?.0;
        take(&part)?;
        at = at.saturating_add(part.len() as u64);
        // A file that ends at the end of a part costs one more call, which gives nothing.
        if part.len() < each as usize {
            return Ok(at - offset);
        }
    }
}
