//! The rotation of the master key.
//!
//! ```text
//!  key file: old          ── new version first, durable ──> new old ──────────────────────────────────────> new
//!  ring in memory         ──── between two write transactions ──> new old                                      │
//!  records                old old old ── passes: bounded transactions ──> new new new ── count by version = 0 ─┘
//! ```
//!
//! After a crash at any point the key file has every version that a record can name. The next call begins a pass at the first
//! record, seals what still names a former version, and counts.

use std::time::{Duration, Instant};

use super::{Keys, RotateError, RotationState, RotationView, SecretName, Source};
use model::{NewEvent, Time, failpoint};
use secrets::{KeyVersion, MAX_VERSIONS};
use store::{ResealCursor, SealedCount, Store};

/// The time for which one call seals records before it returns.
const PIECE: Duration = Duration::from_secs(1);

/// The position of a pass over the records. It is not stored: a pass that begins again only reads what is already done.
#[derive(Debug, Default)]
pub(super) struct Pass(ResealCursor);

impl Keys {
    pub(super) async fn rotate_master(
        &self,
        pass: &mut Pass,
        from: &str,
        store: &Store,
        now: Time,
    ) -> Result<RotationView, RotateError> {
        let ring = &self.master.ring;
        if ring.in_force().id.to_string() == from {
            self.begin_master(store, now).await?;
            *pass = Pass::default();
        } else if ring.accepted().iter().all(|version| version.id.to_string() != from) {
            return Ok(self.master_view(from, RotationState::Ended, 0));
        }
        let begun = Instant::now();
        let mut resealed = 0;
        loop {
            let batch = store.reseal(pass.0).await?;
            resealed += batch.resealed;
            match batch.next {
                None => break,
                Some(next) => pass.0 = next,
            }
            if begun.elapsed() > PIECE {
                return Ok(self.master_view(from, RotationState::Sealing, resealed));
            }
        }
        *pass = Pass::default();
        let counts = store.sealed_counts().await?;
        let checked = self.prove_unused(&counts)?;
        let mut view = self.master_view(from, RotationState::Ended, resealed);
        view.checked = Some(checked);
        view.next_action = self.next_action(&counts, &view.key_id);
        if matches!(self.master.source, Source::Setting) {
            return Ok(view);
        }
        failpoint::hit("rotate: proved");
        let version = ring.in_force();
        self.master.store(&version, &[])?;
        let removed = ring.clone();
        store.between_writes(move || removed.replace(version, Vec::new())).await?;
        let message = format!(
            "the master key {from} is no longer in use: {checked} records were counted, none names it; {} is in force",
            view.key_id
        );
        append(store, NewEvent::info("secret.rotated", message), now).await?;
        Ok(view)
    }

    /// The next action after a rotation whose records were counted; `None` when there is nothing to do.
    fn next_action(&self, counts: &[SealedCount], in_force: &str) -> Option<String> {
        let (foreign, keys) = foreign_records(counts, in_force);
        let given = matches!(self.master.source, Source::Setting);
        let place = if given { "word of MASTER_KEY" } else { "line of the key file" };
        let lost = format!(
            "{foreign} records name the master key {keys}, which this installation does not have, and cannot be read: add that key as a \
             further {place} and restart the controller, or enter the credentials again"
        );
        let unused =
            "no record names a former version; remove them from MASTER_KEY and restart the controller";
        match (foreign > 0, given) {
            (true, true) => {
                Some(format!("{lost}; no record names another former version: remove those from MASTER_KEY"))
            }
            (true, false) => Some(lost),
            (false, true) => Some(unused.to_owned()),
            (false, false) => None,
        }
    }

    /// Makes a new version and puts it in force.
    async fn begin_master(&self, store: &Store, now: Time) -> Result<(), RotateError> {
        match self.master.source {
            Source::File(_) => {}
            Source::Setting => return Err(RotateError::GivenMasterKey),
            Source::Memory => return Err(RotateError::NotOurs),
        }
        let ring = &self.master.ring;
        let mut accepted = vec![ring.in_force()];
        accepted.extend(ring.accepted());
        if accepted.len() == MAX_VERSIONS {
            return Err(RotateError::TooMany);
        }
        let version = KeyVersion::random(Some(now.timestamp()))?;
        self.master.store(&version, &accepted)?;
        let message =
            format!("the master key {} replaces {}; records are sealed again", version.id, accepted[0].id);
        let shared = ring.clone();
        store.between_writes(move || shared.replace(version, accepted)).await?;
        append(store, NewEvent::info("secret.rotation-began", message), now).await
    }

