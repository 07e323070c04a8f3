#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::pages::check(data));
