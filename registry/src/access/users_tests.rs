//! Users of a file: who is let in, when it changes, what is remembered, how often one may be wrong.

use std::path::Path;
use std::time::Duration;

use super::*;

fn line(user: &str, password: &str) -> String {
    format!("{user}:{}\n", bcrypt::hash(password, 4).unwrap())
}

/// Looks at the file each time, so that no test waits.
fn at_once() -> HtpasswdOptions {
    HtpasswdOptions { look_every: Duration::ZERO, ..HtpasswdOptions::default() }
}

async fn users(path: &Path, options: HtpasswdOptions) -> Htpasswd {
    Htpasswd::open(path, options).await.unwrap()
}

async fn asks(users: &Htpasswd, user: &str, password: &str, peer: Option<&str>) -> Result<Subject, Denied> {
    let credentials = Credentials::basic(user, password).unwrap();
    let peer = peer.map(|peer| SocketAddr::new(peer.parse().unwrap(), 1));
    users.authenticate(&credentials, Caller { authorization: None, host: None, peer }).await
}

fn known(name: &str) -> Result<Subject, Denied> {
    Ok(Subject::User { name: name.to_owned(), groups: Vec::new() })
}

/// Replaces the file as editors do, so that its inode is another.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

#[tokio::test]
async fn the_right_password_lets_in_and_every_other_does_not() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("htpasswd");
    fs::write(&path, line("ann", "sesame") + "bob:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n").unwrap();
    let users = users(&path, at_once()).await;
    for _ in 0..2 {
        assert_eq!(asks(&users, "ann", "sesame", None).await, known("ann"));
        assert_eq!(asks(&users, "ann", "sesamE", None).await, Err(Denied::Unauthorized));
        assert_eq!(asks(&users, "nobody", "sesame", None).await, Err(Denied::Unauthorized));
        assert_eq!(asks(&users, "bob", "password", None).await, Err(Denied::Unauthorized));
    }
    let bearer = Credentials::Bearer("sesame".to_owned().into());
    let caller = Caller { authorization: None, host: None, peer: None };
    assert_eq!(users.authenticate(&bearer, caller).await, Err(Denied::Unauthorized));
}

#[tokio::test]
async fn a_changed_file_counts_at_once_and_what_was_remembered_does_not() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("htpasswd");
    fs::write(&path, line("ann", "sesame") + &line("bob", "sesame")).unwrap();
    let users = users(&path, at_once()).await;
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
async fn a_file_that_went_lets_nobody_in_until_it_is_back() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("htpasswd");
    assert!(Htpasswd::open(&path, at_once()).await.is_err());
    fs::write(&path, line("ann", "sesame")).unwrap();
    let users = users(&path, at_once()).await;
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
async fn the_file_is_not_looked_at_more_often_than_asked_for() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("htpasswd");
    fs::write(&path, line("ann", "sesame")).unwrap();
    let options = HtpasswdOptions { look_every: Duration::from_secs(3600), ..at_once() };
    let users = users(&path, options).await;
    fs::remove_file(&path).unwrap();
    assert_eq!(asks(&users, "ann", "sesame", None).await, known("ann"));
}

#[tokio::test]
async fn what_was_right_is_not_verified_again() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("htpasswd");
    fs::write(&path, line("ann", "sesame")).unwrap();
    let users = users(&path, HtpasswdOptions { patience: Duration::ZERO, ..at_once() }).await;
    assert_eq!(asks(&users, "ann", "sesame", None).await, known("ann"));
    // With every turn taken, only what is remembered is let in.
    let _turns = Arc::clone(&users.turns).acquire_many_owned(2).await.unwrap();
    assert_eq!(asks(&users, "ann", "sesame", None).await, known("ann"));
    assert_eq!(asks(&users, "ann", "wrong", None).await, Err(Denied::Unavailable));
}

#[tokio::test]
async fn many_requests_at_once_verify_a_password_as_often_as_there_are_turns() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("htpasswd");
    fs::write(&path, line("ann", "sesame")).unwrap();
    let users = users(&path, HtpasswdOptions { at_once: 1, ..at_once() }).await;
    let ask = || asks(&users, "ann", "sesame", Some("192.0.2.1"));
    let answers = futures_util::future::join_all((0..16).map(|_| ask())).await;
    assert!(answers.into_iter().all(|answer| answer == known("ann")));
    let answers = futures_util::future::join_all((0..64).map(|_| ask())).await;
    assert!(answers.into_iter().all(|answer| answer == known("ann")), "who is right never runs out of tries");
}

#[tokio::test]
async fn an_address_that_is_wrong_too_often_has_to_wait_and_others_do_not() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("htpasswd");
    fs::write(&path, line("ann", "sesame")).unwrap();
    let users = users(&path, at_once()).await;
    assert_eq!(asks(&users, "ann", "sesame", Some("192.0.2.1")).await, known("ann"));
    let mut refused = 0;
    for number in 0..30 {
        match asks(&users, "ann", &format!("guess {number}"), Some("192.0.2.1")).await {
            Err(Denied::Unavailable) => refused += 1,
            answer => assert_eq!(answer, Err(Denied::Unauthorized)),
        }
    }
    assert!(refused >= 5, "{refused}");
    assert_eq!(asks(&users, "ann", "sesame", Some("192.0.2.2")).await, known("ann"));
    // Somebody behind the same address who was right before goes on.
    assert_eq!(asks(&users, "ann", "sesame", Some("192.0.2.1")).await, known("ann"));
}

#[tokio::test]
async fn an_unknown_user_takes_as_long_as_a_wrong_password() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("htpasswd");
    fs::write(&path, format!("ann:{}\n", bcrypt::hash("sesame", 8).unwrap())).unwrap();
    let users = users(&path, at_once()).await;
    let mut took = [Vec::new(), Vec::new()];
    for _ in 0..9 {
        for (name, took) in ["ann", "nobody"].iter().zip(&mut took) {
            let began = Instant::now();
            assert_eq!(asks(&users, name, "wrong", None).await, Err(Denied::Unauthorized));
            took.push(began.elapsed());
        }
    }
    // The quickest of each: whatever else the machine does only adds to it.
    let [known, unknown] = took.map(|took| took.into_iter().min().unwrap());
    assert!(unknown > known / 2 && known > unknown / 2, "{known:?} {unknown:?}");
}
