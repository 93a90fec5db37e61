//! The catalogue of error codes, and the pages that are written from it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::error_code::{ErrorCode, ErrorText, Rule};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// The page of a code.
fn page(code: ErrorCode) -> String {
    let ErrorText { title, happened, why, what_to_do } = code.text();
    let mut page = format!(
        "# `{}`\n\n{title}. HTTP status {}.\n\n**What happened.** {happened}\n\n**Why.** {why}\n\n**What to do.** {what_to_do}\n",
        code.as_str(),
        code.status(),
    );
    if code == ErrorCode::ValidationError {
        page.push_str("\n## Rules\n\nThe field `code` of an entry of `details` is one of these rules, or a rule of the recipe schema.\n\n");
        page.push_str("| rule | meaning |\n|---|---|\n");
        for rule in Rule::ALL {
            page.push_str(&format!("| `{}` | {} |\n", rule.as_str(), rule.means()));
        }
    }
    page.push_str("\n[All error codes](../errors.md)\n");
    page
}

/// The index of the pages.
fn index() -> String {
    let mut index = "# Error codes\n\nEvery error response of the API has the form `{\"error\": CODE, \"message\": TEXT, \"details\": [...], \
                     \"request_id\": ID}`. The code is stable and for programs; the message states the particular case. Routes \
                     under `/v2/` have the error format of the OCI distribution specification instead.\n\nA test generates this \
                     page and the pages of the codes.\n\n| status | code | meaning |\n|---|---|---|\n"
        .to_owned();
    for code in ErrorCode::ALL {
        let (name, status, title) = (code.as_str(), code.status().as_u16(), code.text().title);
        index.push_str(&format!("| {status} | [`{name}`](errors/{name}.md) | {title} |\n"));
    }
    index
}

#[test]
fn every_error_code_has_its_page() {
    let folder = docs().join("errors");
    let mut pages: BTreeMap<PathBuf, String> = ErrorCode::ALL
        .iter()
        .map(|code| (folder.join(format!("{}.md", code.as_str())), page(*code)))
        .collect();
    pages.insert(docs().join("errors.md"), index());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        for (path, text) in &pages {
            std::fs::write(path, text).unwrap();
        }
    }
    for (path, text) in &pages {
        let stored = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(*text, stored, "{}: UPDATE_GOLDEN=1 rewrites it", path.display());
    }
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        assert!(pages.contains_key(&path), "{} belongs to no error code; delete it", path.display());
    }
}

#[test]
fn codes_and_rules_are_unique_and_their_texts_are_complete() {
    let mut names: Vec<&str> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), ErrorCode::ALL.len());
    for code in ErrorCode::ALL {
        let ErrorText { title, happened, why, what_to_do } = code.text();
        assert!(!title.is_empty() && !title.ends_with('.'), "{code:?}");
        for text in [happened, why, what_to_do] {
            assert!(text.ends_with('.'), "{code:?}: {text}");
        }
        assert!(code.status().is_client_error() || code.status().is_server_error(), "{code:?}");
    }
    assert!(
        ErrorCode::ALL.is_sorted_by_key(|code| code.status().as_u16()),
        "codes are in the order of their statuses"
    );
    assert!(Rule::ALL.is_sorted_by_key(|rule| rule.as_str()));
}
