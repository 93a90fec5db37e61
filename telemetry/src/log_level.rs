//! The log filter of the process, and its change while the process runs.
//!
//! ```text
//!   LOG_LEVEL at the start ──> in force <── a reload (SIGHUP): LOG_LEVEL of the settings, which ends a change
//!                                 ^
//!                                 `── a change by an administrator: until it is taken back, a reload, or the end of the process
//! ```
//!
//! Invariant: a filter that cannot be read changes nothing.

use std::fmt;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::log_filter::{LogsError, SetFilter, parse};

/// The filter of the process. Log lines are global like standard error.
static LEVEL: OnceLock<Arc<FilterInForce>> = OnceLock::new();

/// The origin of the filter in force.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LogLevelOrigin {
    /// The setting `LOG_LEVEL`.
    Setting,
    /// A change while the process runs.
    Change,
}

/// The filter in force.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LogLevel {
    /// The filter.
    pub filter: String,
    /// The origin of the filter.
    pub origin: LogLevelOrigin,
    /// The filter of the setting.
    pub setting: String,
}

/// The filter of the subscriber, with its text and its origin.
pub(super) struct FilterInForce {
    set: SetFilter,
    now: Mutex<LogLevel>,
}

impl FilterInForce {
    pub(super) fn new(set: SetFilter, setting: &str) -> Self {
        let setting = setting.to_owned();
        let now = LogLevel { filter: setting.clone(), origin: LogLevelOrigin::Setting, setting };
        Self { set, now: Mutex::new(now) }
    }

    /// Makes this the filter of the process.
    pub(super) fn install(self: &Arc<Self>) {
        let _of_first_call = LEVEL.set(Arc::clone(self));
    }

    /// Puts the filter of the setting in force.
    pub(super) fn reload(&self, setting: &str) -> Result<(), LogsError> {
        let mut now = self.now.lock();
        (self.set)(parse(setting)?).map_err(LogsError::Reload)?;
        let setting = setting.to_owned();
        *now = LogLevel { filter: setting.clone(), origin: LogLevelOrigin::Setting, setting };
        Ok(())
    }

    fn change(&self, filter: Option<&str>) -> Result<LogLevel, LogsError> {
        let mut now = self.now.lock();
        let (wanted, origin) = match filter {
            Some(filter) => (filter.to_owned(), LogLevelOrigin::Change),
            None => (now.setting.clone(), LogLevelOrigin::Setting),
        };
        (self.set)(parse(&wanted)?).map_err(LogsError::Reload)?;
        *now = LogLevel { filter: wanted, origin, setting: now.setting.clone() };
        Ok(now.clone())
    }
}

impl fmt::Debug for FilterInForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FilterInForce").field(&*self.now.lock()).finish()
    }
}

/// The filter in force; `None` in a process whose log was not initialised.
pub fn log_level() -> Option<LogLevel> {
    Some(LEVEL.get()?.now.lock().clone())
}

/// Changes the filter until the next reload; `None` returns to that of the setting. Returns the filter in force, and nothing in a
/// process whose log was not initialised.
///
/// # Errors
/// [`LogsError`] when the filter is malformed; the former one stays in force.
pub fn set_log_level(filter: Option<&str>) -> Result<Option<LogLevel>, LogsError> {
    LEVEL.get().map(|level| level.change(filter)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_lasts_until_it_is_taken_back_or_the_settings_are_reloaded() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let filters = Arc::clone(&seen);
        let level = FilterInForce::new(
            Box::new(move |filter| {
                filters.lock().push(filter.to_string());
                Ok(())
            }),
            "info",
        );
        let changed = level.change(Some("debug")).unwrap();
        assert_eq!((changed.filter.as_str(), changed.origin), ("debug", LogLevelOrigin::Change));
        assert_eq!(changed.setting, "info");
        assert!(level.change(Some("engine=noisy")).is_err());
        assert_eq!(*level.now.lock(), changed, "a malformed filter changes nothing");
        assert_eq!(level.change(None).unwrap().filter, "info");
        level.change(Some("trace")).unwrap();
        level.reload("warn").unwrap();
        assert_eq!(level.now.lock().origin, LogLevelOrigin::Setting);
        let seen = seen.lock();
        assert_eq!(seen.len(), 4);
        assert!(seen[3].contains("warn") && seen[3].contains("requested=info"), "{seen:?}");
    }
}
