//! The credentials of a NATS connection, as the text of a file.

use async_nats::ConnectOptions;
use secrecy::{ExposeSecret, SecretString};

/// The longest file of credentials.
const MAX_BYTES: usize = 64 << 10;
/// What the file of a user with an NKEY begins with.
const JWT: &str = "-----BEGIN NATS USER JWT-----";

/// Credentials: a user with an NKEY, a user with a password, or a token.
#[derive(Clone, Debug)]
pub struct Credentials(Kind);

#[derive(Clone, Debug)]
enum Kind {
    /// The content of a `.creds` file. The key signs a random text of the server and is not sent.
    Signed(SecretString),
    Password(String, SecretString),
    Token(SecretString),
}

/// Why a text has no credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// The text is empty.
    #[error("it is empty; put a token, USER:PASSWORD or the content of a .creds file into it")]
    Empty,
    /// The text is too long, or has several lines that are not those of a `.creds` file.
    #[error("it is neither a .creds file nor one line with a token or USER:PASSWORD")]
    Form,
    /// The text begins as a `.creds` file, and its JWT or its key cannot be read.
    #[error("its JWT or its NKEY seed cannot be read; make the .creds file again")]
    Signed,
}

impl Credentials {
    /// Reads credentials: the content of a `.creds` file, or one line with `USER:PASSWORD` or a token.
    ///
    /// # Errors
    /// When the text is none of these.
    pub fn parse(text: &str) -> Result<Self, CredentialsError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(CredentialsError::Empty);
        }
        if text.len() > MAX_BYTES {
            return Err(CredentialsError::Form);
        }
        if text.starts_with(JWT) {
            ConnectOptions::new().credentials(text).map_err(|_| CredentialsError::Signed)?;
            return Ok(Self(Kind::Signed(SecretString::from(text))));
        }
        if text.chars().any(|letter| letter.is_control() || letter == ' ') {
            return Err(CredentialsError::Form);
        }
        Ok(Self(match text.split_once(':') {
            Some((user, password)) => Kind::Password(user.to_owned(), SecretString::from(password)),
            None => Kind::Token(SecretString::from(text)),
        }))
    }

    /// Whether the credentials are sent to the server, so that the connection must be encrypted.
    pub fn are_sent(&self) -> bool {
        !matches!(self.0, Kind::Signed(_))
    }

    /// Adds the credentials to the options of a connection.
    pub(crate) fn apply(&self, options: ConnectOptions) -> Result<ConnectOptions, CredentialsError> {
        Ok(match &self.0 {
            Kind::Signed(text) => {
                options.credentials(text.expose_secret()).map_err(|_| CredentialsError::Signed)?
            }
            Kind::Password(user, password) => {
                options.user_and_password(user.clone(), password.expose_secret().to_owned())
            }
            Kind::Token(token) => options.token(token.expose_secret().to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_token_or_a_user_with_a_password() {
        assert!(matches!(Credentials::parse("s3cr3t\n").unwrap().0, Kind::Token(_)));
        let Kind::Password(user, password) = Credentials::parse("shoal:pass:word").unwrap().0 else {
            panic!()
        };
        assert_eq!((user.as_str(), password.expose_secret()), ("shoal", "pass:word"));
    }

    #[test]
    fn credentials_are_not_printed() {
        for text in ["s3cr3t", "shoal:s3cr3t"] {
            assert!(!format!("{:?}", Credentials::parse(text).unwrap()).contains("s3cr3t"));
        }
    }

    #[test]
    fn other_texts_are_refused_with_words() {
        for (text, why) in [
            (" \n", CredentialsError::Empty),
            ("one\ntwo", CredentialsError::Form),
            ("-----BEGIN NATS USER JWT-----\nnothing", CredentialsError::Signed),
        ] {
            assert_eq!(Credentials::parse(text).map(drop), Err(why), "{text}");
        }
        assert_eq!(Credentials::parse(&"x".repeat(MAX_BYTES + 1)).map(drop), Err(CredentialsError::Form));
    }
}
