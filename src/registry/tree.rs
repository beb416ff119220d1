//! A definition read into a flat list of its values, in the order of the text: for walks that need keys, parents, and raw
//! values side by side.
//!
//! Nothing here recurses, so a text of any depth is safe. **Invariant:** a tree borrows from the text and decodes nothing
//! until it is asked.

use std::borrow::Cow;

/// No parent, or no key.
const NONE: u32 = u32::MAX;

/// One value. Those inside of it follow, up to `next`.
#[derive(Clone, Copy, Debug)]
struct Node {
    start: u32,
    end: u32,
    /// The range of its key, with the quotes; `NONE` outside of an object.
    key: u32,
    key_end: u32,
    /// The value after it and all that is inside of it.
    next: u32,
    parent: u32,
}

/// A JSON text, and where its values are.
#[derive(Debug)]
pub(super) struct Tree<'a> {
    text: &'a str,
    nodes: Vec<Node>,
}

/// One value of a [`Tree`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Item<'a> {
    tree: &'a Tree<'a>,
    at: u32,
}

impl<'a> Tree<'a> {
    /// Reads a text; `None` if it is no JSON. Words and numbers are not checked.
    pub(super) fn read(text: &'a str) -> Option<Self> {
        if text.len() >= NONE as usize {
            return None;
        }
        let mut reader = Reader { bytes: text.as_bytes(), at: 0 };
        let mut nodes: Vec<Node> = Vec::with_capacity(text.len() / 16);
        let (mut parent, mut key) = (NONE, (NONE, NONE));
        loop {
            reader.space();
            let (own, start) = (nodes.len() as u32, reader.at as u32);
            nodes.push(Node { start, end: start, key: key.0, key_end: key.1, next: own + 1, parent });
            let kind = reader.peek()?;
            match kind {
                b'{' | b'[' => {
                    reader.at += 1;
                    reader.space();
                    if reader.peek()? == closing(kind) {
                        reader.at += 1;
                    } else {
                        parent = own;
                        key = reader.key_in(kind)?;
                        continue;
                    }
                }
                b'"' => reader.string()?,
                _ => reader.word()?,
            }
            nodes[own as usize].end = reader.at as u32;
            // A value has ended, and the values around it may end, too.
            loop {
                reader.space();
                if parent == NONE {
                    return (reader.at == text.len()).then_some(Self { text, nodes });
                }
                let kind = text.as_bytes()[nodes[parent as usize].start as usize];
                match reader.peek()? {
                    b',' => {
                        reader.at += 1;
                        key = reader.key_in(kind)?;
                        break;
                    }
                    end if end == closing(kind) => {
                        reader.at += 1;
                        let count = nodes.len() as u32;
                        let around = &mut nodes[parent as usize];
                        (around.end, around.next, parent) = (reader.at as u32, count, around.parent);
                    }
                    _ => return None,
                }
            }
        }
    }

    /// The number of values.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The whole value.
    pub(super) fn root(&self) -> Item<'_> {
        self.item(0)
    }

    /// All values: each object and array comes before what is inside of it.
    pub(super) fn items(&self) -> impl Iterator<Item = Item<'_>> {
        (0..self.nodes.len()).map(|at| self.item(at))
    }

    /// The value with that index.
    pub(super) fn item(&self, at: usize) -> Item<'_> {
        Item { tree: self, at: at as u32 }
    }
}

