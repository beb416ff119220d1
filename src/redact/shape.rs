//! What looks like a credential wherever it stands: values behind telling names, bearer and basic tokens, keys of known
//! makers, users and queries of URLs.

use std::borrow::Cow;
use std::ops::Range;

use super::MASK;

/// Whether a name says that its value is a secret.
#[must_use]
pub fn names_a_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let telling = ["key", "token", "secret", "passw", "auth", "credential", "bearer", "cookie"];
    telling.iter().any(|part| name.contains(part))
}

/// Whether a text is a key by its looks: a known beginning, or a long run of letters and digits that is no word.
#[must_use]
pub fn looks_secret(text: &str) -> bool {
    if MAKERS.iter().any(|prefix| text.starts_with(prefix)) || text.starts_with("Bearer ") {
        return true;
    }
    let hex = text.bytes().filter(u8::is_ascii_hexdigit).count();
    let uuid = hex == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    uuid || text.split(|c: char| !c.is_ascii_alphanumeric()).any(|run| {
        let (digits, letters) = (run.bytes().any(|b| b.is_ascii_digit()), run.bytes().any(|b| b.is_ascii_alphabetic()));
        run.len() >= LONG && digits && letters
    })
}

/// How keys of some makers begin.
const MAKERS: [&str; 10] = ["sk-", "sk_", "ghp_", "gho_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "eyJ", "AKIA"];
/// Words with a digit in them are shorter, keys are longer.
const LONG: usize = 16;
/// What OAuth sends beside names that tell by themselves.
const OAUTH: [&str; 3] = ["code", "code_verifier", "assertion"];
/// How credentials in a header begin.
const SCHEMES: [&str; 5] = ["bearer", "basic", "digest", "token", "dpop"];
/// A shorter value of a telling name is a word (`key=value`, `"key": "value"`).
const WORD: usize = 6;

/// The text with a mask over each credential.
pub(super) fn masked(text: &str) -> Cow<'_, str> {
    let mut found: Vec<(Range<usize>, &str)> = Vec::new();
    urls(text, &mut found);
    schemes(text, &mut found);
    pairs(text, &mut found);
    makers(text, &mut found);
    if found.is_empty() {
        return Cow::Borrowed(text);
    }
    found.sort_by_key(|(range, _)| (range.start, std::cmp::Reverse(range.end)));
    let (mut out, mut at) = (String::with_capacity(text.len()), 0);
    for (range, mask) in found {
        if range.start >= at {
            out.push_str(&text[at..range.start]);
            out.push_str(mask);
        }
        at = at.max(range.end);
    }
    out.push_str(&text[at..]);
    Cow::Owned(out)
}

