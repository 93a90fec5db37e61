//! A recipe is validated once, when the job is accepted, and stored once.

use lab_bmc::Power;

use super::bench::Bench;
use super::*;

/// The text of every column of every table, except the one of `jobs` that holds the recipe.
fn other_columns(database: &rusqlite::Connection) -> Vec<(String, String)> {
    let columns =
        "SELECT m.name, c.name FROM sqlite_schema AS m, pragma_table_info(m.name) AS c WHERE m.type = 'table'
                   AND NOT (m.name = 'jobs' AND c.name = 'recipe_json')";
    let columns: Vec<(String, String)> = database
        .prepare(columns)
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let mut texts = Vec::new();
    for (table, column) in columns {
        let name = format!("{table}.{column}");
        let mut rows = database.prepare(&format!("SELECT CAST({column} AS TEXT) FROM {table}")).unwrap();
        let found = rows.query_map([], |row| row.get::<_, Option<String>>(0)).unwrap();
        texts.extend(found.filter_map(Result::unwrap).map(|text| (name.clone(), text)));
    }
    texts
}

#[tokio::test(flavor = "multi_thread")]
async fn the_recipe_of_a_job_is_stored_in_one_column_only() {
    const CANARY: &str = "canary-in-user-data";
    let bench = Bench::new(|_| ()).await;
    let engine = bench.plain_engine("one");
    let recipe: Value = serde_json::from_str(RECIPE).unwrap();
    let recipe = Value::Object(
        recipe
            .as_object()
            .unwrap()
            .iter()
            .filter(|(key, _)| *key != "user_data_encoding")
            .map(|(key, value)| (key.clone(), value.clone()))
            .chain([("user_data".to_owned(), json!(format!("#cloud-config\n# {CANARY}\n")))])
            .collect(),
    )
    .to_string();
    let id = bench.order_recipe(&engine, &recipe).await;
    engine.run_until_idle().await.unwrap();
    let snapshot = bench.snapshot(id).await;
    assert!(snapshot.records_of(names::ISO_BUILD).next().is_some(), "{:#?}", bench.events(id).await);
    assert_eq!(snapshot.recipe.unwrap().json, recipe, "byte for byte");

    let database = rusqlite::Connection::open(bench.database()).unwrap();
    let stored: String = database.query_row("SELECT recipe_json FROM jobs", [], |row| row.get(0)).unwrap();
    assert!(stored == recipe && recipe.contains(CANARY));
    let copies: Vec<String> = other_columns(&database)
        .into_iter()
        .filter(|(_, text)| text.contains(CANARY))
        .map(|(column, _)| column)
        .collect();
    assert!(copies.is_empty(), "{copies:?}");
}

/// A newer controller may have a schema that refuses the recipe. It continues the job all the same: the recipe was accepted.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_accepted_under_an_earlier_schema_is_installed_by_a_controller_with_a_stricter_one() {
    let bench = Bench::new(|_| ()).await;
    let old = bench.plain_engine("old");
    let id = bench.order(&old).await;
    drop(old);

    let builtin = RecipeSchemas::builtin();
    let accepted_by = builtin.validate(RECIPE).unwrap().schema_id;
    let earlier = builtin.text(&accepted_by).unwrap();
    let mut stricter: Value = serde_json::from_str(earlier).unwrap();
    stricter["$id"] = json!("https://shoal.dev/provisioner/recipe-next.schema.json");
    stricter["required"].as_array_mut().unwrap().push(json!("vendor_data"));
    let schemas = RecipeSchemas::from_text(&stricter.to_string()).unwrap().with_previous(earlier).unwrap();
    assert!(schemas.validate(RECIPE).is_err(), "a new job with this recipe is refused");

    let mut services = Arc::into_inner(bench.services()).unwrap();
    services.schemas = schemas;
    let provision = Provision::new(Arc::new(services));
    let new = bench.engine("new", &bench.clock, |_| Arc::new(provision));
    let run = bench.run_to_end(&new, id).await;
    assert_eq!(run.outcome, Some(Outcome::Succeeded), "{:#?}", bench.events(id).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_off_leaves_the_host_off_after_a_success() {
    for (after, power) in [("off", Power::Off), ("restart", Power::On)] {
        let bench = Bench::new(|_| ()).await;
        let engine = bench.plain_engine("one");
        let mut recipe: Value = serde_json::from_str(RECIPE).unwrap();
        recipe["after"] = json!(after);
        let order = json!({ "server_serial": "XF-1", "recipe": recipe.to_string() });
        let id = bench.order_value(&engine, order).await;
        let run = bench.run_to_end(&engine, id).await;
        assert_eq!(run.outcome, Some(Outcome::Succeeded), "{:#?}", bench.events(id).await);
        let sim_bmc = bench.sim_bmc.snapshot();
        assert_eq!(sim_bmc.power, power, "{after}: {:#?}", bench.events(id).await);
        assert!(sim_bmc.slots.iter().all(|slot| slot.image.is_none()));
    }
}
