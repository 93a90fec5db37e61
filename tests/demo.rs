//! The command `shoal demo`.

use std::process::Output;

use serde_json::{Value, json};

use crate::kit::binary;

async fn demo(arguments: &'static [&'static str]) -> Output {
    tokio::task::spawn_blocking(move || binary(arguments).output().unwrap()).await.unwrap()
}

fn said(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_installs_three_servers_and_prints_json() {
    let output = demo(&["demo", "--json"]).await;
    assert!(output.status.success(), "{}", said(&output));
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = lines.last().unwrap();
    assert_eq!(last["as_expected"], json!(true));
    let results = last["results"].as_array().unwrap();
    assert_eq!(results.len(), 3);
    assert!(results.iter().all(|result| result["outcome"] == "succeeded"), "{last:#}");
    let count = |kind: &str| lines.iter().filter(|line| line["event"]["type"] == kind).count();
    assert_eq!((count("job.created"), count("run.ended")), (3, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deliberate_failure_of_the_demo_counts_as_expected() {
    let output = demo(&["demo", "--fail-one", "--servers", "2"]).await;
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("2 of 2 jobs ended as expected"), "{text}");
    assert!(text.contains("bootloader-linux.service"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_installs_firmware_and_explains_the_bmc_that_lies() {
    let output = demo(&["demo", "--firmware", "--json"]).await;
    assert!(output.status.success(), "{}", said(&output));
    let lines = String::from_utf8(output.stdout).unwrap();
    let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!(last["as_expected"], json!(true));
    let outcomes: Vec<&str> = last["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|result| result["outcome"].as_str().unwrap())
        .collect();
    assert_eq!(outcomes, ["succeeded", "succeeded", "succeeded", "failed"]);
    let servers = |index: usize| last["results"][index]["server_serial"].as_str().unwrap();
    assert_eq!([0, 1, 2, 3].map(servers), ["DELL-1", "HPE-1", "LENOVO-1", "SMC-1"], "one of each vendor");
    let machine = last["results"][0]["machine"].as_str().unwrap();
    assert!(machine.contains("its BMC restarted in the middle"), "{machine}");
    let lie = &last["results"][3];
    assert_eq!(lie["failure"]["class"], "version_unchanged");
    let explained = lie["machine"].as_str().unwrap();
    assert!(
        explained.contains("is not installed: the BMC") && explained.contains("What to do:"),
        "{explained}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_of_a_virtual_machine_says_which_files_it_needs_and_how_to_make_them() {
    // A folder without packages: those of the working directory are taken by themselves.
    let empty = tempfile::tempdir().unwrap();
    let mut command = binary(&["demo", "--vm"]);
    command.current_dir(empty.path());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("missing: the folder packages"), "{text}");
    for needed in ["shoal maintenance fetch packages", "cargo static-agent", "shoal maintenance build"] {
        assert!(text.contains(needed), "{needed}: {text}");
    }
}
