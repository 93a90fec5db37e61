//! The client against a scripted BMC, through its public interface, under virtual time.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod boot;
mod boot_ways;
mod discovery;
mod fake;
mod flags;
mod media;
mod never_twice;
mod oem;
mod power;
mod profiles;
mod reads;
mod session;
mod settings;
mod tasks;
mod update_flags;
mod updates;
