//! A strict JSON parser: no repeated keys; bounded size, depth and number of values.
//!
//! RFC 8259 does not define the meaning of a repeated key: a validator could check one `target_disk` while the installer
//! wipes the other. So a repeated key is an error in every object. The bounds exist because a small text can make a big
//! tree (`[[[[…`, `[0,0,0,…`) and a schema validator returns one error per wrong item.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::error::{FieldError, MAX_ERRORS, bounded, display, escaped};

/// Maximum length of a recipe in bytes. A task image of 20 MiB holds the recipe, its extracted payloads, one of them twice, its schema and
/// a `job.json` with the longest authorities.
pub const MAX_RECIPE_BYTES: usize = 5_767_168;

/// Maximum depth of arrays and objects.
pub const MAX_DEPTH: usize = 64;

/// Maximum number of JSON values in one recipe.
pub const MAX_VALUES: usize = 20_000;

/// Parses the text of a recipe as JSON in which no object has a key twice. It is not validated.
///
/// # Errors
/// Returns errors with the codes `too_large`, `json`, `too_deep`, `too_many_values`, `duplicate_key`.
pub fn parse(raw: &str) -> Result<Value, Vec<FieldError>> {
    if raw.len() > MAX_RECIPE_BYTES {
        return Err(vec![too_large(raw.len())]);
    }
    if raw.starts_with('\u{feff}') {
        let message = "The recipe starts with a byte order mark; save it as UTF-8 without one.";
        return Err(vec![FieldError::new("", "json", message)]);
    }
    let mut parser =
        StrictParser { path: String::new(), depth: 0, values: 0, duplicates: Vec::new(), over: None };
    let mut deserializer = serde_json::Deserializer::from_str(raw);
    let parsed = Node(&mut parser).deserialize(&mut deserializer).and_then(|value| {
        deserializer.end()?;
        Ok(value)
    });
    match parsed {
        Err(_) if parser.over.is_some() => Err(parser.over.into_iter().collect()),
        // The message of serde_json has line, column and expectation; it never quotes the text.
        Err(error) => {
            Err(vec![FieldError::new("", "json", format!("The recipe is not valid JSON: {error}."))])
        }
        Ok(_) if !parser.duplicates.is_empty() => Err(bounded(parser.duplicates)),
        Ok(value) => Ok(value),
    }
}

/// Checks the length of a file or request body and that it is UTF-8.
pub(super) fn text(raw: &[u8]) -> Result<&str, Vec<FieldError>> {
    if raw.len() > MAX_RECIPE_BYTES {
        return Err(vec![too_large(raw.len())]);
    }
    std::str::from_utf8(raw).map_err(|error| {
        let message = format!(
            "The recipe is not UTF-8: the first invalid byte is number {}. Save it as UTF-8.",
            error.valid_up_to() + 1
        );
        vec![FieldError::new("", "utf8", message)]
    })
}

fn too_large(bytes: usize) -> FieldError {
    let message = format!("The recipe is {bytes} bytes long, the limit is {MAX_RECIPE_BYTES}.");
    FieldError::new("", "too_large", message)
}

/// The state of the parser: its position, counters and errors.
struct StrictParser {
    path: String,
    depth: usize,
    values: usize,
    duplicates: Vec<FieldError>,
    over: Option<FieldError>,
}

impl StrictParser {
    fn enter<E: Error>(&mut self) -> Result<(), E> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let message = format!("The recipe nests arrays or objects more than {MAX_DEPTH} levels deep.");
            return Err(self.refuse("too_deep", message));
        }
        Ok(())
    }

    fn count<E: Error>(&mut self) -> Result<(), E> {
        self.values += 1;
        if self.values > MAX_VALUES {
            let message = format!("The recipe holds more than {MAX_VALUES} JSON values.");
            return Err(self.refuse("too_many_values", message));
        }
        Ok(())
    }

    fn refuse<E: Error>(&mut self, code: &str, message: String) -> E {
        self.over = Some(FieldError::new("", code, &message));
        E::custom(message)
    }
}

struct Node<'a>(&'a mut StrictParser);

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.0.count()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let parser = self.0;
        parser.enter()?;
        let here = parser.path.len();
        let mut array = Vec::new();
        loop {
            parser.path.push_str(&format!("/{}", array.len()));
            let item = items.next_element_seed(Node(parser))?;
            parser.path.truncate(here);
            match item {
                Some(item) => array.push(item),
                None => break,
            }
        }
        parser.depth -= 1;
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let parser = self.0;
        parser.enter()?;
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            // The path grows by one segment and shrinks again: a copy for each member costs the square of a long name.
            let here = parser.path.len();
            parser.path.push('/');
            parser.path.push_str(&escaped(&key));
            if object.contains_key(&key) && parser.duplicates.len() <= MAX_ERRORS {
                let message =
                    format!("{} occurs twice in the same object; keep one of them.", display(&parser.path));
                parser.duplicates.push(FieldError::new(&parser.path, "duplicate_key", message));
            }
            let value = members.next_value_seed(Node(parser))?;
            parser.path.truncate(here);
            object.insert(key, value);
        }
        parser.depth -= 1;
        Ok(Value::Object(object))
    }
}
