//! Linux socket calls that the standard library lacks: batches of datagrams, with the local address
//! of each.
#![allow(unsafe_code)]

use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};
use std::os::fd::RawFd;
use std::ptr;

/// Sets the kernel's receive buffer to `bytes`, regardless of `net.core.rmem_max`; false without
/// `CAP_NET_ADMIN`.
pub(super) fn force_receive_buffer(socket: RawFd, bytes: usize) -> bool {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    let length = mem::size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option's value is an int that outlives the call, and its length is given.
    let done = unsafe {
        libc::setsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            (&raw const bytes).cast(),
            length,
        )
    };
    done == 0
}

/// Maximum number of datagrams per system call.
pub(super) const MAX_BATCH_DATAGRAMS: usize = 32;
/// Maximum length of a datagram, bytes; longer ones are truncated.
const MAX_DATAGRAM_BYTES: usize = 2048;
/// Space for one `in_pktinfo` control message, bytes.
const CONTROL_BYTES: usize = 64;

#[repr(align(8))]
#[derive(Clone, Copy)]
struct ControlBuffer([u8; CONTROL_BYTES]);

/// Buffers for [`MAX_BATCH_DATAGRAMS`] datagrams.
pub(super) struct ReceiveBatch {
    data: Vec<[u8; MAX_DATAGRAM_BYTES]>,
    source_addresses: Vec<libc::sockaddr_in>,
    controls: Vec<ControlBuffer>,
    received: Vec<(usize, SocketAddrV4, Ipv4Addr)>,
}

impl ReceiveBatch {
    pub(super) fn new() -> Self {
        // SAFETY: all-zero bytes are a valid sockaddr_in.
        let name: libc::sockaddr_in = unsafe { mem::zeroed() };
        Self {
            data: vec![[0; MAX_DATAGRAM_BYTES]; MAX_BATCH_DATAGRAMS],
            source_addresses: vec![name; MAX_BATCH_DATAGRAMS],
            controls: vec![ControlBuffer([0; CONTROL_BYTES]); MAX_BATCH_DATAGRAMS],
            received: Vec::with_capacity(MAX_BATCH_DATAGRAMS),
        }
    }

    /// Reads the available datagrams, at most [`MAX_BATCH_DATAGRAMS`]. `WouldBlock` if there are
    /// none.
    pub(super) fn receive(&mut self, socket: RawFd) -> io::Result<usize> {
        self.received.clear();
        // SAFETY: all-zero bytes are a valid iovec and a valid mmsghdr (null pointers, zero
        // lengths).
        let mut iovecs: [libc::iovec; MAX_BATCH_DATAGRAMS] = unsafe { mem::zeroed() };
        // SAFETY: as above.
        let mut headers: [libc::mmsghdr; MAX_BATCH_DATAGRAMS] = unsafe { mem::zeroed() };
        for i in 0..MAX_BATCH_DATAGRAMS {
            iovecs[i].iov_base = self.data[i].as_mut_ptr().cast();
            iovecs[i].iov_len = MAX_DATAGRAM_BYTES;
            let header = &mut headers[i].msg_hdr;
            header.msg_name = ptr::from_mut(&mut self.source_addresses[i]).cast();
            header.msg_namelen = mem::size_of::<libc::sockaddr_in>() as libc::socklen_t;
            header.msg_iov = &raw mut iovecs[i];
            header.msg_iovlen = 1;
            header.msg_control = self.controls[i].0.as_mut_ptr().cast();
            header.msg_controllen = CONTROL_BYTES as _;
        }
        // SAFETY: every header points to a name, an iovec, data and control space that live until
        // after the call, with their lengths.
        let count = unsafe {
            libc::recvmmsg(
                socket,
                headers.as_mut_ptr(),
                MAX_BATCH_DATAGRAMS as u32,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        if count < 0 {
            return Err(io::Error::last_os_error());
        }
        for (i, header) in headers.iter().enumerate().take(count as usize) {
            let source = to_socket_addr(&self.source_addresses[i]);
            let truncated = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            let length = if truncated { 0 } else { header.msg_len as usize };
            self.received.push((
                length,
                source,
                destination_address(&header.msg_hdr).unwrap_or(Ipv4Addr::UNSPECIFIED),
            ));
        }
        Ok(self.received.len())
    }

    /// The datagrams of the last [`ReceiveBatch::receive`]: data, source, local address. The data
    /// of a truncated datagram is empty.
    pub(super) fn datagrams(
        &mut self,
    ) -> impl Iterator<Item = (&mut [u8], SocketAddrV4, Ipv4Addr)> {
        let received = &self.received;
        self.data
            .iter_mut()
            .zip(received)
            .map(|(data, (length, source, local))| (&mut data[..*length], *source, *local))
    }
}

fn to_socket_addr(name: &libc::sockaddr_in) -> SocketAddrV4 {
    SocketAddrV4::new(
        Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr)),
        u16::from_be(name.sin_port),
    )
}

fn destination_address(header: &libc::msghdr) -> Option<Ipv4Addr> {
    // SAFETY: the kernel filled the control space and its length; CMSG_FIRSTHDR and CMSG_NXTHDR
    // stay within it.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while let Some(found) = message.as_ref() {
            if found.cmsg_level == libc::IPPROTO_IP && found.cmsg_type == libc::IP_PKTINFO {
                let info: libc::in_pktinfo = ptr::read_unaligned(libc::CMSG_DATA(message).cast());
                return Some(Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr)));
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    None
}

