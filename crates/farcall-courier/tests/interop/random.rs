//! Random values of every type, which the servers of others decode by their own codec, encode again, and send
//! back.

use crate::counterparts::servers;
use crate::telephones::{Empty, Entry, Everything, Kind, Place, Reach, ReachBetween, Room, Telephones};

/// Draws numbers (a linear congruential generator, by Knuth's constants).
struct Draw(u64);

impl Draw {
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 29
    }

    /// Returns a number that is often a bound of its type.
    fn word(&mut self) -> u16 {
        [0, u16::MAX, 1 << 15, self.number() as u16][self.number() as usize % 4]
    }

    fn long(&mut self) -> u32 {
        u32::from(self.word()) << 16 | u32::from(self.word())
    }

    fn coin(&mut self) -> bool {
        self.number().is_multiple_of(2)
    }

    /// Returns a string without a zero byte, which 4.4BSD's strings cannot hold.
    fn string<T: From<Vec<u8>>>(&mut self) -> T {
        let length = self.number() % 9;
        (0..length).map(|_| (self.number() % 255) as u8 + 1).collect::<Vec<u8>>().into()
    }

    fn some<T>(&mut self, most: u64, mut one: impl FnMut(&mut Draw) -> T) -> Vec<T> {
        (0..self.number() % (most + 1)).map(|_| one(self)).collect()
    }

    fn place(&mut self) -> Place {
        match self.number() % 4 {
            0 => Place::Desk(Room { building: self.string(), door: self.word() }),
            1 => Place::Mobile(self.long()),
            2 => Place::Fax,
            _ => Place::Pager,
        }
    }

    fn entry(&mut self) -> Entry {
        let (name, extension, listed) = (self.string(), self.long(), self.coin());
        Entry { name, extension, listed, place: self.place() }
    }

    fn everything(&mut self) -> Everything {
        Everything {
            yes: self.coin(),
            small: self.word(),
            big: self.long(),
            negative: self.word() as i16,
            long_negative: self.long() as i32,
            word: self.word(),
            other_word: self.word(),
            words: self.long(),
            text: self.string(),
            kind: [Kind::Desk, Kind::Mobile, Kind::Fax, Kind::Pager][self.number() as usize % 4],
            grid: [(); 2].map(|()| [(); 3].map(|()| self.word() as i16)),
            names: self.some(5, |draw| draw.string::<farcall::xdr::ByteString>().into()),
            numbers: self.some(40, Draw::word),
            nothing: Empty {},
            entries: self.some(8, Draw::entry),
            reach: match self.number() % 3 {
                0 => Reach::Never,
                1 => Reach::Always(self.coin()),
                _ => Reach::Between(ReachBetween { from: self.word(), to: self.word() }),
            },
        }
    }
}

#[test]
fn random_values_come_back_from_the_codecs_of_others() {
    for server in servers() {
        let telephones = farcall_courier::import::<dyn Telephones>(&server.address).unwrap();
        let mut draw = Draw(1981);
        for number in 0..1000 {
            let value = draw.everything();
            assert_eq!(telephones.echo(&value).unwrap(), value, "value {number}, {}", server.name);
        }
    }
}
