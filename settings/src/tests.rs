//! Precedence, problems, redaction and the reference table.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;
use registry::RepositoryPattern;

use super::definition::AnySetting;
use super::table::SETTINGS;
use super::{ConfigErrors, DEFINITIONS, LogFormat, Problem, Settings, Sources, TaskIsoMode, reference};
use access::auth::AuthMode;
use secrets::SecretSource;

const HASH: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHRzYWx0c2FsdA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

fn load(
    flags: &[(&str, &str)],
    variables: &[(&str, &str)],
    file: Option<&Path>,
) -> Result<Settings, ConfigErrors> {
    let variables: BTreeMap<&str, &str> = variables.iter().copied().collect();
    Settings::load(&Sources {
        flags: flags.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect(),
        environment: &|name| variables.get(name).map(OsString::from),
        variables: variables.keys().map(|name| (*name).to_owned()).collect(),
        file: file.map(Path::to_owned),
    })
}

fn problems(flags: &[(&str, &str)], variables: &[(&str, &str)]) -> String {
    load(flags, variables, None).unwrap_err().to_string()
}

fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shoal.toml");
    std::fs::write(&path, text).unwrap();
    (dir, path)
}

fn shown(settings: &Settings, name: &str) -> (String, String) {
    let shown = settings.show().iter().find(|shown| shown.name == name).unwrap();
    (shown.value.clone(), shown.origin.to_string())
}

#[test]
fn the_defaults_are_a_valid_configuration() {
    let settings = load(&[], &[], None).unwrap();
    assert_eq!(settings.controller_http_addr.to_string(), "0.0.0.0:8080");
    assert_eq!(settings.controller_https_addr.address().unwrap().to_string(), "0.0.0.0:8443");
    assert!(!settings.controller_http_allow_remote, "API and registry are not in the clear by default");
    assert_eq!(settings.db_path, Path::new("/var/lib/shoal/provisioner.db"));
    assert_eq!(settings.registry_storage, Path::new("/var/lib/shoal/oci"));
    assert_eq!(settings.maintenance_dir(), Path::new("/var/lib/shoal/maintenance"));
    assert_eq!((settings.auth_mode, settings.auth_none_allow_remote), (AuthMode::Basic, false));
    assert_eq!((settings.task_iso_mode, settings.log_format), (TaskIsoMode::Computed, LogFormat::Auto));
    assert_eq!((settings.worker_concurrency, settings.redfish_retries), (4, 5));
    assert_eq!(settings.max_body_bytes, 8 << 20);
    assert_eq!(settings.registry_max_blob_size, 20 << 30);
    assert_eq!(settings.job_lease_ttl, Duration::from_secs(600));
    assert_eq!(settings.job_stuck_timeout, Duration::from_secs(4 * 3600));
    assert!(settings.enable_registry && !settings.metrics_anonymous);
    assert!(settings.webhook_secret.is_none() && settings.media_http_addr.is_none());
    assert!(settings.show().iter().all(|shown| shown.origin.to_string() == "default"));
}

#[test]
fn precedence_is_flag_variable_file_default() {
    let (_dir, path) = file("worker_concurrency = 1\nredfish_retries = 1\nredfish_timeout = \"11s\"\n");
    let settings = load(
        &[("WORKER_CONCURRENCY", "3")],
        &[("WORKER_CONCURRENCY", "2"), ("REDFISH_RETRIES", "2")],
        Some(&path),
    )
    .unwrap();
    assert_eq!((settings.worker_concurrency, settings.redfish_retries), (3, 2));
    assert_eq!(settings.redfish_timeout, Duration::from_secs(11));
    assert_eq!(shown(&settings, "WORKER_CONCURRENCY").1, "flag --worker-concurrency");
    assert_eq!(shown(&settings, "REDFISH_RETRIES").1, "variable REDFISH_RETRIES");
    assert_eq!(shown(&settings, "REDFISH_TIMEOUT").1, format!("{}:3 redfish_timeout", path.display()));
    assert_eq!(shown(&settings, "CLEANUP_TIMEOUT"), ("10m".to_owned(), "default".to_owned()));
}

#[test]
fn default_paths_are_below_the_storage_root() {
    let settings = load(&[("STORAGE_ROOT", "/srv/shoal/")], &[("DB_PATH", "/fast/p.db")], None).unwrap();
    assert_eq!(settings.task_iso_dir, Path::new("/srv/shoal/task-isos"));
    assert_eq!(settings.db_path, Path::new("/fast/p.db"));
}

