//! Trains: datagrams of one size that the kernel takes, and gives, in one system call (udp(7), UDP_SEGMENT and UDP_GRO).

use std::io;
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::AsRawFd;
use std::ptr;

use super::linux::turn_on;

/// Room for one control message, aligned as the kernel writes it.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Has the kernel give datagrams that came together as a train. Then only [`receive_train`] can tell them apart.
pub(crate) fn receive_trains(socket: &UdpSocket) -> io::Result<()> {
    turn_on(socket, libc::SOL_UDP, libc::UDP_GRO)
}

/// Sends datagrams of `each` bytes, the last one perhaps shorter; to whom the socket is connected if to nobody else.
pub(crate) fn send_train(socket: &UdpSocket, to: Option<&SocketAddr>, train: &[u8], each: u16) -> io::Result<()> {
    let (name, name_len) = to.map(sockaddr).unzip();
    let mut part = libc::iovec { iov_base: train.as_ptr().cast_mut().cast(), iov_len: train.len() };
    let mut control = Control([0; 64]);
    // SAFETY: a msghdr of zeros is one that names no memory.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if let (Some(name), Some(len)) = (&name, name_len) {
        message.msg_name = ptr::from_ref(name).cast_mut().cast();
        message.msg_namelen = len;
    }
    message.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: only computes a length.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<u16>() as libc::c_uint) } as _;
    // SAFETY: the control buffer is longer than `msg_controllen`, aligned for a header, and zeroed; the header and its
    // data lie within it.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_UDP;
        (*header).cmsg_type = libc::UDP_SEGMENT;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as libc::c_uint) as _;
        ptr::write_unaligned(libc::CMSG_DATA(header).cast::<u16>(), each);
    }
    // SAFETY: all that the message names outlives the call, and the kernel only reads it.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Receives a datagram or a train of them: from whom, how many bytes, and of how many each datagram is but the last.
pub(crate) fn receive_train(
    socket: &UdpSocket,
    buffer: &mut [u8],
    wait: bool,
) -> io::Result<(Option<SocketAddr>, usize, usize)> {
    // SAFETY: addresses of zeros are addresses of no family.
    let mut name: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut control = Control([0; 64]);
    // SAFETY: as above.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    let flags = if wait { 0 } else { libc::MSG_DONTWAIT };
    // SAFETY: the kernel writes no more than the lengths given into memory that outlives the call.
    let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    let Ok(len) = usize::try_from(len) else { return Err(io::Error::last_os_error()) };
    let mut each = len;
    // SAFETY: the kernel has set `msg_controllen` to what it wrote, whole headers within the buffer, which is aligned
    // for them; the macros stay within it. The data of this message is an int.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_UDP && (*header).cmsg_type == libc::UDP_GRO {
                let size = ptr::read_unaligned(libc::CMSG_DATA(header).cast::<libc::c_int>());
                each = usize::try_from(size).ok().filter(|size| *size > 0).unwrap_or(len);
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    Ok((address(&name), len, each))
}

/// An address as the kernel reads it, and its length.
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
            // SAFETY: as above.
            unsafe { ptr::write((&raw mut storage).cast(), name) };
            size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, len as libc::socklen_t)
}

/// An address as the kernel wrote it.
fn address(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match libc::c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: of this family it is a sockaddr_in, which the storage is longer than, and aligned for.
            let name: libc::sockaddr_in = unsafe { ptr::read(ptr::from_ref(storage).cast()) };
            let ip = Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(name.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above, a sockaddr_in6.
            let name: libc::sockaddr_in6 = unsafe { ptr::read(ptr::from_ref(storage).cast()) };
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
            let port = u16::from_be(name.sin6_port);
            Some(SocketAddrV6::new(ip, port, name.sin6_flowinfo, name.sin6_scope_id).into())
        }
        _ => None,
    }
}
