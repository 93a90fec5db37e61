//! The login of a command: an API token, or name and password of a user.
//!
//! ```text
//!   --token, SHOAL_TOKEN                        Bearer TOKEN                 RFC 6750, 2.1
//!   --user,  SHOAL_USER  and a password         Basic base64(USER:PASSWORD)  RFC 7617
//!                        |
//!                        +-- --user-password env:NAME or file:PATH, SHOAL_USER_PASSWORD
//!                        +-- else a question on the terminal, without echo
//! ```
//!
//! Invariants: an option replaces the variables; a password is no argument, because other users of a machine can list arguments; a header value with credentials
//! is marked as sensitive; the settings of the terminal are restored at every end of the question ([`super::silent`]).

use std::env::VarError;
use std::fs::File;
use std::io::{Read, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use reqwest::header::HeaderValue;
use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroizing;

use access::auth::MAX_PASSWORD_BYTES;
use secrets::{SecretError, SecretSource};

use super::error::CliError;
use super::silent::Silent;

/// The variable with an API token, or with its source.
const TOKEN_VARIABLE: &str = "SHOAL_TOKEN";
/// The variable with the name of a user.
const USER_VARIABLE: &str = "SHOAL_USER";
/// The variable with the password of the user, or with its source.
const PASSWORD_VARIABLE: &str = "SHOAL_USER_PASSWORD";
/// The terminal of the process, also while standard input is a file.
const TERMINAL: &str = "/dev/tty";

/// The credentials of the client.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct LoginArgs {
    /// An API token, or env:NAME or file:PATH of one. Default: SHOAL_TOKEN
    #[arg(long, global = true, help_heading = "Controller", value_name = "TOKEN")]
    token: Option<SecretSource>,
    /// The name of a user, in place of a token; the password is asked for. Default: SHOAL_USER
    #[arg(long, global = true, help_heading = "Controller", value_name = "NAME")]
    user: Option<String>,
    /// The password of the user without a question: env:NAME or file:PATH. Default: SHOAL_USER_PASSWORD
    #[arg(long, global = true, help_heading = "Controller", value_name = "SOURCE")]
    user_password: Option<SecretSource>,
}

impl LoginArgs {
    /// The value of the header `Authorization`; `None` without credentials.
    pub(super) fn authorization(&self) -> Result<Option<HeaderValue>, CliError> {
        match self.login()? {
            Login::None if self.user_password.is_some() => {
                Err(CliError::Usage("--user-password needs --user".to_owned()))
            }
            Login::None => Ok(None),
            Login::Token(source) => bearer(&token(&source)?).map(Some),
            Login::User(user) => basic(&user, &self.password(&user)?).map(Some),
        }
    }

    /// The API token; `None` without one.
    pub(super) fn token(&self) -> Result<Option<SecretString>, CliError> {
        match self.login()? {
            Login::Token(source) => token(&source).map(Some),
            Login::None | Login::User(_) => Ok(None),
        }
    }

    /// Options before variables: who has a variable for every day can give another login for one command.
    fn login(&self) -> Result<Login, CliError> {
        let two = |names: &str| CliError::Usage(format!("{names} are two logins; give one of them"));
        match (&self.token, &self.user) {
            (Some(_), Some(_)) => Err(two("--token and --user")),
            (Some(token), None) => Ok(Login::Token(token.clone())),
            (None, Some(user)) => Ok(Login::User(user.clone())),
            (None, None) => match (variable(TOKEN_VARIABLE)?, variable(USER_VARIABLE)?) {
                (Some(_), Some(_)) => Err(two("SHOAL_TOKEN and SHOAL_USER")),
                (Some(token), None) => token
                    .parse()
                    .map(Login::Token)
                    .map_err(|why| CliError::Usage(format!("{TOKEN_VARIABLE}: {why}"))),
                (None, Some(user)) => Ok(Login::User(user)),
                (None, None) => Ok(Login::None),
            },
        }
    }

    fn password(&self, user: &str) -> Result<SecretString, CliError> {
        let source = match &self.user_password {
            Some(SecretSource::Literal(_)) => {
                return Err(CliError::Usage(format!(
                    "--user-password: a password in an argument can be listed by every user of the machine; give env:NAME or \
                     file:PATH, set {PASSWORD_VARIABLE}, or leave the option out to be asked"
                )));
            }
            Some(source) => Some(source.clone()),
            None => match variable(PASSWORD_VARIABLE)? {
                Some(text) => Some(usable(text.parse())?),
                None => None,
            },
        };
        match source {
            Some(source) => usable(load(&source)),
            None => ask(user),
        }
    }
}

/// The login that the options and variables name.
enum Login {
    None,
    Token(SecretSource),
    User(String),
}

