//! Partition layouts: rules, advice, and placement on a disk.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::partition::{LayoutError, Partition, PartitionSize, PartitionType, resolve};
use super::super::{FsFormat, Recipe};
use super::*;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn part(size: &str) -> Partition {
    let size = PartitionSize::parse(size).unwrap();
    Partition::new(size, PartitionType::LINUX_FILESYSTEM, FsFormat::Ext4)
}

fn parts(sizes: &[&str]) -> Vec<Partition> {
    sizes.iter().map(|size| part(size)).collect()
}

fn sized(sizes: &[&str]) -> Value {
    layout(sizes.iter().map(|size| json!({ "size": size, "type_guid": "8300" })).collect())
}

/// Sizes in MiB on a disk whose sectors have 512 bytes.
fn mib(sizes: &[&str], disk: u64) -> Result<Vec<u64>, LayoutError> {
    let resolved = resolve(&parts(sizes), disk, 512)?;
    Ok(resolved.iter().map(|part| (part.last_lba + 1 - part.first_lba) * 512 / MIB).collect())
}

#[test]
fn only_one_partition_takes_the_rest() {
    accepted(&sized(&["1G", "100%"]));
    assert_eq!(
        refused(&sized(&["100%", "1G", "100%", "100%"])),
        pairs(&[("/partition_layout/2/size", "rest_twice"), ("/partition_layout/3/size", "rest_twice")])
    );
}

#[test]
fn shares_do_not_exceed_the_disk() {
    accepted(&sized(&["50%", "50%"]));
    accepted(&sized(&["50%", "49%", "100%"]));
    assert_eq!(refused(&sized(&["50%", "51%"])), pairs(&[("/partition_layout", "percent_sum")]));
    assert_eq!(refused(&sized(&["50%", "50%", "100%"])), pairs(&[("/partition_layout", "percent_sum")]));
    assert_eq!(refused(&sized(&["99%"; 64])), pairs(&[("/partition_layout", "percent_sum")]));
}

#[test]
fn a_file_system_is_not_made_in_less_than_its_program_needs() {
    let made = |size: &str, format: &str, options: Value| {
        layout(json!([{ "size": size, "type_guid": "8300", "format": format, "mkfs_options": options }]))
    };
    for (least, less, format) in [("300M", "299M", "xfs"), ("109M", "108M", "btrfs")] {
        accepted(&made(least, format, json!([])));
        assert_eq!(
            refused(&made(less, format, json!([]))),
            pairs(&[("/partition_layout/0/size", "least_size")]),
            "{format}"
        );
    }
    accepted(&made("20M", "btrfs", json!(["--mixed"])));
    accepted(&made("1M", "ext4", json!([])));
    accepted(&made("1%", "xfs", json!([])));
}

#[test]
fn the_rest_is_the_remaining_space_at_any_position() {
    // 1 GiB: the first MiB is reserved, and the backup table takes the last one.
    assert_eq!(mib(&["512M", "100%", "16M"], GIB).unwrap(), [512, 1022 - 528, 16]);
    assert_eq!(mib(&["100%"], GIB).unwrap(), [1022]);
}

#[test]
fn shares_are_of_the_whole_space_and_sizes_round_up() {
    assert_eq!(mib(&["50%", "25%", "100%"], GIB).unwrap(), [511, 255, 256]);
    assert_eq!(mib(&["1", "1M", "1048577"], GIB).unwrap(), [1, 1, 2]);
}

#[test]
fn partitions_lie_on_mib_borders_with_both_sector_sizes() {
    let layout = parts(&["512M", "100%"]);
    let small = resolve(&layout, 8 * GIB, 512).unwrap();
    assert_eq!((small[0].first_lba, small[0].last_lba), (2048, 2048 + 1_048_576 - 1));
    assert_eq!((small[1].first_lba, small[1].last_lba), (1_050_624, 8 * GIB / 512 - 2048 - 1));
    let big = resolve(&layout, 8 * GIB, 4096).unwrap();
    assert_eq!((big[0].first_lba, big[0].last_lba), (256, 256 + 131_072 - 1));
    assert_eq!(small[0].type_guid, PartitionType::LINUX_FILESYSTEM.guid());
}

