//! Searches the tools of one catalog: indexes them, and ranks them for a query.
//!
//! In: the entries of a catalog, and a query. Out: the entries that fit, best first. The ranking is BM25F over six
//! fields. A word of the query also finds, at lower weights, words of similar meaning (`alike.rs`), the English words
//! for it (`languages.rs`), and words with nearly the same spelling. In each tool the meaning with the highest score
//! counts in full, and the other meanings a fifth. **Invariant:** pure; nothing is learned from queries, so the same
//! index and query give the same ranks.

mod alike;
mod describe;
mod languages;
#[cfg(test)]
mod plain;
mod reader;
mod section;
mod words;

use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

pub(crate) use describe::{Detail, described, structured};
use describe::{FIELDS, cut};
#[cfg(test)]
pub(super) use plain::Plain;
pub(super) use reader::Reader;
pub(super) use section::Section;
use section::{Counts, Places};
pub(crate) use words::is_cjk;

use super::entry::Entry;
use crate::nearest::distance;
/// Finds tools.
pub(crate) const FIND: &str = "find_tools";
/// Calls any tool.
pub(crate) const CALL: &str = "call_tool";
/// Calls a tool that only reads.
pub(crate) const READ: &str = "call_read_tool";
/// Runs a script that calls tools.
pub(crate) const RUN: &str = "run_script";
/// Reads the rest of a result that was cut.
pub(crate) const READ_RESULT: &str = "read_result";

/// Reports whether a name is that of a tool of mcp-host itself.
pub(crate) fn is_own(name: &str) -> bool {
    matches!(name, FIND | CALL | READ | RUN | READ_RESULT)
}

/// The weight of a word in each field, and how strongly the length of the field lowers it.
const WEIGHTS: [(f32, f32); FIELDS] = [
    // The name.
    (2.0, 0.4),
    // The first sentence of the description.
    (1.5, 0.5),
    // The server's alias.
    (0.8, 0.0),
    // The rest of the description.
    (0.3, 0.75),
    // The names of the arguments.
    (0.3, 0.75),
    // The descriptions of the arguments.
    (0.1, 0.75),
];

/// How fast repeating the same word stops adding to the score.
const SATURATION: f32 = 1.2;
/// The weight of a word of similar meaning, and that of a word with nearly the same spelling. A word in another
/// language has the weight of the English one.
const ALIKE: f32 = 0.7;
const NEARLY: f32 = 0.6;
/// The weight of the other meanings of a word in a tool, beside the best one.
const OTHERS: f32 = 0.2;
/// The score of a tool whose name is the query.
const NAMED: f32 = 1000.0;
/// The most words of a query that count.
const WORDS: usize = 64;
/// The most bytes of a name that are compared with other names.
const LONGEST: usize = 256;
/// How strongly ranks are smoothed when two rankings are merged.
const RECIPROCAL: f32 = 60.0;

/// Ranks the tools that a query may mean, by embeddings for example, beside mcp-host's own ranking. Both rankings have
/// equal weight (the sum of their reciprocals).
///
/// ```
/// use mcp_host::registry::{Entry, Ranker};
///
/// /// Prefers short names.
/// #[derive(Debug)]
/// struct Short;
///
/// impl Ranker for Short {
///     fn rank(&self, _query: &str, tools: &[Entry]) -> Vec<usize> {
///         let mut order: Vec<usize> = (0..tools.len()).collect();
///         order.sort_by_key(|at| tools[*at].name().len());
///         order
///     }
/// }
///
/// let builder = mcp_host::Host::builder().ranker(Short);
/// ```
pub trait Ranker: fmt::Debug + Send + Sync {
    /// Returns the indexes of the tools that fit, best first. This runs on a thread that may block.
    fn rank(&self, query: &str, tools: &[Entry]) -> Vec<usize>;
}

/// The tools of one catalog, ready to be searched.
#[derive(Default)]
pub(crate) struct Index {
    entries: Box<[Entry]>,
    /// The section of each server, with the index of its first tool.
    sections: Box<[(usize, Arc<Section>)]>,
    /// The words of all sections, in order of their texts.
    words: Box<[Word]>,
    /// For each tool and field, the factor by which the field's length lowers a word's weight.
    lengths: Box<[[f32; FIELDS]]>,
}

