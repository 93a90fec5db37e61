//! What each role and each grant allows.

use super::*;

const ALL: [Permission; 4] =
    [Permission::Read, Permission::Write, Permission::RegistryPull, Permission::RegistryPush];

#[test]
fn admins_may_do_everything_and_readers_only_look() {
    assert!(ALL.iter().all(|permission| Role::Admin.allows(*permission)));
    let reader: Vec<bool> = ALL.iter().map(|permission| Role::Reader.allows(*permission)).collect();
    assert_eq!(reader, [true, false, true, false]);
}

#[test]
fn a_job_pulls_from_its_own_repository_and_does_nothing_else() {
    let grants = Grants::PullFrom { repository: "os-images/ubuntu".to_owned() };
    assert!(grants.allows(Permission::RegistryPull, Some("os-images/ubuntu")));
    assert!(grants.allows(Permission::RegistryPull, None));
    assert!(!grants.allows(Permission::RegistryPull, Some("os-images/ubuntu/x")));
    assert!(!grants.allows(Permission::RegistryPull, Some("os-images")));
    for permission in [Permission::Read, Permission::Write, Permission::RegistryPush] {
        assert!(!grants.allows(permission, Some("os-images/ubuntu")));
        assert!(!grants.allows(permission, None));
    }
}

#[test]
fn words_are_read_and_written_alike_everywhere() {
    for role in [Role::Admin, Role::Reader] {
        assert_eq!(role.to_string().parse::<Role>().unwrap(), role);
        assert_eq!(serde_json::to_string(&role).unwrap(), format!("\"{role}\""));
    }
    for mode in [AuthMode::Basic, AuthMode::Jwt, AuthMode::None] {
        assert_eq!(mode.to_string().parse::<AuthMode>().unwrap(), mode);
        assert_eq!(serde_json::to_string(&mode).unwrap(), format!("\"{mode}\""));
    }
}

#[test]
fn an_unknown_word_is_an_error_that_lists_the_known_ones() {
    let error = CANARY.parse::<Role>().unwrap_err();
    assert!(error.to_string().contains("admin, reader") && !everything_said(&error).contains(CANARY));
    let error = "Basic".parse::<AuthMode>().unwrap_err();
    assert!(error.to_string().contains("basic, jwt, none"));
}
