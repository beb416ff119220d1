//! Finds and removes control and invisible characters, which must not reach a client inside a definition.
//!
//! Works only on valid JSON, and only inside its strings.

/// The result of one pass over a JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scan {
    /// The greatest nesting of objects and arrays.
    pub(super) depth: usize,
    /// Whether a string holds something that [`stripped`] removes.
    pub(super) hidden: bool,
}

/// Scans a JSON text in one pass.
pub(super) fn scan(json: &[u8]) -> Scan {
    let (mut depth, mut deepest, mut hidden, mut in_string) = (0_usize, 0, false, false);
    let mut at = 0;
    while let Some(byte) = json.get(at) {
        match (in_string, byte) {
            (false, b'"') => in_string = true,
            (false, b'{' | b'[') => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            (false, b'}' | b']') => depth = depth.saturating_sub(1),
            (true, b'"') => in_string = false,
            (true, b'\\' | 0x7f | 0xc2 | 0xe2 | 0xf3) => {
                let (length, keep) = unit(&json[at..]);
                hidden |= !keep;
                at += length;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    Scan { depth: deepest, hidden }
}

/// Removes control characters (line feed and tab stay), bidirectional overrides, tag characters, and unpaired
/// surrogates, which some readers refuse.
pub(super) fn stripped(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len());
    let (mut at, mut in_string) = (0, false);
    while at < json.len() {
        in_string ^= json[at] == b'"';
        let (length, keep) = if in_string { unit(&json[at..]) } else { (1, true) };
        let end = json.len().min(at + length);
        if keep {
            out.extend_from_slice(&json[at..end]);
        }
        at = end;
    }
    out
}

/// Returns the length of the character or escape at the start of `rest`, and whether it may stay.
fn unit(rest: &[u8]) -> (usize, bool) {
    match *rest {
        [b'\\', b'u', ..] => escape(rest),
        [b'\\', b'b' | b'f' | b'r', ..] => (2, false),
        [b'\\', _, ..] => (2, true),
        [0x7f, ..] => (1, false),
        [0xc2, 0x80..=0x9f, ..] => (2, false),
        [0xe2, 0x80, 0xaa..=0xae, ..] | [0xe2, 0x81, 0xa6..=0xa9, ..] => (3, false),
        [0xf3, 0xa0, 0x80..=0x81, _, ..] => (4, false),
        _ => (1, true),
    }
}

fn escape(rest: &[u8]) -> (usize, bool) {
    let Some(first) = hex(rest) else { return (2, true) };
    match first {
        0xd800..=0xdbff => match rest.get(6..).and_then(hex) {
            Some(second @ 0xdc00..=0xdfff) => {
                let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                (12, !(0xe0000..=0xe007f).contains(&code))
            }
            _ => (6, false),
        },
        0xdc00..=0xdfff | 0x7f..=0x9f | 0x202a..=0x202e | 0x2066..=0x2069 => (6, false),
        code => (6, code >= 0x20 || code == 0x09 || code == 0x0a),
    }
}

/// Returns the value of `\uXXXX`.
fn hex(escape: &[u8]) -> Option<u32> {
    let digits = escape.strip_prefix(b"\\u")?.get(..4)?;
    digits.iter().try_fold(0, |value, digit| Some(value * 16 + char::from(*digit).to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strip(json: &str) -> String {
        String::from_utf8(stripped(json.as_bytes())).unwrap()
    }

    #[test]
    fn h88_hidden_characters_go() {
        let cases = [
            ("\"a\u{202e}b\u{2066}c\u{7f}\u{85}d\u{e0041}\"", r#""abcd""#),
            (r#""a\u001b[31m\r\n\t\b\f\u0000\u009b""#, r#""a[31m\n\t""#),
            (r#""\u202E\u2069\udb40\udc41x""#, r#""x""#),
            (r#""\ud800x\udc00\ud83d\ude00\ud83d""#, r#""x\ud83d\ude00""#),
        ];
        for (dirty, clean) in cases {
            assert!(scan(dirty.as_bytes()).hidden, "{dirty:?}");
            assert_eq!(strip(dirty), clean);
            assert!(!scan(clean.as_bytes()).hidden);
        }
    }

    #[test]
    fn the_rest_stays() {
        for clean in [
            "{\r\n\t\"a\" : \"\\n\\t\\\\u001b \\\" é \u{200d} 😀 \u{2028} Â\"}",
            r#"["\u00e9\ud83d\ude00\u000a","[[[","\\"]"#,
            "3",
        ] {
            assert!(!scan(clean.as_bytes()).hidden, "{clean:?}");
            assert_eq!(strip(clean), clean);
        }
    }

    #[test]
    fn depth_counts_brackets_outside_of_strings() {
        for (json, depth) in [("1", 0), ("{}", 1), (r#"{"a":[[1],"[[[["],"b":{}}"#, 3), (r#"["\"[",[]]"#, 2)] {
            assert_eq!(scan(json.as_bytes()).depth, depth, "{json}");
        }
    }
}
