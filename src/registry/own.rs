//! The tools of the host that find and call the others, and lists that have these in place of the others.
//!
//! **Invariant:** what a list leaves out is found and called as before: this changes what a list says, nothing else.

use std::sync::{Arc, OnceLock};

use super::compact::compacted;
use super::edit::Edited;
use super::lens::rewritten;
use super::part::Part;
use super::piece::Piece;
use super::search::{READ, is_own};
use super::settle::settle;
use super::{Caps, Catalog, Contribution, Entry, Kind, OfferBuilder, ParamHeaders, ServerNaming};

use crate::config::{Compact, Prefix};
use crate::exposed::Naming;
use crate::name::ServerName;
use crate::protocol::Raw;

/// The definitions, as a page of a list. They stand in every prompt, so they are short.
const DEFINITIONS: &str = r#"{"tools":[{"name":"find_tools","description":"Finds tools of the servers behind this endpoint. Returns their names, arguments and purposes; call one with call_tool. Without arguments: the servers.","inputSchema":{"type":"object","properties":{"query":{"type":"string","description":"What the tool should do, in a few words"},"server":{"type":"string","description":"Only of this server; alone: all its names"},"names":{"type":"array","items":{"type":"string"},"description":"Describe these tools"},"limit":{"type":"integer","minimum":1,"maximum":20,"default":5},"detail":{"type":"string","enum":["brief","signature","schema"],"default":"signature"},"after":{"type":"string","description":"The last name of the page before"}}},"annotations":{"readOnlyHint":true,"openWorldHint":false}},{"name":"call_tool","description":"Calls a tool that find_tools found.","inputSchema":{"type":"object","properties":{"name":{"type":"string"},"arguments":{"type":"object"}},"required":["name"]},"execution":{"taskSupport":"optional"}},{"name":"call_read_tool","description":"Calls a tool that only reads.","inputSchema":{"type":"object","properties":{"name":{"type":"string"},"arguments":{"type":"object"}},"required":["name"]},"annotations":{"readOnlyHint":true},"execution":{"taskSupport":"optional"}}]}"#;

/// How a list differs from what servers wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// All tools, with less in their definitions.
    Compact(Compact),
    /// The host's tools, and those that are always listed; whether any tool is trusted to only read.
    Search { reads: bool },
}

/// Returns the host's tools, ready to be listed.
fn own(reads: bool) -> Arc<Piece> {
    static OWN: OnceLock<Arc<Piece>> = OnceLock::new();
    let all = OWN.get_or_init(|| {
        let mut builder = OfferBuilder::new(Caps::default(), ParamHeaders::Ignore);
        let page = builder.page(Kind::Tools, &Raw::trusted(DEFINITIONS.as_bytes().into()));
        debug_assert!(page.is_ok(), "they are valid");
        let alias = ServerName::from_config("mcp-host").expect("it is a name");
        let settings = Arc::new(ServerNaming { prefix: Prefix::Never, ..ServerNaming::default() });
        // No server has this index, and no request is routed by it.
        let from = Contribution { server: usize::MAX, alias, settings, offer: Arc::new(builder.finish()) };
        let part = Part::new(from, &Arc::new(Naming::default()));
        Arc::new(Piece::new(&part.origin, part.list(Kind::Tools), settle(&part, Kind::Tools, None), None))
    });
    if reads {
        return Arc::clone(all);
    }
    let kept = all.entries.iter().filter(|entry| entry.name() != READ).cloned();
    Arc::new(Piece::of(kept.collect(), all.heads.clone(), all.problems.clone()))
}

impl Catalog {
    /// Returns the same catalog with another list of tools. In search form, `is_kept` says which of them stay.
    pub(crate) fn relisted(&self, form: Form, is_kept: impl Fn(&Entry) -> bool) -> Self {
        match form {
            Form::Compact(how) => self.with_tools(None, |piece| compact_piece(piece, how)),
            Form::Search { reads } => self.with_tools(Some(own(reads)), |piece| {
                let kept: Vec<Entry> =
                    piece.entries.iter().filter(|entry| !is_own(entry.name()) && is_kept(entry)).cloned().collect();
                match kept.len() == piece.entries.len() {
                    true => Arc::clone(piece),
                    false => Arc::new(Piece::of(kept, piece.heads.clone(), piece.problems.clone())),
                }
            }),
        }
    }
}

/// Reports whether a tool is to be listed in any case, by its own word: it has a user interface, or says so.
pub(crate) fn is_always(entry: &Entry) -> bool {
    let definition = entry.source();
    if !definition.links.is_empty() {
        return true;
    }
    let mark = definition.json.member("_meta").and_then(|meta| meta.member("anthropic/alwaysLoad"));
    mark.is_some_and(|mark| mark.as_bytes() == b"true")
}

fn compact_piece(piece: &Arc<Piece>, how: Compact) -> Arc<Piece> {
    let edit = |entry: &Entry| {
        let json = compacted(&entry.source().json, how)?;
        Some(Edited { json, arguments: entry.edit().cloned() })
    };
    let kept: Vec<_> = piece.entries.iter().map(|entry| (entry, edit(entry), entry.rules().cloned())).collect();
    if kept.iter().all(|(_, edited, _)| edited.is_none()) {
        return Arc::clone(piece);
    }
    Arc::new(Piece::of(rewritten(kept), piece.heads.clone(), piece.problems.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::tokens::estimate;

    #[test]
    fn the_tools_of_the_host_are_600_tokens_at_most() {
        let all = own(true);
        let tokens: usize = all.entries.iter().map(|entry| estimate(entry.definition().as_str())).sum();
        assert!(all.entries.len() == 3 && own(false).entries.len() == 2 && tokens <= 600, "{tokens}");
        assert!(all.problems.texts.is_empty(), "{:?}", all.problems);
    }
}
