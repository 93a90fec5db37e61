//! Tests of the slot planner: a table with one row per known BMC or situation.

use proptest::prelude::*;
use redfish::InsertVia;

use super::*;

const CD: &[&str] = &["CD", "DVD"];
const USB: &[&str] = &["Floppy", "USBStick"];
const ANY: &[&str] = &["CD", "DVD", "Floppy", "USBStick"];

pub(super) fn slot(tree: &str, id: &str, types: &[&str]) -> Slot {
    let uri = format!("/redfish/v1/{tree}/VirtualMedia/{id}");
    Slot {
        insert: InsertVia::Action(format!("{uri}/Actions/VirtualMedia.InsertMedia")),
        uri,
        id: id.to_owned(),
        name: String::new(),
        media_types: types.iter().map(|&name| name.to_owned()).collect(),
        inserted: Some(false),
        image: None,
        image_name: None,
        connected_via: None,
        eject: None,
        transfer_protocols: Vec::new(),
    }
}

fn closed(tree: &str, id: &str, types: &[&str]) -> Slot {
    Slot { insert: InsertVia::Nothing, ..slot(tree, id, types) }
}

fn reading(protocols: &[&str], slot: Slot) -> Slot {
    Slot { transfer_protocols: protocols.iter().map(|&name| name.to_owned()).collect(), ..slot }
}

struct Row {
    what: &'static str,
    slots: Vec<Slot>,
    scheme: &'static str,
    learned: LearnedSlots,
}

fn row(what: &'static str, slots: Vec<Slot>) -> Row {
    Row { what, slots, scheme: "http", learned: LearnedSlots::default() }
}

impl Row {
    fn plan(&self) -> Result<SlotPlans, NoPlan> {
        plan(&Capabilities { slots: &self.slots, scheme: self.scheme, learned: &self.learned })
    }

    /// Returns `plan:slots plan:slots …`, or the reason and next action.
    fn shown(&self) -> String {
        match self.plan() {
            Ok(plans) => {
                let shown =
                    |choice: &SlotChoice| format!("{}:{}", choice.plan.as_str(), choice.ids.join("+"));
                plans.all().iter().map(shown).collect::<Vec<_>>().join(" ")
            }
            Err(no) => format!("{} -> {}", no.why, no.next),
        }
    }
}

fn refused(id: &str) -> LearnedSlots {
    LearnedSlots { refused: BTreeMap::from([(id.to_owned(), "400".to_owned())]), ..LearnedSlots::default() }
}

