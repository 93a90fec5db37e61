//! The one policy for what the controller fetches on behalf of others: images that a job names, and receivers of webhooks.
//!
//! ```text
//!   http(s) URL   address literal ──────────────────────────┐
//!                 name ── resolver ──> each address ────────┼──> refused range? ── no, or in FETCH_ALLOW_CIDRS ──> connect to it
//!                 redirect ── a new URL, from the beginning ┘          `── yes ──> AddressRefused
//!   file          the location of a setting, or a file below IMAGE_DIR with every link resolved; else FileRefused
//! ```
//!
//! Refused are loopback, link-local (where clouds serve credentials as metadata), unspecified, multicast and reserved addresses,
//! also inside IPv6 forms that contain an IPv4 address. Private networks are where images and receivers are, so they are allowed.
//!
//! Invariants: the address that was checked is the address that is connected to, so a name that resolves differently a moment later
//! changes nothing; no client of this policy uses a proxy. Connections to BMCs are not made on behalf of others and have no
//! part in this.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use ipnet::IpNet;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// Addresses that are metadata services of clouds outside of the link-local ranges.
const METADATA: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// A connection that the policy refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{address} is {kind}, which the controller does not fetch from; FETCH_ALLOW_CIDRS allows further addresses"
)]
pub struct AddressRefused {
    /// The refused address.
    pub address: IpAddr,
    kind: &'static str,
}

impl AddressRefused {
    /// The refusal among the causes of an HTTP error.
    #[must_use]
    pub fn cause_of(error: &reqwest::Error) -> Option<Self> {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(current) = cause {
            if let Some(refused) = current.downcast_ref::<Self>() {
                return Some(*refused);
            }
            cause = current.source();
        }
        None
    }
}

/// The policy for addresses to which the controller connects on behalf of others.
#[derive(Clone, Debug, Default)]
pub struct AddressPolicy {
    allowed: Arc<[IpNet]>,
}

impl AddressPolicy {
    /// The policy with these exceptions, `FETCH_ALLOW_CIDRS`.
    #[must_use]
    pub fn allowing(allowed: &[IpNet]) -> Self {
        Self { allowed: allowed.into() }
    }

    /// Checks one address.
    ///
    /// # Errors
    /// [`AddressRefused`] for an address of a refused range that no exception contains.
    pub fn check(&self, address: IpAddr) -> Result<(), AddressRefused> {
        let plain = embedded(address);
        let kind = match refused_kind(plain) {
            Some(kind) => kind,
            None => return Ok(()),
        };
        let excepted = |range: &IpNet| range.contains(&address) || range.contains(&plain);
        if self.allowed.iter().any(excepted) { Ok(()) } else { Err(AddressRefused { address, kind }) }
    }

    /// Checks the address in a URL, if it contains one. A name is checked when it is resolved.
    ///
    /// # Errors
    /// When [`AddressPolicy::check`] refuses the address.
    pub fn check_url(&self, url: &Url) -> Result<(), AddressRefused> {
        match url.host() {
            Some(Host::Ipv4(address)) => self.check(address.into()),
            Some(Host::Ipv6(address)) => self.check(address.into()),
            Some(Host::Domain(_)) | None => Ok(()),
        }
    }

    /// The beginning of an HTTP client that connects to allowed addresses only. The client must also check the address in each
    /// URL that it requests, and in each redirect that it follows, with [`AddressPolicy::check_url`]: such an address is not
    /// resolved.
    pub fn client(&self) -> reqwest::ClientBuilder {
        reqwest::Client::builder().no_proxy().dns_resolver(Arc::new(CheckedResolver(self.clone())))
    }
}

/// Resolves names to the addresses that the policy allows.
struct CheckedResolver(AddressPolicy);

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = self.0.clone();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let mut refused = None;
            let mut allowed = Vec::new();
            for address in found {
                match policy.check(address.ip()) {
                    Ok(()) => allowed.push(address),
                    Err(why) => refused = Some(why),
                }
            }
            match refused {
                Some(why) if allowed.is_empty() => Err(why.into()),
                _ => Ok(Box::new(allowed.into_iter()) as Addrs),
            }
        })
    }
}

