//! Shows the line at which parsing failed: keys and punctuation as written, and values only under keys that hold no
//! secret.
//!
//! Parsing has failed, so values are recognized only by quotes, colons and commas. When in doubt, they are masked.

use crate::config::report::Excerpt;
use crate::redact::{MASK, Scrubber, looks_secret, names_a_secret};

/// Keys whose values may be shown.
const SHOWN: [&str; 21] = [
    "args",
    "callTimeout",
    "cmd",
    "command",
    "cwd",
    "description",
    "disabled",
    "enabled",
    "httpUrl",
    "join",
    "name",
    "serverUrl",
    "sharing",
    "start",
    "startTimeout",
    "timeout",
    "tools",
    "transport",
    "type",
    "uri",
    "url",
];
/// How many lines before the shown line are read, to find the key that the values in it belong to.
const BEFORE: usize = 40;
/// How many characters of a line are shown.
const WIDTH: usize = 100;
/// How many characters at most are shown before the mark, which points at the problem.
const AHEAD: usize = 60;

/// Returns the line with this number, with its values masked, and a mark at this column; both are counted from 1.
pub(super) fn excerpt(text: &str, line: usize, column: usize) -> Option<Excerpt> {
    let number = line.checked_sub(1)?;
    let mut reader = Reader::default();
    for before in text.lines().skip(number.saturating_sub(BEFORE)).take(number.min(BEFORE)) {
        reader.read(before, None);
    }
    let line = text.lines().nth(number)?;
    let caret = reader.read(line, column.checked_sub(1));
    let shown: Vec<char> = reader.shown.chars().collect();
    let indent = shown.iter().take_while(|c| **c == ' ').count().min(caret);
    let (mut line, mut caret) = (shown[indent..].to_vec(), caret - indent);
    if caret > AHEAD {
        let cut = caret - AHEAD;
        line.splice(..cut, ['…']);
        caret -= cut - 1;
    }
    if line.len() > WIDTH {
        line.truncate(WIDTH);
        line.push('…');
    }
    let line: String = line.into_iter().collect();
    (!line.trim().is_empty()).then(|| Excerpt { line: line.trim_end().to_owned(), caret })
}

/// Returns the lines of a text with their values masked.
pub(in crate::config) fn masked(text: &str) -> Vec<String> {
    let mut reader = Reader::default();
    let line = |line: &str| {
        reader.read(line, None);
        // The name of a table of TOML is a key.
        match is_header(line) {
            true => Scrubber::default().scrub(line.trim_end()).into_owned(),
            false => std::mem::take(&mut reader.shown).trim_end().to_owned(),
        }
    };
    text.lines().map(line).collect()
}

fn is_header(line: &str) -> bool {
    let line = line.trim();
    let inner = line.strip_prefix('[').and_then(|line| line.strip_suffix(']'));
    let roots = ["mcp_servers", "mcpServers", "[mcpServers", "host"];
    inner.is_some_and(|inner| roots.iter().any(|root| inner.starts_with(root)) && !inner.contains([',', '=', ':']))
}

/// Reads a text token by token, masks its values, and keeps track of where in the structure it is.
#[derive(Default)]
struct Reader {
    stand: Stand,
    /// While a comment is read, the state from before it. The comment says nothing about the values after it.
    outside: Option<Stand>,
    shown: String,
}

#[derive(Default)]
struct Stand {
    /// The key to which the next value belongs, if that is certain.
    key: Option<String>,
    /// How many lists have been opened since the key and not closed.
    lists: usize,
    /// Whether a key was read, but its value was not.
    awaits: bool,
    /// Whether the last value announces that a secret follows, as `--token` does.
    announced: bool,
}

/// The range of a word or of a quoted text in a line.
struct Token {
    start: usize,
    end: usize,
    quoted: bool,
}

impl Reader {
    /// Reads a line. `mark` is a position in the line; returns the matching position in the shown text.
    fn read(&mut self, line: &str, mark: Option<usize>) -> usize {
        self.shown.clear();
        self.stand.awaits = false;
        let chars: Vec<char> = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let (mut at, mut caret) = (0, None);
        // A block comment may continue from the line before.
        let mut comment = self.outside.is_some().then(|| end_of_block(&chars, 0));
        while at < chars.len() {
            if comment.is_none() {
                comment = end_of_comment(&chars, at);
                self.outside = comment.map(|_| std::mem::take(&mut self.stand));
            }
            let before = self.shown.chars().count();
            let end = match token(&chars, at) {
                Some(token) => {
                    let end = token.end;
                    self.take(&chars, &token);
                    end
                }
                None => {
                    self.sign(chars[at]);
                    at + 1
                }
            };
            if let Some(mark) = mark.filter(|mark| (at..end).contains(mark)) {
                caret = Some((before + mark - at).min(self.shown.chars().count().saturating_sub(1)));
            }
            at = end;
            if comment.is_some_and(|end| at >= end) {
                self.stand = self.outside.take().unwrap_or_default();
                comment = None;
            }
        }
        caret.unwrap_or_else(|| self.shown.chars().count())
    }

