//! language.x in Rust: a server that returns its arguments, and a client that compares the results.

use std::sync::Arc;

use farcall::xdr::Bounded;
use farcall_onc::{Client, Server};

use crate::programs::at_each;

pub mod x {
    farcall::include_x!("tests/interop/language.x");
}

use x::*;

/// Returns its arguments, as the program in C does.
pub struct Mirror;

impl LanguageFirst for Mirror {
    fn numbers(&self, numbers: &Numbers) -> farcall::Result<Numbers> {
        Ok(*numbers)
    }

    fn arrays(&self, arrays: &Arrays) -> farcall::Result<Arrays> {
        Ok(arrays.clone())
    }

    fn outcome(&self, outcome: &Outcome) -> farcall::Result<Outcome> {
        Ok(outcome.clone())
    }

    fn picture(&self, picture: &Picture) -> farcall::Result<Picture> {
        Ok(picture.clone())
    }

    fn maybe(&self, maybe: &Maybe) -> farcall::Result<Maybe> {
        Ok(*maybe)
    }

    fn sized(&self, sized: &Sized) -> farcall::Result<Sized> {
        Ok(sized.clone())
    }

    fn entries(&self, entries: &farcall::xdr::Chain<Entry>) -> farcall::Result<farcall::xdr::Chain<Entry>> {
        Ok(entries.clone())
    }

    fn tree(&self, tree: &Tree) -> farcall::Result<Tree> {
        Ok(tree.clone())
    }

    fn node(&self, node: &Node) -> farcall::Result<Node> {
        Ok(node.clone())
    }

    fn optional(&self, optional: &Optional) -> farcall::Result<Optional> {
        Ok(optional.clone())
    }

    fn blob(&self, blob: &[u8]) -> farcall::Result<Blob> {
        Ok(blob.to_vec())
    }

    fn text(&self, text: &farcall::xdr::ByteString) -> farcall::Result<farcall::xdr::ByteString> {
        Ok(text.clone())
    }

    fn palette(&self, palette: &[Colour]) -> farcall::Result<Bounded<Palette, 8>> {
        Ok(Bounded(palette.to_vec()))
    }

    fn colour(&self, colour: Colour) -> farcall::Result<Colour> {
        Ok(colour)
    }

    fn negate(&self, flag: bool) -> farcall::Result<bool> {
        Ok(!flag)
    }

    fn halve(&self, number: f64) -> farcall::Result<f64> {
        Ok(number / 2.0)
    }

    fn several(
        &self,
        flag: bool,
        colour: Colour,
        number: i64,
        text: &farcall::xdr::ByteString,
        blob: &[u8],
        number_2: u32,
    ) -> farcall::Result<i64> {
        Ok(i64::from(flag) + colour as i64 + number + (text.len() + blob.len()) as i64 + i64::from(number_2))
    }

    fn nothing(&self) -> farcall::Result<()> {
        Ok(())
    }
}

impl LanguageSecond for Mirror {
    fn version(&self) -> farcall::Result<u32> {
        Ok(2)
    }

    fn second(&self, names: &[Bounded<Name, 32>]) -> farcall::Result<farcall::xdr::ByteString> {
        Ok(names.get(1).map(|name| name.0.clone()).unwrap_or_default())
    }
}

impl OtherFirst for Mirror {
    fn square(&self, number: u32) -> farcall::Result<u64> {
        Ok(u64::from(number).pow(2))
    }
}

/// Starts a farcall server of all three programs, at a port of each network.
pub fn serve() -> Server {
    let mirror = Arc::new(Mirror);
    let builder = Server::builder().program::<dyn LanguageFirst>(mirror.clone());
    let builder = builder.program::<dyn LanguageSecond>(mirror.clone()).program::<dyn OtherFirst>(mirror);
    at_each(builder).start().unwrap()
}

/// Sends values of every type, and compares the results with them.
pub fn check(client: &Client, is_tcp: bool) {
    let first = client.bind::<dyn LanguageFirst>();
    first.nothing().unwrap();
    check_numbers(&first);
    check_arrays(&first, is_tcp);
    check_unions(&first);
    check_pointers(&first);
    let large: Vec<u8> = (0..if is_tcp { 300_001 } else { 6000 }).map(|index| (index % 251) as u8).collect();
    assert!(first.blob(&large).unwrap() == large);
    assert_eq!(first.blob(&[]).unwrap(), b"");
    let sum = first.several(true, Colour::BelowZero, -1 << 40, &"text".into(), &large, u32::MAX).unwrap();
    assert_eq!(sum, 1 - 7 - (1 << 40) + 4 + large.len() as i64 + i64::from(u32::MAX));
    let second = client.bind::<dyn LanguageSecond>();
    assert_eq!(second.version().unwrap(), 2);
    let names = ["first", "second"].map(|name| Bounded(Name::from(name)));
    assert_eq!(&*second.second(&names).unwrap(), b"second");
    assert_eq!(client.bind::<dyn OtherFirst>().square(u32::MAX).unwrap(), u64::from(u32::MAX).pow(2));
}