/// Known BMCs and other situations, with the expected plans.
fn table() -> Vec<(Row, &'static str)> {
    const DELL: &str = "Managers/iDRAC.Embedded.1";
    const ONE: &str = "Managers/1";
    let xcc = || -> Vec<Slot> {
        let ext = (1..=4).map(|n| slot(ONE, &format!("EXT{n}"), ANY));
        let remote = (1..=4).map(|n| closed(ONE, &format!("Remote{n}"), ANY));
        (1..=2).map(|n| closed(ONE, &format!("RDOC{n}"), ANY)).chain(ext).chain(remote).collect()
    };
    vec![
        (
            row(
                "iDRAC8 and iDRAC9 before 6.00",
                vec![slot(DELL, "CD", CD), slot(DELL, "RemovableDisk", USB)],
            ),
            "cd+usb:CD+RemovableDisk single:CD",
        ),
        (
            row(
                "iDRAC9 from 6.00",
                vec![
                    slot("Systems/System.Embedded.1", "1", &["CD", "DVD", "USBStick"]),
                    slot("Systems/System.Embedded.1", "2", &["CD", "DVD", "USBStick"]),
                ],
            ),
            "dual:1+2 single:1 single:2",
        ),
        (
            row("iDRAC10: slot 1 only", vec![slot("Systems/1", "1", CD), closed("Systems/1", "2", CD)]),
            "single:1",
        ),
        (
            row("iLO4 to iLO7: the CD is the second slot", vec![slot(ONE, "1", USB), slot(ONE, "2", CD)]),
            "cd+usb:2+1 single:2",
        ),
        (
            row("iLO without licence for scripted media", vec![closed(ONE, "1", USB), closed(ONE, "2", CD)]),
            "none of its 2 virtual media slots takes a CD image (1 offers no way to insert an image; 2 offers no way to insert an image) -> check the BMC for a licence or a firmware update that adds a CD slot",
        ),
        (
            row("XCC: RDOC first and closed by its profile, Remote not insertable", xcc()),
            "dual:EXT1+EXT2 dual:EXT1+EXT3 dual:EXT1+EXT4 single:EXT1 single:EXT2 single:EXT3 single:EXT4",
        ),
        (
            row(
                "XCC2: the same slots under manager and system",
                vec![
                    slot("Systems/1", "EXT1", ANY),
                    slot("Systems/1", "EXT2", ANY),
                    slot(ONE, "EXT1", ANY),
                    slot(ONE, "EXT2", ANY),
                ],
            ),
            "dual:EXT1+EXT2 single:EXT1 single:EXT2",
        ),
        (
            row(
                "one slot under two trees is one slot",
                vec![slot("Systems/1", "CD", CD), slot(ONE, "CD", CD)],
            ),
            "single:CD",
        ),
        (
            row(
                "TSM with four CD instances",
                (1..=4).map(|n| slot("Managers/Self", &format!("CD{n}"), CD)).collect(),
            ),
            "dual:CD1+CD2 dual:CD1+CD3 dual:CD1+CD4 single:CD1 single:CD2 single:CD3 single:CD4",
        ),
        (row("Supermicro X10/X11 CfgCD", vec![slot("Managers/1/VM1", "CfgCD", &[])]), "single:CfgCD"),
        (
            row(
                "Supermicro X12 and later",
                (1..=3).map(|n| slot(ONE, &format!("VirtualMedia{n}"), ANY)).collect(),
            ),
            "dual:VirtualMedia1+VirtualMedia2 dual:VirtualMedia1+VirtualMedia3 single:VirtualMedia1 single:VirtualMedia2 single:VirtualMedia3",
        ),
        (
            row(
                "Fujitsu iRMC counts from 0",
                vec![slot("Managers/iRMC", "1", CD), slot("Managers/iRMC", "0", CD)],
            ),
            "dual:0+1 single:0 single:1",
        ),
        (
            row(
                "Cisco: DVD only, vKVM slots",
                vec![slot("Managers/CIMC", "0", &["DVD"]), closed("Managers/CIMC", "1", &["DVD"])],
            ),
            "single:0",
        ),
        (row("MegaRAC with one CD instance", vec![slot("Managers/Self", "CD1", CD)]), "single:CD1"),
        (
            row("MegaRAC before EnableRMedia", vec![]),
            "this BMC shows no virtual media slot -> enable virtual media in the BMC; check for a licence or a firmware update",
        ),
        (
            row(
                "a slot that reads https only",
                vec![reading(&["HTTPS"], slot("Managers/bmc", "Slot_0", &["CD", "USBStick"]))],
            ),
            "none of its 1 virtual media slots takes a CD image (Slot_0 reads HTTPS and not HTTP) -> set the server's media_base_url to a URL with a scheme that its slots read",
        ),
        (
            Row {
                scheme: "https",
                ..row(
                    "OpenBMC with proxy slots",
                    vec![
                        closed("Managers/bmc", "Slot_0", &["CD", "USBStick"]),
                        reading(&["HTTPS"], slot("Managers/bmc", "Slot_2", &["CD", "USBStick"])),
                        slot("Managers/bmc", "Slot_3", &["CD", "USBStick"]),
                    ],
                )
            },
            "dual:Slot_2+Slot_3 single:Slot_2 single:Slot_3",
        ),
        (
            row(
                "GB200: two slots called USB that take CDs",
                vec![
                    slot("Managers/BMC_0", "USB1", &["CD", "USBStick"]),
                    slot("Managers/BMC_0", "USB2", &["CD", "USBStick"]),
                ],
            ),
            "dual:USB1+USB2 single:USB1 single:USB2",
        ),
        (
            row("iBMC reads NFS and CIFS only", vec![reading(&["NFS", "CIFS"], slot(ONE, "CD", CD))]),
            "none of its 1 virtual media slots takes a CD image (CD reads NFS, CIFS and not HTTP) -> set the server's media_base_url to a URL with a scheme that its slots read",
        ),
        (
            row(
                "sushy-emulator with its default configuration",
                vec![slot("Systems/u", "Cd", CD), slot("Systems/u", "Floppy", USB)],
            ),
            "cd+usb:Cd+Floppy single:Cd",
        ),
        (
            row("a BMC with a USB slot only", vec![slot(ONE, "USB", USB)]),
            "none of its 1 virtual media slots takes a CD image -> check the BMC for a licence or a firmware update that adds a CD slot",
        ),
        (
            row(
                "slots out of order, with numbers above nine",
                [10, 2, 1].map(|n| slot(ONE, &format!("CD{n}"), CD)).into(),
            ),
            "dual:CD1+CD2 dual:CD1+CD10 single:CD1 single:CD2 single:CD10",
        ),
        (
            row(
                "two CDs and a USB slot",
                vec![slot(ONE, "USB", USB), slot(ONE, "CD2", CD), slot(ONE, "CD1", CD)],
            ),
            "dual:CD1+CD2 cd+usb:CD1+USB single:CD1 single:CD2",
        ),
        (
            Row {
                learned: refused("CD2"),
                ..row(
                    "the second CD refused before",
                    vec![slot(ONE, "CD1", CD), slot(ONE, "CD2", CD), slot(ONE, "USB", USB)],
                )
            },
            "cd+usb:CD1+USB single:CD1",
        ),
        (
            Row {
                learned: LearnedSlots { one_image: true, ..LearnedSlots::default() },
                ..row("it held one image before", vec![slot(ONE, "CD1", CD), slot(ONE, "CD2", CD)])
            },
            "single:CD1 single:CD2",
        ),
        (
            row(
                "a slot that reads https only beside one that reads http",
                vec![
                    reading(&["HTTPS"], slot(ONE, "CD1", CD)),
                    reading(&["HTTP", "HTTPS"], slot(ONE, "CD2", CD)),
                ],
            ),
            "single:CD2",
        ),
        (row("no media types: the name decides", vec![slot(ONE, "VirtualCd", &[])]), "single:VirtualCd"),
        (
            row(
                "a slot of an unknown type is not used",
                vec![slot(ONE, "CD", CD), slot(ONE, "Tape", &["Tape"])],
            ),
            "single:CD",
        ),
    ]
}

