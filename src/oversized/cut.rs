//! Shortens a result: splits it into what the client gets at once and what is stored.

use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::pages::floor;
use super::schema::Place;
use super::store::Held;
use crate::config::ResultLimits;
use crate::protocol::value::{array, member, object, string, text};
use crate::protocol::{Raw, meta, quoted};

/// A shortened result.
#[derive(Debug)]
pub(crate) struct Cut {
    /// The blocks that the client gets.
    blocks: Vec<Raw>,
    /// The whole text; `None` if the only change is that blocks became links.
    text: Option<Whole>,
    /// The images, audio and blobs that became links.
    media: Vec<Media>,
    structured: Option<Raw>,
}

/// The text of a result, and its structured content.
#[derive(Debug)]
struct Whole {
    /// What is to be stored; `None` once it was taken.
    held: Option<Held>,
    pages: usize,
    /// The size of its pages in bytes.
    size: usize,
    has_structured: bool,
    /// Whether the structured content was shortened.
    is_shorter: bool,
}

/// One image, audio, or blob that became a link.
#[derive(Debug)]
struct Media {
    /// Its index among the blocks that the client gets.
    at: usize,
    name: String,
    mime: Option<String>,
    /// Its size in bytes of base64.
    size: usize,
    held: Option<Held>,
}

/// What the note at the end of a shortened result needs to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tell<'a> {
    /// The name of the tool that reads the rest.
    pub(crate) tool: &'a str,
    pub(crate) keep: Duration,
    /// Whether the client supports links to resources.
    pub(crate) takes_links: bool,
}

/// The most items of arrays and characters of strings, tried from the mildest step to the strictest.
const STEPS: [(usize, usize); 9] =
    [(500, 4000), (200, 2000), (100, 1000), (50, 500), (20, 300), (10, 200), (5, 120), (2, 80), (0, 40)];
/// The mark at the end of a shortened string.
const MORE: char = '…';

/// Shortens a result that exceeds the limits; `None` if it does not, or if it is an error, a question, or a task.
pub(crate) fn cut(result: &Raw, definition: Option<&Raw>, limits: &ResultLimits) -> Option<Cut> {
    let results = &limits.results;
    let smallest = [results.limit, results.image].into_iter().filter(|limit| *limit > 0).min()?;
    if result.as_bytes().len() <= smallest {
        return None;
    }
    let [content, structured, error, kind, task] =
        result.members(["content", "structuredContent", "isError", "resultType", "task"]);
    let is_over = kind.is_none_or(|kind| kind.as_bytes() == b"\"complete\"");
    if !is_over || task.is_some() || error.is_some_and(|error| error.as_bytes() != b"false") {
        return None;
    }
    let content = content?;
    let mut cut = Cut { blocks: Vec::new(), text: None, media: Vec::new(), structured: None };
    let mut texts = Vec::new();
    for block in array(content.as_value())? {
        if let Some(media) = media(block, cut.blocks.len(), results.image) {
            cut.media.push(media);
            continue;
        }
        if let Some(said) = said_by(block) {
            texts.push((cut.blocks.len(), said));
        }
        cut.blocks.push(Raw::from_value(block));
    }
    let said: usize = texts.iter().map(|(_, said)| said.len()).sum();
    let bytes = said + structured.as_ref().map_or(0, |whole| whole.as_bytes().len());
    let own = definition.filter(|_| !limits.is_of_tool).and_then(own_limit);
    let limit = own.unwrap_or(0).max(results.limit);
    if results.limit > 0 && bytes > limit {
        cut.shorten(&texts, structured, definition, (results.preview, limit));
    }
    (cut.text.is_some() || !cut.media.is_empty()).then_some(cut)
}

/// Returns the limit that a tool sets for itself.
fn own_limit(definition: &Raw) -> Option<usize> {
    definition.member("_meta")?.member("anthropic/maxResultSizeChars")?.read::<usize>().ok()
}

/// Returns the text of a block; `None` if the block is not a text.
fn said_by(block: &RawValue) -> Option<String> {
    match &*text(block, "type")? {
        "text" => Some(text(block, "text")?.into_owned()),
        "resource" => Some(text(member(block, "resource")?, "text")?.into_owned()),
        _ => None,
    }
}

