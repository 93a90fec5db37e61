//! Every network that a recipe can have is one that the agent carries out: the controller hands it over as the recipe wrote it.

use std::sync::LazyLock;

use proptest::prelude::*;
use recipe::RecipeSchemas;
use serde_json::{Map, Value, json};

use super::{Below, Record};

static SCHEMAS: LazyLock<RecipeSchemas> = LazyLock::new(RecipeSchemas::builtin);

/// Addresses of a link, some of which no schema accepts.
fn addressing() -> impl Strategy<Value = Map<String, Value>> {
    let address = prop::sample::select(vec![
        "192.0.2.10/24",
        "2001:db8::5/64",
        "0.0.0.0/0",
        "255.255.255.255/32",
        "::/128",
        "::ffff:192.0.2.1/128",
        "192.0.2.1/33",
        "fe80::1/64",
    ]);
    let to = prop::sample::select(vec![
        "default",
        "198.51.100.0/24",
        "198.51.100.7/24",
        "2001:db8:1::/48",
        "::/0",
        "0.0.0.0/0",
    ]);
    let via = prop::sample::select(vec!["192.0.2.1", "fe80::1", "2001:db8::1", "0.0.0.0"]);
    let route = (to, via, prop::option::of(any::<u32>())).prop_map(|(to, via, metric)| match metric {
        Some(metric) => json!({"to": to, "via": via, "metric": metric}),
        None => json!({"to": to, "via": via}),
    });
    let server = prop::sample::select(vec!["192.0.2.53", "2001:db8::53", "::1"]);
    let domain = "[A-Za-z0-9_]([A-Za-z0-9_.-]{0,70}[A-Za-z0-9_])?";
    (
        prop::option::of(any::<bool>()),
        prop::option::of(any::<bool>()),
        prop::collection::vec(address, 0..4),
        prop::collection::vec(route, 0..3),
        prop::collection::vec(server, 0..3),
        prop::collection::vec(domain, 0..3),
        prop::option::of(prop_oneof![570_u32..600, 65_530_u32..65_540]),
    )
        .prop_map(|(dhcp4, dhcp6, addresses, routes, servers, search, mtu)| {
            let mut link = Map::new();
            let mut put = |key: &str, value: Option<Value>| {
                link.extend(value.map(|value| (key.to_owned(), value)));
            };
            put("dhcp4", dhcp4.map(Value::from));
            put("dhcp6", dhcp6.map(Value::from));
            put("mtu", mtu.map(Value::from));
            put("addresses", (!addresses.is_empty()).then(|| json!(addresses)));
            put("routes", (!routes.is_empty()).then(|| json!(routes)));
            put("nameservers", Some(json!({"addresses": servers, "search": search})));
            link
        })
}

fn names() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(
        prop_oneof![Just("a".to_owned()), Just("b".to_owned()), "[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}"],
        1..4,
    )
}

fn network() -> impl Strategy<Value = Value> {
    let parameters = (
        prop::sample::select(vec!["active-backup", "802.3ad"]),
        prop::option::of(prop::sample::select(vec!["slow", "fast"])),
        prop::option::of(prop_oneof![5_u32..20, 9_990_u32..10_010]),
    );
    let bond = (any::<bool>(), parameters, addressing());
    let vlan = (0_u16..5000, any::<bool>(), addressing());
    (
        prop::collection::vec((any::<bool>(), addressing()), 1..4),
        names(),
        prop::collection::vec(bond, 0..2),
        prop::collection::vec(vlan, 0..3),
        any::<bool>(),
    )
        .prop_map(|(cards, names, bonds, vlans, has_version)| {
            let mut document = json!({"ethernets": {}});
            if has_version {
                document["version"] = json!(2);
            }
            for (index, (is_silent, link)) in cards.iter().enumerate() {
                let name = names.get(index).cloned().unwrap_or_else(|| format!("card{index}"));
                let mut card = if *is_silent { Map::new() } else { link.clone() };
                let mac = format!("52:54:00:Aa:00:0{index}");
                card.insert("match".to_owned(), json!({"macaddress": mac}));
                document["ethernets"][name] = Value::Object(card);
            }
            for (index, (has_parameters, (mode, rate, interval), link)) in bonds.into_iter().enumerate() {
                let mut bond = link;
                bond.insert("interfaces".to_owned(), json!(names));
                if has_parameters {
                    let mut parameters = json!({"mode": mode});
                    if let Some(rate) = rate {
                        parameters["lacp-rate"] = json!(rate);
                    }
                    if let Some(interval) = interval {
                        parameters["mii-monitor-interval"] = json!(interval);
                    }
                    bond.insert("parameters".to_owned(), parameters);
                }
                document["bonds"][format!("bond{index}")] = Value::Object(bond);
            }
            for (index, (id, on_bond, link)) in vlans.into_iter().enumerate() {
                let mut vlan = link;
                vlan.insert("id".to_owned(), json!(id));
                vlan.insert("link".to_owned(), json!(if on_bond { "bond0" } else { &names[0] }));
                document["vlans"][format!("vlan{index}")] = Value::Object(vlan);
            }
            document
        })
}

