//! Whether a port is held by systemd for `shoal.socket`: then it is not free, and nothing is wrong.
//!
//! ```text
//!   /proc/net/tcp{,6}   the listening sockets: address, user, inode
//!   shoal.socket        the ports that the unit names
//!   /proc/1/fd          the sockets of systemd; only root may read it, for others a socket of root counts
//! ```
//!
//! Specification: proc(5), systemd.socket(5).

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// The unit of the package.
const UNIT: &str = "shoal.socket";
/// The folders of units, the one that counts first.
const UNIT_FOLDERS: [&str; 4] =
    ["etc/systemd/system", "run/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"];
/// The state of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// The files of a host.
#[derive(Clone, Debug)]
pub(super) struct Host {
    root: PathBuf,
}

impl Host {
    /// This host.
    pub(super) fn this() -> Self {
        Self::at("/")
    }

    /// A host whose files are below a folder.
    pub(super) fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Whether systemd listens on an address for `shoal.socket`.
    pub(super) fn systemd_holds(&self, address: SocketAddr) -> bool {
        let listening = ["proc/net/tcp", "proc/net/tcp6"]
            .iter()
            .filter_map(|file| fs::read_to_string(self.root.join(file)).ok())
            .flat_map(|table| table.lines().filter_map(Listening::of).collect::<Vec<Listening>>())
            .find(|listening| listening.holds(address));
        let Some(listening) = listening else { return false };
        // systemd listens for other units too.
        self.ports_of_unit().contains(&address.port())
            && match self.sockets_of_systemd() {
                Some(inodes) => inodes.contains(&listening.inode),
                None => listening.user == 0,
            }
    }

    /// The inodes of the sockets of systemd; `None` if this user may not see them.
    fn sockets_of_systemd(&self) -> Option<Vec<u64>> {
        let files = fs::read_dir(self.root.join("proc/1/fd")).ok()?;
        let links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        let inode =
            |link: PathBuf| link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok();
        Some(links.filter_map(inode).collect())
    }

    /// The ports that the unit names, with what an administrator has added to it.
    fn ports_of_unit(&self) -> Vec<u16> {
        let folder = |folder: &str| self.root.join(folder);
        let unit = UNIT_FOLDERS.iter().map(|name| folder(name).join(UNIT)).find(|unit| unit.exists());
        let added = UNIT_FOLDERS.iter().flat_map(|name| added(&folder(name).join(format!("{UNIT}.d"))));
        let texts = unit.into_iter().chain(added).filter_map(|file| fs::read_to_string(file).ok());
        texts.flat_map(|text| ports(&text)).collect()
    }
}

/// The files of a folder beside a unit.
fn added(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).into_iter().flatten().filter_map(|file| Some(file.ok()?.path()));
    files.filter(|file| file.extension().is_some_and(|extension| extension == "conf")).collect()
}

fn ports(unit: &str) -> Vec<u16> {
    let streams = unit.lines().filter_map(|line| line.trim().strip_prefix("ListenStream="));
    streams.filter_map(|stream| stream.rsplit(':').next()?.trim().parse().ok()).collect()
}

/// A listening socket.
#[derive(Debug)]
struct Listening {
    address: SocketAddr,
    user: u32,
    inode: u64,
}

impl Listening {
    /// The socket of a line of `/proc/net/tcp`, if it listens.
    fn of(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, local, _, LISTEN, _, _, _, user, _, inode, ..] = fields[..] else { return None };
        let (address, port) = local.split_once(':')?;
        let address = SocketAddr::new(ip(address)?, u16::from_str_radix(port, 16).ok()?);
        Some(Self { address, user: user.parse().ok()?, inode: inode.parse().ok()? })
    }

    /// Whether a program cannot listen on an address because of this socket.
    fn holds(&self, address: SocketAddr) -> bool {
        let (own, wanted) = (self.address.ip(), address.ip());
        self.address.port() == address.port()
            && (own == wanted || own.is_unspecified() || wanted.is_unspecified())
    }
}

