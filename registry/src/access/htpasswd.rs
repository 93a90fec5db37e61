//! The lines of an htpasswd file.
//!
//! ```text
//!  ann:$2y$10$<22 characters of salt><31 of hash>      $2a$ and $2b$ as well, cost 04 to 15
//!  ann:$2y$10$<22 characters of salt><31 of hash>      $2a$ and $2b$ as well, cost 04 to 15
//!  # a comment
//!
//! Only bcrypt hashes are accepted, as `htpasswd -B` writes them: the older hashes are fast to guess. A malformed line is
//! left out and reported by its number, never by its content. The first of two lines for one user counts.
//!
//! Specification: Apache `htpasswd`, bcrypt modular crypt format.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

const USER_MAX: usize = 256;
const LINE_MAX: usize = 1024;
/// A higher cost takes seconds on any machine.
const COST_MAX: u32 = 15;
const COST_MIN: u32 = 4;
/// The most problems that are reported one by one.
const PROBLEMS_MAX: usize = 16;

/// A well-formed bcrypt hash.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Hash(String);

/// The users of a file and the problems found in it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub(crate) users: HashMap<String, Hash>,
    /// Line numbers with their problems.
    pub(crate) problems: Vec<(usize, &'static str)>,
}

impl Hash {
    /// Checks the form, and that verification takes an acceptable time.
    fn parse(text: &str) -> Result<Self, &'static str> {
        let rest = ["$2y$", "$2b$", "$2a$"].iter().find_map(|prefix| text.strip_prefix(prefix));
        let rest = rest.ok_or("only bcrypt hashes are supported: create the line with 'htpasswd -B'")?;
        let (cost, hash) = rest.split_once('$').ok_or("the bcrypt hash is cut off")?;
        let digits = cost.len() == 2 && cost.bytes().all(|byte| byte.is_ascii_digit());
        let cost = cost.parse::<u32>().ok().filter(|_| digits).ok_or("the bcrypt cost is not a number")?;
        if !(COST_MIN..=COST_MAX).contains(&cost) {
            return Err("the bcrypt cost is not between 4 and 15");
        }
        let alphabet = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'/';
        if hash.len() != 53 || !hash.bytes().all(alphabet) {
            return Err("the bcrypt hash is not 53 characters of its alphabet");
        }
        Ok(Hash(text.to_owned()))
    }

    /// A hash that no password matches and that takes as long to verify as one of this cost.
    pub(crate) fn dummy(cost: u32) -> Self {
        Hash(format!("$2b${cost:02}${}", "C6UzMDM.H6dfI/f/IKcEeO7ZxE2QOGmGQOYwLMG4J4vl9vnPvYx4S"))
    }

    pub(crate) fn cost(&self) -> u32 {
        self.0[4..6].parse().unwrap_or(COST_MAX)
    }

    /// Whether `password` matches the hash. Takes tens of milliseconds.
    pub(crate) fn verify(&self, password: &str) -> bool {
        bcrypt::verify(password, &self.0).unwrap_or(false)
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// Parses the text of a file.
pub(crate) fn parse(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_end();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Err(problem) = parsed.add(line)
            && parsed.problems.len() < PROBLEMS_MAX
        {
            parsed.problems.push((number + 1, problem));
        }
    }
    parsed
}