#[test]
fn labels_become_names() {
    let mut layout = parts(&["1G"]);
    assert_eq!(resolve(&layout, 8 * GIB, 512).unwrap()[0].name, "");
    layout[0].label = Some("cidata".to_owned());
    assert_eq!(resolve(&layout, 8 * GIB, 512).unwrap()[0].name, "cidata");
}

#[test]
fn a_layout_that_does_not_fit_is_refused() {
    assert_eq!(
        mib(&["512M", "512M"], GIB),
        Err(LayoutError::DoesNotFit { number: 2, needed: 1024, usable: 1022 })
    );
    assert_eq!(mib(&["1022M", "100%"], GIB), Err(LayoutError::Empty { number: 2 }));
    assert_eq!(mib(&["1%"], 64 * MIB), Err(LayoutError::Empty { number: 1 }));
    assert_eq!(mib(&["100%", "100%"], GIB), Err(LayoutError::RestTwice { number: 2 }));
    assert_eq!(mib(&["1M"], 2 * MIB), Err(LayoutError::DiskTooSmall(2 * MIB)));
    assert_eq!(mib(&[], 0), Err(LayoutError::DiskTooSmall(0)));
    assert_eq!(resolve(&[], GIB, 520), Err(LayoutError::Sector(520)));
    assert_eq!(resolve(&vec![part("1M"); 129], GIB, 512), Err(LayoutError::TooMany(129)));
    assert_eq!(mib(&["7P", "7P"], u64::MAX).unwrap(), [7 << 30, 7 << 30]);
}

fn advice(recipe: &Value) -> Vec<String> {
    let recipe: Recipe = accepted(recipe);
    recipe.lints().into_iter().map(|lint| format!("{} {}", lint.path, lint.message)).collect()
}

fn advised(recipe: &Value, wanted: &str) {
    let found = advice(recipe);
    assert!(found.iter().any(|lint| lint.contains(wanted)), "{wanted} in {found:#?}");
}

#[test]
fn a_good_linux_layout_gets_no_advice() {
    let mut good = linux();
    good["user_data"] = json!("#cloud-config\n");
    assert_eq!(advice(&good), Vec::<String>::new());
    good["user_data"] = json!("IyEvYmluL2Jhc2gK");
    good["user_data_encoding"] = json!("base64");
    assert_eq!(advice(&good), Vec::<String>::new());
}

#[test]
fn linux_layouts_are_advised_about_boot_root_and_order() {
    advised(
        &layout(json!([{ "size": "1G", "type_guid": "8300", "format": "ext4" }])),
        "No EFI system partition",
    );
    let esp = json!({ "size": "1G", "type_guid": "ef00", "format": "vfat" });
    advised(&layout(json!([esp, esp])), "2 EFI system partitions");
    advised(&layout(json!([esp])), "looks like a Linux root");
    advised(&sized(&["100%", "16M"]), "/partition_layout/0/size 100% is not the last");
    advised(&sized(&["512", "100%"]), "was 512M meant?");
    advised(&one_partition("format", json!("vfat")), "looks like a Linux root");
    let label =
        layout(json!([{ "size": "1G", "type_guid": "ef00", "format": "vfat", "label": "EFI-SYSTEM-A" }]));
    advised(&label, "vfat holds 11");
    for label in ["boot/efi", "ESP.1", "É", " ESP"] {
        let esp = json!([{ "size": "1G", "type_guid": "ef00", "format": "vfat", "label": label }]);
        advised(&layout(esp), "letters that vfat does not hold");
    }
    let esp = layout(json!([{ "size": "1G", "type_guid": "ef00", "format": "vfat", "label": "esp_A-1" }]));
    assert!(!advice(&esp).iter().any(|text| text.contains("label")), "{:?}", advice(&esp));
    advised(&layout(json!([{ "size": "1G", "type_guid": "ef00", "format": "ext4" }])), "only as vfat");
}

