//! What feeds show of the arguments and the result of a call: their shape, or their values masked.
//!
//! **Invariant:** neither is kept unless a feed asks for it. While a call runs, only a reference to bytes is kept that
//! the call holds anyway; when it ends, two texts of at most [`MOST`] bytes replace it. No text is shown before the
//! server is known, because its secrets have to be removed.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::protocol::{Method, Raw};
use crate::redact::{MASK, Scrubber, looks_secret, names_a_secret};

/// How much a feed shows of the arguments and results of calls.
///
/// ```
/// # #[cfg(feature = "server")] {
/// let arguments: mcp_host::admin::Arguments = serde_json::from_str(r#""shape""#).unwrap();
/// assert_eq!(arguments, mcp_host::admin::Arguments::Shape);
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Arguments {
    /// Nothing.
    #[default]
    None,
    /// Names, types, and lengths.
    Shape,
    /// Values, without what is secret, and cut.
    Masked,
}

/// The most bytes that are shown of one value, as JSON.
const MOST: usize = 2048;
/// The most characters of one text.
const TEXT: usize = 120;
/// The most characters of one name.
const NAME: usize = 64;
/// Of a larger value only the size is shown: reading it would cost the call too much.
const LARGE: usize = 64 << 10;
/// How deep objects and lists are shown.
const DEPTH: usize = 5;
/// The name of what is left out.
const REST: &str = "…";

/// One value of a call, and what feeds show of it.
#[derive(Debug, Default)]
pub(super) enum Told {
    #[default]
    Nothing,
    /// Not read yet.
    Whole(Raw),
    Read {
        shape: Box<RawValue>,
        masked: Box<RawValue>,
    },
}

impl Told {
    /// Keeps the arguments of a request.
    pub(super) fn arguments(method: &Method, params: Option<&Raw>) -> Self {
        let name = match method {
            Method::ToolsCall | Method::PromptsGet => "arguments",
            Method::Complete => "argument",
            _ => return Self::Nothing,
        };
        params.and_then(|params| params.member(name)).map_or(Self::Nothing, Self::Whole)
    }

    /// Reads the value, unless that is done.
    pub(super) fn read(&mut self, scrubber: &Scrubber) {
        let Self::Whole(raw) = self else { return };
        let told = |is_masked: bool| walked(raw, Walk { left: MOST, is_masked, scrubber });
        *self = Self::Read { shape: told(false), masked: told(true) };
    }

    /// Returns how many bytes are shown of it, at most.
    pub(super) fn cost(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Whole(raw) => raw.as_bytes().len().min(MOST),
            Self::Read { shape, masked } => shape.get().len().max(masked.get().len()),
        }
    }

    /// Returns what feeds show of it; `None` if that is nothing.
    pub(super) fn told(&self, how: Arguments) -> Option<&RawValue> {
        match (self, how) {
            (Self::Read { shape, .. }, Arguments::Shape) => Some(shape),
            (Self::Read { masked, .. }, Arguments::Masked) => Some(masked),
            _ => None,
        }
    }
}

/// Returns a value masked, as a text of `most` bytes at most.
#[cfg(feature = "otel")]
pub(crate) fn masked(value: &Raw, scrubber: &Scrubber, most: usize) -> String {
    walked(value, Walk { left: most, is_masked: true, scrubber }).get().to_owned()
}

/// Returns what feeds show of a value.
fn walked(raw: &Raw, mut walk: Walk<'_>) -> Box<RawValue> {
    let value = match raw.as_bytes().len() {
        large if large > LARGE => Value::String(format!("{} KiB", large / 1024)),
        _ => serde_json::from_str::<Value>(raw.as_str()).map_or(Value::Null, |value| walk.of(&value, 0)),
    };
    serde_json::value::to_raw_value(&value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// One walk through a value, with the bytes that may still be shown.
struct Walk<'a> {
    left: usize,
    is_masked: bool,
    scrubber: &'a Scrubber,
}

impl Walk<'_> {
    fn of(&mut self, value: &Value, depth: usize) -> Value {
        match value {
            Value::Object(members) if depth < DEPTH => self.object(members, depth),
            Value::Array(items) if self.is_masked && depth < DEPTH => self.list(items, depth),
            Value::Object(members) => self.take(format!("object {}", members.len())),
            Value::Array(items) => self.take(format!("array {}", items.len())),
            Value::String(text) if self.is_masked => self.text(text),
            Value::String(text) => self.take(format!("string {}", text.chars().count())),
            Value::Null | Value::Bool(_) | Value::Number(_) if self.is_masked => {
                self.spend(value.to_string().len());
                value.clone()
            }
            Value::Null => self.take("null".to_owned()),
            Value::Bool(_) => self.take("boolean".to_owned()),
            Value::Number(_) => self.take("number".to_owned()),
        }
    }

    fn object(&mut self, members: &Map<String, Value>, depth: usize) -> Value {
        let mut told = Map::new();
        self.spend(2);
        for (at, (name, value)) in members.iter().enumerate() {
            if self.left < NAME {
                told.insert(REST.to_owned(), format!("{} more", members.len() - at).into());
                break;
            }
            let shown = self.name(name);
            self.spend(json_length(&shown) + 2);
            let value = match self.is_masked && names_a_secret(name) && !value.is_null() {
                true => self.take(MASK.to_owned()),
                false => self.of(value, depth + 1),
            };
            told.insert(shown, value);
        }
        Value::Object(told)
    }

    fn list(&mut self, items: &[Value], depth: usize) -> Value {
        let mut told = Vec::new();
        self.spend(2);
        for (at, item) in items.iter().enumerate() {
            if self.left < NAME {
                told.push(format!("{REST} {} more", items.len() - at).into());
                break;
            }
            told.push(self.of(item, depth + 1));
            self.spend(1);
        }
        Value::Array(told)
    }

    /// Returns a name, masked if it looks like a secret: some clients use secrets as names of members.
    fn name(&self, name: &str) -> String {
        let name = self.scrubber.scrub(name);
        if looks_secret(&name) { MASK.to_owned() } else { cut(&name, NAME) }
    }

    fn text(&mut self, text: &str) -> Value {
        // Secrets are removed before the text is cut, since half of a secret would not be recognized.
        let scrubbed = self.scrubber.scrub(text);
        let hidden = if looks_secret(&scrubbed) { MASK.to_owned() } else { cut(&scrubbed, TEXT) };
        let hidden = if json_length(&hidden) > self.left { cut(&hidden, self.left / 8) } else { hidden };
        self.take(hidden)
    }

    fn take(&mut self, text: String) -> Value {
        self.spend(json_length(&text));
        Value::String(text)
    }

    fn spend(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
    }
}

