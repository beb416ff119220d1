//! Cuts texts and names into words that can be compared. Names are split where their case changes, words without
//! meaning are dropped, and the rest are reduced to their stems. Chinese, Japanese and Korean text becomes pairs of
//! characters. Pure.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::OnceLock;

use rust_stemmers::{Algorithm, Stemmer};

/// Words that tell nothing about a tool.
const STOP: &str = "a about all an and any are as at be been but by can could did do does for from had has have how i if in \
     into is it its let like may me my need of on or our please should so some somebody something such than that the their \
     them then there these they this those to tool us use used uses using want was we were what when where which who whose \
     why will with would you your";

/// The most characters of a word. Longer ones are cut, since nobody types them.
const LONGEST: usize = 40;

/// Passes the words of a text to `word`, in order.
pub(super) fn words(text: &str, mut word: impl FnMut(&str)) {
    runs(text).for_each(|run| tokens(run, &mut |token| word(&stem(token))));
}

/// Returns the runs of letters, digits and underscores of a text.
pub(super) fn runs(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|run| !run.is_empty())
}

/// Returns the word that a token is counted as.
pub(super) fn stem(token: &str) -> Cow<'_, str> {
    Stemmer::create(Algorithm::English).stem(token)
}

/// Gives away the tokens of a run, in order and in lower case, without those that say nothing.
pub(super) fn tokens(run: &str, token: &mut impl FnMut(&str)) {
    let mut lower = String::new();
    let mut put = |part: &str| {
        lower.clear();
        if part.is_ascii() {
            lower.push_str(&part[..part.len().min(LONGEST)]);
            lower.make_ascii_lowercase();
        } else {
            lower.extend(part.chars().flat_map(char::to_lowercase).take(LONGEST));
        }
        if !lower.is_empty() && !stop().contains(&*lower) {
            token(&lower);
        }
    };
    // Nearly every run is a plain word, perhaps the first one of a sentence.
    if run.bytes().enumerate().all(|(at, byte)| byte.is_ascii_lowercase() || at == 0 && byte.is_ascii_uppercase()) {
        return put(run);
    }
    // Whoever knows the name of an argument writes it as it is.
    let mut count = 0_usize;
    run.split('_').for_each(|part| parts(part, &mut |part| count += usize::from(!part.is_empty())));
    if count > 1 && run.is_ascii() {
        put(&run.replace('_', ""));
    }
    run.split('_').for_each(|part| scripts(part, &mut put));
}

/// Passes the words of a run of letters to `put`, split by script.
fn scripts(run: &str, put: &mut impl FnMut(&str)) {
    let mut rest = run;
    while let Some(first) = rest.chars().next() {
        let is_wide = is_cjk(first);
        let end = rest.find(|c: char| is_cjk(c) != is_wide).unwrap_or(rest.len());
        let (same, after) = rest.split_at(end);
        if is_wide {
            pairs(same, put)
        } else {
            parts(same, put)
        }
        rest = after;
    }
}

/// Returns the words of a text.
pub(super) fn all(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    words(text, |word| all.push(word.to_owned()));
    all
}

/// Reports whether a character belongs to a script without spaces between words.
pub(crate) fn is_cjk(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}'
        | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

fn stop() -> &'static HashSet<&'static str> {
    static WORDS: OnceLock<HashSet<&'static str>> = OnceLock::new();
    WORDS.get_or_init(|| STOP.split_whitespace().collect())
}

/// Passes each pair of neighbouring characters to `put`, or the only character.
fn pairs(text: &str, put: &mut impl FnMut(&str)) {
    let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    match starts.windows(3).next() {
        None => put(text),
        Some(_) => starts.windows(3).for_each(|window| put(&text[window[0]..window[2]])),
    }
}

/// Splits `listOpenPRs` and `HTTPServer` where a word begins. The plural of an acronym is the acronym.
fn parts(name: &str, put: &mut impl FnMut(&str)) {
    let mut start = 0;
    let name = match name.strip_suffix('s') {
        Some(acronym) if acronym.chars().rev().take(2).filter(|c| c.is_uppercase()).count() == 2 => acronym,
        _ => name,
    };
    let letters: Vec<(usize, char)> = name.char_indices().collect();
    for (index, window) in letters.windows(2).enumerate() {
        let [(_, before), (at, now)] = *window else { continue };
        let next = letters.get(index + 2).map(|(_, c)| *c);
        let begins = now.is_uppercase() && (!before.is_uppercase() || next.is_some_and(char::is_lowercase));
        if begins {
            put(&name[start..at]);
            start = at;
        }
    }
    put(&name[start..]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_and_texts_become_the_same_words() {
        assert_eq!(all("list_open-PRs"), ["listopen", "list", "open", "pr"]);
        assert_eq!(
            all("HTTPServer getFileInfo"),
            ["httpserver", "http", "server", "getfileinfo", "get", "file", "info"]
        );
        assert_eq!(all("Lists the issues of a repository."), ["list", "issu", "repositori"]);
        assert_eq!(all("searching files"), all("search file"));
    }

    #[test]
    fn text_without_spaces_becomes_pairs() {
        assert_eq!(all("搜索文件 file名"), ["搜索", "索文", "文件", "file", "名"]);
    }

    proptest! {
        #[test]
        fn any_text_has_words(text in "\\PC{0,60}") {
            for word in all(&text) {
                prop_assert!(!word.is_empty() && word.chars().count() <= LONGEST, "{word:?}");
            }
        }
    }
}