/// Enables `IP_PKTINFO`: the kernel reports the local address of each datagram.
pub(super) fn enable_pktinfo(socket: RawFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the option's value is an int that outlives the call, and its length is given.
    let result = unsafe {
        libc::setsockopt(
            socket,
            libc::IPPROTO_IP,
            libc::IP_PKTINFO,
            ptr::from_ref(&on).cast(),
            mem::size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// One datagram to send. If `source` is unspecified, the system chooses the address.
pub(super) struct OutgoingDatagram<'a> {
    pub(super) data: &'a [u8],
    pub(super) source: Ipv4Addr,
    pub(super) destination: SocketAddrV4,
}

/// Sends at most [`MAX_BATCH_DATAGRAMS`] of the datagrams and returns how many were sent.
pub(super) fn send_batch<'a>(
    socket: RawFd,
    datagrams: impl Iterator<Item = OutgoingDatagram<'a>>,
) -> io::Result<usize> {
    // SAFETY: all-zero bytes are valid for these plain structures.
    let mut iovecs: [libc::iovec; MAX_BATCH_DATAGRAMS] = unsafe { mem::zeroed() };
    // SAFETY: as above.
    let mut headers: [libc::mmsghdr; MAX_BATCH_DATAGRAMS] = unsafe { mem::zeroed() };
    // SAFETY: as above.
    let mut addresses: [libc::sockaddr_in; MAX_BATCH_DATAGRAMS] = unsafe { mem::zeroed() };
    let mut controls = [ControlBuffer([0; CONTROL_BYTES]); MAX_BATCH_DATAGRAMS];
    let mut count = 0;
    for (i, datagram) in datagrams.take(MAX_BATCH_DATAGRAMS).enumerate() {
        addresses[i].sin_family = libc::AF_INET as libc::sa_family_t;
        addresses[i].sin_port = datagram.destination.port().to_be();
        addresses[i].sin_addr.s_addr = u32::from(*datagram.destination.ip()).to_be();
        iovecs[i].iov_base = datagram.data.as_ptr().cast_mut().cast();
        iovecs[i].iov_len = datagram.data.len();
        let header = &mut headers[i].msg_hdr;
        header.msg_name = ptr::from_mut(&mut addresses[i]).cast();
        header.msg_namelen = mem::size_of::<libc::sockaddr_in>() as libc::socklen_t;
        header.msg_iov = &raw mut iovecs[i];
        header.msg_iovlen = 1;
        if !datagram.source.is_unspecified() {
            header.msg_control = controls[i].0.as_mut_ptr().cast();
            // SAFETY: in_pktinfo's size is a constant, and CMSG_SPACE of it is less than
            // CONTROL_BYTES.
            header.msg_controllen =
                unsafe { libc::CMSG_SPACE(mem::size_of::<libc::in_pktinfo>() as u32) } as _;
            // SAFETY: the control space is large enough for one in_pktinfo and aligned, so
            // CMSG_FIRSTHDR is not null and CMSG_DATA points into it.
            unsafe {
                let message = libc::CMSG_FIRSTHDR(header);
                (*message).cmsg_level = libc::IPPROTO_IP;
                (*message).cmsg_type = libc::IP_PKTINFO;
                (*message).cmsg_len =
                    libc::CMSG_LEN(mem::size_of::<libc::in_pktinfo>() as u32) as _;
                let mut info: libc::in_pktinfo = mem::zeroed();
                info.ipi_spec_dst.s_addr = u32::from(datagram.source).to_be();
                ptr::write_unaligned(libc::CMSG_DATA(message).cast(), info);
            }
        }
        count += 1;
    }
    // SAFETY: `count` headers are filled; what they point to lives until after the call; the kernel
    // only reads the data.
    let sent =
        unsafe { libc::sendmmsg(socket, headers.as_mut_ptr(), count, libc::MSG_DONTWAIT as _) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

/// Addresses of all interfaces that are up.
pub(super) fn interface_addresses() -> io::Result<Vec<IpAddr>> {
    let mut list: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: `list` is a place for the pointer that getifaddrs writes.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: the list is well formed until freeifaddrs; an address is read as what its family says
    // it is.
    unsafe {
        while let Some(interface) = next.as_ref() {
            next = interface.ifa_next;
            let up = interface.ifa_flags & libc::IFF_UP as u32 != 0;
            let Some(address) = interface.ifa_addr.as_ref().filter(|_| up) else { continue };
            match i32::from(address.sa_family) {
                libc::AF_INET => {
                    let name: libc::sockaddr_in = ptr::read_unaligned(interface.ifa_addr.cast());
                    found.push(IpAddr::V4(*self::to_socket_addr(&name).ip()));
                }
                libc::AF_INET6 => {
                    let name: libc::sockaddr_in6 = ptr::read_unaligned(interface.ifa_addr.cast());
                    found.push(IpAddr::V6(Ipv6Addr::from(name.sin6_addr.s6_addr)));
                }
                _ => {}
            }
        }
        libc::freeifaddrs(list);
    }
    Ok(found)
}

/// The address if it is IPv4.
pub(super) fn to_ipv4(address: SocketAddr) -> Option<SocketAddrV4> {
    match address {
        SocketAddr::V4(address) => Some(address),
        SocketAddr::V6(_) => None,
    }
}
