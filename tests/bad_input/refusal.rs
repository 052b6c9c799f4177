//! What a refusal is, for all the tests that refuse.

/// One refusal: the field, and the sentence that goes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub field: String,
    pub message: String,
}
