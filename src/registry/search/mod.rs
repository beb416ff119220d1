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
mod words;

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;

use describe::cut;
pub(crate) use describe::{Detail, described, fields, structured};
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
const FIELDS: [(f32, f32); 6] = [
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
/// The most words of a tool's texts that are indexed, so that no server makes the index large. Of 426 tools of real
/// servers, the longest has 646.
const SAID: usize = 1024;
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
pub(crate) struct Index {
    entries: Box<[Entry]>,
    /// For each word: the index of each entry that has it, and how much the word counts there.
    postings: HashMap<Box<str>, Vec<(u32, f32)>>,
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Index of {} tools, {} words", self.entries.len(), self.postings.len())
    }
}

impl Index {
    /// Makes the index of these tools. This takes some 10 us for each tool.
    pub(crate) fn new(entries: Vec<Entry>) -> Self {
        let mut counts: HashMap<Box<str>, Vec<(u32, [u16; 6])>> = HashMap::new();
        let mut lengths = Vec::with_capacity(entries.len());
        for (at, entry) in (0..).zip(&entries) {
            let (mut length, mut count) = ([0_u16; 6], 0);
            for (field, text) in fields(entry) {
                words::words(&text, |word| {
                    count += 1;
                    if count > SAID {
                        return;
                    }
                    length[field] = length[field].saturating_add(1);
                    let places = match counts.get_mut(word) {
                        Some(places) => places,
                        None => counts.entry(word.into()).or_default(),
                    };
                    match places.last_mut().filter(|(last, _)| *last == at) {
                        Some((_, of)) => of[field] = of[field].saturating_add(1),
                        None => {
                            let mut of = [0; 6];
                            of[field] = 1;
                            places.push((at, of));
                        }
                    }
                });
            }
            lengths.push(length);
        }
        let mean = means(&lengths);
        let weigh = |(at, of): (u32, [u16; 6])| {
            let length = &lengths[at as usize];
            let weight = |field: usize| {
                let (weight, matters) = FIELDS[field];
                let longer = if mean[field] > 0.0 { f32::from(length[field]) / mean[field] } else { 1.0 };
                weight * f32::from(of[field]) / (1.0 - matters + matters * longer)
            };
            (at, (0..6).map(weight).sum())
        };
        let postings =
            counts.into_iter().map(|(word, places)| (word, places.into_iter().map(weigh).collect())).collect();
        Self { entries: entries.into(), postings }
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
                let having = self.postings.get(meant).map_or(&[][..], Vec::as_slice);
                // Each meaning has its own rarity, so that a rare word does not lose weight to common words of similar
                // meaning.
                let weight = weight * rarity(all, having.len());
                for (at, of) in having {
                    let (best, sum) = &mut counts[*at as usize];
                    if *sum == 0.0 {
                        places.push(*at as usize);
                    }
                    let count = weight * of * (SATURATION + 1.0) / (of + SATURATION);
                    (*best, *sum) = (best.max(count), *sum + count);
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

    /// Returns the meanings of a word of a query, with their weights.
    fn meant<'a>(&'a self, word: &'a str) -> Vec<(&'a str, f32)> {
        let mut meant: Vec<(&str, f32)> = Vec::new();
        let mut add = |word: &'a str, weight: f32| {
            if self.postings.contains_key(word) && meant.iter().all(|(known, _)| *known != word) {
                meant.push((word, weight));
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

    /// Returns the known words with nearly the same spelling as an unknown word.
    fn nearly(&self, word: &str) -> Vec<&str> {
        let length = word.chars().count();
        let most = match length {
            0..=3 => return Vec::new(),
            4..=6 => 1,
            _ => 2,
        };
        if word.chars().any(is_cjk) {
            return Vec::new();
        }
        let first = word.chars().next();
        let near = self.postings.keys().filter(|other| other.chars().next() == first);
        let mut near: Vec<(usize, &str)> =
            near.map(|other| (far(word, other, most), &**other)).filter(|(far, _)| *far <= most).collect();
        near.sort_unstable();
        let best = near.first().map(|(far, _)| *far);
        near.into_iter().filter(|(far, _)| Some(*far) == best).take(4).map(|(_, other)| other).collect()
    }
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

fn means(lengths: &[[u16; 6]]) -> [f32; 6] {
    let mut sums = [0.0_f32; 6];
    for length in lengths {
        sums.iter_mut().zip(length).for_each(|(sum, one)| *sum += f32::from(*one));
    }
    #[expect(clippy::cast_precision_loss, reason = "far fewer tools than 2^24")]
    let count = lengths.len().max(1) as f32;
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
