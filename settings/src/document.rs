//! docs/settings.md, which this test writes from the table of settings.

use std::fmt::Write as _;

use super::DEFINITIONS;

/// A text of the table inside a markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

fn page() -> String {
    let mut page = String::from(
        "# Settings\n\nEvery setting of the controller, in the order of `shoal config reference`. A test generates this page. A flag takes \
         precedence over the environment variable, the variable over the file (`--config FILE`, TOML), the file over the default. The flag \
         of `NAME_OF` is `--name-of`, its key in the file is `name_of`. `shoal config show` prints each value and where it comes from.\n",
    );
    for row in DEFINITIONS.iter() {
        let alias = row.flag_alias.map(|alias| format!(", `--{alias}`")).unwrap_or_default();
        let secret = if row.secret() { " It is never shown." } else { "" };
        write!(
            page,
            "\n## {}\n\n{}{secret}\n\n| flag | file | form | default |\n|---|---|---|---|\n| `--{}`{alias} | `{}` | {} | `{}` |\n",
            row.name,
            cell(row.doc),
            row.flag(),
            row.key(),
            cell(&row.kind.to_string()),
            row.default,
        )
        .unwrap();
    }
    page
}

#[test]
fn docs_settings_is_the_table_of_settings() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/settings.md");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, page()).unwrap();
    }
    assert_eq!(page(), std::fs::read_to_string(path).unwrap(), "UPDATE_GOLDEN=1 rewrites {path}");
}
