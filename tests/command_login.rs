//! The login of the command line: a token, or name and password of a user.

use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::kit::{Scene, binary, soon};

const PASSWORD: &str = "correct horse battery staple";

/// A controller with the operator `bea`, who has a password.
async fn with_bea() -> Scene {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    let new = json!({ "name": "bea", "role": "operator", "password": PASSWORD });
    scene.admin.post("/api/v1/users", &new).await.expect(201);
    scene
}

/// Runs the program without a terminal's user: only these variables are set.
async fn run(scene: &Scene, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = binary(arguments);
    command.env("SHOAL_URL", &scene.admin.base).envs(variables.iter().copied());
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// Who the controller says the client is; else what the program said.
async fn who(scene: &Scene, variables: &[(&str, &str)], arguments: &[&str]) -> Result<String, String> {
    let arguments = [&["whoami", "--json"], arguments].concat();
    let ran = run(scene, variables, &arguments).await;
    if !ran.status.success() {
        return Err(String::from_utf8(ran.stderr).unwrap());
    }
    let me: Value = serde_json::from_slice(&ran.stdout).unwrap();
    Ok(format!("{} by {} as {}", me["name"], me["login"], me["role"]).replace('"', ""))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_logs_in_with_name_and_password() {
    let scene = with_bea().await;
    let file = scene.folder.path().join("bea.password");
    std::fs::write(&file, format!("{PASSWORD}\n")).unwrap();
    let file = format!("file:{}", file.display());
    let bea = Ok("bea by password as operator".to_owned());
    let with_file = ["--user", "bea", "--user-password", &file];
    assert_eq!(who(&scene, &[], &with_file).await, bea);
    let variables = [("SHOAL_USER", "bea"), ("SHOAL_USER_PASSWORD", PASSWORD)];
    assert_eq!(who(&scene, &variables, &[]).await, bea);
    let referenced = [("SHOAL_USER_PASSWORD", "env:OTHER"), ("OTHER", PASSWORD)];
    assert_eq!(who(&scene, &referenced, &["--user", "bea"]).await, bea);
    // An option replaces the variable of every day; two logins of one kind are a mistake.
    let token = ("SHOAL_TOKEN", scene.admin.token());
    assert_eq!(who(&scene, &[token], &with_file).await, bea);
    let admin = who(&scene, &[token], &[]).await.unwrap();
    assert!(admin.ends_with("by token as admin"), "{admin}");
    assert_eq!(who(&scene, &variables, &["--token", scene.admin.token()]).await.unwrap(), admin);
    let two = who(&scene, &[token, variables[0]], &[]).await.unwrap_err();
    assert!(two.contains("SHOAL_TOKEN and SHOAL_USER are two logins"), "{two}");
    // What a login is not.
    let literal = who(&scene, &[], &["--user", "bea", "--user-password", PASSWORD]).await.unwrap_err();
    assert!(literal.contains("can be listed") && !literal.contains(PASSWORD), "{literal}");
    let wrong = [("SHOAL_USER_PASSWORD", "a wrong password")];
    let refused = who(&scene, &wrong, &["--user", "bea"]).await.unwrap_err();
    assert!(refused.contains("unauthorized") && !refused.contains("a wrong password"), "{refused}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_changes_the_own_password() {
    const OTHER: &str = "another password of bea";
    let scene = with_bea().await;
    let new = scene.folder.path().join("new.password");
    std::fs::write(&new, OTHER).unwrap();
    let change = ["user", "passwd", "--user", "bea", "--password-file", new.to_str().unwrap()];
    let with = |password| [("SHOAL_USER_PASSWORD", password)];
    let changed = run(&scene, &with(PASSWORD), &change).await;
    let said = String::from_utf8(changed.stderr).unwrap();
    assert!(changed.status.success() && said.contains("the password is changed"), "{said}");
    let former = who(&scene, &with(PASSWORD), &["--user", "bea"]).await;
    assert!(former.unwrap_err().contains("401"));
    assert_eq!(who(&scene, &with(OTHER), &["--user", "bea"]).await.unwrap(), "bea by password as operator");
    // A token has no password of its own.
    let token = [("SHOAL_TOKEN", scene.admin.token())];
    let refused = run(&scene, &token, &["user", "passwd", "--password-file", new.to_str().unwrap()]).await;
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("password"), "{said}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs script of util-linux"]
async fn the_password_is_asked_for_on_a_terminal_and_not_shown() {
    let scene = with_bea().await;
    for (keys, end) in [
        (format!("{PASSWORD}x\u{7f}\r"), "bea"),
        ("a wrong password\r".to_owned(), "401"),
        ("correct\u{3}".to_owned(), "interrupted"),
    ] {
        let line = format!("{} whoami --user bea; stty -a", env!("CARGO_BIN_EXE_shoal"));
        let mut command = Command::new("script");
        command
            .args(["-qec", &line, "/dev/null"])
            .env_clear()
            .envs([("PATH", "/usr/bin:/bin"), ("TERM", "dumb"), ("SHELL", "/bin/sh")])
            .env("SHOAL_URL", &scene.admin.base)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let ran = tokio::task::spawn_blocking(move || {
            let mut child = command.spawn().expect("script of util-linux is installed");
            let (mut input, mut out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
            let (mut shown, mut byte) = (Vec::new(), [0]);
            // Keys that are typed before the question are discarded.
            while !shown.ends_with(b"Password of bea: ") {
                assert_eq!(out.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&shown));
                shown.push(byte[0]);
            }
            input.write_all(keys.as_bytes()).unwrap();
            out.read_to_end(&mut shown).unwrap();
            child.wait().unwrap();
            drop(input);
            String::from_utf8(shown).unwrap()
        });
        let shown = soon("the end of the command", ran).await.unwrap();
        assert!(shown.contains(end), "{end}: {shown}");
        assert!(!shown.contains("correct") && !shown.contains("wrong"), "the password is shown: {shown}");
        // The settings of the terminal are as before.
        for setting in ["icanon ", "echo ", "isig "] {
            assert!(shown.contains(setting) && !shown.contains(&format!("-{setting}")), "{setting}: {shown}");
        }
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs script of util-linux"]
async fn a_terminated_question_restores_the_terminal() {
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::HUP] {
        let program = env!("CARGO_BIN_EXE_shoal");
        let line = format!("sh -c 'echo pid $$; exec {program} whoami --user bea'; echo ended $?; stty -a");
        let mut command = Command::new("script");
        command
            .args(["-qec", &line, "/dev/null"])
            .env_clear()
            .envs([("PATH", "/usr/bin:/bin"), ("TERM", "dumb"), ("SHELL", "/bin/sh")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let ran = tokio::task::spawn_blocking(move || {
            let mut child = command.spawn().expect("script of util-linux is installed");
            let (input, mut out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
            let (mut shown, mut byte) = (Vec::new(), [0]);
            while !shown.ends_with(b"Password of bea: ") {
                assert_eq!(out.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&shown));
                shown.push(byte[0]);
            }
            let text = String::from_utf8_lossy(&shown).into_owned();
            let pid = text.split_whitespace().skip_while(|word| *word != "pid").nth(1).unwrap();
            let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
            rustix::process::kill_process(pid, signal).unwrap();
            out.read_to_end(&mut shown).unwrap();
            child.wait().unwrap();
            drop(input);
            String::from_utf8(shown).unwrap()
        });
        let shown = soon("the end of the command", ran).await.unwrap();
        assert!(shown.contains(&format!("ended {}", 128 + signal.as_raw())), "{shown}");
        for setting in ["icanon ", "echo ", "isig "] {
            assert!(shown.contains(setting) && !shown.contains(&format!("-{setting}")), "{setting}: {shown}");
        }
    }
}
