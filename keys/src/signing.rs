//! The signing key: stored sealed in the database, so that a disk without the master key does not contain it.
//!
//! At a rotation the new version signs at once. The former one is accepted until the end of the overlap; one transaction records both.

use super::{Keys, RotateError, RotationState, RotationView, SecretName};
use model::{NewEvent, Time};
use secrecy::{ExposeSecret, SecretString};
use secrets::{KeyRing, KeyVersion};
use store::{Store, StoreError, StoredSigningKey};

/// The ring of the stored versions. The first one is made when there is none.
pub(super) async fn open(store: &Store, now: Time) -> Result<KeyRing, RotateError> {
    let first = stored(&KeyVersion::random(Some(now.timestamp()))?, now);
    let versions = match store.signing_keys(first.clone()).await {
        Err(StoreError::Corrupt { .. }) => {
            tracing::error!(
                "the database was sealed with another master key: credentials and recipes of it cannot be read until that key is put \
                 back as a further line of the key file, or they are entered again; another signing key is made, and issued tokens end"
            );
            store.reset_signing_keys(first.clone()).await?;
            vec![first]
        }
        read => read?,
    };
    let mut versions = versions.into_iter().map(version).collect::<Result<Vec<_>, _>>()?.into_iter();
    let in_force = versions.next().ok_or(RotateError::Busy)?;
    Ok(KeyRing::new(in_force, versions.collect()))
}

fn stored(version: &KeyVersion, now: Time) -> StoredSigningKey {
    StoredSigningKey {
        id: version.id.to_string(),
        key: version.to_hex().expose_secret().to_owned().into(),
        made_at: now,
        until: None,
    }
}

fn version(stored: StoredSigningKey) -> Result<KeyVersion, RotateError> {
    let ring = KeyRing::from_hex(&SecretString::from(stored.key.as_str()))?;
    let mut version = ring.in_force();
    version.made = Some(stored.made_at.timestamp());
    version.until = stored.until.map(Time::timestamp);
    Ok(version)
}

impl Keys {
    pub(super) async fn rotate_signing(
        &self,
        from: &str,
        store: &Store,
        now: Time,
    ) -> Result<RotationView, RotateError> {
        let ring = &self.signing;
        let mut former = ring.in_force();
        if former.id.to_string() == from {
            let until = now.plus(self.signing_overlap);
            let new = KeyVersion::random(Some(now.timestamp()))?;
            let message =
                format!("the signing key {} replaces {from}, which is accepted until {until}", new.id);
            let event = NewEvent::info("secret.rotated", message).by("controller");
            if !store.replace_signing_key(from, until, stored(&new, now), event).await? {
                return Err(RotateError::Busy);
            }
            former.until = Some(until.timestamp());
            let mut accepted = vec![former];
            accepted.extend(ring.accepted());
            ring.replace(new, accepted);
        } else {
            self.remove_ended(store, now).await?;
        }
        let left = ring.accepted().into_iter().find(|version| version.id.to_string() == from);
        Ok(RotationView {
            name: SecretName::Signing,
            state: if left.is_some() { RotationState::Overlap } else { RotationState::Ended },
            key_id: ring.in_force().id.to_string(),
            from: from.to_owned(),
            resealed: 0,
            checked: None,
            accepted_until: left.and_then(|version| version.until).map(Time::from_timestamp),
            next_action: None,
        })
    }

    /// Removes the former versions of the signing key whose time has ended.
    pub(super) async fn remove_ended(&self, store: &Store, now: Time) -> Result<(), RotateError> {
        let ring = &self.signing;
        let before = ring.accepted();
        let ended = |version: &KeyVersion| version.until.is_some_and(|until| until <= now.timestamp());
        if before.iter().any(ended) {
            store.remove_signing_keys(now).await?;
            ring.replace(ring.in_force(), before.into_iter().filter(|version| !ended(version)).collect());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{MasterKeySource, SIGNING_OVERLAP};
    use super::*;
    use settings::{Settings, Sources};

    #[tokio::test]
    async fn no_new_key_is_made_beside_a_database_whose_key_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings::load(&Sources {
            flags: vec![("STORAGE_ROOT".to_owned(), folder.path().display().to_string())],
            environment: &|_| None,
            variables: Vec::new(),
            file: None,
        })
        .unwrap();
        drop(MasterKeySource::open(&settings, None).unwrap());
        drop(Store::open(&settings.db_path, "2026-01-01T00:00:00Z".parse().unwrap()).unwrap());
        drop(MasterKeySource::open(&settings, None).unwrap());
        std::fs::remove_file(settings.master_key_file()).unwrap();
        let refused = MasterKeySource::open(&settings, None).unwrap_err().to_string();
        assert!(refused.contains("put the copy of the key file back"), "{refused}");
        assert!(!settings.master_key_file().exists());
    }

    #[tokio::test]
    async fn the_former_signing_key_is_accepted_as_long_as_a_url_that_it_signed() {
        let now: Time = "2026-01-01T00:00:00Z".parse().unwrap();
        for (ttl, overlap) in [("30m", SIGNING_OVERLAP), ("1d", Duration::from_secs(86_400))] {
            let folder = tempfile::tempdir().unwrap();
            let settings = Settings::load(&Sources {
                flags: vec![
                    ("STORAGE_ROOT".to_owned(), folder.path().display().to_string()),
                    ("MEDIA_URL_TTL".to_owned(), ttl.to_owned()),
                ],
                environment: &|_| None,
                variables: Vec::new(),
                file: None,
            })
            .unwrap();
            let master = MasterKeySource::open(&settings, None).unwrap();
            let store = Store::open(&settings.db_path, now).unwrap();
            let keys = Keys::open(&settings, master, &store, now).await.unwrap();
            let former = keys.signing().in_force().id.to_string();
            let rotated = keys.rotate_signing(&former, &store, now).await.unwrap();
            assert_eq!(rotated.accepted_until, Some(now.plus(overlap)), "{ttl}");
            let last = now.plus(overlap.saturating_sub(Duration::from_secs(1)));
            keys.remove_ended(&store, last).await.unwrap();
            assert_eq!(keys.signing().accepted().len(), 1, "{ttl}");
        }
    }
}
