//! The access policy: rules as data, and one pure function that applies them.
//!
//! ```text
//!  an immutable tag is moved or deleted        ─> denied
//!  the subject may pull from one repository    ─> allowed to pull there, otherwise denied
//!  the subject has scopes of its own           ─> allowed when one of them gives the right, otherwise denied
//!  the subject is an administrator             ─> allowed
//!  the patterns of some rules match            ─> the rules of the most specific pattern decide for every subject:
//!                                                 allowed when one of them gives the subject the right, otherwise denied
//!  no rule matches                             ─> `authenticated` for a known subject, the two `anonymous` switches for all
//!  otherwise                                   ─> denied
//! ```
//!
//! The rules of one pattern are the access list of the repositories it matches, so a narrower pattern replaces a wider
//! one as a whole: it can remove rights as well as give them. The more specific pattern fixes more characters; if
//! equal, has fewer `**`; if equal, fewer `*`. Rules that are equal in all three form one list. The order of rules
//! never matters.
//!
//! A push needs [`Rights::CREATE`], which includes asking by `HEAD` what exists: clients ask before they push. To set an
//! existing tag to another manifest needs [`Rights::UPDATE`] as well; pushing a tag again with the manifest it has does
//! not move it. A mount needs [`Rights::READ`] on the source repository.
//!
//! A right of anonymous callers is a right of every subject.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use super::Action;
use crate::immutable::ImmutableTags;
use crate::name::{RepositoryName, Tag};
use crate::pattern::RepositoryPattern;

/// The complete access policy. The default denies every access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Rights in the repositories a pattern matches.
    pub rules: Vec<PolicyRule>,
    /// Subjects with full access everywhere; immutable tags are excepted.
    pub administrators: Vec<SubjectPattern>,
    /// The rights of authenticated users in repositories that no rule matches.
    pub authenticated: Rights,
    /// Whether every caller may read repositories that no rule matches.
    pub anonymous_read: bool,
    /// Whether every caller may push to repositories that no rule matches, existing tags included.
    pub anonymous_write: bool,
    /// Tags that never move and are never deleted.
    pub immutable: Vec<ImmutableTags>,
    /// Members of groups, in addition to the groups the authenticator reports.
    pub groups: BTreeMap<String, BTreeSet<String>>,
}

/// Rights in some repositories for some subjects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRule {
    /// The repositories.
    pub repositories: RepositoryPattern,
    /// The subjects.
    pub subjects: Vec<SubjectPattern>,
    /// The rights of the subjects; [`Rights::NONE`] is allowed.
    pub rights: Rights,
}

/// The subjects a rule applies to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SubjectPattern {
    /// Every caller, authenticated or not.
    Anonymous,
    /// Every authenticated user.
    Authenticated,
    /// One user.
    User(String),
    /// The members of a group or role.
    Group(String),
}

/// An identified caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PolicySubject {
    /// A caller without credentials.
    #[default]
    Anonymous,
    /// A user.
    User {
        /// The user's name.
        name: String,
        /// The groups or roles the authenticator reports.
        groups: Vec<String>,
    },
    /// A subject that may pull from one repository and do nothing else, whatever the policy says.
    Puller {
        /// The subject's name.
        name: String,
        /// The only repository.
        repository: RepositoryName,
    },
    /// A subject that has rights of its own and no other, whatever the policy says. A token that was issued to it does not
    /// contain them: [`UserAuthenticator::refresh`](super::UserAuthenticator::refresh) adds them at each use.
    Scoped {
        /// The subject's name.
        name: String,
        /// The id that distinguishes the subject from a later one with the same name.
        id: String,
        /// The rights in the repositories that a pattern matches.
        grants: Vec<(RepositoryPattern, Rights)>,
    },
}

/// A set of rights: read, create, update, delete.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Rights(u8);

/// The access to decide about.
#[derive(Clone, Copy, Debug)]
pub struct AccessRequest<'a> {
    /// The repository.
    pub repository: &'a RepositoryName,
    /// The action.
    pub action: Action,
    /// The tag that is moved or deleted, if the action has one.
    pub tag: Option<&'a Tag>,
}

/// A decision and its reason. `Display` is for logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision<'p> {
    /// Whether the access is allowed.
    pub allowed: bool,
    /// The part of the policy that decided.
    pub reason: Reason<'p>,
}

