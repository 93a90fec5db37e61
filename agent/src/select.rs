//! The choice of the disk: exactly one must remain, or nothing is written.
//!
//! ```text
//! facts --never: read-only, removable, empty, holds the media, several paths--> candidates
//!       --disk_hints: all that are given match--> --target_disk: a stable path, or a bare name of the only candidate-->
//!       exactly one | refusal with the list of all disks
//! ```
//!
//! A disk with an ISO 9660 volume may be the boot medium, or hold a hybrid image that an earlier job wrote: it is a candidate only when the
//! hints name it by its serial number or WWN.
//!
//! Kernel names change between boots, and installers have written to the wrong disk by them. A bare name such as
//! `/dev/sda` is therefore accepted only when the machine has one candidate, or when hints already left exactly this one.
//!
//! Invariants: pure. The result is one of the given disks, and it is a candidate.

use std::fmt;

use recipe::DiskHints;

use crate::facts::DiskFacts;

/// Not exactly one disk remains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotOneDisk {
    reason: String,
    disks: Vec<String>,
    is_missing: bool,
}

impl NotOneDisk {
    /// Returns whether no disk matches: one that appears later can.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.is_missing
    }

    /// Returns one line for each disk of the machine, with the reason why it is no candidate if there is one.
    #[must_use]
    pub fn disks(&self) -> &[String] {
        &self.disks
    }
}

impl fmt::Display for NotOneDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; nothing was written. This machine has: ", self.reason)?;
        match self.disks.as_slice() {
            [] => f.write_str("no disk; check the driver of its controller"),
            disks => f.write_str(&disks.join("; ")),
        }
    }
}

impl std::error::Error for NotOneDisk {}

/// Selects the disk of an installation. `media` are the devices that hold the boot and the task medium.
///
/// # Errors
/// Returns an error with all disks when not exactly one remains.
pub fn select<'facts>(
    disks: &'facts [DiskFacts],
    media: &[String],
    target_disk: Option<&str>,
    hints: Option<&DiskHints>,
) -> Result<&'facts DiskFacts, NotOneDisk> {
    let refused = |reason: String| {
        let line = |disk: &DiskFacts| match exclusion(disk, disks, media, hints) {
            None => disk.shown(),
            Some(why) => format!("{} ({why})", disk.shown()),
        };
        NotOneDisk { reason, disks: disks.iter().map(line).collect(), is_missing: false }
    };
    let candidates: Vec<&DiskFacts> =
        disks.iter().filter(|disk| exclusion(disk, disks, media, hints).is_none()).collect();
    let hinted: Vec<&DiskFacts> = match hints {
        None => candidates.clone(),
        Some(hints) if *hints == DiskHints::default() => {
            return Err(refused("disk_hints is empty".to_owned()));
        }
        Some(hints) => candidates.iter().copied().filter(|disk| matches(hints, disk)).collect(),
    };
    let chosen: Vec<&DiskFacts> = match target_disk {
        None if hints.is_none() => {
            return Err(refused("the recipe has neither target_disk nor disk_hints".to_owned()));
        }
        None => hinted.clone(),
        Some(path) => hinted.iter().copied().filter(|disk| is_at(disk, path)).collect(),
    };
    match (&chosen[..], target_disk) {
        ([], path) => {
            let reason = path.map_or_else(
                || "no usable disk matches disk_hints".to_owned(),
                |path| format!("no usable disk is {path} and matches the hints"),
            );
            Err(NotOneDisk { is_missing: true, ..refused(reason) })
        }
        ([disk], Some(path)) if is_bare(path) && hinted.len() > 1 => {
            let name = &disk.name;
            let count = hinted.len();
            Err(refused(format!(
                "{path} is a name that can be another disk after every boot, and {count} disks are candidates; give \
                 disk_hints or a path such as /dev/disk/by-path/… for {name}"
            )))
        }
        ([disk], path) if let Some(hctl) = other_host(disk, path, hints) => {
            let reason = format!(
                "no usable disk is at {hctl}; {} has another host number, which changes between boots and is not enough to tell disks \
                 apart: give by_path, or max_bytes too",
                disk.name
            );
            Err(NotOneDisk { is_missing: true, ..refused(reason) })
        }
        ([disk], _) => Ok(disk),
        (several, _) => {
            let count = several.len();
            let hint = match hints.is_some_and(|hints| hints.hctl.is_some()) {
                true => {
                    " (the first number of hctl is not compared, as it changes between boots; give by_path)"
                }
                false => "",
            };
            Err(refused(format!("{count} disks match where one must remain{hint}")))
        }
    }
}

