//! Finds what stands at the front of names and URIs, where the alias of a server may be. Pure.

use crate::exposed::{Naming, SCHEME_HEADS, raw_uri};
use crate::name::ALIAS;

/// Reports whether a text can be the alias of a server.
pub(super) fn is_alias(text: &str) -> bool {
    let is_of_it = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=ALIAS).contains(&text.len()) && text.bytes().all(is_of_it)
}

/// Returns what stands at the front of a URI where the alias of a server may be, unless it is the beginning of a
/// scheme.
pub(super) fn uri_head(uri: &str) -> Option<&str> {
    let (head, _) = raw_uri(uri)?;
    (!SCHEME_HEADS.contains(&head)).then_some(head)
}

/// Returns every text in front of a separator in a name that may be an alias.
pub(super) fn heads<'a>(name: &'a str, naming: &Naming) -> impl Iterator<Item = &'a str> {
    let (bytes, separator) = (name.as_bytes(), naming.separator.as_bytes());
    let mut from = 0;
    // This runs for each call. Preparing a search, as `str::match_indices` does, would cost more than the search.
    let mut next = move || {
        loop {
            let at = from + memchr::memchr(*separator.first()?, bytes.get(from..)?)?;
            let is_separator = bytes[at..].starts_with(separator);
            from = at + if is_separator { separator.len() } else { 1 };
            if is_separator {
                return name.get(..at);
            }
        }
    };
    // A name may be megabytes of separators.
    std::iter::from_fn(move || next().filter(|head| head.len() <= ALIAS))
}
