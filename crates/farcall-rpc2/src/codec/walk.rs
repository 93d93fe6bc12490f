//! Follows a type through bytes: XDR bytes to packed ones or back. The bytes can come from a peer.

use farcall::xdr::schema::{Body, Type, Types};
use farcall::{room, work};

use super::error::{Error, ErrorKind};

/// The form of the bytes that are read, and of those that are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    ToPacked,
    ToXdr,
}

/// The bytes of the shortest value with any bytes at all.
const LEAST_BYTES: usize = 4;
/// The greatest depth to which structs nest. It bounds the use of the stack.
const MAX_DEPTH: u32 = 256;

/// Transcodes all of `from`, which is a value of the type.
pub(super) fn value(
    types: &Types,
    direction: Direction,
    ty: &Type,
    from: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    let mut walk = Walk { types, direction, from, out, depth: 0, steps: 0 };
    let walked = walk.value(ty).and_then(|()| walk.finish());
    work::steps(walk.steps);
    walked
}

/// Transcodes all of `from`, which are values of these types.
pub(super) fn fields(
    types: &Types,
    direction: Direction,
    fields: &[(String, Type)],
    from: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    let mut walk = Walk { types, direction, from, out, depth: 0, steps: 0 };
    let walked = fields.iter().try_for_each(|(name, ty)| walk.value(ty).map_err(|why| why.within(name)));
    let walked = walked.and_then(|()| walk.finish());
    work::steps(walk.steps);
    walked
}

/// Appends the packed bytes of a value whose numbers are 0 and whose parts are empty.
pub(super) fn empty(types: &Types, ty: &Type, out: &mut Vec<u8>) {
    let bytes = match ty {
        Type::Void => 0,
        Type::F64 | Type::String { .. } => 8,
        Type::Opaque { size } => padded(*size as usize),
        Type::Named(place) => match types.get(*place).map(|definition| &definition.body) {
            Some(Body::Struct { fields, .. }) => {
                return fields.iter().for_each(|field| empty(types, &field.ty, out));
            }
            _ => 4,
        },
        _ => 4,
    };
    out.resize(out.len() + bytes, 0);
}

struct Walk<'a, 'b> {
    types: &'a Types,
    direction: Direction,
    /// The bytes that are left.
    from: &'b [u8],
    out: &'a mut Vec<u8>,
    /// How deep the present struct nests.
    depth: u32,
    /// How many values were looked at, and parts of bytes taken.
    steps: usize,
}