    /// The number of counted records; none of them names a former version.
    ///
    /// # Errors
    /// [`RotateError::Unreadable`] when records still name one.
    fn prove_unused(&self, counts: &[SealedCount]) -> Result<u64, RotateError> {
        let former: Vec<String> =
            self.master.ring.accepted().iter().map(|version| version.id.to_string()).collect();
        let left: Vec<&SealedCount> = counts.iter().filter(|count| former.contains(&count.key)).collect();
        if left.is_empty() {
            return Ok(counts.iter().map(|count| count.records).sum());
        }
        let places: Vec<String> =
            left.iter().map(|count| format!("{} in {}", count.records, count.place)).collect();
        let records = left.iter().map(|count| count.records).sum();
        Err(RotateError::Unreadable { records, places: places.join(", ") })
    }

    fn master_view(&self, from: &str, state: RotationState, resealed: u64) -> RotationView {
        RotationView {
            name: SecretName::Master,
            state,
            key_id: self.master.ring.in_force().id.to_string(),
            from: from.to_owned(),
            resealed,
            checked: None,
            accepted_until: None,
            next_action: None,
        }
    }
}

/// The number of records that name another key than the one in force, and those keys.
fn foreign_records(counts: &[SealedCount], in_force: &str) -> (u64, String) {
    let foreign: Vec<&SealedCount> =
        counts.iter().filter(|count| !count.key.is_empty() && count.key != in_force).collect();
    let mut keys: Vec<&str> = foreign.iter().map(|count| count.key.as_str()).collect();
    keys.sort_unstable();
    keys.dedup();
    (foreign.iter().map(|count| count.records).sum(), keys.join(", "))
}

async fn append(store: &Store, event: NewEvent, now: Time) -> Result<(), RotateError> {
    Ok(store.append(None, None, vec![event.by("controller")], now).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrets::KeyRing;

    fn count(key: &str, records: u64) -> SealedCount {
        SealedCount { place: "servers.bmc_password".to_owned(), key: key.to_owned(), records }
    }

    #[test]
    fn one_record_of_a_former_version_refutes_that_it_is_unused_and_names_its_place() {
        let (new, old) = (KeyVersion::from_bytes(&[2; 32]), KeyVersion::from_bytes(&[1; 32]));
        let keys = Keys::in_memory(&KeyRing::new(new.clone(), vec![old.clone()]));
        let (new, old) = (new.id.to_string(), old.id.to_string());
        // A record of a version that was lost long ago says nothing about this one.
        let others = [count(&new, 3), count("", 1), count("0000000000000000", 1)];
        assert_eq!(keys.prove_unused(&others).unwrap(), 5);
        assert_eq!(foreign_records(&others, &new), (1, "0000000000000000".to_owned()));
        let why = keys.prove_unused(&[count(&new, 3), count(&old, 1)]).unwrap_err();
        assert!(why.to_string().contains("1 in servers.bmc_password"), "{why}");
    }

    #[test]
    fn records_of_a_key_that_is_lost_are_named_beside_former_versions_that_can_go() {
        let (new, old) = (KeyVersion::from_bytes(&[2; 32]), KeyVersion::from_bytes(&[1; 32]));
        let mut keys = Keys::in_memory(&KeyRing::new(new.clone(), vec![old]));
        let new = new.id.to_string();
        let (clean, lost) = ([count(&new, 3)], [count(&new, 3), count("0000000000000000", 1)]);
        assert_eq!(keys.next_action(&clean, &new), None);
        let text = keys.next_action(&lost, &new).unwrap();
        assert!(text.contains("0000000000000000") && text.contains("line of the key file"), "{text}");
        keys.master.source = Source::Setting;
        let text = keys.next_action(&clean, &new).unwrap();
        assert!(text.contains("remove them from MASTER_KEY"), "{text}");
        let text = keys.next_action(&lost, &new).unwrap();
        assert!(text.contains("0000000000000000") && text.contains("word of MASTER_KEY"), "{text}");
        assert!(text.contains("remove those from MASTER_KEY"), "{text}");
    }
}