/// The IPv4 address inside an IPv6 one: mapped, compatible, NAT64 and 6to4.
fn embedded(address: IpAddr) -> IpAddr {
    let IpAddr::V6(six) = address else { return address };
    let [a, b, c, d, e, f, g, h] = six.segments();
    let from = |high: u16, low: u16| IpAddr::V4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match [a, b, c, d, e, f] {
        [0, 0, 0, 0, 0, 0xffff] | [0x64, 0xff9b, 0, 0, 0, 0] => from(g, h),
        // ::1 and :: are addresses of their own.
        [0, 0, 0, 0, 0, 0] if g != 0 => from(g, h),
        [0x2002, ..] => from(b, c),
        _ => address,
    }
}

/// The kind of an address that is refused; `None` for an ordinary address.
fn refused_kind(address: IpAddr) -> Option<&'static str> {
    if METADATA.contains(&address) {
        return Some("a metadata service");
    }
    match address {
        IpAddr::V4(four) => match four.octets() {
            [0, ..] => Some("an unspecified address"),
            [127, ..] => Some("a loopback address"),
            [169, 254, ..] => Some("a link-local address"),
            [224..=239, ..] => Some("a multicast address"),
            [240..=255, ..] => Some("a reserved address"),
            _ => None,
        },
        IpAddr::V6(six) => match six.segments() {
            _ if six.is_unspecified() => Some("an unspecified address"),
            _ if six.is_loopback() => Some("a loopback address"),
            [0xfe80..=0xfebf, ..] => Some("a link-local address"),
            [0xff00..=0xffff, ..] => Some("a multicast address"),
            _ => None,
        },
    }
}

/// A local file that the policy refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not below IMAGE_DIR ({}); copy the image there", folder.display())]
pub struct FileRefused {
    folder: PathBuf,
}

/// The policy for local files that the controller reads on behalf of others.
#[derive(Clone, Debug)]
pub struct FilePolicy {
    folder: PathBuf,
    configured: Arc<[PathBuf]>,
}

impl FilePolicy {
    /// The policy that permits files below `folder` (`IMAGE_DIR`) and the files that settings name.
    #[must_use]
    pub fn below(folder: PathBuf, configured: Vec<PathBuf>) -> Self {
        Self { folder, configured: configured.into() }
    }

    /// Checks a path before the file is looked at. The text of the refusal says nothing about the file.
    ///
    /// # Errors
    /// [`FileRefused`] when the path is neither configured nor below the folder.
    pub fn check(&self, path: &Path) -> Result<(), FileRefused> {
        let plain = path.components().all(|part| !matches!(part, Component::ParentDir));
        let below = plain && path.starts_with(&self.folder);
        if below || self.configured.iter().any(|configured| configured == path) {
            Ok(())
        } else {
            Err(self.refused())
        }
    }

    /// The path with every link resolved, to be opened. Blocks on the disk.
    ///
    /// # Errors
    /// [`FileRefused`] when a link leads out of the folder. A path that cannot be resolved is returned as it is.
    pub fn resolve(&self, path: &Path) -> Result<PathBuf, FileRefused> {
        self.check(path)?;
        if self.configured.iter().any(|configured| configured == path) {
            return Ok(path.to_owned());
        }
        match (path.canonicalize(), self.folder.canonicalize()) {
            (Ok(real), Ok(folder)) if real.starts_with(&folder) => Ok(real),
            (Ok(_), Ok(_)) => Err(self.refused()),
            _ => Ok(path.to_owned()),
        }
    }

    fn refused(&self) -> FileRefused {
        FileRefused { folder: self.folder.clone() }
    }
}

