//! `shoal about`: what a controller is, beside this program; and what this program is made of.

use serde_json::{Value, json};

use api::Build;
use client::connection::Client;
use client::error::CliError;
use client::output::{Output, join, text};

/// The foreign crates in this program. A house test holds it to the lock file.
const SBOM: &str = include_str!("../../golden/components.cdx.json");

/// Prints the software bill of materials.
pub(super) fn sbom(output: &mut Output<'_>) -> Result<(), CliError> {
    super::openapi::print(SBOM, output)
}

/// Shows the controller and this program.
pub(super) async fn run(client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
    let controller = client.get_root("about").await?.body;
    if output.json {
        return output.document(&controller);
    }
    let part = |pointer: &str| text(&controller, pointer);
    let program = json!({ "version": env!("CARGO_PKG_VERSION"), "build": Build::THIS });
    output.fields(&[
        ("controller", version(&controller)),
        ("features", list(&controller, "features")),
        ("workflows", list(&controller, "workflows")),
        ("database schema", part("/schema_version")),
        ("instance", part("/instance")),
        ("started", part("/started_at")),
        ("authority sha256", part("/tls/authority_sha256")),
        ("certificate sha256", part("/tls/certificate_sha256")),
        ("certificate until", part("/tls/until")),
        ("this program", version(&program)),
    ])
}

/// Version and build in one line.
fn version(of: &Value) -> String {
    let part = |pointer: &str| text(of, pointer);
    let words = |pointer: &str, yes: &str| {
        if of.pointer(pointer) == Some(&Value::Bool(true)) { yes.to_owned() } else { String::new() }
    };
    join(
        &[
            part("/version"),
            part("/build/target"),
            words("/build/optimised", "optimised"),
            words("/build/static", "static"),
            part("/build/commit"),
        ],
        ", ",
    )
}

fn list(of: &Value, key: &str) -> String {
    let items = of[key].as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().map(|item| text(item, "")).collect::<Vec<_>>().join(", ")
}
