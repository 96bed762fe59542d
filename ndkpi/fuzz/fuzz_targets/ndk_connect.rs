#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| adverb_ndk_fuzz::run(data));