/// Users, passwords and queries of URLs.
fn urls(text: &str, found: &mut Vec<(Range<usize>, &'static str)>) {
    for (at, sign) in text.match_indices("://") {
        let start = at + sign.len();
        let end = end_of(text, start, |c| c.is_whitespace() || "\"'<>`|\\{}".contains(c));
        let url = &text[start..end];
        let authority = url.find(['/', '?', '#']).unwrap_or(url.len());
        if let Some(user) = url[..authority].rfind('@') {
            found.push((start..start + user, MASK));
        }
        if let Some(query) = url.find(['?', '#']).filter(|query| query + 1 < url.len()) {
            // A sentence may end behind the URL.
            let last = url.trim_end_matches([',', '.', ';', ':', ')', ']']).len().max(query + 1);
            found.push((start + query + 1..start + last, "…"));
        }
    }
}

/// `Bearer x`, `Basic x`, wherever they stand.
fn schemes(text: &str, found: &mut Vec<(Range<usize>, &'static str)>) {
    let lower = text.to_ascii_lowercase();
    for scheme in ["bearer", "basic"] {
        for (at, _) in lower.match_indices(scheme) {
            let start = at + scheme.len();
            let blank = text[start..].find(|c: char| c != ' ').unwrap_or(0);
            let end = end_of(text, start + blank, |c| !is_token(c));
            let token = &text[start + blank..end];
            let is_word = token.bytes().all(|byte| byte.is_ascii_lowercase() || b".-".contains(&byte));
            if blank > 0 && token.len() >= WORD && !is_word {
                found.push((start + blank..end, MASK));
            }
        }
    }
}

/// `name=value`, `"name":"value"`, and headers.
fn pairs(text: &str, found: &mut Vec<(Range<usize>, &'static str)>) {
    for (at, sign) in text.match_indices(['=', ':']) {
        let before = text[..at].trim_end_matches(' ');
        let bare = before.strip_suffix('"').or_else(|| before.strip_suffix('\'')).unwrap_or(before);
        let quoted = bare.len() < before.len();
        let bare = bare.strip_suffix('\\').unwrap_or(bare);
        let name = &bare[bare
            .rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-')
            .map_or(0, |at| at + next(bare, at))..];
        let lower = name.to_ascii_lowercase();
        if name.is_empty() || !(names_a_secret(&lower) || OAUTH.contains(&lower.as_str())) {
            continue;
        }
        let (value, in_quotes) = value(text, at + sign.len());
        let shown = &text[value.clone()];
        let cookie = lower.ends_with("cookie") && sign == ":" && shown.contains('=');
        let hide = match (sign, in_quotes) {
            _ if shown.is_empty() || shown == MASK => false,
            _ if cookie => true,
            ("=", _) => shown.len() >= WORD,
            // A name in quotes is JSON; else it may be a sentence.
            (_, true) => quoted && shown.len() >= WORD || looks_secret(shown),
            (_, false) => looks_secret(shown) || credential(text, value.clone(), found),
        };
        if hide {
            let end =
                if cookie && !in_quotes { end_of(text, value.start, |c| "\"'\n\\".contains(c)) } else { value.end };
            found.push((value.start..end, MASK));
        }
    }
}

/// What stands behind a scheme in a header, which is no value of its own.
fn credential(text: &str, scheme: Range<usize>, found: &mut Vec<(Range<usize>, &'static str)>) -> bool {
    if SCHEMES.contains(&text[scheme.clone()].to_ascii_lowercase().as_str()) {
        let start = scheme.end + text[scheme.end..].find(|c: char| c != ' ').unwrap_or(0);
        let end = end_of(text, start, |c| !is_token(c));
        if end > start {
            found.push((start..end, MASK));
        }
    }
    false
}

/// The value that begins there, without its quotes; whether it has some.
fn value(text: &str, from: usize) -> (Range<usize>, bool) {
    let start = from + text[from..].find(|c: char| c != ' ').unwrap_or(0);
    let escaped = usize::from(text[start..].starts_with('\\'));
    match text[start + escaped..].chars().next() {
        Some(quote @ ('"' | '\'')) => {
            let start = start + escaped + 1;
            (start..end_of_quoted(text, start, quote, escaped == 1), true)
        }
        _ => (start..end_of(text, start, |c| c.is_whitespace() || "&,;\"'<>)]}|".contains(c)), false),
    }
}

/// The closing quote; a quote behind a backslash closes only what was opened by one.
fn end_of_quoted(text: &str, start: usize, quote: char, by_escape: bool) -> usize {
    let mut escape = false;
    for (at, c) in text[start..].char_indices() {
        match c {
            c if c == quote && escape == by_escape => return start + at - usize::from(by_escape),
            '\\' => escape = !escape,
            _ => escape = false,
        }
    }
    text.len()
}

/// Keys that tell by their first letters whose they are.
fn makers(text: &str, found: &mut Vec<(Range<usize>, &'static str)>) {
    for prefix in MAKERS {
        for (at, _) in text.match_indices(prefix) {
            let inside = text[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
            let end = end_of(text, at, |c| !is_token(c));
            if !inside && end - at >= LONG {
                found.push((at..end, MASK));
            }
        }
    }
}

fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-._~+/=".contains(c)
}

fn end_of(text: &str, from: usize, ends: impl Fn(char) -> bool) -> usize {
    text[from..].find(ends).map_or(text.len(), |length| from + length)
}

/// How long the character there is.
fn next(text: &str, at: usize) -> usize {
    text[at..].chars().next().map_or(1, char::len_utf8)
}
