//! The authentication that a registry requests with a 401: Basic, or a token of the server that it names.

use url::Url;

/// The answer that a registry wants to a 401.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    /// User and password.
    Basic,
    /// A token of this URL, query included.
    Token(Url),
}

impl Challenge {
    /// Parses `WWW-Authenticate`. `scope` is requested when the challenge names none. `None` for a challenge that is not followed:
    /// another scheme, or a token server to which a password would go in the clear.
    pub(super) fn parse(header: &str, registry: &Url, scope: &str) -> Option<Self> {
        let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let parameters = parameters(rest);
        let value = |name: &str| {
            parameters
                .iter()
                .find(|(known, _)| known.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.as_str())
        };
        let mut realm = registry.join(value("realm")?).ok()?;
        if realm.scheme() != "https" && realm.origin() != registry.origin() {
            return None;
        }
        {
            let mut query = realm.query_pairs_mut();
            if let Some(service) = value("service") {
                query.append_pair("service", service);
            }
            query.append_pair("scope", value("scope").unwrap_or(scope));
        }
        Some(Self::Token(realm))
    }
}

/// The parameters of a challenge: `name="value"` or `name=value`, separated by commas outside of quotes.
fn parameters(text: &str) -> Vec<(String, String)> {
    let (mut found, mut part, mut quoted) = (Vec::new(), String::new(), false);
    for character in text.chars().chain([',']) {
        match character {
            '"' => quoted = !quoted,
            ',' if !quoted => {
                if let Some((name, value)) = part.split_once('=') {
                    found.push((name.trim().to_owned(), value.trim().to_owned()));
                }
                part.clear();
            }
            other => part.push(other),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_header_is_a_way_for_a_password_into_the_clear(header in ".{0,200}") {
            let registry = Url::parse("https://registry.example/").unwrap();
            let bearer = format!("Bearer realm={header}");
            for header in [header, bearer] {
                if let Some(Challenge::Token(url)) = Challenge::parse(&header, &registry, "scope") {
                    prop_assert_eq!(url.scheme(), "https");
                }
            }
        }
    }

    fn parse(header: &str) -> Option<String> {
        let registry = Url::parse("https://registry.example/").unwrap();
        Challenge::parse(header, &registry, "repository:a:pull,push").map(|challenge| match challenge {
            Challenge::Basic => "basic".to_owned(),
            Challenge::Token(url) => url.to_string(),
        })
    }

    #[test]
    fn a_token_is_requested_with_the_service_and_the_scope_of_the_challenge() {
        let header = r#"Bearer realm="https://auth.example/token",service="registry",scope="repository:a:pull,push,delete""#;
        let wanted =
            "https://auth.example/token?service=registry&scope=repository%3Aa%3Apull%2Cpush%2Cdelete";
        assert_eq!(parse(header).as_deref(), Some(wanted));
        let wanted = "https://registry.example/token?scope=repository%3Aa%3Apull%2Cpush";
        assert_eq!(parse(r#"bearer realm="/token""#).as_deref(), Some(wanted));
        assert_eq!(parse(r#"Basic realm="x""#).as_deref(), Some("basic"));
    }

    #[test]
    fn a_password_goes_to_no_token_server_in_the_clear() {
        assert_eq!(parse(r#"Bearer realm="http://auth.example/token""#), None);
        assert_eq!(parse("Bearer service=x"), None);
        assert_eq!(parse("Negotiate"), None);
        assert_eq!(parse(""), None);
    }
}