#[test]
fn every_known_bmc_gets_its_plans_in_order() {
    let table = table();
    assert!(table.len() >= 25, "{} rows", table.len());
    for (row, expected) in &table {
        assert_eq!(row.shown(), *expected, "{}", row.what);
    }
}

#[test]
fn every_plan_has_the_reason_for_its_choice() {
    let reasons: Vec<String> = [
        row("", vec![slot("M", "1", CD), slot("M", "2", CD)]),
        row("", vec![slot("M", "1", CD), slot("M", "2", USB)]),
        row("", vec![slot("M", "1", CD)]),
        row("", vec![slot("M", "1", CD), closed("M", "2", CD)]),
        Row {
            learned: LearnedSlots { one_image: true, ..LearnedSlots::default() },
            ..row("", vec![slot("M", "1", CD), slot("M", "2", CD)])
        },
    ]
    .iter()
    .map(|row| row.plan().unwrap().best().reason.clone())
    .collect();
    assert_eq!(
        reasons,
        [
            "2 CD slots take media",
            "one CD slot and a USB slot take media",
            "there is one slot",
            "only one slot can be used: 2 offers no way to insert an image",
            "this BMC held one image at a time in an earlier job",
        ]
    );
}

fn no(slot: &Slot, one_image: bool) -> SlotRefusal {
    SlotRefusal {
        slot: slot.uri.clone(),
        slot_id: slot.id.clone(),
        words: "no".to_owned(),
        one_image,
        lasting: true,
        may_appear: false,
        busy: false,
    }
}

fn refuse(choice: &SlotChoice, refusal: SlotRefusal) -> RefusedPlan {
    RefusedPlan { choice: choice.clone(), refusal }
}

#[test]
fn refusals_lead_from_dual_to_cd_and_usb_to_single_to_no_plan() {
    let row = row("", vec![slot("M", "CD1", CD), slot("M", "CD2", CD), slot("M", "USB", USB)]);
    let plans = row.plan().unwrap();
    let mut refused = Vec::new();
    let mut tried = Vec::new();
    let mut current = plans.best().clone();
    for slot in [1, 2, 0] {
        refused.push(refuse(&current, no(&row.slots[slot], false)));
        let next = plans.after(&refused);
        tried.push(next.map(|choice| (choice.plan, choice.ids.join("+"))));
        current = next.cloned().unwrap_or(current);
    }
    assert_eq!(
        tried,
        [Some((SlotPlan::CdUsb, "CD1+USB".to_owned())), Some((SlotPlan::Single, "CD1".to_owned())), None,]
    );
}

#[test]
fn a_bmc_that_holds_one_image_at_a_time_gets_the_single_plan_next() {
    let row = row("", vec![slot("M", "CD1", CD), slot("M", "CD2", CD), slot("M", "USB", USB)]);
    let plans = row.plan().unwrap();
    let next = plans.after(&[refuse(plans.best(), no(&row.slots[1], true))]).unwrap();
    assert_eq!((next.plan, next.ids.join("+")), (SlotPlan::Single, "CD1".to_owned()));
}

