//! Times of the registry as the API shows them.

use std::time::SystemTime;

use model::Time;

pub(super) fn rfc3339(time: SystemTime) -> Option<String> {
    let stamp = jiff::Timestamp::try_from(time).ok()?;
    Some(Time::from_timestamp(stamp).to_string())
}
