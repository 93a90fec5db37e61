//! The recipe schemas that a controller accepts: version 2, which is the current one, and version 1.
//!
//! The choice of the schema that validates a recipe (docs/seeds.md S000-100):
//!
//! | the recipe has | validated by |
//! |---|---|
//! | `recipe_version` or `$schema` names an accepted `$id` (a trailing `#` does not matter) | that schema |
//! | both name an accepted `$id`, and they differ | refused, `recipe_version` |
//! | `recipe_version` is any other URL, or `$schema` another URL in the directory of ours | refused, `recipe_version` |
//! | anything else: `"1.4"`, `"2025-11"`, a JSON Schema dialect, a file name, nothing; and a field or a target that only the current version has | the current schema |
//! | the same, without such a field or target | version 1 |
//!
//! So a recipe of version 1 that names no version stays one, with the errors of version 1, and no recipe that is valid under
//! version 1 is read as another version.
//!
//! Schemas are compiled once and shared by clones: a given one when it is read, a built-in one for its first recipe. Nothing is
//! fetched: a `$ref` to another document is a compile error.
//! Patterns run on a linear-time engine, so no text makes them slow.

use std::fmt;
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};

use super::error::{FieldError, bounded, child, cut};
use super::{Network, Recipe, TaskTarget, explain, parse, read, rules};

/// The current recipe schema.
const CURRENT: &str = include_str!("../../schemas/recipe-v2.schema.json");

/// The `$id` of version 1.
pub(super) const FIRST_ID: &str = "https://shoal.dev/provisioner/recipe.schema.json";

/// The schema of version 1.
const FIRST: &str = include_str!("../../schemas/recipe.schema.json");

/// Maximum length of a schema text in bytes: the text may come from an image.
const MAX_SCHEMA_BYTES: usize = 1_048_576;

/// The reason why a schema text cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// The text is too long.
    #[error("reading a recipe schema: it is {0} bytes long, the limit is {MAX_SCHEMA_BYTES}")]
    TooLarge(usize),
    /// The text is not JSON.
    #[error("reading a recipe schema: the text is not JSON; compare it with the one this controller serves")]
    NotJson(#[source] serde_json::Error),
    /// The schema has no `$id`, by which recipes select it.
    #[error("reading a recipe schema: it has no `$id`; give it one")]
    NoId,
    /// Two schemas have the same `$id`.
    #[error(
        "adding recipe schema {0}: a schema with this `$id` is already accepted; a changed schema needs a new `$id`"
    )]
    SameId(String),
    /// The schema has a keyword with a wrong argument, or a reference to another document.
    #[error("compiling recipe schema {id}: {reason}")]
    Compile {
        /// The `$id` of the schema.
        id: String,
        /// The message of the compiler.
        reason: String,
    },
}

struct SchemaVersion {
    id: String,
    text: String,
    document: Value,
    /// Filled at the first use.
    compiled: OnceLock<jsonschema::Validator>,
}

impl SchemaVersion {
    /// Reads a schema without compiling it.
    fn read(text: &str) -> Result<Self, SchemaError> {
        if text.len() > MAX_SCHEMA_BYTES {
            return Err(SchemaError::TooLarge(text.len()));
        }
        let document: Value = serde_json::from_str(text).map_err(SchemaError::NotJson)?;
        let id = document.get("$id").and_then(Value::as_str).ok_or(SchemaError::NoId)?;
        let id = id.trim_end_matches('#').to_owned();
        Ok(Self { id, text: text.to_owned(), document, compiled: OnceLock::new() })
    }

    fn compile(text: &str) -> Result<Self, SchemaError> {
        let version = Self::read(text)?;
        let compiled = OnceLock::from(version.build()?);
        Ok(Self { compiled, ..version })
    }

