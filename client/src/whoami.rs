//! `shoal whoami`: the login of this client, as the controller sees it.

use super::connection::Client;
use super::error::CliError;
use super::output::{Output, items, labels, text};

/// Shows name, login, role and limits of the caller.
pub(super) async fn run(client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
    let me = client.get(&["me"], &[]).await?.body;
    if output.json {
        return output.document(&me);
    }
    let all = |some: Vec<String>, all: &str| if some.is_empty() { all.to_owned() } else { some.join(", ") };
    output.fields(&[
        ("name", text(&me, "/name")),
        ("login", text(&me, "/login")),
        ("role", text(&me, "/role")),
        ("servers", all(labels(&me["labels"]), "all")),
        ("registry scopes", all(items(&me["registry"]), "none: the role decides")),
    ])
}
