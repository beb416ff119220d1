//! Cuts the texts of many tools into words. A text that occurs often is cut once. Pure.

use std::hash::BuildHasher as _;
use std::ops::Range;

use foldhash::fast::RandomState;

use super::words;

/// The longest run of letters whose words are remembered.
const RUN: usize = 64;
/// How many runs, and how many tokens, are remembered from one server to the next.
const REMEMBERED: usize = 1 << 16;

/// Cuts texts into words, and numbers the words. Tools have many words in common, so it remembers the words of each run of
/// letters, and the word of each token.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    runs: Texts,
    /// Where the words of each run are in `of_runs`.
    places: Vec<Range<usize>>,
    /// The numbers of the words of all runs.
    of_runs: Vec<usize>,
    tokens: Texts,
    /// The numbers of the words that tokens are counted as.
    of_tokens: Vec<usize>,
    words: Texts,
}

impl Reader {
    /// Gives away the numbers of the words of a run, in order.
    pub(super) fn words_of(&mut self, run: &str, give: impl FnMut(usize)) {
        if let Some(known) = self.runs.number(run) {
            return self.of_runs[self.places[known].clone()].iter().copied().for_each(give);
        }
        let start = self.of_runs.len();
        words::tokens(run, &mut |token| {
            let number = self.tokens.number(token).map(|known| self.of_tokens[known]);
            let number = number.unwrap_or_else(|| {
                let number = self.words.add(&words::stem(token));
                self.tokens.add(token);
                self.of_tokens.push(number);
                number
            });
            self.of_runs.push(number);
        });
        let words = start..self.of_runs.len();
        self.of_runs[words.clone()].iter().copied().for_each(give);
        if run.len() <= RUN {
            self.runs.add(run);
            self.places.push(words);
        } else {
            self.of_runs.truncate(start);
        }
    }

    /// Returns a word by its number.
    pub(super) fn word(&self, number: usize) -> &str {
        self.words.get(number)
    }

    /// Forgets everything if that is much: servers may say many words, and the next one says others. The numbers of words
    /// change by that.
    pub(super) fn forget(&mut self) {
        if self.tokens.ends.len().max(self.runs.ends.len()) > REMEMBERED {
            *self = Self::default();
        }
    }
}

/// Texts, each once and one behind another, with a number each. A map of strings would lie all over the memory, and to look
/// into it would take most of the time.
#[derive(Debug, Default)]
struct Texts {
    all: String,
    /// Where each text ends in `all`.
    ends: Vec<usize>,
    /// The numbers of the texts, each plus one, by the hashes of the texts: at the first free place from there on. Half of the
    /// places are free.
    slots: Vec<usize>,
    hashes: RandomState,
}

impl Texts {
    /// Returns a text by its number.
    fn get(&self, number: usize) -> &str {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.all[start..self.ends[number]]
    }

    /// Returns the number of a text, if it is known.
    fn number(&self, text: &str) -> Option<usize> {
        self.slots[self.slot(text)?].checked_sub(1)
    }

    /// Returns the number of a text, which is known from now on.
    fn add(&mut self, text: &str) -> usize {
        if let Some(known) = self.number(text) {
            return known;
        }
        let number = self.ends.len();
        self.all.push_str(text);
        self.ends.push(self.all.len());
        if self.slots.len() / 2 <= number {
            self.slots = vec![0; (self.slots.len() * 2).max(64)];
            (0..number).for_each(|known| self.put(known));
        }
        self.put(number);
        number
    }

    fn put(&mut self, number: usize) {
        if let Some(slot) = self.slot(self.get(number)) {
            self.slots[slot] = number + 1;
        }
    }

    /// Returns where a text is, or where it belongs. `None` if there is no place at all yet.
    fn slot(&self, text: &str) -> Option<usize> {
        let last = self.slots.len().checked_sub(1)?;
        let mut slot = usize::try_from(self.hashes.hash_one(text) & last as u64).ok()?;
        while let Some(number) = self.slots[slot].checked_sub(1)
            && self.get(number) != text
        {
            slot = (slot + 1) & last;
        }
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_text_has_the_words_that_it_has_alone(texts in prop::collection::vec("([a-cA-C_]{1,4}[ .-]?|\\PC{1,3}){0,20}", 0..8)) {
            let mut reader = Reader::default();
            for text in texts {
                let mut numbers = Vec::new();
                words::runs(&text).for_each(|run| reader.words_of(run, |number| numbers.push(number)));
                let read: Vec<&str> = numbers.into_iter().map(|number| reader.word(number)).collect();
                prop_assert_eq!(read, words::all(&text));
            }
        }
    }

    #[test]
    fn a_word_has_one_number_among_many() {
        let mut texts = Texts::default();
        let numbers = |texts: &mut Texts| (0..1000).map(|at| texts.add(&format!("w{at}"))).collect::<Vec<_>>();
        let (first, again) = (numbers(&mut texts), numbers(&mut texts));
        assert_eq!(first, (0..1000).collect::<Vec<_>>());
        assert_eq!(again, first);
        assert_eq!((texts.get(999), texts.number("w1000")), ("w999", None));
    }

    #[test]
    fn what_is_much_is_forgotten() {
        let mut reader = Reader::default();
        (0..=REMEMBERED).for_each(|at| reader.words_of(&format!("w{at}x"), |_| {}));
        reader.forget();
        let mut numbers = Vec::new();
        reader.words_of("w7x", |number| numbers.push(number));
        assert_eq!((numbers, reader.word(0)), (vec![0], "w7x"));
    }
}
