//! What the TLS listener offers, asked by real programs: one row for each thing that it must or must not do.
//!
//! ```text
//!   openssl s_client, curl ──> the listener of a controller              every row holds
//!   openssl s_client, curl ──> openssl s_server with weak settings       the rows that name a mutant are broken
//! ```
//! Every obstacle that a client itself puts up is removed (`OPENSSL_CONF`, `@SECLEVEL=0`), so that a refusal is the listener's. The mutant
//! proves that the client is able to ask for the weak thing.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::kit::{DataDir, Scene, free_port, soon};

/// The suites of TLS 1.2 that the listener may agree on: forward-secret and authenticated encryption.
const SUITES: [&str; 3] =
    ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305"];

/// A listener that is checked.
struct Checked {
    address: String,
    /// The authority of its certificate, in PEM.
    authority: PathBuf,
    folder: PathBuf,
}

/// A row: what must be so, whether the weak listener breaks it, and the check.
type Row = (&'static str, bool, fn(&Checked) -> Result<(), String>);

const ROWS: [Row; 19] = [
    ("TLS 1.0 is refused", true, |at| at.refuses(&["-tls1", "-cipher", "ALL:@SECLEVEL=0"])),
    ("TLS 1.1 is refused", true, |at| at.refuses(&["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"])),
    ("TLS 1.2 is accepted", false, |at| at.accepts(&["-tls1_2"])),
    ("TLS 1.3 is accepted", true, |at| at.accepts(&["-tls1_3"])),
    ("only forward-secret suites with authenticated encryption are agreed on", true, Checked::suites),
    ("suites of TLS 1.3 are agreed on one by one", true, |at| {
        ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"]
            .iter()
            .try_for_each(|suite| at.accepts(&["-tls1_3", "-ciphersuites", suite]))
    }),
    ("finite field groups are refused", false, |at| at.refuses(&["-tls1_3", "-groups", "ffdhe2048"])),
    ("signatures with SHA-1 are refused", true, |at| {
        at.refuses(&["-tls1_2", "-sigalgs", "ECDSA+SHA1", "-cipher", "ALL:@SECLEVEL=0"])
    }),
    ("there is no compression", false, |at| at.shows(&["-tls1_2", "-comp"], "Compression: NONE")),
    ("a client cannot renegotiate", true, Checked::renegotiation),
    ("TLS 1.3 works without early data", true, |at| at.hides(&["-tls1_3"], "Max Early Data: 1")),
    ("the master secret is bound to the handshake", false, |at| {
        at.shows(&["-tls1_2"], "Extended master secret: yes")
    }),
    ("ALPN is http/1.1", true, |at| at.shows(&["-alpn", "h2,http/1.1"], "ALPN protocol: http/1.1")),
    ("another protocol of ALPN is refused", true, |at| at.refuses(&["-alpn", "imap"])),
    ("a wrong name is refused by the client", false, |at| at.refuses(&["-verify_hostname", "wrong.example"])),
    ("a wrong address is refused by the client", false, |at| at.refuses(&["-verify_ip", "192.0.2.1"])),
    ("a foreign authority is refused by the client", false, |at| {
        let foreign = at.folder.join("foreign.pem");
        let made = rcgen::generate_simple_self_signed(vec!["foreign.example".to_owned()]).unwrap();
        std::fs::write(&foreign, made.cert.pem()).unwrap();
        at.refuses(&["-CAfile", foreign.to_str().unwrap()])
    }),
    ("plain HTTP gets the advice to use https and nothing else", true, |at| {
        let url = format!("http://{}/readyz", at.address);
        match output("curl", &["-sS", "--max-time", "10", &url]) {
            advised if advised.stdout == b"this port speaks HTTPS: use https:// in the URL\n" => Ok(()),
            other => Err(text_of(&other)),
        }
    }),
    ("responses tell browsers to stay with https", true, |at| {
        let url = format!("https://{}/healthz", at.address);
        let authority = at.authority.to_str().unwrap();
        let got = output("curl", &["-sS", "-D", "-", "--max-time", "10", "--cacert", authority, &url]);
        let text = String::from_utf8_lossy(&got.stdout).to_lowercase();
        match text.contains("strict-transport-security: max-age=31536000") {
            true => Ok(()),
            false => Err(format!("{text}{}", String::from_utf8_lossy(&got.stderr))),
        }
    }),
];

/// Runs a foreign program to its end, for a limited time.
fn output(program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["20", program]).args(arguments).env("OPENSSL_CONF", "/dev/null").stdin(Stdio::null());
    command.output().unwrap()
}