/// Turns an image, audio, or blob that exceeds the limit into a link.
fn media(block: &RawValue, at: usize, limit: usize) -> Option<Media> {
    let kind = text(block, "type")?;
    let (data, name, mime) = match &*kind {
        "image" | "audio" => (text(block, "data")?, kind.clone(), text(block, "mimeType")),
        "resource" => {
            let resource = member(block, "resource")?;
            let name = text(resource, "uri").unwrap_or("blob".into());
            (text(resource, "blob")?, name, text(resource, "mimeType"))
        }
        _ => return None,
    };
    if limit == 0 || data.len() <= limit {
        return None;
    }
    let mime = mime.map(|mime| mime.into_owned());
    let (size, held) = (data.len(), Held::blob(data.into_owned(), mime.clone()));
    Some(Media { at, name: name.into_owned(), mime, size, held: Some(held) })
}

impl Cut {
    /// Keeps the beginning of the texts and of the structured content, `preview` bytes of each. Pages of the whole have
    /// at most `page` bytes.
    fn shorten(
        &mut self,
        texts: &[(usize, String)],
        structured: Option<Raw>,
        definition: Option<&Raw>,
        (preview, page): (usize, usize),
    ) {
        let whole: Option<Value> = structured.as_ref().and_then(|whole| whole.read().ok());
        let repeats = |said: &str| {
            let is_it = |raw: &Raw| said == raw.as_str() || serde_json::from_str::<Value>(said).ok() == whole;
            structured.as_ref().is_some_and(is_it)
        };
        // The model gets the structured content, so a block that repeats it is dropped.
        let (mut left, mut gone) = (preview, Vec::new());
        for (at, said) in texts {
            if repeats(said) {
                gone.push(*at);
            } else if said.len() <= left {
                left -= said.len();
            } else {
                match begun(said, left) {
                    "" => gone.push(*at),
                    begun => self.blocks[*at] = with_text(&self.blocks[*at], begun),
                }
                left = 0;
            }
        }
        for media in &mut self.media {
            media.at -= gone.iter().filter(|at| **at < media.at).count();
        }
        let mut at = 0..;
        self.blocks.retain(|_| at.next().is_none_or(|at| !gone.contains(&at)));

        let schema: Option<Value> =
            definition.and_then(|tool| tool.member("outputSchema")).and_then(|schema| schema.read().ok());
        self.structured = structured.as_ref().map(|whole| shorter(whole, Place::of(schema.as_ref()), preview));
        let is_shorter = self.structured != structured;
        let says_all = texts.iter().all(|(_, said)| repeats(said));
        let text = match &structured {
            Some(structured) if says_all => structured.as_str().to_owned(),
            _ => texts.iter().map(|(_, said)| said.as_str()).collect::<Vec<_>>().join("\n"),
        };
        let (size, has_structured) = (text.len(), structured.is_some());
        let held = Held::text(text, structured, page);
        self.text = Some(Whole { pages: held.pages(), held: Some(held), size, has_structured, is_shorter });
    }

    /// Returns the text and the structured content, for the store.
    pub(crate) fn take_text(&mut self) -> Option<Held> {
        self.text.as_mut()?.held.take()
    }

    /// Returns the images, audio and blobs, for the store.
    pub(crate) fn take_media(&mut self) -> Vec<Held> {
        self.media.iter_mut().filter_map(|media| media.held.take()).collect()
    }

    /// Writes the answer for the client. `id` is the stored text's id, `ids` are those of the media.
    pub(crate) fn answer(&self, result: &Raw, id: Option<&str>, ids: &[String], tell: &Tell<'_>) -> Raw {
        let mut blocks: Vec<String> = self.blocks.iter().map(|block| block.as_str().to_owned()).collect();
        for (media, id) in self.media.iter().zip(ids).rev() {
            let link = link(id, &media.name, media.mime.as_deref(), media.size, tell.takes_links);
            blocks.insert(media.at.min(blocks.len()), link);
        }
        let mut answer = result.clone();
        if let (Some(whole), Some(id)) = (&self.text, id) {
            let said = Raw::from_value(&json!({ "type": "text", "text": whole.said(id, tell) }));
            blocks.push(said.as_str().to_owned());
            if tell.takes_links {
                blocks.push(link(id, "the whole result", Some("text/plain"), whole.size, true));
            }
            if let Some(structured) = &self.structured {
                answer = answer.with_member("structuredContent", structured.as_bytes());
            }
            let mark = json!({ "id": id, "bytes": whole.size, "pages": whole.pages });
            let own = answer.member("_meta").filter(Raw::is_object).unwrap_or_else(Raw::empty_object);
            let own = own.with_member(meta::CUT, Raw::from_value(&mark).as_bytes());
            answer = answer.with_member("_meta", own.as_bytes());
        }
        answer.with_member("content", format!("[{}]", blocks.join(",")).as_bytes())
    }
}