/// A variable of the environment; an empty one is not set.
fn variable(name: &str) -> Result<Option<String>, CliError> {
    match std::env::var(name) {
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => Ok(Some(text)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(CliError::Usage(format!("{name} is not UTF-8 text"))),
    }
}

fn load(source: &SecretSource) -> Result<SecretString, SecretError> {
    source.load(&|name| std::env::var_os(name))
}

fn token(source: &SecretSource) -> Result<SecretString, CliError> {
    load(source).map_err(|why| CliError::Usage(format!("--token: {why}")))
}

fn usable<T>(password: Result<T, impl std::fmt::Display>) -> Result<T, CliError> {
    password.map_err(|why| CliError::Usage(format!("the password of --user: {why}")))
}

/// Builds the value of a header with an API token.
fn bearer(token: &SecretString) -> Result<HeaderValue, CliError> {
    let value = Zeroizing::new(format!("Bearer {}", token.expose_secret()));
    sensitive(&value).ok_or_else(|| {
        CliError::Usage("--token contains characters that are not allowed in a token".to_owned())
    })
}

fn basic(user: &str, password: &SecretString) -> Result<HeaderValue, CliError> {
    if user.is_empty() || user.contains(':') {
        return Err(CliError::Usage("--user: a name has at least one character and no colon".to_owned()));
    }
    let pair = Zeroizing::new(format!("{user}:{}", password.expose_secret()));
    let value = Zeroizing::new(format!("Basic {}", STANDARD.encode(pair.as_bytes())));
    sensitive(&value).ok_or_else(|| CliError::Usage("--user: the name cannot be sent".to_owned()))
}

fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Asks for the password on the terminal of the process.
fn ask(user: &str) -> Result<SecretString, CliError> {
    let Ok(terminal) = File::options().read(true).write(true).open(TERMINAL) else {
        return Err(CliError::Usage(format!(
            "--user: there is no terminal on which the password can be asked for; give --user-password env:NAME or file:PATH, or \
             set {PASSWORD_VARIABLE}"
        )));
    };
    let silent = Silent::enter(&terminal)?;
    write!(&terminal, "Password of {user}: ")?;
    let typed = typed(&mut (&terminal).take(u64::try_from(MAX_KEYS).unwrap_or(u64::MAX)));
    drop(silent);
    writeln!(&terminal)?;
    typed
}

/// The most keys of a question: a password and its corrections.
const MAX_KEYS: usize = 4 * MAX_PASSWORD_BYTES;

/// Reads keys one by one until the line ends.
fn typed(keys: &mut impl Read) -> Result<SecretString, CliError> {
    const INTERRUPT: u8 = 0x03;
    const END: u8 = 0x04;
    const ERASE_LINE: u8 = 0x15;
    // It never grows, so that no copy of the password stays in memory.
    let mut line = Zeroizing::new(Vec::with_capacity(MAX_PASSWORD_BYTES));
    let mut key = Zeroizing::new([0_u8]);
    loop {
        let read = keys.read(key.as_mut_slice())?;
        match key[0] {
            _ if read == 0 => break,
            b'\r' | b'\n' => break,
            INTERRUPT => return Err(CliError::failed("the question for the password was interrupted")),
            END if line.is_empty() => break,
            ERASE_LINE => line.clear(),
            0x08 | 0x7f => erase(&mut line),
            // Such as Ctrl-Z and Ctrl-\, which do nothing else while the question is open.
            0x00..0x20 => {
                return Err(CliError::Usage(
                    "the question for the password has ended: a control character was typed; a password that has one is given \
                     with --user-password"
                        .to_owned(),
                ));
            }
            _ if line.len() == MAX_PASSWORD_BYTES => {
                return Err(CliError::Usage(format!("a password has at most {MAX_PASSWORD_BYTES} bytes")));
            }
            key => line.push(key),
        }
    }
    match str::from_utf8(&line) {
        Ok("") => Err(CliError::Usage("no password was given".to_owned())),
        Ok(text) => Ok(SecretString::from(text)),
        Err(_) => Err(CliError::Usage("the password is not UTF-8 text".to_owned())),
    }
}

/// Removes the last character, all bytes of it.
fn erase(line: &mut Vec<u8>) {
    while let Some(byte) = line.pop() {
        if byte & 0xc0 != 0x80 {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(keys: &[u8]) -> Result<String, String> {
        let typed = typed(&mut &*keys);
        typed.map(|password| password.expose_secret().to_owned()).map_err(|error| error.to_string())
    }

    #[test]
    fn keys_correct_the_password_before_the_line_ends() {
        assert_eq!(of(b"open sesame\r"), Ok("open sesame".to_owned()));
        assert_eq!(of(b"open\x7f\x7fal\nrest"), Ok("opal".to_owned()));
        assert_eq!(of("caf\u{e9}\u{8}e\r".as_bytes()), Ok("cafe".to_owned()));
        assert_eq!(of(b"wrong\x15right\r"), Ok("right".to_owned()));
        assert_eq!(of(b"no line end"), Ok("no line end".to_owned()));
    }

    #[test]
    fn a_question_without_a_password_is_an_error() {
        for keys in [&b"\r"[..], b"\x04", b"", b"secret\x03", b"\xff\r"] {
            let error = of(keys).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
        let long = vec![b'a'; MAX_PASSWORD_BYTES + 1];
        assert!(of(&long).unwrap_err().contains("at most"));
    }

    #[test]
    fn a_control_character_is_no_part_of_a_typed_password() {
        for key in [0x1a, 0x1c, 0x04, 0x17, 0x1b, 0x00] {
            let error = of(&[b's', b'e', key, b'c', b'\r']).unwrap_err();
            assert!(error.contains("control character"), "{key}: {error}");
        }
    }

    #[test]
    fn a_login_is_a_token_or_a_user_and_hides_its_secret() {
        let source = |text: &str| Some(text.parse().unwrap());
        let token = LoginArgs { token: source("abc"), ..LoginArgs::default() };
        let value = token.authorization().unwrap().unwrap();
        assert!(value.is_sensitive());
        assert_eq!(value, "Bearer abc");
        let both = LoginArgs { user: Some("bea".to_owned()), ..token };
        assert!(both.authorization().unwrap_err().to_string().contains("two logins"));
        let literal = LoginArgs { token: None, user_password: source("literal-canary"), ..both };
        let refused = literal.authorization().unwrap_err().to_string();
        assert!(refused.contains("can be listed") && !refused.contains("canary"), "{refused}");
        let alone = LoginArgs { user: None, ..literal };
        assert!(alone.authorization().unwrap_err().to_string().contains("needs --user"));
        // RFC 7617, 2: the example of the specification.
        let basic = basic("Aladdin", &SecretString::from("open sesame")).unwrap();
        assert_eq!(basic, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    }
}
