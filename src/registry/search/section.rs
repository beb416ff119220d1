//! The part of an index that is about one server's tools: which words each tool has, how often, and in which fields. It is
//! built once, and shared by the indexes of all catalogs that show these tools.
//!
//! In: entries, and a reader, which remembers the words of the texts that it has read. Out: a [`Section`], a few flat arrays.
//! **Invariant:** pure; nothing in a section depends on other servers' tools, so every catalog can use it.

use super::super::entry::Entry;
use super::describe::{FIELDS, texts};
use super::reader::Reader;
use super::words;

/// The most words of a tool's texts that are indexed, so that no server makes the index large. Of 426 tools of real
/// servers, the longest has 646.
pub(super) const SAID: usize = 1024;

/// How often a word is in each field of a tool.
pub(super) type Counts = [u16; FIELDS];

/// The words of one server's tools.
#[derive(Debug, Default)]
pub(crate) struct Section {
    /// All words, one behind another, in no order.
    text: Box<str>,
    /// Where each word ends in `text`, and where its places end in `places`.
    ends: Box<[(u32, u32)]>,
    /// The tools that have each word: their number, and for each tool the distance from the one before, the fields that have the
    /// word, and how often, unless it is once in each.
    places: Box<[u8]>,
    /// How many words each tool has.
    lengths: Box<[Counts]>,
}

/// The bit above the bits of the fields: it is set if counts follow.
const OFTEN: u8 = 1 << FIELDS;

impl Section {
    /// Makes the section of these tools.
    pub(crate) fn new<'a>(entries: impl Iterator<Item = &'a Entry>, reader: &mut Reader) -> Self {
        let (mut made, mut lengths) = (Making::default(), Vec::new());
        reader.forget();
        for (tool, entry) in (0..).zip(entries) {
            let (mut length, mut left) = ([0; FIELDS], SAID);
            texts(entry, |field, text| {
                for run in words::runs(text) {
                    // Here what follows does not count.
                    if left == 0 {
                        return;
                    }
                    reader.words_of(run, |word| {
                        if let Some(after) = left.checked_sub(1) {
                            left = after;
                            length[field] += 1;
                            made.add(word, tool, field);
                        }
                    });
                }
            });
            lengths.push(length);
        }
        made.finish(reader, lengths)
    }

    /// Returns how many words there are.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns a word by its number.
    pub(super) fn word(&self, number: u32) -> &str {
        let (start, end) = self.range(number, |(text, _)| *text);
        self.text.get(start..end).unwrap_or_default()
    }

    /// Returns the tools that have a word, by its number.
    pub(super) fn places(&self, number: u32) -> Places<'_> {
        let (start, end) = self.range(number, |(_, places)| *places);
        let mut places = Places { bytes: self.places.get(start..end).unwrap_or_default(), tool: 0, left: 0 };
        places.left = places.number();
        places
    }

    /// Returns how many words each tool has in each field.
    pub(super) fn lengths(&self) -> &[Counts] {
        &self.lengths
    }

    fn range(&self, number: u32, of: impl Fn(&(u32, u32)) -> u32) -> (usize, usize) {
        let end = |at: usize| self.ends.get(at).map_or(0, &of) as usize;
        let number = number as usize;
        (number.checked_sub(1).map_or(0, end), end(number))
    }
}

/// The tools that have a word, in order, with how often they have it.
#[derive(Debug)]
pub(super) struct Places<'a> {
    bytes: &'a [u8],
    tool: u32,
    left: u32,
}

impl Places<'_> {
    fn byte(&mut self) -> u8 {
        let [first, rest @ ..] = self.bytes else { return 0 };
        self.bytes = rest;
        *first
    }

    fn number(&mut self) -> u32 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            number |= u32::from(byte & 0x7f).checked_shl(shift).unwrap_or_default();
            shift += 7;
            if byte < 0x80 {
                return number;
            }
        }
    }

    /// Returns how many tools are left.
    pub(super) fn left(&self) -> usize {
        self.left as usize
    }
}

impl Iterator for Places<'_> {
    type Item = (usize, Counts);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        self.tool += self.number();
        let fields = self.byte();
        let mut counts = [0; FIELDS];
        for (field, count) in counts.iter_mut().enumerate() {
            if fields & (1 << field) != 0 {
                *count = if fields & OFTEN == 0 { 1 } else { u16::try_from(self.number()).unwrap_or(u16::MAX) };
            }
        }
        Some((self.tool as usize, counts))
    }
}

