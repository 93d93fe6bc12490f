//! Derives Rust names from the names of an `.x` file (`docs/x-names.md`), and keeps them distinct.

use std::collections::{BTreeSet, HashMap};

use farcall_base::work;

/// Names that the generated code uses without their path. `Self` cannot be a name at all.
const TAKEN: [&str; 4] = ["Box", "Option", "Self", "Vec"];

/// Words that cannot be names, even in the form `r#word`.
const NEVER: [&str; 5] = ["_", "crate", "self", "super", "Self"];

/// Returns the name of a type or a variant: `Read3args` for `READ3args`, and `NfsFh3` for `nfs_fh3`.
pub fn camel(name: &str) -> String {
    let capital = |word: String| word[..1].to_ascii_uppercase() + &word[1..];
    or_x(words(name).into_iter().map(capital).collect(), 'X')
}

/// Returns the name of a field, an argument or a procedure: `max_name_length` for `maxNameLength`.
pub fn snake(name: &str) -> String {
    or_x(words(name).join("_"), 'x')
}

/// Returns the name of a constant: `MAX_NAME_LENGTH` for `maxNameLength`.
pub fn screaming(name: &str) -> String {
    or_x(words(name).join("_").to_ascii_uppercase(), 'X')
}

/// Returns the words of a name in lower case. A word begins after a character that is neither letter nor
/// digit, at an upper-case letter after a lower-case letter, and at the last of several upper-case letters if
/// a lower-case letter follows. Digits belong to the word before them.
fn words(name: &str) -> Vec<String> {
    let letters: Vec<char> = name.chars().collect();
    let mut words = Vec::new();
    let mut word = String::new();
    let mut after_small = false;
    for (at, letter) in letters.iter().enumerate() {
        let last_capital = at > 0
            && letters[at - 1].is_ascii_uppercase()
            && letters.get(at + 1).is_some_and(char::is_ascii_lowercase);
        let begins = letter.is_ascii_uppercase() && (after_small || last_capital);
        if (begins || !letter.is_ascii_alphanumeric()) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if letter.is_ascii_alphanumeric() {
            word.push(letter.to_ascii_lowercase());
        }
        if !letter.is_ascii_digit() {
            after_small = letter.is_ascii_lowercase();
        }
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

/// Returns the name, with the character `x` in front unless it begins with a letter.
fn or_x(name: String, x: char) -> String {
    match name.starts_with(|first: char| first.is_ascii_alphabetic()) {
        true => name,
        false => format!("{x}{name}"),
    }
}

/// The names that are taken in a scope.
#[derive(Default)]
pub struct Scope {
    taken: BTreeSet<String>,
    /// For each name that was wished for and taken: the first number that was not tried yet.
    numbers: HashMap<String, u64>,
}

impl Scope {
    /// Claims a name for what the file calls `spelled`, and returns it. Tries `wish`, then `spelled`, then
    /// `wish` with a number. The name must also be free with each of the endings in `beside`.
    pub fn claim_with(&mut self, wish: &str, spelled: &str, beside: &[&str]) -> String {
        let wish =
            if TAKEN.contains(&wish) || NEVER.contains(&wish) { format!("{wish}_") } else { wish.into() };
        let spelled = or_x(spelled.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect(), 'x');
        let spelled =
            Some(spelled).filter(|name| !TAKEN.contains(&name.as_str()) && !NEVER.contains(&name.as_str()));
        let taken = &self.taken;
        let free = |name: &String| {
            work::step();
            !taken.contains(name) && beside.iter().all(|ending| !taken.contains(&format!("{name}{ending}")))
        };
        let name = [wish.clone()].into_iter().chain(spelled).find(free).unwrap_or_else(|| {
            let next = self.numbers.entry(wish.clone()).or_insert(2);
            loop {
                let name = format!("{wish}_{next}");
                *next += 1;
                if free(&name) {
                    break name;
                }
            }
        });
        self.taken.extend(beside.iter().map(|ending| format!("{name}{ending}")));
        self.taken.insert(name.clone());
        name
    }

    /// Claims a free name, and returns it: `wish`, or else `spelled`, or else `wish` with a number.
    pub fn claim(&mut self, wish: &str, spelled: &str) -> String {
        self.claim_with(wish, spelled, &[])
    }
}

/// Returns the identifier as Rust's grammar requires it: `r#type` for `type`.
pub fn ident(name: &str) -> syn::Ident {
    let parsed = syn::parse_str(name).ok().filter(|_| name != "gen");
    parsed.unwrap_or_else(|| quote::format_ident!("r#{name}"))
}

/// Replaces all characters that other languages do not allow in names by `_`.
pub fn identifier(name: &str) -> String {
    let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    match name.trim_matches('_') {
        "" => "x".into(),
        name if name.starts_with(|c: char| c.is_ascii_digit()) => format!("x{name}"),
        name => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_into_words() {
        let both = |name: &str| (camel(name), snake(name));
        let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
        assert_eq!(both("READ3args"), pair("Read3args", "read3args"));
        assert_eq!(both("nfs_fh3"), pair("NfsFh3", "nfs_fh3"));
        assert_eq!(both("NFS3ERR_PERM"), pair("Nfs3errPerm", "nfs3err_perm"));
        assert_eq!(both("maxNameLength"), pair("MaxNameLength", "max_name_length"));
        assert_eq!(both("SCPBallot"), pair("ScpBallot", "scp_ballot"));
        assert_eq!(both("rp__list"), pair("RpList", "rp_list"));
        assert_eq!(both("__3com"), pair("X3com", "x3com"));
        assert_eq!(both("__"), pair("X", "x"));
        assert_eq!(both("naïve"), pair("NaVe", "na_ve"));
        assert_eq!(screaming("maxlen"), "MAXLEN");
    }

    #[test]
    fn a_second_name_gives_way() {
        let mut scope = Scope::default();
        let names = ["nfs_fh", "NFS_FH", "NfsFh", "nfsFh", "vec", "self", "Self"];
        let claimed: Vec<String> = names.iter().map(|name| scope.claim(&camel(name), name)).collect();
        assert_eq!(claimed, ["NfsFh", "NFS_FH", "NfsFh_2", "nfsFh", "Vec_", "Self_", "Self__2"]);
        assert_eq!(scope.claim_with("Calc", "calc", &["Client"]), "Calc");
        assert_eq!(scope.claim("CalcClient", "calc_client"), "calc_client");
        assert_eq!(ident("type").to_string(), "r#type");
    }
}
