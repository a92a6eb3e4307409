#![no_main]

#[path = "../device/mod.rs"]
mod device;

libfuzzer_sys::fuzz_target!(|data: &[u8]| device::speakers::run(data));
