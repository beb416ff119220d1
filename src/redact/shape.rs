//! Finds what looks like a credential: values after telling names, bearer and basic tokens, API keys of known vendors,
//! and the users and queries in URLs.
//!
//! **Invariant:** the work is linear in the text. The text may repeat the start of a credential many times, so the tail
//! that all these starts share is scanned only once.

use std::borrow::Cow;
use std::ops::Range;

use super::MASK;

/// Reports whether a name suggests that its value is a secret.
#[must_use]
pub(crate) fn names_a_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let telling = ["key", "token", "secret", "passw", "auth", "credential", "bearer", "cookie"];
    telling.iter().any(|part| name.contains(part))
}

/// Reports whether a text looks like a key: a known prefix, or a long run of letters and digits.
#[must_use]
pub fn looks_secret(text: &str) -> bool {
    begins_a_secret(text) || is_uuid(text) || last_key(text).is_some()
}

/// Masks those arguments of a program that look like a key or follow an option that names one.
#[must_use]
pub fn arguments(args: &[String]) -> Vec<String> {
    let mut shown = Vec::with_capacity(args.len());
    let mut next_is_secret = false;
    for arg in args {
        let named = arg.split_once(['=', ':']).filter(|(name, _)| names_a_secret(name));
        // A key may begin with `-`. A one-letter option rarely follows such a name.
        let is_secret = std::mem::take(&mut next_is_secret) && !arg.starts_with("--");
        next_is_secret = named.is_none() && arg.starts_with('-') && names_a_secret(arg);
        shown.push(if is_secret {
            MASK.to_owned()
        } else if let Some((name, _)) = named {
            let sign = &arg[name.len()..=name.len()];
            format!("{name}{sign}{MASK}")
        } else if looks_secret(arg) {
            MASK.to_owned()
        } else {
            arg.clone()
        });
    }
    shown
}

fn begins_a_secret(text: &str) -> bool {
    MAKERS.iter().any(|prefix| text.starts_with(prefix)) || text.starts_with("Bearer ")
}

fn is_uuid(text: &str) -> bool {
    // The checks are in this order because the first one stops at the first other letter.
    text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
        && text.bytes().filter(u8::is_ascii_hexdigit).count() == 32
}

/// Returns where the last run of letters and digits begins that is long enough for a key.
fn last_key(text: &str) -> Option<usize> {
    let mut at = text.len();
    text.rsplit(|c: char| !c.is_ascii_alphanumeric()).find_map(|run| {
        let (digits, letters) = (run.bytes().any(|b| b.is_ascii_digit()), run.bytes().any(|b| b.is_ascii_alphabetic()));
        let start = at - run.len();
        at = text[..start].char_indices().next_back().map_or(0, |(before, _)| before);
        (run.len() >= LONG && digits && letters).then_some(start)
    })
}

