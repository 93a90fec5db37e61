//! Who may do what: rules as data, and the one pure function that reads them.
//!
//! ```text
//!  an immutable tag to be moved or deleted ─> no
//!  somebody who may pull from one repository ─> yes there and for that, otherwise no
//!  an administrator                        ─> yes
//!  rules whose pattern fits the repository ─> those of the most specific pattern decide, for everybody:
//!                                             yes when one of them gives the subject the right, otherwise no
//!  no rule fits                            ─> what `authenticated` gives a known subject, and the two switches everybody
//!  otherwise                               ─> no
//! ```
//!
//! The rules of one pattern are the access list of what it fits, so a narrower pattern replaces a wider one as a whole:
//! it can take rights away as well as give them. More specific is what fixes more characters, then what has fewer
//! `**`, then fewer `*`; rules which are equal in all of this are one list. The order of rules never matters.
//!
//! A push needs [`Rights::CREATE`]. A tag that exists and is to name something else needs [`Rights::UPDATE`] as well; a
//! tag pushed again as it was does not move. A mount needs [`Rights::READ`] where the blob is.
//!
//! What anybody may do without logging in, those who did may do as well.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use super::Action;
use crate::name::{RepositoryName, Tag};
use crate::pattern::RepositoryPattern;
use crate::store::TagPattern;

/// The whole of who may do what. The default lets nobody do anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Rights in the repositories a pattern fits.
    pub rules: Vec<Rule>,
    /// Those who may do everything everywhere, but for immutable tags.
    pub administrators: Vec<Who>,
    /// What known users may do in repositories no rule fits.
    pub authenticated: Rights,
    /// Whether everybody may read repositories no rule fits.
    pub anonymous_read: bool,
    /// Whether everybody may push to repositories no rule fits, tags that exist included.
    pub anonymous_write: bool,
    /// Tags that stay as they are.
    pub immutable: Vec<ImmutableTags>,
    /// Users of groups, beside what the authenticator says of them.
    pub groups: BTreeMap<String, BTreeSet<String>>,
}

/// Rights in some repositories for some subjects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Where.
    pub repositories: RepositoryPattern,
    /// Whose.
    pub subjects: Vec<Who>,
    /// What they may do; nothing is an answer as well.
    pub rights: Rights,
}

/// Tags that, once they exist, neither move nor go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImmutableTags {
    /// Where.
    pub repositories: RepositoryPattern,
    /// Which.
    pub tags: TagPattern,
}

/// Whom a rule speaks of.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Who {
    /// Everybody, logged in or not.
    Anonymous,
    /// Everybody who logged in.
    Authenticated,
    /// One user.
    User(String),
    /// A group, or a role.
    Group(String),
}

/// Who asks, once it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Subject {
    /// Nobody in particular.
    #[default]
    Anonymous,
    /// A user.
    User {
        /// The name.
        name: String,
        /// The groups or roles the authenticator knows of.
        groups: Vec<String>,
    },
    /// Somebody who may pull from one repository, whatever the policy says, and nothing else, not even what everybody may.
    Puller {
        /// The name.
        name: String,
        /// The repository.
        repository: RepositoryName,
    },
}

/// A set of rights: read, create, update, delete.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Rights(u8);

/// What is to be decided.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Where.
    pub repository: &'a RepositoryName,
    /// What.
    pub action: Action,
    /// The tag that moves or goes, when it is about one.
    pub tag: Option<&'a Tag>,
}

/// What was decided, and why. Its `Display` is for logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision<'p> {
    /// Whether it may be done.
    pub allowed: bool,
    /// What in the policy says so.
    pub reason: Reason<'p>,
}

