//! The claims of a token: what they must be, and the role that follows from them.
//!
//! ```text
//!  JWT_ROLE_CLAIM   role                    "role": "viewer"
//!                   realm_access.roles      "realm_access": {"roles": ["ops", "staff"]}
//!  JWT_ROLES        (empty)                 a value is the name of a role: admin, operator, viewer
//!                   ops=operator,sec=admin  only these values are roles; of several the one with most rights counts
//! ```

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::{Map, Number, Value};
use thiserror::Error;

use super::refusal::{Bearer, JwtError};
use crate::auth::{Role, header};

/// The audience that an `aud` claim must contain, if a token has one and `JWT_AUDIENCE` is unset.
pub const JWT_AUDIENCE: &str = "shoal";

/// The accepted difference between the clocks of issuer and controller.
const LEEWAY_SECONDS: i64 = 30;

/// The maximum length of a value of `JWT_ROLES`.
const MAX_VALUE_BYTES: usize = 256;

/// The requirements that the claims of a token must satisfy.
#[derive(Clone, Debug)]
pub struct JwtRules {
    /// The value of `iss` (`JWT_ISSUER`).
    pub issuer: Option<String>,
    /// A value of `aud` (`JWT_AUDIENCE`).
    pub audience: Option<String>,
    /// The claim with the role: its name, or the names on the way to it with dots (`JWT_ROLE_CLAIM`).
    pub role_claim: String,
    /// The values of that claim that are roles (`JWT_ROLES`); without any, the names of the roles.
    pub roles: Vec<RoleEntry>,
}

impl Default for JwtRules {
    fn default() -> Self {
        Self { issuer: None, audience: None, role_claim: "role".to_owned(), roles: Vec::new() }
    }
}

/// One entry `VALUE=ROLE` of `JWT_ROLES`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RoleEntry {
    value: String,
    role: Role,
}

/// A text is no entry of `JWT_ROLES`.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error(
    "an entry is VALUE=ROLE, such as shoal-admins=admin; ROLE is admin, operator or viewer, because the other roles are for API tokens"
)]
pub struct InvalidRoleEntry;

impl FromStr for RoleEntry {
    type Err = InvalidRoleEntry;

    fn from_str(text: &str) -> Result<Self, InvalidRoleEntry> {
        let (value, role) = text.rsplit_once('=').ok_or(InvalidRoleEntry)?;
        let (value, role) = (value.trim(), role.trim());
        let role: Role = role.parse().map_err(|_| InvalidRoleEntry)?;
        let fits = (1..=MAX_VALUE_BYTES).contains(&value.len()) && !value.chars().any(char::is_control);
        (fits && role.is_for_users()).then(|| Self { value: value.to_owned(), role }).ok_or(InvalidRoleEntry)
    }
}

impl JwtRules {
    /// The bearer of a token with these claims.
    pub(super) fn bearer(&self, claims: &Claims, now: Timestamp) -> Result<Bearer, JwtError> {
        let now = now.as_second();
        let later = |name: &'static str| {
            Ok::<_, JwtError>(
                claims.time(name)?.is_some_and(|time| time.saturating_sub(LEEWAY_SECONDS) > now),
            )
        };
        let expires = claims.time("exp")?.ok_or(JwtError::Unreadable("claims"))?;
        if expires.saturating_add(LEEWAY_SECONDS) <= now {
            return Err(JwtError::Expired);
        }
        if later("nbf")? || later("iat")? {
            return Err(JwtError::NotYet);
        }
        if self.issuer.is_some() && claims.text("iss")? != self.issuer.as_deref() {
            return Err(JwtError::Issuer);
        }
        let audience = claims.list("aud").ok_or(JwtError::Unreadable("claims"))?;
        let meant = match (&self.audience, audience) {
            (Some(_), None) => false,
            (None, None) => true,
            (configured, Some(given)) => given.contains(&configured.as_deref().unwrap_or(JWT_AUDIENCE)),
        };
        if !meant {
            return Err(JwtError::Audience);
        }
        let role = self.role(claims).ok_or(JwtError::Role)?;
        let name = claims.text("sub")?.ok_or(JwtError::Unreadable("claims"))?;
        if !header::is_name(name) {
            return Err(JwtError::Unreadable("sub"));
        }
        Ok(Bearer { name: name.to_owned(), role })
    }

    /// The role with most rights among the values of the claim.
    fn role(&self, claims: &Claims) -> Option<Role> {
        let values = texts(claims.at(&self.role_claim)?)?;
        values.into_iter().filter_map(|value| self.role_of(value)).max_by_key(|role| rank(*role))
    }

    fn role_of(&self, value: &str) -> Option<Role> {
        if self.roles.is_empty() {
            return value.parse().ok().filter(|role: &Role| role.is_for_users());
        }
        let named = self.roles.iter().filter(|entry| entry.value == value);
        named.map(|entry| entry.role).max_by_key(|role| rank(*role))
    }
}

