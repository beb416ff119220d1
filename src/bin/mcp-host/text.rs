//! Text of others on a terminal: nothing in it may move the cursor, set a title, fill the clipboard or hide itself.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The text on one line, with everything that is no visible character written out: `\n`, `\u{1b}`.
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

/// The text with its lines kept. Tabs become the spaces they stand for, since a raw one is a control character too.
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

/// The same JSON on one line without a hidden character: between tokens they are blanks, in strings `\u` escapes.
pub(crate) fn json(text: &str) -> Cow<'_, str> {
    if !text.chars().any(hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            // A string cannot hold these three, so they stand between tokens.
            '\n' | '\r' | '\t' => out.push(' '),
            c if hidden(c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a string cannot fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// The first line that says something, cut to `width` characters.
pub(crate) fn headline(text: &str, width: usize) -> String {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    cut(&line(first), width)
}

/// At most `width` characters, with `…` where something is gone.
pub(crate) fn cut(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        None => text.to_owned(),
        Some(_) => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Rows under each other, columns padded; the last column is left as it is.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let all = || std::iter::once(&head).chain(rows);
    let columns = all().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| all().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let draw = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    all().map(draw).collect()
}

/// `1 tool`, `2 tools`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// A length of time as a person says it: `12 ms`, `1.2 s`, `3 min`, `2 h 5 min`.
pub(crate) fn duration(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..60_000 => format!("{}.{} s", millis / 1_000, millis % 1_000 / 100),
        60_000..3_600_000 => format!("{} min", millis / 60_000),
        3_600_000..86_400_000 => format!("{} h {} min", millis / 3_600_000, millis % 3_600_000 / 60_000),
        _ => format!("{} d {} h", millis / 86_400_000, millis % 86_400_000 / 3_600_000),
    }
}

/// Control characters, line separators, and what changes or hides text without being seen: direction marks and
/// overrides, spaces of no width, tag characters. The two joiners stay: scripts and emoji need them.
fn hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

const TAB: usize = 8;

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
    fn text_is_cut_by_characters() {
        assert_eq!(headline("\n  Reads a file.\nMore.", 80), "Reads a file.");
        assert_eq!(cut("日本語", 3), "日本語");
        assert_eq!(cut("日本語x", 3), "日本…");
    }

    #[test]
    fn tables_line_up() {
        let rows = vec![vec!["a".to_owned(), String::new()], vec!["long".to_owned(), "x".to_owned()]];
        assert_eq!(table(&["NAME", "B"], &rows), ["NAME  B", "a", "long  x"]);
    }

    #[test]
    fn times_read_well() {
        let said = [7, 1_250, 61_000, 7_500_000, 90_000_000].map(duration);
        assert_eq!(said, ["7 ms", "1.2 s", "1 min", "2 h 5 min", "1 d 1 h"]);
    }

    proptest! {
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
