//! The exported metrics, their description in docs/metrics.md, and their use in the dashboard and the alerts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use super::{Metrics, RegistryGauges};
use crate::HostGauges;
use crate::observability::{ALERTS, DASHBOARD};

/// Metrics of which each has a value, because one without a value is not exported.
fn touched() -> Metrics {
    let metrics = Metrics::default();
    metrics.set_jobs("queued", 3);
    metrics.job_ended("succeeded", Duration::from_secs(60));
    metrics.redfish_request("insert", Duration::from_millis(20));
    metrics.redfish_unanswered("insert");
    metrics.iso_built(Duration::from_millis(2), 1 << 20);
    metrics.reported(Duration::from_secs(30));
    metrics.http_request("/api/v1/jobs", 202);
    metrics.overloaded("share");
    metrics.set_dropped_log_lines(7);
    metrics.events_sent(1, 1, 1);
    metrics.set_nats_connected(true);
    metrics.nats_published(3);
    metrics.set_nats_waiting(2);
    metrics.registry_pushed("blob", 12);
    metrics.registry_deleted("tag");
    metrics.registry_denied("pull", "forbidden");
    metrics.set_registry(&RegistryGauges {
        quotas: vec![("os/**".to_owned(), 9, 4)],
        ..RegistryGauges::default()
    });
    metrics.set_host(&HostGauges { overdue_jobs: 2, held_jobs: 3, ..HostGauges::default() });
    metrics.set_queues_without_worker([("facility-a".to_owned(), 1), ("facility-b".to_owned(), 7)]);
    metrics.set_queues_without_worker([("facility-b".to_owned(), 9)]);
    metrics
}

#[test]
fn a_controller_without_a_registry_exports_no_free_space_of_one() {
    let free = |metrics: &Metrics| {
        let text = metrics.encode().unwrap();
        text.lines().any(|line| line.starts_with("registry_free_bytes") && line.ends_with(" 0"))
    };
    let metrics = Metrics::default();
    assert!(!free(&metrics), "0 bytes would be a full disk");
    metrics.set_registry(&RegistryGauges::default());
    assert!(free(&metrics));
}

#[derive(Default)]
struct Described {
    help: String,
    kind: String,
    unit: String,
    labels: BTreeSet<String>,
}

/// The exported metrics by name; the name of a counter without `_total`.
fn described(text: &str) -> BTreeMap<String, Described> {
    let mut all = BTreeMap::<String, Described>::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let (Some(what), Some(name), Some(value)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let entry = all.entry(name.to_owned()).or_default();
            let value = value.to_owned();
            match what {
                "HELP" => entry.help = value,
                "TYPE" => entry.kind = value,
                _ => entry.unit = value,
            }
        } else if let Some((name, rest)) = line.split_once('{') {
            let of =
                all.iter_mut().rev().find(|(known, _)| name.starts_with(known.as_str())).map(|(_, of)| of);
            let labels = rest.split('}').next().unwrap_or_default().split(',');
            let names = labels.filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
            of.unwrap().labels.extend(names.filter(|label| label != "le"));
        }
    }
    all
}

/// The names of time series, as queries use them.
fn series(name: &str, kind: &str) -> Vec<String> {
    match kind {
        "counter" => vec![format!("{name}_total")],
        "histogram" => ["bucket", "sum", "count"].map(|end| format!("{name}_{end}")).to_vec(),
        _ => vec![name.to_owned()],
    }
}

