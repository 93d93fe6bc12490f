//! Holds farcall's own files of all dialects of the language against real files.
//!
//! The files stand in `farcall-onc/tests/dialects`, where their Rust is compiled and called. With
//! `FARCALL_X_CORPUS=directory` a test looks in the real files for what no file of ours has. Both are split
//! into words by a scanner of this test's own, so that no rule of the parser hides a difference.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use farcall_idl::x::{Config, Options, generate, interfaces, read, read_text};

use crate::rpcgen_agreement::{corpus, read as read_any};

/// The words that the language's grammar has.
const KEYWORDS: &str = "case const default enum import namespace opaque package pragma program string struct \
                        switch typedef union using version void zcopaque";
/// The words of which the names of numbers are made.
const NUMBERS: &str = "bool char double float hyper int long quad quadruple short signed unsigned";
/// Further names of types that need no declaration.
const TYPES: &str = "bool_t boolean boolean_t float32 float32_t float64 float64_t int16 int16_t int32 \
                     int32_t int64 int64_t int8 int8_t longlong_t quad_t u_char u_hyper u_int u_int16_t \
                     u_int32_t u_int64_t u_int8_t u_long u_longlong_t u_quad_t u_short uchar uint uint16 \
                     uint16_t uint32 uint32_t uint64 uint64_t uint8 uint8_t ulong ushort";
/// Values that need no declaration.
const VALUES: &str = "FALSE TRUE false true";

#[test]
fn our_files_are_read_and_described() {
    let (mut programs, mut types) = (0, 0);
    for file in own() {
        let tree = read(&file, &Options::default()).unwrap_or_else(|why| panic!("{why}"));
        assert!(tree.warnings.is_empty(), "{}: {:?}", file.display(), tree.warnings);
        generate(&tree, &Config::new()).unwrap();
        programs += interfaces(&tree).unwrap().len();
        types += tree.types.len();
    }
    assert!(own().len() >= 14 && programs >= 15 && types >= 90, "{} {programs} {types}", own().len());
    let borrowed = names_of_prelude();
    let ours = our_features(&borrowed);
    assert!(borrowed.is_subset(&ours), "{:?}", borrowed.difference(&ours));
}

#[test]
fn real_files_have_nothing_that_ours_lack() {
    let real = corpus();
    if real.is_empty() {
        let _ = writeln!(std::io::stderr(), "skipped: FARCALL_X_CORPUS names no directory of .x files");
        return;
    }
    let borrowed = names_of_prelude();
    let ours = our_features(&borrowed);
    let mut missed: BTreeMap<String, PathBuf> = BTreeMap::new();
    let mut compared = 0;
    for file in real.into_iter().filter(|file| read_any(file).is_ok()) {
        compared += 1;
        let theirs = features(&text(&file), &borrowed);
        missed.extend(theirs.difference(&ours).map(|feature| (feature.clone(), file.clone())));
    }
    println!("{compared} files; ours have {} features", ours.len());
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn features_are_words_and_what_follows_what() {
    let borrowed = BTreeSet::from(["netobj".to_owned()]);
    let of = |text: &str| features(text, &borrowed).into_iter().collect::<Vec<_>>();
    assert_eq!(
        of("unsigned int type[N]; /* a */ netobj b;\n"),
        [
            "/* */",
            "; NAME",
            "NAME ;",
            "NAME NAME",
            "NAME [",
            "NAME ]",
            "TYPE NAME",
            "[ NAME",
            "] ;",
            "int",
            "netobj",
            "r#type",
            "unsigned",
            "unsigned int",
        ]
    );
    assert_eq!(of("%#define A \\\n B"), ["%#define", "\\"]);
    assert_eq!(of("0x1F 017 1'0"), ["'", "0", "0x", "NUMBER NUMBER"]);
}

/// Returns farcall's own files.
fn own() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../farcall-onc/tests/dialects");
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "x")).collect();
    files.sort();
    files
}

fn text(file: &Path) -> String {
    String::from_utf8_lossy(&fs::read(file).unwrap()).into_owned()
}

fn our_features(borrowed: &BTreeSet<String>) -> BTreeSet<String> {
    own().iter().flat_map(|file| features(&text(file), borrowed)).collect()
}

/// Returns the names that every file can take from C's headers.
fn names_of_prelude() -> BTreeSet<String> {
    let prelude = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/x/prelude.x");
    let tree = read(&prelude, &Options::default()).unwrap();
    for word in TYPES.split_whitespace() {
        let declared = format!("typedef {word} probe;");
        assert!(read_text(Path::new("known.x"), &declared, &Options::default()).is_ok(), "{word}");
    }
    let constants = tree.constants.into_iter().map(|each| each.named.name);
    constants.chain(tree.types.into_iter().map(|each| each.named.name)).collect()
}

