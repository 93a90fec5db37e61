//! Reports by client certificate, with rustls clients over sockets and with curl.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber,
    date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

use crate::kit::{Scene, silent};

const SHARED: &str = "the shared secret of the certificate tests";
/// The pause between refused reports, which are limited: the file of lists is read within two seconds.
const BETWEEN_REFUSALS: std::time::Duration = std::time::Duration::from_millis(900);
const SUCCESS: &str = r#"{"status":"success"}"#;

/// An authority of client certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "reports");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate and its key in PEM, valid until the end of a year.
    fn issue(&self, name: &str, until: i32) -> String {
        self.issue_numbered(name, until, None)
    }

    fn issue_numbered(&self, name: &str, until: i32, number: Option<u64>) -> String {
        let mut params = CertificateParams::default();
        params.serial_number = number.map(SerialNumber::from);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(until, 12, 31);
        let key = KeyPair::generate().unwrap();
        params.signed_by(&key, &*self.0).unwrap().pem() + &key.serialize_pem()
    }

    /// A list that revokes the certificates with these serial numbers.
    fn revoke(&self, numbers: &[u64], until: i32) -> String {
        let revoked = |number: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*number),
            revocation_time: date_time_ymd(2021, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2021, 1, 1),
            next_update: date_time_ymd(until, 12, 31),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: numbers.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&*self.0).unwrap().pem().unwrap()
    }
}

async fn scene(serials: &[&str], authority: &str) -> Scene {
    let servers = serials.iter().map(|serial| silent(serial)).collect();
    Scene::start_with(servers, |settings, folder: &Path| {
        let file = folder.join("report-ca.pem");
        std::fs::write(&file, authority).unwrap();
        settings.report_client_ca_file = Some(file);
        settings.report_certificates = vec!["installer.example=CC-2".parse().unwrap()];
        settings.webhook_secret = Some(SHARED.parse().unwrap());
    })
    .await
}

