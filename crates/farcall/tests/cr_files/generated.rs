//! Rust made of `.cr` files.

use std::path::Path;
use std::sync::Arc;

use farcall::stub::{Program, local};
use farcall::xdr::{Bounded, ByteString, from_slice, to_vec};
use farcall_idl::cr;
use farcall_idl::language::{self, Version};

#[allow(clippy::too_many_arguments)]
mod covering {
    farcall::include_cr!("tests/cr/Covering.cr", async);
}

/// The names that a crate other than farcall may offer under its own name.
mod offered {
    pub use farcall::{Exception, Multi, Never, Pending, Result, Xdr, idl, interface, multi, stub, xdr};
}

macro_rules! include_cr_here {
    ($($arguments:tt)*) => { farcall::include_cr!(crate = $crate::generated::offered, $($arguments)*); };
}

mod password {
    include_cr_here!("tests/cr/PasswordLookup.cr");
}

mod relative {
    #[allow(dead_code)]
    mod inner {
        farcall::include_cr!("tests/cr/Covering.cr", crate = super::super::offered);
    }
}

mod cooper {
    farcall::include_cr!("tests/cr/Cooper.cr");
}

use covering::ledger1::{MoveAllError, Person};
use covering::{Covering, Door, OpenError, OpenResults, Passage};

fn version(file: &str) -> Version {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cr").join(file);
    let tree = cr::read(&path, &cr::Options::default()).unwrap_or_else(|why| panic!("{why}"));
    language::interfaces(&tree).unwrap().remove(0)
}

/// Asserts that the description of a file equals that of the trait that was made of it.
#[track_caller]
fn same<I: Program + ?Sized>(file: &str) {
    let (version, compiled) = (version(file), I::interface());
    assert_eq!((version.program, version.version), (I::PROGRAM, I::VERSION));
    for (made, compiled) in version.interface.types.definitions().iter().zip(compiled.types.definitions()) {
        assert_eq!(made, compiled);
    }
    assert_eq!(&version.interface, compiled);
}

#[test]
fn tools_see_what_the_compiler_sees() {
    same::<dyn Covering>("Covering.cr");
    same::<dyn covering::ledger1::Ledger>("Ledger1.cr");
    same::<dyn password::PasswordLookup>("PasswordLookup.cr");
    same::<dyn cooper::Looker>("Cooper.cr");
    assert_eq!(version("PasswordLookup.cr").procedure_names, ["LookupUid", "LookupUser"]);
}

struct Server;

impl Covering for Server {
    fn idle(&self) -> farcall::Result<()> {
        Err(farcall::CallFailed::new(farcall::Kind::Other, farcall::Ran::Yes).into())
    }

    fn open(&self, door: Door, words: &[u16], _: &ByteString) -> farcall::Result<OpenResults, OpenError> {
        match words {
            [] => Err(OpenError::Trapped.into()),
            [since] => Err(OpenError::Jammed { door, since: (*since).into() }.into()),
            _ => Ok(OpenResults { door, at: covering::clock3::EPOCH }),
        }
    }

    fn tell(&self, all: &covering::Everything) -> farcall::Result<covering::Everything, covering::TellError> {
        Ok(all.clone())
    }

    fn start_(&self) -> farcall::Result<Bounded<Vec<Passage>, 65535>> {
        Ok(Bounded(vec![Passage::Open, Passage::Closed, covering::CELLAR.clone()]))
    }

    fn guard(&self, numbers: &covering::GuardNumbers) -> farcall::Result<(), covering::GuardError> {
        Err(covering::GuardError::Overdrawn { by: (numbers.a + numbers.b).unsigned_abs() }.into())
    }

    fn transfer(
        &self,
        from: &Person,
        to: &Person,
        amount: u32,
    ) -> farcall::Result<covering::ledger1::Time, covering::TransferError> {
        assert_eq!((&from.name, amount), (&"Ada".into(), 5));
        Ok(covering::ledger1::Time { seconds: 1, set_by: to.clone() })
    }