/// Returns what a text has of the language: each word of the language, each kind of number, comment and
/// directive, and each pair of words that follow one another. Names, numbers and types are alike in pairs.
fn features(text: &str, borrowed: &BTreeSet<String>) -> BTreeSet<String> {
    let mut scan = Scan { rest: text, first: true, features: BTreeSet::new() };
    let mut before = String::new();
    if text.contains('\r') {
        scan.note("CR");
    }
    if !text.is_ascii() {
        scan.note("letters beyond ASCII");
    }
    let of_type = |word: &str| if has(NUMBERS, word) { "TYPE".to_owned() } else { word.to_owned() };
    while let Some(word) = scan.next(borrowed) {
        if has(NUMBERS, &before) && has(NUMBERS, &word) {
            scan.note(&format!("{before} {word}"));
        } else if !matches!(before.as_str(), "" | "#" | "%") {
            scan.note(&format!("{} {}", of_type(&before), of_type(&word)));
        }
        before = word;
    }
    scan.features
}

fn has(words: &str, word: &str) -> bool {
    words.split_whitespace().any(|known| known == word)
}

struct Scan<'t> {
    rest: &'t str,
    /// Whether the next word is the first of its line.
    first: bool,
    features: BTreeSet<String>,
}

impl<'t> Scan<'t> {
    /// Returns the next word, and notes what it is.
    fn next(&mut self, borrowed: &BTreeSet<String>) -> Option<String> {
        loop {
            let first = self.rest.chars().next()?;
            match first {
                '\n' => self.first = true,
                ' ' | '\t' | '\r' | '\x0b' | '\x0c' => {}
                '\\' => self.note("\\"),
                '%' | '#' if self.first => return Some(self.line()),
                '/' if self.rest.starts_with("/*") => {
                    let end = self.rest[2..].find("*/").map_or(self.rest.len(), |end| end + 4);
                    self.take(end);
                    self.note("/* */");
                    continue;
                }
                '/' if self.rest.starts_with("//") => {
                    self.take_while(|c| c != '\n');
                    self.note("//");
                    continue;
                }
                _ => {
                    self.first = false;
                    return Some(self.word(first, borrowed));
                }
            }
            self.take(first.len_utf8());
        }
    }

    /// Takes a line for the preprocessor or for C, with the lines that continue it. Returns its mark.
    fn line(&mut self) -> String {
        self.first = false;
        let mark = self.take(1);
        let mut line = String::new();
        loop {
            line.push_str(self.take_while(|c| c != '\n'));
            if !line.trim_end_matches('\r').ends_with('\\') || self.rest.is_empty() {
                break;
            }
            self.note("\\");
            line.push_str(self.take(1));
        }
        let name = |text: &str| text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or("").to_owned();
        match (mark, line.trim_start().strip_prefix('#')) {
            ("%", Some(rest)) => self.note(&format!("%#{}", name(rest.trim_start()))),
            ("%", None) if name(line.trim_start()) == "typedef" => self.note("%typedef"),
            ("%", None) => {}
            _ => self.note(&format!("#{}", name(line.trim_start()))),
        }
        mark.to_owned()
    }

    fn word(&mut self, first: char, borrowed: &BTreeSet<String>) -> String {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        match first {
            '"' | '\'' => {
                self.take(1);
                let mut escaped = false;
                self.take_while(|c| {
                    let ends = c == '\n' || c == first && !escaped;
                    escaped = c == '\\' && !escaped;
                    !ends
                });
                self.take(usize::from(self.rest.starts_with(first)));
                if first == '"' { "TEXT".into() } else { "CHARACTER".into() }
            }
            '0'..='9' => {
                let number = self.take_while(|c| is_word(c) || c == '\'').to_lowercase();
                let base = if number.starts_with("0x") { "0x" } else { "0" };
                let holds = [
                    (number.len() > 1 && number.starts_with('0'), base),
                    (number.contains('\''), "'"),
                    (number.ends_with(['u', 'l']), "a number's suffix"),
                ];
                holds.iter().filter(|(holds, _)| *holds).for_each(|(_, what)| self.note(what));
                "NUMBER".into()
            }
            _ if is_word(first) => {
                let word = self.take_while(is_word);
                if has(TYPES, word) || has(VALUES, word) || has(NUMBERS, word) || borrowed.contains(word) {
                    self.note(word);
                }
                if has(KEYWORDS, word) || has(NUMBERS, word) {
                    return word.to_owned();
                }
                if syn::parse_str::<syn::Ident>(word).is_err() {
                    self.note(&format!("r#{word}"));
                }
                "NAME".into()
            }
            _ => self.take(first.len_utf8()).to_owned(),
        }
    }

    fn note(&mut self, feature: &str) {
        self.features.insert(feature.to_owned());
    }

    fn take(&mut self, length: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    fn take_while(&mut self, mut goes_on: impl FnMut(char) -> bool) -> &'t str {
        let end = self.rest.find(|c| !goes_on(c)).unwrap_or(self.rest.len());
        self.take(end)
    }
}