    fn sign(&mut self, c: char) {
        self.stand.sign(c);
        self.shown.push(c);
    }

    fn take(&mut self, chars: &[char], token: &Token) {
        let whole: String = chars[token.start..token.end].iter().collect();
        let text = if token.quoted { whole.trim_matches(is_quote) } else { &whole };
        let next = chars[token.end..].iter().find(|c| **c != ' ');
        if matches!(next, Some(':' | '=')) && !std::mem::take(&mut self.stand.awaits) {
            self.stand = Stand { key: Some(text.to_owned()), lists: 0, awaits: true, announced: false };
            self.shown.push_str(&Scrubber::default().scrub(&whole));
            return;
        }
        self.stand.awaits = false;
        let safe = self.stand.key.as_deref().is_some_and(|key| SHOWN.contains(&key))
            && !self.stand.announced
            && !looks_secret(text);
        let says_nothing = !text.chars().any(char::is_alphanumeric) || matches!(text, "true" | "false" | "null");
        let told = told_by_name(text);
        if says_nothing {
            self.shown.push_str(&whole);
        } else if safe && told.is_none() {
            self.shown.push_str(&Scrubber::default().scrub(&whole));
        } else {
            let quote =
                |c: Option<char>| c.filter(|c| token.quoted && is_quote(*c)).map(String::from).unwrap_or_default();
            let (open, close) =
                (quote(whole.chars().next()), quote(whole.chars().next_back().filter(|_| token.end - token.start > 1)));
            let name = told.filter(|_| safe).and_then(|at| text.get(..at)).unwrap_or_default();
            let name = Scrubber::default().scrub(name);
            self.shown.push_str(&format!("{open}{name}{MASK}{close}"));
        }
        // The `-` of the next YAML item is not a value: the secret is still to come.
        if !says_nothing {
            self.stand.announced = names_a_secret(text);
        }
        if token.quoted && self.stand.lists == 0 {
            self.stand.key = None;
        }
    }
}

impl Stand {
    fn sign(&mut self, c: char) {
        self.awaits &= !matches!(c, '[' | '{' | ',');
        match c {
            '[' if self.key.is_some() => self.lists += 1,
            ']' => self.lists = self.lists.saturating_sub(1),
            '{' | '}' => self.forget(),
            ',' if self.lists == 0 => self.forget(),
            _ => {}
        }
    }

    fn forget(&mut self) {
        (self.key, self.lists, self.announced) = (None, 0, false);
    }
}

/// Finds where the value starts after a name that announces a secret, as in `X-Api-Key: …`, `TOKEN=…` and `--token …`.
fn told_by_name(text: &str) -> Option<usize> {
    let signs: Vec<usize> = text.match_indices([':', '=']).map(|(at, _)| at).collect();
    // If the text before one sign names a secret, so does the text before each later sign.
    let pair = signs.get(signs.partition_point(|at| !names_a_secret(&text[..*at]))).copied();
    let mut end = 0;
    let option = text.split_inclusive(' ').find_map(|word| {
        end += word.len();
        (word.starts_with('-') && word.ends_with(' ') && names_a_secret(word)).then(|| end - 1)
    });
    pair.into_iter().chain(option).min().map(|at| at + 1)
}

/// Returns the end of the comment that starts at `start`, or `None` if none starts there. The end is beyond every line
/// if the comment goes on after this line.
fn end_of_comment(chars: &[char], start: usize) -> Option<usize> {
    match chars[start..] {
        ['#', ..] | ['/', '/', ..] => Some(chars.len()),
        ['/', '*', ..] => Some(end_of_block(chars, start + 2)),
        _ => None,
    }
}

fn end_of_block(chars: &[char], start: usize) -> usize {
    chars[start..].windows(2).position(|pair| pair == ['*', '/']).map_or(usize::MAX, |at| start + at + 2)
}

/// Returns the word or quoted text that starts at `start`, if one does.
fn token(chars: &[char], start: usize) -> Option<Token> {
    let first = chars[start];
    if is_quote(first) {
        let closes = |c: char| if matches!(first, '"' | '\'') { c == first } else { is_quote(c) };
        let mut at = start + 1;
        while at < chars.len() && !closes(chars[at]) {
            at += if chars[at] == '\\' { 2 } else { 1 };
        }
        return Some(Token { start, end: (at + 1).min(chars.len()), quoted: true });
    }
    let ends = |at: usize| match chars[at] {
        ':' => chars.get(at + 1).is_none_or(|next| *next == ' ' || is_quote(*next)),
        c => c == ' ' || is_quote(c) || matches!(c, ',' | '[' | ']' | '{' | '}' | '='),
    };
    let end = (start..chars.len()).find(|at| ends(*at)).unwrap_or(chars.len());
    (end > start).then_some(Token { start, end, quoted: false })
}