/// The part of a policy a decision comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason<'p> {
    /// The tag is immutable.
    Immutable(&'p ImmutableTags),
    /// The subject may pull from one repository and do nothing else.
    Puller,
    /// The subject has rights of its own and no other.
    Scoped,
    /// The subject is an administrator.
    Administrator,
    /// This rule gives the right.
    Rule(&'p PolicyRule),
    /// The rules of this pattern decide, and none of them gives the right.
    NotGranted(&'p RepositoryPattern),
    /// No rule matches; the default of the policy decides.
    Default(&'static str),
}

impl PolicySubject {
    /// The name; `None` for an anonymous subject.
    pub(super) fn into_name(self) -> Option<String> {
        match self {
            PolicySubject::Anonymous => None,
            PolicySubject::User { name, .. }
            | PolicySubject::Puller { name, .. }
            | PolicySubject::Scoped { name, .. } => Some(name),
        }
    }
}

impl Policy {
    /// The policy of an htpasswd file without rules: its users have full access, anonymous callers have none.
    pub fn full_access_for_users() -> Self {
        Policy { authenticated: Rights::ALL, ..Policy::default() }
    }

    /// Whether the tag, once it exists, can neither move nor be deleted.
    pub fn is_immutable(&self, repository: &RepositoryName, tag: &Tag) -> bool {
        self.immutability(repository, tag).is_some()
    }

    /// Whether no caller could do more after a login, because every caller is an administrator.
    pub(super) fn login_is_pointless(&self) -> bool {
        self.administrators.contains(&SubjectPattern::Anonymous)
    }

    /// Whether the policy gives any right to anonymous callers.
    pub fn allows_anonymous(&self) -> bool {
        let anonymous_in = |subjects: &[SubjectPattern]| subjects.contains(&SubjectPattern::Anonymous);
        self.anonymous_read
            || self.anonymous_write
            || anonymous_in(&self.administrators)
            || self.rules.iter().any(|rule| rule.rights != Rights::NONE && anonymous_in(&rule.subjects))
    }

    fn immutability(&self, repository: &RepositoryName, tag: &Tag) -> Option<&ImmutableTags> {
        self.immutable.iter().find(|set| set.include(repository, tag))
    }

    fn includes(&self, subjects: &[SubjectPattern], subject: &PolicySubject) -> bool {
        subjects.iter().any(|who| match (who, subject) {
            (SubjectPattern::Anonymous, _) | (SubjectPattern::Authenticated, PolicySubject::User { .. }) => {
                true
            }
            (SubjectPattern::User(wanted), PolicySubject::User { name, .. }) => wanted == name,
            (SubjectPattern::Group(wanted), PolicySubject::User { name, groups }) => {
                groups.contains(wanted) || self.groups.get(wanted).is_some_and(|users| users.contains(name))
            }
            (_, PolicySubject::Anonymous | PolicySubject::Puller { .. } | PolicySubject::Scoped { .. }) => {
                false
            }
        })
    }
}

/// Decides one access. Pure.
pub fn decide<'p>(policy: &'p Policy, subject: &PolicySubject, request: &AccessRequest<'_>) -> Decision<'p> {
    decide_by(policy, subject, request, specificity)
}

/// The specificity of a pattern; the pattern with the greatest one decides.
pub(super) type Specificity = (usize, Reverse<usize>, Reverse<usize>);

fn specificity(pattern: &RepositoryPattern) -> Specificity {
    let stars = pattern.as_str().bytes().filter(|byte| *byte == b'*').count();
    (pattern.fixed_characters(), Reverse(pattern.as_str().matches("**").count()), Reverse(stars))
}

/// [`decide`] with a given order of patterns, so that a test can show the effect of a wrong one.
pub(super) fn decide_by<'p>(
    policy: &'p Policy,
    subject: &PolicySubject,
    request: &AccessRequest<'_>,
    specificity: fn(&RepositoryPattern) -> Specificity,
) -> Decision<'p> {
    let yes = |reason| Decision { allowed: true, reason };
    let no = |reason| Decision { allowed: false, reason };
    if let (Action::Move | Action::Delete, Some(tag)) = (request.action, request.tag)
        && let Some(set) = policy.immutability(request.repository, tag)
    {
        return no(Reason::Immutable(set));
    }
    if let PolicySubject::Puller { repository, .. } = subject {
        let reads = matches!(request.action, Action::Pull | Action::Exists);
        let allowed = reads && request.repository == repository;
        return Decision { allowed, reason: Reason::Puller };
    }
    if let PolicySubject::Scoped { grants, .. } = subject {
        let gives = |(pattern, rights): &(RepositoryPattern, Rights)| {
            rights.allow(request.action) && pattern.matches(request.repository)
        };
        return Decision { allowed: grants.iter().any(gives), reason: Reason::Scoped };
    }
    if policy.includes(&policy.administrators, subject) {
        return yes(Reason::Administrator);
    }
    let action = request.action;
    let fitting = || policy.rules.iter().filter(|rule| rule.repositories.matches(request.repository));
    let Some(most) = fitting().map(|rule| specificity(&rule.repositories)).max() else {
        return default_decision(policy, subject, action);
    };
    let deciding = || fitting().filter(|rule| specificity(&rule.repositories) == most);
    let gives = |rule: &&PolicyRule| rule.rights.allow(action) && policy.includes(&rule.subjects, subject);
    match (deciding().find(gives), deciding().next()) {
        (Some(rule), _) => yes(Reason::Rule(rule)),
        (None, Some(rule)) => no(Reason::NotGranted(&rule.repositories)),
        (None, None) => no(Reason::Default("no rule matches")),
    }
}

fn default_decision(policy: &Policy, subject: &PolicySubject, action: Action) -> Decision<'static> {
    let known = *subject != PolicySubject::Anonymous;
    let (allowed, reason) = if policy.anonymous_read && Rights::READ.allow(action) {
        (true, "no rule matches, and every caller may read")
    } else if policy.anonymous_write && Rights::CREATE.and(Rights::UPDATE).allow(action) {
        (true, "no rule matches, and every caller may push")
    } else if known && policy.authenticated.allow(action) {
        (true, "no rule matches, and every authenticated user may")
    } else {
        (false, "no rule matches")
    };
    Decision { allowed, reason: Reason::Default(reason) }
}

