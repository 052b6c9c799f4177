//! Model server.
fn main() {}