impl<'b> Walk<'_, 'b> {
    fn finish(&self) -> Result<(), Error> {
        match self.from.len() {
            0 => Ok(()),
            left => Err(Error::new(ErrorKind::Trailing(left))),
        }
    }

    /// Transcodes a value.
    fn value(&mut self, ty: &Type) -> Result<(), Error> {
        self.steps += 1;
        match ty {
            Type::Void => Ok(()),
            Type::U8 => self.byte(),
            Type::F64 => self.double(),
            Type::Opaque { size } => self.bytes(*size as usize),
            Type::Bytes { .. } => {
                let length = self.number()?;
                self.bytes(length as usize)
            }
            Type::String { .. } => self.string(),
            Type::List { element, .. } => self.list(element),
            Type::Named(place) => self.named(*place),
            // The layout has no other types but numbers of 32 bits.
            _ => self.number().map(drop),
        }
    }

    fn named(&mut self, place: u32) -> Result<(), Error> {
        let types = self.types;
        match types.get(place).map(|definition| &definition.body) {
            Some(Body::Struct { fields, .. }) => {
                if self.depth == MAX_DEPTH {
                    return Err(Error::new(ErrorKind::TooDeep(MAX_DEPTH)));
                }
                self.depth += 1;
                for field in fields {
                    self.value(&field.ty).map_err(|why| why.within(&field.name))?;
                }
                self.depth -= 1;
                Ok(())
            }
            // Whether an enum has a variant of this number, the stub tells.
            _ => self.number().map(drop),
        }
    }

    fn list(&mut self, element: &Type) -> Result<(), Error> {
        let count = self.number()? as usize;
        let left = self.from.len();
        let too_many = || Error::new(ErrorKind::Count { count, left });
        if count > left / LEAST_BYTES {
            return Err(too_many());
        }
        for index in 0..count {
            let before = self.from.len();
            self.value(element).map_err(|why| why.within(index))?;
            if self.from.len() == before {
                return Err(too_many());
            }
        }
        Ok(())
    }

    /// Transcodes a number of 32 bits, and returns it.
    fn number(&mut self) -> Result<u32, Error> {
        let bytes = self.take_array::<4>()?;
        self.append(&bytes, 4)?;
        Ok(u32::from_be_bytes(bytes))
    }

    fn byte(&mut self) -> Result<(), Error> {
        let bytes = self.take_array::<4>()?;
        let byte = match self.direction {
            Direction::ToXdr => bytes[0],
            Direction::ToPacked => {
                let number = u32::from_be_bytes(bytes);
                u8::try_from(number).map_err(|_| Error::new(ErrorKind::OutOfRange(number)))?
            }
        };
        let bytes = match self.direction {
            Direction::ToXdr => [0, 0, 0, byte],
            Direction::ToPacked => [byte, 0, 0, 0],
        };
        self.append(&bytes, 4)
    }

    fn double(&mut self) -> Result<(), Error> {
        let mut bytes = self.take_array::<8>()?;
        bytes.reverse();
        self.append(&bytes, 8)
    }

    fn string(&mut self) -> Result<(), Error> {
        let length = self.number()? as usize;
        let start = self.out.len();
        match self.direction {
            Direction::ToPacked => {
                let text = self.take(padded(length))?;
                self.append(&text[..length], padded(length + 1))?;
            }
            Direction::ToXdr => {
                let text = self.take_last(length.saturating_add(1))?;
                if text[length] != 0 {
                    return Err(Error::new(ErrorKind::NoZeroByte));
                }
                self.append(&text[..length], padded(length))?;
            }
        }
        match self.out[start..start + length].contains(&0) {
            true => Err(Error::new(ErrorKind::ZeroByte)),
            false => Ok(()),
        }
    }

    /// Transcodes so many bytes and those that pad them, which may be anything.
    fn bytes(&mut self, length: usize) -> Result<(), Error> {
        let bytes = match self.direction {
            Direction::ToPacked => self.take(padded(length))?,
            Direction::ToXdr => self.take_last(length)?,
        };
        self.append(&bytes[..length], padded(length))
    }

    /// Appends bytes, and zeros up to this length.
    fn append(&mut self, bytes: &[u8], length: usize) -> Result<(), Error> {
        room::reserve(self.out, length).map_err(|why| Error::new(ErrorKind::NoMemory(why.bytes)))?;
        let start = self.out.len();
        self.out.extend_from_slice(bytes);
        self.out.resize(start + length, 0);
        Ok(())
    }

    fn take(&mut self, needed: usize) -> Result<&'b [u8], Error> {
        let Some((head, rest)) = self.from.split_at_checked(needed) else {
            return Err(Error::new(ErrorKind::Truncated { needed, left: self.from.len() }));
        };
        self.from = rest;
        self.steps += needed / 16;
        Ok(head)
    }

    /// Takes bytes of a packet with those that pad them. As for RPC2, the padding may be missing at the end
    /// of the packet.
    fn take_last(&mut self, needed: usize) -> Result<&'b [u8], Error> {
        let Some(taken) = self.from.get(..needed) else {
            return Err(Error::new(ErrorKind::Truncated { needed, left: self.from.len() }));
        };
        self.from = self.from.get(padded(needed)..).unwrap_or_default();
        self.steps += needed / 16;
        Ok(taken)
    }

    fn take_array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let bytes = self.take(N)?;
        let mut array = [0; N];
        array.copy_from_slice(bytes);
        Ok(array)
    }
}

/// Returns the length with the bytes that pad it to a multiple of four.
fn padded(length: usize) -> usize {
    length.saturating_add(3) & !3
}
