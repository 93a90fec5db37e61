//! Reads the members of a collection, page by page, with their contents if the BMC supports `$expand`.
//!
//! ```text
//!   GET collection?$expand=.($levels=1)   offered by the root (ExpandQuery)  -> members with contents
//!       refused or invalid?  this handle does not use $expand again
//!   GET collection                        -> paths of members
//!   Members@odata.nextLink                -> the next page; a page read before ends the list
//! ```
//!
//! Pages and members are bounded; a member listed twice counts once; `Members: null` is an empty list.
//! Specification: DSP0266 7.3 (query parameters), 7.6 (collections).

use std::sync::atomic::Ordering;

use http::HeaderMap;
use serde_json::{Map, Value};

use crate::error::{Operation, RedfishError};
use crate::exchange::Core;
use crate::json::{self, Resource};
use crate::profile::Expand;

const MAX_PAGES: usize = 8;
/// The maximum of members that are read.
pub(crate) const MAX_MEMBERS: usize = 64;

/// One member of a collection.
pub(crate) struct Member {
    pub(crate) path: String,
    /// The contents of the member, if they were part of the collection.
    pub(crate) resource: Option<Resource>,
}

impl Core {
    /// Reads the members of a collection.
    pub(crate) async fn members(
        &self,
        operation: Operation,
        path: &str,
    ) -> Result<Vec<Member>, RedfishError> {
        self.members_up_to(operation, path, MAX_MEMBERS).await
    }

    /// Reads at most `limit` members of a collection.
    pub(crate) async fn members_up_to(
        &self,
        operation: Operation,
        path: &str,
        limit: usize,
    ) -> Result<Vec<Member>, RedfishError> {
        let mut members: Vec<Member> = Vec::new();
        let mut pages = vec![path.to_owned()];
        while let Some(page) = pages.last() {
            let page = match pages.len() {
                1 => self.first_page(operation, page).await?,
                _ => self.read(operation, page).await?,
            };
            for member in entries(&page, limit) {
                if members.len() < limit && !members.iter().any(|known| known.path == member.path) {
                    members.push(member);
                }
            }
            let next =
                page.fields.get("Members@odata.nextLink").and_then(Value::as_str).and_then(json::path_of);
            match next {
                Some(next) if pages.len() < MAX_PAGES && !pages.contains(&next) => pages.push(next),
                _ => break,
            }
        }
        for resource in members.iter().filter_map(|member| member.resource.as_ref()) {
            self.cache.insert(&resource.path, resource);
        }
        Ok(members)
    }

    /// Reads the first page, with `$expand` if it is supported.
    async fn first_page(&self, operation: Operation, path: &str) -> Result<Resource, RedfishError> {
        let Some(query) = self.expand_query() else { return self.read(operation, path).await };
        let joint = if path.contains('?') { '&' } else { '?' };
        let expanded = self.read_once(operation, &format!("{path}{joint}{query}")).await;
        let page = expanded.and_then(|response| self.resource(operation, &response));
        if let Ok(page) = page {
            return Ok(page);
        }
        // The plain read reports what is wrong; `$expand` is not tried again.
        self.no_expand.store(true, Ordering::Relaxed);
        self.read(operation, path).await
    }

    /// Whether collections are read with the contents of their members.
    pub(crate) fn expands(&self) -> bool {
        self.expand_query().is_some()
    }

    /// The `$expand` query, if the service root offers it and the profile allows it.
    fn expand_query(&self) -> Option<&'static str> {
        if self.no_expand.load(Ordering::Relaxed) || self.profile().expand == Expand::Never {
            return None;
        }
        *self.expand.get()?
    }

    /// Returns the contents of a member: those read with the collection, else a read.
    pub(crate) async fn contents(
        &self,
        operation: Operation,
        member: Member,
    ) -> Result<Resource, RedfishError> {
        match member.resource {
            Some(resource) => Ok(resource),
            None => self.read(operation, &member.path).await,
        }
    }
}

/// The `$expand` query the service root offers: without linked resources if possible, else with them.
pub(crate) fn offered(root: &Map<String, Value>) -> Option<&'static str> {
    let expand = json::member(json::member(root, "ProtocolFeaturesSupported")?, "ExpandQuery")?;
    let has = |name| json::flag(expand, name) == Some(true);
    match (has("NoLinks"), has("ExpandAll")) {
        (true, _) => Some("$expand=.($levels=1)"),
        (false, true) => Some("$expand=*($levels=1)"),
        (false, false) => None,
    }
}

fn entries(page: &Resource, limit: usize) -> Vec<Member> {
    let entries = page.fields.get("Members").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let entries = entries.iter().take(limit).filter_map(Value::as_object);
    entries.filter_map(entry).collect()
}

fn entry(fields: &Map<String, Value>) -> Option<Member> {
    let path = json::path_of(fields.get("@odata.id")?.as_str()?)?;
    // A bare link has no `Id`; an entry with `Id` contains the whole member.
    let whole = fields.contains_key("Id") && fields.len() > 3;
    let resource = whole.then(|| Resource::new(&path, &HeaderMap::new(), fields.clone()));
    Some(Member { path, resource })
}