impl Rights {
    /// No right.
    pub const NONE: Rights = Rights(0);
    /// The right to pull.
    pub const READ: Rights = Rights(1);
    /// The right to push content and tags that do not exist.
    pub const CREATE: Rights = Rights(2);
    /// The right to move tags.
    pub const UPDATE: Rights = Rights(4);
    /// The right to delete.
    pub const DELETE: Rights = Rights(8);
    /// All rights.
    pub const ALL: Rights = Rights(15);

    const NAMES: [(Rights, &'static str); 4] =
        [(Self::READ, "read"), (Self::CREATE, "create"), (Self::UPDATE, "update"), (Self::DELETE, "delete")];

    /// The union of two sets.
    #[must_use]
    pub const fn and(self, other: Rights) -> Self {
        Rights(self.0 | other.0)
    }

    /// Whether all of `other` are in this set.
    pub const fn contains(self, other: Rights) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether these rights are enough for an action.
    const fn allow(self, action: Action) -> bool {
        match action {
            Action::Pull | Action::PullAny | Action::List => self.contains(Self::READ),
            Action::Exists => self.contains(Self::READ) || self.contains(Self::CREATE),
            Action::Push => self.contains(Self::CREATE),
            Action::Move => self.contains(Self::UPDATE),
            Action::Delete => self.contains(Self::DELETE),
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

impl fmt::Display for SubjectPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SubjectPattern::Anonymous => f.write_str("anonymous"),
            SubjectPattern::Authenticated => f.write_str("authenticated"),
            SubjectPattern::User(name) => write!(f, "user:{name}"),
            SubjectPattern::Group(name) => write!(f, "group:{name}"),
        }
    }
}

impl fmt::Display for PolicySubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicySubject::Anonymous => f.write_str("anonymous"),
            PolicySubject::User { name, .. }
            | PolicySubject::Puller { name, .. }
            | PolicySubject::Scoped { name, .. } => f.write_str(name),
        }
    }
}

impl fmt::Display for PolicyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subjects: Vec<String> = self.subjects.iter().map(ToString::to_string).collect();
        write!(f, "{} {} {}", self.repositories, subjects.join(","), self.rights)
    }
}

impl fmt::Display for Decision<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.allowed { "allowed: " } else { "denied: " })?;
        match &self.reason {
            Reason::Immutable(set) => write!(f, "tags {set} are immutable"),
            Reason::Puller => f.write_str("pulls from one repository and does nothing else"),
            Reason::Scoped => f.write_str("by the scopes of the token"),
            Reason::Administrator => f.write_str("an administrator"),
            Reason::Rule(rule) => write!(f, "by the rule \"{rule}\""),
            Reason::NotGranted(pattern) => {
                write!(f, "the rules of {pattern} decide and do not give this right")
            }
            Reason::Default(why) => f.write_str(why),
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

impl FromStr for PolicyRule {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        let invalid = || InvalidRule(text.to_owned());
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let [repositories, subjects, rights] = words.as_slice() else { return Err(invalid()) };
        Ok(PolicyRule {
            repositories: repositories.parse().map_err(|_| invalid())?,
            subjects: subjects.split(',').map(str::parse).collect::<Result<_, _>>().map_err(|_| invalid())?,
            rights: rights.parse().map_err(|_| invalid())?,
        })
    }
}

impl FromStr for SubjectPattern {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        match text.split_once(':') {
            None if text == "anonymous" => Ok(SubjectPattern::Anonymous),
            None if text == "authenticated" => Ok(SubjectPattern::Authenticated),
            Some(("user", name)) if !name.is_empty() => Ok(SubjectPattern::User(name.to_owned())),
            Some(("group", name)) if !name.is_empty() => Ok(SubjectPattern::Group(name.to_owned())),
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
