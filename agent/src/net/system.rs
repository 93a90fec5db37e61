//! The network of the running kernel: rtnetlink, and the sockets of the DHCP client.
//!
//! ```text
//! changes, links     a netlink socket, one request at a time
//! DHCP messages out  a UDP socket for each link, bound to it: a link without an address can send
//! DHCP messages in   a packet socket for all links: the kernel's UDP takes no packet on a link without an address
//! ```

use std::{
    cell::Cell,
    fs, io,
    net::{Ipv4Addr, SocketAddrV4},
    num::NonZeroU32,
    os::fd::OwnedFd,
    path::PathBuf,
    time::{Duration, Instant},
};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink::SocketAddrNetlink, sockopt,
};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use super::netlink::{NetlinkMessage, list_links, messages, request};
use super::{Change, Kernel, Link, dhcp};

/// The kernel makes datagrams of at most 32 KiB.
const DATAGRAM: usize = 64 * 1024;
/// Datagrams of one response.
const MAX_DATAGRAMS: usize = 1024;
/// How often the links are listed again because they changed meanwhile. The lease of a link that the list lacks would be dropped.
const LISTS: u32 = 4;
/// The kernel responds at once; this bounds a fault.
const TIMEOUT: Duration = Duration::from_secs(5);
const EXISTS: i32 = 17;
/// IPv4 as the protocol of a packet socket.
const IPV4_PACKETS: u16 = 0x0800;

/// The filter of the packet socket: whole UDP packets of IPv4 to the port of a DHCP client. A packet begins with its IPv4 header.
/// Classic BPF:
/// code, jump if true, jump if false, value. Documentation/networking/filter.rst of the kernel.
const TO_CLIENT: [(u16, u8, u8, u32); 9] = [
    // ldb [9]: the protocol
    (0x30, 0, 0, 9),
    // jeq #UDP, else drop
    (0x15, 0, 6, 17),
    // ldh [6]: flags and offset of the fragment
    (0x28, 0, 0, 6),
    // jset #0x1fff, drop
    (0x45, 4, 0, 0x1fff),
    // ldx 4*([0]&0xf): the length of the header
    (0xb1, 0, 0, 0),
    // ldh [x+2]: the destination port
    (0x48, 0, 0, 2),
    // jeq #CLIENT_PORT, else drop
    (0x15, 0, 1, dhcp::CLIENT_PORT as u32),
    // the whole packet
    (0x06, 0, 0, u32::MAX),
    // drop
    (0x06, 0, 0, 0),
];

/// The running kernel.
pub struct SystemKernel {
    netlink: OwnedFd,
    packets: Option<Socket>,
    sequence: Cell<u32>,
    resolver: PathBuf,
}

impl SystemKernel {
    /// Opens the sockets; `resolver` is the configuration of the resolver, `/etc/resolv.conf` on a machine.
    ///
    /// # Errors
    /// Returns the error of the kernel.
    pub fn open(resolver: PathBuf) -> io::Result<Self> {
        let netlink =
            rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        rustix::net::bind(&netlink, &SocketAddrNetlink::new(0, 0))?;
        sockopt::set_socket_timeout(&netlink, sockopt::Timeout::Recv, Some(TIMEOUT))?;
        Ok(Self { netlink, packets: None, sequence: Cell::new(1), resolver })
    }

    /// Opens the socket on which DHCP messages arrive.
    ///
    /// # Errors
    /// Returns the error of the kernel.
    pub fn listen(&mut self) -> io::Result<()> {
        let protocol = Protocol::from(i32::from(IPV4_PACKETS.to_be()));
        let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(protocol))?;
        // Without the filter every packet of an image wakes this program; its messages are checked again all the same.
        let _ = socket
            .attach_filter(&TO_CLIENT.map(|(code, yes, no, value)| SockFilter::new(code, yes, no, value)));
        self.packets = Some(socket);
        Ok(())
    }

    /// Sends a request and calls `visit` with each message of the response.
    fn exchange(
        &self,
        build: impl FnOnce(u32) -> Vec<u8>,
        mut visit: impl FnMut(NetlinkMessage),
    ) -> io::Result<i32> {
        let sequence = self.sequence.get().wrapping_add(1);
        self.sequence.set(sequence);
        rustix::net::send(&self.netlink, &build(sequence), SendFlags::empty())?;
        let mut buffer = vec![0; DATAGRAM];
        for _ in 0..MAX_DATAGRAMS {
            let (length, _) = rustix::net::recv(&self.netlink, &mut buffer[..], RecvFlags::empty())?;
            for (of, message) in messages(&buffer[..length]) {
                // A response to an earlier request can be left over after a timeout.
                if of != sequence {
                    continue;
                }
                match message {
                    NetlinkMessage::End(result) => return Ok(result),
                    other => visit(other),
                }
            }
        }
        Err(io::Error::other("the kernel's response does not end"))
    }
}