/// What in a policy a decision comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason<'p> {
    /// The tag is immutable.
    Immutable(&'p ImmutableTags),
    /// The subject may pull from one repository and do nothing else.
    Puller,
    /// The subject is an administrator.
    Administrator,
    /// This rule gives the right.
    Rule(&'p Rule),
    /// Rules of this pattern decide, and none of them gives the right.
    NotAmong(&'p RepositoryPattern),
    /// No rule fits; this is what holds then.
    Otherwise(&'static str),
}

impl Subject {
    /// The name, when it is not nobody in particular.
    pub(super) fn into_name(self) -> Option<String> {
        match self {
            Subject::Anonymous => None,
            Subject::User { name, .. } | Subject::Puller { name, .. } => Some(name),
        }
    }
}

impl Policy {
    /// What an htpasswd file without any rules means: everybody in it may do everything, nobody else anything.
    pub fn full_access_for_users() -> Self {
        Policy { authenticated: Rights::ALL, ..Policy::default() }
    }

    /// Whether the tag, once there, stays as it is.
    pub fn is_immutable(&self, repository: &RepositoryName, tag: &Tag) -> bool {
        self.immutability(repository, tag).is_some()
    }

    /// Whether there may be anything for those who did not log in.
    pub fn allows_anonymous(&self) -> bool {
        let speaks = |subjects: &[Who]| subjects.contains(&Who::Anonymous);
        self.anonymous_read
            || self.anonymous_write
            || speaks(&self.administrators)
            || self.rules.iter().any(|rule| rule.rights != Rights::NONE && speaks(&rule.subjects))
    }

    fn immutability(&self, repository: &RepositoryName, tag: &Tag) -> Option<&ImmutableTags> {
        let fits = |set: &&ImmutableTags| set.repositories.matches(repository) && set.tags.matches(tag);
        self.immutable.iter().find(fits)
    }

    fn speaks_of(&self, subjects: &[Who], subject: &Subject) -> bool {
        subjects.iter().any(|who| match (who, subject) {
            (Who::Anonymous, _) | (Who::Authenticated, Subject::User { .. }) => true,
            (Who::User(wanted), Subject::User { name, .. }) => wanted == name,
            (Who::Group(wanted), Subject::User { name, groups }) => {
                groups.contains(wanted) || self.groups.get(wanted).is_some_and(|users| users.contains(name))
            }
            (_, Subject::Anonymous | Subject::Puller { .. }) => false,
        })
    }
}

/// Decides one request.
pub fn decide<'p>(policy: &'p Policy, subject: &Subject, request: &Request<'_>) -> Decision<'p> {
    decide_by(policy, subject, request, specificity)
}

/// How specific a pattern is; the greater one decides.
pub(super) type Specificity = (usize, Reverse<usize>, Reverse<usize>);

fn specificity(pattern: &RepositoryPattern) -> Specificity {
    let stars = pattern.as_str().bytes().filter(|byte| *byte == b'*').count();
    (pattern.fixed_characters(), Reverse(pattern.as_str().matches("**").count()), Reverse(stars))
}

/// The decision with an order of patterns to choose, so that tests can show what a wrong one does.
pub(super) fn decide_by<'p>(
    policy: &'p Policy,
    subject: &Subject,
    request: &Request<'_>,
    specificity: fn(&RepositoryPattern) -> Specificity,
) -> Decision<'p> {
    let yes = |reason| Decision { allowed: true, reason };
    let no = |reason| Decision { allowed: false, reason };
    if let (Action::Move | Action::Delete, Some(tag)) = (request.action, request.tag)
        && let Some(set) = policy.immutability(request.repository, tag)
    {
        return no(Reason::Immutable(set));
    }
    if let Subject::Puller { repository, .. } = subject {
        let allowed = request.action == Action::Pull && request.repository == repository;
        return Decision { allowed, reason: Reason::Puller };
    }
    if policy.speaks_of(&policy.administrators, subject) {
        return yes(Reason::Administrator);
    }
    let needed = Rights::for_action(request.action);
    let fitting = || policy.rules.iter().filter(|rule| rule.repositories.matches(request.repository));
    let Some(most) = fitting().map(|rule| specificity(&rule.repositories)).max() else {
        return otherwise(policy, subject, needed);
    };
    let deciding = || fitting().filter(|rule| specificity(&rule.repositories) == most);
    let gives = |rule: &&Rule| rule.rights.contains(needed) && policy.speaks_of(&rule.subjects, subject);
    match (deciding().find(gives), deciding().next()) {
        (Some(rule), _) => yes(Reason::Rule(rule)),
        (None, Some(rule)) => no(Reason::NotAmong(&rule.repositories)),
        (None, None) => no(Reason::Otherwise("no rule fits")),
    }
}

fn otherwise(policy: &Policy, subject: &Subject, needed: Rights) -> Decision<'static> {
    let known = *subject != Subject::Anonymous;
    let (allowed, reason) = if policy.anonymous_read && Rights::READ.contains(needed) {
        (true, "no rule fits, and everybody may read")
    } else if policy.anonymous_write && Rights::CREATE.and(Rights::UPDATE).contains(needed) {
        (true, "no rule fits, and everybody may push")
    } else if known && policy.authenticated.contains(needed) {
        (true, "no rule fits, and whoever logged in may")
    } else {
        (false, "no rule fits")
    };
    Decision { allowed, reason: Reason::Otherwise(reason) }
}

impl Rights {
    /// None at all.
    pub const NONE: Rights = Rights(0);
    /// To pull.
    pub const READ: Rights = Rights(1);
    /// To push what is not there.
    pub const CREATE: Rights = Rights(2);
    /// To move tags.
    pub const UPDATE: Rights = Rights(4);
    /// To delete.
    pub const DELETE: Rights = Rights(8);
    /// All of them.
    pub const ALL: Rights = Rights(15);

