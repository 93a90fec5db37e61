//! Tokens of this registry: small signed documents with a subject and its scopes.
//!
//! ```text
//!  base64url {"alg":"HS256","typ":"JWT"} "." base64url claims "." base64url HMAC-SHA256 of what is before
//! ```
//!
//! The header is a constant and is compared as text: the token never chooses the algorithm that verifies it. The
//! signature is compared in constant time, and before the claims are parsed.
//!
//! Specification: RFC 7519, RFC 7515 section 3.1, Docker "Token Authentication Implementation".

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use uuid::Uuid;

use super::policy::PolicySubject;
use super::scope::Scope;

/// `{"alg":"HS256","typ":"JWT"}`
const HEADER: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9";
const TOKEN_MAX: usize = 16 << 10;

/// The claims of a token.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claims {
    iss: String,
    aud: String,
    /// Empty for an anonymous subject.
    sub: String,
    iat: u64,
    nbf: u64,
    exp: u64,
    jti: String,
    #[serde(default)]
    groups: Vec<String>,
    /// The only repository of a subject that may pull from one repository and do nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    only: Option<String>,
    /// The id of a subject that has rights of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    pub(super) access: Vec<Scope>,
}

/// The keys of issued tokens at this time: the first one signs, all of them verify. There is at least one.
pub type SigningKeys = Arc<dyn Fn(SystemTime) -> Vec<[u8; 32]> + Send + Sync>;

/// Signs and verifies tokens.
pub(super) struct Signer {
    keys: SigningKeys,
    service: String,
}

impl Signer {
    pub(super) fn new(keys: SigningKeys, service: String) -> Self {
        Signer { keys, service }
    }

    pub(super) fn service(&self) -> &str {
        &self.service
    }

    pub(super) fn sign(
        &self,
        subject: &PolicySubject,
        access: Vec<Scope>,
        now: SystemTime,
        lifetime: Duration,
    ) -> String {
        let (sub, groups, only, id) = match subject {
            PolicySubject::Anonymous => (String::new(), Vec::new(), None, None),
            PolicySubject::User { name, groups } => (name.clone(), groups.clone(), None, None),
            PolicySubject::Puller { name, repository } => {
                (name.clone(), Vec::new(), Some(repository.to_string()), None)
            }
            PolicySubject::Scoped { name, id, .. } => (name.clone(), Vec::new(), None, Some(id.clone())),
        };
        let key = (self.keys)(now).first().copied().unwrap_or_default();
        let now = seconds(now);
        let claims = Claims {
            iss: self.service.clone(),
            aud: self.service.clone(),
            sub,
            iat: now,
            nbf: now,
            exp: now.saturating_add(lifetime.as_secs()),
            jti: Uuid::new_v4().to_string(),
            groups,
            only,
            id,
            access,
        };
        // Strings and numbers always encode; a token without claims would be refused.
        let claims = serde_json::to_vec(&claims).unwrap_or_default();
        let signed = format!("{HEADER}.{}", URL_SAFE_NO_PAD.encode(claims));
        let signature = URL_SAFE_NO_PAD.encode(mac(&key, &signed).finalize().into_bytes());
        format!("{signed}.{signature}")
    }

    /// The subject and the scopes of a token that this signer issued and that is valid at `now`; `None` for any other
    /// token.
    pub(super) fn verify(&self, token: &str, now: SystemTime) -> Option<(PolicySubject, Vec<Scope>)> {
        let claims = self.claims(token, now)?;
        let now = seconds(now);
        let valid = (claims.nbf..claims.exp).contains(&now);
        if !valid || claims.aud != self.service || claims.iss != self.service {
            return None;
        }
        let subject = match (claims.sub, claims.only, claims.id) {
            (name, None, Some(id)) => PolicySubject::Scoped { name, id, grants: Vec::new() },
            (sub, None, None) if sub.is_empty() => PolicySubject::Anonymous,
            (name, None, None) => PolicySubject::User { name, groups: claims.groups },
            (name, Some(only), None) => PolicySubject::Puller { name, repository: only.parse().ok()? },
            (_, Some(_), Some(_)) => return None,
        };
        Some((subject, claims.access))
    }

    /// Whether this signer issued the token, expired or not.
    pub(super) fn issued(&self, token: &str, now: SystemTime) -> bool {
        self.claims(token, now).is_some()
    }

    fn claims(&self, token: &str, now: SystemTime) -> Option<Claims> {
        if token.len() > TOKEN_MAX {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        if header != HEADER {
            return None;
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let keys = (self.keys)(now);
        keys.iter().find(|key| mac(key, signed).verify_slice(&signature).is_ok())?;
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
    }
}

fn mac(key: &[u8; 32], signed: &str) -> Hmac<Sha256> {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
        unreachable!("HMAC accepts a key of any length")
    };
    mac.update(signed.as_bytes());
    mac
}

pub(super) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::super::policy::Rights;
    use super::*;
    use proptest::prelude::*;

    const LIFETIME: Duration = Duration::from_secs(300);

    fn signer() -> Signer {
        signer_of(vec![[1; 32]])
    }

    fn signer_of(keys: Vec<[u8; 32]>) -> Signer {
        Signer::new(Arc::new(move |_now| keys.clone()), "here".to_owned())
    }

