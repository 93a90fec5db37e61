//! What the API refuses, and how it says so.

mod access;
mod idempotency;
mod recipes;
mod requests;
mod servers;
