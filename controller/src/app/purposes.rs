//! Each secret of the settings has one purpose. A secret with two could be read where one of them is known and used for the other.

use secrecy::{ExposeSecret, SecretString};

use super::{StartError, load, setting};
use secrets::same_secret;
use settings::Settings;

/// Refuses settings in which two secrets of different purposes are equal.
///
/// # Errors
/// When two are equal, or one cannot be read. The error names the settings and not the secret.
pub(super) fn check(settings: &Settings) -> Result<(), StartError> {
    let secrets = [
        ("the master key", "MASTER_KEY", &settings.master_key),
        ("logins", "JWT_SECRET", &settings.jwt_secret),
        ("reports", "WEBHOOK_SECRET", &settings.webhook_secret),
        ("reports", "WEBHOOK_SECRET_OLD", &settings.webhook_secret_old),
        ("the registry of backups", "BACKUP_REGISTRY_PASSWORD", &settings.backup_registry_password),
    ];
    let mut seen: Vec<(&str, &str, SecretString)> = Vec::new();
    for (purpose, name, source) in secrets {
        let Some(secret) = load("read the secrets of the settings", source)? else { continue };
        let equal = |(other, _, kept): &&(&str, &str, SecretString)| {
            *other != purpose && same_secret(kept.expose_secret(), secret.expose_secret())
        };
        if let Some((_, other, _)) = seen.iter().find(equal) {
            let why = format!("{other} and {name} are equal; create another secret for one of them");
            return Err(setting("give each secret one purpose")(why));
        }
        seen.push((purpose, name, secret));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use settings::Sources;

    fn settings(secrets: &[(&str, &str)]) -> Settings {
        let environment = |name: &str| {
            secrets.iter().find(|(given, _)| *given == name).map(|(_, text)| OsString::from(text))
        };
        let sources =
            Sources { flags: Vec::new(), environment: &environment, variables: Vec::new(), file: None };
        Settings::load(&sources).unwrap()
    }

    #[test]
    fn a_secret_with_two_purposes_is_refused_by_the_names_of_its_settings() {
        const CANARY: &str = "canary-canary-canary-canary-canary";
        let jwt = ("AUTH_MODE", "jwt");
        let error = check(&settings(&[jwt, ("JWT_SECRET", CANARY), ("WEBHOOK_SECRET", CANARY)])).unwrap_err();
        let said = model::error_chain(&error).to_string();
        assert!(said.contains("JWT_SECRET") && said.contains("WEBHOOK_SECRET"), "{said}");
        assert!(!said.contains("canary"), "{said}");
        check(&settings(&[("WEBHOOK_SECRET_OLD", CANARY), ("WEBHOOK_SECRET", CANARY)])).unwrap();
        check(&settings(&[jwt, ("JWT_SECRET", CANARY), ("WEBHOOK_SECRET", "another")])).unwrap();
    }
}
