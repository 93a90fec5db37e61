//! Tests of the crate: the key file, sealing, references that show no secret, reproducible tokens.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use secrecy::{ExposeSecret, SecretString};

use super::*;

const CANARY: &str = "canary-in-the-coal-mine";

fn master_key(byte: u8) -> MasterKey {
    MasterKey::from_bytes(&[byte; 32])
}

fn no_environment(_: &str) -> Option<OsString> {
    None
}

fn file_with(directory: &Path, name: &str, content: &[u8]) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, content).unwrap();
    path
}

/// The messages of an error and of its sources, as `Display` and as `Debug`.
fn all_messages(error: &dyn std::error::Error) -> String {
    let mut messages = format!("{error} {error:?}");
    let mut cause = error.source();
    while let Some(error) = cause {
        messages.push_str(&format!(" {error} {error:?}"));
        cause = error.source();
    }
    messages
}

mod master_key_file {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn private(path: &Path) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    #[test]
    fn the_first_start_creates_a_private_key_and_later_starts_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("master.key");
        let made = MasterKey::load_or_create(&path).unwrap();
        let found = MasterKey::load_or_create(&path).unwrap();
        assert_eq!(made.derive("x").tag(&[]), found.derive("x").tag(&[]));
        assert_eq!(mode(&path), 0o600);
        let content = fs::read_to_string(&path).unwrap();
        assert!(
            content.len() == 64 + " made=2026-01-31T12:00:00Z\n".len() && content.ends_with("Z\n"),
            "its form"
        );
        let names: Vec<_> =
            fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["master.key"], "no partial file remains");
    }

    #[test]
    fn two_installations_have_different_keys() {
        let directory = tempfile::tempdir().unwrap();
        let one = MasterKey::load_or_create(&directory.path().join("one")).unwrap();
        let other = MasterKey::load_or_create(&directory.path().join("other")).unwrap();
        assert_ne!(one.derive("x").tag(&[]), other.derive("x").tag(&[]));
    }

    #[test]
    fn processes_started_at_the_same_time_use_one_key() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("master.key");
        let keys: Vec<[u8; 32]> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| MasterKey::load_or_create(&path).unwrap().derive("x").tag(&[])))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]));
    }

    #[test]
    fn a_key_file_readable_by_others_is_refused_with_the_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("master.key");
        MasterKey::load_or_create(&path).unwrap();
        for mode in [0o640, 0o604, 0o660, 0o601] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = MasterKey::load_or_create(&path).unwrap_err();
            assert!(matches!(error, MasterKeyError::ReadableByOthers { .. }), "{error}");
            assert!(error.to_string().contains("chmod 600"));
        }
    }

    #[test]
    fn a_file_without_a_key_is_refused_and_not_changed() {
        let directory = tempfile::tempdir().unwrap();
        let long = "ab".repeat(5000);
        let contents = ["", "abcd\n", &"zz".repeat(32), &"ab".repeat(33), &long, "\u{e4}", CANARY];
        for content in contents {
            let path = file_with(directory.path(), "master.key", content.as_bytes());
            private(&path);
            let error = MasterKey::load_or_create(&path).unwrap_err();
            assert!(matches!(error, MasterKeyError::FileNotAKey { .. }), "{content:?}: {error}");
            assert!(!all_messages(&error).contains(CANARY));
            assert_eq!(fs::read(&path).unwrap(), content.as_bytes());
        }
    }

    #[test]
    fn a_directory_or_device_as_key_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        for path in [directory.path(), Path::new("/dev/zero")] {
            let error = MasterKey::load_or_create(path).unwrap_err();
            assert!(matches!(error, MasterKeyError::NotAFile { .. }), "{error}");
        }
    }

    #[test]
    fn a_missing_directory_is_an_error_that_names_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("absent/master.key");
        let error = MasterKey::load_or_create(&path).unwrap_err();
        assert!(matches!(error, MasterKeyError::Create { .. }), "{error}");
        assert!(error.to_string().contains("absent/master.key"));
    }

    #[test]
    fn hex_text_gives_the_same_key_as_bytes() {
        for text in ["07".repeat(32), format!("{}\n", "07".repeat(32)), "07".repeat(32).to_uppercase()] {
            let key = MasterKey::from_hex(&SecretString::from(text)).unwrap();
            assert_eq!(key.derive("x").tag(&[]), master_key(7).derive("x").tag(&[]));
        }
        let error = MasterKey::from_hex(&SecretString::from(CANARY)).unwrap_err();
        assert!(matches!(error, MasterKeyError::NotAKey { length: 23 }));
        assert!(!all_messages(&error).contains(CANARY));
    }
}

