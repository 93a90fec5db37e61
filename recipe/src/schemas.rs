//! The recipe schemas a controller accepts: the current one and, after a change, the one before it.
//!
//! Which schema judges a recipe (seed 000: "version schema with $id; controller supports N-1 schemas"):
//!
//! | the recipe says | judged by |
//! |---|---|
//! | `recipe_version` or `$schema` names an accepted `$id` (a trailing `#` does not matter) | that schema |
//! | both name one, and not the same | refused, `recipe_version` |
//! | `recipe_version` is any other URL, or `$schema` another one beside ours | refused, `recipe_version` |
//! | anything else: `"1.4"`, `"2025-11"`, a JSON Schema dialect, a file name, nothing | the current one |
//!
//! Schemas are compiled once; a clone shares them. Nothing is fetched: a `$ref` to another document is an error when
//! the schema is compiled. Patterns run on a linear-time engine, so no text makes them slow.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::error::{FieldError, bounded, cut};
use super::{Recipe, explain, parse, read, rules};

/// The schema this version of Shoal writes.
const CURRENT: &str = include_str!("../../schemas/recipe.schema.json");

/// Longest schema text; the text may come out of an image.
const MAX_SCHEMA_BYTES: usize = 1_048_576;

/// Why a schema text cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// More than a schema needs.
    #[error("reading a recipe schema: it is {0} bytes long, the limit is {MAX_SCHEMA_BYTES}")]
    TooLarge(usize),
    /// Broken JSON.
    #[error("reading a recipe schema: the text is not JSON; compare it with the one this controller serves")]
    NotJson(#[source] serde_json::Error),
    /// Recipes choose a schema by `$id`.
    #[error("reading a recipe schema: it has no `$id`; give it one")]
    NoId,
    /// Two texts of one name.
    #[error(
        "adding recipe schema {0}: a schema of this `$id` is there already; a changed schema needs a new `$id`"
    )]
    SameId(String),
    /// A keyword with a wrong argument, or a reference to another document.
    #[error("compiling recipe schema {id}: {reason}")]
    Compile {
        /// `$id` of the schema.
        id: String,
        /// What the compiler said.
        reason: String,
    },
}

struct Version {
    id: String,
    text: String,
    document: Value,
    validator: jsonschema::Validator,
}

impl Version {
    fn compile(text: &str) -> Result<Self, SchemaError> {
        if text.len() > MAX_SCHEMA_BYTES {
            return Err(SchemaError::TooLarge(text.len()));
        }
        let document: Value = serde_json::from_str(text).map_err(SchemaError::NotJson)?;
        let id = document.get("$id").and_then(Value::as_str).ok_or(SchemaError::NoId)?;
        let id = id.trim_end_matches('#').to_owned();
        let validator = jsonschema::options()
            .with_draft(jsonschema::Draft::Draft7)
            .with_pattern_options(jsonschema::PatternOptions::regex())
            .should_validate_formats(true)
            .build(&document)
            .map_err(|error| SchemaError::Compile { id: id.clone(), reason: cut(&error.to_string(), 300) })?;
        Ok(Self { id, text: text.to_owned(), document, validator })
    }
}

/// The accepted schema versions, the current one first.
#[derive(Clone)]
pub struct RecipeSchemas {
    versions: Arc<[Arc<Version>]>,
}

impl fmt::Debug for RecipeSchemas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.versions.iter().map(|version| &version.id)).finish()
    }
}

impl RecipeSchemas {
    /// The schema that belongs to this program.
    #[expect(clippy::expect_used, reason = "the text is part of the program; a test compiles it")]
    pub fn builtin() -> Self {
        Self::from_text(CURRENT).expect("the built-in recipe schema compiles")
    }

    /// One schema alone, as an installer finds it beside its recipe.
    pub fn from_text(text: &str) -> Result<Self, SchemaError> {
        Ok(Self { versions: Arc::from([Arc::new(Version::compile(text)?)]) })
    }

    /// Accepts recipes of one more, older schema.
    pub fn with_previous(self, text: &str) -> Result<Self, SchemaError> {
        let previous = Version::compile(text)?;
        if self.versions.iter().any(|version| version.id == previous.id) {
            return Err(SchemaError::SameId(previous.id));
        }
        let versions = self.versions.iter().cloned().chain([Arc::new(previous)]).collect();
        Ok(Self { versions })
    }

    /// `$id` of the schema new recipes are written for.
    pub fn current_id(&self) -> &str {
        &self.versions[0].id
    }

    /// Every accepted `$id`, the current one first.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.versions.iter().map(|version| version.id.as_str())
    }

    /// The text of an accepted schema, byte for byte.
    pub fn text(&self, id: &str) -> Option<&str> {
        self.named(id).map(|version| version.text.as_str())
    }

    /// Judges a recipe and reads it. Every error of the first stage that finds one is reported (at most
    /// [`super::MAX_ERRORS`], one per place), in the order of their places.
    pub fn validate(&self, raw: &str) -> Result<Recipe, Vec<FieldError>> {
        let value = parse::parse(raw)?;
        let version = self.choose(&value).map_err(|error| vec![error])?;
        let errors = explain::errors(&version.document, &value, version.validator.iter_errors(&value));
        if !errors.is_empty() {
            return Err(bounded(errors));
        }
        let recipe = read::recipe(raw, &version.id, &version.document, &value).map_err(bounded)?;
        let errors = rules::errors(&recipe);
        if errors.is_empty() { Ok(recipe) } else { Err(bounded(errors)) }
    }

    /// The same for bytes of a file or body; what is not UTF-8 is refused with the place of the broken byte.
    pub fn validate_bytes(&self, raw: &[u8]) -> Result<Recipe, Vec<FieldError>> {
        self.validate(parse::text(raw)?)
    }

    fn named(&self, id: &str) -> Option<&Version> {
        let id = id.trim_end_matches('#');
        self.versions.iter().find(|version| version.id == id).map(Arc::as_ref)
    }

    fn choose(&self, value: &Value) -> Result<&Version, FieldError> {
        let says = |key: &str| value.get(key).and_then(Value::as_str);
        let (version, schema) = (says("recipe_version"), says("$schema"));
        let by_version = version.and_then(|id| self.named(id));
        let by_schema = schema.and_then(|id| self.named(id));
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
            (None, None) => Ok(&self.versions[0]),
        }
    }

    /// Whether a URL stands in the same directory as the current schema, that is, means a recipe schema of ours.
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
