//! The target over the committed corpus and over random inputs: random bytes, and slightly spoiled
//! corpus files.
use proptest::prelude::*;
use proptest::sample::Index;
use std::path::Path;

fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/ndk_connect");
    let files = std::fs::read_dir(folder).expect("a corpus").map(|file| file.unwrap().path());
    files.map(|file| std::fs::read(file).expect("readable")).collect()
}

#[test]
fn committed() {
    let corpus = corpus();
    assert!(corpus.len() > 3, "{} files in the corpus", corpus.len());
    corpus.iter().for_each(|bytes| adverb_ndk_fuzz::run(bytes));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(10_000) })]

    #[test]
    fn random(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        adverb_ndk_fuzz::run(&bytes);
    }

    #[test]
    fn spoiled(
        mut bytes in proptest::sample::select(corpus()),
        changes in proptest::collection::vec((any::<Index>(), any::<u8>()), 1..5),
        length in any::<Index>(),
    ) {
        for (at, by) in changes {
            let at = at.index(bytes.len());
            bytes[at] ^= by;
        }
        adverb_ndk_fuzz::run(&bytes);
        adverb_ndk_fuzz::run(&bytes[..length.index(bytes.len())]);
    }
}