    fn spell(&self, text: &covering::Text) -> farcall::Result<Bounded<covering::Text, 65535>> {
        Ok(Bounded(text.clone()))
    }
}

#[test]
fn a_program_is_called_as_any_interface() {
    let covering = local::<dyn Covering>(Arc::new(Server));
    assert_eq!(farcall::CallFailed::from(covering.idle().unwrap_err()).kind(), farcall::Kind::Nested);
    let open = |words: &[u16]| covering.open(Door::Closed, words, &"front".into());
    assert_eq!(open(&[1, 2]).unwrap(), OpenResults { door: Door::Closed, at: 0 });
    let raised = |why: farcall::Error<OpenError>| why.declared().cloned().unwrap();
    assert_eq!(raised(open(&[]).unwrap_err()), OpenError::Trapped);
    let jammed = raised(open(&[9]).unwrap_err());
    assert_eq!(
        (&jammed, jammed.to_string().as_str()),
        (&OpenError::Jammed { door: Door::Closed, since: 9 }, "Jammed")
    );
    let cellar = covering.start_().unwrap().0.pop().unwrap();
    let Passage::Locked(locked) = cellar else { panic!("{cellar:?}") };
    assert_eq!((locked.key, locked.holder.name), (vec![1, 2, 65535], "Ada".into()));
    let ada = Person { name: "Ada".into(), born: 0 };
    assert_eq!(covering.transfer(&ada, &ada, 5).unwrap().set_by, ada);
    let _ = MoveAllError::Overdrawn { by: 0 };
}

#[test]
fn constants_have_their_types_and_values() {
    use covering::*;
    assert_eq!((TWO, SAME, HEX, MASK, LEAST, YES), (2_u16, 2_u16, 255_u16, u32::MAX, i16::MIN, true));
    assert_eq!((QUOTED, TITLE, FAVOURITE), ("say \"no\"", "", Door::Locked));
    assert_eq!((IDENTITY, NEVER), ([[1_i16, 0, 0], [0, 1, 0]], 0_u32));
    assert_eq!((KEY.as_slice(), LABELS.len()), (&[1_u16, 2, 65535][..], 2));
    let by_place = Numbers {
        flag: true,
        small: 1,
        other: 2,
        signed: -1,
        bits: 65535,
        long: 4,
        long_signed: -5,
        long_bits: 6,
    };
    assert_eq!(BY_PLACE, by_place);
    let by_name = Numbers {
        flag: false,
        small: 1,
        other: 1,
        signed: -1,
        bits: 0,
        long: u32::MAX,
        long_signed: -1,
        long_bits: u32::MAX,
    };
    // The names of one component share its value, which must fit all of them.
    assert_eq!(BY_NAME, by_name);
    assert_eq!((&*ENTRANCE, EMPTY), (&Passage::Open, Nothing {}));
    let StreamOfDoor::NextSegment(first) = &*LONGER else { panic!("a segment follows") };
    assert_eq!((&first.segment[..], &*first.rest_of_stream), (&[Door::Closed][..], &*END));
}

#[test]
fn values_cross() {
    let tree = covering::Tree {
        left: Box::new(covering::TreeLeft::Thrice(3)),
        value: covering::TreeValue { kind: covering::TreeValueKind::Inner, weight: 7 },
        children: Vec::new(),
    };
    let tree = covering::Tree {
        left: Box::new(covering::TreeLeft::Some(Box::new(tree.clone()))),
        children: vec![tree.clone()],
        ..tree
    };
    let bytes = to_vec(&tree).unwrap();
    assert_eq!(from_slice::<covering::Tree>(&bytes).unwrap(), tree);
    // The designator, and then the alternative's value.
    assert_eq!(to_vec(&Passage::Closed).unwrap(), [0, 0, 0, 7]);
    assert_eq!(to_vec(&OpenError::Jammed { door: Door::Open, since: 1 }).unwrap()[..4], [0, 0, 255, 255]);
}
