//! After a restore, logins that were taken away do not come back: sessions have ended, and users and API tokens of the data are
//! refused until an administrator confirms each.

use std::path::Path;
use std::process::Output;

use reqwest::Method;
use serde_json::{Value, json};

use crate::kit::{Client, DataDir};

const PASSWORD: &str = "a password that was changed";

/// Runs a command with the settings of a data directory.
async fn shoal(data: &DataDir, arguments: &[&str]) -> Output {
    let mut command = data.command_of(arguments);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

async fn succeeds(data: &DataDir, arguments: &[&str]) -> String {
    let output = shoal(data, arguments).await;
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Moves the data directory away and puts a backup in its place, with the master key.
async fn restore(data: &DataDir, backup: &Path) -> String {
    let place = data.path().join("data");
    let lost = data.path().join("lost");
    std::fs::rename(&place, &lost).unwrap();
    let said = succeeds(data, &["restore", backup.to_str().unwrap()]).await;
    // A copy keeps the mode of the file.
    std::fs::copy(lost.join("master.key"), place.join("master.key")).unwrap();
    said
}

async fn token(admin: &Client, name: &str, role: &str) -> String {
    let made = admin.post("/api/v1/tokens", &json!({ "name": name, "role": role })).await.expect(201);
    made["token"].as_str().unwrap().to_owned()
}

/// The credentials of the data, each with a request that it may send.
struct Credentials {
    requests: Vec<(&'static str, Method, &'static str, Presented)>,
}

enum Presented {
    Bearer(String),
    Password(&'static str, &'static str),
    Cookie(String),
}

impl Credentials {
    /// The status of each request.
    async fn statuses(&self, client: &Client) -> Vec<(&'static str, u16, String)> {
        let mut seen = Vec::new();
        for (what, method, place, presented) in &self.requests {
            let request = client.request(method.clone(), place);
            let request = match presented {
                Presented::Bearer(token) => request.bearer_auth(token),
                Presented::Password(name, password) => request.basic_auth(name, Some(password)),
                Presented::Cookie(cookie) => request.header("Cookie", cookie),
            };
            let response = client.send(request).await;
            seen.push((*what, response.status, response.text()));
        }
        seen
    }
}

/// Makes users, tokens, a session and a token of the registry.
async fn credentials(admin: &Client) -> Credentials {
    for name in ["disabled", "changed", "removed"] {
        let new = json!({ "name": name, "role": "admin", "password": PASSWORD });
        admin.post("/api/v1/users", &new).await.expect(201);
    }
    let revoked = token(admin, "revoked", "admin").await;
    let rotated = token(admin, "rotated", "operator").await;
    let kept = token(admin, "kept", "viewer").await;
    let browser = admin.with_token(&kept);
    let login = browser.post("/api/v1/session", &json!({})).await;
    let cookie = login.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let place = "/v2/token?service=shoal&scope=repository:team/app:pull";
    let ask = admin.without_token().request(Method::GET, place).basic_auth("any", Some(&kept));
    let registry = admin.send(ask).await.expect(200)["token"].as_str().unwrap().to_owned();
    let me = "/api/v1/me";
    Credentials {
        requests: vec![
            ("disabled", Method::GET, me, Presented::Password("disabled", PASSWORD)),
            ("changed", Method::GET, me, Presented::Password("changed", PASSWORD)),
            ("removed", Method::GET, me, Presented::Password("removed", PASSWORD)),
            ("revoked", Method::GET, me, Presented::Bearer(revoked)),
            ("rotated", Method::GET, me, Presented::Bearer(rotated)),
            ("kept", Method::GET, me, Presented::Bearer(kept.clone())),
            ("session", Method::GET, me, Presented::Cookie(cookie)),
            ("token of the registry", Method::GET, "/v2/", Presented::Bearer(registry)),
            ("first-start", Method::GET, me, Presented::Bearer(admin.token().to_owned())),
        ],
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_login_of_a_backup_works_until_it_is_confirmed_and_new_logins_do() {
    let mut data = DataDir::new();
    let controller = data.serve().await;
    let admin = controller.admin.clone();
    let credentials = credentials(&admin).await;
    let anonymous = admin.without_token();
    for (what, status, said) in credentials.statuses(&anonymous).await {
        assert_eq!(status, 200, "{what}: {said}");
    }
    let backup = data.path().join("backup");
    succeeds(&data, &["backup", backup.to_str().unwrap()]).await;
    // What an administrator takes away after the backup was made.
    admin.patch("/api/v1/users/disabled", &json!({ "disabled": true })).await.expect(200);
    admin.patch("/api/v1/users/changed", &json!({ "password": "another password" })).await.expect(200);
    admin.delete("/api/v1/users/removed").await.expect(204);
    admin.delete("/api/v1/tokens/revoked").await.expect(204);
    admin.post("/api/v1/tokens/rotated/rotate", &json!({})).await.expect(200);
    admin.delete("/api/v1/users/kept/sessions").await.expect(200);
    assert!(controller.terminate().await.success());

    let said = restore(&data, &backup).await;
    assert!(said.contains("shoal token confirm NAME --offline"), "{said}");
    let controller = data.serve().await;
    for (what, status, said) in credentials.statuses(&anonymous).await {
        assert_eq!(status, 401, "{what}: {said}");
        if !["session", "token of the registry"].contains(&what) {
            assert!(said.contains("no administrator has confirmed this login"), "{what}: {said}");
        }
    }
    // A wrong password of a refused user is refused like every wrong password.
    let wrong = anonymous.request(Method::GET, "/api/v1/me").basic_auth("changed", Some("wrong password"));
    assert!(!anonymous.send(wrong).await.text().contains("confirmed"));
    assert!(
        data.logs().contains("are refused until they are confirmed"),
        "the log of the start names the commands"
    );
    assert!(controller.terminate().await.success());

    // The way back in needs no login of the past.
    let made = shoal(&data, &["token", "create", "fresh", "--role", "admin", "--offline"]).await;
    let text = String::from_utf8(made.stdout).unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let controller = data.serve().await;
    let fresh = anonymous.with_token(text.trim_end());
    let tokens = fresh.get("/api/v1/tokens").await.expect(200);
    let state = |page: &Value, list: &str, name: &str| {
        let entries = page[list].as_array().unwrap();
        entries.iter().find(|entry| entry["name"] == name).unwrap()["unconfirmed"].clone()
    };
    for (name, unconfirmed) in [("fresh", false), ("kept", true), ("revoked", true), ("first-start", true)] {
        assert_eq!(state(&tokens, "tokens", name), json!(unconfirmed), "{name}");
    }
    let users = fresh.get("/api/v1/users").await.expect(200);
    assert_eq!(state(&users, "users", "disabled"), json!(true));
    // Logins that are refused are no way in for an administrator.
    fresh.delete("/api/v1/tokens/fresh").await.refused(409, "conflict.last_admin");
    fresh.post("/api/v1/tokens/kept/confirm", &json!({})).await.expect(200);
    fresh.post("/api/v1/users/stranger/confirm", &json!({})).await.refused(404, "unknown_user");
    let works = |seen: Vec<(&'static str, u16, String)>| {
        seen.into_iter().filter(|(_, status, _)| *status == 200).map(|(what, ..)| what).collect::<Vec<_>>()
    };
    // The token that the registry issued for it is valid again with it; the session of the browser stays ended.
    assert_eq!(works(credentials.statuses(&anonymous).await), ["kept", "token of the registry"]);
    fresh.patch("/api/v1/users/changed", &json!({ "password": PASSWORD })).await.expect(200);
    assert_eq!(works(credentials.statuses(&anonymous).await), ["changed", "kept", "token of the registry"]);
    let audit = fresh.get("/api/v1/audit?action=token.confirm").await.expect(200);
    assert_eq!(audit["entries"][0]["actor"], "fresh", "{audit}");
    assert!(controller.terminate().await.success());

    // A restart is no restore.
    succeeds(&data, &["user", "confirm", "disabled", "removed", "--offline"]).await;
    let listed = succeeds(&data, &["token", "list", "--offline"]).await;
    assert!(listed.contains("unconfirmed"), "{listed}");
    let _controller = data.serve().await;
    let expected = ["disabled", "changed", "removed", "kept", "token of the registry"];
    assert_eq!(works(credentials.statuses(&anonymous).await), expected);
}
