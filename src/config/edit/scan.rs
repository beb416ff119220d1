//! Finds the items of values in brackets, in TOML and in YAML. The text was parsed before, so this scanner only has to
//! locate them; if it cannot, it returns `None`, and nothing is edited.

use super::flow::{Item, Span, skip};
use super::render::Language;

/// The deepest nesting that is followed.
const DEPTH: usize = 128;

/// Scans the value that begins at an offset.
pub(super) fn value(text: &str, at: usize, language: Language) -> Option<Span> {
    Scanner { text, language }.value(at, 0)
}

/// Returns the end of the quoted string that starts at an offset.
pub(super) fn string(text: &str, at: usize, language: Language) -> Option<usize> {
    let rest = &text[at..];
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    if language == Language::Toml {
        let triple = if quote == '"' { "\"\"\"" } else { "'''" };
        if let Some(body) = rest.strip_prefix(triple) {
            let end = closed(body, triple, quote == '"')?;
            // Up to two more quotes belong to the string.
            let more = body[end..].bytes().take_while(|byte| *byte == quote as u8).count().min(2);
            return Some(at + 3 + end + more);
        }
    }
    let body = &rest[1..];
    if language == Language::Yaml && quote == '\'' {
        // A doubled quote stands for one quote.
        let mut from = 0;
        loop {
            let end = from + body[from..].find('\'')?;
            if !body[end + 1..].starts_with('\'') {
                return Some(at + 1 + end + 1);
            }
            from = end + 2;
        }
    }
    closed(body, if quote == '"' { "\"" } else { "'" }, quote == '"').map(|end| at + 1 + end)
}

/// Returns the end of a string, including its closing quotes.
fn closed(body: &str, quotes: &str, has_escapes: bool) -> Option<usize> {
    let bytes = body.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if has_escapes => at += 2,
            _ if body.as_bytes()[at..].starts_with(quotes.as_bytes()) => return Some(at + quotes.len()),
            _ => at += 1,
        }
    }
    None
}

/// Returns the text of a key, quoted or bare.
pub(super) fn key_text(raw: &str, language: Language) -> Option<String> {
    match raw.chars().next()? {
        '"' if language == Language::Toml => toml_text(raw),
        '"' => serde_json::from_str(raw).ok().or_else(|| serde_yaml_ng::from_str(raw).ok()),
        '\'' if language == Language::Toml => Some(raw.get(1..raw.len() - 1)?.to_owned()),
        '\'' => Some(raw.get(1..raw.len() - 1)?.replace("''", "'")),
        _ => Some(raw.to_owned()),
    }
}

/// Reads a TOML string with the TOML parser, because it has escapes that JSON does not have.
fn toml_text(raw: &str) -> Option<String> {
    let line = format!("k = {raw}");
    let table = toml::de::DeTable::parse(&line).ok()?;
    table.get_ref().get("k")?.get_ref().as_str().map(str::to_owned)
}

struct Scanner<'a> {
    text: &'a str,
    language: Language,
}

impl Scanner<'_> {
    fn value(&self, at: usize, depth: usize) -> Option<Span> {
        let rest = self.text.get(at..)?;
        match rest.chars().next()? {
            _ if depth > DEPTH => None,
            open @ ('{' | '[') => self.items(at, open == '{', depth),
            '"' | '\'' => Some(Span { at: at..string(self.text, at, self.language)?, items: None }),
            '&' | '!' if self.language == Language::Yaml => {
                let word = rest.find(|c: char| c.is_whitespace() || matches!(c, ',' | ']' | '}'))?;
                self.value(skip(self.text, at + word, self.language), depth)
            }
            _ => {
                let end = self.plain(at)?;
                Some(Span { at: at..end, items: None })
            }
        }
    }

    /// Returns the end of an unquoted value.
    fn plain(&self, at: usize) -> Option<usize> {
        let rest = &self.text[at..];
        let bytes = rest.as_bytes();
        let ends = |index: usize| match (bytes[index], self.language) {
            (b',' | b']' | b'}', _) => true,
            (b'\n' | b'#', Language::Toml) => true,
            (b'#', _) => index > 0 && matches!(bytes[index - 1], b' ' | b'\t' | b'\n'),
            (b':', Language::Yaml) => {
                bytes.get(index + 1).is_none_or(|next| matches!(next, b' ' | b'\n' | b'\r' | b',' | b']' | b'}'))
            }
            _ => false,
        };
        let end = (0..bytes.len()).find(|index| ends(*index)).unwrap_or(bytes.len());
        let end = rest[..end].trim_end().len();
        (end > 0).then_some(at + end)
    }

    fn items(&self, open: usize, is_object: bool, depth: usize) -> Option<Span> {
        let mut items = Vec::new();
        let mut at = skip(self.text, open + 1, self.language);
        let close = if is_object { '}' } else { ']' };
        while !self.text[at..].starts_with(close) {
            let item = if is_object { self.member(at, depth)? } else { self.element(at, depth)? };
            at = skip(self.text, item.at.end, self.language);
            items.push(item);
            match self.text[at..].chars().next()? {
                ',' => at = skip(self.text, at + 1, self.language),
                c if c == close => {}
                _ => return None,
            }
        }
        Some(Span { at: open..at + 1, items: Some(items) })
    }

    fn element(&self, at: usize, depth: usize) -> Option<Item> {
        let value = self.value(at, depth + 1)?;
        Some(Item { at: at..value.at.end, key: None, value })
    }

    fn member(&self, at: usize, depth: usize) -> Option<Item> {
        let end = match self.text[at..].chars().next()? {
            '"' | '\'' => string(self.text, at, self.language)?,
            // Dotted keys of TOML are not edited.
            _ if self.language == Language::Toml => {
                let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
                at + self.text[at..].find(|c| !bare(c))?
            }
            '?' | '&' | '!' | '*' => return None,
            _ => self.plain(at)?,
        };
        let key = key_text(self.text.get(at..end)?, self.language)?;
        let sign = skip(self.text, end, self.language);
        let wanted = if self.language == Language::Toml { '=' } else { ':' };
        if !self.text[sign..].starts_with(wanted) {
            return None;
        }
        let value = self.value(skip(self.text, sign + 1, self.language), depth + 1)?;
        Some(Item { at: at..value.at.end, key: Some((key, at..end)), value })
    }
}