/// The reason why a disk is never written to.
fn exclusion(
    disk: &DiskFacts,
    all: &[DiskFacts],
    media: &[String],
    hints: Option<&DiskHints>,
) -> Option<&'static str> {
    let paths = |other: &&DiskFacts| {
        let same = |a: &Option<String>, b: &Option<String>| a.is_some() && a == b;
        other.bytes == disk.bytes && same(&other.wwn, &disk.wwn)
    };
    if disk.bytes == 0 {
        Some("empty")
    } else if disk.read_only {
        Some("read-only")
    } else if disk.removable {
        Some("removable")
    } else if media.iter().any(|name| *name == disk.name || is_partition_of(name, &disk.name))
        && !hints.is_some_and(|hints| is_named(hints, disk))
    {
        Some("holds an ISO 9660 volume, as a boot medium does; its serial or wwn in disk_hints permits it")
    } else if all.iter().filter(paths).count() > 1 {
        Some("one of several paths to one disk")
    } else {
        None
    }
}

/// Whether a kernel name is that of a partition of this disk.
pub(crate) fn is_partition_of(name: &str, disk: &str) -> bool {
    let Some(rest) = name.strip_prefix(disk) else { return false };
    let number =
        if disk.ends_with(|last: char| last.is_ascii_digit()) { rest.strip_prefix('p') } else { Some(rest) };
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether the hints name this one disk, and not a kind of disk.
fn is_named(hints: &DiskHints, disk: &DiskFacts) -> bool {
    (hints.serial.is_some() || hints.wwn.is_some()) && matches(hints, disk)
}

fn matches(hints: &DiskHints, disk: &DiskFacts) -> bool {
    let whole = |hint: &Option<String>, value: &Option<String>| {
        hint.as_ref().is_none_or(|hint| {
            value.as_ref().is_some_and(|value| value.trim().eq_ignore_ascii_case(hint.trim()))
        })
    };
    let part = |hint: &Option<String>, value: &Option<String>| {
        hint.as_ref().is_none_or(|hint| {
            let hint = hint.trim().to_ascii_lowercase();
            !hint.is_empty() && value.as_ref().is_some_and(|value| value.to_ascii_lowercase().contains(&hint))
        })
    };
    let wwn = hints.wwn.as_ref().map(|wwn| {
        let lower = wwn.trim().to_ascii_lowercase().replace('-', "");
        let plain =
            ["0x", "naa.", "eui.", "uuid.", "wwn0x"].iter().find_map(|prefix| lower.strip_prefix(prefix));
        plain.unwrap_or(&lower).to_owned()
    });
    whole(&hints.serial, &disk.serial)
        && whole(&wwn, &disk.wwn)
        && part(&hints.model, &disk.model)
        && part(&hints.vendor, &disk.vendor)
        && whole(&hints.hctl.as_deref().map(without_host), &disk.hctl.as_deref().map(without_host))
        && hints.min_bytes.is_none_or(|least| disk.bytes >= least)
        && hints.max_bytes.is_none_or(|most| disk.bytes <= most)
        && hints.rotational.is_none_or(|rotational| rotational == disk.rotational)
        && hints.by_path.as_ref().is_none_or(|path| {
            let name = path.strip_prefix("/dev/disk/by-path/").unwrap_or(path);
            disk.by_path.iter().any(|known| known == name)
        })
}

/// Returns the hint by SCSI address when nothing else tells this disk from one at the same place of another host. With hints that name
/// the disk, or limit its size from above, the number of the host is not compared.
fn other_host<'hint>(
    disk: &DiskFacts,
    target_disk: Option<&str>,
    hints: Option<&'hint DiskHints>,
) -> Option<&'hint str> {
    let hints = hints?;
    let hctl = hints.hctl.as_deref()?;
    let is_told_apart = hints.serial.is_some()
        || hints.wwn.is_some()
        || hints.by_path.is_some()
        || hints.max_bytes.is_some()
        || target_disk.is_some_and(|path| !is_bare(path));
    let is_same = disk.hctl.as_deref().is_some_and(|known| known.trim() == hctl.trim());
    (!is_told_apart && !is_same).then_some(hctl)
}

/// Channel, target and LUN. The kernel numbers the hosts in the order in which their drivers load, which is another one at every boot.
fn without_host(hctl: &str) -> String {
    hctl.split_once(':').map_or(hctl, |(_host, rest)| rest).to_owned()
}

fn is_at(disk: &DiskFacts, path: &str) -> bool {
    if let Some(name) = path.strip_prefix("/dev/disk/by-id/") {
        return disk.by_id.iter().any(|known| known == name);
    }
    if let Some(name) = path.strip_prefix("/dev/disk/by-path/") {
        return disk.by_path.iter().any(|known| known == name);
    }
    path.strip_prefix("/dev/") == Some(&disk.name)
}

