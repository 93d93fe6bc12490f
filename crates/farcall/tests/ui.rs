//! Tests the messages of `#[farcall::interface]` about items that cannot be an interface. Only the macro's
//! own words are compared, so that another version of the compiler does not break the test.
//! `TRYBUILD=overwrite` writes the expected messages again.

#[test]
fn refusals() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