#[test]
fn all_problems_are_reported_together_with_their_origins() {
    let (_dir, path) = file(concat!(
        "worker_concurency = 3\n",
        "enable_registry = \"maybe\"\n",
        "\n",
        "[redfish]\ntimeout = 3\n",
    ));
    let errors = load(
        &[("WORKER_CONCURRENCY", "many")],
        &[("AUTH_MODE", "jwt"), ("BASIC_USER", "root"), ("MAX_BODY_BYTES", "1KB")],
        Some(&path),
    )
    .unwrap_err();
    let text = errors.to_string();
    assert_eq!(errors.0.len(), 7, "{text}");
    let place = path.display();
    for part in [
        "7 problems in the configuration:",
        "flag --worker-concurrency: \"many\" for WORKER_CONCURRENCY cannot be used; give a whole number from 0 to 1024",
        "variable MAX_BODY_BYTES: \"1KB\" for MAX_BODY_BYTES cannot be used; give bytes, or a number with KiB",
        &format!("{place}:1 worker_concurency: there is no such setting, did you mean worker_concurrency?"),
        &format!(
            "{place}:2 enable_registry: \"maybe\" for ENABLE_REGISTRY cannot be used; give true, false, 1 or 0"
        ),
        &format!("{place}:4 redfish: there is no such setting"),
        "variable BASIC_USER: BASIC_USER has no password; set BASIC_PASS_HASH",
        "variable AUTH_MODE: AUTH_MODE=jwt needs JWT_SECRET",
    ] {
        assert!(text.contains(part), "{part}\nis not in\n{text}");
    }
}

#[test]
fn a_syntax_error_names_its_line_and_repeats_no_text() {
    let (_dir, path) = file("log_level = \"info\"\nwebhook_secret = \"canary\nredfish_retries = 1\n");
    let text = load(&[], &[], Some(&path)).unwrap_err().to_string();
    assert!(text.contains(":2: not TOML: "), "{text}");
    assert!(!text.contains("canary"), "{text}");
}

#[test]
fn a_missing_irregular_or_too_long_file_is_a_problem() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().join("missing.toml"), dir.path().to_owned(), PathBuf::from("/dev/zero")] {
        let errors = load(&[], &[], Some(&path)).unwrap_err();
        assert!(matches!(&errors.0[..], [Problem::File { .. }]), "{errors}");
    }
    let (_dir, long) = file(&"#".repeat((1 << 20) + 1));
    assert!(load(&[], &[], Some(&long)).unwrap_err().to_string().contains("longer than"));
}

#[test]
fn a_value_of_the_wrong_type_in_the_file_is_a_problem() {
    for (line, kind) in [
        ("redfish_retries = [1]", "a list"),
        ("redfish_retries = 1.5", "a number with a fraction"),
        ("redfish_retries = 0x05", "a number in another base than ten"),
        ("redfish_retries = 2026-01-01", "a date"),
        ("redfish_retries = { a = 1 }", "a table"),
    ] {
        let (_dir, path) = file(line);
        let text = load(&[], &[], Some(&path)).unwrap_err().to_string();
        assert!(text.contains(kind), "{line}: {text}");
    }
}

#[test]
fn a_variable_with_the_shoal_prefix_is_refused_unless_a_secret_refers_to_it() {
    let text = problems(&[], &[("SHOAL_DB_PATH", "/elsewhere.db")]);
    assert!(
        text.contains("variable SHOAL_DB_PATH: there is no such setting, did you mean DB_PATH?"),
        "{text}"
    );
    let variables = [("WEBHOOK_SECRET", "env:SHOAL_WEBHOOK_SECRET"), ("SHOAL_WEBHOOK_SECRET", "s3cret")];
    assert!(load(&[], &variables, None).is_ok());
}

