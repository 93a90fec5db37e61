//! The documents of a hostile medium are parsed: job, recipe, index of modules. `cargo fuzz run agent_documents`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| agent::fuzz::documents(data));