    fn build(&self) -> Result<jsonschema::Validator, SchemaError> {
        jsonschema::options()
            .with_draft(jsonschema::Draft::Draft7)
            .with_pattern_options(jsonschema::PatternOptions::regex())
            .should_validate_formats(true)
            .build(&self.document)
            .map_err(|error| SchemaError::Compile {
                id: self.id.clone(),
                reason: cut(&error.to_string(), 300),
            })
    }

    #[expect(
        clippy::expect_used,
        reason = "only a built-in schema is not compiled yet; a test compiles them"
    )]
    fn validator(&self) -> &jsonschema::Validator {
        self.compiled.get_or_init(|| self.build().expect("the built-in recipe schemas compile"))
    }
}

impl SchemaVersion {
    /// Returns whether a recipe has a field or a target that the newer version has and this one lacks.
    fn lacks(&self, recipe: &Value, newer: &Self) -> bool {
        let only_newer = |pointer: &str| {
            self.document.pointer(pointer).is_none() && newer.document.pointer(pointer).is_some()
        };
        let fields = |value: &Value, at: &str| {
            let names = value.as_object().into_iter().flatten().map(|(name, _)| name);
            names.into_iter().any(|name| only_newer(&child(at, name)))
        };
        let partitions = recipe.get("partition_layout").and_then(Value::as_array);
        let has_target = |version: &Self| {
            let targets = version.document.pointer("/properties/task_target/enum").and_then(Value::as_array);
            targets.zip(recipe.get("task_target")).is_some_and(|(known, target)| known.contains(target))
        };
        fields(recipe, "/properties")
            || partitions
                .into_iter()
                .flatten()
                .any(|part| fields(part, "/properties/partition_layout/items/properties"))
            || (has_target(newer) && !has_target(self))
    }
}

/// The accepted schema versions, the current one first.
#[derive(Clone)]
pub struct RecipeSchemas {
    versions: Arc<[Arc<SchemaVersion>]>,
    /// The version of a recipe that names none and needs no newer one.
    unnamed: Arc<SchemaVersion>,
}

impl fmt::Debug for RecipeSchemas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.versions.iter().map(|version| &version.id)).finish()
    }
}