impl Parsed {
    fn add(&mut self, line: &str) -> Result<(), &'static str> {
        if line.len() > LINE_MAX {
            return Err("the line is too long");
        }
        let (user, hash) = line.split_once(':').ok_or("the line is not <user>:<hash>")?;
        if user.is_empty() || user.len() > USER_MAX || user.contains(char::is_control) {
            return Err("the name of the user is empty, too long or has control characters");
        }
        let hash = Hash::parse(hash)?;
        match self.users.entry(user.to_owned()) {
            Entry::Vacant(vacant) => {
                vacant.insert(hash);
                Ok(())
            }
            Entry::Occupied(_) => Err("an earlier line of this user counts"),
        }
    }

    /// The highest cost of any user's hash; the usual cost when the file has no user.
    pub(crate) fn cost(&self) -> u32 {
        self.users.values().map(Hash::cost).max().unwrap_or(10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HASH: &str = "C6UzMDM.H6dfI/f/IKcEeO7ZxE2QOGmGQOYwLMG4J4vl9vnPvYx4S";

    #[test]
    fn each_bcrypt_prefix_is_accepted_and_comments_are_skipped() {
        let text = format!("# users\n\nann:$2y$10${HASH}\r\nbob:$2a$04${HASH}\n  \neve:$2b$15${HASH}");
        let parsed = parse(&text);
        assert_eq!(parsed.problems, []);
        let costs = ["ann", "bob", "eve"].map(|user| parsed.users[user].cost());
        assert_eq!(costs, [10, 4, 15]);
        assert_eq!(parsed.cost(), 15);
    }

    #[test]
    fn a_malformed_line_adds_no_user_and_is_reported_by_its_number() {
        for line in [
            "ann".to_owned(),
            "ann:".to_owned(),
            format!(":$2y$10${HASH}"),
            "ann:sesame".to_owned(),
            "ann:$apr1$salt$hash".to_owned(),
            "ann:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=".to_owned(),
            format!("ann:$2x$10${HASH}"),
            format!("ann:$2$10${HASH}"),
            format!("ann:$2y$31${HASH}"),
            format!("ann:$2y$16${HASH}"),
            format!("ann:$2y$03${HASH}"),
            format!("ann:$2y$+9${HASH}"),
            format!("ann:$2y$010${HASH}"),
            format!("ann:$2y$10${HASH}x"),
            format!("ann:$2y$10${}", &HASH[1..]),
            format!("ann:$2y$10${}", HASH.replace('C', "ä")),
            format!("ann:$2y$10${}:more", HASH),
            format!("a\u{7}nn:$2y$10${HASH}"),
            format!("{}:$2y$10${HASH}", "a".repeat(257)),
            format!("ann:{}", "x".repeat(2000)),
        ] {
            let parsed = parse(&format!("# first\n{line}\n"));
            assert!(parsed.users.is_empty(), "{line}");
            assert_eq!(parsed.problems.len(), 1, "{line}");
            assert_eq!(parsed.problems[0].0, 2);
        }
        assert_eq!(parse(&"x\n".repeat(1000)).problems.len(), PROBLEMS_MAX);
    }

    #[test]
    fn the_first_of_two_lines_for_one_user_counts() {
        let parsed = parse(&format!("ann:$2y$10${HASH}\nann:$2y$11${HASH}\n"));
        assert_eq!(parsed.users["ann"].cost(), 10);
        assert_eq!(parsed.problems.len(), 1);
    }

    #[test]
    fn hashes_are_never_printed() {
        let shown = format!("{:?}", parse(&format!("ann:$2y$10${HASH}\nbob:{HASH}\n")));
        assert!(!shown.contains("C6Uz"), "{shown}");
    }

    #[test]
    fn a_password_verifies_against_hashes_of_other_implementations() {
        // Written by the C library's crypt.
        let known = Hash::parse("$2y$05$abcdefghijklmnopqrstuuZlDIKNqJBrE3WEj5lKP6sWoSJAIu5AS").unwrap();
        assert!(known.verify("open: sesame ä") && !known.verify("open: sesame a"));
        let hash = Hash::parse(&bcrypt::hash("sesame", 4).unwrap()).unwrap();
        assert!(hash.verify("sesame") && !hash.verify("sesamE"));
        assert!(!Hash::dummy(4).verify("sesame") && Hash::parse(&Hash::dummy(4).0).is_ok());
    }

    proptest! {
        #[test]
        fn every_parsed_user_comes_from_a_well_formed_line(text in "([ab:$2y0-9.\n#]|\\$2y\\$10\\$){0,80}") {
            for user in parse(&text).users.keys() {
                let line = format!("{user}:$2");
                prop_assert!(text.lines().any(|found| found.starts_with(&line)));
            }
        }
    }
}