/// A client that shows this certificate.
fn client(scene: &Scene, identity: Option<&str>) -> reqwest::Client {
    let mut roots = rustls::RootCertStore::empty();
    let trusted = scene.running.certificates.as_ref().unwrap().authority();
    roots.add(CertificateDer::from_pem_slice(trusted.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.unwrap().with_root_certificates(roots);
    let tls = match identity {
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    reqwest::Client::builder().tls_backend_preconfigured(tls).no_proxy().build().unwrap()
}

/// Sends a report over https with this certificate and secret. Returns status and body.
async fn report(scene: &Scene, serial: &str, identity: Option<&str>, secret: Option<&str>) -> (u16, Value) {
    let url = format!("https://{}/api/v1/status-webhook/{serial}", scene.running.https.unwrap());
    let mut request = client(scene, identity).post(url).body(SUCCESS);
    if let Some(secret) = secret {
        request = request.header("X-Webhook-Secret", secret);
    }
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

async fn waiting(scene: &Scene, serial: &str) -> String {
    let id = scene.admin.create_job(serial).await;
    scene.admin.awaits_report(&id).await;
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_names_a_server_ends_its_job_and_no_other() {
    let authority = Authority::new();
    let scene = scene(&["CC-1", "CC-2"], &authority.0.pem()).await;
    let (first, second) = (waiting(&scene, "CC-1").await, waiting(&scene, "CC-2").await);
    let (own, mapped) = (authority.issue("CC-1", 2099), authority.issue("installer.example", 2099));
    for (serial, other) in [("CC-2", &own), ("CC-1", &mapped)] {
        let (status, body) = report(&scene, serial, Some(other), None).await;
        assert_eq!((status, &body["error"]), (403, &json!("report_certificate")), "{body}");
    }
    assert_eq!(report(&scene, "CC-1", Some(&own), None).await.0, 200);
    assert_eq!(report(&scene, "CC-2", Some(&mapped), None).await.0, 200);
    for (id, name) in [(&first, "certificate CC-1"), (&second, "certificate installer.example")] {
        assert_eq!(scene.complete_skipping(id).await["outcome"], "succeeded");
        let log = scene.admin.events(id).await;
        assert!(log.iter().any(|event| event.to_string().contains(name)), "the events name {name}: {log:?}");
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_not_accepted_is_refused_even_beside_a_right_secret() {
    let (authority, other) = (Authority::new(), Authority::new());
    let scene = scene(&["CC-3"], &authority.0.pem()).await;
    let id = waiting(&scene, "CC-3").await;
    // The authorities have one name, so the client sends its certificate to both.
    let refused = [
        ("unknown", other.issue("CC-3", 2099)),
        ("expired", authority.issue("CC-3", 2021)),
        ("another server", authority.issue("CC-4", 2099)),
    ];
    for (what, identity) in &refused {
        for secret in [None, Some(SHARED)] {
            let (status, body) = report(&scene, "CC-3", Some(identity), secret).await;
            assert_eq!((status, &body["error"]), (403, &json!("report_certificate")), "{what}: {body}");
        }
    }
    let right = authority.issue("CC-3", 2099);
    let (status, body) = report(&scene, "CC-3", Some(&right), Some("a wrong secret")).await;
    assert_eq!((status, &body["error"]), (401, &json!("unauthorized")), "{body}");
    assert_eq!(report(&scene, "CC-3", None, None).await.0, 401);
    assert_eq!(scene.admin.job(&id).await["wait"]["reason"], "report", "nothing was reported");
    assert_eq!(report(&scene, "CC-3", None, Some(SHARED)).await.0, 200, "the shared secret alone");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_certificate_is_refused_as_soon_as_the_file_of_lists_is_replaced() {
    let authority = Authority::new();
    let scene = Scene::start_with(vec![silent("CC-8")], |settings, folder: &Path| {
        let file = |name: &str, text: String| {
            std::fs::write(folder.join(name), text).unwrap();
            Some(folder.join(name))
        };
        settings.report_client_ca_file = file("report-ca.pem", authority.0.pem());
        settings.report_client_crl_file = file("report.crl", authority.revoke(&[], 2099));
    })
    .await;
    let id = waiting(&scene, "CC-8").await;
    let (lost, kept) =
        (authority.issue_numbered("CC-8", 2099, Some(8)), authority.issue_numbered("CC-8", 2099, Some(9)));
    // A report without a job id is refused for its content only after its certificate was accepted.
    let accepted = async |identity: &str| {
        let url = format!("https://{}/api/v1/status-webhook/CC-8", scene.running.https.unwrap());
        let response = client(&scene, Some(identity)).post(url).body("no report").send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    assert_eq!(accepted(&lost).await.0, 400);
    let file = scene.folder.path().join("report.crl");
    for (list, reason) in [
        (authority.revoke(&[8], 2099), "its authority has revoked it"),
        (authority.revoke(&[], 2022), "the revocation list of its authority has expired"),
    ] {
        std::fs::write(&file, list).unwrap();
        let refused = async {
            loop {
                let (status, body) = accepted(&lost).await;
                if status == 403 && body.contains(reason) {
                    return;
                }
                tokio::time::sleep(BETWEEN_REFUSALS).await;
            }
        };
        crate::kit::soon(reason, refused).await;
    }
    std::fs::write(&file, authority.revoke(&[8], 2099)).unwrap();
    let again = async {
        while accepted(&kept).await.0 != 400 {
            tokio::time::sleep(BETWEEN_REFUSALS).await;
        }
    };
    crate::kit::soon("the certificate that is not revoked", again).await;
    assert_eq!(accepted(&lost).await.0, 403);
    assert_eq!(report(&scene, "CC-8", Some(&kept), None).await.0, 200);
    assert_eq!(scene.complete_skipping(&id).await["outcome"], "succeeded");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_gives_no_right_beside_reports() {
    let authority = Authority::new();
    let scene = scene(&["CC-5"], &authority.0.pem()).await;
    for identity in
        [authority.issue("CC-5", 2099), authority.issue("admin", 2099), Authority::new().issue("x", 2099)]
    {
        let client = client(&scene, Some(&identity));
        let base = format!("https://{}", scene.running.https.unwrap());
        for (path, expected) in
            [("/healthz", 200), ("/api/v1/servers", 401), ("/api/v1/me", 401), ("/v2/", 401)]
        {
            let status = client.get(format!("{base}{path}")).send().await.unwrap().status();
            assert_eq!(status, expected, "{path}");
        }
        let admin = client.get(format!("{base}/api/v1/servers")).bearer_auth(scene.admin.token());
        assert_eq!(admin.send().await.unwrap().status(), 200, "a login counts as without a certificate");
    }
    scene.end().await;
}

fn run(folder: &Path, program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Makes `NAME.pem` and `NAME.key`, issued by `ca.pem` for clients.
fn openssl_issue(folder: &Path, name: &str, days: &str) {
    let (key, request, pem) = (format!("{name}.key"), format!("{name}.csr"), format!("{name}.pem"));
    let subject = format!("/CN={name}");
    run(
        folder,
        "openssl",
        &["req", "-newkey", "rsa:2048", "-nodes", "-keyout", &key, "-subj", &subject, "-out", &request],
    );
    std::fs::write(folder.join("client.ext"), "extendedKeyUsage=clientAuth\n").unwrap();
    let arguments = [
        "x509",
        "-req",
        "-in",
        &request,
        "-CA",
        "ca.pem",
        "-CAkey",
        "ca.key",
        "-CAcreateserial",
        "-days",
        days,
        "-extfile",
        "client.ext",
        "-out",
        &pem,
    ];
    run(folder, "openssl", &arguments);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs curl and openssl, run by .ci/run"]
async fn curl_reports_with_certificates_that_openssl_made() {
    let folder: PathBuf = tempfile::tempdir().unwrap().keep();
    let authority = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        "ca.key",
        "-subj",
        "/CN=reports",
        "-days",
        "9",
        "-out",
        "ca.pem",
    ];
    run(&folder, "openssl", &authority);
    for (name, days) in [("CC-6", "9"), ("CC-7", "9")] {
        openssl_issue(&folder, name, days);
    }
    let scene = scene(&["CC-6"], &std::fs::read_to_string(folder.join("ca.pem")).unwrap()).await;
    let id = waiting(&scene, "CC-6").await;
    std::fs::write(folder.join("shoal.pem"), scene.running.certificates.as_ref().unwrap().authority())
        .unwrap();
    let url = format!("https://{}/api/v1/status-webhook/CC-6", scene.running.https.unwrap());
    let curl = |name: &str| {
        let (key, pem) = (format!("{name}.key"), format!("{name}.pem"));
        let arguments = [
            "-sS",
            "--cacert",
            "shoal.pem",
            "--cert",
            &pem,
            "--key",
            &key,
            "-d",
            SUCCESS,
            "-w",
            " %{http_code}",
            &url,
        ];
        run(&folder, "curl", &arguments)
    };
    let refused = curl("CC-7");
    assert!(refused.contains("report_certificate") && refused.ends_with(" 403"), "{refused}");
    let accepted = curl("CC-6");
    assert!(accepted.ends_with(" 200"), "{accepted}");
    assert_eq!(scene.complete_skipping(&id).await["outcome"], "succeeded");
    scene.end().await;
    std::fs::remove_dir_all(folder).unwrap();
}