impl Whole {
    /// Writes the note that says what was shortened, and how to read on.
    fn said(&self, id: &str, tell: &Tell<'_>) -> String {
        let (tool, pages, keep) = (tell.tool, self.pages, tell.keep);
        let mut said = format!("[mcp-host: this is the beginning of a result of {} bytes. ", self.size);
        if self.is_shorter {
            said += "In structuredContent, arrays end early and long strings end with …. ";
        }
        said += &match pages {
            1 => format!("{tool} with id \"{id}\" gives the whole"),
            _ => format!("{tool} with id \"{id}\" and a page from 1 to {pages} gives the rest"),
        };
        said += ". With match, it gives the lines that have a text";
        if self.has_structured {
            said += ", and with pointer one part of structuredContent, such as \"/items/0\"";
        }
        said + &format!(". It is kept for {keep:?}.]")
    }
}

/// Returns the beginning of a text: whole lines if at least one fits, else whole characters.
fn begun(text: &str, most: usize) -> &str {
    let begun = &text[..floor(text, most)];
    match begun.rfind('\n') {
        Some(end) => &begun[..=end],
        None => begun,
    }
}

fn with_text(block: &Raw, begun: &str) -> Raw {
    match block.member("resource") {
        Some(resource) => block.with_member("resource", resource.with_member("text", &quoted(begun)).as_bytes()),
        None => block.with_member("text", &quoted(begun)),
    }
}

/// Returns structured content of at most `most` bytes, or as small as its schema allows.
fn shorter(whole: &Raw, place: Place<'_>, most: usize) -> Raw {
    if whole.as_bytes().len() <= most {
        return whole.clone();
    }
    let mut best = None;
    for steps in STEPS {
        let mut text = String::new();
        if !write(whole.as_value(), place, steps, &mut text) {
            break;
        }
        let is_small = text.len() <= most;
        best = Some(text);
        if is_small {
            break;
        }
    }
    match best {
        Some(best) if best.len() < whole.as_bytes().len() => Raw::trusted(best.into()),
        _ => whole.clone(),
    }
}

/// Writes a value with shorter arrays and strings. Returns `false` if it cannot be parsed.
fn write(value: &RawValue, place: Place<'_>, steps: (usize, usize), out: &mut String) -> bool {
    let json = value.get();
    match json.as_bytes().first() {
        Some(b'{') => {
            let Some(members) = object(value) else { return false };
            out.push('{');
            for (index, (name, inner)) in members.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                out.push_str(Raw::from_value(&**name).as_str());
                out.push(':');
                if !write(inner, place.member(name), steps, out) {
                    return false;
                }
            }
            out.push('}');
        }
        Some(b'[') => {
            let Some(items) = array(value) else { return false };
            let kept = place.fewest_items().map_or(items.len(), |fewest| steps.0.max(fewest));
            out.push('[');
            for (index, item) in items.into_iter().take(kept).enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                if !write(item, place.items(), steps, out) {
                    return false;
                }
            }
            out.push(']');
        }
        Some(b'"') => {
            let most = place.fewest_characters().map(|fewest| steps.1.max(fewest));
            let longer = most.zip(string(value)).filter(|(most, text)| text.chars().nth(*most).is_some());
            match longer {
                Some((most, text)) => {
                    let begun: String = text.chars().take(most - 1).chain([MORE]).collect();
                    out.push_str(Raw::from_value(&*begun).as_str());
                }
                None => out.push_str(json),
            }
        }
        _ => out.push_str(json),
    }
    true
}

/// Writes a link to a stored part; a text for a client without support for links.
fn link(id: &str, name: &str, mime: Option<&str>, size: usize, takes_links: bool) -> String {
    let uri = format!("{}{id}", super::SCHEME);
    if !takes_links {
        return json!({ "type": "text", "text": format!("{name}: {uri}") }).to_string();
    }
    let mut link = json!({ "type": "resource_link", "uri": uri, "name": name, "size": size });
    if let (Some(mime), Some(members)) = (mime, link.as_object_mut()) {
        members.insert("mimeType".to_owned(), mime.into());
    }
    link.to_string()
}
