//! The ranking in the plainest way, which makes everything anew for each catalog: what tests compare the index with.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::super::entry::Entry;
use super::describe::{DESCRIPTION, cut, properties, sentence};
use super::section::SAID;
use super::{
    ALIKE, FIELDS, NAMED, NEARLY, OTHERS, SATURATION, WEIGHTS, WORDS, alike, far, is_cjk, languages, rarity, words,
};
use crate::protocol::Raw;

/// The tools of one catalog.
pub(in super::super) struct Plain {
    entries: Vec<Entry>,
    /// Where each word is: the index of the entry, and how much the word counts there.
    postings: HashMap<String, Vec<(usize, f32)>>,
}

impl Plain {
    pub(in super::super) fn new(entries: Vec<Entry>) -> Self {
        let mut counts: HashMap<String, Vec<(usize, [u16; FIELDS])>> = HashMap::new();
        let mut lengths = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            let mut length = [0_u16; FIELDS];
            let said = fields(entry).into_iter().flat_map(|(field, text)| {
                let all = words::all(&text);
                all.into_iter().map(move |word| (field, word))
            });
            for (field, word) in said.take(SAID) {
                length[field] += 1;
                let places = counts.entry(word).or_default();
                if places.last().is_none_or(|(last, _)| *last != at) {
                    places.push((at, [0; FIELDS]));
                }
                if let Some((_, of)) = places.last_mut() {
                    of[field] += 1;
                }
            }
            lengths.push(length);
        }
        let mut mean = [0.0_f32; FIELDS];
        for length in &lengths {
            mean.iter_mut().zip(length).for_each(|(sum, one)| *sum += f32::from(*one));
        }
        #[expect(clippy::cast_precision_loss, reason = "far fewer tools than 2^24")]
        let mean = mean.map(|sum| sum / lengths.len().max(1) as f32);
        let weigh = |(at, of): (usize, [u16; FIELDS])| {
            let weight = |field: usize| {
                let (weight, matters) = WEIGHTS[field];
                let longer = if mean[field] > 0.0 { f32::from(lengths[at][field]) / mean[field] } else { 1.0 };
                weight * f32::from(of[field]) / (1.0 - matters + matters * longer)
            };
            (at, (0..FIELDS).map(weight).sum())
        };
        let postings =
            counts.into_iter().map(|(word, places)| (word, places.into_iter().map(weigh).collect())).collect();
        Self { entries, postings }
    }

    /// Returns the indexes of the tools that fit a query, best first. `server` limits them to one.
    pub(in super::super) fn rank(&self, query: &str, server: Option<&str>) -> Vec<usize> {
        let mut scores = vec![0.0_f32; self.entries.len()];
        let mut matched = vec![0_u8; self.entries.len()];
        for word in words::all(query).iter().take(WORDS) {
            let mut counts: HashMap<usize, (f32, f32)> = HashMap::new();
            for (meant, weight) in self.meant(word) {
                let having = &self.postings[meant];
                let weight = weight * rarity(self.entries.len(), having.len());
                for (at, of) in having {
                    let (best, sum) = counts.entry(*at).or_default();
                    let count = weight * of * (SATURATION + 1.0) / (of + SATURATION);
                    (*best, *sum) = (best.max(count), *sum + count);
                }
            }
            for (at, (best, sum)) in counts {
                scores[at] += best + OTHERS * (sum - best);
                matched[at] += 1;
            }
        }
        for (score, matched) in scores.iter_mut().zip(matched) {
            *score *= f32::from(matched).sqrt();
        }
        let query = query.trim();
        for (entry, score) in self.entries.iter().zip(&mut scores) {
            if entry.name() == query || entry.raw_name() == query {
                *score += NAMED;
            }
        }
        let fits =
            |at: &usize| scores[*at] > 0.0 && server.is_none_or(|alias| self.entries[*at].server().as_str() == alias);
        let mut order: Vec<usize> = (0..self.entries.len()).filter(fits).collect();
        order.sort_by(|a, b| scores[*b].partial_cmp(&scores[*a]).unwrap_or(Ordering::Equal));
        order
    }

    /// Returns the words that a word of a query means, with their weights.
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

    /// Returns the words that are spelled nearly like one that no tool has.
    fn nearly(&self, word: &str) -> Vec<&str> {
        let most = match word.chars().count() {
            0..=3 => return Vec::new(),
            4..=6 => 1,
            _ => 2,
        };
        if word.chars().any(is_cjk) {
            return Vec::new();
        }
        let near = self.postings.keys().filter(|other| other.chars().next() == word.chars().next());
        let mut near: Vec<(usize, &str)> =
            near.map(|other| (far(word, other, most), &**other)).filter(|(far, _)| *far <= most).collect();
        near.sort_unstable();
        let best = near.first().map(|(far, _)| *far);
        near.into_iter().filter(|(far, _)| Some(*far) == best).take(4).map(|(_, other)| other).collect()
    }
}

/// Returns the texts of a tool that are searched, each with the index of its field.
fn fields(entry: &Entry) -> Vec<(usize, String)> {
    let [title, description, schema] = entry.source_json().members(["title", "description", "inputSchema"]);
    let description = description.as_ref().and_then(Raw::string).unwrap_or_default();
    let (first, rest) = sentence(cut(&description, DESCRIPTION));
    let title = title.as_ref().and_then(Raw::string).unwrap_or_default();
    let mut fields = vec![
        (0, entry.raw_name().to_owned()),
        (1, format!("{title} {first}")),
        (2, entry.server().as_str().to_owned()),
        (3, rest.to_owned()),
    ];
    if let Some(schema) = schema {
        properties(&schema, |name, property| {
            fields.push((4, name.to_owned()));
            let property = Raw::part(schema.bytes(), property);
            if let Some(text) = property.text("description") {
                fields.push((5, cut(&text, DESCRIPTION).to_owned()));
            }
            properties(&property, |name, _| fields.push((4, name.to_owned())));
        });
    }
    fields
}
