//! The callers of the controller: their credentials, their roles, and the actions that the audit log records.
//!
//! ```text
//!   connection ── tls ──> client certificate ─┐
//!   request ── header, session cookie ────────┴─> auth ──> identity and role ──> a route permits or refuses
//!                                                   ▲                                      │
//!                               accounts (users, tokens of users and workers)            audit
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `auth` | credentials, roles, limits of tokens, failed attempts, web sessions, JSON web tokens |
//! | `accounts` | how users and tokens are created, changed and withdrawn |
//! | `tls` | certificates and handshakes of the listeners |
//! | `origin` | whether another site caused the request of a browser |
//! | `audit` | the actions of the audit log, and sums of refused requests |
//!
//! Invariants: access is denied by default; a secret is compared in constant time and is stored as a hash only; no secret is in a
//! log line, an event or an error. See docs/decisions/0018-no-secret-in-any-output.md and docs/hardening.md.

pub mod accounts;
pub mod audit;
pub mod auth;
pub mod origin;
pub mod tls;
