//! Who may report the end of a job.

use super::*;
use secrets::token_hash;

fn secrets(current: Option<&str>, previous: Option<&str>) -> ReportSecrets {
    let secret = |text: Option<&str>| text.map(SecretString::from);
    ReportSecrets::new(secret(current).as_ref(), secret(previous).as_ref())
}

#[test]
fn the_jobs_token_is_recognised_before_the_shared_secret() {
    let hash = token_hash("of the job");
    let verify =
        |presented| verify_report_secret(Some(presented), Some(&hash), &secrets(Some("of the job"), None));
    assert_eq!(verify("of the job"), ReportAuth::JobToken);
}

#[test]
fn current_and_previous_shared_secret_both_count() {
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
fn nothing_presented_is_missing_even_where_secrets_are_empty() {
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
fn webhook_secrets_do_not_show_themselves() {
    let shown = format!("{:?}", secrets(Some(CANARY), Some(CANARY)));
    assert!(!shown.contains(CANARY) && !shown.contains(&token_hash(CANARY)), "{shown}");
}
