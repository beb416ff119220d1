//! One kept listing as text: written like a server's response, and read by the same reader under the same caps. A file
//! is trusted no more than the server itself, because anyone may have changed it.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Serialize;

use super::{ListKey, Listing};
use crate::lineage::HostId;
use crate::protocol::{ProtocolVersion, Raw, object};
use crate::registry::{Caps, Kind, Offer, OfferBuilder, ParamHeaders};
use crate::upstream::instructions;

const VERSION: u32 = 1;

/// The lists that are kept. Resources are not: they name files, and are valid only while the process that lists them
/// runs.
const KINDS: [Kind; 3] = [Kind::Tools, Kind::Prompts, Kind::ResourceTemplates];

/// How many bytes a listing may have in addition to its definitions.
const BESIDE: usize = 1 << 20;

/// A listing to keep.
#[derive(Clone, Debug)]
pub(super) struct Page {
    pub(super) key: ListKey,
    pub(super) revision: ProtocolVersion,
    pub(super) listing: Listing,
}

/// How to read a listing.
#[derive(Clone, Debug)]
pub(in crate::manager) struct Reader {
    pub(in crate::manager) caps: Caps,
    /// Whether the server is behind a URL.
    pub(in crate::manager) is_remote: bool,
    /// The id of this host: definitions that came through this host are left out.
    pub(in crate::manager) host: Option<HostId>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a> {
    version: u32,
    key: String,
    revision: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<&'a Raw>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompts: Option<Vec<&'a Raw>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_templates: Option<Vec<&'a Raw>>,
    /// The server's own text of definitions that are shown repaired, by list and name: pins are hashes of this text.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    said: BTreeMap<&'static str, BTreeMap<&'a str, &'a Raw>>,
}

/// Reports whether an offer may be kept: none of its lists failed. A list that failed may be back at the next start.
pub(super) fn is_whole(offer: &Offer) -> bool {
    !KINDS.into_iter().any(|kind| offer.failed(kind))
}

/// Returns the text of a listing.
pub(super) fn write(page: &Page) -> Vec<u8> {
    let offer = &page.listing.offer;
    let list = |kind| offer.has(kind).then(|| offer.definitions(kind).collect());
    let mended = |kind: Kind| {
        let said: BTreeMap<&str, &Raw> = offer.mended(kind).map(|(name, said)| (&**name, said)).collect();
        (!said.is_empty()).then_some((kind.member(), said))
    };
    let written = Written {
        version: VERSION,
        key: page.key.text(),
        revision: page.revision.to_string(),
        instructions: page.listing.instructions.as_deref(),
        tools: list(Kind::Tools),
        prompts: list(Kind::Prompts),
        resource_templates: list(Kind::ResourceTemplates),
        said: KINDS.into_iter().filter_map(mended).collect(),
    };
    serde_json::to_vec(&written).unwrap_or_default()
}

/// Returns the upper bound of a listing's text, in bytes.
pub(super) fn cap(reader: &Reader) -> usize {
    reader.caps.definitions.saturating_add(BESIDE)
}

/// Reads a kept listing and the text of its key. `None` if the text is broken, truncated, or of another version.
pub(super) fn read(text: Vec<u8>, reader: &Reader) -> Option<(String, Listing)> {
    let result = Raw::parse(&Bytes::from(text)).ok()?;
    let [version, key, revision, instructs] = result.members(["version", "key", "revision", "instructions"]);
    if version?.read::<u32>().ok()? != VERSION {
        return None;
    }
    let revision = ProtocolVersion::parse(&revision?.string()?)?;
    let rule = if revision.is_modern() && reader.is_remote { ParamHeaders::Mirror } else { ParamHeaders::Ignore };
    let mut builder = OfferBuilder::new(reader.caps, rule);
    if let Some(own) = &reader.host {
        // If the server is itself an mcp-host, its definitions already carry its id.
        builder = builder.below(own.as_str(), None);
    }
    let said = result.member("said");
    for kind in KINDS {
        let mended = said.as_ref().and_then(|said| said.member(kind.member()));
        for (name, said) in mended.iter().filter_map(|mended| object(mended.as_value())).flatten() {
            builder.was_said(kind, &name, Raw::trusted(Bytes::copy_from_slice(said.get().as_bytes())));
        }
        if result.member(kind.member()).is_some() && builder.page(kind, &result).ok()?.is_some() {
            // A kept listing is one page.
            return None;
        }
    }
    let offer = std::sync::Arc::new(builder.finish());
    let instructions = instructions(instructs.as_ref().map(Raw::as_value)).map(Into::into);
    Some((key?.string()?.into_owned(), Listing { offer, instructions }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const READER: Reader =
        Reader { caps: Caps { tools: 3, definitions: 4096, ..DEFAULT }, is_remote: false, host: None };
    const DEFAULT: Caps = Caps {
        tools: 1000,
        definitions: 8 << 20,
        definition: 1024,
        depth: 64,
        pages: 100,
        annotations: crate::registry::Annotations::Strip,
    };

    fn page(tools: &str) -> Page {
        let mut builder = OfferBuilder::new(DEFAULT, ParamHeaders::Ignore);
        let mut list = |kind, text: &str| {
            builder.page(kind, &Raw::parse(&text.to_owned().into()).unwrap()).unwrap();
        };
        list(Kind::Tools, tools);
        list(Kind::Prompts, r#"{"prompts":[{"name":"p","_meta":{"k":1.0}}]}"#);
        list(Kind::Resources, r#"{"resources":[{"uri":"file:///secret","name":"s"}]}"#);
        list(Kind::ResourceTemplates, r#"{"resourceTemplates":[{"uriTemplate":"file:///{path}","name":"t"}]}"#);
        let listing = Listing { offer: Arc::new(builder.finish()), instructions: Some("say please".into()) };
        Page { key: ListKey::Rest, revision: ProtocolVersion::LATEST_HANDSHAKE, listing }
    }

    fn text() -> String {
        String::from_utf8(write(&page(r#"{"tools":[{"name":"a","inputSchema":{"type":"object","n":1e400}}]}"#)))
            .unwrap()
    }

    fn names(listing: &Listing) -> Vec<&str> {
        listing.offer.definitions(Kind::Tools).map(Raw::as_str).collect()
    }

    #[test]
    fn what_was_written_is_read_back_without_resources() {
        let text = text();
        assert!(!text.contains("secret"), "{text}");
        let (key, listing) = read(text.clone().into_bytes(), &READER).unwrap();
        assert_eq!((key.as_str(), listing.instructions.as_deref()), ("rest", Some("say please")));
        let counts = Kind::ALL.map(|kind| listing.offer.count(kind));
        assert_eq!(counts, [1, 1, 0, 1]);
        let again = Page { listing, ..page(r#"{"tools":[]}"#) };
        assert_eq!(String::from_utf8(write(&again)).unwrap(), text, "byte for byte");
    }

    #[test]
    fn a_listing_that_is_cut_anywhere_is_none() {
        let text = text().into_bytes();
        for length in 0..text.len() {
            assert!(read(text[..length].to_vec(), &READER).is_none(), "{length}");
        }
    }

    #[test]
    fn what_is_strange_is_none() {
        let text = text();
        let changed = |from: &str, to: &str| {
            assert!(text.contains(from));
            read(text.replace(from, to).into_bytes(), &READER)
        };
        assert!(changed(r#""version":1"#, r#""version":2"#).is_none());
        assert!(changed(r#""revision":""#, r#""revision":"9"#).is_none());
        assert!(changed(r#""tools":["#, r#""tools":7,"x":["#).is_none());
        assert!(changed(r#""tools":["#, r#""nextCursor":"x","tools":["#).is_none());
        assert!(changed(r#""key":"rest""#, r#""key":7"#).is_none());
        assert!(read(vec![0xff; 100], &READER).is_none());
        assert!(read(vec![b'['; 1 << 20], &READER).is_none(), "no depth hurts");
    }

    /// The same text gives the same result, whether a server sends it or a file holds it.
    #[test]
    fn h41_h88_poison_is_worth_what_it_is_worth_from_a_server() {
        let poisoned = [
            r#"{"name":"a","inputSchema":null,"description":7}"#,
            r#"{"name":"b","description":"\u001b[2Jhidden\u202e"}"#,
            r#"{"name":"b"}"#,
            r#"{"inputSchema":{}}"#,
            r#"{"name":"c","inputSchema":[]}"#,
            r#"{"name":"d","name":"e"}"#,
            r#"7"#,
            r#"{"name":"f"}"#,
            r#"{"name":"g"}"#,
        ];
        let long = format!(r#"{{"name":"h","description":"{}"}}"#, "x".repeat(1100));
        let tools = format!("[{},{long}]", poisoned.join(","));
        let file = format!(r#"{{"version":1,"key":"rest","revision":"2025-06-18","tools":{tools}}}"#);
        let (_, kept) = read(file.into_bytes(), &READER).unwrap();
        let mut builder = OfferBuilder::new(READER.caps, ParamHeaders::Ignore);
        builder.page(Kind::Tools, &Raw::parse(&format!(r#"{{"tools":{tools}}}"#).into()).unwrap()).unwrap();
        let told = Listing { offer: Arc::new(builder.finish()), instructions: None };
        assert_eq!(names(&kept), names(&told));
        assert_eq!(names(&kept).len(), 3, "the cap of tools holds, too");
        assert_eq!(kept.offer.hash(), told.offer.hash(), "with the same problems reported");
        let text = names(&kept).concat();
        assert!(!text.contains("\\u001b") && !text.contains('\u{202e}'), "{text}");
    }

    #[test]
    fn a_list_that_failed_is_not_kept() {
        let mut builder = OfferBuilder::new(DEFAULT, ParamHeaders::Ignore);
        builder.fail(Kind::Resources, "no");
        assert!(is_whole(&builder.finish()), "resources are not kept anyway");
        let mut builder = OfferBuilder::new(DEFAULT, ParamHeaders::Ignore);
        builder.fail(Kind::Prompts, "no");
        assert!(!is_whole(&builder.finish()));
    }
}
