//! Makes foreign text safe for a terminal: it must not move the cursor, set a title, fill the clipboard or hide itself.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Returns the text on one line, with invisible characters escaped: `\n`, `\u{1b}`.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    if !text.chars().any(hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if hidden(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// Quotes a word for a shell, if necessary.
pub(crate) fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '@');
    if !name.is_empty() && name.chars().all(plain) {
        return name.to_owned();
    }
    format!("'{}'", line(name).replace('\'', r"'\''"))
}

/// Escapes the text but keeps its lines. Tabs become spaces, because a raw tab is a control character, too.
pub(crate) fn block(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| hidden(c) && c != '\n') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for part in text.split_inclusive('\n') {
        let (body, end) = match part.strip_suffix('\n') {
            Some(body) => (body.strip_suffix('\r').unwrap_or(body), "\n"),
            None => (part, ""),
        };
        let mut column = 0;
        for c in body.chars() {
            match c {
                '\t' => {
                    let wide = TAB - column % TAB;
                    out.extend(std::iter::repeat_n(' ', wide));
                    column += wide;
                    continue;
                }
                c if hidden(c) => out.extend(c.escape_default()),
                c => out.push(c),
            }
            column += 1;
        }
        out.push_str(end);
    }
    Cow::Owned(out)
}

/// Returns the same JSON on one line, without hidden characters. Between JSON tokens they become blanks, in strings
/// `\u` escapes.
pub(crate) fn json(text: &str) -> Cow<'_, str> {
    if !text.chars().any(hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            // JSON strings cannot contain these three raw, so they are between tokens.
            '\n' | '\r' | '\t' => out.push(' '),
            c if hidden(c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a string never fails.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Returns the first line that is not empty.
pub(crate) fn headline(text: &str) -> String {
    line(text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default()).into_owned()
}

/// Returns the width of a text in columns: two for wide characters and emoji, none for combining ones.
pub(crate) fn width(text: &str) -> usize {
    console::measure_text_width(text)
}

/// Pads the text with blanks to `room` columns.
pub(crate) fn pad(text: &str, room: usize) -> String {
    format!("{text}{}", " ".repeat(room.saturating_sub(width(text))))
}

/// Cuts the text to `room` columns and marks a cut with `…`.
pub(crate) fn cut(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let (end, _) = fitting(text, room.saturating_sub(1));
    format!("{}…", text[..end].trim_end_matches([' ', JOINER]))
}

/// Breaks the text into lines of at most `room` columns, between words. Only a wider word is broken itself.
pub(crate) fn wrap(text: &str, room: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut line, mut used) = (String::new(), 0);
    // A long word is not measured as a whole; otherwise its rest would be measured again after each piece.
    let fits = |word: &str| (word.len() <= MOST).then(|| width(word)).filter(|wide| *wide <= room);
    for mut word in text.split(' ') {
        if let Some(wide) = fits(word).filter(|wide| used > 0 && used + 1 + wide <= room) {
            line.push(' ');
            line.push_str(word);
            used += 1 + wide;
            continue;
        }
        if used > 0 {
            lines.push(std::mem::take(&mut line));
        }
        used = loop {
            if let Some(wide) = fits(word) {
                break wide;
            }
            let (end, _) = fitting(word, room);
            // Each piece has at least one character, even if it is too wide.
            let end = if end == 0 { word.chars().next().map_or(word.len(), char::len_utf8) } else { end };
            lines.push(word[..end].to_owned());
            word = &word[end..];
        };
        line.push_str(word);
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

/// Returns the end of the longest prefix of a text that fits into `room` columns, and the width of that prefix.
fn fitting(text: &str, room: usize) -> (usize, usize) {
    let mut found = (0, 0);
    for (at, c) in text.char_indices() {
        let end = at + c.len_utf8();
        let wide = width(&text[..end]);
        // Later characters may combine with the last one, so the first prefix that is too wide does not end the search.
        if wide <= room {
            found = (end, wide);
        } else if wide > room + WIDEST || end > MOST {
            break;
        }
    }
    found
}

/// Formats `1 tool`, `2 tools`, `3 entries`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    match (number, noun.strip_suffix("ry")) {
        (1, _) => format!("1 {noun}"),
        (_, Some(stem)) => format!("{number} {stem}ries"),
        (_, None) => format!("{number} {noun}s"),
    }
}

/// Formats a duration for people: `12 ms`, `1.2 s`, `3 min`, `2 h 5 min`.
pub(crate) fn duration(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..60_000 => format!("{}.{} s", millis / 1_000, millis % 1_000 / 100),
        60_000..3_600_000 => format!("{} min", millis / 60_000),
        3_600_000..86_400_000 => format!("{} h {} min", millis / 3_600_000, millis % 3_600_000 / 60_000),
        _ => format!("{} d {} h", millis / 86_400_000, millis % 86_400_000 / 3_600_000),
    }
}