#[test]
fn a_variable_that_looks_like_a_setting_is_refused_with_the_setting() {
    for (variable, meant) in [
        ("WORKER_CONCURENCY", "WORKER_CONCURRENCY"),
        ("WORKER_CONCURRENCYS", "WORKER_CONCURRENCY"),
        ("REDFISH_REITRES", "REDFISH_RETRIES"),
        ("SHOAL_WORKER_CONCURENCY", "WORKER_CONCURRENCY"),
        ("DBPATH", "DB_PATH"),
        ("LOG_LEVL", "LOG_LEVEL"),
        ("log_level", "LOG_LEVEL"),
        ("MASTER_KEY_FILE", "MASTER_KEY=file:PATH"),
        ("SHOAL_WEBHOOK_SECRET_FILE", "WEBHOOK_SECRET=file:PATH"),
    ] {
        let text = problems(&[], &[(variable, "x")]);
        let expected = format!("variable {variable}: there is no such setting, did you mean {meant}?");
        assert!(text.contains(&expected), "{text}");
    }
}

#[test]
fn variables_of_other_programs_are_no_settings() {
    let foreign = [
        "PATH",
        "HOME",
        "LD_PATH",
        "MANPATH",
        "RUST_LOG",
        "LOGNAME",
        "HTTP_PROXY",
        "KUBERNETES_PORT",
        "SHOAL_URL",
        "SHOAL_TOKEN",
        "SHOAL_CA_FILE",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "SHOAL_BMC_PASSWORD",
        "SHOAL_BMC_USER",
        "SHOAL_PORT",
        "SHOAL_SERVICE_HOST",
        "SHOAL_PORT_8080_TCP_ADDR",
        "DB_HOST",
        "DATABASE_URL",
        "STORAGE_CLASS",
        "SECRET_KEY",
        "NO_COLOR",
    ];
    let foreign: Vec<(&str, &str)> = foreign.into_iter().map(|name| (name, "x")).collect();
    assert_eq!(load(&[], &foreign, None).err(), None);
}

#[test]
fn an_unknown_step_is_refused_with_the_step_that_was_probably_meant() {
    let text = problems(&[], &[("STEP_TIMEOUTS", "foo=1m,webhook.wiat=2m,validate=1m")]);
    for part in
        ["variable STEP_TIMEOUTS", "no step foo, webhook.wiat (did you mean webhook.wait?)", "redfish.poll"]
    {
        assert!(text.contains(part), "{part}\nis not in\n{text}");
    }
    assert!(load(&[], &[("STEP_TIMEOUTS", "webhook.wait=90m,cleanup.eject=2m")], None).is_ok());
}

#[test]
fn a_lease_that_could_end_during_a_call_of_a_step_is_refused() {
    let shortest = super::LONGEST_STEP_CALL.as_secs() + 1;
    let given = |seconds: u64| load(&[], &[("JOB_LEASE_TTL", &format!("{seconds}s"))], None);
    assert!(given(shortest).is_ok());
    let text = given(shortest - 1).unwrap_err().to_string();
    assert!(text.contains(&format!("from {shortest}s to 1d")), "{text}");
}

#[test]
fn an_unknown_flag_is_refused_with_a_suggestion() {
    let text = problems(&[("STORAGE_ROT", "/x")], &[]);
    assert!(text.contains("did you mean STORAGE_ROOT?"), "{text}");
    assert!(!problems(&[("COLOUR", "/x")], &[]).contains("did you mean"));
}

#[test]
fn an_empty_variable_is_unset_and_an_empty_secret_is_refused() {
    let settings = load(&[], &[("MAINTENANCE_ISO_URL", ""), ("WORKER_CONCURRENCY", "")], None).unwrap();
    assert_eq!((settings.maintenance_iso_url, settings.worker_concurrency), (None, 4));
    assert!(problems(&[], &[("WEBHOOK_SECRET", "")]).contains("the secret is empty"));
}

#[test]
fn no_secret_is_shown_anywhere() {
    let (_dir, path) = file("webhook_secret = \"canary-file\"\n");
    let settings = load(
        &[],
        &[
            ("AUTH_MODE", "jwt"),
            ("JWT_SECRET", "canary-environment"),
            ("MASTER_KEY", "file:/run/master.key"),
            ("BASIC_USER", "root"),
            ("BASIC_PASS_HASH", HASH),
            ("MAINTENANCE_ISO_URL", "https://u:canary-url@192.0.2.1/m.iso?sig=canary-query"),
        ],
        Some(&path),
    )
    .unwrap();
    let text = format!("{:?}", settings.show());
    assert!(!text.contains("canary") && !text.contains("argon2id"), "{text}");
    assert_eq!(shown(&settings, "JWT_SECRET").0, "(redacted)");
    assert_eq!(shown(&settings, "MASTER_KEY").0, "file:/run/master.key");
    assert_eq!(shown(&settings, "WEBHOOK_SECRET_OLD").0, "");
    assert_eq!(shown(&settings, "MAINTENANCE_ISO_URL").0, "https://192.0.2.1/m.iso");

    let text = problems(
        &[("WEBHOOK_SECRET", "canary-flag")],
        &[("BASIC_USER", "root"), ("BASIC_PASS_HASH", "$2y$canary"), ("JWT_SECRET", "env:canary name")],
    );
    assert!(!text.contains("canary"), "{text}");
    assert!(text.contains("arguments are visible to all users"), "{text}");
    assert!(text.contains("argon2id"), "{text}");
}

