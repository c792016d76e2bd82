//! What may, and what must not, be placed in a region.

#[test]
fn only_what_means_the_same_everywhere_can_be_placed_in_a_region() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/plain_data_can.rs");
    cases.pass("tests/ui/containers_can.rs");
    cases.pass("tests/ui/under_forbidden_unsafe_code_can.rs");
    cases.compile_fail("tests/ui/not_*.rs");
}
