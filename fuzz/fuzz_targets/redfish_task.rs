//! A Redfish task resource is parsed. `cargo fuzz run redfish_task`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| redfish::fuzz::task_body(data));