#[test]
fn debug_output_of_the_settings_contains_no_secret() {
    let settings = load(&[], &[("WEBHOOK_SECRET", "canary")], None).unwrap();
    assert!(!format!("{settings:?}").contains("canary"));
    assert!(matches!(settings.webhook_secret, Some(SecretSource::Literal(_))));
}

#[test]
fn mode_none_is_refused_beyond_loopback_unless_it_is_explicitly_allowed() {
    assert!(problems(&[], &[("AUTH_MODE", "none")]).contains("makes every client that reaches 0.0.0.0:8080"));
    for address in ["127.0.0.1:8080", "[::1]:8080"] {
        let none = [("AUTH_MODE", "none"), ("CONTROLLER_HTTP_ADDR", address)];
        let text = problems(&[], &none);
        assert!(text.contains("CONTROLLER_HTTPS_ADDR=127.0.0.1:8443"), "the TLS listener counts too: {text}");
        for https in ["off", "127.0.0.1:8443"] {
            assert!(load(&[("CONTROLLER_HTTPS_ADDR", https)], &none, None).is_ok());
        }
    }
    assert!(load(&[("AUTH_NONE_ALLOW_REMOTE", "1")], &[("AUTH_MODE", "none")], None).is_ok());
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    for (variables, expected) in [
        (vec![("BASIC_PASS_HASH", HASH)], "BASIC_PASS_HASH has no user"),
        (vec![("WEBHOOK_SECRET_OLD", "old")], "accepted in addition to WEBHOOK_SECRET"),
        (
            vec![("JWT_SECRET", "file:/jwt")],
            "JWT_SECRET has no effect with AUTH_MODE=basic; set AUTH_MODE=jwt",
        ),
        (vec![("MEDIA_HTTP_ADDR", "192.0.2.1:8080")], "collides with CONTROLLER_HTTP_ADDR"),
        (
            vec![("CONTROLLER_CA_FILE", "/ca.pem"), ("CONTROLLER_PUBLIC_URL", "http://192.0.2.1")],
            "has no effect",
        ),
        (
            vec![("CONTROLLER_CA_FILE", "/ca.pem"), ("CONTROLLER_HTTPS_ADDR", "off")],
            "CONTROLLER_CA_FILE has no effect",
        ),
        (vec![("REPORT_CLIENT_CRL_FILE", "/a.crl")], "REPORT_CLIENT_CRL_FILE has no effect"),
        (vec![("TLS_CERT_FILE", "/cert.pem")], "TLS_CERT_FILE has no key"),
        (vec![("TLS_KEY_FILE", "/key.pem")], "TLS_KEY_FILE has no certificate"),
        (
            vec![("TLS_CERT_FILE", "/c.pem"), ("TLS_KEY_FILE", "/k.pem"), ("TLS_NAMES", "a.example")],
            "TLS_NAMES has no effect",
        ),
        (
            vec![("TLS_CERT_FILE", "/c.pem"), ("TLS_KEY_FILE", "/k.pem"), ("CONTROLLER_HTTPS_ADDR", "off")],
            "TLS_CERT_FILE has no effect",
        ),
        (vec![("CONTROLLER_HTTP_ADDR", "127.0.0.1:8443")], "collides with CONTROLLER_HTTP_ADDR"),
        (vec![("MEDIA_HTTPS_ADDR", ":8443")], "collides with CONTROLLER_HTTPS_ADDR"),
        (vec![("TLS_CERTFILE", "/cert.pem")], "TLS_CERT_FILE"),
        (vec![("JOB_STUCK_TIMEOUT", "10m")], "JOB_STUCK_TIMEOUT 10m ends a job"),
    ] {
        let text = problems(&[], &variables);
        assert!(text.starts_with("1 problem ") && text.contains(expected), "{text}");
    }
    let apart = [("CONTROLLER_HTTP_ADDR", "192.0.2.1:80"), ("MEDIA_HTTP_ADDR", "192.0.2.2:80")];
    assert!(load(&[], &apart, None).is_ok());
    assert!(load(&[], &[("JOB_LEASE_TTL", "151s")], None).is_ok());
}

