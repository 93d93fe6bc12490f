//! Suggests the declared name that a misspelt name probably means.

/// The maximum length of a name that is compared, in bytes. The work grows with the square of the length.
const MAX_LENGTH: usize = 64;

/// Returns the candidate with the fewest insertions, deletions, replacements and swaps of neighbours (Damerau
/// 1964), if there are at most three and at most a third of the name's letters. Of several candidates,
/// returns the first in alphabetical order.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > MAX_LENGTH {
        return None;
    }
    let most = (name.len() / 3).clamp(1, 3);
    let distance =
        |candidate: &'a str| Some((distance(name.as_bytes(), candidate.as_bytes(), most)?, candidate));
    candidates.filter_map(distance).min().map(|(_, candidate)| candidate)
}

/// Returns how many changes turn one name into the other, ignoring case. Returns `None` if there are more
/// than `most`.
fn distance(a: &[u8], b: &[u8], most: usize) -> Option<usize> {
    if a.len().abs_diff(b.len()) > most {
        return None;
    }
    let mut before_last = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1; b.len() + 1];
        for (j, y) in b.iter().enumerate() {
            let same = x.eq_ignore_ascii_case(y);
            row[j + 1] = (last[j] + usize::from(!same)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && x.eq_ignore_ascii_case(&b[j - 1]) && a[i - 1].eq_ignore_ascii_case(y) {
                row[j + 1] = row[j + 1].min(before_last[j - 1] + 1);
            }
        }
        if row.iter().min().is_some_and(|least| *least > most) {
            return None;
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last.last().copied().filter(|distance| *distance <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_that_was_meant_is_near() {
        let of = |name: &str, names: &[&'static str]| nearest(name, names.iter().copied());
        assert_eq!(of("opaqe_t", &["opaque", "opaque_t", "int"]), Some("opaque_t"));
        assert_eq!(of("FHSZIE", &["FHSIZE", "FHSIZE3"]), Some("FHSIZE"));
        assert_eq!(of("nfs_fh3", &["NFS_FH3", "nfs_fh"]), Some("NFS_FH3"));
        assert_eq!(of("sockaddr", &["int", "string", "hyper"]), None);
        assert_eq!(of("it", &["int"]), Some("int"));
        assert_eq!(of(&"a".repeat(100), &["a"]), None);
    }
}
