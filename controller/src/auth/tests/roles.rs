//! The permissions of each role and of a job's pull right.

use super::*;

const ALL: [Permission; 5] = [
    Permission::Read,
    Permission::ReadSecrets,
    Permission::Write,
    Permission::RegistryPull,
    Permission::RegistryPush,
];

#[test]
fn admins_have_all_permissions_and_readers_may_read_and_pull() {
    assert!(ALL.iter().all(|permission| Role::Admin.allows(*permission)));
    let reader: Vec<bool> = ALL.iter().map(|permission| Role::Reader.allows(*permission)).collect();
    assert_eq!(reader, [true, false, false, true, false]);
}

#[test]
fn a_job_may_only_pull_from_its_own_repository() {
    let rights = PrincipalRights::PullFrom { repository: "os-images/ubuntu".to_owned() };
    assert!(rights.allows(Permission::RegistryPull, Some("os-images/ubuntu")));
    assert!(rights.allows(Permission::RegistryPull, None));
    assert!(!rights.allows(Permission::RegistryPull, Some("os-images/ubuntu/x")));
    assert!(!rights.allows(Permission::RegistryPull, Some("os-images")));
    for permission in [Permission::Read, Permission::ReadSecrets, Permission::Write, Permission::RegistryPush]
    {
        assert!(!rights.allows(permission, Some("os-images/ubuntu")));
        assert!(!rights.allows(permission, None));
    }
}

#[test]
fn names_of_roles_and_modes_are_equal_in_all_formats() {
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
fn an_unknown_name_is_an_error_that_lists_the_known_names() {
    let error = CANARY.parse::<Role>().unwrap_err();
    assert!(error.to_string().contains("admin, reader") && !all_messages(&error).contains(CANARY));
    let error = "Basic".parse::<AuthMode>().unwrap_err();
    assert!(error.to_string().contains("basic, jwt, none"));
}
