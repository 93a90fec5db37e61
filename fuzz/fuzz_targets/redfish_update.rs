//! The documents of a firmware update are parsed. `cargo fuzz run redfish_update`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| redfish::fuzz::update(data));