fn is_bare(path: &str) -> bool {
    !path.starts_with("/dev/disk/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn disk(name: &str, gib: u64) -> DiskFacts {
        DiskFacts {
            name: name.to_owned(),
            bytes: gib << 30,
            sector: 512,
            serial: Some(format!("SER-{name}")),
            by_path: vec![format!("pci-0000:00:1f.2-ata-{name}")],
            by_id: vec![format!("ata-DISK_SER-{name}")],
            model: Some("Disk 4TB".to_owned()),
            ..DiskFacts::default()
        }
    }

    fn hints(json: serde_json::Value) -> DiskHints {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_bare_name_is_accepted_for_the_only_candidate_and_refused_otherwise() {
        let mut disks = vec![disk("sda", 10), disk("sdb", 10)];
        let refused = select(&disks, &[], Some("/dev/sda"), None).unwrap_err();
        assert!(
            refused.to_string().contains("SER-sdb") && refused.to_string().contains("disk_hints"),
            "{refused}"
        );
        assert_eq!(select(&disks, &["sdb1".to_owned()], Some("/dev/sda"), None).unwrap().name, "sda");
        let hinted = hints(serde_json::json!({"serial": "ser-SDA"}));
        assert_eq!(select(&disks, &[], Some("/dev/sda"), Some(&hinted)).unwrap().name, "sda");
        assert!(select(&disks, &[], Some("/dev/sdb"), Some(&hinted)).is_err(), "name and hints contradict");
        let both = hints(serde_json::json!({"model": "disk"}));
        assert!(
            select(&disks, &[], Some("/dev/sda"), Some(&both)).is_err(),
            "hints that leave two make no name stable"
        );
        disks[1].removable = true;
        assert_eq!(select(&disks, &[], Some("/dev/sda"), None).unwrap().name, "sda");
        assert!(select(&disks, &[], Some("/dev/sdb"), None).is_err());
    }

    #[test]
    fn a_stable_path_selects_among_several_disks() {
        let disks = [disk("sda", 10), disk("sdb", 10)];
        let path = "/dev/disk/by-path/pci-0000:00:1f.2-ata-sdb";
        assert_eq!(select(&disks, &[], Some(path), None).unwrap().name, "sdb");
        assert_eq!(select(&disks, &[], Some("/dev/disk/by-id/ata-DISK_SER-sda"), None).unwrap().name, "sda");
        assert!(select(&disks, &[], Some("/dev/disk/by-id/ata-OTHER"), None).is_err());
    }

    #[test]
    fn all_hints_must_match_and_exactly_one_disk_must_remain() {
        let disks = [disk("sda", 10), disk("sdb", 20), disk("sdc", 30)];
        let by = |json| select(&disks, &[], None, Some(&hints(json))).map(|disk| disk.name.clone());
        assert_eq!(
            by(serde_json::json!({"min_bytes": 15_u64 << 30, "max_bytes": 25_u64 << 30})).unwrap(),
            "sdb"
        );
        assert!(by(serde_json::json!({"model": "disk"})).unwrap_err().to_string().contains("3 disks match"));
        assert!(by(serde_json::json!({"model": "disk", "serial": "x"})).is_err());
        assert!(by(serde_json::json!({})).is_err() && by(serde_json::json!({"model": " "})).is_err());
        assert!(select(&disks[..1], &[], None, None).is_err(), "without any word on it no disk is written");
    }

    /// Each row is a hint, the fact of the disk that it means, and that of every other disk. All else of the disks is equal.
    #[test]
    fn each_hint_alone_decides_for_one_of_several_equal_disks() {
        type Fact = fn(&mut DiskFacts);
        let equal = |name: &str| DiskFacts { name: name.to_owned(), bytes: 20 << 30, ..DiskFacts::default() };
        let rows: [(&str, serde_json::Value, Fact, Fact); 19] = [
            ("serial", " s-1 ".into(), |disk| disk.serial = Some("S-1".into()), |_| ()),
            (
                "serial",
                "S-1".into(),
                |disk| disk.serial = Some("S-1".into()),
                |disk| disk.serial = Some("S-12".into()),
            ),
            ("wwn", "0x5000C500A1".into(), |disk| disk.wwn = Some("5000c500a1".into()), |_| ()),
            ("wwn", "naa.5000c500a1".into(), |disk| disk.wwn = Some("5000c500a1".into()), |_| ()),
            ("wwn", "eui.5000c500a1".into(), |disk| disk.wwn = Some("5000c500a1".into()), |_| ()),
            ("wwn", "wwn-0x5000c500a1".into(), |disk| disk.wwn = Some("5000c500a1".into()), |_| ()),
            ("wwn", "5000c500a1".into(), |disk| disk.wwn = Some("5000c500a1".into()), |_| ()),
            ("wwn", "uuid.5000-c500a1".into(), |disk| disk.wwn = Some("5000c500a1".into()), |_| ()),
            ("model", "mz-qL2".into(), |disk| disk.model = Some("SAMSUNG MZ-QL2".into()), |_| ()),
            (
                "model",
                "QL2".into(),
                |disk| disk.model = Some("MZ-QL2".into()),
                |disk| disk.model = Some("MZ-QL3".into()),
            ),
            ("vendor", "seag".into(), |disk| disk.vendor = Some("SEAGATE".into()), |_| ()),
            (
                "vendor",
                "A".into(),
                |disk| disk.vendor = Some("ATA".into()),
                |disk| disk.vendor = Some("ZED".into()),
            ),
            ("min_bytes", (30_u64 << 30).into(), |disk| disk.bytes = 30 << 30, |_| ()),
            ("max_bytes", (10_u64 << 30).into(), |disk| disk.bytes = 10 << 30, |_| ()),
            ("rotational", true.into(), |disk| disk.rotational = true, |_| ()),
            ("rotational", false.into(), |_| (), |disk| disk.rotational = true),
            (
                "hctl",
                "2:1:0:0".into(),
                |disk| disk.hctl = Some("2:1:0:0".into()),
                |disk| disk.hctl = Some("2:0:0:0".into()),
            ),
            (
                "by_path",
                "/dev/disk/by-path/pci-1-ata-2".into(),
                |disk| disk.by_path = vec!["pci-1-ata-2".into()],
                |_| (),
            ),
            (
                "by_path",
                "pci-1-ata-2".into(),
                |disk| disk.by_path = vec!["pci-1-ata-2.0".into(), "pci-1-ata-2".into()],
                |disk| disk.by_path = vec!["pci-1-ata-20".into()],
            ),
        ];
        for (name, value, of_chosen, of_others) in &rows {
            let hint = hints(serde_json::json!({ *name: value }));
            for place in 0..3 {
                let mut disks = ["sda", "sdb", "sdc"].map(equal);
                assert!(
                    select(&disks, &[], None, Some(&hint)).is_err(),
                    "{name} chooses none of equal disks"
                );
                disks.iter_mut().for_each(of_others);
                disks[place] = equal(&disks[place].name);
                of_chosen(&mut disks[place]);
                let chosen = select(&disks, &[], None, Some(&hint)).map(|disk| &disk.name);
                assert_eq!(chosen, Ok(&disks[place].name), "{name}: {value}");
            }
        }
        // No hint of the schema is left out: this is a value with all of them.
        let all: serde_json::Map<_, _> =
            rows.into_iter().map(|(name, value, ..)| (name.to_owned(), value)).collect();
        let DiskHints { serial, wwn, model, vendor, min_bytes, max_bytes, rotational, hctl, by_path } =
            hints(all.into());
        assert!(serial.and(wwn).and(model).and(vendor).and(hctl).and(by_path).is_some());
        assert!(min_bytes.and(max_bytes).is_some() && rotational.is_some());
    }

    #[test]
    fn the_number_of_a_scsi_host_selects_no_disk_because_it_changes_between_boots() {
        let mut disks = [disk("sda", 10), disk("sdb", 20)];
        for (disk, hctl) in disks.iter_mut().zip(["0:2:0:0", "1:2:0:0"]) {
            disk.hctl = Some(hctl.to_owned());
        }
        let by = |disks: &[DiskFacts], json| {
            select(disks, &[], None, Some(&hints(json))).map(|disk| disk.name.clone())
        };
        let refused = by(&disks, serde_json::json!({"hctl": "0:2:0:0"})).unwrap_err().to_string();
        assert!(refused.contains("2 disks match") && refused.contains("by_path"), "{refused}");
        let small = serde_json::json!({"hctl": "0:2:0:0", "max_bytes": 10_u64 << 30});
        assert_eq!(by(&disks, small.clone()).unwrap(), "sda");
        // The same disk after a boot in which the other controller was first.
        disks.iter_mut().for_each(|disk| {
            disk.hctl = disk.hctl.take().map(|hctl| hctl.replace("1:2", "9:2").replace("0:2", "1:2"));
        });
        assert_eq!(by(&disks, small).unwrap(), "sda");
        assert!(by(&disks, serde_json::json!({"hctl": "0:2:1:0"})).is_err());
    }

    #[test]
    fn hctl_alone_never_selects_a_disk_of_another_host() {
        let mut disks = [disk("sda", 10)];
        disks[0].hctl = Some("0:0:0:0".to_owned());
        let by = |json| select(&disks, &[], None, Some(&hints(json))).map(|disk| disk.name.clone());
        // The disk that the recipe means is broken, or its controller is late.
        for wanted in [
            serde_json::json!({"hctl": "1:0:0:0"}),
            serde_json::json!({"hctl": "1:0:0:0", "model": "disk", "rotational": false, "min_bytes": 1}),
        ] {
            let refused = by(wanted).unwrap_err();
            assert!(refused.is_missing() && refused.to_string().contains("by_path"), "{refused}");
        }
        assert_eq!(by(serde_json::json!({"hctl": "0:0:0:0"})).unwrap(), "sda");
        assert_eq!(by(serde_json::json!({"hctl": "1:0:0:0", "serial": "ser-sda"})).unwrap(), "sda");
        let path = "/dev/disk/by-path/pci-0000:00:1f.2-ata-sda";
        let hint = hints(serde_json::json!({"hctl": "1:0:0:0"}));
        assert_eq!(select(&disks, &[], Some(path), Some(&hint)).unwrap().name, "sda");
    }

    #[test]
    fn read_only_empty_and_multipath_disks_are_never_taken() {
        let mut disks = [disk("sda", 10), disk("sdb", 10)];
        for disk in &mut disks {
            disk.wwn = Some("5000c500a1b2c3d4".to_owned());
        }
        let hint = hints(serde_json::json!({"wwn": "0x5000C500A1B2C3D4"}));
        let refused = select(&disks, &[], None, Some(&hint)).unwrap_err();
        assert!(refused.to_string().contains("several paths"), "{refused}");
        assert_eq!(select(&disks[..1], &[], None, Some(&hint)).unwrap().name, "sda");
        disks[0].read_only = true;
        assert!(select(&disks[..1], &[], None, Some(&hint)).is_err());
        assert!(select(&[], &[], Some("/dev/sda"), None).unwrap_err().to_string().contains("no disk"));
    }

    #[test]
    fn a_disk_with_a_hybrid_image_is_written_again_only_when_its_serial_or_wwn_is_named() {
        let disks = [disk("sda", 10), disk("sdb", 10)];
        let media = ["sr0".to_owned(), "sda".to_owned(), "sda2".to_owned()];
        let by = |hint| select(&disks, &media, None, Some(&hints(hint))).map(|disk| disk.name.clone());
        assert_eq!(by(serde_json::json!({"model": "disk"})).unwrap(), "sdb");
        assert_eq!(by(serde_json::json!({"serial": "ser-sda"})).unwrap(), "sda");
        let refused = by(serde_json::json!({"model": "disk", "max_bytes": 1})).unwrap_err().to_string();
        assert!(refused.contains("holds an ISO 9660 volume") && refused.contains("disk_hints"), "{refused}");
        assert!(by(serde_json::json!({"serial": "ser-sda", "min_bytes": 11_u64 << 30})).is_err());
    }

    #[test]
    fn a_partition_of_the_medium_names_its_disk_and_no_other() {
        assert!(is_partition_of("sda1", "sda") && is_partition_of("nvme0n1p2", "nvme0n1"));
        assert!(!is_partition_of("sdaa", "sda") && !is_partition_of("nvme0n11", "nvme0n1"));
    }

    proptest! {
        #[test]
        fn what_is_selected_is_a_candidate_and_the_only_match(
            flags in proptest::collection::vec((any::<bool>(), any::<bool>(), 0_u64..3), 0..6),
            wanted in 0_usize..6,
        ) {
            let disks: Vec<_> = flags.iter().enumerate().map(|(index, (removable, read_only, gib))| DiskFacts {
                removable: *removable,
                read_only: *read_only,
                ..disk(&format!("sd{}", char::from(b'a' + index as u8)), *gib)
            }).collect();
            let name = format!("/dev/sd{}", char::from(b'a' + wanted as u8));
            if let Ok(chosen) = select(&disks, &[], Some(&name), None) {
                prop_assert!(!chosen.removable && !chosen.read_only && chosen.bytes > 0);
                let usable = disks.iter().filter(|disk| !disk.removable && !disk.read_only && disk.bytes > 0);
                prop_assert_eq!(usable.count(), 1);
                prop_assert_eq!(format!("/dev/{}", chosen.name), name);
            }
        }
    }
}