/// Returns how long a text is as JSON.
fn json_length(text: &str) -> usize {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 2,
        0..0x20 => 6,
        _ => 1,
    };
    2 + text.bytes().map(escaped).sum::<usize>()
}

/// Cuts a text that has more than so many characters.
fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}{REST}", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read(value: &Value, scrubber: &Scrubber) -> [Value; 2] {
        let mut told = Told::Whole(Raw::from_value(value));
        assert!(told.told(Arguments::Masked).is_none(), "it is not read before the server is known");
        told.read(scrubber);
        assert!(told.told(Arguments::None).is_none());
        [Arguments::Shape, Arguments::Masked].map(|how| serde_json::from_str(told.told(how).unwrap().get()).unwrap())
    }

    #[test]
    fn a_shape_has_names_types_and_lengths() {
        let value = json!({ "text": "häuser", "n": 7, "on": true, "none": null, "list": [1, 2], "deep": { "a": "b" } });
        let [shape, masked] = read(&value, &Scrubber::default());
        let expected = json!({
            "text": "string 6", "n": "number", "on": "boolean", "none": "null", "list": "array 2",
            "deep": { "a": "string 1" },
        });
        assert_eq!((shape, masked), (expected, value));
    }

    #[test]
    fn secrets_are_masked_by_name_by_shape_and_as_known() {
        let mut knows = Scrubber::default();
        knows.know("tr0ub4dor");
        let value = json!({
            "apiKey": { "inner": "hunter2" }, "password": "short", "token": null,
            "header": "Authorization: Bearer abcdef123456", "key-like": "x",
            "said": format!("{} tr0ub4dor", "x".repeat(115)), "ghp_16C7e42F292c6912E7710c838347Ae178B4a": 1,
        });
        let [shape, masked] = read(&value, &knows);
        let text = masked.to_string();
        for secret in ["hunter2", "short", "abcdef123456", "tr0ub", "ghp_"] {
            assert!(!text.contains(secret) && !shape.to_string().contains(secret), "{secret}: {text} {shape}");
        }
        assert_eq!((&masked["apiKey"], &masked["token"]), (&json!("***"), &Value::Null));
        assert_eq!(masked["said"], format!("{} ***", "x".repeat(115)));
    }

    #[test]
    fn what_is_long_is_cut_and_what_is_large_is_told_by_its_size() {
        let [_, masked] = read(&json!({ "text": "y ".repeat(500) }), &Scrubber::default());
        assert_eq!(masked["text"], "y ".repeat(60) + "…");
        let [shape, masked] = read(&json!("z".repeat(70_000)), &Scrubber::default());
        assert_eq!((shape, masked), (json!("68 KiB"), json!("68 KiB")));
        let [_, masked] = read(&json!((0..5000).collect::<Vec<_>>()), &Scrubber::default());
        let last = masked.as_array().unwrap().last().unwrap().as_str().unwrap().to_owned();
        assert!(last.starts_with("… ") && last.ends_with(" more"), "{last}");
    }

    #[test]
    fn only_requests_with_arguments_have_some() {
        let params = Raw::from_value(&json!({ "uri": "file:///a", "arguments": {}, "argument": {} }));
        let has = |method: &Method| !matches!(Told::arguments(method, Some(&params)), Told::Nothing);
        assert!(has(&Method::ToolsCall) && has(&Method::PromptsGet) && has(&Method::Complete));
        assert!(!has(&Method::ResourcesRead));
        assert!(matches!(Told::arguments(&Method::ToolsCall, None), Told::Nothing));
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,200}".prop_map(Value::from),
            "[\u{0}-\u{1f}\"\\\\]{0,200}".prop_map(Value::from),
        ];
        leaf.prop_recursive(8, 200, 20, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..20).prop_map(Value::from),
                prop::collection::vec(("\\PC{0,90}", inner), 0..20)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_told_is_never_long(value in any_value()) {
            for told in read(&value, &Scrubber::default()) {
                let length = told.to_string().len();
                prop_assert!(length <= MOST + 1024, "{length}");
            }
        }
    }
}
