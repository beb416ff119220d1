//! Finds characters that hide something: invisible ones, ones that reverse the text, and letters that look like others.

use std::ops::Range;

use super::Spot;

/// The most characters of an excerpt.
const SHOWN: usize = 80;

/// Letters of other scripts that look like Latin ones, and what they look like.
const ALIKE: [(char, char); 52] = [
    ('а', 'a'),
    ('в', 'b'),
    ('с', 'c'),
    ('ԁ', 'd'),
    ('е', 'e'),
    ('һ', 'h'),
    ('і', 'i'),
    ('ј', 'j'),
    ('к', 'k'),
    ('ӏ', 'l'),
    ('м', 'm'),
    ('о', 'o'),
    ('р', 'p'),
    ('ԛ', 'q'),
    ('г', 'r'),
    ('ѕ', 's'),
    ('т', 't'),
    ('у', 'y'),
    ('ѵ', 'v'),
    ('ԝ', 'w'),
    ('х', 'x'),
    ('α', 'a'),
    ('ε', 'e'),
    ('ι', 'i'),
    ('κ', 'k'),
    ('ν', 'v'),
    ('ο', 'o'),
    ('ρ', 'p'),
    ('τ', 't'),
    ('υ', 'u'),
    ('χ', 'x'),
    ('ϲ', 'c'),
    ('ϳ', 'j'),
    ('ı', 'i'),
    ('ɑ', 'a'),
    ('ɡ', 'g'),
    ('ɩ', 'i'),
    ('ɪ', 'i'),
    ('օ', 'o'),
    ('ս', 'u'),
    ('ո', 'n'),
    ('հ', 'h'),
    ('ց', 'g'),
    ('զ', 'q'),
    ('ա', 'w'),
    ('‐', '-'),
    ('‑', '-'),
    ('‒', '-'),
    ('–', '-'),
    ('—', '-'),
    ('−', '-'),
    ('․', '.'),
];

/// Returns the Latin letter that a character looks like; for any other character, its lower case.
pub(super) fn plain(character: char) -> char {
    if character.is_ascii() {
        return character.to_ascii_lowercase();
    }
    let lower = character.to_lowercase().next().unwrap_or(character);
    // Full-width forms of ASCII.
    if let 0xff01..=0xff5e = u32::from(lower) {
        return char::from_u32(u32::from(lower) - 0xfee0).unwrap_or(lower).to_ascii_lowercase();
    }
    ALIKE.iter().find(|(alike, _)| *alike == lower).map_or(lower, |(_, plain)| *plain)
}

/// Returns a form of a name that is the same for all names that look alike.
pub(super) fn skeleton(name: &str) -> String {
    let shape = |character| match plain(character) {
        '0' => 'o',
        '1' | 'i' | '|' => 'l',
        other => other,
    };
    name.chars().filter(|character| kind(*character).is_none()).map(shape).collect()
}

/// Reports whether a name mixes Latin letters with others that look like them.
pub(super) fn is_mixed(name: &str) -> bool {
    let is_alike = |character: char| !character.is_ascii() && character.is_alphabetic() && plain(character).is_ascii();
    name.chars().any(|character| character.is_ascii_alphabetic()) && name.chars().any(is_alike)
}

/// Returns what is wrong with a character in any position.
fn kind(character: char) -> Option<&'static str> {
    Some(match u32::from(character) {
        0x09 | 0x0a | 0x0d => return None,
        0x00..=0x1f | 0x7f..=0x9f => "control characters",
        0x200e | 0x200f | 0x061c | 0x202a..=0x202e | 0x2066..=0x2069 => "characters that turn the text around",
        0xe0000..=0xe007f => "tag characters",
        0xe000..=0xf8ff | 0xf0000..=0x0010_ffff => "private-use characters",
        0xad
        | 0x34f
        | 0x115f
        | 0x1160
        | 0x17b4
        | 0x17b5
        | 0x180b..=0x180f
        | 0x200b..=0x200d
        | 0x2028
        | 0x2029
        | 0x2060..=0x2065
        | 0x206a..=0x206f
        | 0x2800
        | 0x3164
        | 0xfe00..=0xfe0f
        | 0xfeff
        | 0xffa0
        | 0xfff0..=0xfffb
        | 0xe0080..=0xe0fff => "invisible characters",
        _ => return None,
    })
}

/// Finds characters that hide something, one spot for each kind.
pub(super) fn spots(text: &str) -> Vec<Spot> {
    let mut found: Vec<Spot> = Vec::new();
    if text.bytes().all(|byte| (0x20..0x7f).contains(&byte) || matches!(byte, b'\t' | b'\n' | b'\r')) {
        return found;
    }
    // How many tag characters may still follow a black flag, with which they form the flag of a region.
    let (mut before, mut flag) = (' ', 0_usize);
    for (at, character) in text.char_indices() {
        flag = match u32::from(character) {
            0x1f3f4 => 7,
            0xe0030..=0xe007a => flag.saturating_sub(1),
            _ => 0,
        };
        if let Some(what) = kind(character) {
            let after = text[at + character.len_utf8()..].chars().next().unwrap_or(' ');
            let is_known = found.iter().any(|(known, ..)| *known == what);
            if !is_known && flag == 0 && !belongs(character, before, after) {
                found.push((what, true, at..at + character.len_utf8()));
            }
        }
        before = character;
    }
    found
}

/// Reports whether an invisible character is a proper part of the text around it: of an emoji, or of a script that
/// needs it.
fn belongs(character: char, before: char, after: char) -> bool {
    let is_picture = |near: char| matches!(u32::from(near), 0xa9 | 0xae | 0x203c..=0x3299 | 0x1f000..=0x1faff | 0xfe0f);
    let is_joined = |near: char| matches!(u32::from(near), 0x0600..=0x0dff | 0x1000..=0x109f | 0x1780..=0x17ff);
    let is_right_to_left = |near: char| matches!(u32::from(near), 0x0590..=0x08ff | 0xfb1d..=0xfdff | 0xfe70..=0xfefc);
    match u32::from(character) {
        0xfe0e | 0xfe0f => is_picture(before) && before != '\u{fe0f}' || after == '\u{20e3}',
        0x200d => is_picture(before) && is_picture(after) || is_joined(before) && is_joined(after),
        0x200c => is_joined(before) && is_joined(after),
        0x200e | 0x200f | 0x061c => is_right_to_left(before) || is_right_to_left(after),
        // This character ends a flag.
        0xe007f => matches!(u32::from(before), 0xe0030..=0xe007a),
        _ => false,
    }
}

/// Returns the text around a range in one line.
pub(super) fn excerpt(text: &str, range: Range<usize>) -> String {
    const BEFORE: usize = 16;
    let start = text.get(..range.start).map_or(0, |head| {
        let characters = head.char_indices().rev().take(BEFORE);
        characters.last().map_or(range.start, |(at, _)| at)
    });
    let mut out = String::new();
    let mut count = 0;
    for character in text.get(start..).unwrap_or_default().chars() {
        let escaped = match character {
            '\t' | '\n' | '\r' => " ".to_owned(),
            _ if kind(character).is_some() => character.escape_unicode().to_string(),
            _ => character.to_string(),
        };
        let length = escaped.chars().count();
        if count + length > SHOWN - 1 {
            out.push('…');
            break;
        }
        count += length;
        out.push_str(&escaped);
    }
    out
}