/// Prefixes of some vendors' API keys and tokens, and of JWTs.
const MAKERS: [&str; 10] = ["sk-", "sk_", "ghp_", "gho_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "eyJ", "AKIA"];
/// A run of letters and digits of this length looks like a key; words that contain a digit are shorter.
const LONG: usize = 16;
/// OAuth parameters whose names do not say that they are secret.
const OAUTH: [&str; 3] = ["code", "code_verifier", "assertion"];
/// Authentication schemes in headers.
const SCHEMES: [&str; 5] = ["bearer", "basic", "digest", "token", "dpop"];
/// Parameters of an authentication challenge, which follow its scheme.
const PARAMETERS: [&str; 7] =
    ["realm", "scope", "error", "error_description", "error_uri", "resource_metadata", "algs"];
/// A value after a telling name that has fewer bytes is a word (`key=value`, `"key": "value"`).
const WORD: usize = 6;

/// Masks each credential in the text.
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

/// Finds the users, passwords and queries in URLs.
fn urls(text: &str, found: &mut Vec<(Range<usize>, &'static str)>) {
    let mut from = 0;
    while let Some(first) = text[from..].find("://").map(|at| from + at) {
        let end = end_of(text, first, |c| c.is_whitespace() || "\"'<>`|\\{}".contains(c));
        // A URL may contain another URL in its path; another URL in its query is hidden with the query.
        let query = text[first..end].find(['?', '#']).map(|query| first + query);
        let path = &text[..query.unwrap_or(end)];
        for (at, sign) in path[first..].match_indices("://") {
            let start = first + at + sign.len();
            let authority = &path[start..end_of(path, start, |c| c == '/')];
            if let Some(user) = authority.rfind('@') {
                found.push((start..start + user, MASK));
            }
        }
        if let Some(query) = query.filter(|query| query + 1 < end) {
            // A sentence may end after the URL.
            let last = first + text[first..end].trim_end_matches([',', '.', ';', ':', ')', ']']).len();
            found.push((query + 1..last.max(query + 1), "…"));
        }
        from = end;
    }
}

/// Finds `Bearer x` and `Basic x` anywhere.
fn schemes(text: &str, found: &mut Vec<(Range<usize>, &'static str)>) {
    let lower = text.to_ascii_lowercase();
    for scheme in ["bearer", "basic"] {
        for (at, _) in lower.match_indices(scheme) {
            let start = at + scheme.len();
            let blank = text[start..].find(|c: char| c != ' ').unwrap_or(0);
            // Without a blank, the scheme is part of a word, which the text may repeat many times.
            if blank == 0 {
                continue;
            }
            let end = end_of(text, start + blank, |c| !is_token(c));
            let token = &text[start + blank..end];
            let is_word = token.bytes().all(|byte| byte.is_ascii_lowercase() || b".-".contains(&byte));
            // A challenge says `Bearer error="…"`.
            let is_parameter = token.strip_suffix('=').is_some_and(|name| PARAMETERS.contains(&name));
            if token.len() >= WORD && !is_word && !is_parameter && !is_placeholder(token) {
                found.push((start + blank..end, MASK));
            }
        }
    }
}

/// Finds `name=value`, `"name":"value"`, and headers.
fn pairs(text: &str, found: &mut Vec<(Range<usize>, &'static str)>) {
    let (mut bare_value, mut cookies) = (Bare::default(), 0..0);
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
        let value = value(text, at + sign.len(), &mut bare_value);
        let (range, in_quotes) = (value.range(), matches!(value, Value::Quoted(_)));
        let shown = &text[range.clone()];
        let cookie = lower.ends_with("cookie") && sign == ":" && value.has_equals(text);
        let hide = match (sign, in_quotes) {
            _ if shown.is_empty() || shown == MASK || is_reference(shown) => false,
            _ if cookie => true,
            // A sentence may end or continue after the value; any other character belongs to the password.
            ("=", _) => shown.strip_suffix([':', '.']).unwrap_or(shown).len() >= WORD,
            // A name in quotes is JSON; otherwise it may be a sentence.
            (_, true) => quoted && shown.len() >= WORD || value.looks_secret(text),
            (_, false) => value.looks_secret(text) || credential(text, range.clone(), found),
        };
        if hide {
            let mut end = range.end;
            if cookie && !in_quotes {
                if !cookies.contains(&range.start) {
                    cookies = range.start..end_of(text, range.start, |c| "\"'\n\\".contains(c));
                }
                end = cookies.end;
            }
            found.push((range.start..end, MASK));
        }
    }
}

/// The last unquoted value that was scanned. A value that begins inside it has the same end, so the findings about that
/// end still hold.
#[derive(Clone, Default)]
struct Bare {
    range: Range<usize>,
    /// The position of the last `=` in it.
    equals: Option<usize>,
    /// The start of the last run in it that looks like a key.
    key: Option<usize>,
}

/// The value of a pair.
enum Value<'a> {
    Quoted(Range<usize>),
    /// From this position to the end of the scanned value.
    Bare(usize, &'a Bare),
}

impl Value<'_> {
    fn range(&self) -> Range<usize> {
        match self {
            Self::Quoted(range) => range.clone(),
            Self::Bare(start, whole) => *start..whole.range.end,
        }
    }

    fn has_equals(&self, text: &str) -> bool {
        match self {
            Self::Quoted(range) => text[range.clone()].contains('='),
            Self::Bare(start, whole) => whole.equals >= Some(*start),
        }
    }

    fn looks_secret(&self, text: &str) -> bool {
        let shown = &text[self.range()];
        match self {
            Self::Quoted(_) => looks_secret(shown),
            Self::Bare(start, whole) => begins_a_secret(shown) || is_uuid(shown) || whole.key >= Some(*start),
        }
    }
}

/// Finds the credential after an authentication scheme in a header. Returns false, because the scheme itself is no
/// secret.
fn credential(text: &str, scheme: Range<usize>, found: &mut Vec<(Range<usize>, &'static str)>) -> bool {
    if SCHEMES.iter().any(|known| text[scheme.clone()].eq_ignore_ascii_case(known)) {
        let start = scheme.end + text[scheme.end..].find(|c: char| c != ' ').unwrap_or(0);
        let end = end_of(text, start, |c| !is_token(c));
        if end > start && !is_placeholder(&text[start..end]) {
            found.push((start..end, MASK));
        }
    }
    false
}

/// Returns the value that begins at `from`, without its quotes. `last` is the unquoted value that was scanned last.
fn value<'a>(text: &str, from: usize, last: &'a mut Bare) -> Value<'a> {
    let start = from + text[from..].find(|c: char| c != ' ').unwrap_or(0);
    let escaped = usize::from(text[start..].starts_with('\\'));
    match text[start + escaped..].chars().next() {
        Some(quote @ ('"' | '\'')) => {
            let start = start + escaped + 1;
            Value::Quoted(start..end_of_quoted(text, start, quote, escaped == 1))
        }
        _ => {
            if !last.range.contains(&start) {
                let range = start..end_of(text, start, |c| c.is_whitespace() || "&,;\"'<>)]}|".contains(c));
                let shown = &text[range.clone()];
                let (equals, key) = (shown.rfind('='), last_key(shown));
                *last = Bare { range, equals: equals.map(|at| start + at), key: key.map(|at| start + at) };
            }
            Value::Bare(start, last)
        }
    }
}

/// Finds the closing quote. An escaped quote closes only a value that an escaped quote opened.
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

/// Finds keys that begin with a vendor's prefix.
fn makers(text: &str, found: &mut Vec<(Range<usize>, &'static str)>) {
    for prefix in MAKERS {
        let mut token = 0..0;
        for (at, _) in text.match_indices(prefix) {
            let inside = text[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
            if !token.contains(&at) {
                token = at..end_of(text, at, |c| !is_token(c));
            }
            if !inside && token.end - at >= LONG {
                found.push((at..token.end, MASK));
            }
        }
    }
}

/// Reports whether a value only names an environment variable, maybe after a scheme: `Bearer ${TOKEN}`. A variable with
/// a default value does not count.
fn is_reference(value: &str) -> bool {
    let bare = match value.split_once(' ') {
        Some((scheme, bare)) if SCHEMES.iter().any(|known| scheme.eq_ignore_ascii_case(known)) => bare,
        _ => value,
    };
    let name = bare.strip_prefix("${").and_then(|bare| bare.strip_suffix('}'));
    let name = name.map(|name| name.strip_prefix("env:").unwrap_or(name));
    name.is_some_and(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'))
}

/// Reports whether this is the placeholder that our help texts use, maybe at the end of a sentence, and not a token.
fn is_placeholder(token: &str) -> bool {
    token.trim_end_matches('.') == "TOKEN"
}

fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-._~+/=".contains(c)
}

fn end_of(text: &str, from: usize, ends: impl Fn(char) -> bool) -> usize {
    text[from..].find(ends).map_or(text.len(), |length| from + length)
}

/// Returns the length of the character at `at`.
fn next(text: &str, at: usize) -> usize {
    text[at..].chars().next().map_or(1, char::len_utf8)
}