fn accepted(network: &Value) -> Option<recipe::Network> {
    let recipe = json!({
        "$schema": SCHEMAS.current_id(),
        "task_target": "inventory.target",
        "network": network,
    });
    SCHEMAS.validate(&recipe.to_string()).ok()?.network
}

/// Parses both forms: as the recipe has it, and as the controller writes it again.
fn compare(document: &Value, network: &recipe::Network) {
    let written = serde_json::to_value(network).unwrap();
    let record = Record::parse(&written).unwrap_or_else(|reason| panic!("{reason}: {written}"));
    assert_eq!(record.interfaces.len(), network.links());
    assert_eq!(Record::parse(document).as_ref(), Ok(&record), "{document}");
    let links = network.ethernets.iter().map(|(name, link)| (name, &link.addressing));
    let links = links.chain(network.bonds.iter().map(|(name, link)| (name, &link.addressing)));
    for (name, addressing) in links.chain(network.vlans.iter().map(|(name, link)| (name, &link.addressing))) {
        let interface = &record.interfaces[name];
        assert_eq!(
            (&interface.addresses, interface.dhcp, interface.mtu, interface.routes.len()),
            (&addressing.addresses, addressing.dhcp4, addressing.mtu, addressing.routes.len()),
            "{name}"
        );
    }
    for (name, bond) in &network.bonds {
        let Below::Bond(members, _) = &record.interfaces[name].below else { panic!("{name}") };
        assert_eq!(members.len(), bond.interfaces.len(), "{name}");
    }
}

#[test]
fn the_network_of_the_example_recipe_is_carried_out() {
    let example: Value =
        serde_json::from_str(include_str!("../../../../schemas/recipe-linux-v2.example.json")).unwrap();
    let network = accepted(&example["network"]).unwrap();
    compare(&example["network"], &network);
}

#[test]
fn a_bond_without_parameters_is_an_active_backup() {
    let document = json!({
        "ethernets": {"a": {"match": {"macaddress": "52:54:00:12:34:56"}}},
        "bonds": {"x": {"interfaces": ["a"], "dhcp4": true}},
    });
    compare(&document, &accepted(&document).unwrap());
}

#[test]
fn as_many_links_as_a_recipe_may_have_are_carried_out() {
    let card = |number: usize| {
        let mac = format!("52:54:00:00:00:{number:02x}");
        (format!("e{number}"), json!({"match": {"macaddress": mac}}))
    };
    let bond = |number: usize| (format!("b{number}"), json!({"interfaces": [format!("e{}", number + 1)]}));
    let vlan = |number: usize| (format!("v{number}"), json!({"link": "e0", "id": number + 1}));
    let network = json!({
        "ethernets": (0..64).map(card).collect::<Map<_, _>>(),
        "bonds": (0..16).map(bond).collect::<Map<_, _>>(),
        "vlans": (0..64).map(vlan).collect::<Map<_, _>>(),
    });
    accepted(&network).expect("the schema permits them");
    Record::parse(&network).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn every_network_that_the_recipe_accepts_is_accepted_by_the_agent(document in network()) {
        if let Some(network) = accepted(&document) {
            compare(&document, &network);
        }
    }
}
