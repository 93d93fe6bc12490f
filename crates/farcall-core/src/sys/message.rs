//! Sends and receives datagrams with control messages (cmsg(3)). With these, one system call sends or
//! receives a batch of datagrams of one size (udp(7), UDP_SEGMENT and UDP_GRO). They also set the source
//! address of a datagram, and report the address at which one arrived (ip(7), IP_PKTINFO; ipv6(7),
//! IPV6_PKTINFO).

use std::io::{self, IoSlice};
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd as _};
use std::ptr;

use super::linux::turn_on;

/// Makes the kernel return datagrams that arrived together as a batch. From then on only [`receive`] can
/// separate these datagrams.
pub(crate) fn receive_batches(socket: &UdpSocket) -> io::Result<()> {
    turn_on(socket, libc::SOL_UDP, libc::UDP_GRO)
}

/// Makes the kernel report to which of the host's addresses each datagram was sent.
pub fn report_destinations(socket: &UdpSocket, v6: bool) -> io::Result<()> {
    match v6 {
        false => turn_on(socket, libc::IPPROTO_IP, libc::IP_PKTINFO),
        true => turn_on(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    }
}

/// A datagram or a batch to send in one system call.
pub struct Outgoing<'a> {
    /// The destination; `None` if the socket is connected.
    pub to: Option<&'a SocketAddr>,
    /// The source address, of the socket's family. `None` lets the kernel choose.
    pub source: Option<IpAddr>,
    /// The bytes to send, as parts that the kernel concatenates.
    pub parts: &'a [IoSlice<'a>],
    /// For a batch: the length of each datagram in bytes. The last one may be shorter.
    pub each: Option<u16>,
}

/// A datagram or a batch that one system call received, or an ICMP error.
pub struct Incoming {
    /// The sender. For an ICMP error, the destination of the datagram that raised it. `None` if this is no
    /// Internet address.
    pub from: Option<SocketAddr>,
    /// The host's address at which the datagram arrived, if the kernel reports that.
    pub at: Option<IpAddr>,
    /// The number of bytes received.
    pub len: usize,
    /// The length of each datagram in bytes. The last one may be shorter.
    pub each: usize,
    /// The system's number of the error, if this is an ICMP error.
    pub report: Option<i32>,
    /// With a report that a datagram was too long: the path's MTU.
    pub mtu: u32,
    /// With a report: whether it says that a filter refuses the datagram.
    pub is_filtered: bool,
}

/// A buffer for control messages, aligned as the kernel reads and writes them.
#[repr(C, align(8))]
struct Control {
    bytes: [u8; CONTROL_BYTES],
    used: usize,
}

/// The size of the buffer for control messages, in bytes. It holds two messages of the largest kind, an IPv6
/// address with its interface.
const CONTROL_BYTES: usize = 128;

impl Control {
    fn new() -> Control {
        Control { bytes: [0; CONTROL_BYTES], used: 0 }
    }

    /// Adds a control message.
    fn push<T: Copy>(&mut self, level: libc::c_int, kind: libc::c_int, data: T) {
        let size = size_of::<T>() as libc::c_uint;
        // SAFETY: these only compute lengths.
        let (head, len, space) = unsafe { (libc::CMSG_LEN(0), libc::CMSG_LEN(size), libc::CMSG_SPACE(size)) };
        assert!(
            self.used + space as usize <= CONTROL_BYTES,
            "the buffer holds two control messages, none larger than an in6_pktinfo"
        );
        // SAFETY: a header of zeros is valid.
        let mut header: libc::cmsghdr = unsafe { mem::zeroed() };
        (header.cmsg_level, header.cmsg_type, header.cmsg_len) = (level, kind, len as _);
        // SAFETY: the header and the data lie within the buffer, as was just seen. `used` is a sum of
        // CMSG_SPACEs, and the buffer is aligned, so the header is aligned too.
        unsafe {
            let place = self.bytes.as_mut_ptr().add(self.used);
            ptr::write(place.cast(), header);
            ptr::write_unaligned(place.add(head as usize).cast(), data);
        }
        self.used += space as usize;
    }

    /// Adds the control message that makes the kernel send from this address.
    fn push_source(&mut self, source: IpAddr) {
        match source {
            IpAddr::V4(ip) => {
                let address = libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) };
                let any = libc::in_addr { s_addr: 0 };
                let info = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: address, ipi_addr: any };
                self.push(libc::IPPROTO_IP, libc::IP_PKTINFO, info);
            }
            IpAddr::V6(ip) => {
                let address = libc::in6_addr { s6_addr: ip.octets() };
                let info = libc::in6_pktinfo { ipi6_addr: address, ipi6_ifindex: 0 };
                self.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
            }
        }
    }
}

