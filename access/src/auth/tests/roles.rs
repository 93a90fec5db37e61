//! The permissions of each role and of a job's pull right.

use super::*;

use strum::VariantArray;

#[test]
fn the_permissions_of_each_role_are_those_of_the_golden_table() {
    let mut table = String::from("permission      ");
    table.extend(<Role as VariantArray>::VARIANTS.iter().map(|role| format!(" {role:<13}")));
    for permission in Permission::VARIANTS {
        table.push_str(&format!("\n{:<16}", format!("{permission:?}")));
        let mark = |role: &Role| format!(" {:<13}", if role.allows(*permission) { "yes" } else { "-" });
        table.extend(<Role as VariantArray>::VARIANTS.iter().map(mark));
    }
    let table: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/roles.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &table).unwrap();
    }
    assert_eq!(table, std::fs::read_to_string(path).unwrap(), "UPDATE_GOLDEN=1 rewrites {path}");
}

#[test]
fn a_job_has_no_permission_in_the_api() {
    let rights = PrincipalRights::PullFrom { repository: "os-images/ubuntu".to_owned() };
    assert!(Permission::VARIANTS.iter().all(|permission| !rights.allows(*permission)));
}

#[test]
fn the_limits_of_a_token_narrow_its_role_and_never_widen_it() {
    let scope: RegistryScope = "pull,push:os-images/**".parse().unwrap();
    let limits = TokenLimits { servers: ServerScope::default(), registry: vec![scope] };
    let rights = PrincipalRights::of_token(Role::Viewer, limits);
    assert!(rights.allows(Permission::Read) && !rights.allows(Permission::Operate));
    assert_eq!(
        PrincipalRights::of_token(Role::Admin, TokenLimits::default()),
        PrincipalRights::Role(Role::Admin)
    );
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let bern = ServerScope([label("site", "bern")].into());
    assert!(bern.includes(&[label("site", "bern"), label("rack", "4")].into()));
    assert!(!bern.includes(&[label("site", "basel")].into()) && !bern.includes(&[].into()));
    assert!(ServerScope::default().includes(&[].into()));
}

#[test]
fn a_registry_scope_has_known_actions_and_a_pattern() {
    let scope: RegistryScope = "pull,delete:tools/*".parse().unwrap();
    assert_eq!(scope.rights, registry::Rights::READ.and(registry::Rights::DELETE));
    assert_eq!(scope.to_string(), "pull,delete:tools/*");
    for text in ["", "pull", ":a", "pull:", "read:a", "pull,:a", "all:a", "pull:A", "pull push:a"] {
        assert_eq!(text.parse::<RegistryScope>(), Err(InvalidRegistryScope), "{text}");
    }
}

#[test]
fn names_of_roles_and_modes_are_equal_in_all_formats() {
    for role in <Role as VariantArray>::VARIANTS {
        assert_eq!(role.to_string().parse::<Role>().unwrap(), *role);
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
    assert!(error.to_string().contains("admin, operator, viewer") && !all_messages(&error).contains(CANARY));
    let error = "Basic".parse::<AuthMode>().unwrap_err();
    assert!(error.to_string().contains("basic, jwt, none"));
}
