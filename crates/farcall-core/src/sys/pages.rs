//! Keeps pages of this process's memory in the machine's memory, and asks for huge pages.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::{fs, io};

use rustix::mm::{Advice, madvise, mlock, munlock};
use rustix::process::{Resource, getrlimit};

use crate::lock;

/// Memory that is pinned: the system keeps it in the machine's memory until this is dropped. The owner drops
/// this before it frees or moves the memory.
#[derive(Debug)]
pub struct Pinned {
    /// The addresses of the first page, and of the page behind the last one.
    begin: usize,
    end: usize,
}

/// How often each page is pinned that is the first or the last one of pinned memory. The system does not
/// count: other memory may be on these pages, and be pinned too.
static EDGES: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

impl Pinned {
    /// Pins memory.
    ///
    /// # Errors
    /// The operating system's error, with the limit of this process.
    pub fn new(words: &[AtomicU64]) -> io::Result<Pinned> {
        let page = rustix::param::page_size();
        let begin = words.as_ptr().addr() / page * page;
        let end = (words.as_ptr().addr() + size_of_val(words)).next_multiple_of(page);
        let mut edges = lock(&EDGES);
        // SAFETY: this changes no memory. The pages are mapped, because each of them has a borrowed word.
        let pinned = unsafe { mlock(std::ptr::without_provenance_mut(begin), end - begin) };
        pinned.map_err(|why| refused(size_of_val(words), why.into()))?;
        let pinned = Pinned { begin, end };
        pinned.edges(page).for_each(|edge| *edges.entry(edge).or_default() += 1);
        Ok(pinned)
    }

    fn edges(&self, page: usize) -> impl Iterator<Item = usize> + use<> {
        let last = self.end - page;
        std::iter::once(self.begin).chain((last != self.begin).then_some(last))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let page = rustix::param::page_size();
        let (mut begin, mut end, mut edges) = (self.begin, self.end, lock(&EDGES));
        for edge in self.edges(page) {
            let pins = edges.get(&edge).map_or(0, |pins| pins - 1);
            if pins == 0 {
                edges.remove(&edge);
                continue;
            }
            edges.insert(edge, pins);
            if edge == self.begin { begin += page } else { end -= page }
        }
        if begin < end {
            // SAFETY: this changes no memory.
            let _ = unsafe { munlock(std::ptr::without_provenance_mut(begin), end - begin) };
        }
    }
}

#[cold]
fn refused(len: usize, why: io::Error) -> io::Error {
    let limit = match getrlimit(Resource::Memlock).current {
        Some(limit) => format!("this process may pin {limit} bytes in all (RLIMIT_MEMLOCK)"),
        None => "this process has no limit (RLIMIT_MEMLOCK)".into(),
    };
    io::Error::new(why.kind(), format!("pinning {len} bytes: {why}; {limit}"))
}

/// Asks the system to use huge pages for memory, in a mapped memory file if `is_file`. The system uses
/// ordinary pages where it has no huge ones.
///
/// # Errors
/// When the system uses no huge pages for such memory.
pub fn ask_for_huge_pages(words: &[AtomicU64], is_file: bool) -> io::Result<()> {
    const SETTINGS: &str = "/sys/kernel/mm/transparent_hugepage";
    let read = |name: &str| {
        let path = format!("{SETTINGS}/{name}");
        fs::read_to_string(&path).map_err(|why| io::Error::new(why.kind(), format!("{path}: {why}")))
    };
    let setting = if is_file { "shmem_enabled" } else { "enabled" };
    let chosen = read(setting)?;
    if let Some(off) = ["never", "deny"].into_iter().find(|off| chosen.contains(&format!("[{off}]"))) {
        let why = format!("{SETTINGS}/{setting} says {off}");
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    let huge: usize = read("hpage_pmd_size")?.trim().parse().map_err(io::Error::other)?;
    let begin = words.as_ptr().addr().next_multiple_of(huge);
    let end = (words.as_ptr().addr() + size_of_val(words)) / huge * huge;
    if begin >= end {
        let why = format!("the memory has no whole huge page of {huge} bytes");
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    // SAFETY: this advice changes no memory. The pages are mapped, because each of them has a borrowed word.
    unsafe { madvise(std::ptr::without_provenance_mut(begin), end - begin, Advice::LinuxHugepage) }
        .map_err(|why| io::Error::new(io::Error::from(why).kind(), format!("asking for huge pages: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_stays_pinned_while_any_memory_on_it_is() {
        let words: Vec<AtomicU64> = std::iter::repeat_with(AtomicU64::default).take(2000).collect();
        let page = rustix::param::page_size();
        let counted = |words: &[AtomicU64]| lock(&EDGES).get(&(words.as_ptr().addr() / page * page)).copied();
        let Ok(first) = Pinned::new(&words[1000..1001]) else { return };
        let second = Pinned::new(&words[1000..1002]).unwrap();
        assert_eq!(counted(&words[1000..]), Some(2));
        drop(first);
        assert_eq!(counted(&words[1000..]), Some(1));
        drop(second);
        assert_eq!(counted(&words[1000..]), None);
    }
}
