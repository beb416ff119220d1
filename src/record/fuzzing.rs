//! What feeds show of arguments, for the fuzzers.

use serde_json::Value;

use super::arguments::{Arguments, Told};
use crate::protocol::Raw;
use crate::redact::Scrubber;

/// Returns what feeds show of a value: its shape, and the value masked. `secret` is a known secret.
pub(crate) fn told(value: &Value, secret: &str) -> Vec<String> {
    let mut knows = Scrubber::default();
    knows.know(secret);
    let mut told = Told::Whole(Raw::from_value(value));
    told.read(&knows);
    [Arguments::Shape, Arguments::Masked]
        .into_iter()
        .filter_map(|how| told.told(how))
        .map(|told| told.get().to_owned())
        .collect()
}
