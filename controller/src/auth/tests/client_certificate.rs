//! Client certificates of reports: which are accepted, and for which server.

use engine::model::Serial;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    date_time_ymd,
};

use super::*;
use crate::tls::PresentedCertificate;

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate for clients, valid in 2030, to which `at` refers.
fn params(common_name: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.not_before = date_time_ymd(2030, 1, 1);
    params.not_after = date_time_ymd(2030, 12, 31);
    params
}

fn issued(by: &CertifiedIssuer<'static, KeyPair>, params: &CertificateParams) -> PresentedCertificate {
    let made = params.signed_by(&KeyPair::generate().unwrap(), &**by).unwrap();
    PresentedCertificate([made.der().clone()].into())
}

fn serial(text: &str) -> Serial {
    text.parse().unwrap()
}

fn accepting(by: &CertifiedIssuer<'static, KeyPair>, servers: &[&str]) -> ReportCertificates {
    let servers = servers.iter().map(|entry| entry.parse().unwrap()).collect();
    ReportCertificates::new(by.pem().as_bytes(), servers).unwrap()
}

/// `at(0)` is in March 2030.
const LATER: i64 = 400 * 86_400;

#[test]
fn a_certificate_reports_for_the_server_that_it_names_and_no_other() {
    let by = authority("reports");
    let certificates = accepting(&by, &[]);
    let own = issued(&by, &params("SN-1", &["sn-2.example"]));
    assert_eq!(certificates.reporter(&own, &serial("SN-1"), at(0)), Ok("SN-1".to_owned()));
    assert_eq!(certificates.reporter(&own, &serial("sn-2.example"), at(0)), Ok("sn-2.example".to_owned()));
    for other in ["SN-10", "sn-1", "SN", "SN-2"] {
        let refused = certificates.reporter(&own, &serial(other), at(0));
        assert_eq!(refused, Err(CertificateRefused::OtherServer), "{other}");
    }
}

#[test]
fn a_mapped_name_stands_for_its_servers_only() {
    let by = authority("reports");
    let certificates = accepting(&by, &["SN-1=SN-7", "installer.example=SN-8", "installer.example=SN-9"]);
    let mapped = issued(&by, &params("SN-1", &["installer.example"]));
    for server in ["SN-7", "SN-8", "SN-9"] {
        certificates.reporter(&mapped, &serial(server), at(0)).unwrap();
    }
    for server in ["SN-1", "installer.example", "SN-2"] {
        let refused = certificates.reporter(&mapped, &serial(server), at(0));
        assert_eq!(refused, Err(CertificateRefused::OtherServer), "{server}");
    }
    for entry in ["", "a", "=SN-1", "a=", "a=b c", "a\nb=SN-1"] {
        assert!(entry.parse::<CertificateEntry>().is_err(), "{entry}");
    }
}

#[test]
fn an_expired_future_or_unknown_certificate_and_one_for_servers_are_refused() {
    let (by, other) = (authority("reports"), authority("reports"));
    let certificates = accepting(&by, &[]);
    let ask =
        |shown: &PresentedCertificate, second| certificates.reporter(shown, &serial("SN-1"), at(second));
    let own = issued(&by, &params("SN-1", &[]));
    assert!(ask(&own, 0).is_ok());
    assert_eq!(ask(&own, LATER), Err(CertificateRefused::Expired));
    assert_eq!(ask(&own, -LATER), Err(CertificateRefused::NotYet));
    assert_eq!(ask(&issued(&other, &params("SN-1", &[])), 0), Err(CertificateRefused::Untrusted));
    let mut of_servers = params("SN-1", &[]);
    of_servers.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    assert_eq!(ask(&issued(&by, &of_servers), 0), Err(CertificateRefused::Untrusted));
    let self_signed = params("SN-1", &[]).self_signed(&KeyPair::generate().unwrap()).unwrap();
    let self_signed = PresentedCertificate([self_signed.der().clone()].into());
    assert_eq!(ask(&self_signed, 0), Err(CertificateRefused::Untrusted));
    assert_eq!(ask(&PresentedCertificate([].into()), 0), Err(CertificateRefused::Untrusted));
    let mut damaged = own.0[0].to_vec();
    for position in 0..damaged.len() {
        damaged[position] ^= 1;
        let shown = PresentedCertificate([damaged.clone().into()].into());
        assert!(ask(&shown, 0).is_err(), "byte {position}");
        damaged[position] ^= 1;
    }
}

#[test]
fn authorities_are_pem_certificates() {
    for text in ["", "nothing", "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"] {
        assert!(ReportCertificates::new(text.as_bytes(), Vec::new()).is_err(), "{text}");
    }
    assert_eq!(accepting(&authority("reports"), &[]).hints().len(), 1);
}
