//! The scopes of a token.
//!
//! ```text
//!  scope    type ":" name ":" action ("," action)*      several with spaces between, or several parameters
//!  repository:os-images/debian:pull,push                 delete, * for all three
//!  repository:*:pull                                     every repository that the token's user may read
//!  registry:catalog:*                                    the list of repositories
//! ```
//!
//! A scope of another type, with an invalid name or with an unknown action grants nothing. A token for a caller who may
//! push and not pull has `exists` in place of a requested `pull`: the client may ask what exists. No client requests it.
//!
//! Specification: Docker "Token scope documentation".

use serde::{Deserialize, Serialize};

use super::{Access, Action};
use crate::name::RepositoryName;

/// The most scopes of one token; further ones are left out.
pub(super) const SCOPES_MAX: usize = 32;

const REPOSITORY: &str = "repository";
const REGISTRY: &str = "registry";
const CATALOG: &str = "catalog";
/// The name of all repositories together; no repository has it.
const ANY: &str = "*";

/// One scope, as it is in a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Scope {
    #[serde(rename = "type")]
    kind: String,
    name: String,
    actions: Vec<String>,
}

/// The name of an action in scopes. Moving a tag is a push.
fn action_name(action: Action) -> &'static str {
    match action {
        Action::Pull | Action::PullAny => "pull",
        Action::Exists => "exists",
        Action::Push | Action::Move => "push",
        Action::Delete => "delete",
        Action::List => "*",
    }
}

