//! Addresses, names and BMCs: whether the controller can listen where the settings say, and reach what they name.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::sync::mpsc;
use std::time::Duration;

use settings::Settings;
use url::Url;

use super::finding::Finding;
use super::socket::Host;

/// How long a connection or the resolution of a name may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// The bytes of a response that are looked at.
const MAX_RESPONSE: u64 = 4096;

/// Whether each address of the settings is free, held by the running controller, or held by systemd for it.
pub(super) fn ports(settings: &Settings, running: bool, host: &Host) -> Vec<Finding> {
    let addresses = [
        ("CONTROLLER_HTTPS_ADDR", settings.controller_https_addr.address(), false),
        ("CONTROLLER_HTTP_ADDR", Some(settings.controller_http_addr), true),
        ("MEDIA_HTTP_ADDR", settings.media_http_addr, false),
        ("MEDIA_HTTPS_ADDR", settings.media_https_addr, false),
    ];
    let named = addresses.into_iter().filter_map(|(name, address, plain)| Some((name, address?, plain)));
    named.map(|(name, address, plain)| port((name, address, plain), running, host)).collect()
}

fn port((name, address, plain): (&str, SocketAddr, bool), running: bool, host: &Host) -> Finding {
    let finding =
        Finding::new("port", "a controller that cannot listen on one of its addresses does not start");
    let error = match TcpListener::bind(address) {
        Ok(_closed) => return finding.passed(format!("{name} {address} is free")),
        Err(error) => error,
    };
    match error.kind() {
        // Only plain HTTP can be asked without a certificate; the lock of the data directory speaks for the others.
        io::ErrorKind::AddrInUse if running && (!plain || is_shoal(address)) => {
            finding.passed(format!("{name} {address} is held by the running controller"))
        }
        // Before its first start, and while it is stopped: systemd listens and hands the sockets over.
        io::ErrorKind::AddrInUse if host.systemd_holds(address) => {
            finding.passed(format!("{name} {address} is held by systemd for shoal.socket"))
        }
        io::ErrorKind::AddrInUse => finding.failed(
            format!("{name} {address} is in use by another program"),
            format!("`ss -ltnp` names the program; stop it, or give {name} another port"),
        ),
        io::ErrorKind::PermissionDenied => finding.failed(
            format!("{name} {address}: this user may not use a port below 1024"),
            "enable shoal.socket, or add AmbientCapabilities=CAP_NET_BIND_SERVICE to the unit (see docs/install.md)",
        ),
        io::ErrorKind::AddrNotAvailable => finding.failed(
            format!("{name}: no interface of this host has the address {}", address.ip()),
            format!("`ip address` lists the addresses; give {name} one of them, or only :{}", address.port()),
        ),
        _ => finding.failed(format!("{name} {address}: {error}"), "correct the address"),
    }
}

/// Whether a controller responds at an address for plain HTTP.
fn is_shoal(address: SocketAddr) -> bool {
    let ask = || -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&reachable(address), PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut response = String::new();
        stream.take(MAX_RESPONSE).read_to_string(&mut response)?;
        Ok(response)
    };
    ask().is_ok_and(|response| response.contains("\"status\":\"ok\"") && response.contains("\"version\""))
}

fn reachable(address: SocketAddr) -> SocketAddr {
    super::super::serve::reachable(address)
}

/// Whether the names in the settings can be resolved.
pub(super) fn names(settings: &Settings) -> Finding {
    let finding = Finding::new("names", "a name that cannot be resolved fails the first job that needs it");
    let urls = [
        ("CONTROLLER_PUBLIC_URL", &settings.controller_public_url),
        ("MEDIA_BASE_URL", &settings.media_base_url),
        ("MAINTENANCE_ISO_URL", &settings.maintenance_iso_url),
        ("ESXI_INSTALLER_URL", &settings.esxi_installer_url),
    ];
    let named: Vec<(&str, String)> = urls
        .into_iter()
        .filter_map(|(name, url)| {
            let url = Url::parse(url.as_ref()?).ok()?;
            Some((name, url.domain()?.to_owned()))
        })
        .collect();
    let unknown: Vec<String> = named
        .iter()
        .filter(|(_, host)| resolve(&format!("{host}:443")).is_none())
        .map(|(name, host)| format!("{host} ({name})"))
        .collect();
    match (named.len(), unknown.is_empty()) {
        (0, _) => finding.passed("the settings contain no host name"),
        (number, true) => finding.passed(format!("{number} host names of the settings are resolved")),
        (_, false) => finding.failed(
            format!("not resolved: {}", unknown.join(", ")),
            "correct /etc/resolv.conf or /etc/hosts, or use an address in the setting",
        ),
    }
}

/// The first address of a host, within the time.
fn resolve(host: &str) -> Option<SocketAddr> {
    let (send, receive) = mpsc::channel();
    let host = host.to_owned();
    // The resolver of the system has no time limit of ours; a thread that hangs ends with the process.
    std::thread::spawn(move || {
        let first = host.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
        let _after_the_time = send.send(first);
    });
    receive.recv_timeout(PATIENCE).ok()?
}

/// The address that each BMC would read media from, and whether the BMC accepts connections.
pub(super) fn bmcs(settings: &Settings, bmcs: &[String]) -> Vec<Finding> {
    if bmcs.is_empty() {
        let finding = Finding::new("bmc-network", "BMCs read boot media from this host");
        return vec![finding.passed("not checked; name BMCs with --bmc HOST")];
    }
    bmcs.iter().map(|bmc| bmc_of(settings, bmc)).collect()
}

