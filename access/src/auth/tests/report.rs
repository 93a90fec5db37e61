//! Authentication of installation reports.

use super::*;
use secrets::token_hash;

fn secrets(current: Option<&str>, previous: Option<&str>) -> ReportSecrets {
    let secret = |text: Option<&str>| text.map(SecretString::from);
    ReportSecrets::new(secret(current).as_ref(), secret(previous).as_ref())
}

#[test]
fn the_token_of_the_job_takes_precedence_over_the_shared_secret() {
    let hash = token_hash("of the job");
    let verify =
        |presented| verify_report_secret(Some(presented), Some(&hash), &secrets(Some("of the job"), None));
    assert_eq!(verify("of the job"), ReportAuth::JobToken);
}

#[test]
fn the_current_and_the_previous_shared_secret_are_accepted() {
    let hash = token_hash("of the job");
    let secrets = secrets(Some("new"), Some("old"));
    for presented in ["new", "old"] {
        assert_eq!(verify_report_secret(Some(presented), Some(&hash), &secrets), ReportAuth::SharedSecret);
        assert_eq!(verify_report_secret(Some(presented), None, &secrets), ReportAuth::SharedSecret);
    }
    assert_eq!(verify_report_secret(Some("older"), Some(&hash), &secrets), ReportAuth::Wrong);
}

#[test]
fn the_token_of_another_job_is_wrong() {
    let hash = token_hash("of this job");
    let verify = |presented| verify_report_secret(Some(presented), Some(&hash), &ReportSecrets::default());
    assert_eq!(verify("of another job"), ReportAuth::Wrong);
    assert_eq!(verify(&hash), ReportAuth::Wrong, "the stored hash is no token");
}

#[test]
fn a_report_without_a_secret_is_missing_even_if_shared_secrets_are_empty() {
    let empty = secrets(Some(""), Some(""));
    for presented in [None, Some("")] {
        assert_eq!(verify_report_secret(presented, Some(&token_hash("")), &empty), ReportAuth::Missing);
    }
}

#[test]
fn unset_and_empty_shared_secrets_match_nothing() {
    for secrets in [ReportSecrets::default(), secrets(Some(""), Some("")), secrets(None, None)] {
        assert_eq!(verify_report_secret(Some("x"), None, &secrets), ReportAuth::Wrong);
        assert_eq!(verify_report_secret(Some("x"), Some("not a hash"), &secrets), ReportAuth::Wrong);
    }
}

#[test]
fn debug_output_of_report_secrets_contains_no_secret() {
    let shown = format!("{:?}", secrets(Some(CANARY), Some(CANARY)));
    assert!(!shown.contains(CANARY) && !shown.contains(&token_hash(CANARY)), "{shown}");
}