/// Writes seven bits in each byte, the lowest first.
fn write(bytes: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

/// A section that is being made.
#[derive(Debug, Default)]
struct Making {
    /// The words that it has.
    words: Vec<Had>,
    /// Where the reader's words are among these, by their numbers. For words that the section does not have, anywhere.
    at: Vec<usize>,
    places: Vec<Place>,
}

/// A word, and the places where it is: the first one, the last one, and how many.
#[derive(Debug)]
struct Had {
    word: usize,
    first: usize,
    last: usize,
    count: u32,
}

/// A tool that has a word.
#[derive(Debug)]
struct Place {
    tool: u32,
    counts: Counts,
    /// The next place of the same word.
    next: usize,
}

impl Making {
    /// Counts a word of the reader in a field of a tool. Tools come in order.
    fn add(&mut self, word: usize, tool: u32, field: usize) {
        if self.at.len() <= word {
            self.at.resize(word + 1, 0);
        }
        let here = self.places.len();
        if self.words.get(self.at[word]).is_none_or(|had| had.word != word) {
            self.at[word] = self.words.len();
            self.words.push(Had { word, first: here, last: here, count: 0 });
        }
        let had = &mut self.words[self.at[word]];
        let last = self.places.get_mut(had.last);
        if let Some(last) = last {
            if last.tool == tool {
                last.counts[field] = last.counts[field].saturating_add(1);
                return;
            }
            last.next = here;
        }
        (had.last, had.count) = (here, had.count + 1);
        let mut counts = [0; FIELDS];
        counts[field] = 1;
        self.places.push(Place { tool, counts, next: here });
    }

    fn finish(self, reader: &Reader, lengths: Vec<Counts>) -> Section {
        let (mut text, mut places) = (String::new(), Vec::new());
        let mut ends = Vec::with_capacity(self.words.len());
        for had in &self.words {
            text.push_str(reader.word(had.word));
            write(&mut places, had.count);
            let (mut at, mut before) = (had.first, 0);
            for _ in 0..had.count {
                let place = &self.places[at];
                write(&mut places, place.tool - before);
                place.write(&mut places);
                (at, before) = (place.next, place.tool);
            }
            // What does not fit into four gibibytes is not found.
            let (Ok(of_text), Ok(of_places)) = (u32::try_from(text.len()), u32::try_from(places.len())) else { break };
            ends.push((of_text, of_places));
        }
        Section { text: text.into(), ends: ends.into(), places: places.into(), lengths: lengths.into() }
    }
}

impl Place {
    fn write(&self, bytes: &mut Vec<u8>) {
        let had = || self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let fields = had().fold(0, |fields, (field, _)| fields | 1 << field);
        if self.counts.iter().all(|count| *count <= 1) {
            bytes.push(fields);
        } else {
            bytes.push(fields | OFTEN);
            had().for_each(|(_, count)| write(bytes, u32::from(*count)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_added_is_read(said in prop::collection::vec((0_u32..400, prop::collection::vec((0_usize..30, 0_usize..FIELDS), 0..40)), 0..20)) {
            let mut reader = Reader::default();
            for number in 0..30 {
                reader.words_of(&format!("x{number}"), |_| {});
            }
            let mut expected: HashMap<String, Vec<(usize, Counts)>> = HashMap::new();
            let mut said = said;
            said.sort_by_key(|(tool, _)| *tool);
            said.dedup_by_key(|(tool, _)| *tool);
            let mut made = Making::default();
            for (tool, words) in said {
                for (word, field) in words {
                    made.add(word, tool, field);
                    let places = expected.entry(format!("x{word}")).or_default();
                    let tool = tool as usize;
                    if places.last().is_none_or(|(last, _)| *last != tool) {
                        places.push((tool, [0; FIELDS]));
                    }
                    if let Some((_, counts)) = places.last_mut() {
                        counts[field] += 1;
                    }
                }
            }
            let section = made.finish(&reader, Vec::new());
            let read: HashMap<String, Vec<(usize, Counts)>> = (0..u32::try_from(section.len()).unwrap())
                .map(|number| (section.word(number).to_owned(), section.places(number).collect()))
                .collect();
            prop_assert_eq!(read, expected);
        }
    }

    #[test]
    fn a_number_is_read_as_it_was_written() {
        for number in [0, 1, 127, 128, 16_383, 16_384, u32::MAX] {
            let mut bytes = Vec::new();
            write(&mut bytes, number);
            let mut places = Places { bytes: &bytes, tool: 0, left: 0 };
            assert_eq!((places.number(), places.bytes), (number, &[][..]));
        }
    }
}
