//! Captures: the UDP datagrams in a pcap or pcapng file.

use std::fmt;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};

/// The size of the read buffer, in bytes. A packet, with its headers, must fit it.
const BUFFER_BYTES: usize = 1 << 20;
/// The most interfaces of a capture that are remembered.
const MAX_INTERFACES: usize = 4096;

/// A datagram, with its time and addresses.
#[derive(Debug)]
pub struct Captured<'a> {
    /// The time since the first packet of the capture.
    pub at: Option<Duration>,
    /// The source and the destination.
    pub between: Option<(SocketAddr, SocketAddr)>,
    /// The payload.
    pub bytes: &'a [u8],
}

/// Why a capture cannot be read.
#[derive(Debug)]
pub struct Unreadable(String);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreadable {}

/// Returns whether a file that begins with these bytes is a capture.
pub fn is_one(start: &[u8]) -> bool {
    const MAGIC: [[u8; 4]; 5] = [
        [0xd4, 0xc3, 0xb2, 0xa1], // pcap, in either order of bytes
        [0xa1, 0xb2, 0xc3, 0xd4],
        [0x4d, 0x3c, 0xb2, 0xa1], // with nanoseconds
        [0xa1, 0xb2, 0x3c, 0x4d],
        [0x0a, 0x0d, 0x0d, 0x0a], // pcapng
    ];
    MAGIC.iter().any(|magic| start.starts_with(magic))
}

/// Calls `take` with every UDP datagram.
///
/// # Errors
/// The error of `take`, or why the capture cannot be read further.
pub fn read<E: From<Unreadable>>(
    input: impl Read + Send,
    take: &mut dyn FnMut(Captured<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut reader = create_reader(BUFFER_BYTES, input).map_err(|why| E::from(broken(&why)))?;
    let mut capture = Capture::default();
    loop {
        match reader.next() {
            Ok((size, block)) => {
                capture.block(&block, take)?;
                reader.consume(size);
            }
            Err(PcapError::Eof) => return Ok(()),
            // At the end of the file, `Incomplete` is reported as a truncated capture.
            Err(PcapError::Incomplete(_)) => {
                let before = reader.data().len();
                reader.refill().map_err(|why| E::from(broken(&why)))?;
                if reader.data().len() == before && !reader.reader_exhausted() {
                    return Err(unreadable("the capture has a packet that is too large").into());
                }
            }
            Err(PcapError::UnexpectedEof) => {
                return Err(unreadable("the capture ends in the middle of a packet").into());
            }
            Err(why) => return Err(broken(&why).into()),
        }
    }
}

fn unreadable(why: &str) -> Unreadable {
    Unreadable(why.to_owned())
}

fn broken(why: &PcapError<&[u8]>) -> Unreadable {
    match why {
        // The library's text of these errors would contain the unparsed data, up to a megabyte.
        PcapError::NomError(..) | PcapError::OwnedNomError(..) => unreadable("the capture is corrupt"),
        why => Unreadable(format!("the capture cannot be read: {why:?}")),
    }
}

/// The parts of a capture read so far that are needed to read later packets.
#[derive(Default)]
struct Capture {
    interfaces: Vec<Interface>,
    /// Whether fractions of a second in a classic capture's times are billionths instead of millionths.
    nanoseconds: bool,
    start: Option<Duration>,
}

#[derive(Clone, Copy)]
struct Interface {
    link: Linktype,
    /// How many units of the capture's time there are in a second.
    resolution: Option<u64>,
}

impl Capture {
    fn block<E>(
        &mut self,
        block: &PcapBlockOwned<'_>,
        take: &mut dyn FnMut(Captured<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                self.interfaces = vec![Interface { link: header.network, resolution: None }];
                self.nanoseconds = header.is_nanosecond_precision();
            }
            PcapBlockOwned::Legacy(packet) => {
                let scale = if self.nanoseconds { 1 } else { 1000 };
                let fraction = Duration::from_nanos(u64::from(packet.ts_usec) * scale);
                let at = Duration::from_secs(packet.ts_sec.into()) + fraction;
                self.packet(0, Some(at), packet.data, packet.caplen, take)?;
            }
            PcapBlockOwned::NG(Block::SectionHeader(_)) => self.interfaces.clear(),
            PcapBlockOwned::NG(Block::InterfaceDescription(found))
                if self.interfaces.len() < MAX_INTERFACES =>
            {
                let resolution = found.ts_resolution().filter(|resolution| *resolution > 0);
                self.interfaces.push(Interface { link: found.linktype, resolution });
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                let units = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                let resolution =
                    self.interfaces.get(packet.if_id as usize).and_then(|found| found.resolution);
                let at = resolution.map(|resolution| seconds(units, resolution));
                self.packet(packet.if_id, at, packet.data, packet.caplen, take)?;
            }
            PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
                self.packet(0, None, packet.data, packet.origlen, take)?;
            }
            PcapBlockOwned::NG(_) => {}
        }
        Ok(())
    }

    fn packet<E>(
        &mut self,
        interface: u32,
        at: Option<Duration>,
        data: &[u8],
        length: u32,
        take: &mut dyn FnMut(Captured<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(interface) = self.interfaces.get(interface as usize) else { return Ok(()) };
        // Padding follows the packet.
        let data = &data[..data.len().min(length as usize)];
        let Some((from, to, bytes)) = datagram(interface.link, data) else { return Ok(()) };
        let start = at.map(|at| *self.start.get_or_insert(at));
        let at = at.zip(start).map(|(at, start)| at.saturating_sub(start));
        take(Captured { at, between: Some((from, to)), bytes })
    }
}

fn seconds(units: u64, resolution: u64) -> Duration {
    let fraction = u128::from(units % resolution) * 1_000_000_000 / u128::from(resolution);
    Duration::from_secs(units / resolution) + Duration::from_nanos(fraction as u64)
}

/// Returns the UDP datagram in a packet, if it is complete.
fn datagram(link: Linktype, packet: &[u8]) -> Option<(SocketAddr, SocketAddr, &[u8])> {
    let sliced = match link {
        Linktype::ETHERNET => SlicedPacket::from_ethernet(packet),
        Linktype::LINUX_SLL => SlicedPacket::from_linux_sll(packet),
        // The IP packet begins after 20 bytes of Linux's newer cooked header, or 4 bytes of BSD's loopback
        // header.
        Linktype(276) => SlicedPacket::from_ip(packet.get(20..)?),
        Linktype::NULL | Linktype::LOOP => SlicedPacket::from_ip(packet.get(4..)?),
        Linktype::RAW | Linktype::IPV4 | Linktype::IPV6 => SlicedPacket::from_ip(packet),
        _ => return None,
    };
    let sliced = sliced.ok()?;
    let (from, to): (IpAddr, IpAddr) = match &sliced.net? {
        NetSlice::Ipv4(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
        NetSlice::Ipv6(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
        NetSlice::Arp(_) => return None,
    };
    let Some(TransportSlice::Udp(udp)) = sliced.transport else { return None };
    let (from, to) = (SocketAddr::new(from, udp.source_port()), SocketAddr::new(to, udp.destination_port()));
    Some((from, to, udp.payload()))
}