impl Scope {
    /// Parses the requested scopes that are known here and merges them to one scope per repository.
    pub(super) fn parse_all<'a>(asked: impl Iterator<Item = &'a str>) -> Vec<Scope> {
        let mut scopes: Vec<Scope> = Vec::new();
        for text in asked.flat_map(|text| text.split([' ', '+'])) {
            let Some(scope) = Scope::parse(text) else { continue };
            let same = |known: &&mut Scope| known.kind == scope.kind && known.name == scope.name;
            if let Some(known) = scopes.iter_mut().find(same) {
                let new = scope.actions.into_iter().filter(|action| !known.actions.contains(action));
                let new: Vec<String> = new.collect();
                known.actions.extend(new);
            } else if scopes.len() < SCOPES_MAX {
                scopes.push(scope);
            }
        }
        scopes
    }

    fn parse(text: &str) -> Option<Scope> {
        let (kind, rest) = text.split_once(':')?;
        let (name, asked) = rest.rsplit_once(':')?;
        let every = [Action::Pull, Action::Push, Action::Delete];
        let known: &[Action] = match kind {
            REPOSITORY if name == ANY => &[Action::PullAny],
            REPOSITORY => name.parse::<RepositoryName>().ok().map(|_| every.as_slice())?,
            REGISTRY if name == CATALOG => &[Action::List],
            _ => return None,
        };
        let wanted =
            |action: &&Action| asked.split(',').any(|one| one == action_name(**action) || one == "*");
        let actions: Vec<String> =
            known.iter().filter(wanted).map(|action| action_name(*action).to_owned()).collect();
        (!actions.is_empty()).then(|| Scope { kind: kind.to_owned(), name: name.to_owned(), actions })
    }

    /// The scope limited to the actions that `may` allows; `None` when no action is left.
    pub(super) fn limited_to(&self, may: impl Fn(Access<'_>) -> bool) -> Option<Scope> {
        let any = self.kind == REPOSITORY && self.name == ANY;
        let repository: Option<RepositoryName> =
            if self.kind == REPOSITORY && !any { Some(self.name.parse().ok()?) } else { None };
        let may = |action| may(Access { repository: repository.as_ref(), action });
        let allowed = |word: &String| {
            let asked: &[Action] = match word.as_str() {
                "pull" if any => &[Action::PullAny],
                "pull" => &[Action::Pull, Action::Exists],
                "push" => &[Action::Push],
                "delete" => &[Action::Delete],
                _ => &[Action::List],
            };
            asked.iter().copied().find(|action| may(*action)).map(|action| action_name(action).to_owned())
        };
        let actions: Vec<String> = self.actions.iter().filter_map(allowed).collect();
        (!actions.is_empty()).then(|| Scope { actions, ..self.clone() })
    }

    /// Whether the scope includes this access.
    pub(super) fn covers(&self, access: Access<'_>) -> bool {
        let named = match access.repository {
            Some(repository) => {
                let reads = matches!(access.action, Action::Pull | Action::Exists);
                self.kind == REPOSITORY && (self.name == repository.as_str() || (self.name == ANY && reads))
            }
            None => self.kind == REGISTRY && self.name == CATALOG,
        };
        let enough: &[Action] = match access.action {
            Action::Exists => &[Action::Exists, Action::Pull, Action::Push],
            ref other => std::slice::from_ref(other),
        };
        named && self.actions.iter().any(|word| enough.iter().any(|action| word == action_name(*action)))
    }

    /// The scopes a challenge names for what a request needs. A client that pushes also reads.
    pub(super) fn wanted(accesses: &[Access<'_>]) -> String {
        let scopes = accesses.iter().filter_map(|access| match (access.repository, access.action) {
            (Some(repository), Action::Push | Action::Move) => {
                Some(format!("repository:{repository}:pull,push"))
            }
            (Some(repository), Action::Exists) => Some(format!("repository:{repository}:pull")),
            (Some(repository), action) => Some(format!("repository:{repository}:{}", action_name(action))),
            (None, Action::PullAny) => Some(format!("{REPOSITORY}:{ANY}:pull")),
            (None, Action::List) => Some("registry:catalog:*".to_owned()),
            (None, _) => None,
        });
        scopes.collect::<Vec<String>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> RepositoryName {
        text.parse().unwrap()
    }

    #[test]
    fn a_scope_covers_what_it_names_and_nothing_else() {
        let asked =
            ["repository:a/b:pull,push repository:c:*", "registry:catalog:*", "repository:a/b:delete,pull"];
        let scopes = Scope::parse_all(asked.into_iter());
        assert_eq!(scopes.len(), 3);
        let good = |repository: Option<&RepositoryName>, action| {
            scopes.iter().any(|scope| scope.covers(Access { repository, action }))
        };
        for action in [Action::Pull, Action::Push, Action::Move, Action::Delete] {
            assert!(good(Some(&name("a/b")), action) && good(Some(&name("c")), action));
            assert!(!good(Some(&name("a")), action) && !good(Some(&name("catalog")), action));
        }
        assert!(good(None, Action::List) && !good(Some(&name("a/b")), Action::List));
    }

    #[test]
    fn malformed_scopes_grant_nothing() {
        for text in [
            "",
            "repository",
            "repository:a",
            "repository:A:pull",
            "repository:a:",
            "repository:a:fly",
            "repository(plugin):a:pull",
            "registry:a:*",
            "registry:catalog:pull",
            "repository:a/../b:pull",
            "repository:host:5000/a:pull",
            "repository::pull",
            "user:a:pull",
        ] {
            assert_eq!(Scope::parse_all([text].into_iter()), [], "{text:?}");
        }
        let many: Vec<String> = (0..100).map(|number| format!("repository:a{number}:pull")).collect();
        assert_eq!(Scope::parse_all(many.iter().map(String::as_str)).len(), SCOPES_MAX);
    }

    #[test]
    fn the_scope_of_all_repositories_reads_and_does_nothing_else() {
        let any = Scope::parse_all(["repository:*:*"].into_iter());
        let pulls = Scope::parse_all(["repository:*:pull"].into_iter());
        assert_eq!(any, pulls);
        let allows = |action| any[0].covers(Access { repository: Some(&name("a/b")), action });
        assert!(allows(Action::Pull) && allows(Action::Exists));
        assert!(!allows(Action::Push) && !allows(Action::Move) && !allows(Action::Delete));
        assert!(!any[0].covers(Access { repository: None, action: Action::List }));
        for refused in ["repository:*:push", "repository:**:pull", "repository:a/*:pull"] {
            assert_eq!(Scope::parse_all([refused].into_iter()), [], "{refused}");
        }
    }

    #[test]
    fn a_challenge_names_all_the_request_needs() {
        let (mine, other) = (name("mine"), name("other"));
        let push = Access { repository: Some(&mine), action: Action::Push };
        let pull = Access { repository: Some(&other), action: Action::Pull };
        assert_eq!(Scope::wanted(&[push, pull]), "repository:mine:pull,push repository:other:pull");
        let list = Access { repository: None, action: Action::List };
        assert_eq!(Scope::wanted(&[list]), "registry:catalog:*");
        assert_eq!(Scope::wanted(&[Access { repository: None, action: Action::Pull }]), "");
    }

    proptest! {
        #[test]
        fn limiting_a_scope_never_widens_it(
            text in "(repository|registry|x):([ab](/[ab])?|catalog):([*]|pull|push|delete)(,([*]|pull|push|delete)){0,2}",
            mask in 0u8..64,
        ) {
            let actions =
                [Action::Pull, Action::Push, Action::Move, Action::Delete, Action::List, Action::Exists];
            let bit = |action| actions.iter().position(|known| *known == action).unwrap();
            let repositories = ["a", "b", "a/a", "a/b", "b/a", "b/b", "catalog"].map(name);
            let may = |access: Access<'_>| mask & (1 << bit(access.action)) != 0;
            for scope in Scope::parse_all([text.as_str()].into_iter()) {
                let limited = scope.limited_to(may);
                for repository in repositories.iter().map(Some).chain([None]) {
                    for action in actions {
                        let access = Access { repository, action };
                        if limited.as_ref().is_some_and(|limited| limited.covers(access)) {
                            prop_assert!(scope.covers(access));
                            // Moving a tag is a push in scopes, and who may pull or push may ask what exists.
                            let implied = matches!(action, Action::Move | Action::Exists);
                            prop_assert!(may(access) || implied);
                        }
                    }
                }
            }
        }
    }
}
