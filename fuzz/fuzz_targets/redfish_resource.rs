//! Virtual media slots, boot overrides and links of a BMC are parsed. `cargo fuzz run redfish_resource`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| redfish::fuzz::resource(data));
