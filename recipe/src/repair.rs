//! Changes of a recipe that remove one of its errors, for the person who looks at it.
//!
//! ```text
//!  { "set": "install-linux.target" }    the value at the path of the error becomes this one
//!  { "rename": "task_target" }          the member at the path gets this name, and keeps its value
//! ```
//!
//! Invariant: a recipe that was changed so has no error at this path any more (the tests apply each repair of the golden list). Nothing
//! is changed without the person: a repair is offered where one value is the probable meaning.

use jsonschema::Validator;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::image_reference::ImageReference;

/// The schemes that an image reference is often written with.
const SCHEMES: [&str; 4] = ["docker://", "oci://", "https://", "http://"];
/// The maximum of repairs that are tried with the schema: each try copies and reads the recipe.
const MAX_TRIES: usize = 4;

/// A change of a recipe that removes an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Repair {
    /// The value at the path of the error becomes this one.
    Set(Value),
    /// The member at the path of the error gets this name, and keeps its value.
    Rename(String),
}

/// Finds repairs that are tried with the schema before they are offered.
pub(super) struct Tried<'a> {
    validator: &'a Validator,
    recipe: &'a Value,
    tries: usize,
}

impl<'a> Tried<'a> {
    pub(super) fn new(validator: &'a Validator, recipe: &'a Value) -> Self {
        Self { validator, recipe, tries: 0 }
    }

    /// The repair of a text that has not the form of its field.
    pub(super) fn of_form(&mut self, path: &str, text: &str) -> Option<Repair> {
        let meant = match path.rsplit('/').next()? {
            "target_disk" => disk(text),
            "oci_url" => image(text),
            _ => None,
        }?;
        self.tries += 1;
        if self.tries > MAX_TRIES {
            return None;
        }
        let mut changed = self.recipe.clone();
        *changed.pointer_mut(path)? = Value::String(meant.clone());
        let still = self.validator.iter_errors(&changed).any(|error| error.instance_path().as_str() == path);
        (!still).then_some(Repair::Set(Value::String(meant)))
    }
}

/// A bare kernel name is the name of a device: `sda` is `/dev/sda`.
fn disk(text: &str) -> Option<String> {
    let is_name =
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    is_name.then(|| format!("/dev/{text}"))
}

/// An image reference without the scheme, if it names a host as the scheme says.
fn image(text: &str) -> Option<String> {
    let bare = SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme))?;
    ImageReference::parse(bare).ok()?.host.map(|_| bare.to_owned())
}