#[test]
fn a_plan_that_was_refused_is_never_selected_again() {
    // The only slot says that it holds one image at a time.
    let row = row("", vec![slot("M", "CD1", CD)]);
    let plans = row.plan().unwrap();
    let single = plans.best();
    for one_image in [false, true] {
        assert_eq!(plans.after(&[refuse(single, no(&row.slots[0], one_image))]), None, "{one_image}");
    }
}

#[test]
fn only_a_lasting_refusal_is_learned() {
    let mut learned = LearnedSlots::default();
    let cd = slot("M", "CD2", CD);
    learned.note(&SlotRefusal { lasting: false, ..no(&cd, false) });
    assert!(learned.is_empty(), "a busy BMC or the network can explain it");
    learned.note(&no(&cd, false));
    assert!(learned.refused.contains_key("CD2"));
}

#[test]
fn learned_refusals_are_valid_for_one_firmware_and_one_record_revision() {
    let mut learned = LearnedSlots::stored(None, Some(&"1.0".into()), 3);
    assert!(learned.is_empty());
    learned.note(&no(&slot("M", "CD2", CD), false));
    let observed = serde_json::json!({ "learned": learned });
    assert_eq!(LearnedSlots::stored(Some(&observed), Some(&"1.0".into()), 3), learned);
    assert!(LearnedSlots::stored(Some(&observed), Some(&"1.1".into()), 3).is_empty(), "another firmware");
    assert!(
        LearnedSlots::stored(Some(&observed), Some(&"1.0".into()), 4).is_empty(),
        "an operator changed the record"
    );
    assert!(LearnedSlots::stored(Some(&serde_json::json!({ "learned": 7 })), None, 1).is_empty(), "garbage");
}

#[test]
fn ids_are_ordered_with_numbers_by_value() {
    let mut ids = ["CD10", "CD2", "CD", "CD02b", "b", "9", "10", "é2", "é10"];
    ids.sort_by(|a, b| natural(a, b));
    assert_eq!(ids, ["9", "10", "CD", "CD2", "CD02b", "CD10", "b", "é2", "é10"]);
}

fn any_slot() -> impl Strategy<Value = Slot> {
    let types = prop::sample::select(vec![CD, USB, ANY, &[][..]]);
    ("[A-Z]{0,3}[0-9]{0,2}", types, any::<bool>(), prop::sample::select(vec!["M", "S"])).prop_map(
        |(id, types, open, tree)| if open { slot(tree, &id, types) } else { closed(tree, &id, types) },
    )
}

proptest! {
    #[test]
    fn any_bmc_gets_bounded_plans_that_keep_the_rules(
        mut slots in prop::collection::vec(any_slot(), 0..40),
        answers in prop::collection::vec((any::<bool>(), any::<bool>()), PLANS_MAX),
    ) {
        slots.sort_by(|a, b| a.uri.cmp(&b.uri));
        slots.dedup_by(|a, b| a.uri == b.uri);
        let row = row("", slots);
        if let Ok(plans) = row.plan() {
            prop_assert!(!plans.all().is_empty() && plans.all().len() <= PLANS_MAX);
            for choice in plans.all() {
                let of = |uri: &String| row.slots.iter().find(|slot| slot.uri == *uri).unwrap();
                let boot = of(&choice.boot);
                prop_assert!(boot.is_cd() && boot.takes_media());
                prop_assert_eq!(choice.second.is_none(), choice.plan == SlotPlan::Single);
                if let Some(second) = choice.second.as_ref().map(of) {
                    prop_assert!(second.takes_media() && second.uri != boot.uri);
                    prop_assert_eq!(second.is_cd(), choice.plan == SlotPlan::Dual);
                    prop_assert!(!second.is_cd() || natural(&boot.id, &second.id) != Ordering::Greater);
                }
            }
            // Whichever slot refuses, as occupied or not: every plan is selected at most once, and the way ends.
            let mut refused: Vec<RefusedPlan> = Vec::new();
            while let Some(next) = plans.after(&refused) {
                prop_assert!(refused.iter().all(|plan| plan.choice != *next), "{} again", next.label());
                let (of_boot, one_image) = answers[refused.len()];
                let slot = if of_boot { &next.boot } else { next.second.as_ref().unwrap_or(&next.boot) };
                refused.push(refuse(next, no(of_uri(&row.slots, slot), one_image)));
                prop_assert!(refused.len() <= plans.all().len());
            }
        }
    }
}

fn of_uri<'a>(slots: &'a [Slot], uri: &str) -> &'a Slot {
    slots.iter().find(|slot| slot.uri == uri).unwrap()
}
