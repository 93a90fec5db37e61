//! Users of a file: logins, changes of the file, the cache and the limit of wrong passwords.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::access::ClientScheme;

fn line(user: &str, password: &str) -> String {
    format!("{user}:{}\n", bcrypt::hash(password, 4).unwrap())
}

/// Checks the file at each request, so that no test waits.
fn immediate() -> HtpasswdOptions {
    HtpasswdOptions { reload_interval: Duration::ZERO, ..HtpasswdOptions::default() }
}

async fn users(path: &Path, options: HtpasswdOptions) -> Htpasswd {
    Htpasswd::open(path, options).await.unwrap()
}

async fn asks(
    users: &Htpasswd,
    user: &str,
    password: &str,
    peer: Option<&str>,
) -> Result<PolicySubject, Denied> {
    let credentials = Credentials::basic(user, password).unwrap();
    let peer = peer.map(|peer| SocketAddr::new(peer.parse().unwrap(), 1));
    users.authenticate(&credentials, caller(peer)).await
}

fn caller(peer: Option<SocketAddr>) -> Caller<'static> {
    Caller { authorization: None, host: None, peer, scheme: ClientScheme::Unmarked }
}

fn known(name: &str) -> Result<PolicySubject, Denied> {
    Ok(PolicySubject::User { name: name.to_owned(), groups: Vec::new() })
}

/// Replaces the file as editors do, so that its inode changes.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

#[tokio::test]
async fn the_right_password_is_accepted_and_every_other_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("htpasswd");
    fs::write(&path, line("ann", "sesame") + "bob:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n").unwrap();
    let users = users(&path, immediate()).await;
    for _ in 0..2 {
        assert_eq!(asks(&users, "ann", "sesame", None).await, known("ann"));
        assert_eq!(asks(&users, "ann", "sesamE", None).await, Err(Denied::Unauthorized));
        assert_eq!(asks(&users, "unknown", "sesame", None).await, Err(Denied::Unauthorized));
        assert_eq!(asks(&users, "bob", "password", None).await, Err(Denied::Unauthorized));
    }
    let bearer = Credentials::Bearer("sesame".to_owned().into());
    assert_eq!(users.authenticate(&bearer, caller(None)).await, Err(Denied::Unauthorized));
}

#[tokio::test]
async fn a_changed_file_takes_effect_at_once_and_ends_cached_credentials() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("htpasswd");
    fs::write(&path, line("ann", "sesame") + &line("bob", "sesame")).unwrap();
    let users = users(&path, immediate()).await;
    assert_eq!(asks(&users, "ann", "sesame", None).await, known("ann"));
    replace(&path, &line("ann", "changed"));
    assert_eq!(asks(&users, "ann", "sesame", None).await, Err(Denied::Unauthorized));
    assert_eq!(asks(&users, "bob", "sesame", None).await, Err(Denied::Unauthorized));
    assert_eq!(asks(&users, "ann", "changed", None).await, known("ann"));
    // In place, of the same length, in the same moment.
    fs::write(&path, line("ann", "another")).unwrap();
    assert_eq!(asks(&users, "ann", "changed", None).await, Err(Denied::Unauthorized));
    assert_eq!(asks(&users, "ann", "another", None).await, known("ann"));
}

#[tokio::test]
async fn while_the_file_is_missing_every_login_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("htpasswd");
    assert!(Htpasswd::open(&path, immediate()).await.is_err());
    fs::write(&path, line("ann", "sesame")).unwrap();
    let users = users(&path, immediate()).await;
    assert_eq!(asks(&users, "ann", "sesame", None).await, known("ann"));
    fs::remove_file(&path).unwrap();
    assert_eq!(asks(&users, "ann", "sesame", None).await, Err(Denied::Unavailable));
    replace(&path, &line("ann", "sesame"));
    assert_eq!(asks(&users, "ann", "sesame", None).await, known("ann"));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(asks(&users, "ann", "sesame", None).await, Err(Denied::Unavailable));
}

