//! `rescue.target`: how a machine in the rescue system is reached.
//!
//! ```text
//! recipe: ssh_authorized_keys --start--> Reach { addresses, ssh_host_key, consoles } --report "reachable"--> controller
//! ```
//!
//! No disk is opened. The machine stays on until the controller ends the session.

use std::net::IpAddr;

use serde::Serialize;

use crate::log::Log;

/// Most keys of a recipe.
const MAX_KEYS: usize = 32;
/// The longest key in bytes.
const MAX_KEY: usize = 8192;
/// The kinds of keys that may begin a line of `authorized_keys`: options before them would be orders to the SSH server.
const KINDS: [&str; 4] = ["ssh-ed25519", "ssh-rsa", "ecdsa-sha2-", "sk-"];

/// The keys that may log in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys(Vec<String>);

impl Keys {
    /// Checks the keys of a recipe: a recipe on a medium made by hand was not checked.
    ///
    /// # Errors
    /// Returns a sentence that names the wrong key by its place.
    pub fn parse(keys: Vec<String>) -> Result<Self, String> {
        if keys.len() > MAX_KEYS {
            return Err(format!("recipe.json: ssh_authorized_keys has more than {MAX_KEYS} keys"));
        }
        for (index, key) in keys.iter().enumerate() {
            let known = KINDS.iter().any(|kind| key.starts_with(kind)) && key.contains(' ');
            if !known || key.len() > MAX_KEY || key.chars().any(char::is_control) {
                return Err(format!(
                    "recipe.json: ssh_authorized_keys/{index} is no line of an authorized_keys file without options"
                ));
            }
        }
        Ok(Self(keys))
    }

    /// Returns whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the content of `authorized_keys`.
    #[must_use]
    pub fn file(&self) -> String {
        self.0.iter().map(|key| format!("{key}\n")).collect()
    }
}

/// How the machine is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RescueReach {
    /// The addresses of the machine.
    pub addresses: Vec<IpAddr>,
    /// The fingerprint of the SSH host key, if there is an SSH server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh_host_key: Option<String>,
    /// The terminals with a shell.
    pub consoles: Vec<String>,
}

impl RescueReach {
    /// Describes for the console how the machine is reached: addresses, SSH and shells.
    #[must_use]
    pub fn shown(&self) -> String {
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        let ssh = match &self.ssh_host_key {
            Some(key) => format!("SSH as root with a key of the recipe, host key {key}"),
            None => "no SSH".to_owned(),
        };
        format!("addresses: {}; {ssh}; shells: {}", addresses.join(", "), self.consoles.join(", "))
    }
}

/// Starts shells and the SSH server.
pub trait RescueHost {
    /// Makes the machine usable for an operator. What is started goes on after the return.
    ///
    /// # Errors
    /// Returns a sentence that says what is missing and what to do.
    fn start(&self, keys: &Keys, log: &Log) -> Result<RescueReach, String>;
}

/// A system that is not the medium of `shoal maintenance build`: its operator decides who logs in.
pub struct NoRescue;

impl RescueHost for NoRescue {
    fn start(&self, _keys: &Keys, _log: &Log) -> Result<RescueReach, String> {
        Err("rescue.target needs the medium of `shoal maintenance build`: this agent runs as a program of another system, whose logins it \
             does not change"
            .to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_lines_without_options() {
        let good = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGV4YW1wbGV4 a@b".to_owned();
        assert_eq!(
            Keys::parse(vec![good.clone(), good.clone()]).unwrap().file(),
            format!("{good}\n{good}\n")
        );
        assert!(Keys::parse(Vec::new()).unwrap().is_empty());
        for bad in [
            "",
            "ssh-ed25519",
            "command=\"x\" ssh-rsa AAAA",
            "ssh-rsa AA\nssh-rsa BB",
            &"ssh-rsa ".repeat(2000),
        ] {
            let refused = Keys::parse(vec![good.clone(), bad.to_owned()]).unwrap_err();
            assert!(refused.contains("ssh_authorized_keys/1"), "{refused}");
        }
        assert!(Keys::parse(vec![good; 33]).is_err());
    }
}