/// Valid and invalid texts of settings.
fn samples() -> Vec<(&'static str, Vec<&'static str>, Vec<&'static str>)> {
    vec![
        (
            "CONTROLLER_HTTP_ADDR",
            vec![":80", ":0", "192.0.2.1:1", "[2001:db8::1]:8080"],
            vec!["8080", "localhost:8080", ":99999", "", ":", "192.0.2.1"],
        ),
        (
            "CONTROLLER_HTTPS_ADDR",
            vec![":8443", "off", "[2001:db8::1]:443"],
            vec!["8443", "Off", "none", "", "localhost:8443"],
        ),
        (
            "TLS_NAMES",
            vec!["shoal.example", "shoal.example, 192.0.2.1,2001:db8::1", "SHOAL.example"],
            vec!["", ",", "a b", "https://a", "a,,b", "ümlaut.example"],
        ),
        ("ENABLE_REGISTRY", vec!["true", "false", "1", "0"], vec!["yes", "TRUE", ""]),
        ("WORKER_CONCURRENCY", vec!["0", "1024"], vec!["-1", "1025", "+3", " 3", "99999999999999999999"]),
        (
            "JOB_STUCK_TIMEOUT",
            vec!["90m", "4h", "1h30m", "2d", "PT5H", "3 hours"],
            vec!["4", "-4h", "", "10s", "31d", "99999999999999999999d"],
        ),
        (
            "MAX_BODY_BYTES",
            vec!["65536", "8MiB", "8 MiB", "8388608B"],
            vec!["8MB", "8M", "1.5MiB", "-8MiB", "1GiB", "99999999999TiB", ""],
        ),
        (
            "CONTROLLER_PUBLIC_URL",
            vec!["http://192.0.2.1:8080", "https://shoal.example/", "http://[2001:db8::1]:80"],
            vec![
                "192.0.2.1:8080",
                "ftp://a",
                "http://a/b",
                "http://u@a",
                "http://a?b",
                "http://0.0.0.0:80",
                "http://",
            ],
        ),
        (
            "MAINTENANCE_ISO_URL",
            vec!["/srv/m.iso", "file:///srv/m.iso", "https://192.0.2.1/m.iso?x=1", "oci:tools/m:1"],
            vec!["m.iso", "oci:h.x:80/m:1", "oci:", "ftp://a/m.iso", "", "file://elsewhere/m.iso"],
        ),
        ("BASIC_USER", vec!["root"], vec!["", "a:b", "shoal-job", "a\nb"]),
        ("TASK_ISO_MODE", vec!["computed", "file"], vec!["files", ""]),
        ("AUTH_MODE", vec!["basic", "jwt", "none"], vec!["mtls"]),
        (
            "JWT_JWKS",
            vec!["/etc/shoal/jwks.json", "https://login.example/realms/a/certs?x=1"],
            vec![
                "",
                "jwks.json",
                "http://login.example/certs",
                "https://u:p@a/",
                "https://a/#b",
                "file:///a",
            ],
        ),
        ("JWT_ISSUER", vec!["https://login.example"], vec!["", "a\nb"]),
        (
            "JWT_ROLES",
            vec!["a=admin", "ops = operator, CN=x=viewer"],
            vec!["", "a", "a=root", "a=report-only", "a=admin,"],
        ),
        ("LOG_FORMAT", vec!["auto", "text", "json"], vec!["pretty"]),
        (
            "LOG_LEVEL",
            vec!["info", "warn,engine=debug", "off", "[step{job_id}]=trace"],
            vec!["", "shoal=loud", "a=b=c", "\u{17e0}=", "warning", "info, a=debug"],
        ),
        (
            "STEP_TIMEOUTS",
            vec!["webhook.wait=90m", "a=1s, b=30d"],
            vec!["", "a", "a=", "=1s", "a=0s", "a=31d", "a=1s,"],
        ),
        ("STORAGE_ROOT", vec!["/srv", "relative"], vec!["", "a\0b"]),
        (
            "REGISTRY_IMMUTABLE_TAGS",
            vec!["os-images/**:v*", "a:b, c/*:*"],
            vec!["", "v*", "a:b,", "A:b", "a:b c:d"],
        ),
        ("REGISTRY_SPARSE_IMAGES", vec!["mirror/**", "a, b/*"], vec!["", "a,", "A", "a b", "a:b", "***"]),
        (
            "REGISTRY_QUOTAS",
            vec!["os-images/**=500GiB", "a=1, b/** = 2 MiB"],
            vec!["", "a", "a=", "=1", "a=1GB", "a=-1", "A=1"],
        ),
        (
            "REGISTRY_RETENTION",
            vec!["n/**:* newest=5 younger=14d", "a:b newest=0,c:d younger=1h"],
            vec![
                "",
                "a:b",
                "a newest=1",
                "a:b newest=x",
                "a:b newest=1 newest=2",
                "a:b oldest=1",
                "a:b younger=5",
            ],
        ),
    ]
}

