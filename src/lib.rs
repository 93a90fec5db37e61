//! Shoal.
pub mod api;
pub mod app;
pub mod auth;
pub mod cli;
pub mod config;
pub mod engine;
pub mod media;
pub mod model;
pub mod provision;
pub mod secrets;
pub mod sim;
pub mod store;
pub mod telemetry;