#[tokio::test]
async fn the_file_is_not_checked_more_often_than_configured() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("htpasswd");
    fs::write(&path, line("ann", "sesame")).unwrap();
    let options = HtpasswdOptions { reload_interval: Duration::from_secs(3600), ..immediate() };
    let users = users(&path, options).await;
    fs::remove_file(&path).unwrap();
    assert_eq!(asks(&users, "ann", "sesame", None).await, known("ann"));
}

#[tokio::test]
async fn verified_credentials_are_not_verified_again() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("htpasswd");
    fs::write(&path, line("ann", "sesame")).unwrap();
    let users = users(&path, HtpasswdOptions { queue_timeout: Duration::ZERO, ..immediate() }).await;
    assert_eq!(asks(&users, "ann", "sesame", None).await, known("ann"));
    // With every permit taken, only cached credentials are accepted.
    let _permits = Arc::clone(&users.verifying).acquire_many_owned(2).await.unwrap();
    assert_eq!(asks(&users, "ann", "sesame", None).await, known("ann"));
    assert_eq!(asks(&users, "ann", "wrong", None).await, Err(Denied::Unavailable));
}

#[tokio::test]
async fn concurrent_requests_verify_a_password_once_per_permit() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("htpasswd");
    fs::write(&path, line("ann", "sesame")).unwrap();
    let users = users(&path, HtpasswdOptions { parallel: 1, ..immediate() }).await;
    let ask = || asks(&users, "ann", "sesame", Some("192.0.2.1"));
    let answers = futures_util::future::join_all((0..16).map(|_| ask())).await;
    assert!(answers.into_iter().all(|answer| answer == known("ann")));
    let answers = futures_util::future::join_all((0..64).map(|_| ask())).await;
    assert!(
        answers.into_iter().all(|answer| answer == known("ann")),
        "right passwords never use up the tries"
    );
}

#[tokio::test]
async fn a_user_with_too_many_wrong_passwords_has_to_wait_and_others_behind_the_same_address_do_not() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("htpasswd");
    fs::write(&path, line("ann", "sesame") + &line("bob", "barley")).unwrap();
    let users = users(&path, immediate()).await;
    assert_eq!(asks(&users, "ann", "sesame", Some("192.0.2.1")).await, known("ann"));
    let mut refused = 0;
    for number in 0..30 {
        match asks(&users, "ann", &format!("guess {number}"), Some("192.0.2.1")).await {
            Err(Denied::RateLimited) => refused += 1,
            answer => assert_eq!(answer, Err(Denied::Unauthorized)),
        }
    }
    assert!(refused >= 5, "{refused}");
    assert_eq!(asks(&users, "ann", "sesame", Some("192.0.2.2")).await, known("ann"));
    // Behind the same address, cached credentials and other users are not affected.
    assert_eq!(asks(&users, "ann", "sesame", Some("192.0.2.1")).await, known("ann"));
    assert_eq!(asks(&users, "bob", "barley", Some("192.0.2.1")).await, known("bob"));
}

#[tokio::test]
async fn an_unknown_user_takes_as_long_as_a_wrong_password() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("htpasswd");
    fs::write(&path, format!("ann:{}\n", bcrypt::hash("sesame", 8).unwrap())).unwrap();
    let users = users(&path, immediate()).await;
    let mut took = [Vec::new(), Vec::new()];
    for _ in 0..9 {
        for (name, took) in ["ann", "unknown"].iter().zip(&mut took) {
            let began = Instant::now();
            assert_eq!(asks(&users, name, "wrong", None).await, Err(Denied::Unauthorized));
            took.push(began.elapsed());
        }
    }
    // The quickest of each: other load on the machine only adds time.
    let [known, unknown] = took.map(|took| took.into_iter().min().unwrap());
    assert!(unknown > known / 2 && known > unknown / 2, "{known:?} {unknown:?}");
}
