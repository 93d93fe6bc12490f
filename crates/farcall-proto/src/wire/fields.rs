//! The fields of a frame's body: numbers in network byte order, and XDR opaques.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::Malformed;

/// The bytes of an address field: an IPv6 address (or an IPv4 address mapped to one), a port, and two zeros.
pub(super) const ADDRESS: usize = 20;

/// Returns the bytes of the IPv6 address. An IPv4 address is mapped to an IPv6 address.
pub(crate) fn ip_octets(address: SocketAddr) -> [u8; 16] {
    match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// The unwritten part of a frame's body.
pub(crate) struct Body<'a> {
    rest: &'a mut [u8],
}

impl<'a> Body<'a> {
    #[inline(always)]
    pub fn new(rest: &'a mut [u8]) -> Body<'a> {
        Body { rest }
    }

    pub fn u16(&mut self, v: u16) -> &mut Self {
        self.bytes(&v.to_be_bytes())
    }

    pub fn u32(&mut self, v: u32) -> &mut Self {
        self.bytes(&v.to_be_bytes())
    }

    pub fn u64(&mut self, v: u64) -> &mut Self {
        self.bytes(&v.to_be_bytes())
    }

    #[inline]
    pub fn bytes(&mut self, v: &[u8]) -> &mut Self {
        let (head, rest) = std::mem::take(&mut self.rest).split_at_mut(v.len());
        head.copy_from_slice(v);
        self.rest = rest;
        self
    }

    /// Writes `v` as an XDR opaque: its length, its bytes, and zeros up to a multiple of four.
    pub fn opaque(&mut self, v: &[u8]) -> &mut Self {
        self.u32(v.len() as u32).bytes(v);
        self.bytes(&[0; 3][..padding(v.len())])
    }

    pub fn address(&mut self, address: SocketAddr) -> &mut Self {
        self.bytes(&ip_octets(address)).u16(address.port()).u16(0)
    }

    /// Writes zeros up to the end of the body.
    pub fn zeros(&mut self) {
        self.rest.fill(0);
    }
}

/// Returns how many zeros bring `len` to a multiple of four.
pub(crate) fn padding(len: usize) -> usize {
    len.wrapping_neg() & 3
}

/// Returns how many bytes an XDR opaque takes whose content has `len` bytes.
pub(crate) fn opaque_len(len: usize) -> usize {
    4 + len + padding(len)
}

/// Reads values from the bytes of a frame.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(rest: &'a [u8]) -> Reader<'a> {
        Reader { rest }
    }

    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.first().copied()
    }

    /// Reads the next `N` bytes without a copy.
    #[inline]
    pub fn first<const N: usize>(&mut self) -> Result<&'a [u8; N], Malformed> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(Malformed)?;
        self.rest = rest;
        Ok(head)
    }

    #[inline]
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or(Malformed)?;
        self.rest = rest;
        Ok(head)
    }

    pub fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// Reads an XDR opaque of at most `max` bytes.
    pub fn opaque(&mut self, max: usize) -> Result<&'a [u8], Malformed> {
        let len = self.u32()? as usize;
        if len > max {
            return Err(Malformed);
        }
        let bytes = self.bytes(len)?;
        self.bytes(padding(len))?;
        Ok(bytes)
    }

    pub fn address(&mut self) -> Result<SocketAddr, Malformed> {
        let (ip, port, _) = (self.array::<16>()?, self.u16()?, self.u16()?);
        Ok(SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port))
    }

    pub fn rest(self) -> &'a [u8] {
        self.rest
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}