mod derivation {
    use super::*;

    /// The values were computed with another implementation of HMAC-SHA256. A change invalidates every token and every sealed
    /// credential of existing installations.
    #[test]
    fn subkeys_and_tags_never_change() {
        let key = master_key(1).derive("webhook-token");
        assert_eq!(
            hex::encode(key.in_force().1.bytes()),
            "1d7d3162b838e2a2e341691d075542971f9ccbc1badf1a06d8cefaf7ce0f9ecc"
        );
        assert_eq!(
            hex::encode(key.tag(&[b"ab", b"c"])),
            "59986624098460035f90cffbd7d1cc53b5267c62b0a95a6219ccf680708bb619"
        );
    }

    #[test]
    fn different_purposes_give_different_keys() {
        let master = master_key(1);
        assert_ne!(master.derive("a").tag(&[b"m"]), master.derive("b").tag(&[b"m"]));
    }

    #[test]
    fn borders_between_parts_change_the_tag() {
        let key = master_key(1).derive("x");
        assert_ne!(key.tag(&[b"ab", b"c"]), key.tag(&[b"a", b"bc"]));
        assert_ne!(key.tag(&[b"ab"]), key.tag(&[b"ab", b""]));
    }

    /// RFC 4231, test cases 1 and 6 (a key longer than a block).
    #[test]
    fn hmac_equals_the_test_vectors_of_rfc_4231() {
        assert_eq!(
            hex::encode(hmac_sha256(&[0x0b; 20], b"Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
        );
        assert_eq!(
            hex::encode(hmac_sha256(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }
}

mod sealing {
    use super::*;

    #[test]
    fn a_sealed_secret_opens_under_its_key_and_context() {
        let key = master_key(1).derive("seal");
        let sealed = seal(&key, "SN-1", CANARY.as_bytes()).unwrap();
        assert!(sealed.starts_with("sealed:v1:"));
        assert!(!sealed.contains(CANARY));
        assert_eq!(open(&key, "SN-1", &sealed).unwrap().as_slice(), CANARY.as_bytes());
    }

    #[test]
    fn sealing_a_secret_twice_gives_different_texts() {
        let key = master_key(1).derive("seal");
        assert_ne!(seal(&key, "SN-1", b"x").unwrap(), seal(&key, "SN-1", b"x").unwrap());
    }

    #[test]
    fn another_key_or_another_server_is_refused_with_the_remedy() {
        let key = master_key(1).derive("seal");
        let sealed = seal(&key, "SN-1", b"secret").unwrap();
        let other_key = open(&master_key(2).derive("seal"), "SN-1", &sealed).unwrap_err();
        let other_server = open(&key, "SN-2", &sealed).unwrap_err();
        assert_eq!(other_server, OpenError::Refused);
        assert_eq!(other_key, OpenError::UnknownKey { needs: master_key(1).in_force().id });
        assert!(other_key.to_string().contains("enter the credential again"));
    }

    #[test]
    fn every_altered_character_is_detected() {
        let key = master_key(1).derive("seal");
        let sealed = seal(&key, "SN-1", b"secret").unwrap();
        let text = SEALED_PREFIX.len() + 17;
        for position in SEALED_PREFIX.len()..sealed.len() {
            let mut altered = sealed.clone().into_bytes();
            let (one, other) = if position < text { (b'1', b'2') } else { (b'A', b'B') };
            altered[position] = if altered[position] == one { other } else { one };
            assert!(open(&key, "SN-1", str::from_utf8(&altered).unwrap()).is_err(), "position {position}");
        }
        for length in 0..sealed.len() {
            assert!(open(&key, "SN-1", &sealed[..length]).is_err(), "cut to {length}");
        }
    }

    #[test]
    fn texts_that_are_not_sealed_newer_or_malformed_have_distinct_errors() {
        let key = master_key(1).derive("seal");
        assert_eq!(open(&key, "", "hunter2").unwrap_err(), OpenError::NotSealed);
        assert_eq!(open(&key, "", "sealed:v2:AAAA").unwrap_err(), OpenError::UnknownVersion);
        assert_eq!(open(&key, "", "sealed:v1:@@@").unwrap_err(), OpenError::Malformed);
        let huge = format!("sealed:v1:{}:{}", master_key(1).in_force().id, "A".repeat(1 << 20));
        assert_eq!(open(&key, "", &huge).unwrap_err(), OpenError::Malformed);
    }

    #[test]
    fn the_longest_secret_fits_and_one_byte_more_does_not() {
        let key = master_key(1).derive("seal");
        let longest = vec![b'x'; MAX_SECRET_BYTES];
        let sealed = seal(&key, "SN-1", &longest).unwrap();
        assert_eq!(open(&key, "SN-1", &sealed).unwrap().len(), MAX_SECRET_BYTES);
        assert!(matches!(seal(&key, "SN-1", &[longest, vec![0]].concat()), Err(SealError::TooLong { .. })));
    }

    #[test]
    fn a_document_may_be_longer_than_a_secret() {
        let key = master_key(1).derive("seal");
        let document = vec![b'x'; 2 * MAX_SECRET_BYTES];
        let sealed = seal_document(&key, "SN-1", &document).unwrap();
        assert_eq!(*open_document(&key, "SN-1", &sealed).unwrap(), document);
        assert_eq!(open_document(&key, "SN-2", &sealed).unwrap_err(), OpenError::Refused);
        assert_eq!(open(&key, "SN-1", &sealed).unwrap_err(), OpenError::Malformed);
    }

    /// The test vector of draft-irtf-cfrg-xchacha, appendix A.3.1, with the cipher of this crate.
    #[test]
    fn the_cipher_is_xchacha20_poly1305() {
        use chacha20poly1305::aead::{Aead, KeyInit, Payload};
        let key: Vec<u8> = (0x80..=0x9f).collect();
        let nonce: Vec<u8> = (0x40..=0x57).collect();
        let aad = hex::decode("50515253c0c1c2c3c4c5c6c7").unwrap();
        let message = b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip \
              for the future, sunscreen would be it.";
        let cipher = chacha20poly1305::XChaCha20Poly1305::new_from_slice(&key).unwrap();
        let nonce = chacha20poly1305::XNonce::from_slice(&nonce);
        let sealed = cipher.encrypt(nonce, Payload { msg: message, aad: &aad }).unwrap();
        assert_eq!(hex::encode(&sealed[message.len()..]), "c0875924c1c7987947deafd8780acf49");
    }

    proptest! {
        #[test]
        fn every_sealed_secret_opens_to_its_bytes(
            context in ".{0,40}",
            secret in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let key = master_key(3).derive("seal");
            let sealed = seal(&key, &context, &secret).unwrap();
            prop_assert_eq!(open(&key, &context, &sealed).unwrap().to_vec(), secret);
        }

        #[test]
        fn opening_any_text_never_panics(text in "(sealed:(v1:)?)?.{0,80}") {
            prop_assert!(open(&master_key(3).derive("seal"), "SN", &text).is_err());
        }
    }
}

mod references {
    use super::*;

    #[test]
    fn a_parsed_reference_is_displayed_unchanged() {
        for text in ["sealed:v1:abc", "env:BMC_PASSWORD", "file:/run/secrets/bmc", "env:_x9"] {
            assert_eq!(text.parse::<CredentialRef>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_text_that_is_no_reference_is_refused_and_not_repeated() {
        let cases = [
            (CANARY.to_owned(), CredentialRefError::NotAReference),
            (String::new(), CredentialRefError::NotAReference),
            ("Env:HOME".to_owned(), CredentialRefError::NotAReference),
            (format!("env:{CANARY}"), CredentialRefError::BadVariable),
            ("env:".to_owned(), CredentialRefError::BadVariable),
            ("env:9A".to_owned(), CredentialRefError::BadVariable),
            ("env:A=B".to_owned(), CredentialRefError::BadVariable),
            (format!("file:{CANARY}"), CredentialRefError::BadPath),
            ("file:".to_owned(), CredentialRefError::BadPath),
            ("file:/a\0b".to_owned(), CredentialRefError::BadPath),
        ];
        for (text, expected) in cases {
            let error = text.parse::<CredentialRef>().unwrap_err();
            assert_eq!(error, expected, "{text:?}");
            assert!(!all_messages(&error).contains(CANARY));
        }
    }

    #[test]
    fn a_sealed_credential_opens_for_its_server_only() {
        let resolver = Resolver::with_environment(&master_key(1), no_environment);
        let reference = resolver.seal("SN-1", &SecretString::from(CANARY)).unwrap();
        let stored: CredentialRef = reference.to_string().parse().unwrap();
        assert_eq!(resolver.resolve(&stored, "SN-1").unwrap().expose_secret(), CANARY);
        let error = resolver.resolve(&stored, "SN-2").unwrap_err();
        assert!(error.to_string().contains("enter the credential again"), "{error}");
        let restarted = Resolver::with_environment(&master_key(1), no_environment);
        assert_eq!(restarted.resolve(&stored, "SN-1").unwrap().expose_secret(), CANARY);
    }

    #[test]
    fn variables_are_read_unchanged_and_errors_name_them() {
        let resolver = Resolver::with_environment(&master_key(1), |name| match name {
            "GOOD" => Some(OsString::from(" secret\n")),
            "EMPTY" => Some(OsString::new()),
            "BINARY" => Some(OsString::from_vec(vec![0xff, 0xfe])),
            _ => None,
        });
        let read = |name: &str| resolver.resolve(&CredentialRef::Env(name.to_owned()), "SN");
        assert_eq!(read("GOOD").unwrap().expose_secret(), " secret\n");
        for (name, words) in [("ABSENT", "not set"), ("EMPTY", "empty"), ("BINARY", "not UTF-8")] {
            let message = read(name).unwrap_err().to_string();
            assert!(message.contains(&format!("env:{name}")) && message.contains(words), "{message}");
        }
    }

    #[test]
    fn the_default_resolver_reads_the_environment_of_the_process() {
        let resolver = Resolver::new(&master_key(1));
        let path = resolver.resolve(&CredentialRef::Env("PATH".to_owned()), "SN").unwrap();
        assert_eq!(path.expose_secret(), std::env::var("PATH").unwrap());
    }

    #[test]
    fn one_trailing_newline_of_a_file_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let resolver = Resolver::with_environment(&master_key(1), no_environment);
        let cases: [(&[u8], &str); 5] =
            [(b"pw", "pw"), (b"pw\n", "pw"), (b"pw\r\n", "pw"), (b"pw\n\n", "pw\n"), (b" pw \n", " pw ")];
        for (content, expected) in cases {
            let path = file_with(directory.path(), "pw", content);
            let secret = resolver.resolve(&CredentialRef::File(path), "SN").unwrap();
            assert_eq!(secret.expose_secret(), expected);
        }
    }

    #[test]
    fn errors_of_secret_files_name_the_file_and_not_its_content() {
        let directory = tempfile::tempdir().unwrap();
        let resolver = Resolver::with_environment(&master_key(1), no_environment);
        let read = |path: PathBuf| resolver.resolve(&CredentialRef::File(path), "SN").unwrap_err();
        let long = CANARY.repeat(MAX_SECRET_BYTES / CANARY.len() + 1);
        let binary = [CANARY.as_bytes(), &[0xff]].concat();
        let cases: [(&[u8], &str); 4] =
            [(b"", "empty"), (b"\n", "empty"), (&binary, "not UTF-8"), (long.as_bytes(), "longer than")];
        for (content, words) in cases {
            let error = read(file_with(directory.path(), "bmc-password", content));
            let messages = all_messages(&error);
            assert!(messages.contains("bmc-password") && messages.contains(words), "{messages}");
            assert!(!messages.contains(CANARY));
        }
        assert!(read(directory.path().join("absent")).to_string().contains("absent"));
        assert!(read(directory.path().to_owned()).to_string().contains("not a regular file"));
        assert!(read(PathBuf::from("/dev/zero")).to_string().contains("not a regular file"));
    }

    #[test]
    fn a_file_with_the_longest_secret_may_end_with_a_newline() {
        let directory = tempfile::tempdir().unwrap();
        let resolver = Resolver::with_environment(&master_key(1), no_environment);
        let longest = "x".repeat(MAX_SECRET_BYTES);
        for ending in ["", "\n", "\r\n"] {
            let path = file_with(directory.path(), "long", format!("{longest}{ending}").as_bytes());
            let secret = resolver.resolve(&CredentialRef::File(path), "SN").unwrap();
            assert_eq!(secret.expose_secret().len(), MAX_SECRET_BYTES);
        }
    }

    proptest! {
        #[test]
        fn reading_any_reference_never_panics(text in "((sealed|env|file):)?.{0,60}") {
            if let Ok(reference) = text.parse::<CredentialRef>() {
                prop_assert_eq!(reference.to_string(), text.as_str());
            }
            let _either = text.parse::<SecretSource>().is_ok();
        }
    }
}

mod settings {
    use super::*;

    fn environment(name: &str) -> Option<OsString> {
        (name == "HOOK").then(|| OsString::from("from the environment"))
    }

    #[test]
    fn a_secret_setting_is_a_variable_a_file_or_a_literal() {
        let directory = tempfile::tempdir().unwrap();
        let path = file_with(directory.path(), "hook", b"from the file\n");
        let file = format!("file:{}", path.display());
        let cases = [("env:HOOK", "from the environment"), (&file, "from the file"), ("it:self", "it:self")];
        for (text, expected) in cases {
            let source: SecretSource = text.parse().unwrap();
            assert_eq!(source.load(&environment).unwrap().expose_secret(), expected);
        }
    }

    #[test]
    fn a_malformed_secret_setting_is_refused_and_not_repeated() {
        let long = "x".repeat(MAX_SECRET_BYTES + 1);
        let cases = [
            ("", SecretSourceError::Empty),
            ("env:canary-in-the-coal-mine", SecretSourceError::BadVariable),
            ("file:", SecretSourceError::BadPath),
            (&long, SecretSourceError::TooLong),
        ];
        for (text, expected) in cases {
            let error = text.parse::<SecretSource>().unwrap_err();
            assert_eq!(error, expected);
            assert!(!all_messages(&error).contains(CANARY));
        }
    }

    #[test]
    fn a_description_shows_the_source_and_never_the_secret() {
        let show = |text: &str| text.parse::<SecretSource>().unwrap().describe();
        assert_eq!(show("env:HOOK"), "env:HOOK");
        assert_eq!(show("file:/etc/hook"), "file:/etc/hook");
        assert_eq!(show(CANARY), "(redacted)");
    }

    #[test]
    fn sources_are_compared_by_kind_and_content() {
        let parse = |text: &str| text.parse::<SecretSource>().unwrap();
        assert_eq!(parse("a"), parse("a"));
        assert_ne!(parse("a"), parse("b"));
        assert_ne!(parse("env:A"), parse("A"));
        assert_ne!(parse("file:a"), parse("file:b"));
    }
}

mod tokens {
    use super::*;

    const JOB: &str = "0198c0de-0000-7000-8000-000000000001";

    fn text(secret: &SecretString) -> String {
        secret.expose_secret().to_owned()
    }

    /// The values were computed with another implementation. A change breaks the media and reports of running jobs.
    #[test]
    fn derived_tokens_never_change() {
        let tokens = JobTokens::new(&TokenSeeds::new(&master_key(1)).seed(JOB));
        assert_eq!(text(&tokens.report_token(JOB)), "ijg3gavfpqfgqt6svlr6svdnhiqebn6k");
        assert_eq!(text(&tokens.pull_password(JOB)), "cfc7amct6plxmuufwqafdpzlqlajln4r");
        assert_eq!(
            text(&tokens.grant_token(JOB, "task sha256:00", "dual", 1)),
            "hkhxhhlsmkv5c2zlrua73sjwsgkgpokh"
        );
    }

    #[test]
    fn tokens_fit_into_the_path_of_a_media_url() {
        let tokens = JobTokens::new(&TokenSeeds::new(&master_key(1)).seed(JOB));
        for job in 0..200 {
            let token = text(&tokens.report_token(&job.to_string()));
            assert_eq!(token.len(), 32);
            assert!(token.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()));
        }
    }

    #[test]
    fn every_input_changes_the_token() {
        let tokens = JobTokens::new(&TokenSeeds::new(&master_key(1)).seed(JOB));
        let all = [
            tokens.report_token(JOB),
            tokens.report_token("another job"),
            tokens.pull_password(JOB),
            tokens.grant_token(JOB, "task a", "dual", 1),
            tokens.grant_token("another job", "task a", "dual", 1),
            tokens.grant_token(JOB, "task b", "dual", 1),
            tokens.grant_token(JOB, "task a", "single", 1),
            tokens.grant_token(JOB, "task a", "dual", 2),
            JobTokens::new(&TokenSeeds::new(&master_key(2)).seed(JOB)).report_token(JOB),
        ];
        let distinct: std::collections::BTreeSet<String> = all.iter().map(text).collect();
        assert_eq!(distinct.len(), all.len());
    }

    /// The test vectors of RFC 4648 section 10, in lower case.
    #[test]
    fn base32_equals_the_test_vectors_of_rfc_4648() {
        assert_eq!(base32_lower(b"fooba").expose_secret(), "mzxw6ytb");
        assert_eq!(base32_lower(&[0xff; 5]).expose_secret(), "77777777");
        assert_eq!(base32_lower(b"").expose_secret(), "");
    }

    #[test]
    fn a_token_matches_its_stored_hash_and_no_other() {
        let hash = token_hash("abc");
        assert_eq!(hash, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert!(token_matches("abc", &hash));
        assert!(!token_matches("abd", &hash));
        assert!(!token_matches("", &hash));
    }

    #[test]
    fn a_stored_text_that_is_no_hash_matches_no_token() {
        for stored in ["", "abc", "zz", &"0".repeat(64), &"0".repeat(66)] {
            assert!(!token_matches("abc", stored), "{stored:?}");
        }
    }

    #[test]
    fn only_equal_secrets_compare_as_equal() {
        assert!(same_secret("one", "one"));
        assert!(!same_secret("one", "on"));
        assert!(!same_secret("one", "One"));
    }
}

mod rotation {
    use super::*;

    fn version(byte: u8) -> KeyVersion {
        KeyVersion::from_bytes(&[byte; 32])
    }

    fn with_times(
        mut version: KeyVersion,
        made: Option<jiff::Timestamp>,
        until: Option<jiff::Timestamp>,
    ) -> KeyVersion {
        (version.made, version.until) = (made, until);
        version
    }

    #[test]
    fn the_id_of_a_key_never_changes() {
        assert_eq!(version(1).id.to_string(), "2ec8888f71784180");
        assert_eq!("2ec8888f71784180".parse(), Ok(version(1).id));
        for text in ["", "2ec8888f717841800", "zz", &"A".repeat(16)] {
            assert_eq!(text.parse::<KeyId>(), Err(NotAKeyId), "{text:?}");
        }
    }

    #[test]
    fn a_rotated_ring_seals_with_the_new_version_and_opens_what_the_former_ones_sealed() {
        let ring = KeyRing::from_bytes(&[1; 32]);
        let key = ring.derive("seal");
        let before = seal(&key, "SN-1", b"secret").unwrap();
        ring.replace(version(2), vec![version(1)]);
        let after = seal(&key, "SN-1", b"secret").unwrap();
        assert_eq!(sealed_with(&before), Some(version(1).id));
        assert_eq!(sealed_with(&after), Some(version(2).id));
        let again = reseal(&key, "SN-1", &before).unwrap().unwrap();
        assert_eq!(sealed_with(&again), Some(version(2).id));
        for text in [&before, &after, &again] {
            assert_eq!(open(&key, "SN-1", text).unwrap().as_slice(), b"secret");
        }
        assert_eq!(reseal(&key, "SN-1", &again).unwrap(), None, "it is sealed with the version in force");
        assert_eq!(reseal(&key, "SN-1", "env:NAME").unwrap(), None);
        assert!(reseal(&key, "SN-2", &before).is_err(), "the context still binds");
        ring.replace(version(2), Vec::new());
        assert!(open(&key, "SN-1", &before).is_ok(), "what was read before the removal is opened");
        assert_eq!(sealed_with(&seal(&key, "SN-1", b"x").unwrap()), Some(version(2).id));
        let restarted = KeyRing::from_bytes(&[2; 32]).derive("seal");
        let why = open(&restarted, "SN-1", &before).unwrap_err();
        assert_eq!(why, OpenError::UnknownKey { needs: version(1).id });
        assert!(why.to_string().contains(&version(1).id.to_string()), "{why}");
    }

    #[test]
    fn a_former_version_signs_nothing_and_is_accepted_until_its_end() {
        let now = jiff::Timestamp::from_second(1000).unwrap();
        let later = jiff::Timestamp::from_second(1001).unwrap();
        let ring = KeyRing::from_bytes(&[1; 32]);
        let key = ring.derive("x");
        let before = key.tag(&[b"m"]);
        ring.replace(version(2), vec![with_times(version(1), None, Some(later))]);
        assert_ne!(key.tag(&[b"m"]), before);
        assert_eq!(key.tags(&[b"m"], now), [key.tag(&[b"m"]), before]);
        assert_eq!(key.tags(&[b"m"], later), [key.tag(&[b"m"])]);
    }

    #[test]
    fn a_key_file_is_read_as_it_was_written_and_stays_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("master.key");
        let made = Some("2026-01-31T12:00:00Z".parse().unwrap());
        let (new, old) = (with_times(version(2), made, None), with_times(version(1), None, made));
        let points = std::cell::RefCell::new(Vec::new());
        let reached = |point: &str| points.borrow_mut().push(point.to_owned());
        replace_key_file(&path, &new, std::slice::from_ref(&old), &reached).unwrap();
        assert_eq!(points.borrow().len(), 4);
        let ring = KeyRing::load(&path).unwrap().unwrap();
        assert_eq!((ring.in_force().id, ring.in_force().made), (new.id, made));
        let accepted = ring.accepted();
        assert_eq!((accepted.len(), accepted[0].id, accepted[0].until), (1, old.id, made));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!format!("{ring:?} {new:?} {:?}", ring.derive("x")).contains("0202"));
        let all: Vec<KeyVersion> = (3..=2 + MAX_VERSIONS as u8).map(version).collect();
        let times = |version: &KeyVersion| with_times(version.clone(), made, made);
        let all: Vec<KeyVersion> = all.iter().map(times).collect();
        replace_key_file(&path, &all[0], &all[1..], &|_| {}).unwrap();
        assert_eq!(
            KeyRing::load(&path).unwrap().unwrap().accepted().len(),
            MAX_VERSIONS - 1,
            "the longest fits"
        );
    }

    #[test]
    fn a_setting_with_two_keys_has_the_first_in_force() {
        let both = format!("{} {}", "02".repeat(32), "01".repeat(32));
        let ring = MasterKey::from_hex(&SecretString::from(both)).unwrap();
        assert_eq!((ring.in_force().id, ring.accepted()[0].id), (version(2).id, version(1).id));
        for refused in [format!("{0} {0}", "02".repeat(32)), "made=2026-01-31T12:00:00Z".to_owned()] {
            assert!(MasterKey::from_hex(&SecretString::from(refused)).is_err());
        }
    }
}

#[test]
fn no_type_shows_its_secret() {
    let key_hex = SecretString::from(hex::encode([0xca; 32]));
    let master = MasterKey::from_hex(&key_hex).unwrap();
    let resolver = Resolver::new(&master);
    let sealed = resolver.seal("SN", &SecretString::from(CANARY)).unwrap();
    let literal: SecretSource = CANARY.parse().unwrap();
    let shown = format!(
        "{master:?} {:?} {:?} {resolver:?} {sealed:?} {literal:?} {:#?}",
        master.derive("x"),
        (TokenSeeds::new(&master), TokenSeeds::new(&master).seed("x"), master.in_force()),
        literal.load(&no_environment).unwrap(),
    );
    let ciphertext = sealed.to_string();
    let forbidden = [CANARY, "cacaca", "202, 202", ciphertext.trim_start_matches(SEALED_PREFIX)];
    assert!(forbidden.iter().all(|text| !shown.contains(text)), "{shown}");
}
