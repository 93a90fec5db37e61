//! The program as an operator uses it, against a controller with simulated servers: short ids, forms of output, lists that
//! follow. The JSON of the commands is in `json_samples`.

use std::process::Output;

use serde_json::{Value, json};

use crate::kit::{Client, Scene, binary, healthy, silent, soon};

/// Runs the program as a client.
pub(crate) async fn shoal(client: &Client, arguments: &[&str]) -> Output {
    let mut command = binary(arguments);
    command.env("SHOAL_URL", &client.base).env("SHOAL_TOKEN", client.token());
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

async fn text(client: &Client, arguments: &[&str]) -> String {
    let ran = shoal(client, arguments).await;
    assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

/// A controller with a batch of two jobs, of which both have ended.
async fn scene() -> (Scene, String, String) {
    let scene = Scene::start(vec![healthy("CLI-1"), healthy("CLI-2")]).await;
    let rows = json!([{"server_serial": "CLI-1"}, {"server_serial": "CLI-2"}]);
    let order = json!({"recipe": crate::kit::recipe(), "rows": rows});
    let batch = scene.admin.post("/api/v1/batches", &order).await.expect(202);
    let job = |row: usize| batch["rows"][row]["job_id"].as_str().unwrap().to_owned();
    for row in 0..2 {
        assert_eq!(scene.admin.complete(&job(row)).await["outcome"], "succeeded");
    }
    let id = batch["batch_id"].as_str().unwrap().to_owned();
    (scene, job(0), id)
}

#[tokio::test(flavor = "multi_thread")]
async fn short_ids_of_a_list_are_taken_by_every_command() {
    let (scene, job, batch) = scene().await;
    let list = text(&scene.admin, &["job", "list"]).await;
    let short: Vec<&str> = list.lines().skip(1).map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(short.len(), 2, "{list}");
    assert!(short.iter().all(|id| (8..36).contains(&id.len())), "{list}");
    let names = text(&scene.admin, &["job", "list", "-o", "name"]).await;
    for (short, whole) in short.iter().zip(names.lines()) {
        assert!(whole.starts_with(short));
        for command in ["show", "explain", "watch"] {
            let shown = text(&scene.admin, &["job", command, short, "-o", "json"]).await;
            assert!(shown.contains(whole), "{command} {short}: {shown}");
        }
    }
    // Jobs of one batch share their first characters.
    let ran = shoal(&scene.admin, &["job", "cancel", &job[..8]]).await;
    assert_eq!(ran.status.code(), Some(2));
    let said = String::from_utf8(ran.stderr).unwrap();
    assert!(said.contains("2 jobs have an id that begins with") && said.contains(short[0]), "{said}");
    assert!(text(&scene.admin, &["batch", "show", &batch[..13]]).await.contains(&batch));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_on_a_pipe_appends_what_changes_driven_by_events() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    let scene = Scene::start(vec![healthy("CLI-1")]).await;
    // The job begins only after the list has shown it, however late the program starts.
    scene.admin.post("/api/v1/drain", &json!({})).await.expect(202);
    let job = scene.admin.create_job("CLI-1").await;
    let mut command = binary(&["job", "list", "--watch", "-o", "json"]);
    command
        .env("SHOAL_URL", &scene.admin.base)
        .env("SHOAL_TOKEN", scene.admin.token())
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let out = child.stdout.take().unwrap();
    let (shown, first) = tokio::sync::oneshot::channel();
    let rows = tokio::task::spawn_blocking(move || {
        let (mut rows, mut shown): (Vec<Value>, _) = (Vec::new(), Some(shown));
        for line in BufReader::new(out).lines() {
            rows.push(serde_json::from_str(&line.unwrap()).unwrap());
            if let Some(shown) = shown.take() {
                shown.send(()).unwrap();
            }
            if rows.last().unwrap()["status"] == "complete" {
                break;
            }
        }
        rows
    });
    soon("the row of the job that waits", first).await.unwrap();
    scene.admin.delete("/api/v1/drain").await.expect(200);
    let rows = soon("the row of the complete job", rows).await.unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(rows.iter().all(|row| row["job_id"] == json!(job)), "{rows:#?}");
    // The job is read again at its events; a busy machine may see several of its states as one.
    assert!(rows.len() > 1 && rows[0]["status"] == "queued", "{rows:#?}");
    assert_eq!(rows.last().unwrap()["outcome"], "succeeded");
    scene.end().await;
}

/// Runs a command line of the program on a terminal of a size, and returns what the terminal received. `keys` are typed.
async fn on_a_terminal(client: &Client, size: (u16, u16), arguments: &[&str], keys: &'static str) -> String {
    use std::io::Write;
    use std::process::{Command, Stdio};

    let (columns, rows) = size;
    let program = env!("CARGO_BIN_EXE_shoal");
    let line = format!("stty cols {columns} rows {rows}; {program} {}", arguments.join(" "));
    let mut command = Command::new("script");
    command
        .args(["-qec", &line, "/dev/null"])
        .env_clear()
        .envs([("PATH", "/usr/bin:/bin"), ("TERM", "xterm"), ("LANG", "C.UTF-8"), ("SHELL", "/bin/sh")])
        .envs([("SHOAL_URL", client.base.as_str()), ("SHOAL_TOKEN", client.token())])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let ran = tokio::task::spawn_blocking(move || {
        let mut child = command.spawn().expect("script of util-linux is installed");
        let mut input = child.stdin.take().unwrap();
        input.write_all(keys.as_bytes()).unwrap();
        // The end of the input would end the terminal before the command has ended.
        let output = child.wait_with_output().unwrap();
        drop(input);
        output
    });
    let ran = soon("the end of the command", ran).await.unwrap();
    String::from_utf8(ran.stdout).unwrap()
}

/// What a terminal shows without colours.
fn bare(text: &str) -> String {
    let mut bare = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('\u{1b}') {
        bare.push_str(before);
        let end = behind
            .find(|character: char| character.is_ascii_alphabetic())
            .map_or(behind.len(), |end| end + 1);
        rest = &behind[end..];
    }
    bare + rest
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs script of util-linux"]
async fn a_real_terminal_receives_colours_and_lines_that_fit() {
    let (scene, job, _) = scene().await;
    for columns in [40, 80, 200] {
        let shown = on_a_terminal(&scene.admin, (columns, 24), &["job", "list"], "").await;
        assert!(shown.contains("\u{1b}[32msucceeded\u{1b}[0m") || columns == 40, "{shown:?}");
        let lines: Vec<String> = bare(&shown).lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(
            lines.iter().all(|line| line.chars().count() <= usize::from(columns)),
            "{columns}: {lines:?}"
        );
    }
    let watched = on_a_terminal(&scene.admin, (80, 40), &["job", "watch", &job], "").await;
    assert!(watched.contains("\u{1b}[J") && bare(&watched).contains("✓"), "{watched:?}");
    scene.end().await;
}

/// A controller that knows what `shoal top` reads, and nothing else.
fn controller_with_an_overview() -> String {
    use std::io::{BufRead, BufReader, Write};

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // The thread ends with the tests.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let first = lines.next().unwrap_or_default();
            lines.find(String::is_empty);
            let path = first.split(' ').nth(1).unwrap_or_default();
            let (status, body) = match path.split('?').next().unwrap_or_default() {
                "/api/v1/overview" => {
                    let hold = json!({"jobs": 1, "class": "operator", "detail": "the rack is being moved",
                                      "since": "2026-01-02T08:00:00.000Z"});
                    (
                        "200 OK",
                        json!({"at": "2026-01-02T10:00:00.000Z", "servers": 2, "last_seq": 7, "holds": [hold]}),
                    )
                }
                "/readyz" => (
                    "503 Service Unavailable",
                    json!({"status": "not ready", "checks": {"disk": {"ok": false}}}),
                ),
                "/api/v1/events" if !path.contains("latest") => ("200 OK", json!({"events": [], "next": 7})),
                _ => ("404 Not Found", json!({"error": "not_found", "message": "there is no such path"})),
            };
            let body = body.to_string();
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let _closed = stream.write_all((head + &body).as_bytes());
        }
    });
    url
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs script of util-linux"]
async fn top_takes_the_whole_terminal_and_gives_it_back_at_q() {
    let client = Client::anonymous(controller_with_an_overview()).with_token("shoal_token");
    let shown = on_a_terminal(&client, (80, 24), &["top"], "q").await;
    let (_, rest) =
        shown.split_once("\u{1b}[?1049h").unwrap_or_else(|| panic!("no alternate screen: {shown:?}"));
    let (page, _) = rest.split_once("\u{1b}[?25h\u{1b}[?1049l").expect("the first screen again");
    let page = bare(page);
    assert!(page.contains("NEEDS A PERSON") && page.contains("the rack is being moved"), "{page}");
    assert!(page.lines().all(|line| line.trim_end().chars().count() <= 80), "{page}");
    let once = text(&client, &["top"]).await;
    assert!(once.starts_with("shoal  10:00:00 UTC") && !once.contains('\u{1b}'), "{once}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_of_a_filter_is_repeated_with_its_key() {
    let scene = Scene::start(["KEY-1", "KEY-2"].map(silent).to_vec()).await;
    for serial in ["KEY-1", "KEY-2"] {
        let id = scene.admin.create_job(serial).await;
        scene.admin.awaits_report(&id).await;
        scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await;
        scene.complete_skipping(&id).await;
    }
    let retry = ["job", "retry", "--serial-glob", "KEY-*", "--yes", "-o", "json", "--idempotency-key"];
    let with = async |key: &str| shoal(&scene.admin, &[&retry[..], &[key]].concat()).await;
    let batch = |ran: Output| {
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        serde_json::from_slice::<Value>(&ran.stdout).unwrap()
    };
    let created = batch(with("once").await);
    assert_eq!(created["accepted"], 2, "{created}");
    // The response was lost; the jobs that the request repeated are no longer the newest of their servers.
    let again = batch(with("once").await);
    assert_eq!((&again["batch_id"], &again["accepted"]), (&created["batch_id"], &json!(2)), "{again}");
    let other = with("another").await;
    assert!(String::from_utf8_lossy(&other.stderr).contains("the filter selects no job"));
    scene.end().await;
}
