//! The OCI image: one layer with the program, as an image layout in a tar (OCI image specification 1.1).
//!
//! ```text
//!   oci-layout   index.json ──> manifest ──> config (user, entry point, digest of the layer's tar)
//!                                       `──> layer.tar.gz: /usr/bin/shoal, /usr/lib/shoal/shoal-agent, /etc/passwd, /tmp, /var/lib/shoal (its own)
//! ```

use std::io;

use serde_json::{Value, json};

use crate::archive::{Entry, Owner, ROOT, gzip, tar};
use crate::elf::Architecture;
use crate::{Programs, sha256};

/// The user of the image. It is no user of a host.
const USER: Owner = Owner { id: 65_532, name: "shoal" };
const DATA: &str = "/var/lib/shoal";

/// The image of a program as a tar that skopeo and podman read as `oci-archive:`.
pub(crate) fn image(
    programs: Programs<'_>,
    architecture: Architecture,
    version: &str,
    date: u64,
) -> io::Result<Vec<u8>> {
    let passwd = format!("root:x:0:0:root:/:/\n{0}:x:{1}:{1}::{DATA}:/\n", USER.name, USER.id);
    let group = format!("root:x:0:\n{}:x:{}:\n", USER.name, USER.id);
    let plain = tar(
        "",
        &[
            Entry::directory("etc", 0o755, ROOT),
            Entry::file("etc/group", 0o644, group.as_bytes()),
            Entry::file("etc/passwd", 0o644, passwd.as_bytes()),
            Entry::directory("tmp", 0o1777, ROOT),
            Entry::directory("usr", 0o755, ROOT),
            Entry::directory("usr/bin", 0o755, ROOT),
            Entry::file("usr/bin/shoal", 0o755, programs.shoal),
            Entry::directory("usr/lib", 0o755, ROOT),
            Entry::directory("usr/lib/shoal", 0o755, ROOT),
            Entry::file("usr/lib/shoal/shoal-agent", 0o755, programs.agent),
            Entry::directory("var", 0o755, ROOT),
            Entry::directory("var/lib", 0o755, ROOT),
            Entry::directory("var/lib/shoal", 0o700, USER),
        ],
        date,
    )?;
    let layer = gzip(&plain)?;
    let config = json!({
        "created": created(date),
        "architecture": architecture.oci(),
        "os": "linux",
        "config": {
            "User": format!("{0}:{0}", USER.id),
            "Entrypoint": ["/usr/bin/shoal"],
            "Cmd": ["serve"],
            "Env": ["PATH=/usr/bin", format!("STORAGE_ROOT={DATA}")],
            "ExposedPorts": { "8080/tcp": {}, "8443/tcp": {} },
            "Volumes": { DATA: {} },
            "StopSignal": "SIGTERM",
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", sha256(&plain))] },
        "history": [{ "created": created(date), "created_by": "packager" }],
    })
    .to_string();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", config.as_bytes()),
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar+gzip", &layer)],
        "annotations": {
            "org.opencontainers.image.title": "shoal",
            "org.opencontainers.image.version": version,
            "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        },
    })
    .to_string();
    let mut of_index = descriptor("application/vnd.oci.image.manifest.v1+json", manifest.as_bytes());
    of_index["platform"] = json!({ "architecture": architecture.oci(), "os": "linux" });
    of_index["annotations"] = json!({ "org.opencontainers.image.ref.name": version });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [of_index],
    })
    .to_string();
    let blobs = [config.as_bytes(), manifest.as_bytes(), &layer];
    let mut entries =
        vec![Entry::directory("blobs", 0o755, ROOT), Entry::directory("blobs/sha256", 0o755, ROOT)];
    entries
        .extend(blobs.iter().map(|blob| Entry::file(&format!("blobs/sha256/{}", sha256(blob)), 0o644, blob)));
    entries.push(Entry::file("index.json", 0o644, index.as_bytes()));
    entries.push(Entry::file("oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#));
    tar("", &entries, date)
}

fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": format!("sha256:{}", sha256(bytes)), "size": bytes.len() })
}

/// A time as RFC 3339 in UTC (proleptic Gregorian calendar; days since 1970 by the algorithm of Howard Hinnant).
fn created(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_rfc_3339() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_767_225_600, "2026-01-01T00:00:00Z"),
        ] {
            assert_eq!(created(seconds), text);
        }
    }
}