impl Kernel for SystemKernel {
    fn links(&self) -> io::Result<Vec<Link>> {
        for _ in 0..LISTS {
            let (mut links, mut is_whole) = (Vec::new(), true);
            let result = self.exchange(list_links, |message| match message {
                NetlinkMessage::Link(Some(link)) => links.push(link),
                NetlinkMessage::Interrupted => is_whole = false,
                _ => {}
            })?;
            if result < 0 {
                return Err(io::Error::from_raw_os_error(result.saturating_neg()));
            }
            if is_whole {
                return Ok(links);
            }
        }
        Err(io::Error::other("they change while they are listed"))
    }

    fn change(&self, change: &Change) -> io::Result<()> {
        match self.exchange(|sequence| request(change, sequence), |_| {})? {
            result if result >= 0 || result == -EXISTS => Ok(()),
            result => Err(io::Error::from_raw_os_error(result.saturating_neg())),
        }
    }

    fn broadcast(&self, index: u32, message: &[u8]) -> io::Result<()> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_reuse_address(true)?;
        socket.set_broadcast(true)?;
        socket.bind_device_by_index_v4(NonZeroU32::new(index))?;
        socket.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, dhcp::CLIENT_PORT).into())?;
        socket.send_to(message, &SocketAddrV4::new(Ipv4Addr::BROADCAST, dhcp::SERVER_PORT).into())?;
        Ok(())
    }

    fn receive(&self, wait: Duration) -> Option<Vec<u8>> {
        let Some(socket) = &self.packets else {
            std::thread::sleep(wait);
            return None;
        };
        let until = Instant::now() + wait;
        let mut buffer = [0; 2048];
        loop {
            // A timeout of zero would mean none.
            let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            if socket.set_read_timeout(Some(left)).is_err() {
                std::thread::sleep(left);
                return None;
            }
            match io::Read::read(&mut &*socket, &mut buffer) {
                Ok(length) => {
                    if let Some(message) = dhcp::of_packet(&buffer[..length.min(buffer.len())]) {
                        return Some(message.to_vec());
                    }
                }
                Err(source)
                    if matches!(source.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                // Such as a link that went down: it is reported once.
                Err(_) => std::thread::sleep(left.min(Duration::from_millis(10))),
            }
            if Instant::now() >= until {
                return None;
            }
        }
    }

    fn set_resolver(&self, text: &str) -> io::Result<()> {
        fs::write(&self.resolver, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a filter as the kernel does. Returns how many bytes of the packet are taken.
    fn filtered(packet: &[u8]) -> u32 {
        let byte = |at: u32| packet.get(at as usize).copied().map(u32::from);
        let half = |at: u32| Some(byte(at)? << 8 | byte(at + 1)?);
        let (mut accumulator, mut index, mut at) = (0, 0, 0);
        loop {
            let (code, yes, no, value) = TO_CLIENT[at];
            at += 1;
            // A load behind the packet ends the filter: nothing is taken.
            let loaded = match code {
                0x30 => byte(value),
                0x28 => half(value),
                0x48 => half(index + value),
                _ => Some(accumulator),
            };
            let Some(loaded) = loaded else { return 0 };
            accumulator = loaded;
            match code {
                0xb1 => index = 4 * (byte(value).unwrap_or(0) & 0xf),
                0x15 => at += usize::from(if accumulator == value { yes } else { no }),
                0x45 => at += usize::from(if accumulator & value != 0 { yes } else { no }),
                0x06 => return value,
                _ => {}
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn the_filter_takes_every_packet_that_is_a_dhcp_message_and_none_to_another_port(
            options in 0_usize..3,
            port in proptest::sample::select(vec![68_u16, 67, 443, 0x4400]),
            protocol in proptest::sample::select(vec![17_u8, 6]),
            fragment in proptest::sample::select(vec![0_u16, 0x4000, 0x2000, 185]),
        ) {
            let length = 20 + 4 * options;
            let mut packet = vec![0; length + 8 + 16];
            packet[0] = 0x40 | (length / 4) as u8;
            let whole = packet.len() as u16;
            packet[2..4].copy_from_slice(&whole.to_be_bytes());
            packet[6..8].copy_from_slice(&fragment.to_be_bytes());
            packet[9] = protocol;
            packet[length..length + 2].copy_from_slice(&67_u16.to_be_bytes());
            packet[length + 2..length + 4].copy_from_slice(&port.to_be_bytes());
            packet[length + 4..length + 6].copy_from_slice(&24_u16.to_be_bytes());
            let taken = filtered(&packet) > 0;
            proptest::prop_assert_eq!(taken, protocol == 17 && port == 68 && fragment & 0x1fff == 0);
            proptest::prop_assert!(taken || dhcp::of_packet(&packet).is_none());
        }
    }

    /// The kernel of this machine lists its links without any right.
    #[test]
    fn the_links_of_the_running_kernel_are_listed() {
        let Ok(kernel) = SystemKernel::open(PathBuf::from("/nowhere")) else { return };
        let links = kernel.links().unwrap();
        assert!(links.iter().any(|link| link.name == "lo" && !link.hardware), "{links:?}");
    }
}
