//! Selects the host among several systems, and finds its managers.
//!
//! ```text
//!   given path > expected serial or service tag > named by the profile > the only system with the properties of a host
//! ```
//!
//! A system that the profile names is read first; if it shows the expected serial number, the collection is not read.

use super::OPERATION;
use super::found::{SerialMatch, SystemInfo, SystemSelector, serial_of};
use crate::collection::Member;
use crate::error::{ErrorKind, RedfishError};
use crate::exchange::Core;
use crate::json::{self, Resource, last_segment};
use crate::profile::Profile;

const MAX_MANAGERS: usize = 4;
const MAX_CHASSIS: usize = 4;

impl Core {
    pub(super) async fn find_system(
        &self,
        root: &Resource,
        selector: &SystemSelector,
    ) -> Result<Resource, RedfishError> {
        let Some(collection) = json::link(&root.fields, "Systems") else {
            return Err(RedfishError::not_supported(OPERATION, "the service root has no Systems"));
        };
        if let Some(uri) = selector.uri.as_deref().and_then(json::path_of) {
            return self.read(OPERATION, &uri).await;
        }
        if let Some(named) = self.expected_at_once(&collection, selector).await {
            return Ok(named);
        }
        let mut members = self.members(OPERATION, &collection).await?;
        if members.len() == 1 {
            return self.contents(OPERATION, members.remove(0)).await;
        }
        if let Some(named) = self.named_by_profile(&mut members, selector).await {
            return Ok(named);
        }
        // One of several systems may fail as long as the host is off, such as an accelerator board. Each is read once
        // without retries; failed ones are read again only if no other system is the host.
        let (mut systems, mut failed) = (Vec::new(), Vec::new());
        // Boards are read last, and only if no other system is the host with the expected serial number.
        let (boards, others): (Vec<Member>, Vec<Member>) =
            members.into_iter().partition(|member| is_named_like_a_board(last_segment(&member.path)));
        let others_len = others.len();
        for (at, member) in others.into_iter().chain(boards).enumerate() {
            if at == others_len && failed.is_empty() {
                let profile = self.profile();
                let expected = |system: &&Resource| is_expected_host(system, selector, &profile);
                if let [host] = systems.iter().filter(expected).collect::<Vec<_>>()[..] {
                    return Ok(host.clone());
                }
            }
            let path = member.path.clone();
            match self.read_member_once(member).await {
                Ok(system) => systems.push(system),
                Err(error) if error.is_transient() || error.status().is_some() => failed.push(path),
                Err(error) => return Err(error),
            }
        }
        let profile = self.profile();
        if let Some(host) = choose(&systems, selector, &profile) {
            return Ok(systems.swap_remove(host));
        }
        for member in failed {
            systems.push(self.read(OPERATION, &member).await?);
        }
        if let Some(host) = choose(&systems, selector, &profile) {
            return Ok(systems.swap_remove(host));
        }
        let kind = if systems.is_empty() {
            ErrorKind::BadAnswer { detail: "the collection of systems is empty".to_owned(), lasting: false }
        } else {
            let paths: Vec<&str> = systems.iter().map(|system| system.path.as_str()).collect();
            let detail =
                format!("several systems, and which one is the host is not certain: {}", paths.join(", "));
            ErrorKind::Config { detail }
        };
        Err(RedfishError::new(OPERATION, kind))
    }

    /// Reads the first system the profile names without a read of the collection. Returns `None` unless it shows the expected
    /// serial number; then the collection is read.
    async fn expected_at_once(&self, collection: &str, selector: &SystemSelector) -> Option<Resource> {
        let profile = self.profile();
        let (name, expected) = (profile.system_select.first()?, selector.serial.as_deref()?);
        let path = json::path_of(&format!("{}/{name}", collection.trim_end_matches('/')))?;
        let system = self.read_member_once(Member { path, resource: None }).await.ok()?;
        let verdict = SystemInfo::of(&system, &profile).matches_serial(expected);
        (verdict == SerialMatch::Match).then_some(system)
    }

    /// Reads only the system the profile names, because others may be slow or fail. Returns `None` when its serial
    /// number is not the expected one; then all systems are read.
    async fn named_by_profile(&self, members: &mut [Member], selector: &SystemSelector) -> Option<Resource> {
        let profile = self.profile();
        let at = profile.system_select.iter().find_map(|name| {
            members.iter().position(|member| last_segment(&member.path).eq_ignore_ascii_case(name))
        })?;
        let named = &mut members[at];
        let member = Member { path: named.path.clone(), resource: named.resource.clone() };
        let system = self.read_member_once(member).await.ok()?;
        let info = SystemInfo::of(&system, &profile);
        let serial = selector.serial.as_deref();
        let other = serial.is_some_and(|serial| info.matches_serial(serial) == SerialMatch::Mismatch);
        if !other {
            return Some(system);
        }
        named.resource = Some(system);
        None
    }