/// The policy for the sources of the library.
#[derive(Clone, Debug)]
pub struct SourcePolicy {
    /// The addresses of web servers.
    pub addresses: AddressPolicy,
    /// The policy for local files.
    pub files: FilePolicy,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_of_the_controller_and_of_its_link_are_refused_in_every_form() {
        let policy = AddressPolicy::default();
        for refused in [
            "127.0.0.1",
            "127.255.255.254",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "169.254.0.1",
            "224.0.0.1",
            "239.255.255.250",
            "240.0.0.1",
            "255.255.255.255",
            "100.100.100.200",
            "::",
            "::1",
            "fe80::1",
            "febf::1",
            "ff02::1",
            "fd00:ec2::254",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::169.254.169.254",
            "64:ff9b::127.0.0.1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::",
        ] {
            let why = policy.check(ip(refused)).expect_err(refused).to_string();
            assert!(why.contains("FETCH_ALLOW_CIDRS"), "{why}");
        }
        for allowed in [
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "192.0.2.1",
            "8.8.8.8",
            "2001:db8::1",
            "fd00::1",
            "::ffff:10.0.0.1",
            "64:ff9b::10.0.0.1",
        ] {
            policy.check(ip(allowed)).expect(allowed);
        }
    }

    #[test]
    fn an_exception_allows_its_range_and_nothing_else() {
        let ranges: Vec<IpNet> = ["127.0.0.0/8", "fe80::/10"].map(|text| text.parse().unwrap()).into();
        let policy = AddressPolicy::allowing(&ranges);
        for allowed in ["127.0.0.1", "::ffff:127.0.0.1", "fe80::7"] {
            policy.check(ip(allowed)).expect(allowed);
        }
        for refused in ["169.254.169.254", "::1"] {
            policy.check(ip(refused)).expect_err(refused);
        }
        let all: Vec<IpNet> = ["0.0.0.0/0", "::/0"].map(|text| text.parse().unwrap()).into();
        let open = AddressPolicy::allowing(&all);
        for allowed in ["127.0.0.1", "::1", "255.255.255.255", "ff02::1"] {
            open.check(ip(allowed)).expect(allowed);
        }
    }

    #[test]
    fn every_spelling_of_a_loopback_address_in_a_url_is_refused() {
        let policy = AddressPolicy::default();
        for url in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0177.0.0.1/",
            "http://[::1]/",
            "http://[::ffff:7f00:1]/",
            "http://0/",
        ] {
            policy.check_url(&Url::parse(url).unwrap()).expect_err(url);
        }
        policy.check_url(&Url::parse("http://192.0.2.1/").unwrap()).unwrap();
    }

    #[tokio::test]
    async fn a_name_that_resolves_to_a_refused_address_is_not_connected_to() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let tls = crate::tls_config(b"").unwrap();
        let client = AddressPolicy::default().client().tls_backend_preconfigured(tls).build().unwrap();
        let error = client.get(format!("http://localhost:{port}/")).send().await.unwrap_err();
        let refused = AddressRefused::cause_of(&error).expect("the cause is the refusal");
        assert!(refused.address.is_loopback());
        let accepted = tokio::time::timeout(std::time::Duration::from_millis(10), listener.accept()).await;
        assert!(accepted.is_err(), "a connection was made");
    }

    #[test]
    fn only_files_below_the_folder_and_configured_ones_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("images");
        std::fs::create_dir(&folder).unwrap();
        let (inside, outside, configured) =
            (folder.join("a.iso"), dir.path().join("secret"), dir.path().join("configured.iso"));
        for path in [&inside, &outside, &configured] {
            std::fs::write(path, "x").unwrap();
        }
        std::os::unix::fs::symlink(&outside, folder.join("link.iso")).unwrap();
        std::os::unix::fs::symlink(&inside, folder.join("same.iso")).unwrap();
        let policy = FilePolicy::below(folder.clone(), vec![configured.clone()]);
        for allowed in [&inside, &configured, &folder.join("same.iso"), &folder.join("absent.iso")] {
            policy.resolve(allowed).unwrap();
        }
        for refused in [
            outside.clone(),
            folder.join("../secret"),
            folder.join("link.iso"),
            PathBuf::from("/etc/passwd"),
            dir.path().join("images-of-others/a.iso"),
        ] {
            let why = policy.resolve(&refused).expect_err(&refused.display().to_string()).to_string();
            assert!(why.contains("IMAGE_DIR") && !why.contains("secret"), "{why}");
        }
    }
}
