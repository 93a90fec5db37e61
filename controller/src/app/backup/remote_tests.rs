//! Backups in a registry: a real one on a real socket, which a test can take away.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::IntoResponse as _;
use registry::{AllowAll, Config, Registry};

use super::super::StartError;
use super::super::lock::DataLock;
use super::BackupError;
use super::service_tests::{Scheduled, open, verified};
use super::tests::{names, now, settings, sha256};
use api::BackupAdmin;
use settings::{BackupReference, BackupTarget};
use store::Store;

const DAY: Duration = Duration::from_secs(86_400);
/// Long enough for a layer of its own.
const IMAGE: usize = (1 << 20) + 7;

/// A registry that responds to a number of requests, and then with 503.
struct Remote {
    folder: tempfile::TempDir,
    address: std::net::SocketAddr,
    left: Arc<AtomicI64>,
}

impl Remote {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let registry = Registry::open(Config::new(folder.path().join("oci"))).await.unwrap();
        let left = Arc::new(AtomicI64::new(i64::MAX));
        let counter = Arc::clone(&left);
        let away = axum::middleware::from_fn(move |request: Request, next: Next| {
            let counter = Arc::clone(&counter);
            async move {
                if counter.fetch_sub(1, Ordering::SeqCst) > 0 {
                    return next.run(request).await;
                }
                // The body is read to its end: a connection that is closed before may lose the response.
                axum::body::to_bytes(request.into_body(), 8 * IMAGE).await.unwrap();
                axum::http::StatusCode::SERVICE_UNAVAILABLE.into_response()
            }
        });
        let router = registry.router(Arc::new(AllowAll)).layer(away);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { folder, address, left }
    }

    fn repository(&self) -> String {
        format!("oci+http://{}/site/shoal", self.address)
    }

    fn target(&self) -> BackupTarget {
        let reference = BackupReference::parse(&self.repository()).unwrap().unwrap();
        BackupTarget::Registry(reference.target)
    }

    fn blob(&self, hex: &str) -> PathBuf {
        self.folder.path().join("oci/blobs/sha256").join(hex)
    }

    fn tags(&self) -> Vec<String> {
        let tags = self.folder.path().join("oci/repos/site=shoal/_tags");
        if tags.exists() { names(&tags) } else { Vec::new() }
    }
}

async fn scheduled(remote: &Remote) -> Scheduled {
    let mut kit = Scheduled::new().await;
    kit.settings.backup_target = Some(remote.target());
    let image = vec![7; IMAGE];
    fs::write(kit.settings.maintenance_dir().join(format!("{}.iso", sha256(&image))), image).unwrap();
    kit
}