    async fn read_member_once(&self, member: Member) -> Result<Resource, RedfishError> {
        match member.resource {
            Some(resource) => Ok(resource),
            None => {
                let response = self.read_once(OPERATION, &member.path).await?;
                let resource = self.resource(OPERATION, &response)?;
                self.cache.insert(&member.path, &resource);
                Ok(resource)
            }
        }
    }

    /// Takes the serial number of a chassis when the system shows none: the expected one if a chassis has it. A different
    /// one proves nothing, since a chassis may be a shared enclosure or invented by an emulator.
    pub(super) async fn complete_serial(
        &self,
        system: &Resource,
        info: &mut SystemInfo,
        selector: &SystemSelector,
    ) -> Result<(), RedfishError> {
        let expected = selector.serial.as_deref();
        let known = expected.is_some_and(|serial| info.matches_serial(serial) == SerialMatch::Match);
        if info.serial.is_some() || known || (expected.is_none() && info.service_tag.is_some()) {
            return Ok(());
        }
        let links = json::member(&system.fields, "Links");
        let chassis = links.map(|links| json::links(links, "Chassis")).unwrap_or_default();
        let fits = |serial: &String| expected.is_none_or(|it| serial.eq_ignore_ascii_case(it.trim()));
        for path in chassis.into_iter().take(MAX_CHASSIS) {
            let Some(chassis) = self.read_optional(&path).await? else { continue };
            info.serial = serial_of(&chassis).filter(fits);
            if info.serial.is_some() {
                break;
            }
        }
        Ok(())
    }

    pub(super) async fn managers(
        &self,
        root: &Resource,
        system: &Resource,
    ) -> Result<Vec<Resource>, RedfishError> {
        let links = json::member(&system.fields, "Links");
        let linked = links.map(|links| json::links(links, "ManagedBy")).unwrap_or_default();
        let mut members: Vec<Member> =
            linked.into_iter().map(|path| Member { path, resource: None }).collect();
        if members.is_empty()
            && let Some(collection) = json::link(&root.fields, "Managers")
        {
            members = self.members(OPERATION, &collection).await?;
        }
        let mut managers = Vec::new();
        for member in members.into_iter().take(MAX_MANAGERS) {
            match member.resource {
                Some(resource) => managers.push(resource),
                None => managers.extend(self.read_optional(&member.path).await?),
            }
        }
        Ok(managers)
    }
}

/// Whether the name of a system says that it is a board beside the host.
fn is_named_like_a_board(name: &str) -> bool {
    name.to_ascii_lowercase().contains("board")
}

/// Whether a system has the properties of a host: a Reset action, a boot override, and a manager or media.
fn is_host(system: &Resource, profile: &Profile) -> bool {
    let info = SystemInfo::of(system, profile);
    let links = json::member(&system.fields, "Links");
    let managed = links.is_some_and(|links| !json::links(links, "ManagedBy").is_empty());
    let media = json::link(&system.fields, "VirtualMedia").is_some();
    info.reset.is_some() && info.boot.is_some_and(|boot| boot.target.is_some()) && (managed || media)
}

/// Whether a system is a host and shows the expected serial number itself.
fn is_expected_host(system: &Resource, selector: &SystemSelector, profile: &Profile) -> bool {
    let expected = selector.serial.as_deref();
    let matches = |serial| SystemInfo::of(system, profile).matches_serial(serial) == SerialMatch::Match;
    expected.is_some_and(matches) && is_host(system, profile)
}

/// Returns the index of the host among several systems.
fn choose(systems: &[Resource], selector: &SystemSelector, profile: &Profile) -> Option<usize> {
    let only = |fits: &dyn Fn(&Resource) -> bool| {
        let mut fitting = systems.iter().enumerate().filter(|(_, system)| fits(system));
        fitting.next().map(|(at, _)| at).filter(|_| fitting.next().is_none())
    };
    let is_host = |system: &Resource| is_host(system, profile);
    let by_serial = |system: &Resource| {
        let serial = selector.serial.as_deref();
        serial.is_some_and(|serial| {
            SystemInfo::of(system, profile).matches_serial(serial) == SerialMatch::Match
        })
    };
    let another = |system: &Resource| {
        let serial = selector.serial.as_deref();
        serial.is_some_and(|serial| {
            SystemInfo::of(system, profile).matches_serial(serial) == SerialMatch::Mismatch
        })
    };
    let by_name = |name: &String| {
        let named = |system: &Resource| last_segment(&system.path).eq_ignore_ascii_case(name);
        systems.iter().position(|system| named(system) && !another(system))
    };
    only(&by_serial)
        .or_else(|| only(&|system| by_serial(system) && is_host(system)))
        .or_else(|| profile.system_select.iter().find_map(by_name))
        .or_else(|| only(&is_host))
        .or_else(|| only(&|system| SystemInfo::of(system, profile).reset.is_some()))
}
