//! The bytes of a value of each dialect (RFC 4506), written out by hand, and the value decoded from them.

use std::fmt::Debug;

use farcall::xdr::{Chain, Decode, Encode, from_slice, to_vec};

/// Builds the bytes that a value should have.
#[derive(Default)]
struct Wire(Vec<u8>);

impl Wire {
    fn words(mut self, words: &[u32]) -> Wire {
        words.iter().for_each(|word| self.0.extend(word.to_be_bytes()));
        self
    }

    fn hyper(mut self, number: u64) -> Wire {
        self.0.extend(number.to_be_bytes());
        self
    }

    /// Adds bytes without their length, filled up to a multiple of four.
    fn fixed(mut self, bytes: &[u8]) -> Wire {
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    fn counted(self, bytes: &[u8]) -> Wire {
        self.words(&[bytes.len() as u32]).fixed(bytes)
    }
}

fn wire() -> Wire {
    Wire::default()
}

#[track_caller]
fn is<T: Encode + for<'a> Decode<'a> + PartialEq + Debug>(value: T, expected: Wire) {
    assert_eq!(to_vec(&value).unwrap(), expected.0, "{value:?}");
    assert_eq!(from_slice::<T>(&expected.0).unwrap(), value);
}

const MINUS_ONE: u32 = u32::MAX;

#[test]
fn types_of_c() {
    use crate::c_types::*;
    let widths = Widths { a: -1, b: -1, c: -1, d: -1, e: 1, f: 1, g: 1, h: 1, i: 1, j: 1, k: 1, l: 1 << 63 };
    let of_widths = |wire: Wire| {
        let narrow =
            wire.words(&[MINUS_ONE, MINUS_ONE, MINUS_ONE]).hyper(u64::MAX).words(&[1, 1, 1]).hyper(1);
        narrow.words(&[1, 1, 1]).hyper(1 << 63)
    };
    is(widths, of_widths(wire()));
    let sample = |measured| Sample {
        label: [1, 2, 3, -1],
        note: vec![5],
        at: Point { x: 6, y: 7 },
        measured,
        heavy: Weight::Heavy,
    };
    let start = |wire: Wire| wire.words(&[1, 2, 3, MINUS_ONE, 1, 5, 6, 7]);
    // A word before each element of a list says that it is there.
    is(
        Chain(vec![sample(None), sample(Some(widths))]),
        of_widths(start(start(wire().words(&[1])).words(&[0, 8, 1])).words(&[1])).words(&[8, 0]),
    );
    is(Reading::Heavy(Point { x: 1, y: 2 }), wire().words(&[8, 1, 2]));
    is(Reading::Heaviest(Point { x: 1, y: 2 }), wire().words(&[9, 1, 2]));
    let words = Words { a: -1, m: -1, o: 7, q: -1, u: 8, x: true, z: 1.5, ..Words::default() };
    let expected =
        wire().words(&[MINUS_ONE, 0, 0, 0, 0, 0, 0, 0, 0, 0, MINUS_ONE, 7, 0]).hyper(u64::MAX).hyper(0);
    is(words, expected.hyper(0).hyper(8).words(&[1, 1.5f32.to_bits()]).hyper(0));
}

#[test]
fn what_the_preprocessor_leaves() {
    use crate::preprocessed::*;
    assert_eq!((ROWS, BRICKS, STAIRS), (6, 22, 2));
    let room = |on| Room { name: "den".into(), width: 1 << 40, on };
    let of_room = |wire: Wire, on| wire.counted(b"den").hyper(1 << 40).words(&[on]);
    let house = House {
        doors: [room(Storey::Ground), room(Storey::First), room(Storey::Attic)],
        list: RoomList { head: Some(room(Storey::Attic)), length: 1 },
    };
    let doors = of_room(of_room(of_room(wire(), 0), 6), 7);
    is(house, of_room(doors.words(&[1]), 7).words(&[1]));
    assert!(to_vec(&Room { name: vec![b'a'; 23].into(), width: 0, on: Storey::Ground }).is_err());
    is(crate::line_ends::Yard { feet: [1, 2, 3] }, wire().words(&[1, 2, 3]));
}

/// Returns a value in which each of C's names occurs.
pub fn a_caller() -> crate::headers::Caller {
    use crate::headers::*;
    let user = || AuthsysParms { stamp: 1, machinename: "box".into(), uid: 2, gid: 3, gids: vec![4] };
    Caller {
        cookie: vec![1, 2, 3],
        key: [9; 8],
        credential: OpaqueAuth { oa_flavor: 6, oa_base: vec![7] },
        user: user(),
        same_user: user(),
        hex: [0; 48],
        host: "h".into(),
        net_name: "n".into(),
        path: "p".into(),
        file: "f".into(),
        socket: [0; 108],
        groups: vec![5],
    }
}

#[test]
fn names_of_c_s_headers() {
    use crate::headers::*;
    let of_user = |wire: Wire| wire.words(&[1]).counted(b"box").words(&[2, 3, 1, 4]);
    let caller = a_caller();
    let start = wire().counted(&[1, 2, 3]).fixed(&[9; 8]).words(&[6]).counted(&[7]);
    let middle = of_user(of_user(start)).words(&[0; 48]).counted(b"h").counted(b"n").counted(b"p");
    is(caller.clone(), middle.counted(b"f").words(&[0; 108]).words(&[1, 5]));
    assert!(to_vec(&Caller { cookie: vec![0; 1025], ..caller.clone() }).is_err());
    assert!(to_vec(&Caller { host: vec![0; 65].into(), ..caller }).is_err());
    is(
        Callee { away: 1 << 40, port: 9, ..Callee::default() },
        wire().hyper(1 << 40).words(&[0, 0, 0, 0, 9, 0]),
    );
    is(Flavour::AuthShort(vec![1]), wire().words(&[2]).counted(&[1]));
    is(Flavour::RpcsecGss(vec![1]), wire().words(&[6]).counted(&[1]));
    is(Failure::Case0(Table { legs: [1, 2, 3, 4] }), wire().words(&[0, 1, 2, 3, 4]));
    is(Failure::Eacces, wire().words(&[13]));
    let domain = Domain {
        uuid: [3; 16],
        model: vec![-1],
        label: vec![],
        doi: vec![],
        title: Some("t".into()),
        parameters: vec![Parameter::VirTypedParamUllong(5), Parameter::VirTypedParamString("s".into())],
    };
    let start = wire().fixed(&[3; 16]).words(&[1, MINUS_ONE, 0, 0, 1]).counted(b"t");
    is(domain, start.words(&[2, 4]).hyper(5).words(&[7]).counted(b"s"));
}

#[test]
fn types_of_namespaces_and_types_in_line() {
    use crate::namespaces::*;
    assert_eq!((BEDS, PATHS, BEDS_2), (3, 2, 9));
    let plant = Plant {
        key: [1; 8],
        height: -1,
        age: Some(2),
        ext: PlantExt::Case1(PlantExtV1 { parents: vec![[4; 8]], origin: PlantExtV1Origin::Cutting }),
    };
    let of_plant =
        |wire: Wire| wire.fixed(&[1; 8]).hyper(u64::MAX).words(&[1, 2, 1, 1]).fixed(&[4; 8]).words(&[8]);
    is(plant.clone(), of_plant(wire()));
    let hole = ChangePlantedHole { deep: 6 };
    is(
        Change::Spring(ChangePlanted { grown: vec![plant.clone()], hole }),
        of_plant(wire().words(&[0, 1])).words(&[6]),
    );
    is(Change::Summer(ChangeWork::Pruned), wire().words(&[3, 1]));
    is(Stock::Open(plant), of_plant(wire().words(&[4])));
    is(Stock::Shut(Some(Tool { kind: ToolKind::Rake, weight: 7 })), wire().words(&[5, 1, 2]).hyper(7));
    is(Stock::Shut(None), wire().words(&[5, 0]));
    is(Shelf { first: ShelfFirst::Case0(1), second: 2 }, wire().words(&[0, 1, 2]));
}

#[test]
fn types_without_a_name() {
    use crate::packages::*;
    let tree = |now| Tree {
        parts: TreeParts { trunk: TreePartsTrunk { kind: TreePartsTrunkKind::Ash, now } },
        crown: Circle { radius: 9 },
    };
    let planks = TreePartsTrunkNow::Felled(TreePartsTrunkNowWood::Planks);
    is(tree(planks), wire().words(&[2, 3, 2, 9]));
    let growing = TreePartsTrunkNow::Growing(TreePartsTrunkNowGrowing { rings: 80 });
    is(tree(growing), wire().words(&[2, 4, 80, 9]));
    is::<Distance>(Some(DistanceItem::Far), wire().words(&[1, 1]));
    is::<Sighting>(Some(Place { east: 1, north: 2 }), wire().words(&[1, 1, 2]));
    is::<Nothings>([Nothing::Default(5), Nothing::Default(-1)], wire().words(&[5, MINUS_ONE]));
}

#[test]
fn lists_by_pointers_and_strings_without_a_maximum() {
    use crate::pointers::*;
    let item = |text: &str| RingItem { engraved: text.into() };
    let jewel = Jewel { name: "opal".into(), set_in: vec![item("a"), item("b")] };
    is(jewel, wire().counted(b"opal").words(&[1]).counted(b"a").words(&[1]).counted(b"b").words(&[0]));
}

#[test]
fn other_names_of_types() {
    use crate::zero_copy::*;
    let numbers = Widths { a: -1, b: -1, c: -1, d: -1, e: 1, f: 2, g: 3, h: 4, i: true };
    let page = Page { numbers, head: 5, whole: vec![6; 5], few: vec![7], tail: 8 };
    let start = wire().words(&[MINUS_ONE, MINUS_ONE, MINUS_ONE]).hyper(u64::MAX).words(&[1, 2, 3]).hyper(4);
    is(page.clone(), start.words(&[1, 5]).counted(&[6; 5]).counted(&[7]).words(&[8]));
    assert!(to_vec(&Page { few: vec![0; 7], ..page }).is_err());
    let alarm = crate::pragmas::Alarm { at: 1, zone: -1, since: -1, times: 2, why: vec![3] };
    is(alarm, wire().hyper(1).words(&[MINUS_ONE]).hyper(u64::MAX).words(&[2]).counted(&[3]));
}

#[test]
fn constants() {
    use crate::constants::*;
    assert_eq!((LATER, OCTAL, MILLION, MASK, LETTER), (42, 127, 1_000_000, 0xabcd_ef01, 97));
    assert_eq!((LARGEST, HEX_LARGEST, BELOW, SUM), (u64::MAX, u64::MAX, -127, 339));
    assert_eq!((GREETING, Level::AlsoLow), ("say \"hello\"", Level::Low));
    is(Answer::Lowest([1; 127]), wire().words(&[-127i32 as u32]).fixed(&[1; 127]));
    is(Answer::Low(vec![2]), wire().words(&[-126i32 as u32, 1, 2]));
    assert!(to_vec(&Answer::Low(vec![0; 61])).is_err());
    is(Answer::High("x".into()), wire().words(&[MINUS_ONE]).counted(b"x"));
    is(Sized::Case4294967294(1), wire().words(&[u32::MAX - 1, 1]));
    is(Sized::Default(MILLION, 1), wire().words(&[1_000_000]).hyper(1));
}

#[test]
fn names_that_clash() {
    use crate::names::*;
    let clash = Clash { same: 1, Same: 2, SAME: 3 };
    is(CLASH { clash: Clash_2 { clash } }, wire().words(&[1, 2, 3]));
    is(Result::High_2(CLASH { clash: Clash_2 { clash } }), wire().words(&[1, 1, 2, 3]));
    is(Result::Default(Tone::HIGH_, vec![4]), wire().words(&[2, 1, 4]));
    let keywords = Keywords { r#as: 1, crate_: 5, r#virtual: 31, ..Keywords::default() };
    let mut words = [0; 31];
    (words[0], words[4], words[30]) = (1, 5, 31);
    is(keywords, wire().words(&words));
}
