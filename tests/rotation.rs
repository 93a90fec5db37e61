//! Keys are rotated by the command line while clients use the controller and it is restarted: every request succeeds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use settings::{Settings, Sources};

use crate::kit::{ApiResponse, Client, DataDir, POLL_INTERVAL, Scene, binary, silent};

const SERVERS: usize = 12;

/// Sends a request until the controller responds: it may be restarting.
async fn answered(client: &Client, request: impl Fn() -> RequestBuilder) -> ApiResponse {
    loop {
        match client.try_send(request()).await {
            Ok(response) => return response,
            Err(_restarting) => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

/// A bearer token of the registry for the administrator.
async fn registry_token(client: &Client) -> String {
    let place = "/v2/token?service=shoal&scope=repository:team/app:pull";
    let request = || client.request(Method::GET, place).basic_auth("any", Some(client.token()));
    let token = answered(client, request).await.expect(200);
    token["token"].as_str().unwrap().to_owned()
}

/// Uses credentials from before all rotations and new ones until `stop`. Returns the number of requests.
async fn load(client: Client, old: String, number: usize, stop: Arc<AtomicBool>) -> u64 {
    let mut requests = 0;
    let registry = client.without_token();
    while !stop.load(Ordering::Relaxed) {
        let place = format!("/api/v1/servers/LOAD-{}", (number + requests as usize) % SERVERS);
        let password = json!({ "bmc_password": format!("password {number} {requests}") });
        answered(&client, || client.request(Method::GET, &place)).await.expect(200);
        let changed = || client.request(Method::PATCH, &place).json(&password);
        let response = answered(&client, changed).await;
        // Another client may have changed the server in between.
        assert!([200, 409, 412].contains(&response.status), "{}", response.text());
        let new = registry_token(&client).await;
        for token in [&old, &new] {
            let request = || registry.request(Method::GET, "/v2/").bearer_auth(token);
            assert_eq!(answered(&registry, request).await.status, 200);
        }
        requests += 5;
    }
    requests
}

async fn shoal(client: &Client, arguments: &[&str]) -> String {
    let mut command = binary(arguments);
    command.env("SHOAL_URL", &client.base).env("SHOAL_TOKEN", client.token());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_is_lost_while_keys_are_rotated_and_the_controller_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.secret");
    std::fs::write(&report, "the first report secret\n").unwrap();
    let mut data = DataDir::new().with("WEBHOOK_SECRET", &format!("file:{}", report.display()));
    let mut controller = data.serve().await;
    let client = controller.admin.clone();
    for number in 0..SERVERS {
        client.register_at(&format!("LOAD-{number}"), "127.0.0.1:1").await;
    }
    let old = registry_token(&client).await;
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..3)
        .map(|number| tokio::spawn(load(client.clone(), old.clone(), number, Arc::clone(&stop))))
        .collect();
    let mut said = String::new();
    for round in 0..3 {
        for key in ["master", "signing", "report", "certificate"] {
            said += &shoal(&client, &["secret", "rotate", key]).await;
        }
        match round {
            0 => drop(controller.terminate().await),
            _ => controller.kill(),
        }
        controller = data.serve().await;
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(client.await.unwrap() > 0);
    }
    let listed: Value = serde_json::from_str(&shoal(&client, &["secret", "list", "--json"]).await).unwrap();
    let former = |name: &str| {
        let secrets = listed["secrets"].as_array().unwrap();
        let secret = secrets.iter().find(|secret| secret["name"] == name).unwrap();
        secret["former"].as_array().unwrap().len()
    };
    assert_eq!((former("master"), former("signing"), former("report")), (0, 3, 1), "{listed:#}");
    said += &format!("{listed} {} {}", shoal(&client, &["secret", "list"]).await, data.logs());
    let master = data.path().join("data/master.key");
    for path in [&master, &report] {
        for line in std::fs::read_to_string(path).unwrap().lines() {
            assert!(!said.contains(line.split(' ').next().unwrap()), "a key is shown");
        }
    }
}

/// A reload that waits for a file in its middle: the report secret is rotated meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_reload_that_began_before_a_rotation_keeps_the_new_report_secret() {
    let former = "the first report secret";
    let scene = Scene::start_with(vec![silent("ROT-1")], |settings, folder| {
        let path = folder.join("report.secret");
        std::fs::write(&path, format!("{former}\n")).unwrap();
        settings.webhook_secret = Some(format!("file:{}", path.display()).parse().unwrap());
    })
    .await;
    let (path, pipe) = (scene.folder.path().join("report.secret"), scene.folder.path().join("authorities"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let flags = [
        ("STORAGE_ROOT", scene.folder.path().join("data").display().to_string()),
        ("WEBHOOK_SECRET", format!("file:{}", path.display())),
        ("REDFISH_CA_FILE", pipe.display().to_string()),
    ];
    let settings = Settings::load(&Sources {
        flags: flags.map(|(name, value)| (name.to_owned(), value)).to_vec(),
        environment: &|_| None,
        variables: Vec::new(),
        file: None,
    })
    .unwrap();
    let authorities = scene.running.certificates.as_ref().unwrap().authority();
    let job = scene.admin.create_job("ROT-1").await;
    scene.admin.awaits_report(&job).await;

    let runtime = tokio::runtime::Handle::current();
    let rotate = async {
        let listed = scene.admin.get("/api/v1/secrets").await.expect(200);
        let report = listed["secrets"].as_array().unwrap().iter().find(|secret| secret["name"] == "report");
        let from = json!({ "from": report.unwrap()["key_id"] });
        scene.admin.post("/api/v1/secrets/report/rotate", &from).await.expect(200);
    };
    tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            let reload = scope.spawn(|| {
                let _runtime = runtime.enter();
                scene.running.reload(&settings).map(drop)
            });
            // Opens when the reload reads the file.
            let mut writer = std::fs::OpenOptions::new().write(true).open(&pipe).unwrap();
            runtime.block_on(rotate);
            std::io::Write::write_all(&mut writer, authorities.as_bytes()).unwrap();
            drop(writer);
            reload.join().unwrap().unwrap();
        });
    });
    let new = std::fs::read_to_string(&path).unwrap().trim_end().to_owned();
    assert_ne!(new, former);
    let report = json!({ "job_id": job, "status": "success" });
    scene.admin.without_token().report("ROT-1", &new, &report).await.expect(200);
    scene.end().await;
}