fn setting(name: &str) -> &'static dyn AnySetting {
    SETTINGS.into_iter().find(|setting| setting.definition().name == name).unwrap()
}

#[test]
fn each_kind_accepts_valid_texts_only() {
    for (name, good, bad) in samples() {
        for text in good {
            assert!(setting(name).check(text).is_ok(), "{name}={text:?} must be accepted");
        }
        for text in bad {
            let error = setting(name).check(text).expect_err(&format!("{name}={text:?} must be refused"));
            assert!(error.to_string().starts_with("give "), "{name}: {error}");
        }
    }
}

#[test]
fn a_base_url_is_stored_without_its_final_slash() {
    let settings = load(&[], &[("MEDIA_BASE_URL", "http://192.0.2.1:8080/")], None).unwrap();
    assert_eq!(settings.media_base_url.as_deref(), Some("http://192.0.2.1:8080"));
}

#[test]
fn the_nats_server_has_a_scheme_no_credentials_and_an_authority_for_tls() {
    for (url, why) in [
        ("http://nats.example", "give nats://HOST[:PORT], or tls://HOST[:PORT] for TLS"),
        ("nats://shoal:s3cr3t@nats.example", "give a URL without user and password"),
        ("tls://nats.example", "set CONTROLLER_CA_FILE"),
    ] {
        let text = problems(&[], &[("EVENTS", url)]);
        assert!(text.contains(why) && !text.contains("s3cr3t"), "{url}: {text}");
    }
    let text = problems(&[], &[("EVENTS_CREDENTIALS_FILE", "/etc/shoal/nats.creds")]);
    assert!(text.contains("EVENTS_CREDENTIALS_FILE has no effect without EVENTS"), "{text}");
    let (_dir, path) = file("shoal:s3cr3t\n");
    let check = |url| {
        let given = [("EVENTS", url), ("EVENTS_CREDENTIALS_FILE", path.to_str().unwrap())];
        load(&[], &given, None).unwrap().check_references(&|_| None).map_err(|errors| errors.to_string())
    };
    assert_eq!(check("nats://127.0.0.1"), Ok(()));
    let text = check("nats://nats.example").unwrap_err();
    assert!(
        text.contains("cross the network in the clear; give EVENTS as tls://") && !text.contains("s3cr3t"),
        "{text}"
    );
    std::fs::write(&path, "two\nlines\n").unwrap();
    assert!(check("nats://127.0.0.1").unwrap_err().contains("neither a .creds file nor one line"));
}

#[test]
fn names_flags_and_keys_are_unique_and_all_choices_parse() {
    let mut names: Vec<String> = DEFINITIONS.iter().flat_map(|row| [row.flag(), row.key()]).collect();
    names.extend(DEFINITIONS.iter().filter_map(|row| row.flag_alias.map(str::to_owned)));
    names.push("config".to_owned());
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len() + single_words(), count, "a name is used twice");
    for row in DEFINITIONS.iter() {
        if let super::SettingKind::Choice(words) = row.kind {
            assert!(words.iter().all(|word| setting(row.name).check(word).is_ok()), "{}", row.name);
        }
        assert!(row.doc.ends_with('.'), "{}: the description ends with a sentence", row.name);
    }
}

