//! The policy as a table, and the properties that hold for every policy.

use proptest::prelude::*;

use super::policy::*;
use super::*;
use crate::immutable::ImmutableTags;
use crate::name::RepositoryName;
use crate::pattern::RepositoryPattern;

fn user(name: &str) -> PolicySubject {
    PolicySubject::User { name: name.to_owned(), groups: Vec::new() }
}

fn policy() -> Policy {
    let rules = [
        "** authenticated read",
        "os/** anonymous read",
        "os/** group:builders read,create,update",
        "os/secret/** user:ann read,create",
        "os/secret/** group:auditors read",
        "os/*/public anonymous read",
        "locked none-of-them none",
        "a/* user:bob read",
        "*/b user:bob create",
        "tie/*/** user:bob read",
        "tie/** user:bob create",
    ];
    let rules = rules.iter().map(|text| text.replace("none-of-them", "authenticated").parse().unwrap());
    Policy {
        rules: rules.collect(),
        administrators: vec![
            SubjectPattern::User("root".to_owned()),
            SubjectPattern::Group("admins".to_owned()),
        ],
        immutable: vec![ImmutableTags {
            repositories: "os/**".parse().unwrap(),
            tags: "v*".parse().unwrap(),
        }],
        groups: [
            ("builders".to_owned(), ["bob".to_owned()].into()),
            ("admins".to_owned(), ["eve".to_owned()].into()),
        ]
        .into(),
        ..Policy::default()
    }
}