fn check_numbers(first: &LanguageFirstClient) {
    let least = Numbers {
        plain: i32::MIN,
        not_negative: 0,
        bare: 0,
        large: i64::MIN,
        larger: 0,
        single: f32::MIN,
        twice: f64::MIN_POSITIVE,
        flag: false,
        tiny: i8::MIN,
        tiny_too: 0,
        small: i16::MIN,
        small_too: 0,
        not_longer: i32::MIN,
        no_longer: 0,
        paint: Colour::BelowZero,
    };
    let most = Numbers {
        plain: i32::MAX,
        not_negative: u32::MAX,
        bare: u32::MAX,
        large: i64::MAX,
        larger: u64::MAX,
        single: f32::INFINITY,
        twice: -0.0,
        flag: true,
        tiny: i8::MAX,
        tiny_too: u8::MAX,
        small: i16::MAX,
        small_too: u16::MAX,
        not_longer: i32::MAX,
        no_longer: u32::MAX,
        paint: Colour::Blue,
    };
    for numbers in [least, most] {
        assert_eq!(first.numbers(&numbers).unwrap(), numbers);
    }
    let colours = [Colour::Red, Colour::Green, Colour::Blue, Colour::BelowZero];
    for colour in colours {
        assert_eq!(first.colour(colour).unwrap(), colour);
    }
    assert_eq!(first.palette(&colours).unwrap().0, colours);
    assert_eq!(first.palette(&[]).unwrap().0, []);
    assert!(!first.negate(true).unwrap() && first.negate(false).unwrap());
    assert_eq!(first.halve(-3.0).unwrap(), -1.5);
}

fn check_arrays(first: &LanguageFirstClient, is_tcp: bool) {
    let full = Arrays {
        odd: [1, 2, 3, 4, 5, 6, 7],
        bounded: vec![0, 1, 2, 3, 4, 5, 6, 7, 255],
        unbounded: vec![255, 0, 254],
        label: "label".into(),
        text: "some text".into(),
        counts: [0, 1, 2, 3, 4, 5, 6, -7],
        many: vec![1, -1, 1 << 40],
        triples: vec![[1, 2, 3], [-1, -2, -3]],
        digests: [*b"0123456789abcdef", [0; 16]],
        words: ["", "four", "a name of thirty-two characters."].map(|word| Bounded(word.into())).to_vec(),
        corners: [Point { x: 1, y: 1 }, Point { x: 2, y: 2 }],
        points: (0..if is_tcp { 20_000 } else { 100 }).map(|x| Point { x, y: -x }).collect(),
    };
    assert!(first.arrays(&full).unwrap() == full);
    assert_eq!(first.arrays(&Arrays::default()).unwrap(), Arrays::default());
    // A string may have bytes that are no UTF-8. Only a zero byte cannot be part of a string in C.
    let text = farcall::xdr::ByteString::from(b"\xc3\xbcber \xff".to_vec());
    assert_eq!(first.text(&text).unwrap(), text);
}

fn check_unions(first: &LanguageFirstClient) {
    for outcome in [
        Outcome::Case0(Point { x: 7, y: -7 }),
        Outcome::Case1("one".into()),
        Outcome::Case2("two".into()),
        Outcome::Below([1, 2, 3]),
        Outcome::Default(99),
        Outcome::Default(i32::MIN),
    ] {
        assert_eq!(first.outcome(&outcome).unwrap(), outcome);
        let picture = Picture::Green(outcome);
        assert_eq!(first.picture(&picture).unwrap(), picture);
    }
    for picture in
        [Picture::Red, Picture::Default(Colour::BelowZero, -1), Picture::Default(Colour::Blue, i64::MAX)]
    {
        assert_eq!(first.picture(&picture).unwrap(), picture);
    }
    for maybe in [Some(2.5), None] {
        assert_eq!(first.maybe(&maybe).unwrap(), maybe);
    }
    for sized in [Sized::Case1(-1), Sized::Default(4_000_000_000, b"abc".to_vec())] {
        assert_eq!(first.sized(&sized).unwrap(), sized);
    }
}

fn check_pointers(first: &LanguageFirstClient) {
    let entry = |number| Entry { key: "a key".into(), what: Picture::Default(Colour::Blue, number) };
    let list: farcall::xdr::Chain<Entry> = (0..100).map(entry).collect();
    assert_eq!(first.entries(&list).unwrap(), list);
    assert_eq!(first.entries(&Default::default()).unwrap().len(), 0);
    let leaf = |value| Some(Box::new(Tree { value, left: None, right: None }));
    let tree = Tree {
        value: 3,
        left: Some(Box::new(Tree { value: 2, left: leaf(1), right: None })),
        right: leaf(4),
    };
    assert_eq!(first.tree(&tree).unwrap(), tree);
    let lowest = || Some(Box::new(Node::default()));
    let labels = ["up", "down"].map(|label| Bounded(label.into())).to_vec();
    let node = Node { labels, branches: vec![lowest(), None, lowest()], both: [None, lowest()] };
    assert_eq!(first.node(&node).unwrap(), node);
    let full = Optional {
        r#where: Some(Point { x: 1, y: 2 }),
        who: Some("somebody".into()),
        list: vec![entry(1), entry(2)],
        number: Some(1.0),
        after: true,
    };
    for optional in [full, Optional::default()] {
        assert_eq!(first.optional(&optional).unwrap(), optional);
    }
}