/// Names without an underscore have the same flag and key.
fn single_words() -> usize {
    DEFINITIONS.iter().filter(|row| !row.name.contains('_')).count()
}

#[test]
fn keys_of_an_issuer_need_its_name_and_an_audience() {
    let both = [("JWT_ISSUER", "https://login.example"), ("JWT_AUDIENCE", "shoal")];
    let authority = ("JWT_CA_FILE", "/etc/shoal/ca.pem");
    for (key, authority) in [
        (("JWT_JWKS", "https://login.example/certs"), &[authority][..]),
        (("JWT_PUBLIC_KEY_FILE", "/etc/shoal/key.pem"), &[]),
    ] {
        let with = |more: &[(&'static str, &'static str)]| {
            load(&[], &[&[("AUTH_MODE", "jwt"), key], authority, more].concat(), None)
        };
        with(&both).unwrap();
        for missing in [&both[..1], &both[1..], &[]] {
            let text = with(missing).unwrap_err().to_string();
            assert!(text.contains(&format!("{} needs JWT_ISSUER and JWT_AUDIENCE", key.0)), "{text}");
        }
    }
}

#[test]
fn a_key_set_behind_a_url_needs_an_authority_and_only_there_it_has_one() {
    let base = [("AUTH_MODE", "jwt"), ("JWT_ISSUER", "https://login.example"), ("JWT_AUDIENCE", "shoal")];
    let url = ("JWT_JWKS", "https://login.example/certs");
    let with = |more: &[(&'static str, &'static str)]| load(&[], &[&base, more].concat(), None);
    for authority in ["JWT_CA_FILE", "CONTROLLER_CA_FILE"] {
        with(&[url, (authority, "/etc/shoal/ca.pem")]).unwrap();
    }
    let text = with(&[url]).unwrap_err().to_string();
    assert!(text.contains("set JWT_CA_FILE") && text.contains("ca-certificates.crt"), "{text}");
    let text = with(&[("JWT_JWKS", "/etc/jwks"), ("JWT_CA_FILE", "/ca.pem")]).unwrap_err().to_string();
    assert!(text.contains("JWT_CA_FILE has no effect"), "{text}");
}

#[test]
fn references_of_settings_are_checked_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let not_pem = dir.path().join("ca.pem");
    std::fs::write(&not_pem, "nothing").unwrap();
    let not_pem = not_pem.to_str().unwrap();
    let variables = [
        ("AUTH_MODE", "jwt"),
        ("JWT_SECRET", "short"),
        ("MASTER_KEY", "env:ELSEWHERE"),
        ("JWT_PUBLIC_KEY_FILE", not_pem),
        ("JWT_JWKS", not_pem),
        ("JWT_ISSUER", "https://login.example"),
        ("JWT_AUDIENCE", "shoal"),
        ("WEBHOOK_SECRET", "file:/nowhere/secret"),
        ("REDFISH_CA_FILE", not_pem),
    ];
    let settings = load(&[], &variables, None).unwrap();
    let errors = settings.check_references(&|_| None).unwrap_err();
    let text = errors.to_string();
    assert_eq!(errors.0.len(), 6, "{text}");
    for part in [
        "variable JWT_SECRET: JWT_SECRET: ",
        "variable MASTER_KEY: MASTER_KEY: cannot read env:ELSEWHERE",
        "variable WEBHOOK_SECRET: WEBHOOK_SECRET: cannot read the secret file",
        "variable REDFISH_CA_FILE: REDFISH_CA_FILE: ",
        "variable JWT_PUBLIC_KEY_FILE: JWT_PUBLIC_KEY_FILE: ",
        "variable JWT_JWKS: JWT_JWKS: ",
    ] {
        assert!(text.contains(part), "{part}\nis not in\n{text}");
    }
    assert!(!text.contains("short"), "{text}");
    assert!(load(&[], &[], None).unwrap().check_references(&|_| None).is_ok());
}

#[test]
fn a_wrong_value_hides_no_wrong_file_and_problems_are_in_the_order_of_the_lines() {
    let (_dir, path) = file(concat!(
        "redfish_ca_file = \"/nowhere/ca.pem\"\n",
        "worker_concurrency = \"many\"\n",
        "webhook_secret = \"file:/nowhere/secret\"\n",
        "enable_registri = true\n",
    ));
    let sources = |file: Option<PathBuf>| Sources {
        flags: Vec::new(),
        environment: &|_| None,
        variables: Vec::new(),
        file,
    };
    let errors = Settings::load_and_check(&sources(Some(path)), &|_| None).unwrap_err();
    let lines: Vec<usize> = errors.0.iter().map(Problem::line).collect();
    assert_eq!(lines, [1, 2, 3, 4], "{errors}");
    assert!(Settings::load_and_check(&sources(None), &|_| None).is_ok());
}