type Decide = fn(&Policy, &PolicySubject, &AccessRequest<'_>) -> bool;

/// The rows whose decision is not the expected one.
fn wrong_rows(decide: Decide) -> Vec<String> {
    use Action::{Delete, Move, Pull, Push};
    let policy = policy();
    let (anonymous, ann, bob, carl) = (PolicySubject::Anonymous, user("ann"), user("bob"), user("carl"));
    let (root, eve) = (user("root"), user("eve"));
    let auditor = PolicySubject::User { name: "dora".to_owned(), groups: vec!["auditors".to_owned()] };
    let table = [
        // The widest rule, where no narrower one matches.
        (&carl, "misc", Pull, None, true),
        (&carl, "misc", Push, None, false),
        (&anonymous, "misc", Pull, None, false),
        // A narrower list gives rights to every caller or to a group.
        (&anonymous, "os/debian", Pull, None, true),
        (&carl, "os/debian", Pull, None, true),
        (&carl, "os/debian", Push, None, false),
        (&bob, "os/debian", Push, None, true),
        (&bob, "os/debian", Move, Some("latest"), true),
        (&bob, "os/debian", Delete, None, false),
        // The narrowest list takes rights away: the rights of wider ones do not count.
        (&anonymous, "os/secret/key", Pull, None, false),
        (&bob, "os/secret/key", Pull, None, false),
        (&bob, "os/secret/key", Push, None, false),
        (&ann, "os/secret/key", Push, None, true),
        (&ann, "os/secret/key", Move, Some("latest"), false),
        (&auditor, "os/secret/key", Pull, None, true),
        (&auditor, "os/secret/key", Push, None, false),
        (&anonymous, "os/secret/other", Pull, None, false),
        (&anonymous, "os/debian/public", Pull, None, true),
        // Both fix ten characters; `*`, which stays in its component, is narrower than `**`.
        (&anonymous, "os/secret/public", Pull, None, true),
        (&ann, "os/secret/public", Push, None, false),
        (&bob, "os/debian/public", Push, None, false),
        (&carl, "locked", Pull, None, false),
        // Equally specific patterns are one list; fewer `**` win.
        (&bob, "a/b", Pull, None, true),
        (&bob, "a/b", Push, None, true),
        (&bob, "a/c", Push, None, false),
        (&bob, "tie/x", Push, None, true),
        (&bob, "tie/x/y", Pull, None, true),
        (&bob, "tie/x/y", Push, None, false),
        // Administrators are above lists, and below immutability.
        (&root, "os/secret/key", Delete, None, true),
        (&root, "os/debian", Delete, Some("v1"), false),
        (&root, "os/debian", Move, Some("v1"), false),
        (&root, "os/debian", Push, Some("v1"), true),
        (&root, "other", Move, Some("v1"), true),
        (&eve, "locked", Push, None, true),
        (&bob, "os/debian", Move, Some("v1"), false),
    ];
    let mut wrong = Vec::new();
    for (subject, repository, action, tag, expected) in table {
        let (repository, tag): (RepositoryName, Option<Tag>) =
            (repository.parse().unwrap(), tag.map(|tag| tag.parse().unwrap()));
        let request = AccessRequest { repository: &repository, action, tag: tag.as_ref() };
        if decide(&policy, subject, &request) != expected {
            wrong.push(format!("{subject} {action:?} {repository} {tag:?}"));
        }
    }
    wrong
}

#[test]
fn every_row_of_the_table_is_decided_as_expected() {
    let decide: Decide = |policy, subject, request| decide(policy, subject, request).allowed;
    assert_eq!(wrong_rows(decide), Vec::<String>::new());
}

#[test]
fn the_table_detects_a_wrong_order_of_patterns() {
    use std::cmp::Reverse;
    let all_alike: Decide = |policy, subject, request| {
        decide_by(policy, subject, request, |_| (0, Reverse(0), Reverse(0))).allowed
    };
    let widest: Decide = |policy, subject, request| {
        let wide = |pattern: &RepositoryPattern| (1000 - pattern.fixed_characters(), Reverse(0), Reverse(0));
        decide_by(policy, subject, request, wide).allowed
    };
    let stars_alike: Decide = |policy, subject, request| {
        let fixed = |pattern: &RepositoryPattern| (pattern.fixed_characters(), Reverse(0), Reverse(0));
        decide_by(policy, subject, request, fixed).allowed
    };
    for mutant in [all_alike, widest, stars_alike] {
        assert!(!wrong_rows(mutant).is_empty());
    }
}

#[test]
fn the_defaults_apply_where_no_rule_matches() {
    let repository: RepositoryName = "open".parse().unwrap();
    let listed: RepositoryName = "listed".parse().unwrap();
    let actions = [Action::Pull, Action::Exists, Action::Push, Action::Move, Action::Delete];
    let allowed = |policy: &Policy, subject: &PolicySubject, repository: &RepositoryName| {
        actions
            .map(|action| decide(policy, subject, &AccessRequest { repository, action, tag: None }).allowed)
    };
    let rules = vec!["listed user:ann read".parse().unwrap()];
    for (read, write, authenticated, anonymous, known) in [
        (false, false, "none", [false; 5], [false; 5]),
        (true, false, "none", [true, true, false, false, false], [true, true, false, false, false]),
        (false, true, "none", [false, true, true, true, false], [false, true, true, true, false]),
        (true, true, "delete", [true, true, true, true, false], [true; 5]),
        (true, false, "create", [true, true, false, false, false], [true, true, true, false, false]),
        (false, false, "all", [false; 5], [true; 5]),
    ] {
        let policy = Policy {
            rules: rules.clone(),
            anonymous_read: read,
            anonymous_write: write,
            authenticated: authenticated.parse().unwrap(),
            ..Policy::default()
        };
        assert_eq!(allowed(&policy, &PolicySubject::Anonymous, &repository), anonymous, "{policy:?}");
        assert_eq!(allowed(&policy, &user("bob"), &repository), known, "{policy:?}");
        assert_eq!(allowed(&policy, &user("bob"), &listed), [false; 5], "{policy:?}");
        assert_eq!(allowed(&policy, &user("ann"), &listed), [true, true, false, false, false]);
        assert_eq!(policy.allows_anonymous(), read || write);
    }
    let everything = Policy::full_access_for_users();
    assert_eq!(allowed(&everything, &user("bob"), &repository), [true; 5]);
    assert_eq!(allowed(&everything, &PolicySubject::Anonymous, &repository), [false; 5]);
}

#[test]
fn a_decision_names_its_reason() {
    let policy = policy();
    let (repository, tag): (RepositoryName, Tag) = ("os/debian".parse().unwrap(), "v1".parse().unwrap());
    let says = |subject: &PolicySubject, action, tag| {
        decide(&policy, subject, &AccessRequest { repository: &repository, action, tag }).to_string()
    };
    assert_eq!(
        says(&user("bob"), Action::Push, None),
        "allowed: by the rule \"os/** group:builders read,create,update\""
    );
    assert_eq!(
        says(&user("carl"), Action::Push, None),
        "denied: the rules of os/** decide and do not give this right"
    );
    assert_eq!(says(&user("root"), Action::Delete, Some(&tag)), "denied: tags os/**:v* are immutable");
    assert_eq!(says(&user("root"), Action::Delete, None), "allowed: an administrator");
}

#[test]
fn a_rule_parses_and_prints_alike_and_other_text_is_refused() {
    for text in
        ["** anonymous read", "os/* user:ann,group:b:c read,create,update,delete", "a authenticated none"]
    {
        let rule: PolicyRule = text.parse().unwrap();
        assert_eq!(rule.to_string(), text);
    }
    assert_eq!("a authenticated all".parse::<PolicyRule>().unwrap().rights, Rights::ALL);
    for text in [
        "",
        "a",
        "a b",
        "a anonymous",
        "A anonymous read",
        "a user: read",
        "a anonymous fly",
        "a anonymous read x",
    ] {
        assert!(text.parse::<PolicyRule>().is_err(), "{text:?}");
    }
}

fn names() -> impl Strategy<Value = RepositoryName> {
    "[ab](/[ab]){0,3}".prop_map(|name| name.parse().unwrap())
}

fn patterns() -> impl Strategy<Value = RepositoryPattern> {
    "([ab]|\\*|\\*\\*)(/([ab]|\\*|\\*\\*)){0,3}".prop_map(|pattern| pattern.parse().unwrap())
}

fn subject_patterns() -> impl Strategy<Value = SubjectPattern> {
    prop_oneof![
        Just(SubjectPattern::Anonymous),
        Just(SubjectPattern::Authenticated),
        "[xy]".prop_map(SubjectPattern::User),
        "[gh]".prop_map(SubjectPattern::Group),
    ]
}

fn some_rights() -> impl Strategy<Value = Rights> {
    proptest::sample::subsequence(vec![Rights::READ, Rights::CREATE, Rights::UPDATE, Rights::DELETE], 0..=4)
        .prop_map(|rights| rights.into_iter().fold(Rights::NONE, Rights::and))
}

fn rules() -> impl Strategy<Value = PolicyRule> {
    (patterns(), proptest::collection::vec(subject_patterns(), 0..3), some_rights())
        .prop_map(|(repositories, subjects, rights)| PolicyRule { repositories, subjects, rights })
}

fn subjects() -> impl Strategy<Value = PolicySubject> {
    prop_oneof![
        Just(PolicySubject::Anonymous),
        ("[xyz]", proptest::sample::subsequence(vec!["g".to_owned(), "h".to_owned()], 0..=2))
            .prop_map(|(name, groups)| PolicySubject::User { name, groups }),
    ]
}

fn policies() -> impl Strategy<Value = Policy> {
    let switches = (any::<bool>(), any::<bool>(), some_rights());
    let immutable = proptest::option::of((patterns(), "[ab*]{1,2}"));
    (proptest::collection::vec(rules(), 0..6), switches, immutable, proptest::option::of(subject_patterns()))
        .prop_map(|(rules, (anonymous_read, anonymous_write, authenticated), immutable, administrator)| {
            Policy {
                rules,
                administrators: administrator.into_iter().collect(),
                authenticated,
                anonymous_read,
                anonymous_write,
                immutable: immutable
                    .into_iter()
                    .map(|(repositories, tags)| ImmutableTags { repositories, tags: tags.parse().unwrap() })
                    .collect(),
                groups: [("g".to_owned(), ["x".to_owned()].into())].into(),
            }
        })
}

fn actions() -> impl Strategy<Value = Action> {
    proptest::sample::select(vec![Action::Pull, Action::Exists, Action::Push, Action::Move, Action::Delete])
}

fn tags() -> impl Strategy<Value = Option<Tag>> {
    proptest::option::of("[ab]{1,2}".prop_map(|tag| tag.parse().unwrap()))
}

#[test]
fn immutable_tags_are_written_as_repositories_and_tags() {
    let set: ImmutableTags = "os-images/**:v*".parse().unwrap();
    assert_eq!((set.repositories.as_str(), set.to_string()), ("os-images/**", "os-images/**:v*".to_owned()));
    assert_eq!(set.to_string().parse(), Ok(set));
    for text in ["", "v*", "os/**:", ":v*", "OS:v*", "os:v/1", "os:v1:v2"] {
        assert!(text.parse::<ImmutableTags>().is_err(), "{text:?}");
    }
}

proptest! {
    #[test]
    fn the_order_of_rules_never_matters(
        policy in policies(), subject in subjects(), repository in names(), action in actions(), tag in tags(),
        seed in any::<prop::sample::Index>(),
    ) {
        let request = AccessRequest { repository: &repository, action, tag: tag.as_ref() };
        let mut turned = policy.clone();
        turned.rules.reverse();
        if !turned.rules.is_empty() {
            let middle = seed.index(turned.rules.len());
            turned.rules.rotate_left(middle);
        }
        prop_assert_eq!(decide(&policy, &subject, &request).allowed, decide(&turned, &subject, &request).allowed);
    }

    #[test]
    fn logging_in_never_removes_a_right(
        policy in policies(), subject in subjects(), repository in names(), action in actions(), tag in tags(),
    ) {
        let request = AccessRequest { repository: &repository, action, tag: tag.as_ref() };
        if decide(&policy, &PolicySubject::Anonymous, &request).allowed {
            prop_assert!(decide(&policy, &subject, &request).allowed);
            prop_assert!(policy.allows_anonymous());
        }
    }

    #[test]
    fn another_rule_for_the_pattern_of_a_rule_removes_no_right(
        policy in policies(), subject in subjects(), repository in names(), action in actions(), tag in tags(),
        added in rules(), which in any::<prop::sample::Index>(),
    ) {
        prop_assume!(!policy.rules.is_empty());
        let request = AccessRequest { repository: &repository, action, tag: tag.as_ref() };
        let mut more = policy.clone();
        let repositories = policy.rules[which.index(policy.rules.len())].repositories.clone();
        more.rules.push(PolicyRule { repositories, ..added });
        if decide(&policy, &subject, &request).allowed {
            prop_assert!(decide(&more, &subject, &request).allowed);
        }
    }

    #[test]
    fn more_rights_in_a_rule_never_remove_an_access(
        policy in policies(), subject in subjects(), repository in names(), action in actions(), tag in tags(),
        rights in some_rights(), which in any::<prop::sample::Index>(),
    ) {
        prop_assume!(!policy.rules.is_empty());
        let request = AccessRequest { repository: &repository, action, tag: tag.as_ref() };
        let mut more = policy.clone();
        let rule = &mut more.rules[which.index(policy.rules.len())];
        rule.rights = rule.rights.and(rights);
        if decide(&policy, &subject, &request).allowed {
            prop_assert!(decide(&more, &subject, &request).allowed);
        }
    }

    #[test]
    fn a_rule_decides_nothing_where_it_does_not_match(
        policy in policies(), subject in subjects(), repository in names(), action in actions(), tag in tags(),
        added in rules(),
    ) {
        prop_assume!(!added.repositories.matches(&repository));
        let request = AccessRequest { repository: &repository, action, tag: tag.as_ref() };
        let mut more = policy.clone();
        more.rules.push(added);
        prop_assert_eq!(decide(&policy, &subject, &request).allowed, decide(&more, &subject, &request).allowed);
    }

    #[test]
    fn a_rule_for_exactly_this_repository_is_the_only_one_that_counts(
        policy in policies(), subject in subjects(), repository in names(), action in actions(), rights in some_rights(),
    ) {
        let mut more = policy.clone();
        more.administrators.clear();
        more.rules.retain(|rule| rule.repositories.as_str() != repository.as_str());
        more.rules.push(PolicyRule {
            repositories: repository.as_str().parse().unwrap(),
            subjects: vec![SubjectPattern::Anonymous],
            rights,
        });
        let request = AccessRequest { repository: &repository, action, tag: None };
        let enough: &[Rights] = match action {
            Action::Pull | Action::PullAny | Action::List => &[Rights::READ],
            Action::Exists => &[Rights::READ, Rights::CREATE],
            Action::Push => &[Rights::CREATE],
            Action::Move => &[Rights::UPDATE],
            Action::Delete => &[Rights::DELETE],
        };
        let expected = enough.iter().any(|right| rights.contains(*right));
        prop_assert_eq!(decide(&more, &subject, &request).allowed, expected);
    }

    #[test]
    fn an_immutable_tag_is_neither_moved_nor_deleted_by_any_subject(
        policy in policies(), subject in subjects(), repository in names(), tag in tags(),
    ) {
        let Some(tag) = tag else { return Ok(()) };
        if policy.is_immutable(&repository, &tag) {
            for action in [Action::Move, Action::Delete] {
                let request = AccessRequest { repository: &repository, action, tag: Some(&tag) };
                prop_assert!(!decide(&policy, &subject, &request).allowed);
            }
        }
    }

    #[test]
    fn a_puller_may_pull_from_its_repository_and_nothing_else_under_any_policy(
        policy in policies(), own in names(), repository in names(), action in actions(), tag in tags(),
    ) {
        let puller = PolicySubject::Puller { name: "x".to_owned(), repository: own.clone() };
        let request = AccessRequest { repository: &repository, action, tag: tag.as_ref() };
        let expected = matches!(action, Action::Pull | Action::Exists) && repository == own;
        prop_assert_eq!(decide(&policy, &puller, &request).allowed, expected);
    }

    #[test]
    fn an_empty_policy_denies_every_access(subject in subjects(), repository in names(), action in actions()) {
        let request = AccessRequest { repository: &repository, action, tag: None };
        prop_assert!(!decide(&Policy::default(), &subject, &request).allowed);
    }
}