/// A word of one section.
struct Word {
    /// Its first bytes, which are nearly always enough to compare it.
    start: u64,
    section: u32,
    number: u32,
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Index of {} tools, {} words", self.entries.len(), self.words.len())
    }
}

impl Index {
    /// Builds the index of these servers, each given by its tools and its section.
    pub(super) fn of<'a>(servers: impl IntoIterator<Item = (&'a [Entry], &'a Arc<Section>)>) -> Self {
        let (mut entries, mut sections) = (Vec::new(), Vec::new());
        for (its, section) in servers {
            sections.push((entries.len(), Arc::clone(section)));
            entries.extend(searched(its).cloned());
        }
        let lengths = || sections.iter().flat_map(|(_, section)| section.lengths());
        let mean = means(entries.len(), lengths());
        let matters = |length: &Counts| {
            let matters = |field: usize| {
                let (_, matters) = WEIGHTS[field];
                let longer = if mean[field] > 0.0 { f32::from(length[field]) / mean[field] } else { 1.0 };
                1.0 - matters + matters * longer
            };
            std::array::from_fn(matters)
        };
        let lengths = lengths().map(matters).collect();
        let mut index = Self { entries: entries.into(), sections: sections.into(), words: Box::default(), lengths };
        let each = (0..).zip(&index.sections).flat_map(|(at, (_, section))| {
            let numbers = (0..).take(section.len());
            numbers.map(move |number| Word { start: start_of(section.word(number)), section: at, number })
        });
        let mut words: Box<[Word]> = each.collect();
        words.sort_unstable_by(|a, b| index.compare(a, (b.start, || index.text(b))).then(a.section.cmp(&b.section)));
        index.words = words;
        index
    }

    /// Returns the tools.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the indexes of the tools that fit a query, best first. `server` limits them to one server.
    pub(crate) fn rank(&self, query: &str, server: Option<&str>) -> Vec<usize> {
        let words: Vec<String> = words::all(query).into_iter().take(WORDS).collect();
        let mut scores = self.scores(&words);
        let query = query.trim();
        for (at, entry) in self.entries.iter().enumerate() {
            if entry.name() == query || entry.raw_name() == query {
                scores[at] += NAMED;
            }
        }
        let is_its = |entry: &Entry| server.is_none_or(|alias| entry.server().as_str() == alias);
        let mut order: Vec<usize> =
            (0..self.entries.len()).filter(|at| scores[*at] > 0.0 && is_its(&self.entries[*at])).collect();
        order.sort_by(|a, b| scores[*b].partial_cmp(&scores[*a]).unwrap_or(Ordering::Equal));
        order
    }

    /// Returns the names nearest to an unknown name, best first.
    pub(crate) fn nearest(&self, name: &str) -> Vec<&str> {
        const SHOWN: usize = 3;
        // A name can be as long as a request.
        let name = cut(name, LONGEST);
        let mut names: Vec<(usize, &str)> =
            self.entries.iter().map(|entry| (far(name, entry.name(), 64), entry.name())).collect();
        names.sort_unstable();
        let ranked = self.rank(name, None).into_iter().map(|at| self.entries[at].name());
        // A misspelt name is near in spelling; a synonym is found by the search.
        let near = names.iter().filter(|(far, name)| *far * 3 <= name.len()).map(|(_, name)| *name);
        let rest = names.iter().map(|(_, name)| *name);
        let mut nearest: Vec<&str> = Vec::with_capacity(SHOWN);
        for name in near.chain(ranked).chain(rest) {
            if nearest.len() == SHOWN {
                break;
            }
            if !nearest.contains(&name) {
                nearest.push(name);
            }
        }
        nearest
    }

    /// Returns the score of each tool for these words.
    fn scores(&self, words: &[String]) -> Vec<f32> {
        let all = self.entries.len();
        let (mut scores, mut matched) = (vec![0.0_f32; all], vec![0_u8; all]);
        // For each tool, the best score and the sum of the scores of one word's meanings; and the tools that have any
        // of them.
        let (mut counts, mut places) = (vec![(0.0_f32, 0.0_f32); all], Vec::new());
        for word in words {
            for (meant, weight) in self.meant(word) {
                let having = || self.words[meant.clone()].iter().map(|word| self.places(word));
                // Each meaning has its own rarity, so that a rare word does not lose weight to common words of similar meaning.
                let weight = weight * rarity(all, having().map(|(_, places)| places.left()).sum());
                for (first, its) in having() {
                    for (tool, counted) in its {
                        let at = first + tool;
                        let of = self.counts_for(at, counted);
                        let (best, sum) = &mut counts[at];
                        if *sum == 0.0 {
                            places.push(at);
                        }
                        let count = weight * of * (SATURATION + 1.0) / (of + SATURATION);
                        (*best, *sum) = (best.max(count), *sum + count);
                    }
                }
            }
            for at in places.drain(..) {
                let (best, sum) = std::mem::take(&mut counts[at]);
                scores[at] += best + OTHERS * (sum - best);
                matched[at] += 1;
            }
        }
        for (score, matched) in scores.iter_mut().zip(matched) {
            *score *= f32::from(matched).sqrt();
        }
        scores
    }

    /// Returns the weight of a word in the tool with this index; `counts` says how often each field has the word.
    fn counts_for(&self, at: usize, counts: Counts) -> f32 {
        let matters = &self.lengths[at];
        let weight = |field: usize| WEIGHTS[field].0 * f32::from(counts[field]) / matters[field];
        (0..FIELDS).map(weight).sum()
    }

    /// Returns the meanings of a word of a query: their ranges in `words`, and their weights.
    fn meant(&self, word: &str) -> Vec<(Range<usize>, f32)> {
        let mut meant: Vec<(Range<usize>, f32)> = Vec::new();
        let mut add = |word: &str, weight: f32| {
            let found = self.find(word);
            if !found.is_empty() && meant.iter().all(|(known, _)| *known != found) {
                meant.push((found, weight));
            }
        };
        add(word, 1.0);
        let english = languages::meant(word);
        english.iter().for_each(|word| add(word, 1.0));
        for word in english.iter().map(String::as_str).chain([word]) {
            alike::alike(word).iter().for_each(|other| add(other, ALIKE));
        }
        if meant.is_empty() {
            meant.extend(self.nearly(word).into_iter().map(|other| (other, NEARLY)));
        }
        meant
    }

    /// Returns the ranges in `words` of the known words with nearly the same spelling as an unknown word.
    fn nearly(&self, word: &str) -> Vec<Range<usize>> {
        let length = word.chars().count();
        let most = match length {
            0..=3 => return Vec::new(),
            4..=6 => 1,
            _ => 2,
        };
        if word.chars().any(is_cjk) {
            return Vec::new();
        }
        let first = word.chars().next().map_or(0, char::len_utf8);
        let (first, mut at) = (&word[..first], self.begin(&word[..first]));
        let mut near: Vec<(usize, &str, Range<usize>)> = Vec::new();
        for same in self.words[at..].chunk_by(|a, b| self.text(a) == self.text(b)) {
            let other = same.first().map_or("", |word| self.text(word));
            if !other.starts_with(first) {
                break;
            }
            let far = far(word, other, most);
            if far <= most {
                near.push((far, other, at..at + same.len()));
            }
            at += same.len();
        }
        near.sort_unstable_by_key(|(far, other, _)| (*far, *other));
        let best = near.first().map(|(far, ..)| *far);
        near.into_iter().filter(|(far, ..)| Some(*far) == best).take(4).map(|(.., at)| at).collect()
    }

    /// Returns the range of a word in `words`.
    fn find(&self, word: &str) -> Range<usize> {
        let begin = self.begin(word);
        let same = self.words[begin..].iter().take_while(|other| self.text(other) == word);
        begin..begin + same.count()
    }

    /// Returns the index in `words` of the first word that does not sort before this one.
    fn begin(&self, word: &str) -> usize {
        let start = start_of(word);
        self.words.partition_point(|other| self.compare(other, (start, || word)).is_lt())
    }

    /// Compares a word with another one, given by its first bytes and its text.
    fn compare<'a>(&self, word: &Word, (start, text): (u64, impl Fn() -> &'a str)) -> Ordering {
        // No word has a zero byte, so this is the order of the texts.
        word.start.cmp(&start).then_with(|| self.text(word).cmp(text()))
    }

    fn text(&self, word: &Word) -> &str {
        self.section(word).1.word(word.number)
    }

    /// Returns the tools that have a word, with the index of the first tool of their server.
    fn places(&self, word: &Word) -> (usize, Places<'_>) {
        let (first, section) = self.section(word);
        (*first, section.places(word.number))
    }

    fn section(&self, word: &Word) -> &(usize, Arc<Section>) {
        &self.sections[word.section as usize]
    }

    /// Returns how many of its sections are also in another index.
    #[cfg(test)]
    pub(super) fn shared(&self, other: &Self) -> usize {
        let is_shared = |section: &Arc<Section>| other.sections.iter().any(|(_, other)| Arc::ptr_eq(section, other));
        self.sections.iter().filter(|(_, section)| is_shared(section)).count()
    }
}