#[test]
fn the_documented_metric_names_are_scraped() {
    let text = touched().encode().unwrap();
    for line in [
        "job_total{status=\"queued\"} 3",
        "job_duration_seconds_count{outcome=\"succeeded\"} 1",
        "redfish_request_duration_seconds_count{op=\"insert\"} 1",
        "iso_build_duration_seconds_count 1",
        "iso_size_bytes_count 1",
        "webhook_latency_seconds_count 1",
        "http_requests_total{route=\"/api/v1/jobs\",code=\"202\"} 1",
        "http_overload_total{limit=\"share\"} 1",
        "redfish_unanswered_total{op=\"insert\"} 1",
        "job_overdue 2",
        "job_held 3",
        "log_lines_dropped_total 7",
        "registry_pushes_total{kind=\"blob\"} 1",
        "registry_deletes_total{kind=\"tag\"} 1",
        "registry_denials_total{action=\"pull\",reason=\"forbidden\"} 1",
        "registry_upload_bytes_total 12",
        "registry_quota_used_bytes{repositories=\"os/**\"} 4",
        "queue_without_worker_seconds{queue=\"facility-b\"} 9",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
    assert!(!text.contains("facility-a"), "a queue that has a worker again is not listed:\n{text}");
}

#[test]
fn docs_metrics_lists_exactly_what_is_exported() {
    let text = touched().encode().unwrap();
    let all = described(&text);
    let registered: usize =
        [include_str!("metrics.rs"), include_str!("host_metrics.rs"), include_str!("nats_metrics.rs")]
            .iter()
            .map(|code| {
                code.matches("registry.register(").count()
                    + code.matches("registry.register_with_unit(").count()
            })
            .sum();
    assert_eq!(all.len(), registered, "every registered metric needs a value in `touched`");
    let mut page = String::from(
        "# Metrics\n\n`/metrics` exports these metrics in the OpenMetrics text format, and no others. A test generates this \
         page. Times are in seconds, times of day in seconds since 1970, sizes in bytes. A histogram has the series \
         `_bucket`, `_sum` and `_count`.\n\n\
         `shoal dashboards export DIR` writes a Grafana dashboard, alert rules and a scrape configuration that use them: \
         [operating.md](operating.md#alerts-and-dashboards).\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n",
    );
    for (name, of) in &all {
        assert!(of.help.ends_with('.') && of.help.len() > 10, "{name}: {}", of.help);
        if !of.unit.is_empty() {
            assert!(name.ends_with(&format!("_{}", of.unit)), "{name} has the unit {}", of.unit);
        }
        let shown = match of.kind.as_str() {
            "counter" => format!("{name}_total"),
            _ => name.clone(),
        };
        let labels: Vec<String> = of.labels.iter().map(|label| format!("`{label}`")).collect();
        writeln!(
            page,
            "| `{shown}` | {} | {} | {} |",
            of.kind,
            labels.join(" "),
            of.help.trim_end_matches('.')
        )
        .unwrap();
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    assert_eq!(page, std::fs::read_to_string(path).unwrap(), "UPDATE_GOLDEN=1 rewrites {path}");
}

/// The words of a query that can be names of time series: not labels, functions, numbers or texts.
fn names(query: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    // Label lists, texts and ranges contain no names of series.
    let (mut rest, mut depth) = (String::new(), 0);
    for sign in query.chars() {
        match sign {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            sign if depth == 0 => rest.push(sign),
            _ => {}
        }
    }
    // The labels of `by (…)`.
    while let Some(at) = rest.find(" by (") {
        let end = rest[at..].find(')').map_or(rest.len(), |end| at + end + 1);
        rest.replace_range(at..end, " ");
    }
    let is_word = |sign: char| sign.is_ascii_alphanumeric() || sign == '_' || sign == ':' || sign == '$';
    let mut at = 0;
    while at < rest.len() {
        let length = rest[at..].find(|sign: char| !is_word(sign)).unwrap_or(rest.len() - at);
        let word = &rest[at..at + length];
        let is_function = rest[at + length..].trim_start().starts_with('(');
        let is_name = word.contains('_') || word == "up";
        if is_name && !is_function {
            found.insert(word.to_owned());
        }
        at += length.max(1);
    }
    found
}

/// The queries of the dashboard and of the alert rules, each with its place.
fn queries() -> Vec<(String, String)> {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut all = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            all.push((panel["title"].to_string(), target["expr"].as_str().unwrap().to_owned()));
        }
    }
    for rule in ALERTS.split("- alert: ").skip(1) {
        let name = rule.lines().next().unwrap().to_owned();
        let query = rule.lines().find_map(|line| line.trim().strip_prefix("expr: ")).unwrap();
        all.push((name, query.to_owned()));
    }
    all
}

#[test]
fn the_dashboard_and_the_alerts_use_exported_metrics_only() {
    let exported: BTreeSet<String> = described(&touched().encode().unwrap())
        .iter()
        .flat_map(|(name, of)| series(name, &of.kind))
        .chain(["up".to_owned()])
        .collect();
    let all = queries();
    assert!(all.len() > 20, "{} queries were found", all.len());
    for (place, query) in &all {
        let used = names(query);
        assert!(!used.is_empty(), "{place}: no metric was found in {query}");
        let unknown: Vec<&String> = used.difference(&exported).collect();
        assert!(unknown.is_empty(), "{place}: {unknown:?} of {query} are not exported");
    }
    assert_eq!(
        names("sum by (op) (rate(job_total_typo{job=~\"a_b\"}[5m])) / on_call > 1"),
        ["job_total_typo", "on_call"].map(str::to_owned).into(),
        "an unknown name is noticed"
    );
}

#[test]
fn every_alert_says_what_happened_and_what_to_do() {
    for rule in ALERTS.split("- alert: ").skip(1) {
        let name = rule.lines().next().unwrap();
        assert!(name.starts_with("Shoal"), "{name}");
        for part in ["for: ", "severity: ", "summary: ", "description: "] {
            assert!(rule.contains(part), "{name} has no {part}");
        }
    }
}
