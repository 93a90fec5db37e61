//! Files for Prometheus and Grafana that fit the exported metrics; `shoal dashboards export` writes them.

/// The dashboard, for Grafana.
pub const DASHBOARD: &str = include_str!("../observability/dashboard.json");
/// The alert rules, for Prometheus.
pub const ALERTS: &str = include_str!("../observability/alerts.yml");
/// A scrape configuration with the rules, for Prometheus.
pub const SCRAPE: &str = include_str!("../observability/prometheus.yml");