impl<'a> Item<'a> {
    fn node(self) -> &'a Node {
        &self.tree.nodes[self.at as usize]
    }

    /// Its index in the tree.
    pub(super) fn at(self) -> usize {
        self.at as usize
    }

    /// Its JSON text.
    pub(super) fn raw(self) -> &'a str {
        let node = self.node();
        &self.tree.text[node.start as usize..node.end as usize]
    }

    fn first(self) -> u8 {
        self.raw().as_bytes().first().copied().unwrap_or_default()
    }

    pub(super) fn is_object(self) -> bool {
        self.first() == b'{'
    }

    pub(super) fn is_array(self) -> bool {
        self.first() == b'['
    }

    pub(super) fn is_text(self) -> bool {
        self.first() == b'"'
    }

    /// The text of a string.
    pub(super) fn text(self) -> Option<Cow<'a, str>> {
        self.is_text().then(|| decoded(self.raw()))
    }

    /// The name of a member as it is written, with its quotes.
    pub(super) fn raw_key(self) -> Option<&'a str> {
        let node = self.node();
        (node.key != NONE).then(|| &self.tree.text[node.key as usize..node.key_end as usize])
    }

    /// The name of a member.
    pub(super) fn key(self) -> Option<Cow<'a, str>> {
        self.raw_key().map(decoded)
    }

    /// The object or array that holds it.
    pub(super) fn parent(self) -> Option<Self> {
        let parent = self.node().parent;
        (parent != NONE).then_some(Self { at: parent, ..self })
    }

    /// The number of values in it, itself included. Their indexes follow its own.
    pub(super) fn count(self) -> usize {
        (self.node().next - self.at) as usize
    }

    /// Another value of the same tree.
    pub(super) fn beside(self, at: usize) -> Self {
        Self { at: at as u32, ..self }
    }

    /// The members of an object or the items of an array, in order.
    pub(super) fn children(self) -> impl Iterator<Item = Self> {
        let (mut at, end) = (self.at + 1, self.node().next);
        std::iter::from_fn(move || {
            let child = (at < end).then_some(Self { tree: self.tree, at })?;
            at = child.node().next;
            Some(child)
        })
    }

    /// The first member with that name.
    pub(super) fn member(self, name: &str) -> Option<Self> {
        if !self.is_object() {
            return None;
        }
        self.children().find(|child| child.key().is_some_and(|key| key == name))
    }

    /// The JSON pointer that leads to it.
    pub(super) fn path(self) -> String {
        let mut tokens = Vec::new();
        let mut item = self;
        while let Some(parent) = item.parent() {
            tokens.push(match item.key() {
                Some(key) => key.into_owned(),
                None => parent.children().take_while(|child| child.at < item.at).count().to_string(),
            });
            item = parent;
        }
        tokens.iter().rev().fold(String::new(), |path, token| joined(&path, token))
    }
}

/// Adds a token to a JSON pointer.
pub(super) fn joined(path: &str, token: &str) -> String {
    format!("{path}/{}", token.replace('~', "~0").replace('/', "~1"))
}

fn closing(kind: u8) -> u8 {
    if kind == b'{' { b'}' } else { b']' }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    /// Reads the name of the next member, if it is in an object.
    fn key_in(&mut self, kind: u8) -> Option<(u32, u32)> {
        if kind != b'{' {
            return Some((NONE, NONE));
        }
        self.space();
        let start = self.at as u32;
        self.string()?;
        let end = self.at as u32;
        self.space();
        (self.peek()? == b':').then(|| self.at += 1)?;
        Some((start, end))
    }

    fn string(&mut self) -> Option<()> {
        (self.peek()? == b'"').then(|| self.at += 1)?;
        loop {
            let found = self.at + memchr::memchr2(b'"', b'\\', &self.bytes[self.at..])?;
            if self.bytes[found] == b'"' {
                self.at = found + 1;
                return Some(());
            }
            // What is escaped is a whole character, so that the text can be cut after it.
            self.at = found + 1;
            (self.peek()? < 0x80).then(|| self.at += 1)?;
        }
    }

    fn word(&mut self) -> Option<()> {
        let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        let length = self.bytes[self.at..].iter().take_while(is_part).count();
        self.at += length;
        (length > 0).then_some(())
    }
}

/// Decodes a string with its quotes. Half of a surrogate pair becomes U+FFFD.
fn decoded(raw: &str) -> Cow<'_, str> {
    let inner = inside(raw);
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Cow::Borrowed(inner);
    }
    Cow::Owned(characters(inner).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect())
}

/// Returns what is between the quotes.
pub(super) fn inside(raw: &str) -> &str {
    raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default()
}