/// Returns those of a server's tools that are searched: the host's own are not.
pub(super) fn searched(entries: &[Entry]) -> impl Iterator<Item = &Entry> {
    entries.iter().filter(|entry| !is_own(entry.name()))
}

/// Returns the first bytes of a word, as a number whose order is theirs.
fn start_of(word: &str) -> u64 {
    let mut start = [0; size_of::<u64>()];
    start.iter_mut().zip(word.bytes()).for_each(|(to, byte)| *to = byte);
    u64::from_be_bytes(start)
}

/// Returns the weight of a word that is in `with` of `all` tools.
#[expect(clippy::cast_precision_loss, reason = "far fewer tools than 2^24")]
fn rarity(all: usize, with: usize) -> f32 {
    let (all, with) = (all as f32, with as f32);
    (1.0 + (all - with + 0.5) / (with + 0.5)).ln()
}

/// Merges two rankings by the sums of their reciprocal ranks. What is in neither is left out.
pub(crate) fn merged(count: usize, orders: [&[usize]; 2]) -> Vec<usize> {
    let mut scores = vec![0.0_f32; count];
    for order in orders {
        let mut seen = vec![false; count];
        for (rank, at) in (1_u16..).zip(order) {
            // An embedder's ranker may name a tool twice, or one that does not exist.
            if seen.get(*at) == Some(&false) {
                seen[*at] = true;
                scores[*at] += 1.0 / (RECIPROCAL + f32::from(rank));
            }
        }
    }
    let mut merged: Vec<usize> = (0..count).filter(|at| scores[*at] > 0.0).collect();
    merged.sort_by(|a, b| scores[*b].partial_cmp(&scores[*a]).unwrap_or(Ordering::Equal));
    merged
}

