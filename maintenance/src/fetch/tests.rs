//! A mirror on loopback whose release is signed by the key of the golden files.

use std::fs;

use sha2::{Digest, Sha256};

use super::index::Index;
use super::mirror::{Archive, Mirror};
use super::*;
use crate::test_kit::Site;

fn mirror(site: &Site) -> Mirror {
    let archive = Archive { url: site.url().parse().unwrap(), suite: "test".to_owned() };
    Mirror::new(client(), vec![archive])
}

fn client() -> reqwest::Client {
    // Another test may have installed it.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

fn available(content: &[u8]) -> Vec<Available> {
    let digest = hex::encode(Sha256::digest(content));
    let mut index = Index::default();
    let text = format!(
        "Package: xfsprogs\nVersion: 1\nSection: admin\nFilename: pool/x/xfsprogs_1%3a1_amd64.deb\nSize: {}\nSHA256: {digest}\n",
        content.len()
    );
    index.add(&text, 0).unwrap();
    index.select(&["xfsprogs"], &[]).unwrap()
}

#[tokio::test]
async fn a_package_is_stored_once_and_only_with_the_digest_of_the_index() {
    let site = Site::new(&[("/pool/x/xfsprogs_1%3a1_amd64.deb", b"package")]);
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("new/folder");
    let name = vec!["xfsprogs_1%3a1_amd64.deb".to_owned()];
    let mut steps = Vec::new();
    let mut note = |step: Step<'_>| steps.push(format!("{step:?}"));
    let first = download(&mirror(&site), &available(b"package"), &place, &mut note).await.unwrap();
    let begins = format!("{:?}", Step::Begins { file: &name[0], bytes: 7 });
    assert_eq!((&steps[0], steps.last().unwrap()), (&begins, &format!("{:?}", Step::Arrived { done: 7 })));
    assert_eq!((&first.downloaded, first.present.len()), (&name, 0));
    assert_eq!(fs::read(place.join(&name[0])).unwrap(), b"package");
    fs::write(place.join("other_1_amd64.deb"), "").unwrap();
    let second = download(&mirror(&site), &available(b"package"), &place, &mut |_| {}).await.unwrap();
    assert_eq!((second.downloaded.len(), &second.present), (0, &name));
    assert_eq!(second.others, ["other_1_amd64.deb"]);

    for wanted in [&b"Package"[..], b"package that is longer", b"pack"] {
        let empty = folder.path().join("empty");
        let failure = download(&mirror(&site), &available(wanted), &empty, &mut |_| {}).await.unwrap_err();
        assert!(failure.to_string().contains("xfsprogs"), "{failure}");
        assert_eq!(fs::read_dir(&empty).unwrap().count(), 0, "nothing is left of a wrong file");
    }
}

#[tokio::test]
async fn an_index_that_is_not_the_signed_one_is_refused() {
    let release = include_bytes!("../../../golden/maintenance/InRelease");
    let keyring = include_bytes!("../../../golden/maintenance/rsa.asc");
    let path = "/dists/test/main/binary-amd64/Packages.xz";
    let site = Site::new(&[("/dists/test/InRelease", release), (path, b"Package: x\n\n")]);
    let failure = choose(&mirror(&site), keyring, false, &mut |_| {}).await.unwrap_err().to_string();
    assert!(failure.contains("SHA-256"), "{failure}");

    let archive = Archive { url: site.url().parse().unwrap(), suite: "other".to_owned() };
    let moved = Site::new(&[("/dists/other/InRelease", release)]);
    let archive = Archive { url: moved.url().parse().unwrap(), ..archive };
    let other = Mirror::new(client(), vec![archive]);
    let failure = choose(&other, keyring, false, &mut |_| {}).await.unwrap_err().to_string();
    assert!(failure.contains("the index of test, not of other"), "{failure}");

    let changed = String::from_utf8_lossy(release).replace("Origin: Test", "Origin: Evil");
    let site = Site::new(&[("/dists/test/InRelease", changed.as_bytes())]);
    let failure = choose(&mirror(&site), keyring, false, &mut |_| {}).await.unwrap_err().to_string();
    assert!(failure.contains("no key of the keyring"), "{failure}");

    let empty = Site::new(&[]);
    let failure = choose(&mirror(&empty), keyring, false, &mut |_| {}).await.unwrap_err().to_string();
    assert!(failure.contains("404"), "{failure}");
}
