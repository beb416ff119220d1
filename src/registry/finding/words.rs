//! Cuts a text into words, as a reader sees them.

use std::ops::Range;

use super::signs;

/// One word in lower case. Letters that look like Latin ones are replaced by these.
#[derive(Debug)]
pub(super) struct Word {
    pub(super) text: String,
    pub(super) range: Range<usize>,
}

/// Returns the words of a text in order. Apostrophes belong to words; invisible characters are left out.
pub(super) fn words(text: &str) -> Vec<Word> {
    let mut words = Vec::with_capacity(text.len() / 6);
    let (mut word, mut start) = (String::new(), 0);
    for (at, character) in text.char_indices() {
        let is_part = character.is_alphanumeric() || matches!(character, '\'' | '’') && !word.is_empty();
        if is_part {
            if word.is_empty() {
                start = at;
            }
            word.push(if character == '’' { '\'' } else { signs::plain(character) });
        } else if !word.is_empty() && !matches!(character, '\u{ad}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2064}')
        {
            words.push(Word { text: std::mem::take(&mut word), range: start..at });
        }
    }
    if !word.is_empty() {
        words.push(Word { text: word, range: start..text.len() });
    }
    words
}

/// Reports whether the text at `range` is only mentioned: it is in quotes, or the words before it negate it or announce
/// an example.
pub(super) fn is_only_told(text: &str, words: &[Word], range: &Range<usize>) -> bool {
    let before = text[..range.start].trim_end_matches([' ', '~', '/', '.', '<', '[']).chars().next_back();
    let quoted = matches!(before, Some('"' | '`' | '“' | '«' | '‘' | '\'' | '('));
    let first = words.partition_point(|word| word.range.start < range.start);
    let told = |word: &Word| {
        matches!(
            &*word.text,
            "not"
                | "never"
                | "don't"
                | "doesn't"
                | "won't"
                | "can't"
                | "cannot"
                | "isn't"
                | "no"
                | "e"
                | "eg"
                | "example"
                | "detect"
                | "detects"
                | "detecting"
                | "block"
                | "blocks"
                | "blocked"
                | "prevent"
                | "prevents"
                | "reject"
                | "rejects"
                | "rejected"
                | "refuse"
                | "refuses"
                | "like"
        )
    };
    let near = &words[first.saturating_sub(4)..first];
    // A negation in an earlier sentence does not count.
    let since = near.iter().rposition(|word| is_end(text, word.range.end)).map_or(0, |end| end + 1);
    quoted || near[since..].iter().any(told)
}

/// Reports whether a sentence ends after a word.
fn is_end(text: &str, at: usize) -> bool {
    let mut rest = text[at..].chars();
    match rest.next() {
        Some('!' | '?' | '\n' | ';') => true,
        Some('.' | ':') => rest.next().is_none_or(char::is_whitespace),
        _ => false,
    }
}
