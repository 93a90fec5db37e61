//! Tests of simulated BMCs from outside: over a socket with a plain HTTP client, or in process.

mod boots;
mod faults;
mod in_process;
mod kit;
mod media;
mod protocol;
mod sessions;