impl RecipeSchemas {
    /// Returns the built-in schemas.
    #[expect(
        clippy::expect_used,
        reason = "the texts are part of the program; a test reads and compiles them"
    )]
    pub fn builtin() -> Self {
        let [current, first] = [CURRENT, FIRST].map(|text| {
            Arc::new(SchemaVersion::read(text).expect("the built-in recipe schemas are schemas"))
        });
        Self { versions: Arc::from([current, Arc::clone(&first)]), unnamed: first }
    }

    /// Compiles a single schema, such as the one beside the recipe in a task image.
    ///
    /// # Errors
    /// Returns an error when the text is no usable schema.
    pub fn from_text(text: &str) -> Result<Self, SchemaError> {
        let version = Arc::new(SchemaVersion::compile(text)?);
        Ok(Self { versions: Arc::from([Arc::clone(&version)]), unnamed: version })
    }

    /// Adds an older schema whose recipes are also accepted.
    ///
    /// # Errors
    /// Returns an error when the text is no usable schema or its `$id` is already accepted.
    pub fn with_previous(self, text: &str) -> Result<Self, SchemaError> {
        let previous = SchemaVersion::compile(text)?;
        if self.versions.iter().any(|version| version.id == previous.id) {
            return Err(SchemaError::SameId(previous.id));
        }
        let versions = self.versions.iter().cloned().chain([Arc::new(previous)]).collect();
        Ok(Self { versions, unnamed: self.unnamed })
    }

    /// Returns the `$id` of the current schema.
    pub fn current_id(&self) -> &str {
        &self.versions[0].id
    }

    /// Returns every accepted `$id`, the current one first.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.versions.iter().map(|version| version.id.as_str())
    }

    /// Returns the text of an accepted schema, byte for byte.
    pub fn text(&self, id: &str) -> Option<&str> {
        self.find(id).map(|version| version.text.as_str())
    }

    /// Validates and parses a recipe.
    ///
    /// # Errors
    /// Returns all errors of the first stage that finds any, in document order, one per location and at most
    /// [`super::MAX_ERRORS`].
    pub fn validate(&self, raw: &str) -> Result<Recipe, Vec<FieldError>> {
        let value = parse::parse(raw)?;
        let version = self.choose(&value).map_err(|error| vec![error])?;
        let errors = explain::errors(&version.document, &value, version.validator());
        if !errors.is_empty() {
            return Err(bounded(errors));
        }
        let recipe = read::recipe(raw, &version.id, &version.document, &value).map_err(bounded)?;
        let errors = rules::errors(&recipe, version.document.pointer("/properties/disk_hints").is_some());
        if errors.is_empty() { Ok(recipe) } else { Err(bounded(errors)) }
    }

    /// Validates the network of a server's record by the current schema: it has the form of the field `network` of a recipe.
    ///
    /// # Errors
    /// Returns the errors as [`Self::validate`] does, with paths below `/network`.
    pub fn network(&self, network: &Value) -> Result<Network, Vec<FieldError>> {
        // A recipe that needs nothing else.
        let target = TaskTarget::Inventory.as_str();
        let recipe =
            json!({ "recipe_version": self.current_id(), "task_target": target, "network": network });
        let recipe = self.validate(&recipe.to_string())?;
        let missing = || vec![FieldError::new("/network", "required", "`network` is required.")];
        recipe.network.ok_or_else(missing)
    }

    /// Validates and parses the bytes of a file or request body.
    ///
    /// # Errors
    /// Returns an error with the position of the first invalid byte when the text is not UTF-8; otherwise the errors of
    /// [`Self::validate`].
    pub fn validate_bytes(&self, raw: &[u8]) -> Result<Recipe, Vec<FieldError>> {
        self.validate(parse::text(raw)?)
    }

    fn find(&self, id: &str) -> Option<&SchemaVersion> {
        let id = id.trim_end_matches('#');
        self.versions.iter().find(|version| version.id == id).map(Arc::as_ref)
    }

    fn choose(&self, value: &Value) -> Result<&SchemaVersion, FieldError> {
        let text_of = |key: &str| value.get(key).and_then(Value::as_str);
        let (version, schema) = (text_of("recipe_version"), text_of("$schema"));
        let by_version = version.and_then(|id| self.find(id));
        let by_schema = schema.and_then(|id| self.find(id));
        if let (None, Some(id)) = (by_version, version)
            && id.contains("://")
        {
            return Err(self.unknown("/recipe_version", id));
        }
        if let (None, Some(id)) = (by_schema, schema)
            && self.is_sibling(id)
        {
            return Err(self.unknown("/$schema", id));
        }
        match (by_version, by_schema) {
            (Some(a), Some(b)) if a.id != b.id => {
                let message = format!(
                    "`recipe_version` names {} and `$schema` names {}; leave one of them out.",
                    a.id, b.id
                );
                Err(FieldError::new("/recipe_version", "recipe_version", message))
            }
            (Some(version), _) | (None, Some(version)) => Ok(version),
            (None, None) if self.unnamed.lacks(value, &self.versions[0]) => Ok(&self.versions[0]),
            (None, None) => Ok(&self.unnamed),
        }
    }

    /// Returns whether a URL is in the directory of the current schema, so that it names a Shoal recipe schema.
    fn is_sibling(&self, id: &str) -> bool {
        let directory = self.current_id().rsplit_once('/').map_or("", |(directory, _)| directory);
        directory.contains("://") && id.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
    }

    fn unknown(&self, path: &str, id: &str) -> FieldError {
        let known: Vec<&str> = self.ids().collect();
        let message = format!(
            "This controller does not know the recipe schema \"{}\". It accepts {}.",
            cut(&id.escape_debug().to_string(), 128),
            known.join(" and ")
        );
        FieldError::new(path, "recipe_version", message)
    }
}
