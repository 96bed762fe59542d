//! The messages by which two ends of a TCP connection agree on a queue pair, in the native API's form.
use adverb::foreign::message_again;

/// A message; what is understood is written the same way again.
pub fn run(data: &[u8]) {
    if let Some(written) = message_again(data) {
        assert!(written.len() <= data.len());
        assert_eq!(message_again(&written).as_ref(), Some(&written));
    }
}