/// Reports whether this is a quote, including those of word processors.
pub(super) fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'') || is_curly(c)
}

/// Reports whether this is a quote that word processors substitute for a plain one.
pub(super) fn is_curly(c: char) -> bool {
    matches!(c, '“' | '”' | '„' | '‟' | '‘' | '’' | '‚' | '«' | '»' | '＂')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, line: usize, column: usize) -> String {
        let Excerpt { line, caret } = excerpt(text, line, column).unwrap();
        format!("{line}\n{}^", " ".repeat(caret))
    }

    #[test]
    fn a_line_is_shown_with_its_mark() {
        let text = r#"    "files": { "command": "npx" "args": [] }"#;
        assert_eq!(
            shown(text, 1, 33),
            "\"files\": { \"command\": \"npx\" \"args\": [] }\n                            ^"
        );
        assert_eq!(shown("a\n  \u{201c}odd\u{201d}: 1", 2, 3), "“odd”: ***\n^");
    }

    #[test]
    fn first_hour_r8_no_value_is_shown_that_may_be_a_secret() {
        for (text, line) in [
            (r#""env": { "ODD": "planted" "B": 1 }"#, 1),
            (r#""headers": { "X-Any": planted, }"#, 1),
            (r#""command": "x", "TOKEN: "planted" }"#, 1),
            (r#""command": "x" "note: "planted" }"#, 1),
            (r#""args": ["--api-key", "planted"#, 1),
            (r#""args": ["--api-key=planted-it", x"#, 1),
            ("\"args\": [\n\"--token\",\n\"planted\"", 3),
            ("\"env\": {\n\"A\": 'b',\n'planted'", 3),
            ("env:\n  ODD: planted: x", 2),
            ("env = { ODD = planted }", 1),
            ("# ODD = planted", 1),
            ("“planted”", 1),
            (r#""url": "https://planted@example.com/?k=planted"#, 1),
            (r#""command": "sk-planted-0123456789abcdef"#, 1),
            ("args:\n  - --token\n - planted", 3),
            ("args:\n  - --token\n\t- planted", 3),
            ("args:\n  - --token\n  - \"planted", 3),
            ("args:\n  - --token # of the shop\n\n  # or none\n - planted", 5),
            ("\"args\": [\"--token\", // of the shop\n\"planted\" x", 2),
            ("\"args\": [\"--token\", /* of \n the shop */ \"planted\" x", 2),
            (r#""args": ["--token", /* it */ "planted" x"#, 1),
            (r#""args": ["--header", "X-Api-Key: planted" x"#, 1),
            (r#""args": ["--header", "X-Api-Key: planted"#, 1),
            (r#""args": ["-e", "MY_TOKEN=planted", x"#, 1),
            ("args:\n  - --header\n - X-Api-Key:planted", 3),
            (r#""command": "npx -y files --password planted" x"#, 1),
            (r#""command": "npx --at=1 --password=planted" x"#, 1),
        ] {
            for column in 1..40 {
                if let Some(excerpt) = excerpt(text, line, column) {
                    assert!(!excerpt.line.contains("planted"), "{text}: {excerpt:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_secret_stays_readable_beside_one() {
        for (text, line, expected) in [
            (r#""args": ["--header", "X-Api-Key: hushed" x"#, 1, r#""args": ["--header", "X-Api-Key:***" ***"#),
            ("args:\n  - --token\n - hushed", 3, "- ***"),
            ("args:\n  - --token\n  - hushed\n - files", 4, "- files"),
            ("\"args\": [\"-y\", // no key\n\"files\" x", 2, "\"files\" x"),
            (r#""url": "https://example.com:8080/mcp" x"#, 1, r#""url": "https://example.com:8080/mcp" ***"#),
        ] {
            assert_eq!(excerpt(text, line, 1).unwrap().line.trim_start(), expected, "{text}");
        }
    }

    #[test]
    fn a_long_line_is_cut_around_its_mark() {
        let text = format!("{{ \"command\": \"{}\", ! }}", "a b ".repeat(200));
        let Excerpt { line, caret } = excerpt(&text, 1, text.find('!').unwrap() + 1).unwrap();
        assert!(line.chars().count() <= WIDTH + 1 && line.starts_with('…'), "{line}");
        assert_eq!(line.chars().nth(caret), Some('!'), "{line}");
    }

    #[test]
    fn a_mark_behind_the_end_is_no_trouble() {
        assert_eq!(excerpt("", 1, 1), None);
        assert_eq!(excerpt("{", 9, 1), None);
        assert_eq!(shown("{", 1, 2), "{\n ^");
        assert_eq!(shown("\"a\\", 1, 4), "\"***\n    ^");
    }
}