#[test]
fn windows_and_esxi_recipes_are_advised() {
    let windows = |items: Value| {
        let mut recipe = layout(items);
        recipe["task_target"] = json!("install-windows.target");
        recipe["user_data"] = json!("");
        recipe
    };
    let esp = json!({ "size": "300M", "type_guid": "ef00", "format": "vfat" });
    let msr = json!({ "size": "16M", "type_guid": "0c01" });
    let system = json!({ "size": "100%", "type_guid": "0700", "format": "ntfs" });
    assert_eq!(advice(&windows(json!([esp, msr, system]))), Vec::<String>::new());
    advised(&windows(json!([esp, system])), "Microsoft reserved partition (0c01, 16M, raw)");
    advised(&windows(json!([esp, msr])), "type 0700 with ntfs");
    advised(&windows(json!([{ "size": "16M", "type_guid": "0c01", "format": "ntfs" }])), "never formatted");
    let bare =
        json!({ "task_target": "install-windows.target", "target_disk": "/dev/sda", "oci_url": "h/w" });
    advised(&bare, "the maintenance OS decides");
    advised(&json!({ "task_target": "install-esxi.target", "ks_cfg": "" }), "The kickstart is empty");
}

#[test]
fn user_data_that_looks_like_base64_gets_advice() {
    advised(&linux(), "/user_data This looks like base64");
    let mut lonely = linux();
    lonely.as_object_mut().unwrap().remove("user_data");
    lonely["network_config"] = json!("version: 2");
    advised(&lonely, "/network_config cloud-init reads this only together with user_data");
}

fn any_size() -> impl Strategy<Value = PartitionSize> {
    prop_oneof![
        (1_u64..64 * GIB).prop_map(PartitionSize::Bytes),
        (1_u64..=i64::MAX as u64).prop_map(PartitionSize::Bytes),
        (1_u8..=99).prop_map(PartitionSize::Percent),
        Just(PartitionSize::Rest),
    ]
}

proptest! {
    #[test]
    fn partitions_keep_order_borders_and_space(
        sizes in prop::collection::vec(any_size(), 0..12),
        disk in prop_oneof![0..u64::MAX, 0..4096 * GIB, 0..16 * MIB],
        sector in prop_oneof![Just(512_u64), Just(4096_u64)],
    ) {
        let layout: Vec<Partition> = sizes.iter().map(|size| Partition { size: *size, ..part("1M") }).collect();
        if let Ok(resolved) = resolve(&layout, disk, sector) {
            prop_assert_eq!(resolved.len(), layout.len());
            let border = MIB / sector;
            let last_usable = disk / sector - 2 - 16384 / sector;
            let mut next = border;
            for (place, wanted) in resolved.iter().zip(&layout) {
                prop_assert_eq!(place.first_lba, next);
                prop_assert!(place.last_lba >= place.first_lba + border - 1);
                prop_assert!(place.last_lba <= last_usable);
                next = place.last_lba + 1;
                prop_assert_eq!(next % border, 0);
                if let PartitionSize::Bytes(bytes) = wanted.size {
                    let got = (place.last_lba + 1 - place.first_lba) * sector;
                    prop_assert!(got >= bytes && got - bytes < MIB);
                }
            }
            if layout.iter().any(|part| part.size == PartitionSize::Rest) {
                prop_assert!(last_usable + 1 - next < border, "the rest leaves less than one MiB");
            }
        }
    }

    #[test]
    fn every_size_that_matches_the_schema_is_parsed_or_out_of_range(text in "[1-9][0-9]{0,19}([KMGTP]B?|B)?|([1-9][0-9]?|100)%") {
        use super::super::partition::SizeError;
        prop_assert_ne!(PartitionSize::parse(&text), Err(SizeError::Form));
    }

    #[test]
    fn sizes_and_types_of_any_text_do_not_panic(text in "\\PC{0,40}") {
        let _ = PartitionSize::parse(&text);
        let _ = PartitionType::parse(&text);
    }
}