/// Reports whether a character is hidden: control characters, line separators, and invisible characters that change or
/// hide text (direction marks and overrides, zero-width spaces, tag characters). The two joiners are not: scripts and
/// emoji need them.
fn hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

const TAB: usize = 8;
/// The zero-width joiner, which makes one emoji of several.
const JOINER: char = '\u{200d}';
/// The widest character, in columns.
const WIDEST: usize = 2;
/// The longest line in bytes, however narrow its characters are.
const MOST: usize = 4096;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escapes_show_and_letters_stay() {
        assert_eq!(line("naïve 日本 👩\u{200d}💻"), "naïve 日本 👩\u{200d}💻");
        assert_eq!(line("\u{1b}]52;c;aGk=\u{7}\nx"), r"\u{1b}]52;c;aGk=\u{7}\nx");
        assert_eq!(line("a\u{202e}b\u{e0041}"), r"a\u{202e}b\u{e0041}");
        assert_eq!(block("a\tb\r\nlong text\tc\rd\n"), "a       b\nlong text       c\\rd\n");
        assert_eq!(json("{\n\t\"a\": \"\u{9b}\u{e0041}\"\r}"), r#"{  "a": "\u009b\udb40\udc41" }"#);
    }

    #[test]
    fn names_are_quoted_for_a_shell() {
        assert_eq!(quoted("git-hub"), "git-hub");
        assert_eq!(quoted("Bob's \u{1b}"), r"'Bob'\''s \u{1b}'");
    }

    #[test]
    fn text_is_cut_by_columns() {
        assert_eq!(headline("\n  Reads a file.\nMore."), "Reads a file.");
        assert_eq!(
            (width("日本"), width("👨\u{200d}👩\u{200d}👧"), width("❤\u{fe0f}"), width("e\u{301}")),
            (4, 2, 2, 1)
        );
        for (text, room, shown) in [
            ("日本語", 6, "日本語"),
            ("日本語x", 6, "日本…"),
            ("日本語", 5, "日本…"),
            ("a 👨\u{200d}👩\u{200d}👧 b", 5, "a 👨\u{200d}👩\u{200d}👧…"),
            ("a 👨\u{200d}👩\u{200d}👧 b", 4, "a…"),
            ("abc", 0, "…"),
        ] {
            assert_eq!(cut(text, room), shown, "{text:?} in {room}");
        }
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrap("put a token into `headers`", 12), ["put a token", "into", "`headers`"]);
        assert_eq!(wrap("see https://example.com/mcp now", 12), ["see", "https://exam", "ple.com/mcp", "now"]);
        assert_eq!(wrap("日本語", 3), ["日", "本", "語"]);
        assert_eq!(wrap("日本", 1), ["日", "本"]);
        assert_eq!(wrap("", 5), [""]);
        // The work is linear in the text.
        assert_eq!(wrap(&"x".repeat(1_000_000), 10), vec!["x".repeat(10); 100_000]);
    }

    #[test]
    fn times_read_well() {
        let said = [7, 1_250, 61_000, 7_500_000, 90_000_000].map(duration);
        assert_eq!(said, ["7 ms", "1.2 s", "1 min", "2 h 5 min", "1 d 1 h"]);
    }

    proptest! {
        #[test]
        fn nothing_is_wider_than_its_room(text in any::<String>(), room in 2usize..40) {
            let text = line(&text);
            prop_assert!(width(&cut(&text, room)) <= room);
            prop_assert!(wrap(&text, room).iter().all(|line| width(line) <= room));
        }

        #[test]
        fn no_control_byte_gets_through(text in any::<String>()) {
            prop_assert!(!line(&text).chars().any(hidden));
            prop_assert!(!block(&text).chars().any(|c| hidden(c) && c != '\n'));
            let written = serde_json::to_string(&text).unwrap();
            let escaped = json(&written);
            prop_assert!(!escaped.chars().any(hidden));
            prop_assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), text);
        }
    }
}