fn bmc_of(settings: &Settings, bmc: &str) -> Finding {
    let finding = Finding::new("bmc-network", "BMCs read boot media from this host");
    let Some(address) = resolve(&with_port(bmc)) else {
        return finding.failed(format!("{bmc} is no address and no known name"), "correct the name");
    };
    let local = match local_address(address) {
        Ok(local) => local,
        Err(error) => {
            return finding.failed(
                format!("there is no route to {bmc}: {error}"),
                "`ip route` lists the routes; add one to the network of the BMCs",
            );
        }
    };
    let media = settings.media_http_addr.unwrap_or(settings.controller_http_addr);
    if settings.media_base_url.is_none() && !media.ip().is_unspecified() && media.ip() != local {
        return finding.failed(
            format!(
                "towards {bmc} this host has the address {local}, and media are served on {} only",
                media.ip()
            ),
            "let media listen there (MEDIA_HTTP_ADDR), or set MEDIA_BASE_URL to the address that BMCs reach",
        );
    }
    match TcpStream::connect_timeout(&address, PATIENCE) {
        Ok(_) => finding.passed(format!("{bmc} accepts connections; it reads media from {local}")),
        Err(error) => finding.failed(
            format!("{bmc} does not accept a connection: {error}"),
            "check the address, the cable and the firewall between this host and the BMC",
        ),
    }
}

/// A host with the port of https unless it has one.
fn with_port(host: &str) -> String {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => format!("[{address}]:443"),
        Ok(IpAddr::V4(address)) => format!("{address}:443"),
        Err(_) if host.rsplit(':').next().is_some_and(|port| port.parse::<u16>().is_ok()) => host.to_owned(),
        Err(_) => format!("{host}:443"),
    }
}

/// The local address of a connection to an address. A UDP socket is connected without a packet.
fn local_address(to: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    #[test]
    fn a_port_is_free_of_another_program_or_of_the_running_controller() {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = held.local_addr().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let host = Host::at(folder.path());
        let port = |name, address, plain, running| port((name, address, plain), running, &host);
        let of_other = port("CONTROLLER_HTTP_ADDR", address, false, false);
        assert_eq!(of_other.state, State::Fail);
        assert!(of_other.what.contains("another program"), "{of_other:?}");
        assert_eq!(port("CONTROLLER_HTTPS_ADDR", address, false, true).state, State::Pass);
        drop(held);
        assert!(port("CONTROLLER_HTTP_ADDR", address, true, false).what.contains("is free"));
        let nowhere = port("MEDIA_HTTP_ADDR", "192.0.2.1:8080".parse().unwrap(), false, false);
        assert!(nowhere.what.contains("no interface"), "{nowhere:?}");
    }

    #[test]
    fn a_port_that_systemd_holds_for_the_controller_is_no_fault() {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = held.local_addr().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let host = super::super::socket::tests::host(folder.path(), address, 0);
        let units = folder.path().join("etc/systemd/system");
        std::fs::create_dir_all(&units).unwrap();
        std::fs::write(units.join("shoal.socket"), format!("[Socket]\nListenStream={address}\n")).unwrap();
        let found = port(("CONTROLLER_HTTP_ADDR", address, true), false, &host);
        assert_eq!(found.state, State::Pass, "{found:?}");
        assert!(found.what.contains("held by systemd for shoal.socket"), "{found:?}");
    }

    #[test]
    fn a_bmc_that_accepts_no_connection_or_cannot_read_media_is_a_failure() {
        let settings = |media: &str| {
            let flags = [("CONTROLLER_HTTP_ADDR".to_owned(), media.to_owned())].into_iter().collect();
            let sources =
                settings::Sources { flags, environment: &|_| None, variables: Vec::new(), file: None };
            Settings::load(&sources).unwrap()
        };
        let bmc = TcpListener::bind("127.0.0.1:0").unwrap();
        let name = bmc.local_addr().unwrap().to_string();
        let found = |media: &str, bmc: &str| bmcs(&settings(media), &[bmc.to_owned()]).remove(0);
        for media in ["0.0.0.0:8080", "127.0.0.1:8080"] {
            let reached = found(media, &name);
            assert_eq!(reached.state, State::Pass, "{reached:?}");
            assert!(
                reached.what.ends_with("accepts connections; it reads media from 127.0.0.1"),
                "{reached:?}"
            );
        }
        let elsewhere = found("127.0.0.9:8080", &name);
        assert!(elsewhere.state == State::Fail && elsewhere.what.contains("127.0.0.9 only"), "{elsewhere:?}");
        let unknown = found("0.0.0.0:8080", "no name");
        assert!(unknown.state == State::Fail && unknown.what.contains("no known name"), "{unknown:?}");
        drop(bmc);
        let away = found("0.0.0.0:8080", &name);
        assert!(away.state == State::Fail && away.what.contains("does not accept a connection"), "{away:?}");
        assert_eq!(
            bmcs(&settings("0.0.0.0:8080"), &[]).len(),
            1,
            "without a BMC the check is named as not made"
        );
    }

    #[test]
    fn a_bmc_is_named_with_or_without_a_port() {
        for (given, wanted) in [
            ("192.0.2.7", "192.0.2.7:443"),
            ("192.0.2.7:8443", "192.0.2.7:8443"),
            ("2001:db8::7", "[2001:db8::7]:443"),
            ("bmc.example", "bmc.example:443"),
            ("bmc.example:80", "bmc.example:80"),
        ] {
            assert_eq!(with_port(given), wanted);
        }
    }
}
