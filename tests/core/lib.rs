//! The decision core and its tests, without the shell: a change is compiled and tested in seconds. For `cargo mutants`, which
//! makes a thousand changes; nothing else uses it.

#[path = "../../src/api/mod.rs"]
pub mod api;
#[path = "../../src/engine/mod.rs"]
pub mod engine;

// the tests of the timeline name the product's crate
#[cfg(test)]
extern crate self as modelrollout;

#[cfg(test)]
#[path = "../timeline/main.rs"]
mod timeline;
