//! HTTPS: API, registry and media with the own authority or a given pair, and what plain HTTP still serves.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::body::Body;
use controller::app::{Controller, Dependencies, Environment};
use keys::Keys;
use model::{Clock, SteadyClock, SystemClock};
use secrets::MasterKey;
use serde_json::json;
use settings::{Listener, Settings, Sources};
use store::Store;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::kit::{Client, DataDir, Scene, TIME_LIMIT, binary, free_port, healthy, silent, soon};

/// The https client of a scene, with the admin token.
fn secure(scene: &Scene) -> Client {
    let base = format!("https://{}", scene.running.https.unwrap());
    let authority = scene.running.certificates.as_ref().unwrap().authority();
    Client::trusting(&authority, base).with_token(scene.admin.token())
}

#[tokio::test(flavor = "multi_thread")]
async fn api_registry_and_authority_are_served_over_https_with_a_certificate_of_the_own_authority() {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    let client = secure(&scene);
    client.get("/readyz").await.expect(200);
    let about = client.get("/about").await.expect(200);
    let state = scene.running.certificates.as_ref().unwrap().state();
    assert_eq!(about["tls"]["authority_sha256"], json!(state.authority_sha256));
    assert_eq!(about["tls"]["certificate_sha256"], json!(state.certificate_sha256));
    assert_eq!(about["tls"]["own_authority"], json!(true));
    client.push_image().await;
    let authority = client.without_token().get("/ca.pem").await;
    assert_eq!(authority.text(), scene.running.certificates.as_ref().unwrap().authority());
    // A client that is not trusted does not get as far as a request.
    let stranger = Client::anonymous(client.base.clone());
    let request = stranger.request(reqwest::Method::GET, "/healthz");
    assert!(stranger.try_send(request).await.is_err());
    // Clients that came by TLS are referred to the token endpoint by https.
    let challenge = client.without_token().get("/v2/").await;
    let realm = format!("Bearer realm=\"{}/v2/token\"", client.base);
    assert!(challenge.header("www-authenticate").unwrap().starts_with(&realm), "{:?}", challenge.headers);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_installs_and_reports_over_https_with_the_authority_of_its_task_image() {
    let port = free_port();
    let scene = Scene::start_with(vec![healthy("TLS-1")], |settings, _| {
        settings.controller_https_addr = Listener::At(([127, 0, 0, 1], port).into());
        settings.controller_public_url = Some(format!("https://localhost:{port}"));
    })
    .await;
    let id = scene.admin.create_job("TLS-1").await;
    let job = scene.complete_skipping(&id).await;
    assert_eq!(job["outcome"], "succeeded", "{}", scene.admin.event_log(&id).await);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_task_image_holds_the_authority_for_an_https_controller_and_none_for_http() {
    for https in [true, false] {
        let scene = Scene::start_with(vec![silent("TLS-2")], |settings, _| {
            if https {
                settings.controller_public_url = Some("https://shoal.example".to_owned());
            }
        })
        .await;
        let id = scene.admin.create_job("TLS-2").await;
        scene.admin.awaits_report(&id).await;
        let document = scene.admin.job_document(&id).await;
        let authority = scene.running.certificates.as_ref().unwrap().authority();
        let expected = if https { json!(authority) } else { json!(null) };
        assert_eq!(document["controller_ca"], expected);
        scene.end().await;
    }
}

/// Writes a pair for `localhost` that is its own authority. Returns the certificate.
fn write_pair(folder: &Path) -> String {
    let made =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    std::fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    made.cert.pem()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_trusts_the_own_authority_beside_the_authorities_of_the_settings() {
    let port = free_port();
    let scene = Scene::start_with(vec![healthy("TLS-3"), silent("TLS-4")], |settings, folder| {
        write_pair(folder);
        settings.controller_ca_file = Some(folder.join("cert.pem"));
        settings.controller_https_addr = Listener::At(([127, 0, 0, 1], port).into());
        settings.controller_public_url = Some(format!("https://localhost:{port}"));
    })
    .await;
    let id = scene.admin.create_job("TLS-3").await;
    let job = scene.complete_skipping(&id).await;
    assert_eq!(job["outcome"], "succeeded", "{}", scene.admin.event_log(&id).await);
    let id = scene.admin.create_job("TLS-4").await;
    scene.admin.awaits_report(&id).await;
    let document = scene.admin.job_document(&id).await;
    let trusted = document["controller_ca"].as_str().unwrap();
    let given = std::fs::read_to_string(scene.folder.path().join("cert.pem")).unwrap();
    let own = scene.running.certificates.as_ref().unwrap().authority();
    assert!(trusted.contains(given.trim_end()) && trusted.contains(&own), "{trusted}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_certificate_loses_no_request_under_load_and_a_broken_one_changes_nothing() {
    let scene = Scene::bare(vec![], |settings, folder| {
        write_pair(folder);
        settings.tls_cert_file = Some(folder.join("cert.pem"));
        settings.tls_key_file = Some(folder.join("key.pem"));
    })
    .await;
    let folder = scene.folder.path().to_owned();
    let certificates = Arc::clone(scene.running.certificates.as_ref().unwrap());
    let settings = {
        let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
        let flags = [
            ("STORAGE_ROOT", folder.join("data").display().to_string()),
            ("CONTROLLER_HTTP_ADDR", "127.0.0.1:0".to_owned()),
            ("CONTROLLER_HTTPS_ADDR", "127.0.0.1:0".to_owned()),
            ("TLS_CERT_FILE", cert.display().to_string()),
            ("TLS_KEY_FILE", key.display().to_string()),
        ];
        load(&flags)
    };
    let base = format!("https://{}", scene.running.https.unwrap());
    // All certificates of the test are made first, so that the clients trust each of them.
    let pairs: Vec<(String, String)> = (0..4)
        .map(|_| {
            let certificate = write_pair(&folder);
            (certificate, std::fs::read_to_string(folder.join("key.pem")).unwrap())
        })
        .collect();
    let trusted = pairs.iter().fold(certificates.authority(), |all, (certificate, _)| all + certificate);
    let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let load = (0..4).map(|number| {
        let (stop, sent, trusted, base) =
            (Arc::clone(&stop), Arc::clone(&sent), trusted.clone(), base.clone());
        tokio::spawn(async move {
            let mut client = Client::trusting(&trusted, base.clone());
            while !stop.load(Ordering::Relaxed) {
                // Half of the clients connect anew for each request.
                if number % 2 == 0 {
                    client = Client::trusting(&trusted, base.clone());
                }
                let request = client.request(reqwest::Method::GET, "/healthz");
                let response = client.try_send(request).await.expect("a request was lost");
                assert_eq!(response.status, 200);
                sent.fetch_add(1, Ordering::Relaxed);
            }
        })
    });
    let load: Vec<_> = load.collect();
    let more_requests = async |number: usize| {
        let until = sent.load(Ordering::Relaxed) + number;
        let reached = async {
            while sent.load(Ordering::Relaxed) < until && load.iter().all(|client| !client.is_finished()) {
                tokio::time::sleep(crate::kit::POLL_INTERVAL).await;
            }
        };
        soon("requests under load", reached).await;
    };
    for (certificate, key) in &pairs {
        more_requests(20).await;
        std::fs::write(folder.join("cert.pem"), certificate).unwrap();
        std::fs::write(folder.join("key.pem"), key).unwrap();
        scene.running.reload(&settings).unwrap();
        assert_eq!(&certificates.authority(), certificate);
        more_requests(20).await;
        std::fs::write(folder.join("key.pem"), "no key").unwrap();
        assert!(scene.running.reload(&settings).is_err());
        assert_eq!(&certificates.authority(), certificate, "the former pair stays in force");
        let readiness = scene.admin.get("/readyz").await.expect(503);
        let message = readiness["checks"]["tls"]["message"].as_str().unwrap();
        assert!(message.contains("the former certificate stays in force"), "{message}");
        assert!(!message.contains("no key\n"), "{message}");
    }
    stop.store(true, Ordering::Relaxed);
    for client in load {
        client.await.unwrap();
    }
    scene.end().await;
}

/// The certificate and the users are of one reload, which is refused as a whole.
#[tokio::test(flavor = "multi_thread")]
async fn a_reload_whose_users_are_refused_leaves_the_former_certificate_in_force() {
    let scene = Scene::bare(vec![], |settings, folder| {
        write_pair(folder);
        settings.tls_cert_file = Some(folder.join("cert.pem"));
        settings.tls_key_file = Some(folder.join("key.pem"));
    })
    .await;
    let folder = scene.folder.path();
    let certificates = scene.running.certificates.as_ref().unwrap();
    let mut settings = load(&[
        ("STORAGE_ROOT", folder.join("data").display().to_string()),
        ("TLS_CERT_FILE", folder.join("cert.pem").display().to_string()),
        ("TLS_KEY_FILE", folder.join("key.pem").display().to_string()),
    ]);
    let former = certificates.authority();
    let new = write_pair(folder);
    settings.basic_user = Some("a:b".to_owned());
    settings.basic_pass_hash = Some("no hash".to_owned());
    assert!(scene.running.reload(&settings).is_err());
    assert_eq!(certificates.authority(), former);
    scene.admin.get("/readyz").await.expect(200);
    settings.basic_user = None;
    scene.running.reload(&settings).unwrap();
    assert_eq!(certificates.authority(), new);
    scene.end().await;
}

fn load(flags: &[(&str, String)]) -> Settings {
    Settings::load(&Sources {
        flags: flags.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
        environment: &|_| None,
        variables: Vec::new(),
        file: None,
    })
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_http_serves_other_machines_media_health_and_the_authority_and_nothing_that_takes_credentials()
{
    let folder = tempfile::tempdir().unwrap();
    let settings = load(&[("STORAGE_ROOT", folder.path().join("data").display().to_string())]);
    std::fs::create_dir_all(settings.maintenance_dir()).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SteadyClock::new(SystemClock));
    let store = Store::open(&settings.db_path, clock.now()).unwrap();
    let environment = Environment::real(clock);
    let listen = settings.controller_http_addr;
    let controller = Controller::assemble(
        Dependencies {
            settings: &settings,
            keys: &Arc::new(Keys::in_memory(&MasterKey::from_bytes(&[7; 32]))),
            store: &store,
            registry: &None,
            addresses: bmc::Addresses {
                api: listen,
                media: listen,
                api_tls: None,
                media_tls: None,
                plain_api: false,
                public_url: None,
                media_base_url: None,
            },
            certificates: None,
            environment: &environment,
        },
        "test",
        CancellationToken::new(),
    )
    .unwrap();
    let router = api::plain_router(api::Api::new(controller.api));
    // A signed URL is worth one image, so plain HTTP takes it; this one was never issued.
    let image = "/media/tasks/01920000-0000-7000-8000-000000000000/task.iso";
    for (query, expected) in [("expires=1&sig=a", "media.url_invalid"), ("sig=a", "media.url_invalid")] {
        let request = http::Request::builder().uri(format!("{image}?{query}")).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let body = axum::body::to_bytes(response.into_body(), 1 << 16).await.unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["error"], expected, "{query}");
    }
    for (method, path, expected) in [
        ("GET", "/healthz", 200),
        ("GET", "/readyz", 200),
        ("POST", "/healthz", 405),
        ("GET", "/ca.pem", 404),
        ("GET", "/api/v1/jobs", 403),
        ("POST", "/api/v1/jobs", 403),
        ("POST", "/api/v1/status-webhook/XF-1", 403),
        ("GET", "/v2/", 403),
        ("GET", "/metrics", 403),
        ("GET", "/about", 403),
        ("GET", "/media/tasks/01920000-0000-7000-8000-000000000000/task.iso", 403),
    ] {
        let request = http::Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status().as_u16(), expected, "{method} {path}");
        if expected == 403 {
            let body = axum::body::to_bytes(response.into_body(), 1 << 16).await.unwrap();
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(body["error"], "https_required", "{method} {path}");
        }
    }
}

/// Runs the program with the settings of a data directory and returns what it printed.
async fn shoal(data: &DataDir, arguments: &[&str]) -> Output {
    let mut command = binary(arguments);
    command.env("STORAGE_ROOT", data.path().join("data"));
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_trusts_the_authority_of_the_data_directory_or_a_given_one() {
    let port = free_port();
    let mut data = DataDir::new().with("CONTROLLER_HTTPS_ADDR", &format!("127.0.0.1:{port}"));
    let controller = data.serve().await;
    let url = format!("https://127.0.0.1:{port}");
    let token = controller.admin.token().to_owned();
    let about = ["about", "--json", "--url", &url, "--token", &token];
    let local = shoal(&data, &about).await;
    assert!(local.status.success(), "{local:?}");
    let about_local: serde_json::Value = serde_json::from_slice(&local.stdout).unwrap();
    let print = about_local["tls"]["authority_sha256"].as_str().unwrap().to_owned();
    assert!(data.logs().contains(&print), "the fingerprint is in the log of the start");

    let exported = shoal(&data, &["ca", "export"]).await;
    assert!(exported.status.success(), "{exported:?}");
    let file = data.path().join("exported.pem");
    std::fs::write(&file, &exported.stdout).unwrap();
    let file = file.to_str().unwrap().to_owned();
    let elsewhere = |arguments: Vec<String>| {
        let mut command = binary(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        command.env("STORAGE_ROOT", "/nonexistent");
        tokio::task::spawn_blocking(move || command.output().unwrap())
    };
    let about: Vec<String> = about.iter().map(|word| (*word).to_owned()).collect();
    let untrusted = elsewhere(about.clone()).await.unwrap();
    assert_eq!(untrusted.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&untrusted.stderr).contains("shoal ca export"), "{untrusted:?}");
    let trusted = elsewhere([about, vec!["--ca".to_owned(), file]].concat()).await.unwrap();
    assert!(trusted.status.success(), "{trusted:?}");

    let online =
        shoal(&data, &["ca", "export", "--from", &url, "--fingerprint", &print.to_uppercase()]).await;
    assert_eq!(online.stdout, exported.stdout, "{online:?}");
    let other = shoal(&data, &["ca", "export", "--from", &url, "--fingerprint", &"ab".repeat(32)]).await;
    assert!(!other.status.success() && other.stdout.is_empty(), "{other:?}");
    let plain = shoal(&data, &["ca", "export", "--from", data.base()]).await;
    assert_eq!(plain.stdout, exported.stdout);
    assert!(String::from_utf8_lossy(&plain.stderr).contains(&print), "{plain:?}");
    assert!(controller.terminate().await.success());
}

/// Runs a foreign program to its end.
async fn run(program: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).envs(environment.iter().copied()).stdin(std::process::Stdio::null());
    let running = tokio::task::spawn_blocking(move || command.output().unwrap());
    tokio::time::timeout(TIME_LIMIT, running).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs curl and openssl, run by .ci/run"]
async fn curl_and_openssl_verify_the_listener_and_agree_on_modern_tls_only() {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    let client = secure(&scene);
    let authority = scene.folder.path().join("ca.pem");
    std::fs::write(&authority, scene.running.certificates.as_ref().unwrap().authority()).unwrap();
    let (authority, address) = (authority.to_str().unwrap(), scene.running.https.unwrap().to_string());
    let url = format!("{}/readyz", client.base);
    for version in ["1.2", "1.3"] {
        let only = format!("--tlsv{version}");
        let most = ["--tls-max", version];
        let arguments = [&["-fsS", "--cacert", authority, &only][..], &most, &[&url]].concat();
        let fetched = run("curl", &arguments, &[]).await;
        assert!(fetched.status.success(), "TLS {version}: {fetched:?}");
    }
    assert!(!run("curl", &["-fsS", &url], &[]).await.status.success(), "an unknown authority");
    let by_name = url.replace("127.0.0.1", "shoal.invalid");
    let resolve = format!("shoal.invalid:{}:127.0.0.1", scene.running.https.unwrap().port());
    let wrong = run("curl", &["-fsS", "--cacert", authority, "--resolve", &resolve, &by_name], &[]).await;
    assert_eq!(wrong.status.code(), Some(60), "{wrong:?}");

    let verify = ["s_client", "-connect", &address, "-CAfile", authority, "-verify_return_error"];
    let shown = run("openssl", &verify, &[]).await;
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(text.contains("Verify return code: 0 (ok)") && text.contains("TLSv1.3"), "{text}");
    // Old versions and ciphers, with every obstacle that the client itself puts up removed.
    for old in [
        &["-tls1"][..],
        &["-tls1_1"],
        &["-tls1_2", "-cipher", "AES128-SHA:@SECLEVEL=0"],
        &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0"],
    ] {
        let refused = run("openssl", &[&verify[..], old].concat(), &[]).await;
        assert!(!refused.status.success(), "{old:?}: {}", String::from_utf8_lossy(&refused.stdout));
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs skopeo and podman, run by .ci/run"]
async fn skopeo_and_podman_push_and_pull_with_the_exported_authority() {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    secure(&scene).push_image().await;
    let folder = scene.folder.path();
    let trust = folder.join("trust");
    std::fs::create_dir(&trust).unwrap();
    std::fs::write(trust.join("ca.crt"), scene.running.certificates.as_ref().unwrap().authority()).unwrap();
    let (trust, address) = (trust.to_str().unwrap(), scene.running.https.unwrap());
    let image = format!("docker://{address}/os-images/ubuntu-rootfs:22.04");
    let copy = format!("docker://{address}/copies/ubuntu-rootfs:22.04");
    let credentials = format!("admin:{}", scene.admin.token());
    let layout = format!("oci:{}:copy", folder.join("layout").display());
    let policy = folder.join("policy.json");
    std::fs::write(&policy, r#"{"default":[{"type":"insecureAcceptAnything"}]}"#).unwrap();
    let policy = policy.to_str().unwrap();
    let skopeo = ["--policy", policy, "copy"];
    let pulled = run(
        "skopeo",
        &[&skopeo[..], &["--src-cert-dir", trust, "--src-creds", &credentials, &image, &layout]].concat(),
        &[],
    )
    .await;
    assert!(pulled.status.success(), "{pulled:?}");
    let pushed = run(
        "skopeo",
        &[&skopeo[..], &["--dest-cert-dir", trust, "--dest-creds", &credentials, &layout, &copy]].concat(),
        &[],
    )
    .await;
    assert!(pushed.status.success(), "{pushed:?}");
    let untrusted =
        run("skopeo", &["--policy", policy, "inspect", "--creds", &credentials, &image], &[]).await;
    assert!(!untrusted.status.success(), "an unknown authority");

    let home = folder.join("home");
    std::fs::create_dir(&home).unwrap();
    let file = folder.join("auth.json");
    let environment = [
        ("HOME", home.to_str().unwrap()),
        ("REGISTRY_AUTH_FILE", file.to_str().unwrap()),
        ("STORAGE_DRIVER", "vfs"),
    ];
    let address = address.to_string();
    let login = ["login", "--cert-dir", trust, "-u", "admin", "-p", scene.admin.token(), &address];
    let login = run("podman", &login, &environment).await;
    assert!(login.status.success(), "{login:?}");
    scene.end().await;
}
