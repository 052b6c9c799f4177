//! The demo driver (placeholder until the operator runs).
fn main() {}