/// Returns the mean length of each field.
fn means<'a>(count: usize, lengths: impl Iterator<Item = &'a Counts>) -> [f32; FIELDS] {
    let mut sums = [0.0_f32; FIELDS];
    for length in lengths {
        sums.iter_mut().zip(length).for_each(|(sum, one)| *sum += f32::from(*one));
    }
    #[expect(clippy::cast_precision_loss, reason = "far fewer tools than 2^24")]
    let count = count.max(1) as f32;
    sums.map(|sum| sum / count)
}

/// Returns the distance of two words, comparing only their first letters; some number above `most` if it is larger than
/// that.
fn far(a: &str, b: &str, most: usize) -> usize {
    let cut = |word: &str| word.chars().take(LETTERS).collect::<String>();
    if a.chars().count().min(LETTERS).abs_diff(b.chars().count().min(LETTERS)) > most {
        return most + 1;
    }
    distance(&cut(a), &cut(b))
}

/// How many letters of each word are compared.
const LETTERS: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_that_changed_places_are_one_difference() {
        assert_eq!(far("serach", "search", 2), 1);
        assert_eq!(far("kubernets", "kubernetes", 2), 1);
        assert_eq!(far("", "abc", 5), 3);
        assert!(far("file", "repository", 2) > 2);
    }

    #[test]
    fn two_orders_count_alike_whatever_the_other_one_says() {
        assert_eq!(merged(3, [&[0, 1], &[1, 0]]), [0, 1]);
        assert_eq!(merged(3, [&[0, 1], &[1, 2, 2, 99]]), [1, 0, 2]);
    }
}
