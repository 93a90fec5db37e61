//! A complete BMC is discovered. `cargo fuzz run redfish_walk`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| redfish::fuzz::walk(data));