/// Sends a datagram or a batch. Returns the number of bytes sent.
pub fn send(socket: &UdpSocket, outgoing: &Outgoing<'_>) -> io::Result<usize> {
    let (name, name_len) = outgoing.to.map(sockaddr).unzip();
    let mut control = Control::new();
    if let Some(source) = outgoing.source {
        control.push_source(source);
    }
    if let Some(each) = outgoing.each {
        control.push(libc::SOL_UDP, libc::UDP_SEGMENT, each);
    }
    // SAFETY: a msghdr of zeros names no memory.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    // An IoSlice is laid out as an iovec. The kernel only reads it.
    message.msg_iov = outgoing.parts.as_ptr().cast_mut().cast();
    message.msg_iovlen = outgoing.parts.len() as _;
    if let (Some(name), Some(len)) = (&name, name_len) {
        message.msg_name = ptr::from_ref(name).cast_mut().cast();
        message.msg_namelen = len;
    }
    if control.used > 0 {
        message.msg_control = control.bytes.as_mut_ptr().cast();
        message.msg_controllen = control.used as _;
    }
    // SAFETY: all memory that the message names outlives the call, and the kernel only reads it.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Receives a datagram or a batch. If `wait` is false and none has arrived, returns an error.
pub fn receive(socket: &UdpSocket, buffer: &mut [u8], wait: bool) -> io::Result<Incoming> {
    receive_by(socket, buffer, if wait { 0 } else { libc::MSG_DONTWAIT })
}

/// Takes the oldest ICMP error out of the socket's error queue (ip(7), IP_RECVERR). Returns the destination
/// of the datagram that raised the error, and puts the beginning of that datagram into the buffer.
pub(crate) fn receive_error(socket: &impl AsFd, buffer: &mut [u8]) -> io::Result<Incoming> {
    receive_by(socket, buffer, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
}

fn receive_by(socket: &impl AsFd, buffer: &mut [u8], flags: libc::c_int) -> io::Result<Incoming> {
    // SAFETY: addresses of zeros are addresses of no family.
    let mut name: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut control = Control::new();
    // SAFETY: a msghdr of zeros names no memory.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes.as_mut_ptr().cast();
    message.msg_controllen = CONTROL_BYTES as _;
    // SAFETY: the kernel writes no more than the lengths given into memory that outlives the call.
    let len = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, flags) };
    let Ok(len) = usize::try_from(len) else { return Err(io::Error::last_os_error()) };
    let (from, at, report, mtu) = (address(&name), None, None, 0);
    let mut incoming = Incoming { from, at, len, each: len, report, mtu, is_filtered: false };
    // SAFETY: the kernel has set `msg_controllen` to the bytes that it wrote: whole messages, within the
    // buffer, which is aligned for their headers. The macros stay within these bytes. The level and the type
    // of a message determine what it holds.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            let data = libc::CMSG_DATA(header);
            match ((*header).cmsg_level, (*header).cmsg_type) {
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let size = ptr::read_unaligned(data.cast::<libc::c_int>());
                    incoming.each = usize::try_from(size).ok().filter(|size| *size > 0).unwrap_or(len);
                }
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info = ptr::read_unaligned(data.cast::<libc::in_pktinfo>());
                    incoming.at = Some(Ipv4Addr::from(info.ipi_spec_dst.s_addr.to_ne_bytes()).into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info = ptr::read_unaligned(data.cast::<libc::in6_pktinfo>());
                    incoming.at = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                }
                (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) => {
                    let error = ptr::read_unaligned(data.cast::<libc::sock_extended_err>());
                    let is_icmp =
                        matches!(error.ee_origin, libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6);
                    incoming.report = i32::try_from(error.ee_errno).ok().filter(|_| is_icmp);
                    incoming.mtu = error.ee_info;
                    incoming.is_filtered = is_filtered(&error);
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    Ok(incoming)
}

/// Returns whether a filter refuses datagrams, as an ICMP message says. With IPv4 Linux gives it the error
/// number of a host or a network that is not there (net/ipv4/icmp.c, icmp_err_convert). With IPv6 the number
/// tells it.
fn is_filtered(error: &libc::sock_extended_err) -> bool {
    /// "Destination unreachable" (RFC 792).
    const UNREACHABLE: u8 = 3;
    /// "Communication administratively prohibited": with the network, with the host, by filtering (RFC 1122,
    /// 3.2.2.1; RFC 1812, 5.2.7.1).
    const PROHIBITED: [u8; 3] = [9, 10, 13];
    error.ee_origin == libc::SO_EE_ORIGIN_ICMP
        && error.ee_type == UNREACHABLE
        && PROHIBITED.contains(&error.ee_code)
}

/// Converts an address to the kernel's form, and returns the length of that form in bytes.
fn sockaddr(address: &SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: zeros are valid.
    let mut storage: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let len = match address {
        SocketAddr::V4(v4) => {
            let name = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage is longer than any address, and aligned for all.
            unsafe { ptr::write((&raw mut storage).cast(), name) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let name = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: the storage is longer than any address, and aligned for all.
            unsafe { ptr::write((&raw mut storage).cast(), name) };
            size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, len as libc::socklen_t)
}

/// Converts an address from the kernel's form. Returns `None` if it is no Internet address.
fn address(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match libc::c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: for this family the storage holds a sockaddr_in. The storage is longer than that, and
            // aligned for it.
            let name: libc::sockaddr_in = unsafe { ptr::read(ptr::from_ref(storage).cast()) };
            let ip = Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(name.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: for this family the storage holds a sockaddr_in6. The storage is longer than that, and
            // aligned for it.
            let name: libc::sockaddr_in6 = unsafe { ptr::read(ptr::from_ref(storage).cast()) };
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
            let port = u16::from_be(name.sin6_port);
            Some(SocketAddrV6::new(ip, port, name.sin6_flowinfo, name.sin6_scope_id).into())
        }
        _ => None,
    }
}
