//! Authentication from the header to the principal.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use model::{Clock, ManualClock, SteadyClock, Time};
use secrecy::ExposeSecret;

use super::*;
use crate::auth::password::{DECOY_HASH, verify};
use crate::auth::verify::{PasswordAttempt, PasswordVerifier};
use secrets::{JobTokens, MasterKey, TokenSeeds, token_hash};

const OTHER_PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

fn config(mode: AuthMode) -> AuthConfig {
    let jwt = (mode == AuthMode::Jwt).then(jwt_key);
    let failures = RateLimit { burst: 3, interval: Duration::from_secs(10), max_addresses: 16 };
    AuthConfig { mode, basic_user: None, jwt, failures }
}

fn authenticator(mode: AuthMode) -> (Authenticator, Arc<Memory>) {
    let store = Arc::new(Memory::default());
    store.add_user("ann", "ann's password", Role::Admin);
    store.add_user("ron", "ron's password", Role::Viewer);
    (Authenticator::new(config(mode), store.clone()).unwrap(), store)
}

/// A token that another system signs now is valid, whichever way the clock of this machine was set.
#[tokio::test]
async fn a_jwt_is_judged_by_the_time_of_day_after_the_clock_was_set() {
    const HOUR: Duration = Duration::from_secs(3600);
    let start: Time = "2026-11-20T08:00:00Z".parse().unwrap();
    for set_to in [start.plus(HOUR), start.minus(HOUR)] {
        let source = Arc::new(ManualClock::new(start));
        let clock: Arc<dyn Clock> = Arc::new(SteadyClock::new(Arc::clone(&source)));
        let (authenticator, _) = authenticator(AuthMode::Jwt);
        let authenticator = authenticator.with_clock(Arc::clone(&clock));
        source.set(set_to);
        source.advance(Duration::from_secs(1));
        let issued = clock.wall().unix_seconds();
        let expires = issued + 60;
        let claims = format!(r#"{{"sub":"ci","role":"viewer","iat":{issued},"exp":{expires}}}"#);
        let bearer = format!("Bearer {}", super::jwt::sign(super::jwt::HEADER, &claims));
        let caller = || authenticator.authenticate(Some(&bearer), PEER, clock.now().timestamp());
        assert_eq!(caller().await.unwrap().name, "ci", "{set_to}");
        source.advance(HOUR);
        assert_eq!(caller().await.unwrap_err(), AuthFailure::Invalid, "expired: {set_to}");
    }
}

fn add_token(store: &Memory, role: Role, expires_at: Option<Timestamp>) -> String {
    let token = generate_token().unwrap().expose_secret().to_owned();
    let record = TokenRecord {
        id: "t1".to_owned(),
        name: "ci".to_owned(),
        role,
        limits: TokenLimits::default(),
        expires_at,
        last_used_at: None,
        unconfirmed: false,
    };
    store.tokens.lock().unwrap().insert(token_hash(&token), record);
    token
}

async fn ask(authenticator: &Authenticator, value: &str, second: i64) -> Result<Principal, AuthFailure> {
    authenticator.authenticate(Some(value), PEER, at(second)).await
}

mod modes {
    use super::*;

    #[tokio::test]
    async fn in_mode_none_every_caller_is_admin() {
        let (authenticator, store) = authenticator(AuthMode::None);
        store.down.store(true, Ordering::Relaxed);
        for value in [None, Some("nonsense")] {
            let principal = authenticator.authenticate(value, PEER, at(0)).await.unwrap();
            assert!(principal.allows(Permission::Administer));
            assert_eq!(principal.method, AuthMethod::Open);
        }
    }

    #[tokio::test]
    async fn a_request_without_a_header_has_no_credential_and_counts_no_failure() {
        for mode in [AuthMode::Basic, AuthMode::Jwt] {
            let (authenticator, _) = authenticator(mode);
            for _ in 0..20 {
                let nothing = authenticator.authenticate(None, PEER, at(0)).await;
                assert_eq!(nothing.unwrap_err(), AuthFailure::Missing);
                assert_eq!(ask(&authenticator, "  ", 0).await.unwrap_err(), AuthFailure::Missing);
            }
            assert_eq!(ask(&authenticator, "Bearer x", 0).await.unwrap_err(), AuthFailure::Invalid);
        }
    }

    #[tokio::test]
    async fn api_tokens_work_in_every_mode_as_bearer_and_as_basic_password() {
        for mode in [AuthMode::Basic, AuthMode::Jwt] {
            let (authenticator, store) = authenticator(mode);
            let token = add_token(&store, Role::Viewer, None);
            for value in [format!("Bearer {token}"), basic("anything", &token), basic(JOB_USERNAME, &token)] {
                let principal = ask(&authenticator, &value, 0).await.unwrap();
                assert_eq!(principal.name, "ci");
                assert_eq!(principal.rights, PrincipalRights::Role(Role::Viewer));
                assert_eq!(principal.method, AuthMethod::ApiToken { id: "t1".to_owned() });
            }
        }
    }

    #[tokio::test]
    async fn a_token_ends_at_its_expiry_or_one_second_after_its_removal() {
        let (authenticator, store) = authenticator(AuthMode::Basic);
        let value = format!("Bearer {}", add_token(&store, Role::Admin, Some(at(100))));
        ask(&authenticator, &value, 99).await.unwrap();
        assert_eq!(ask(&authenticator, &value, 100).await.unwrap_err(), AuthFailure::Invalid);
        let value = format!("Bearer {}", add_token(&store, Role::Admin, None));
        ask(&authenticator, &value, 200).await.unwrap();
        store.tokens.lock().unwrap().clear();
        ask(&authenticator, &value, 200).await.unwrap();
        assert_eq!(ask(&authenticator, &value, 201).await.unwrap_err(), AuthFailure::Invalid);
    }

    #[tokio::test]
    async fn a_revoked_token_is_refused_with_the_next_request() {
        let (authenticator, store) = authenticator(AuthMode::Basic);
        let value = format!("Bearer {}", add_token(&store, Role::Admin, None));
        ask(&authenticator, &value, 200).await.unwrap();
        store.tokens.lock().unwrap().clear();
        authenticator.tokens_changed();
        assert_eq!(ask(&authenticator, &value, 200).await.unwrap_err(), AuthFailure::Invalid);
    }

    #[tokio::test]
    async fn a_disabled_user_a_lowered_role_and_a_new_password_take_effect_with_the_next_request() {
        let (authenticator, store) = authenticator(AuthMode::Basic);
        let change =
            |change: &dyn Fn(&mut UserRecord)| change(store.users.lock().unwrap().get_mut("ann").unwrap());
        store.add_user("ann", "ann's password", Role::Admin);
        let value = basic("ann", "ann's password");
        assert_eq!(ask(&authenticator, &value, 0).await.unwrap().rights, PrincipalRights::Role(Role::Admin));
        change(&|ann| ann.role = Role::Viewer);
        assert_eq!(ask(&authenticator, &value, 0).await.unwrap().rights, PrincipalRights::Role(Role::Viewer));
        change(&|ann| ann.disabled = true);
        assert_eq!(ask(&authenticator, &value, 0).await.unwrap_err(), AuthFailure::Invalid);
        assert_eq!(authenticator.user_now("ann").await.unwrap(), None);
        change(&|ann| ann.disabled = false);
        let before = authenticator.user_now("ann").await.unwrap();
        change(&|ann| ann.password_hash = quick_hash("another password"));
        assert_eq!(ask(&authenticator, &value, 0).await.unwrap_err(), AuthFailure::Invalid);
        assert_ne!(authenticator.user_now("ann").await.unwrap(), before, "the mark of issued tokens changes");
        ask(&authenticator, &basic("ann", "another password"), 0).await.unwrap();
    }

    #[tokio::test]
    async fn only_an_unexpired_report_only_token_is_a_report_secret() {
        let (authenticator, store) = authenticator(AuthMode::Basic);
        for role in [Role::Admin, Role::Operator, Role::Viewer, Role::RegistryOnly, Role::ReportOnly] {
            let token = add_token(&store, role, Some(at(100)));
            let found = authenticator.report_token(&token, at(99)).await.unwrap();
            assert_eq!(found.is_some(), role == Role::ReportOnly, "{role}");
            assert_eq!(authenticator.report_token(&token, at(100)).await.unwrap(), None);
        }
        assert_eq!(authenticator.report_token("no token", at(0)).await.unwrap(), None);
    }

    #[tokio::test]
    async fn the_use_of_a_token_is_noted_at_most_every_ten_minutes() {
        let (authenticator, store) = authenticator(AuthMode::Basic);
        let token = add_token(&store, Role::Viewer, Some(at(5000)));
        let value = format!("Bearer {token}");
        let note = |used| {
            store.tokens.lock().unwrap().get_mut(&token_hash(&token)).unwrap().last_used_at = Some(used);
        };
        for second in [0, 30, 599, 600, 6000] {
            let _ = ask(&authenticator, &value, second).await;
            if let Some((_, used)) = store.used.lock().unwrap().last() {
                note(*used);
            }
        }
        let used: Vec<Timestamp> = store.used.lock().unwrap().iter().map(|(_, used)| *used).collect();
        assert_eq!(used, [at(0), at(600)], "an expired token is not used");
    }

    #[tokio::test]
    async fn jwts_are_accepted_in_mode_jwt_only_and_passwords_are_not() {
        let jwt = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9\
                   .eyJzdWIiOiJjaSIsInJvbGUiOiJ2aWV3ZXIiLCJleHAiOjIwMDAwMDAwMDB9\
                   .TossMhU1x6ImQhms0RsJykH_2k3vPOqfVOQrxNnV8as";
        let (with_jwt, _) = authenticator(AuthMode::Jwt);
        for value in [format!("Bearer {jwt}"), basic("anything", jwt)] {
            let principal = ask(&with_jwt, &value, 0).await.unwrap();
            let rights = PrincipalRights::Role(Role::Viewer);
            assert_eq!(principal, Principal { name: "ci".to_owned(), rights, method: AuthMethod::Jwt });
        }
        let password = ask(&with_jwt, &basic("ann", "ann's password"), 0).await;
        assert_eq!(password.unwrap_err(), AuthFailure::Invalid);
        let expired = ask(&with_jwt, &format!("Bearer {jwt}"), 1_000_000_000).await;
        assert_eq!(expired.unwrap_err(), AuthFailure::Invalid);
        let mut both = config(AuthMode::Basic);
        both.jwt = Some(jwt_key());
        let with_passwords = Authenticator::new(both, Arc::new(Memory::default())).unwrap();
        let refused = ask(&with_passwords, &format!("Bearer {jwt}"), 0).await;
        assert_eq!(refused.unwrap_err(), AuthFailure::Invalid);
    }

    const JOB: &str = "0192f0c1-2345-7abc-8def-0123456789ab";

    #[tokio::test]
    async fn a_job_pulls_with_its_password_until_its_grant_ends() {
        let seed = TokenSeeds::new(&MasterKey::from_bytes(&[7; 32])).seed(JOB);
        let password = JobTokens::new(&seed).pull_password(JOB);
        let value = basic(JOB_USERNAME, password.expose_secret());
        for mode in [AuthMode::Basic, AuthMode::Jwt] {
            let (authenticator, store) = authenticator(mode);
            let hash = token_hash(password.expose_secret());
            let pull = PullGrant {
                token_hash: hash.clone(),
                run: JOB.parse().unwrap(),
                repository: "os-images/x".to_owned(),
            };
            store.pulls.lock().unwrap().insert(hash, pull);
            let principal = ask(&authenticator, &value, 0).await.unwrap();
            assert_eq!(principal.method, AuthMethod::Job { job_id: JOB.to_owned() });
            let repository = "os-images/x".to_owned();
            assert_eq!(principal.rights, PrincipalRights::PullFrom { repository });
            assert!(!principal.allows(Permission::Read));
            store.pulls.lock().unwrap().clear();
            assert_eq!(ask(&authenticator, &value, 0).await.unwrap_err(), AuthFailure::Invalid);
        }
    }
}

mod passwords {
    use super::*;

    #[tokio::test]
    async fn users_have_the_role_of_their_record() {
        let (authenticator, _) = authenticator(AuthMode::Basic);
        let ann = ask(&authenticator, &basic("ann", "ann's password"), 0).await.unwrap();
        let ron = ask(&authenticator, &basic("ron", "ron's password"), 0).await.unwrap();
        assert_eq!(ann.rights, PrincipalRights::Role(Role::Admin));
        assert_eq!(ron.rights, PrincipalRights::Role(Role::Viewer));
        assert_eq!((ron.name.as_str(), ron.method), ("ron", AuthMethod::Password));
    }

    #[tokio::test]
    async fn wrong_passwords_and_unknown_users_return_equal_errors() {
        let (authenticator, _) = authenticator(AuthMode::Basic);
        for value in [basic("ann", "ron's password"), basic("eve", "ann's password"), "Basic @".to_owned()] {
            assert_eq!(ask(&authenticator, &value, 0).await.unwrap_err(), AuthFailure::Invalid);
        }
    }

    #[tokio::test]
    async fn the_configured_user_is_admin_and_takes_precedence_over_the_stored_one() {
        let (_, store) = authenticator(AuthMode::Basic);
        store.add_user("root", "stored password", Role::Viewer);
        let mut config = config(AuthMode::Basic);
        config.basic_user = Some(("root".to_owned(), quick_hash("configured password")));
        let authenticator = Authenticator::new(config, store).unwrap();
        let principal = ask(&authenticator, &basic("root", "configured password"), 0).await.unwrap();
        assert_eq!(principal.rights, PrincipalRights::Role(Role::Admin));
        assert!(ask(&authenticator, &basic("root", "stored password"), 0).await.is_err());
        ask(&authenticator, &basic("ann", "ann's password"), 0).await.unwrap();
    }

    #[tokio::test]
    async fn a_reload_replaces_user_and_key_and_keeps_mode_and_the_former_ones_if_it_cannot_be_used() {
        let (authenticator, _store) = authenticator(AuthMode::Basic);
        let with_user = |password: &str| AuthConfig {
            basic_user: Some(("root".to_owned(), quick_hash(password))),
            ..config(AuthMode::None)
        };
        let reload = |config| authenticator.check(config).map(|checked| authenticator.apply(checked));
        reload(with_user("first")).unwrap();
        ask(&authenticator, &basic("root", "first"), 0).await.unwrap();
        reload(with_user("second")).unwrap();
        assert!(ask(&authenticator, &basic("root", "first"), 0).await.is_err());
        ask(&authenticator, &basic("root", "second"), 0).await.unwrap();
        assert!(ask(&authenticator, "Bearer none", 0).await.is_err(), "the mode stays as it was");
        let unusable =
            AuthConfig { basic_user: Some(("a:b".to_owned(), String::new())), ..config(AuthMode::Basic) };
        assert!(reload(unusable).is_err());
        ask(&authenticator, &basic("root", "second"), 0).await.unwrap();
    }

    #[tokio::test]
    async fn a_changed_password_role_or_user_takes_effect_immediately() {
        let (authenticator, store) = authenticator(AuthMode::Basic);
        let value = basic("ann", "ann's password");
        ask(&authenticator, &value, 0).await.unwrap();
        store.add_user("ann", "ann's password", Role::Viewer);
        assert_eq!(ask(&authenticator, &value, 1).await.unwrap().rights, PrincipalRights::Role(Role::Viewer));
        store.add_user("ann", "a new password", Role::Admin);
        assert!(ask(&authenticator, &value, 2).await.is_err());
        ask(&authenticator, &basic("ann", "a new password"), 3).await.unwrap();
        store.users.lock().unwrap().remove("ann");
        assert!(ask(&authenticator, &basic("ann", "a new password"), 4).await.is_err());
    }

    #[tokio::test]
    async fn a_right_password_is_remembered_for_seconds_and_a_wrong_one_never() {
        let (authenticator, _) = authenticator(AuthMode::Basic);
        let passwords = authenticator.passwords();
        assert!(ask(&authenticator, &basic("ann", "wrong password"), 0).await.is_err());
        assert_eq!(passwords.remembered_count(), 0);
        ask(&authenticator, &basic("ann", "ann's password"), 0).await.unwrap();
        assert_eq!(passwords.remembered_count(), 1);
        // With all permits taken, only remembered passwords are accepted.
        let (permits, _, _) = PasswordVerifier::LIMITS;
        let mut taken = Vec::new();
        for _ in 0..permits {
            taken.push(passwords.acquire().await.unwrap());
        }
        let value = basic("ann", "ann's password");
        assert!(ask(&authenticator, &value, 29).now_or_never().unwrap().is_ok());
        assert!(ask(&authenticator, &value, 30).now_or_never().is_none(), "too old");
        assert!(ask(&authenticator, &value, -1).now_or_never().is_none(), "the clock was set back");
        assert!(ask(&authenticator, &basic("ann", "ann's passwore"), 1).now_or_never().is_none());
    }

    #[tokio::test]
    async fn an_unknown_user_waits_for_a_verification_like_a_known_one() {
        let (authenticator, _) = authenticator(AuthMode::Basic);
        let (permits, _, _) = PasswordVerifier::LIMITS;
        let mut taken = Vec::new();
        for _ in 0..permits {
            taken.push(authenticator.passwords().acquire().await.unwrap());
        }
        for name in ["ann", "unknown"] {
            assert!(ask(&authenticator, &basic(name, "some password"), 0).now_or_never().is_none());
        }
    }

    #[test]
    fn the_decoy_has_the_costs_of_our_hashes_and_matches_no_password() {
        let own = hash_password(&SecretString::from("some password")).unwrap();
        let numbers = |hash: &str| hash.split('$').take(4).collect::<Vec<_>>().join("$");
        assert_eq!(numbers(&own), numbers(DECOY_HASH));
        let lengths = |hash: &str| hash.split('$').skip(4).map(str::len).collect::<Vec<_>>();
        assert_eq!(lengths(&own), lengths(DECOY_HASH));
        for password in ["", "some password", "shoal-decoy-salt"] {
            assert!(!verify(&SecretString::from(password), DECOY_HASH).unwrap());
        }
    }

    #[tokio::test]
    async fn requests_beyond_the_queue_are_unavailable_and_count_no_failure() {
        let (authenticator, _) = authenticator(AuthMode::Basic);
        let passwords = authenticator.passwords();
        let (permits, queue, _) = PasswordVerifier::LIMITS;
        let mut taken = Vec::new();
        for _ in 0..permits {
            taken.push(passwords.acquire().await.unwrap());
        }
        let mut waiting: Vec<_> = (permits..queue).map(|_| Box::pin(passwords.acquire())).collect();
        for permit in &mut waiting {
            assert!(permit.as_mut().now_or_never().is_none());
        }
        let value = basic("ann", "ann's password");
        assert_eq!(ask(&authenticator, &value, 0).await.unwrap_err(), AuthFailure::Unavailable);
        drop((waiting, taken));
        ask(&authenticator, &value, 0).await.unwrap();
    }

    #[tokio::test]
    async fn the_number_of_remembered_passwords_is_bounded() {
        let passwords = PasswordVerifier::new().unwrap();
        let (_, _, most) = PasswordVerifier::LIMITS;
        let proof = |number: usize| {
            let mut proof = [0; 32];
            proof[..8].copy_from_slice(&number.to_be_bytes());
            proof
        };
        for number in 0..most + 10 {
            passwords.remember_for_test(proof(number), at(0));
        }
        assert_eq!(passwords.remembered_count(), most);
        passwords.remember_for_test(proof(most + 10), at(60));
        assert_eq!(passwords.remembered_count(), 1, "the old entries were dropped");
    }

    #[tokio::test]
    async fn a_stored_hash_that_cannot_be_verified_denies_the_login() {
        let (authenticator, store) = authenticator(AuthMode::Basic);
        for hash in [
            "",
            "plain text",
            "$2b$12$abcdefghijklmnopqrstuv",
            "$argon2id$v=19$m=99999999,t=2,p=1$c2FsdHNhbHQ$AAAA",
        ] {
            let record = UserRecord {
                name: "bad".to_owned(),
                password_hash: hash.to_owned(),
                role: Role::Admin,
                disabled: false,
                unconfirmed: false,
            };
            store.users.lock().unwrap().insert("bad".to_owned(), record);
            let refused =
                authenticator.authenticate(Some(&basic("bad", "plain text")), OTHER_PEER, at(0)).await;
            assert!(refused.is_err(), "{hash}");
        }
    }

    #[test]
    fn a_hash_is_verified_by_its_password_and_no_other() {
        let password = SecretString::from("correct horse");
        let hash = hash_password(&password).unwrap();
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"));
        assert_ne!(hash, hash_password(&password).unwrap(), "salted");
        assert!(verify(&password, &hash).unwrap());
        assert!(!verify(&SecretString::from("correct horsf"), &hash).unwrap());
        password_hash_usable(&hash).unwrap();
    }

    #[test]
    fn passwords_and_hashes_out_of_bounds_are_refused_and_not_repeated() {
        let hash = |password: &str| hash_password(&SecretString::from(password));
        assert!(matches!(hash("seven77"), Err(PasswordError::TooShort)));
        assert!(matches!(hash(&"x".repeat(MAX_PASSWORD_BYTES + 1)), Err(PasswordError::TooLong)));
        assert!(matches!(hash("two lines\nof a file"), Err(PasswordError::ControlCharacter)));
        let good = hash("some password").unwrap();
        let refused = [
            CANARY.to_owned(),
            good.replace("argon2id", "argon2i"),
            good.replace("m=19456", "m=1048576"),
            good.replace("t=2", "t=100"),
            good.replace("p=1", "p=200"),
            good.rsplit_once('$').unwrap().0.to_owned(),
            format!("{good}{}", "A".repeat(600)),
        ];
        for text in refused {
            let error = password_hash_usable(&text).unwrap_err();
            assert!(matches!(error, PasswordError::Unusable), "{text}");
            assert!(!all_messages(&error).contains(CANARY));
        }
    }
}

mod brakes {
    use super::*;

    #[tokio::test]
    async fn wrong_tokens_and_headers_use_up_one_allowance_and_the_passwords_of_a_user_another() {
        let (authenticator, _) = authenticator(AuthMode::Basic);
        let limited = AuthFailure::RateLimited { retry_after: Duration::from_secs(10) };
        let unknown = format!("Bearer {}", generate_token().unwrap().expose_secret());
        for value in [&unknown, "Bearer x", "nonsense"] {
            assert_eq!(ask(&authenticator, value, 0).await.unwrap_err(), AuthFailure::Invalid);
        }
        for value in [&unknown, "nonsense"] {
            assert_eq!(ask(&authenticator, value, 0).await.unwrap_err(), limited);
        }
        for _ in 0..3 {
            let wrong = ask(&authenticator, &basic("ann", "wrong password"), 0).await;
            assert_eq!(wrong.unwrap_err(), AuthFailure::Invalid);
        }
        let right = basic("ann", "ann's password");
        assert_eq!(ask(&authenticator, &right, 0).await.unwrap_err(), limited);
        assert!(authenticator.authenticate(Some(&right), OTHER_PEER, at(0)).await.is_ok());
        assert!(ask(&authenticator, &right, 10).await.is_ok());
    }

    #[tokio::test]
    async fn one_user_with_a_wrong_password_does_not_lock_out_the_others_behind_its_proxy() {
        let (authenticator, _) = authenticator(AuthMode::Basic);
        for number in 0..20 {
            ask(&authenticator, &basic("ann", &format!("guess {number}")), 0).await.unwrap_err();
        }
        ask(&authenticator, &basic("ron", "ron's password"), 0).await.unwrap();
        let ann = ask(&authenticator, &basic("ann", "ann's password"), 0).await;
        assert!(matches!(ann, Err(AuthFailure::RateLimited { .. })), "{ann:?}");
    }

    #[tokio::test]
    async fn guesses_for_many_names_are_limited_and_spare_a_user_who_logged_in_that_day() {
        let (authenticator, _) = authenticator(AuthMode::Basic);
        ask(&authenticator, &basic("ron", "ron's password"), 0).await.unwrap();
        // Long enough for the password not to be remembered.
        let now = 3600;
        let mut verified = 0;
        for number in 0..40 {
            let guess = ask(&authenticator, &basic(&format!("name {number}"), "a guess"), now).await;
            verified += usize::from(guess == Err(AuthFailure::Invalid));
        }
        assert_eq!(verified, 30, "ten names as fast as one");
        let ann = ask(&authenticator, &basic("ann", "ann's password"), now).await;
        assert_eq!(ann.unwrap_err(), AuthFailure::RateLimited { retry_after: Duration::from_secs(1) });
        ask(&authenticator, &basic("ron", "ron's password"), now).await.unwrap();
        ask(&authenticator, &basic("ann", "ann's password"), now + 1).await.unwrap();
    }

    #[tokio::test]
    async fn successes_are_not_counted() {
        let (authenticator, store) = authenticator(AuthMode::Basic);
        let token = format!("Bearer {}", add_token(&store, Role::Admin, None));
        for second in 0..50 {
            ask(&authenticator, &token, second).await.unwrap();
            ask(&authenticator, &basic("ann", "ann's password"), second * 40).await.unwrap();
        }
        assert_eq!(ask(&authenticator, "Bearer x", 0).await.unwrap_err(), AuthFailure::Invalid);
    }

    #[tokio::test]
    async fn a_valid_token_and_a_remembered_password_work_despite_failures_of_their_address() {
        let (authenticator, store) = authenticator(AuthMode::Basic);
        let token = format!("Bearer {}", add_token(&store, Role::Admin, None));
        ask(&authenticator, &basic("ann", "ann's password"), 0).await.unwrap();
        for _ in 0..3 {
            ask(&authenticator, "Bearer x", 0).await.unwrap_err();
        }
        for _ in 0..3 {
            ask(&authenticator, &basic("ann", "a guess"), 0).await.unwrap_err();
        }
        ask(&authenticator, &token, 0).await.unwrap();
        ask(&authenticator, &basic("ann", "ann's password"), 0).await.unwrap();
    }

    #[tokio::test]
    async fn parallel_guesses_do_not_exceed_the_limit() {
        let (authenticator, _) = authenticator(AuthMode::Basic);
        let guesses = (0..40).map(|number| {
            let value = basic("ann", &format!("guess {number:04}"));
            let authenticator = &authenticator;
            async move { ask(authenticator, &value, 0).await.unwrap_err() }
        });
        let results = futures_util::future::join_all(guesses).await;
        let verified = results.iter().filter(|failure| **failure == AuthFailure::Invalid).count();
        let limited =
            results.iter().filter(|failure| matches!(failure, AuthFailure::RateLimited { .. })).count();
        assert_eq!((verified, limited), (3, 37));
    }

    #[test]
    fn a_client_that_disconnects_before_the_response_has_used_up_its_attempt() {
        // One blocking thread that the test keeps busy: every verification has started when its request is dropped.
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let (authenticator, _) = authenticator(AuthMode::Basic);
            for _ in 0..3 {
                let (release, released) = std::sync::mpsc::channel::<()>();
                tokio::task::spawn_blocking(move || released.recv());
                let value = basic("ann", "a guess");
                let mut attempt = Box::pin(ask(&authenticator, &value, 0));
                assert!(attempt.as_mut().now_or_never().is_none());
                drop(attempt);
                let (permits, _, _) = PasswordVerifier::LIMITS;
                let mut taken = Vec::new();
                for _ in 1..permits {
                    taken.push(authenticator.passwords().acquire().await.unwrap());
                }
                let next = authenticator.passwords().acquire().now_or_never();
                assert!(next.is_none(), "the abandoned verification keeps its permit");
                release.send(()).unwrap();
                taken.push(authenticator.passwords().acquire().await.unwrap());
            }
            let limited = ask(&authenticator, &basic("ann", "ann's password"), 0).await;
            assert!(matches!(limited, Err(AuthFailure::RateLimited { .. })), "{limited:?}");
        });
    }

    #[tokio::test]
    async fn parallel_right_passwords_are_all_accepted() {
        let (authenticator, _) = authenticator(AuthMode::Basic);
        let value = basic("ann", "ann's password");
        let requests = (0..50).map(|_| ask(&authenticator, &value, 0));
        let results = futures_util::future::join_all(requests).await;
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }

    #[tokio::test]
    async fn a_failure_of_the_store_counts_no_failure() {
        let (authenticator, store) = authenticator(AuthMode::Basic);
        let token = format!("Bearer {}", generate_token().unwrap().expose_secret());
        store.down.store(true, Ordering::Relaxed);
        for _ in 0..10 {
            for value in [&token, &basic("ann", "ann's password"), &basic(JOB_USERNAME, "x")] {
                assert_eq!(ask(&authenticator, value, 0).await.unwrap_err(), AuthFailure::Unavailable);
            }
        }
        store.down.store(false, Ordering::Relaxed);
        ask(&authenticator, &basic("ann", "ann's password"), 0).await.unwrap();
    }
}

