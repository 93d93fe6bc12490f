//! Implements the wire forms of durations, times, and Internet addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::crossing::crossing;
use crate::schema::{Body, Field, Type, Types};
use crate::{Decode, Decoder, Error, ErrorKind, derive};

fn define_struct(types: &mut Types, name: &str, docs: &str, fields: &[(&str, Type)]) -> Type {
    let fields = self::fields(fields);
    types.define(&format!("std {name}"), name, docs, |_| Body::Struct { fields, extensible: false })
}

fn fields(fields: &[(&str, Type)]) -> Vec<Field> {
    fields.iter().map(|(name, ty)| derive::field(name, "", ty.clone(), false)).collect()
}

/// Defines a union of two arms: 4 for IPv4, 6 for IPv6.
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

crossing! {
    Duration, 12,
        |types| {
            let fields = [("seconds", Type::U64), ("nanoseconds", Type::U32)];
            define_struct(types, "Duration", "A span of time.", &fields)
        },
        |value, e| {
            e.u64(value.as_secs())?;
            e.u32(value.subsec_nanos())
        },
        |d| Ok(Duration::new(d.u64()?, nanoseconds(d)?));

    SystemTime, 12,
        |types| {
            let fields = [("seconds", Type::I64), ("nanoseconds", Type::U32)];
            define_struct(types, "SystemTime", "A time, counted from 1970 in UTC.", &fields)
        },
        |value, e| {
            let Some((seconds, nanoseconds)) = since_1970(*value) else {
                return Err(e.error(ErrorKind::Invalid("a time too far from 1970".into())));
            };
            e.i64(seconds)?;
            e.u32(nanoseconds)
        },
        |d| {
            let seconds = d.i64()?;
            let nanoseconds = Duration::from_nanos(nanoseconds(d)?.into());
            let whole = Duration::from_secs(seconds.unsigned_abs());
            let time = match seconds {
                0.. => UNIX_EPOCH.checked_add(whole),
                _ => UNIX_EPOCH.checked_sub(whole),
            };
            time.and_then(|time| time.checked_add(nanoseconds))
                .ok_or_else(|| invalid(d, "a time that this system cannot represent"))
        };

    Ipv4Addr, 4, |_| Type::Opaque { size: 4 }, |value, e| e.opaque(&value.octets()),
        |d| <[u8; 4]>::decode(d).map(Self::from);

    Ipv6Addr, 16, |_| Type::Opaque { size: 16 }, |value, e| e.opaque(&value.octets()),
        |d| <[u8; 16]>::decode(d).map(Self::from);

    IpAddr, 8,
        |types| {
            let v4 = [("address", Type::Opaque { size: 4 })];
            let v6 = [("address", Type::Opaque { size: 16 })];
            define_versions(types, "IpAddr", "An address of the Internet.", [&v4, &v6])
        },
        |value, e| match value {
            IpAddr::V4(address) => (4i32, address).encode(e),
            IpAddr::V6(address) => (6i32, address).encode(e),
        },
        |d| match d.i32()? {
            4 => Ipv4Addr::decode(d).map(IpAddr::V4),
            6 => Ipv6Addr::decode(d).map(IpAddr::V6),
            value => Err(d.error_in_last(4, ErrorKind::UnknownTag { value, of: "IpAddr" })),
        };

    SocketAddr, 12,
        |types| {
            let v4 = [("address", Type::Opaque { size: 4 }), ("port", Type::U16)];
            let [port, flow, scope] = [("port", Type::U16), ("flow", Type::U32), ("scope", Type::U32)];
            let v6 = [("address", Type::Opaque { size: 16 }), port, flow, scope];
            define_versions(types, "SocketAddr", "An address and a port.", [&v4, &v6])
        },
        |value, e| match value {
            SocketAddr::V4(v4) => (4i32, v4.ip(), v4.port()).encode(e),
            SocketAddr::V6(v6) => (6i32, v6.ip(), v6.port(), v6.flowinfo(), v6.scope_id()).encode(e),
        },
        |d| match d.i32()? {
            4 => Decode::decode(d).map(|(ip, port)| SocketAddrV4::new(ip, port).into()),
            6 => Decode::decode(d)
                .map(|(ip, port, flow, scope)| SocketAddrV6::new(ip, port, flow, scope).into()),
            value => Err(d.error_in_last(4, ErrorKind::UnknownTag { value, of: "SocketAddr" })),
        };
}

/// Returns the seconds since 1970 and the nanoseconds after them. For a time before 1970 the seconds are
/// negative, rounded down, and the nanoseconds count forwards from there.
fn since_1970(time: SystemTime) -> Option<(i64, u32)> {
    let before = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => return Some((after.as_secs().try_into().ok()?, after.subsec_nanos())),
        Err(error) => error.duration(),
    };
    let borrow = i64::from(before.subsec_nanos() != 0);
    let seconds = 0i64.checked_sub_unsigned(before.as_secs())?.checked_sub(borrow)?;
    Some((seconds, (1_000_000_000 - before.subsec_nanos()) % 1_000_000_000))
}
