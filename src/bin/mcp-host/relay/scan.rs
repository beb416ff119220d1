//! Reads the envelope of a message while its bytes pass, and keeps only ids and methods.

use memchr::memchr2;

/// One message in a line. A batch has several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Item {
    /// The id as JSON.
    pub(super) id: Option<String>,
    pub(super) method: Option<String>,
}

impl Item {
    /// Reports whether the message is an answer.
    pub(super) fn is_answer(&self) -> bool {
        self.id.is_some() && self.method.is_none()
    }
}

/// The envelope of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Envelope {
    pub(super) items: Vec<Item>,
    pub(super) is_batch: bool,
    /// Whether the line is only white space, and no message.
    pub(super) is_blank: bool,
}

/// The member of a message that the next value belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Key,
    Id,
    Method,
    Other,
}

/// Reads a line in pieces.
#[derive(Debug)]
pub(super) struct Scan {
    depth: usize,
    /// The depth of the members of messages: 1, or 2 in a batch.
    base: usize,
    started: bool,
    in_text: bool,
    escaped: bool,
    slot: Slot,
    /// The key, id or method that is being read.
    kept: Vec<u8>,
    item: Item,
    /// Whether the message has a result or an error.
    has_outcome: bool,
    items: Vec<Item>,
}

/// How many bytes of an id or method to keep. Nothing waits for a longer one.
const LONGEST: usize = 1024;
/// How many messages of a batch to keep.
const MOST: usize = 4096;

impl Scan {
    pub(super) fn new() -> Self {
        Self {
            depth: 0,
            base: 1,
            started: false,
            in_text: false,
            escaped: false,
            slot: Slot::Other,
            kept: Vec::new(),
            item: Item::default(),
            has_outcome: false,
            items: Vec::new(),
        }
    }

    /// Returns the envelope of a whole line.
    pub(super) fn line(line: &[u8]) -> Envelope {
        let mut scan = Self::new();
        scan.feed(line);
        scan.finish()
    }

    pub(super) fn feed(&mut self, mut bytes: &[u8]) {
        while let Some((&byte, rest)) = bytes.split_first() {
            if self.in_text {
                bytes = self.text(bytes);
                continue;
            }
            bytes = rest;
            if byte.is_ascii_whitespace() {
                continue;
            }
            if !self.started {
                self.started = true;
                if byte == b'[' {
                    self.base = 2;
                }
            }
            self.token(byte);
        }
    }

    /// Reads inside a string, up to its end.
    fn text<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if self.escaped {
            self.escaped = false;
            self.keep(&bytes[..1]);
            return &bytes[1..];
        }
        let Some(at) = memchr2(b'"', b'\\', bytes) else {
            self.keep(bytes);
            return &[];
        };
        self.keep(&bytes[..=at]);
        if bytes[at] == b'\\' {
            self.escaped = true;
        } else {
            self.in_text = false;
        }
        &bytes[at + 1..]
    }

    fn token(&mut self, byte: u8) {
        match byte {
            b'"' => {
                self.in_text = true;
                self.keep(b"\"");
            }
            b'{' | b'[' => {
                self.depth += 1;
                if self.depth == self.base && byte == b'{' {
                    self.item = Item::default();
                    self.has_outcome = false;
                    self.next(Slot::Key);
                } else if self.depth == self.base + 1 {
                    // An id or method is never an object.
                    self.slot = Slot::Other;
                }
            }
            b'}' | b']' => {
                if self.depth == self.base && byte == b'}' {
                    self.member();
                    if self.items.len() < MOST {
                        self.items.push(std::mem::take(&mut self.item));
                    }
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b':' if self.depth == self.base => {
                self.has_outcome |= matches!(self.kept.as_slice(), br#""result""# | br#""error""#);
                let slot = match self.kept.as_slice() {
                    br#""id""# => Slot::Id,
                    br#""method""# => Slot::Method,
                    _ => Slot::Other,
                };
                self.next(slot);
            }
            b',' if self.depth == self.base => {
                self.member();
                self.next(Slot::Key);
            }
            byte => self.keep(&[byte]),
        }
    }

    fn next(&mut self, slot: Slot) {
        self.slot = slot;
        self.kept.clear();
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.depth == self.base && self.slot != Slot::Other && self.kept.len() <= LONGEST {
            let room = LONGEST + 1 - self.kept.len();
            self.kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }

    /// Ends a member of a message, and keeps its value if it is the id or method.
    fn member(&mut self) {
        match self.slot {
            Slot::Id => self.item.id = normal(&self.kept),
            Slot::Method => self.item.method = serde_json::from_slice(&self.kept).ok(),
            Slot::Key | Slot::Other => {}
        }
        self.slot = Slot::Other;
    }

    /// Returns the id of the question that an incomplete message answers, if its beginning says so.
    pub(super) fn answers(&self) -> Option<&str> {
        let is_answer = self.base == 1 && self.has_outcome && self.item.method.is_none();
        self.item.id.as_deref().filter(|_| is_answer)
    }

    pub(super) fn finish(self) -> Envelope {
        Envelope { items: self.items, is_batch: self.base == 2, is_blank: !self.started }
    }
}

/// Normalizes an id. Returns `None` for `null` and for anything else that is no id.
fn normal(id: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(id).ok()?;
    (value.is_string() || value.is_number()).then(|| value.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn item(id: Option<&str>, method: Option<&str>) -> Item {
        Item { id: id.map(str::to_owned), method: method.map(str::to_owned) }
    }

    #[test]
    fn envelopes_by_the_table() {
        for (line, items) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, vec![item(Some("1"), Some("ping"))]),
            (r#" { "method" : "a" , "id" : "x\"y" }"#, vec![item(Some(r#""x\"y""#), Some("a"))]),
            (r#"{"params":{"id":7,"method":"no"},"id":2,"method":"yes"}"#, vec![item(Some("2"), Some("yes"))]),
            (r#"{"result":{"a":"}{\"id\":3"},"id":4}"#, vec![item(Some("4"), None)]),
            (r#"{"id":null,"error":{}}"#, vec![item(None, None)]),
            (r#"{"id":{"a":1},"method":["x"]}"#, vec![item(None, None)]),
            (
                r#"[{"id":1,"method":"a"},{"method":"b","params":[1,{"id":9}]}]"#,
                vec![item(Some("1"), Some("a")), item(None, Some("b"))],
            ),
            ("nonsense", vec![]),
        ] {
            assert_eq!(Scan::line(line.as_bytes()).items, items, "{line}");
        }
        assert!(Scan::line(b" \t\r").is_blank);
        assert!(Scan::line(b"[]").is_batch);
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<i32>().prop_map(Value::from), ".{0,8}".prop_map(Value::from), Just(Value::Null)];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map("(id|method|[a-z\"\\\\{]{0,3})", inner, 0..4)
                    .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into()),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_message_cut_anywhere(id in any::<i32>(), method in ".{0,9}", params in value(), cut in any::<usize>()) {
            let line = json!({ "a": params, "id": id, "method": method, "z": params }).to_string();
            let (first, second) = line.as_bytes().split_at(cut % (line.len() + 1));
            let mut scan = Scan::new();
            scan.feed(first);
            scan.feed(second);
            prop_assert_eq!(scan.finish().items, vec![item(Some(&id.to_string()), Some(&method))]);
        }
    }
}
