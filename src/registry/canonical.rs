//! The canonical form of a definition, which is the same however a server spells it: what pins hash and changes compare.
//!
//! It is the form of RFC 8785, with two rules for cases that the RFC leaves open. A number is written as the RFC says
//! only if that keeps its value; `9007199254740993` and `1e400`, which no double holds, stay as written. Members with
//! equal names all count and keep their order, because JSON parsers differ in which one they use.

use super::tree::{Item, Tree, characters, first_of, inside};

/// Returns the canonical form of a whole text without the values at which `left_out` is true.
pub(super) fn of_tree(tree: &Tree<'_>, left_out: &[bool]) -> Vec<u8> {
    let root = tree.root();
    let mut out = Vec::with_capacity(root.raw().len());
    write(root, left_out, &mut out);
    out
}

/// An object or array whose beginning is written.
struct Open<'a> {
    /// What is still to be written, the next one last.
    rest: Vec<Item<'a>>,
    end: u8,
    is_first: bool,
}

fn write<'a>(root: Item<'a>, left_out: &[bool], out: &mut Vec<u8>) {
    let mut open: Vec<Open<'a>> = Vec::new();
    let mut next = Some(root);
    loop {
        if let Some(item) = next.take() {
            match item.raw().as_bytes().first() {
                Some(b'{' | b'[') => open.push(begin(item, left_out, out)),
                Some(b'"') => string(item.raw(), out),
                _ => number(item.raw(), out),
            }
        }
        let Some(last) = open.last_mut() else { return };
        match last.rest.pop() {
            Some(item) => {
                if !std::mem::take(&mut last.is_first) {
                    out.push(b',');
                }
                if let Some(key) = item.raw_key() {
                    string(key, out);
                    out.push(b':');
                }
                next = Some(item);
            }
            None => {
                out.push(last.end);
                open.pop();
            }
        }
    }
}

fn begin<'a>(item: Item<'a>, left_out: &[bool], out: &mut Vec<u8>) -> Open<'a> {
    let is_kept = |child: &Item<'_>| !left_out.get(child.at()).is_some_and(|out| *out);
    let mut rest: Vec<_> = item.children().filter(is_kept).collect();
    let end = if item.is_object() {
        sort(&mut rest);
        b'}'
    } else {
        b']'
    };
    rest.reverse();
    out.push(if end == b'}' { b'{' } else { b'[' });
    Open { rest, end, is_first: true }
}

/// Sorts members by the UTF-16 code units of their names. Equal names keep their order.
fn sort(members: &mut [Item<'_>]) {
    fn name<'a>(member: &Item<'a>) -> &'a str {
        member.raw_key().map(inside).unwrap_or_default()
    }
    // Below U+E000, UTF-8 sorts as UTF-16 does.
    let is_plain = |member: &Item<'_>| name(member).bytes().all(|byte| byte != b'\\' && byte < 0xee);
    if members.iter().all(is_plain) {
        members.sort_by(|one, other| name(one).cmp(name(other)));
    } else {
        members.sort_by_cached_key(|member| units(name(member)));
    }
}

fn units(inner: &str) -> Vec<u16> {
    let mut units = Vec::with_capacity(inner.len());
    for unit in characters(inner) {
        match unit {
            Ok(character) => units.extend_from_slice(character.encode_utf16(&mut [0; 2])),
            Err(half) => units.push(half),
        }
    }
    units
}

/// Writes a string with only those escapes that JSON demands.
fn string(raw: &str, out: &mut Vec<u8>) {
    let mut rest = inside(raw);
    out.push(b'"');
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        let Some((unit, length)) = first_of(&rest[at..]) else { break };
        match unit {
            Ok(character) => escaped(character, out),
            Err(half) => out.extend_from_slice(format!("\\u{half:04x}").as_bytes()),
        }
        rest = &rest[at + length..];
    }
    out.extend_from_slice(rest.as_bytes());
    out.push(b'"');
}

fn escaped(character: char, out: &mut Vec<u8>) {
    let short = match character {
        '"' => b'"',
        '\\' => b'\\',
        '\u{8}' => b'b',
        '\u{c}' => b'f',
        '\n' => b'n',
        '\r' => b'r',
        '\t' => b't',
        '\0'..'\u{20}' => return out.extend_from_slice(format!("\\u{:04x}", u32::from(character)).as_bytes()),
        _ => return out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
    };
    out.extend_from_slice(&[b'\\', short]);
}

/// Writes a number as RFC 8785 does if that keeps its value; everything else unchanged.
fn number(raw: &str, out: &mut Vec<u8>) {
    let is_small = raw.len() <= 15 && raw.bytes().all(|byte| byte.is_ascii_digit());
    match (!is_small).then(|| shortest(raw)).flatten() {
        Some(text) => out.extend_from_slice(text.as_bytes()),
        None => out.extend_from_slice(raw.as_bytes()),
    }
}

fn shortest(raw: &str) -> Option<String> {
    if !raw.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
        return None;
    }
    let written = Decimal::read(raw)?;
    let value: f64 = raw.parse().ok().filter(|value: &f64| value.is_finite())?;
    // Rust writes the shortest digits that lead back to the double, as the RFC wants them.
    let held = Decimal::read(&format!("{value:e}"))?;
    (written == held).then(|| written.to_text())
}

/// A number as its digits, without zeros at either end, and the position of the point: `0.DIGITS * 10^point`.
#[derive(Debug, PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    digits: String,
    point: i64,
}

impl Decimal {
    fn read(text: &str) -> Option<Self> {
        let (is_negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, Some(exponent)),
            None => (text, None),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let significant = digits.trim_start_matches('0');
        if significant.is_empty() {
            return Some(Self { is_negative: false, digits: String::new(), point: 0 });
        }
        let exponent = exponent.map_or(Some(0), |text| text.parse::<i32>().ok())?;
        let skipped = digits.len() - significant.len();
        let point = i64::from(exponent) + i64::try_from(whole.len()).ok()? - i64::try_from(skipped).ok()?;
        Some(Self { is_negative, digits: significant.trim_end_matches('0').to_owned(), point })
    }

    /// Writes it as ECMAScript does.
    fn to_text(&self) -> String {
        let Self { digits, point, .. } = self;
        let count = digits.len() as i64;
        let zeros = |count: i64| "0".repeat(usize::try_from(count).unwrap_or_default());
        let text = match point {
            _ if digits.is_empty() => "0".to_owned(),
            _ if count <= *point && *point <= 21 => digits.clone() + &zeros(point - count),
            1..=21 => {
                let (whole, fraction) = digits.split_at(usize::try_from(*point).unwrap_or_default());
                format!("{whole}.{fraction}")
            }
            -5..=0 => format!("0.{}{digits}", zeros(-point)),
            _ => {
                let (first, rest) = digits.split_at(1);
                let dot = if rest.is_empty() { "" } else { "." };
                let sign = if *point > 0 { "+" } else { "" };
                format!("{first}{dot}{rest}e{sign}{}", point - 1)
            }
        };
        if self.is_negative { format!("-{text}") } else { text }
    }
}