    const NAMES: [(Rights, &'static str); 4] =
        [(Self::READ, "read"), (Self::CREATE, "create"), (Self::UPDATE, "update"), (Self::DELETE, "delete")];

    /// These and those.
    #[must_use]
    pub const fn and(self, other: Rights) -> Self {
        Rights(self.0 | other.0)
    }

    /// Whether all of `other` are among these.
    pub const fn contains(self, other: Rights) -> bool {
        self.0 & other.0 == other.0
    }

    /// What an action needs.
    const fn for_action(action: Action) -> Self {
        match action {
            Action::Pull | Action::List => Self::READ,
            Action::Push => Self::CREATE,
            Action::Move => Self::UPDATE,
            Action::Delete => Self::DELETE,
        }
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> =
            Self::NAMES.iter().filter(|(right, _)| self.contains(*right)).map(|(_, name)| *name).collect();
        f.write_str(if names.is_empty() { "none" } else { "" })?;
        f.write_str(&names.join(","))
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rights({self})")
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Anonymous => f.write_str("anonymous"),
            Who::Authenticated => f.write_str("authenticated"),
            Who::User(name) => write!(f, "user:{name}"),
            Who::Group(name) => write!(f, "group:{name}"),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Anonymous => f.write_str("anonymous"),
            Subject::User { name, .. } | Subject::Puller { name, .. } => f.write_str(name),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subjects: Vec<String> = self.subjects.iter().map(ToString::to_string).collect();
        write!(f, "{} {} {}", self.repositories, subjects.join(","), self.rights)
    }
}

impl fmt::Display for ImmutableTags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.repositories, self.tags)
    }
}

impl fmt::Display for Decision<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.allowed { "allowed: " } else { "denied: " })?;
        match &self.reason {
            Reason::Immutable(set) => write!(f, "tags {set} are immutable"),
            Reason::Puller => f.write_str("pulls from one repository and does nothing else"),
            Reason::Administrator => f.write_str("an administrator"),
            Reason::Rule(rule) => write!(f, "by the rule \"{rule}\""),
            Reason::NotAmong(pattern) => {
                write!(f, "the rules of {pattern} decide and do not give this right")
            }
            Reason::Otherwise(why) => f.write_str(why),
        }
    }
}

/// The text is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a rule: write '<repositories> <subjects> <rights>', with subjects out of anonymous, authenticated, \
     user:<name>, group:<name> and rights out of read, create, update, delete, all, none, each separated by commas"
)]
pub struct InvalidRule(String);

impl FromStr for Rule {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        let invalid = || InvalidRule(text.to_owned());
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let [repositories, subjects, rights] = words.as_slice() else { return Err(invalid()) };
        Ok(Rule {
            repositories: repositories.parse().map_err(|_| invalid())?,
            subjects: subjects.split(',').map(str::parse).collect::<Result<_, _>>().map_err(|_| invalid())?,
            rights: rights.parse().map_err(|_| invalid())?,
        })
    }
}

/// The text does not say which tags.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} does not say which tags: write '<repositories>:<tags>', such as 'os-images/**:v*'")]
pub struct InvalidImmutableTags(String);

impl FromStr for ImmutableTags {
    type Err = InvalidImmutableTags;

    fn from_str(text: &str) -> Result<Self, InvalidImmutableTags> {
        let invalid = || InvalidImmutableTags(text.to_owned());
        let (repositories, tags) = text.split_once(':').ok_or_else(invalid)?;
        Ok(ImmutableTags {
            repositories: repositories.parse().map_err(|_| invalid())?,
            tags: tags.parse().map_err(|_| invalid())?,
        })
    }
}

impl FromStr for Who {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        match text.split_once(':') {
            None if text == "anonymous" => Ok(Who::Anonymous),
            None if text == "authenticated" => Ok(Who::Authenticated),
            Some(("user", name)) if !name.is_empty() => Ok(Who::User(name.to_owned())),
            Some(("group", name)) if !name.is_empty() => Ok(Who::Group(name.to_owned())),
            _ => Err(InvalidRule(text.to_owned())),
        }
    }
}

impl FromStr for Rights {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        text.split(',').try_fold(Rights::NONE, |rights, word| match word {
            "all" => Ok(Rights::ALL),
            "none" => Ok(rights),
            _ => {
                let found = Self::NAMES.iter().find(|(_, name)| *name == word);
                found.map(|(right, _)| rights.and(*right)).ok_or_else(|| InvalidRule(text.to_owned()))
            }
        })
    }
}
