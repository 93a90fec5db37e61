//! Chains of TLS_CERT_FILE, and what machines make of them.

use std::path::Path;
use std::sync::Arc;

use model::SystemClock;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use super::*;

/// PEM of a root, of an intermediate authority, and of a certificate that the intermediate signed; and the key of the last one.
struct Site {
    root: String,
    intermediate: String,
    leaf: String,
    key: String,
}

fn authority(name: &str) -> (CertificateParams, KeyPair) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    (params, KeyPair::generate().unwrap())
}

fn site() -> Site {
    let (root_params, root_key) = authority("Site Root");
    let root = root_params.self_signed(&root_key).unwrap().pem();
    let root_issuer = Issuer::new(root_params, root_key);
    let (params, intermediate_key) = authority("Site Intermediate");
    let intermediate = params.signed_by(&intermediate_key, &root_issuer).unwrap().pem();
    let issuer = Issuer::new(params, intermediate_key);
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["shoal.example".to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &issuer).unwrap().pem();
    Site { root, intermediate, leaf, key: key.serialize_pem() }
}

/// The trouble of a controller with this chain.
fn trouble(folder: &Path, chain: &[&str], key: &str, machines: Option<MachineTrust>) -> Option<String> {
    let pair = CertificateFiles { certificate: folder.join("cert.pem"), key: folder.join("key.pem") };
    std::fs::write(&pair.certificate, chain.concat()).unwrap();
    std::fs::write(&pair.key, key).unwrap();
    let options =
        TlsOptions { given: Some(pair), directory: folder.join("none"), names: Vec::new(), machines };
    let found = unverifiable(&options).unwrap();
    let state = Certificates::open(options, Arc::new(SystemClock)).unwrap().state();
    assert_eq!(state.trouble, found, "a check of the settings and a running controller agree");
    found
}

#[test]
fn a_certificate_that_machines_cannot_verify_is_trouble_that_says_what_to_add() {
    let folder = tempfile::tempdir().unwrap();
    let site = site();
    let with = |chain: &[&str], authorities: Option<&str>| {
        let file = folder.path().join("ca.pem");
        let authorities = authorities.map(|pem| {
            std::fs::write(&file, pem).unwrap();
            file.clone()
        });
        trouble(folder.path(), chain, &site.key, Some(MachineTrust { host: None, authorities }))
    };
    let alone = with(&[&site.leaf], None).unwrap();
    assert!(alone.contains("machines cannot verify") && alone.contains("set CONTROLLER_CA_FILE"), "{alone}");
    assert_eq!(with(&[&site.leaf, &site.intermediate], None), None);
    assert_eq!(with(&[&site.leaf, &site.intermediate, &site.root], None), None);
    assert_eq!(with(&[&site.leaf], Some(&site.intermediate)), None);
    assert_eq!(with(&[&site.leaf, &site.intermediate], Some(&site.root)), None);
    let gap = with(&[&site.leaf], Some(&site.root)).unwrap();
    assert!(gap.contains("they trust CONTROLLER_CA_FILE"), "{gap}");
    let own = rcgen::generate_simple_self_signed(vec!["shoal.example".to_owned()]).unwrap();
    let trust = Some(MachineTrust::default());
    assert_eq!(trouble(folder.path(), &[&own.cert.pem()], &own.signing_key.serialize_pem(), trust), None);
}

#[test]
fn a_certificate_that_no_machine_checks_is_not_judged() {
    let folder = tempfile::tempdir().unwrap();
    let site = site();
    let with = |machines| trouble(folder.path(), &[&site.leaf], &site.key, machines);
    let reached = |host: &str| Some(MachineTrust { host: Some(host.to_owned()), authorities: None });
    assert_eq!(with(None), None, "machines reach the controller by http");
    assert_eq!(with(reached("proxy.example")), None, "a proxy in front shows another certificate");
    assert!(with(reached("shoal.example")).is_some());
}