/// Decodes the inside of a string: characters, and halves of surrogate pairs that stand alone.
pub(super) fn characters(inner: &str) -> impl Iterator<Item = Result<char, u16>> {
    let mut rest = inner;
    std::iter::from_fn(move || {
        let (unit, length) = first_of(rest)?;
        rest = &rest[length..];
        Some(unit)
    })
}

/// Decodes the first character of the inside of a string. Returns it with its length in the text.
pub(super) fn first_of(rest: &str) -> Option<(Result<char, u16>, usize)> {
    let first = rest.chars().next()?;
    if first != '\\' {
        return Some((Ok(first), first.len_utf8()));
    }
    let plain = match rest.as_bytes().get(1) {
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(same @ (b'"' | b'\\' | b'/')) => char::from(*same),
        Some(b'u') => return Some(unicode(rest)),
        // No JSON, so it stands for itself.
        _ => return Some((Ok('\\'), 1)),
    };
    Some((Ok(plain), 2))
}

fn unicode(rest: &str) -> (Result<char, u16>, usize) {
    let Some(unit) = hex(rest) else { return (Ok('\\'), 1) };
    if let 0xd800..=0xdbff = unit
        && let Some(low @ 0xdc00..=0xdfff) = rest.get(6..).and_then(hex)
    {
        let code = 0x1_0000 + ((u32::from(unit) - 0xd800) << 10) + (u32::from(low) - 0xdc00);
        return (char::from_u32(code).ok_or(unit), 12);
    }
    (char::from_u32(unit.into()).ok_or(unit), 6)
}

/// Returns the value of `\uXXXX`.
fn hex(escape: &str) -> Option<u16> {
    let digits = escape.strip_prefix("\\u")?.as_bytes().get(..4)?;
    digits.iter().try_fold(0, |value, digit| Some(value * 16 + char::from(*digit).to_digit(16)? as u16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_found_with_its_key_and_path() {
        let text = r#" {"a":[1,{"b~/c":"\u0041\n"},[]],"" : {} , "x":true} "#;
        let tree = Tree::read(text).unwrap();
        let found: Vec<_> = tree.items().map(|item| (item.path(), item.raw())).collect();
        let expected = [
            ("", text.trim()),
            ("/a", r#"[1,{"b~/c":"\u0041\n"},[]]"#),
            ("/a/0", "1"),
            ("/a/1", r#"{"b~/c":"\u0041\n"}"#),
            ("/a/1/b~0~1c", r#""\u0041\n""#),
            ("/a/2", "[]"),
            ("/", "{}"),
            ("/x", "true"),
        ];
        assert_eq!(found, expected.map(|(path, raw)| (path.to_owned(), raw)));
        assert_eq!(tree.item(4).text().unwrap(), "A\n");
        assert_eq!(tree.root().member("x").unwrap().raw(), "true");
    }

    #[test]
    fn what_is_no_json_is_refused() {
        let bad = [
            "",
            " ",
            "{",
            "[",
            "[1",
            "[1,",
            r#"{"a"}"#,
            r#"{"a":}"#,
            "{1:2}",
            "[1}",
            r#"{"a":1]"#,
            "1 2",
            "\"",
            "\"\\",
            ":",
        ];
        for text in bad {
            assert!(Tree::read(text).is_none(), "{text}");
        }
    }

    #[test]
    fn any_depth_is_safe() {
        let text = "[".repeat(200_000) + &"]".repeat(200_000);
        assert_eq!(Tree::read(&text).unwrap().len(), 200_000);
        assert!(Tree::read(&text[..300_000]).is_none());
    }

    #[test]
    fn surrogates_pair_up_or_stand_alone() {
        let found: Vec<_> = characters(r"\ud83d\ude00\ud83dx\ude00\u00e9\q").collect();
        assert_eq!(found, [Ok('😀'), Err(0xd83d), Ok('x'), Err(0xde00), Ok('é'), Ok('\\'), Ok('q')]);
    }
}