#[test]
fn the_reference_is_the_golden_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/config-reference.txt");
    let text = reference();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap_or_default();
    assert!(golden == text, "the reference changed; review it and run with UPDATE_GOLDEN=1\n{text}");
}

proptest! {
    #[test]
    fn checking_any_text_never_panics(text in ".{0,64}") {
        for setting in SETTINGS {
            let _ = setting.check(&text);
        }
    }

    #[test]
    fn checking_any_log_filter_never_panics(text in "[a-z0-9=,:/\\[\\]{}\" .*+(?-]{0,40}") {
        let _ = setting("LOG_LEVEL").check(&text);
    }

    #[test]
    fn formatted_sizes_and_durations_parse_to_their_value(bytes in 65_536_u64..(1 << 28), seconds in 60_u64..2_592_000) {
        prop_assert!(setting("MAX_BODY_BYTES").check(&super::values::size_text(bytes)).is_ok());
        let text = super::duration_text(Duration::from_secs(seconds));
        let settings = load(&[("CLEANUP_TIMEOUT", &text)], &[], None);
        prop_assert_eq!(settings.is_ok(), seconds <= 86_400);
        if let Ok(settings) = settings {
            prop_assert_eq!(settings.cleanup_timeout, Duration::from_secs(seconds));
        }
    }
}

#[test]
fn registry_lists_parse_to_registry_types() {
    let variables = [
        ("REGISTRY_QUOTAS", "os-images/**=2GiB"),
        ("REGISTRY_RETENTION", "nightly/**:* newest=5 younger=14d"),
        ("REGISTRY_IMMUTABLE_TAGS", "os-images/**:v*, tools/*:release-*"),
        ("REGISTRY_SPARSE_IMAGES", "mirror/**, tools/thin"),
    ];
    let settings = load(&[], &variables, None).unwrap();
    assert_eq!(settings.registry_quotas[0].bytes, 2 << 30);
    let rule = &settings.registry_retention[0];
    assert_eq!((rule.newest, rule.younger_than), (5, Duration::from_secs(14 * 86_400)));
    let immutable: Vec<String> = settings.registry_immutable_tags.iter().map(ToString::to_string).collect();
    assert_eq!(immutable, ["os-images/**:v*", "tools/*:release-*"]);
    let sparse: Vec<&str> = settings.registry_sparse_images.iter().map(RepositoryPattern::as_str).collect();
    assert_eq!(sparse, ["mirror/**", "tools/thin"]);
    let nothing = load(&[], &[], None).unwrap();
    assert!(nothing.registry_quotas.is_empty() && nothing.registry_retention.is_empty());
    assert!(nothing.registry_sparse_images.is_empty(), "by default an image needs all its blobs");
    assert!(
        !nothing.registry_anonymous_read && !nothing.registry_anonymous_write && !nothing.registry_read_only
    );
}

#[test]
fn each_malformed_access_rule_is_reported_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("access");
    std::fs::write(&path, "# who\n\nos/** user:ann read # one\nos/** ann read\n** anonymous fly\n").unwrap();
    let variables =
        [("REGISTRY_ACCESS_FILE", path.to_str().unwrap()), ("REGISTRY_HTPASSWD_FILE", "/nowhere/htpasswd")];
    let errors = load(&[], &variables, None).unwrap().check_references(&|_| None).unwrap_err();
    let text = errors.to_string();
    assert_eq!(errors.0.len(), 3, "{text}");
    for part in ["access:4: \"os/** ann read\" is not a rule", "access:5: ", "cannot read /nowhere/htpasswd"]
    {
        assert!(text.contains(part), "{part}\nis not in\n{text}");
    }
    std::fs::write(&path, "os/** user:ann read # one\n").unwrap();
    assert_eq!(super::read_rules(&path).unwrap().len(), 1);
    assert!(super::read_rules(dir.path()).unwrap_err()[0].contains("not a file"));
}
