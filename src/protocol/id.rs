//! Request ids and progress tokens: a string or an integer, with its JSON type kept (`92` is not `"92"`).

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::raw::quoted;

/// The id of a JSON-RPC request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestId {
    /// An integer id.
    Number(i64),
    /// A string id.
    Text(Box<str>),
}

/// A progress token. It has the shape of a request id, in a namespace of its own.
pub(crate) type ProgressToken = RequestId;

impl RequestId {
    /// Returns the id as JSON. `digits` is room for a number.
    pub(crate) fn text<'a>(&self, digits: &'a mut itoa::Buffer) -> Cow<'a, [u8]> {
        match self {
            Self::Number(number) => digits.format(*number).as_bytes().into(),
            Self::Text(text) => quoted(text).into(),
        }
    }

    /// Parses an id from its JSON text, if it is one.
    pub(crate) fn from_raw(text: &str) -> Option<Self> {
        match text.as_bytes().first()? {
            b'"' => serde_json::from_str(text).ok().map(Self::Text),
            b'-' | b'0'..=b'9' => text.parse().ok().map(Self::Number),
            _ => None,
        }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) => serializer.serialize_i64(*number),
            Self::Text(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<serde_json::value::RawValue>::deserialize(deserializer)?;
        Self::from_raw(raw.get()).ok_or_else(|| de::Error::custom("an id is a string or an integer"))
    }
}