/// An address of `/proc/net/tcp`: words of four bytes, in the order of the machine.
fn ip(hex: &str) -> Option<IpAddr> {
    let words = hex.as_bytes().chunks(8).map(|word| {
        let word = std::str::from_utf8(word).ok().filter(|word| word.len() == 8)?;
        Some(u32::from_str_radix(word, 16).ok()?.to_ne_bytes())
    });
    match words.collect::<Option<Vec<[u8; 4]>>>()?[..] {
        [address] => Some(Ipv4Addr::from(address).into()),
        [a, b, c, d] => {
            let mut bytes = [0; 16];
            bytes.iter_mut().zip([a, b, c, d].concat()).for_each(|(byte, read)| *byte = read);
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A host on which a socket with an inode and a user listens.
    pub(in super::super) fn host(root: &Path, address: SocketAddr, user: u32) -> Host {
        let word = |bytes: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(bytes));
        let (file, ip) = match address.ip() {
            IpAddr::V4(ip) => ("tcp", word(ip.octets())),
            IpAddr::V6(ip) => {
                let octets = ip.octets();
                let words = octets.chunks(4).map(|part| word(part.try_into().unwrap()));
                ("tcp6", words.collect())
            }
        };
        let line = format!(
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
             0: {ip}:{:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000 {user:5}        0 4711 1 0 100 0 0 10 0\n",
            address.port()
        );
        fs::create_dir_all(root.join("proc/net")).unwrap();
        fs::write(root.join("proc/net").join(file), line).unwrap();
        Host::at(root)
    }

    fn systemd_has(root: &Path, inode: u64) {
        fs::create_dir_all(root.join("proc/1/fd")).unwrap();
        std::os::unix::fs::symlink(format!("socket:[{inode}]"), root.join("proc/1/fd/42")).unwrap();
    }

    #[test]
    fn a_socket_of_systemd_is_recognised_by_its_inode() {
        for address in ["127.0.0.1:8080", "[::]:8443", "[2001:db8::7]:80"] {
            let address: SocketAddr = address.parse().unwrap();
            let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let host_of = |folder: &Path| host(folder, address, 0);
            let holds = host_of(own.path());
            unit(own.path(), UNIT, address);
            systemd_has(own.path(), 4711);
            assert!(holds.systemd_holds(address), "{address}");
            assert!(!holds.systemd_holds(SocketAddr::new(address.ip(), 81)), "another port");
            let held_by_another = host_of(other.path());
            unit(other.path(), UNIT, address);
            systemd_has(other.path(), 4712);
            assert!(!held_by_another.systemd_holds(address), "{address}");
        }
    }

    /// A unit of systemd that listens on an address.
    fn unit(root: &Path, name: &str, address: SocketAddr) {
        let units = root.join("etc/systemd/system");
        fs::create_dir_all(&units).unwrap();
        fs::write(units.join(name), format!("[Socket]\nListenStream={address}\n")).unwrap();
    }

    #[test]
    fn a_socket_of_another_unit_of_systemd_is_another_program() {
        let address: SocketAddr = "0.0.0.0:9090".parse().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let host = host(folder.path(), address, 0);
        systemd_has(folder.path(), 4711);
        unit(folder.path(), "cockpit.socket", address);
        unit(folder.path(), UNIT, "0.0.0.0:8443".parse().unwrap());
        assert!(!host.systemd_holds(address));
        unit(folder.path(), UNIT, address);
        assert!(host.systemd_holds(address));
    }

    #[test]
    fn a_user_who_cannot_look_at_systemd_compares_with_the_unit() {
        let address: SocketAddr = "0.0.0.0:8080".parse().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let of_root = host(folder.path(), address, 0);
        assert!(!of_root.systemd_holds(address), "there is no unit");
        let units = folder.path().join("usr/lib/systemd/system");
        fs::create_dir_all(&units).unwrap();
        fs::write(units.join(UNIT), include_str!("../../../packaging/files/shoal.socket")).unwrap();
        let added = folder.path().join("etc/systemd/system/shoal.socket.d");
        fs::create_dir_all(&added).unwrap();
        fs::write(added.join("ports.conf"), "[Socket]\nListenStream=0.0.0.0:8080\n").unwrap();
        assert!(of_root.systemd_holds(address));
        assert!(!host(folder.path(), address, 1000).systemd_holds(address), "a program of another user");
        let other: SocketAddr = "0.0.0.0:9999".parse().unwrap();
        assert!(!host(folder.path(), other, 0).systemd_holds(other), "another port of root");
    }

    #[test]
    fn ports_of_a_unit_are_those_of_its_streams() {
        let unit =
            "[Socket]\nListenStream=8080\n ListenStream=[::]:443\nListenDatagram=53\nListenStream=/run/x\n";
        assert_eq!(ports(unit), [8080, 443]);
    }
}