    #[test]
    fn a_token_of_a_former_key_is_valid_while_the_key_is_accepted_and_the_first_key_signs() {
        let before = signer().sign(&ann(), scopes(), at(1000), LIFETIME);
        let both = signer_of(vec![[2; 32], [1; 32]]);
        assert!(both.verify(&before, at(1001)).is_some());
        let after = both.sign(&ann(), scopes(), at(1000), LIFETIME);
        assert!(signer_of(vec![[2; 32]]).verify(&after, at(1001)).is_some());
        assert!(signer().verify(&after, at(1001)).is_none(), "the former key signs nothing");
        assert!(signer_of(vec![[2; 32]]).verify(&before, at(1001)).is_none(), "it is no longer accepted");
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn ann() -> PolicySubject {
        PolicySubject::User { name: "ann".to_owned(), groups: vec!["ops".to_owned()] }
    }

    fn scopes() -> Vec<Scope> {
        Scope::parse_all(["repository:a/b:pull"].into_iter())
    }

    fn resigned(signer: &Signer, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let signature =
            URL_SAFE_NO_PAD.encode(mac(&(signer.keys)(at(0))[0], &signed).finalize().into_bytes());
        format!("{signed}.{signature}")
    }

    #[test]
    fn a_token_returns_its_subject_and_scopes_until_it_expires() {
        let signer = signer();
        assert_eq!(URL_SAFE_NO_PAD.decode(HEADER).unwrap(), br#"{"alg":"HS256","typ":"JWT"}"#);
        let token = signer.sign(&ann(), scopes(), at(1000), LIFETIME);
        for (now, valid) in [(999, false), (1000, true), (1299, true), (1300, false), (u64::MAX >> 2, false)]
        {
            let expected = valid.then(|| (ann(), scopes()));
            assert_eq!(signer.verify(&token, at(now)), expected, "{now}");
        }
        assert!(signer.issued(&token, at(1000)) && !signer_of(vec![[2; 32]]).issued(&token, at(1000)));
        let puller = PolicySubject::Puller { name: "a job".to_owned(), repository: "a/b".parse().unwrap() };
        let token = signer.sign(&puller, scopes(), at(1000), LIFETIME);
        assert_eq!(signer.verify(&token, at(1000)), Some((puller, scopes())));
        let grants = vec![("a/**".parse().unwrap(), Rights::READ)];
        let scoped = PolicySubject::Scoped { name: "ci".to_owned(), id: "7".to_owned(), grants };
        let bare = PolicySubject::Scoped { name: "ci".to_owned(), id: "7".to_owned(), grants: Vec::new() };
        let token = signer.sign(&scoped, scopes(), at(1000), LIFETIME);
        assert_eq!(
            signer.verify(&token, at(1000)),
            Some((bare, scopes())),
            "the grants are not in the token"
        );
        let anonymous = signer.sign(&PolicySubject::Anonymous, Vec::new(), at(1000), LIFETIME);
        assert_eq!(signer.verify(&anonymous, at(1000)), Some((PolicySubject::Anonymous, Vec::new())));
    }

    #[test]
    fn a_token_for_another_service_or_by_another_key_is_refused() {
        let token = signer().sign(&ann(), scopes(), at(1000), LIFETIME);
        assert!(
            Signer::new(Arc::new(|_now| vec![[1; 32]]), "there".to_owned())
                .verify(&token, at(1000))
                .is_none()
        );
        assert!(signer_of(vec![[2; 32]]).verify(&token, at(1000)).is_none());
    }

    #[test]
    fn a_token_does_not_choose_its_algorithm() {
        let signer = signer();
        let claims = r#"{"iss":"here","aud":"here","sub":"root","iat":0,"nbf":0,"exp":9999999999,"jti":"","access":[]}"#;
        assert!(signer.verify(&resigned(&signer, r#"{"alg":"HS256","typ":"JWT"}"#, claims), at(5)).is_some());
        for header in [
            r#"{"alg":"none","typ":"JWT"}"#,
            r#"{"alg":"HS512","typ":"JWT"}"#,
            r#"{"typ":"JWT","alg":"HS256"}"#,
            "",
        ] {
            assert!(signer.verify(&resigned(&signer, header, claims), at(5)).is_none(), "{header}");
        }
        let unsigned = format!("{HEADER}.{}.", URL_SAFE_NO_PAD.encode(claims));
        assert!(signer.verify(&unsigned, at(5)).is_none());
        assert!(signer.verify(&resigned(&signer, r#"{"alg":"HS256","typ":"JWT"}"#, "{}"), at(5)).is_none());
        for text in ["", ".", "..", "...", HEADER, &"x".repeat(TOKEN_MAX + 1)] {
            assert!(signer.verify(text, at(5)).is_none());
        }
    }

    #[test]
    fn claims_of_one_token_under_the_signature_of_another_are_refused() {
        let signer = signer();
        let wide = Scope::parse_all(["repository:a/b:*"].into_iter());
        let narrow = signer.sign(&ann(), scopes(), at(1000), LIFETIME);
        let other = signer_of(vec![[9; 32]]).sign(&ann(), wide, at(1000), LIFETIME);
        let (_, signature) = narrow.rsplit_once('.').unwrap();
        let (claims, _) = other.rsplit_once('.').unwrap();
        assert!(signer.verify(&format!("{claims}.{signature}"), at(1000)).is_none());
    }

    proptest! {
        #[test]
        fn a_changed_byte_invalidates_the_token(place in any::<prop::sample::Index>(), byte in 0x21u8..0x7f) {
            let signer = signer();
            let token = signer.sign(&ann(), scopes(), at(1000), LIFETIME);
            let mut forged = token.clone().into_bytes();
            let place = place.index(forged.len());
            forged[place] = byte;
            let forged = String::from_utf8(forged).unwrap();
            prop_assert!(forged == token || signer.verify(&forged, at(1000)).is_none());
        }
    }
}