mod configuration {
    use super::*;

    fn refused(config: AuthConfig) -> AuthConfigError {
        Authenticator::new(config, Arc::new(Memory::default())).unwrap_err()
    }

    #[test]
    fn mode_jwt_needs_a_key() {
        let mut config = config(AuthMode::Jwt);
        config.jwt = None;
        assert!(refused(config).to_string().contains("JWT_SECRET, JWT_PUBLIC_KEY_FILE or JWT_JWKS"));
    }

    #[test]
    fn a_configured_user_must_be_able_to_log_in() {
        let with = |name: &str, hash: &str| {
            let mut config = config(AuthMode::Basic);
            config.basic_user = Some((name.to_owned(), hash.to_owned()));
            config
        };
        for name in ["", "a:b", "a\nb", JOB_USERNAME] {
            assert!(matches!(refused(with(name, &quick_hash("x"))), AuthConfigError::BasicUser), "{name:?}");
        }
        let error = refused(with("root", CANARY));
        assert!(matches!(error, AuthConfigError::BasicPassHash(_)));
        assert!(!all_messages(&error).contains(CANARY));
    }
}

#[test]
fn api_tokens_are_recognisable_and_different() {
    let (one, other) = (generate_token().unwrap(), generate_token().unwrap());
    let text = one.expose_secret();
    assert_eq!(text.len(), 46);
    let random = text.strip_prefix(API_TOKEN_PREFIX).unwrap();
    assert!(random.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()));
    assert_ne!(text, other.expose_secret());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_can_move_between_threads() {
    let (authenticator, _) = authenticator(AuthMode::Basic);
    let attempt = async move { ask(&authenticator, &basic("ann", "ann's password"), 0).await };
    assert!(tokio::spawn(attempt).await.unwrap().is_ok());
}

#[test]
fn no_type_shows_its_secret() {
    let mut config = config(AuthMode::Jwt);
    let secret = Some(SecretString::from(CANARY.repeat(2)));
    config.jwt = JwtVerifier::new(JwtKeys { secret, ..JwtKeys::default() }, JwtRules::default()).unwrap();
    let hash = quick_hash(CANARY);
    config.basic_user = Some(("root".to_owned(), hash.clone()));
    let shown_config = format!("{config:?}");
    let authenticator = Authenticator::new(config, Arc::new(Memory::default())).unwrap();
    let user = UserRecord {
        name: "ann".to_owned(),
        password_hash: hash.clone(),
        role: Role::Admin,
        disabled: false,
        unconfirmed: false,
    };
    let password = SecretString::from(CANARY);
    let attempt = PasswordAttempt { name: "ann", password: &password, hash: &hash };
    assert!(!authenticator.passwords().remembers(&attempt, at(0)));
    let shown = format!("{shown_config} {authenticator:?} {user:?} {password:?}");
    let digest = hash.rsplit('$').next().unwrap();
    assert!(!shown.contains(CANARY) && !shown.contains(digest), "{shown}");
}
