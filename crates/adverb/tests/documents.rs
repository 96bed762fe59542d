//! The README's example is a test of this crate, word for word.

#[test]
fn the_readme_shows_a_test_that_runs() {
    let readme = include_str!("../../../README.md");
    let code = include_str!("newcomer.rs");
    assert!(readme.contains(&format!("```rust\n{code}```")), "README.md and tests/newcomer.rs differ");
}
