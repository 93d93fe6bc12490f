//! Chooses some of many members by their names, so that processes spread over the members and a change of the
//! members changes few choices.

/// Returns the indexes of at most `most` members, in order. Each member is given by its name, and by whether
/// it is on this machine; those on this machine come first. The others are the ones whose hashes of the name
/// and `number` are highest (rendezvous hashing), so a member that joins or leaves changes one of them at
/// most.
#[doc(hidden)]
pub fn subset<'a>(members: impl Iterator<Item = (&'a str, bool)>, most: usize, number: u64) -> Vec<usize> {
    let rank =
        |(which, (name, near)): (usize, (&str, bool))| (near, mix(hash(name.as_bytes()) ^ number), which);
    let mut ranked: Vec<(bool, u64, usize)> = members.enumerate().map(rank).collect();
    if ranked.len() > most {
        ranked.select_nth_unstable_by(most, |one, other| other.cmp(one));
        ranked.truncate(most);
    }
    let mut chosen: Vec<usize> = ranked.into_iter().map(|(_, _, which)| which).collect();
    chosen.sort_unstable();
    chosen
}

/// Returns a hash that is the same in all processes (FNV-1a, mixed).
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    mix(bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

/// Returns a number whose bits all depend on all bits of `number` (the end of SplitMix64; Steele, Lea, Flood
/// 2014).
#[inline]
pub(crate) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(count: usize, most: usize, number: u64) -> Vec<String> {
        let names: Vec<String> = (0..count).map(|which| format!("Work/{which}")).collect();
        let all = names.iter().map(|name| (&name[..], false));
        subset(all, most, number).into_iter().map(|which| names[which].clone()).collect()
    }

    #[test]
    fn processes_spread_over_the_members_and_few_choices_change() {
        let mut uses = std::collections::HashMap::new();
        for number in 0..1_000 {
            for name in chosen(1_000, 100, mix(number)) {
                *uses.entry(name).or_insert(0) += 1;
            }
        }
        assert_eq!(uses.len(), 1_000);
        assert!(uses.values().all(|uses| (50..200).contains(uses)), "{:?}", uses.values().max());
        let (before, after) = (chosen(1_000, 100, 7), chosen(1_001, 100, 7));
        assert!(before.iter().filter(|name| !after.contains(name)).count() <= 1);
        assert_eq!(chosen(5, 100, 7).len(), 5);
    }

    #[test]
    fn members_on_this_machine_are_always_chosen() {
        let names: Vec<String> = (0..1_000).map(|which| format!("Work/{which}")).collect();
        let all = names.iter().enumerate().map(|(which, name)| (&name[..], which == 500));
        assert!(subset(all, 1, 7) == [500]);
    }
}
