//! What `#[farcall::interface]` says to what cannot be an interface. Only its own words are compared, so that
//! no other version of the compiler breaks the test. `TRYBUILD=overwrite` writes them anew.

#[test]
fn refusals() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
