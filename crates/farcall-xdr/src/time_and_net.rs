//! Durations, times, and addresses of the Internet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::schema::{Body, Field, Type, Types};
use crate::{Decode, Decoder, Encode, Encoder, Error, ErrorKind, Schema, derive};

fn define_struct(types: &mut Types, name: &str, docs: &str, fields: &[(&str, Type)]) -> Type {
    let fields = self::fields(fields);
    types.define(&format!("std {name}"), name, docs, |_| Body::Struct { fields, extensible: false })
}

fn fields(fields: &[(&str, Type)]) -> Vec<Field> {
    fields.iter().map(|(name, ty)| derive::field(name, "", ty.clone(), false)).collect()
}

/// A union of two arms, 4 and 6.
fn define_versions(types: &mut Types, name: &str, docs: &str, [v4, v6]: [&[(&str, Type)]; 2]) -> Type {
    let arms = vec![derive::arm("V4", "", Some(4), fields(v4)), derive::arm("V6", "", Some(6), fields(v6))];
    types.define(&format!("std {name}"), name, docs, |_| Body::Union { arms })
}

fn nanoseconds(d: &mut Decoder<'_>) -> Result<u32, Error> {
    match d.u32()? {
        nanoseconds @ ..1_000_000_000 => Ok(nanoseconds),
        _ => Err(invalid(d, "nanoseconds make more than a second")),
    }
}

#[cold]
fn invalid(d: &Decoder<'_>, why: &'static str) -> Error {
    d.error_in_last(4, ErrorKind::Invalid(why.into()))
}

impl Encode for Duration {
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error> {
        e.u64(self.as_secs())?;
        e.u32(self.subsec_nanos())
    }
}

impl Decode<'_> for Duration {
    const MIN_SIZE: usize = 12;

    fn decode(d: &mut Decoder<'_>) -> Result<Self, Error> {
        Ok(Duration::new(d.u64()?, nanoseconds(d)?))
    }
}

impl Schema for Duration {
    fn schema(types: &mut Types) -> Type {
        let fields = [("seconds", Type::U64), ("nanoseconds", Type::U32)];
        define_struct(types, "Duration", "A span of time.", &fields)
    }
}

impl Encode for SystemTime {
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error> {
        // Before 1970 the seconds are negative and the nanoseconds still count forwards.
        let (seconds, nanoseconds) = match self.duration_since(UNIX_EPOCH) {
            Ok(after) => (i64::try_from(after.as_secs()).ok(), after.subsec_nanos()),
            Err(error) => {
                let before = error.duration();
                let borrow = before.subsec_nanos() != 0;
                let seconds = 0i64.checked_sub_unsigned(before.as_secs());
                let seconds = seconds.and_then(|seconds| seconds.checked_sub(borrow.into()));
                (seconds, (1_000_000_000 - before.subsec_nanos()) % 1_000_000_000)
            }
        };
        let Some(seconds) = seconds else {
            return Err(e.error(ErrorKind::Invalid("a time too far from 1970".into())));
        };
        e.i64(seconds)?;
        e.u32(nanoseconds)
    }
}

impl Decode<'_> for SystemTime {
    const MIN_SIZE: usize = 12;

    fn decode(d: &mut Decoder<'_>) -> Result<Self, Error> {
        let seconds = d.i64()?;
        let nanoseconds = Duration::from_nanos(nanoseconds(d)?.into());
        let whole = Duration::from_secs(seconds.unsigned_abs());
        let time = match seconds {
            0.. => UNIX_EPOCH.checked_add(whole),
            _ => UNIX_EPOCH.checked_sub(whole),
        };
        time.and_then(|time| time.checked_add(nanoseconds))
            .ok_or_else(|| invalid(d, "a time that this system cannot represent"))
    }
}

impl Schema for SystemTime {
    fn schema(types: &mut Types) -> Type {
        let fields = [("seconds", Type::I64), ("nanoseconds", Type::U32)];
        define_struct(types, "SystemTime", "A time, counted from 1970 in UTC.", &fields)
    }
}

macro_rules! addresses {
    ($($address:ident $size:literal)*) => {$(
        impl Encode for $address {
            fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error> {
                e.opaque(&self.octets())
            }
        }

        impl Decode<'_> for $address {
            const MIN_SIZE: usize = $size;

            fn decode(d: &mut Decoder<'_>) -> Result<Self, Error> {
                <[u8; $size]>::decode(d).map(Self::from)
            }
        }

        impl Schema for $address {
            fn schema(_: &mut Types) -> Type {
                Type::Opaque { size: $size }
            }
        }
    )*};
}

addresses! { Ipv4Addr 4  Ipv6Addr 16 }

impl Encode for IpAddr {
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error> {
        match self {
            IpAddr::V4(address) => (4i32, address).encode(e),
            IpAddr::V6(address) => (6i32, address).encode(e),
        }
    }
}

impl Decode<'_> for IpAddr {
    const MIN_SIZE: usize = 8;

    fn decode(d: &mut Decoder<'_>) -> Result<Self, Error> {
        match d.i32()? {
            4 => Ipv4Addr::decode(d).map(IpAddr::V4),
            6 => Ipv6Addr::decode(d).map(IpAddr::V6),
            value => Err(d.error_in_last(4, ErrorKind::UnknownTag { value, of: "IpAddr" })),
        }
    }
}

impl Schema for IpAddr {
    fn schema(types: &mut Types) -> Type {
        let v4 = [("address", Type::Opaque { size: 4 })];
        let v6 = [("address", Type::Opaque { size: 16 })];
        define_versions(types, "IpAddr", "An address of the Internet.", [&v4, &v6])
    }
}

impl Encode for SocketAddr {
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error> {
        match self {
            SocketAddr::V4(v4) => (4i32, v4.ip(), v4.port()).encode(e),
            SocketAddr::V6(v6) => (6i32, v6.ip(), v6.port(), v6.flowinfo(), v6.scope_id()).encode(e),
        }
    }
}

impl Decode<'_> for SocketAddr {
    const MIN_SIZE: usize = 12;

    fn decode(d: &mut Decoder<'_>) -> Result<Self, Error> {
        match d.i32()? {
            4 => {
                let (ip, port) = Decode::decode(d)?;
                Ok(SocketAddrV4::new(ip, port).into())
            }
            6 => {
                let (ip, port, flow, scope) = Decode::decode(d)?;
                Ok(SocketAddrV6::new(ip, port, flow, scope).into())
            }
            value => Err(d.error_in_last(4, ErrorKind::UnknownTag { value, of: "SocketAddr" })),
        }
    }
}

impl Schema for SocketAddr {
    fn schema(types: &mut Types) -> Type {
        let v4 = [("address", Type::Opaque { size: 4 }), ("port", Type::U16)];
        let v6 = [
            ("address", Type::Opaque { size: 16 }),
            ("port", Type::U16),
            ("flow", Type::U32),
            ("scope", Type::U32),
        ];
        define_versions(types, "SocketAddr", "An address and a port.", [&v4, &v6])
    }
}
