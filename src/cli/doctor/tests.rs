//! The command, by its output and exit code.

use std::os::unix::fs::PermissionsExt as _;

use super::super::tests::shoal;

#[test]
fn a_good_host_ends_with_0_and_a_bad_one_with_1_and_the_next_step() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700)).unwrap();
    let image = folder.path().join("boot.iso");
    std::fs::write(&image, "x").unwrap();
    let listening = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let held = listening.local_addr().unwrap().to_string();
    let arguments = |http: &str| {
        let (data, image) = (data.display().to_string(), image.display().to_string());
        ["doctor", "--json", "--data", &data, "--maintenance-iso-url", &image, "--controller-http-addr", http]
            .map(str::to_owned)
            .into_iter()
            .chain(["--controller-https-addr".to_owned(), "off".to_owned()])
            .collect::<Vec<String>>()
    };
    let run = |http: &str| {
        let arguments = arguments(http);
        shoal(&arguments.iter().map(String::as_str).collect::<Vec<&str>>())
    };
    let good = run("127.0.0.1:0").json();
    let failed: Vec<&serde_json::Value> =
        good["checks"].as_array().unwrap().iter().filter(|check| check["state"] == "fail").collect();
    // The disk of a test may be slow or full; everything else is as it must be.
    assert!(failed.iter().all(|check| check["check"].as_str().unwrap().starts_with("disk")), "{good:#}");

    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o750)).unwrap();
    let bad = run(&held).ends_with(1).json();
    let of =
        |name: &str| bad["checks"].as_array().unwrap().iter().find(|check| check["check"] == name).unwrap();
    assert!(of("data")["what_to_do"].as_str().unwrap().starts_with("chmod 0700"), "{bad:#}");
    assert!(of("port")["what"].as_str().unwrap().contains("another program"), "{bad:#}");
    for check in bad["checks"].as_array().unwrap() {
        assert!(!check["why"].as_str().unwrap().is_empty(), "{check}");
        assert_eq!(check["state"] == "pass", check["what_to_do"] == "", "{check}");
    }
}
