//! Client certificates of reports: which are accepted, and for which server.

use std::sync::Arc;

use model::Serial;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
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

/// A list of an authority that revokes these certificates and is valid until the end of a year.
fn list(by: &CertifiedIssuer<'static, KeyPair>, revoked: &[u64], until: i32) -> String {
    let params = CertificateRevocationListParams {
        this_update: date_time_ymd(2029, 1, 1),
        next_update: date_time_ymd(until, 12, 31),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: revoked
            .iter()
            .map(|serial| RevokedCertParams {
                serial_number: SerialNumber::from(*serial),
                revocation_time: date_time_ymd(2029, 6, 1),
                reason_code: None,
                invalidity_date: None,
            })
            .collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(&**by).unwrap().pem().unwrap()
}

/// A certificate for `SN-1` with this serial number of its own.
fn numbered(by: &CertifiedIssuer<'static, KeyPair>, number: u64) -> PresentedCertificate {
    let mut params = params("SN-1", &[]);
    params.serial_number = Some(SerialNumber::from(number));
    issued(by, &params)
}

#[test]
fn a_revoked_certificate_is_refused_and_so_is_one_without_a_valid_list_of_its_authority() {
    let (by, forger) = (authority("reports"), authority("reports"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lists.pem");
    let (good, bad) = (numbered(&by, 7), numbered(&by, 8));
    std::fs::write(&file, list(&by, &[8], 2030)).unwrap();
    let certificates = accepting(&by, &[]).with_revocation_lists(file.clone()).unwrap();
    let ask = |shown: &PresentedCertificate| certificates.reporter(shown, &serial("SN-1"), at(0));
    assert_eq!(ask(&good), Ok("SN-1".to_owned()));
    assert_eq!(ask(&bad), Err(CertificateRefused::Revoked));

    let reload = |text: &str| {
        std::fs::write(&file, text).unwrap();
        certificates.read_lists().map(|read| certificates.apply(read))
    };
    reload(&list(&by, &[], 2030)).unwrap();
    assert_eq!(ask(&bad), Ok("SN-1".to_owned()), "another list is in force at once");
    reload(&list(&by, &[7], 2029)).unwrap();
    assert_eq!(ask(&good), Err(CertificateRefused::ListExpired), "an old list says nothing");
    // A list of another authority with the same name has a wrong signature.
    reload(&list(&forger, &[], 2030)).unwrap();
    assert!(ask(&good).is_err());
    reload(&list(&authority("others"), &[], 2030)).unwrap();
    assert_eq!(ask(&good), Err(CertificateRefused::NoList));
    reload(&(list(&authority("others"), &[], 2030) + &list(&by, &[8], 2030))).unwrap();
    assert_eq!((ask(&good), ask(&bad)), (Ok("SN-1".to_owned()), Err(CertificateRefused::Revoked)));
    for unusable in ["", "no list", "-----BEGIN X509 CRL-----\nAA==\n-----END X509 CRL-----\n", &by.pem()] {
        assert!(reload(unusable).is_err(), "{unusable}");
        assert_eq!(ask(&bad), Err(CertificateRefused::Revoked), "the former lists stay in force");
    }
    assert!(accepting(&by, &[]).with_revocation_lists(folder.path().join("none")).is_err());
}

#[test]
fn a_list_in_der_is_read_as_one_in_pem() {
    use rustls::pki_types::{CertificateRevocationListDer, pem::PemObject};
    let by = authority("reports");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("list.crl");
    let der = CertificateRevocationListDer::from_pem_slice(list(&by, &[8], 2030).as_bytes()).unwrap();
    std::fs::write(&file, &*der).unwrap();
    let certificates = accepting(&by, &[]).with_revocation_lists(file).unwrap();
    let refused = certificates.reporter(&numbered(&by, 8), &serial("SN-1"), at(0));
    assert_eq!(refused, Err(CertificateRefused::Revoked));
}

#[tokio::test(start_paused = true)]
async fn a_changed_file_of_lists_is_followed_once_it_is_the_same_for_two_checks() {
    let by = authority("reports");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lists.pem");
    std::fs::write(&file, list(&by, &[], 2030)).unwrap();
    let certificates = Arc::new(accepting(&by, &[]).with_revocation_lists(file.clone()).unwrap());
    let stop = tokio_util::sync::CancellationToken::new();
    let watch = tokio::spawn(Arc::clone(&certificates).watch(stop.clone()));
    let bad = numbered(&by, 8);
    assert!(certificates.reporter(&bad, &serial("SN-1"), at(0)).is_ok());
    std::fs::write(&file, list(&by, &[8], 2030)).unwrap();
    let mut checks = 0;
    while certificates.reporter(&bad, &serial("SN-1"), at(0)).is_ok() {
        checks += 1;
        assert!(checks < 100, "the changed file was not read");
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    stop.cancel();
    watch.await.unwrap();
}
