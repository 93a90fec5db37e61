//! Attributes of a manager: settings outside of the specification, which some BMCs show as one flat object of names and values.
//!
//! ```text
//!   Manager.Links.Oem.*.*Attributes[]   the list may hold those of the host too; the entry with the manager's id is taken
//!   {manager}/Attributes                where no link exists
//!   -> {"Attributes": {"ServerBoot.1.FirstBootDevice": "Normal", "VirtualMedia.1.Attached": "AutoAttach", …}}
//! ```

use serde_json::{Map, Value};

use crate::error::{ErrorKind, Operation, RedfishError};
use crate::exchange::Core;
use crate::json::{self, Resource, last_segment};

/// The path of the attributes to which a manager links; `None` when it links to none.
pub(crate) fn linked(manager: &Resource) -> Option<String> {
    let oem = json::member(json::member(&manager.fields, "Links")?, "Oem")?;
    let vendors = oem.values().take(json::MAX_ENTRIES).filter_map(Value::as_object);
    let lists = vendors.flat_map(|vendor| {
        let names = vendor.keys().take(json::MAX_ENTRIES).filter(|name| name.ends_with("Attributes"));
        names.flat_map(move |name| json::links(vendor, name))
    });
    let paths: Vec<String> = lists.take(json::MAX_ENTRIES).collect();
    let id = last_segment(&manager.path);
    let own = paths.iter().find(|path| [id, "Attributes"].contains(&last_segment(path)));
    own.or(paths.first()).cloned()
}

/// The path of the attributes of the manager at `uri`, given the link if it has one.
pub(crate) fn path(uri: &str, linked: Option<&str>) -> String {
    linked.map_or_else(|| format!("{}/Attributes", uri.trim_end_matches('/')), str::to_owned)
}

impl Core {
    /// Returns the attributes at `path`, from the cache if `fresh` is false; `None` when the manager shows none.
    pub(crate) async fn attributes(
        &self,
        operation: Operation,
        path: &str,
        fresh: bool,
    ) -> Result<Option<Map<String, Value>>, RedfishError> {
        let read = match fresh {
            true => self.read(operation, path).await,
            false => self.cached(operation, path).await,
        };
        match read {
            Ok(resource) => Ok(json::member(&resource.fields, "Attributes").cloned()),
            Err(error)
                if matches!(error.kind, ErrorKind::NotFound { .. } | ErrorKind::NotSupported { .. }) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_attributes_of_the_manager_are_taken_from_a_list_with_those_of_the_host() {
        let linked_of = |oem: Value| {
            let body = serde_json::json!({ "Links": { "Oem": oem } }).to_string();
            let fields = json::object(body.as_bytes()).unwrap();
            linked(&Resource::new("/redfish/v1/Managers/M.1", &http::HeaderMap::new(), fields))
        };
        let link = |path: &str| serde_json::json!({ "@odata.id": path });
        let list = serde_json::json!([link("/a/System.1"), link("/a/M.1")]);
        assert_eq!(linked_of(serde_json::json!({ "X": { "XAttributes": list } })).as_deref(), Some("/a/M.1"));
        let only = serde_json::json!([link("/redfish/v1/Managers/M.1/Attributes")]);
        let expected = Some("/redfish/v1/Managers/M.1/Attributes");
        assert_eq!(linked_of(serde_json::json!({ "X": { "XAttributes": only } })).as_deref(), expected);
        assert_eq!(linked_of(serde_json::json!({ "X": { "Jobs": [link("/jobs")] } })), None);
    }
}