fn rank(role: Role) -> u8 {
    match role {
        Role::Admin => 3,
        Role::Operator => 2,
        Role::Viewer => 1,
        Role::ReportOnly | Role::RegistryOnly => 0,
    }
}

/// The claims of a token, none of them twice.
#[derive(Debug)]
pub(in crate::auth) struct Claims(Map<String, Value>);

impl Claims {
    /// A claim that is present and not null.
    fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// The claim with this name, or the value at the end of the names between dots.
    fn at(&self, path: &str) -> Option<&Value> {
        let inner = || {
            let mut names = path.split('.');
            let first = self.get(names.next()?)?;
            names.try_fold(first, |value, name| value.get(name))
        };
        self.get(path).or_else(inner)
    }

    fn text(&self, name: &str) -> Result<Option<&str>, JwtError> {
        let text = |value: &'_ Value| value.is_string();
        match self.get(name) {
            Some(value) if !text(value) => Err(JwtError::Unreadable("claims")),
            value => Ok(value.and_then(Value::as_str)),
        }
    }

    /// Seconds since 1970. RFC 7519 allows fractions; they are cut off.
    fn time(&self, name: &str) -> Result<Option<i64>, JwtError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let seconds = |number: &Number| {
            number.as_i64().or_else(|| {
                // Within ±2^53 the whole part of a float is exact.
                number.as_f64().filter(|time| time.abs() < 9_007_199_254_740_992.0).map(|time| time as i64)
            })
        };
        let time = value.as_number().and_then(seconds);
        time.map(Some).ok_or(JwtError::Unreadable("claims"))
    }

    /// A text or a list of texts; `Some(None)` when the claim is absent, `None` when it is something else.
    fn list(&self, name: &str) -> Option<Option<Vec<&str>>> {
        match self.get(name) {
            None => Some(None),
            Some(value) => texts(value).map(Some),
        }
    }

    #[cfg(test)]
    pub(in crate::auth) fn value(&self, name: &str) -> Option<&Value> {
        self.get(name)
    }
}

fn texts(value: &Value) -> Option<Vec<&str>> {
    match value {
        Value::String(one) => Some(vec![one]),
        Value::Array(many) => many.iter().map(Value::as_str).collect(),
        _ => None,
    }
}

impl<'de> Deserialize<'de> for Claims {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct UniqueNames;
        impl<'de> Visitor<'de> for UniqueNames {
            type Value = Claims;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of claims")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Claims, A::Error> {
                let mut claims = Map::new();
                while let Some((name, value)) = access.next_entry::<String, Value>()? {
                    if claims.insert(name, value).is_some() {
                        return Err(A::Error::custom("a claim occurs twice"));
                    }
                }
                Ok(Claims(claims))
            }
        }
        deserializer.deserialize_map(UniqueNames)
    }
}