fn text_of(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

impl Checked {
    /// Connects with these options of `openssl s_client`. A later option takes precedence.
    fn connects(&self, options: &[&str]) -> Output {
        let authority = self.authority.to_str().unwrap();
        let all = ["s_client", "-connect", &self.address, "-verify_return_error", "-CAfile", authority];
        output("openssl", &[&all[..], options].concat())
    }

    fn accepts(&self, options: &[&str]) -> Result<(), String> {
        let made = self.connects(options);
        if made.status.success() {
            Ok(())
        } else {
            Err(format!("{options:?} is refused: {}", text_of(&made)))
        }
    }

    fn refuses(&self, options: &[&str]) -> Result<(), String> {
        let made = self.connects(options);
        // 124 is a client that was stopped because the listener said nothing.
        match made.status.code() {
            Some(1) => Ok(()),
            code => Err(format!("{options:?} ends with {code:?}: {}", text_of(&made))),
        }
    }

    fn shows(&self, options: &[&str], wanted: &str) -> Result<(), String> {
        self.accepts(options)?;
        let text = text_of(&self.connects(options));
        if text.contains(wanted) { Ok(()) } else { Err(format!("no {wanted:?} in {text}")) }
    }

    fn hides(&self, options: &[&str], unwanted: &str) -> Result<(), String> {
        self.accepts(options)?;
        let text = text_of(&self.connects(options));
        if text.contains(unwanted) { Err(text) } else { Ok(()) }
    }

    /// Tries every suite that the client knows.
    fn suites(&self) -> Result<(), String> {
        let known = output("openssl", &["ciphers", "-tls1_2", "ALL:COMPLEMENTOFALL:@SECLEVEL=0"]);
        let known = String::from_utf8(known.stdout).unwrap();
        let known: Vec<&str> = known.trim().split(':').filter(|suite| !suite.starts_with("TLS_")).collect();
        assert!(known.len() > 50, "the client knows weak suites: {known:?}");
        let mut agreed: Vec<&str> = known
            .into_iter()
            .filter(|suite| self.accepts(&["-tls1_2", "-cipher", &format!("{suite}:@SECLEVEL=0")]).is_ok())
            .collect();
        agreed.sort_unstable();
        if agreed == SUITES { Ok(()) } else { Err(format!("agreed on {agreed:?}")) }
    }

    /// Asks for another handshake on a connection. Each handshake verifies the certificate of the listener once.
    fn renegotiation(&self) -> Result<(), String> {
        let log = self.folder.join("renegotiation");
        let open = || File::options().append(true).create(true).open(&log).unwrap();
        let _former = std::fs::remove_file(&log);
        let authority = self.authority.to_str().unwrap();
        let mut client = Command::new("timeout")
            .args(["5", "openssl", "s_client", "-tls1_2", "-connect", &self.address, "-CAfile", authority])
            .env("OPENSSL_CONF", "/dev/null")
            .stdin(Stdio::piped())
            .stdout(open())
            .stderr(open())
            .spawn()
            .unwrap();
        // The client ends when its input does, so the input stays open until it has ended or is stopped.
        let mut input = client.stdin.take().unwrap();
        std::io::Write::write_all(&mut input, b"R\n").unwrap();
        client.wait().unwrap();
        drop(input);
        let text = std::fs::read_to_string(&log).unwrap();
        assert!(text.contains("RENEGOTIATING"), "the client asks for it: {text}");
        match text.matches("verify return:1").count() {
            handshakes if handshakes <= self.certificates() => Ok(()),
            _ => Err(text),
        }
    }

    /// The number of certificates that one handshake verifies.
    fn certificates(&self) -> usize {
        text_of(&self.connects(&["-tls1_2"])).matches("verify return:1").count()
    }
}

/// The rows that do not hold, with what was seen.
async fn broken(checked: Checked) -> Vec<(&'static str, String)> {
    let work = tokio::task::spawn_blocking(move || {
        let rows = ROWS.iter().filter_map(|(row, _, check)| Some((*row, check(&checked).err()?)));
        rows.collect()
    });
    soon("the checks of a listener", work).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs curl and openssl, run by .ci/run"]
async fn the_listener_offers_what_the_table_says_to_openssl_and_curl() {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    let folder = scene.folder.path().join("clients");
    std::fs::create_dir(&folder).unwrap();
    let authority = folder.join("ca.pem");
    std::fs::write(&authority, scene.running.certificates.as_ref().unwrap().authority()).unwrap();
    let address = scene.running.https.unwrap().to_string();
    assert_eq!(broken(Checked { address, authority, folder }).await, []);
    scene.end().await;
}

/// A program that ends with the test.
struct Stopped(Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        self.0.wait().unwrap();
    }
}

/// A listener of openssl that permits what the table refuses.
fn weak_listener(folder: &Path, port: u16) -> Stopped {
    let made =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    std::fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let accept = format!("127.0.0.1:{port}");
    let options = ["-cert", "cert.pem", "-key", "key.pem", "-cipher", "ALL:@SECLEVEL=0", "-no_tls1_3"];
    let weak = ["-client_renegotiation", "-alpn", "h2,imap", "-www"];
    let server = Command::new("openssl")
        .args(["s_server", "-accept", &accept])
        .args(options)
        .args(weak)
        .current_dir(folder)
        .env("OPENSSL_CONF", "/dev/null")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    Stopped(server.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs curl and openssl, run by .ci/run"]
async fn a_listener_that_permits_weak_things_breaks_the_rows_that_refuse_them() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let _server = weak_listener(folder.path(), port);
    soon("the weak listener", async {
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            tokio::time::sleep(crate::kit::POLL_INTERVAL).await;
        }
    })
    .await;
    let checked = Checked {
        address: format!("127.0.0.1:{port}"),
        authority: folder.path().join("cert.pem"),
        folder: folder.path().to_owned(),
    };
    let broken = broken(checked).await;
    let found: Vec<&str> = broken.iter().map(|(row, _)| *row).collect();
    let wanted: Vec<&str> = ROWS.iter().filter(|(_, mutant, _)| *mutant).map(|(row, ..)| *row).collect();
    assert_eq!(found, wanted, "{broken:#?}");
}

/// Writes a pair for loopback that ended years ago.
fn write_ended_pair(folder: &Path) {
    let mut params =
        rcgen::CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    std::fs::write(folder.join("cert.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs curl, run by .ci/run"]
async fn a_pair_that_has_ended_is_refused_by_clients_and_explained_by_readiness() {
    let folder = tempfile::tempdir().unwrap();
    write_ended_pair(folder.path());
    let port = free_port();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut data = DataDir::new()
        .with("CONTROLLER_HTTPS_ADDR", &format!("127.0.0.1:{port}"))
        .with("TLS_CERT_FILE", &path("cert.pem"))
        .with("TLS_KEY_FILE", &path("key.pem"));
    let controller = data.serve().await;
    let url = format!("https://127.0.0.1:{port}/healthz");
    let authority = path("cert.pem");
    let asked = tokio::task::spawn_blocking(move || output("curl", &["-sS", "--cacert", &authority, &url]));
    let refused = asked.await.unwrap();
    assert_eq!(refused.status.code(), Some(60), "{}", text_of(&refused));
    assert!(text_of(&refused).contains("expired"), "{}", text_of(&refused));
    let readiness = controller.admin.get("/readyz").await.expect(503);
    let message = readiness["checks"]["tls"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("ended") && message.contains("TLS_CERT_FILE"), "{message}");
}