fn no_staging(kit: &Scheduled) {
    let staging = kit.settings.storage_root.join("backup-staging");
    assert!(!staging.exists() || names(&staging).is_empty(), "the copy on this disk is removed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_in_a_registry_is_read_back_kept_listed_and_restored() {
    let remote = Remote::start().await;
    let mut kit = scheduled(&remote).await;
    kit.settings.backup_keep = 2;
    let service = kit.start().await;
    for _ in 0..3 {
        assert!(service.step_now().await);
        assert!(service.status().failure.is_none(), "{:?}", service.status().failure);
        no_staging(&kit);
        kit.clock.advance(DAY);
    }
    let last = service.status().last.unwrap();
    assert_eq!(remote.tags().len(), 2, "{:?}", remote.tags());
    assert!(remote.blob(&sha256(&vec![7; IMAGE])).exists(), "a large file is a blob of its own");
    let listed = service.list().await.unwrap();
    assert!(listed.len() == 2 && listed.iter().all(|backup| backup.own), "{listed:?}");
    assert_eq!(verified(&service, &last.name).await, None);

    for (reference, name) in [
        (remote.repository(), "newest"),
        (format!("{}:{}", remote.repository(), last.name), "by-tag"),
        (format!("{}@{}", remote.repository(), last.digest.clone().unwrap()), "by-digest"),
    ] {
        let source = super::BackupSource::parse(&reference).unwrap();
        source.verify(&kit.settings).await.unwrap();
        let target = settings(&kit.data.path(name).join("data"));
        let (_, summary) = source.restore(&target, now()).await.unwrap();
        assert_eq!((summary.made_at, summary.bytes), (last.made_at.unwrap(), last.bytes.unwrap()), "{name}");
        let restored = Store::open(&target.db_path, now()).unwrap();
        assert_eq!(restored.restored_servers().await.unwrap().len(), 2);
        assert_eq!(names(&target.maintenance_dir()).len(), 2);
        assert!(!target.storage_root.join("restore-download").exists());
    }
    let gone = super::BackupSource::parse(&format!("{}:shoal-none", remote.repository())).unwrap();
    let refused = gone.verify(&kit.settings).await.unwrap_err().to_string();
    assert!(refused.contains("has no backup shoal-none"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_goes_away_at_any_request_leaves_no_half_backup_and_the_next_attempt_succeeds() {
    let remote = Remote::start().await;
    let kit = scheduled(&remote).await;
    let service = kit.start().await;
    let mut attempts = 0;
    loop {
        remote.left.store(attempts, Ordering::SeqCst);
        assert!(service.make("ann").unwrap());
        assert!(service.step_now().await);
        no_staging(&kit);
        let status = service.status();
        let Some(failure) = status.failure else { break };
        assert!(failure.message.contains("503"), "{failure:?}");
        attempts += 1;
        assert!(attempts < 60, "{failure:?}");
    }
    remote.left.store(i64::MAX, Ordering::SeqCst);
    assert!(attempts > 8, "each request was the first without a response once: {attempts}");
    // Only a lost response to the last requests leaves a tag without a success, and the next attempt finds that backup complete.
    let listed = service.list().await.unwrap();
    assert!((1..=3).contains(&listed.len()), "{listed:?}");
    for backup in listed {
        assert!(backup.own, "{backup:?}");
        assert_eq!(verified(&service, &backup.name).await, None);
    }
}

/// A registry that takes the head of each request and ends the connection when a body follows.
async fn without_bodies() -> std::net::SocketAddr {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n")
                && let Ok(byte) = connection.read_u8().await
            {
                head.push(byte);
            }
            let response = match head.split(|byte| *byte == b' ').next() {
                Some(b"PUT") => continue,
                Some(b"POST") => "202 Accepted\r\nlocation: /v2/site/shoal/blobs/uploads/1",
                _ => "404 Not Found",
            };
            let response = format!("HTTP/1.1 {response}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            let _gone = connection.write_all(response.as_bytes()).await;
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_ends_the_connection_in_a_body_is_not_called_unreachable() {
    let remote = Remote::start().await;
    let mut kit = scheduled(&remote).await;
    let hasty = format!("oci+http://{}/site/shoal", without_bodies().await);
    let reference = BackupReference::parse(&hasty).unwrap().unwrap();
    kit.settings.backup_target = Some(BackupTarget::Registry(reference.target));
    let service = kit.start().await;
    assert!(service.step_now().await);
    no_staging(&kit);
    let message = service.status().failure.unwrap().message;
    assert!(message.contains("ended the connection before its response"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_in_a_registry_is_found_by_its_part() {
    let remote = Remote::start().await;
    let kit = scheduled(&remote).await;
    let service = kit.start().await;
    assert!(service.step_now().await);
    let last = service.status().last.unwrap();
    let hex = sha256(&vec![7; IMAGE]);
    replace(&remote.blob(&hex), &vec![8; IMAGE]);
    let damage = verified(&service, &last.name).await.unwrap();
    assert!(damage.contains(&format!("data/maintenance/{hex}.iso")), "{damage}");
    assert!(service.status().last.is_none());
    // A backup is not reported as made while the registry has damaged content of it.
    assert!(service.step_now().await);
    assert!(service.status().failure.unwrap().message.contains(&hex));
    assert_eq!(remote.tags().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_by_digest_refuses_a_backup_json_of_the_same_length() {
    let remote = Remote::start().await;
    let kit = scheduled(&remote).await;
    let service = kit.start().await;
    assert!(service.step_now().await);
    let digest = service.status().last.unwrap().digest.unwrap();
    let manifest = remote.blob(digest.strip_prefix("sha256:").unwrap());
    let manifest: serde_json::Value = serde_json::from_slice(&fs::read(manifest).unwrap()).unwrap();
    let config = remote.blob(manifest["config"]["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap());
    let text = fs::read_to_string(&config).unwrap();
    let at = text.find("\"program\"").expect("the program that made the backup") + "\"program\"".len();
    let changed = at + text[at..].find(|letter: char| letter.is_ascii_alphanumeric()).unwrap();
    let mut bytes = text.into_bytes();
    bytes[changed] = if bytes[changed] == b'x' { b'y' } else { b'x' };
    replace(&config, &bytes);
    let source = super::BackupSource::parse(&format!("{}@{digest}", remote.repository())).unwrap();
    let target = settings(&kit.data.path("target").join("data"));
    let refused = source.restore(&target, now()).await.unwrap_err().to_string();
    assert!(refused.contains("other content than its digest says"), "{refused}");
    assert!(!target.db_path.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_reads_a_backup_only_into_data_that_it_has_locked_and_found_empty() {
    let remote = Remote::start().await;
    let kit = scheduled(&remote).await;
    assert!(kit.start().await.step_now().await);
    let source = super::BackupSource::parse(&remote.repository()).unwrap();
    let target = settings(&kit.data.path("target").join("data"));
    let other = target.storage_root.join("restore-download/other");
    fs::create_dir_all(&other).unwrap();
    // The list, the manifest and backup.json are read, and no layer.
    let of_summary = 3;
    let running = DataLock::take(&target).unwrap();
    remote.left.store(of_summary, Ordering::SeqCst);
    let refused = source.restore(&target, now()).await;
    assert!(matches!(refused, Err(BackupError::Locks(StartError::InUse { .. }))), "{refused:?}");
    assert!(other.exists(), "the download of another restore stays");
    drop(running);
    fs::write(&target.db_path, "used").unwrap();
    remote.left.store(of_summary, Ordering::SeqCst);
    let refused = source.restore(&target, now()).await;
    assert!(matches!(refused, Err(BackupError::NotEmpty { .. })), "{refused:?}");
    fs::remove_file(&target.db_path).unwrap();
    remote.left.store(i64::MAX, Ordering::SeqCst);
    source.restore(&target, now()).await.unwrap();
    assert!(!other.exists(), "what a killed restore left is removed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_challenge_of_another_host_gets_no_login() {
    let serve = async |router: axum::Router| {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        address
    };
    let unauthorized = || {
        let header = [(axum::http::header::WWW_AUTHENTICATE, "Bearer realm=\"/token\",service=\"s\"")];
        std::future::ready((axum::http::StatusCode::UNAUTHORIZED, header).into_response())
    };
    let store = serve(axum::Router::new().fallback(unauthorized)).await;
    let away = format!("http://{store}/object");
    let redirect = move || std::future::ready(axum::response::Redirect::temporary(&away).into_response());
    // The registry itself may ask for the login; an object store to which it redirects may not.
    for (router, expected) in
        [(axum::Router::new().fallback(redirect), 0), (axum::Router::new().fallback(unauthorized), 1)]
    {
        let logins = Arc::new(AtomicI64::new(0));
        let counter = Arc::clone(&logins);
        let token = move || {
            counter.fetch_add(1, Ordering::SeqCst);
            std::future::ready("{\"token\":\"t\"}")
        };
        let registry = serve(router.route("/token", axum::routing::get(token))).await;
        let folder = tempfile::tempdir().unwrap();
        let mut settings = settings(folder.path());
        settings.backup_registry_user = Some("ann".to_owned());
        settings.backup_registry_password = Some("canary".parse().unwrap());
        let source = super::BackupSource::parse(&format!("oci+http://{registry}/site/shoal")).unwrap();
        let refused = source.verify(&settings).await.unwrap_err().to_string();
        assert!(refused.contains("refused the login") && !refused.contains("canary"), "{refused}");
        assert_eq!(logins.load(Ordering::SeqCst), expected, "{refused}");
    }
}

fn replace(path: &Path, bytes: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_that_another_moved_is_not_removed() {
    let remote = Remote::start().await;
    let mut kit = scheduled(&remote).await;
    kit.settings.backup_keep = 1;
    let service = open(&kit.settings, &kit.data.store, &kit.clock).await;
    assert!(service.step_now().await);
    let first = service.status().last.unwrap();
    let base = format!("http://{}/v2/site/shoal/manifests", remote.address);
    let tls = media::tls_config(&[]).unwrap();
    let http = reqwest::Client::builder().no_proxy().tls_backend_preconfigured(tls).build().unwrap();
    let manifest = http.get(format!("{base}/{}", first.name)).send().await.unwrap().text().await.unwrap();
    let mut moved: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    moved["annotations"]["moved"] = "yes".into();
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let put = http.put(format!("{base}/{}", first.name)).header("content-type", kind).body(moved.to_string());
    assert_eq!(put.send().await.unwrap().status().as_u16(), 201);
    kit.clock.advance(DAY);
    assert!(service.step_now().await);
    assert_eq!(remote.tags().len(), 2, "the moved tag stays");
}
