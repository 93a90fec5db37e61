//! Errors of the API.

mod access;
mod idempotency;
mod openapi;
mod passwords;
mod recipes;
mod requests;
mod servers;
