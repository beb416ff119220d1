//! mcp-host's own tools that find and call the other tools and that read on in a result, and lists that include them.
//!
//! **Invariant:** only lists change here: a tool that a list leaves out is found and called as before.

use std::sync::{Arc, OnceLock};

use super::compact::compacted;
use super::edit::Edited;
use super::lens::rewritten;
use super::part::Part;
use super::piece::Piece;
use super::search::{READ, READ_RESULT, RUN, is_own};
use super::settle::settle;
use super::{Caps, Catalog, Contribution, Entry, Kind, OfferBuilder, ParamHeaders, ServerNaming};

use crate::config::{Compact, Prefix};
use crate::exposed::Naming;
use crate::name::ServerName;
use crate::protocol::{Raw, Theirs};

/// The definitions, as a page of a list. They are part of every prompt, so they are short.
const DEFINITIONS: &str = r#"{"tools":[{"name":"find_tools","description":"Finds tools of the servers behind this endpoint. Returns their names, arguments and purposes; call one with call_tool. Without arguments: the servers.","inputSchema":{"type":"object","properties":{"query":{"type":"string","description":"What the tool should do, in a few words"},"server":{"type":"string","description":"Only of this server; alone: all its names"},"names":{"type":"array","items":{"type":"string"},"description":"Describe these tools"},"limit":{"type":"integer","minimum":1,"maximum":20,"default":5},"detail":{"type":"string","enum":["brief","signature","schema"],"default":"signature"},"after":{"type":"string","description":"The last name of the page before"}}},"annotations":{"readOnlyHint":true,"openWorldHint":false}},{"name":"call_tool","description":"Calls a tool that find_tools found.","inputSchema":{"type":"object","properties":{"name":{"type":"string"},"arguments":{"type":"object"}},"required":["name"]},"execution":{"taskSupport":"optional"}},{"name":"call_read_tool","description":"Calls a tool that only reads.","inputSchema":{"type":"object","properties":{"name":{"type":"string"},"arguments":{"type":"object"}},"required":["name"]},"annotations":{"readOnlyHint":true},"execution":{"taskSupport":"optional"}},{"name":"run_script","description":"Runs JavaScript that calls tools: for many calls, or to return only what matters of large results. `await call(name, arguments)` gives the structured content, parsed JSON or text of a result, and throws CallError {kind, tool, text}. Promise.all calls in parallel. `input` is a global. End with `return VALUE`; console.log is shown, too. There are no modules, timers, files or network.","inputSchema":{"type":"object","properties":{"script":{"type":"string","description":"The body of an async function"},"input":{"description":"Any JSON"}},"required":["script"]},"annotations":{"readOnlyHint":false}},{"name":"read_result","description":"Reads on in a result that was cut. Give one of page, match and pointer.","inputSchema":{"type":"object","properties":{"id":{"type":"string"},"page":{"type":"integer","minimum":1,"default":1},"match":{"type":"string","description":"Only the lines that have this text"},"pointer":{"type":"string","description":"A JSON pointer into structuredContent"}},"required":["id"]},"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}}]}"#;

/// How a list differs from what servers wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) shown: Shown,
    /// Whether mcp-host offers the tool that reads on in results.
    pub(crate) reads_on: bool,
}

/// Which tools of servers a list has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// All tools, with compact definitions.
    Compact(Compact),
    /// Only the tools that are always listed, beside mcp-host's own. `reads` says whether any tool is trusted to only
    /// read, `runs` whether mcp-host runs scripts.
    Search { reads: bool, runs: bool },
}

/// Returns those of mcp-host's own tools that `is_kept` names, ready to be listed.
fn own(is_kept: impl Fn(&str) -> bool) -> Option<Arc<Piece>> {
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
    let kept: Vec<Entry> = all.entries.iter().filter(|entry| is_kept(entry.name())).cloned().collect();
    (!kept.is_empty()).then(|| Arc::new(Piece::of(kept, all.heads.clone(), all.problems.clone())))
}

impl Catalog {
    /// Returns the same catalog with another list of tools. In search form, `is_kept` says which of them stay.
    pub(crate) fn relisted(&self, form: Form, is_kept: impl Fn(&Entry) -> bool) -> Self {
        let reads_on = form.reads_on;
        match form.shown {
            Shown::Compact(how) => {
                // A client that calls this name means the server's tool.
                let reads_on = reads_on && self.entry(Kind::Tools, READ_RESULT).is_none();
                let own = own(|name| reads_on && name == READ_RESULT);
                self.with_tools(own, |piece| compact_piece(piece, how))
            }
            Shown::Search { reads, runs } => {
                let own = own(|name| match name {
                    READ => reads,
                    RUN => runs,
                    READ_RESULT => reads_on,
                    _ => true,
                });
                self.with_tools(own, |piece| {
                    let kept: Vec<Entry> =
                        piece.entries.iter().filter(|entry| !is_own(entry.name()) && is_kept(entry)).cloned().collect();
                    match kept.len() == piece.entries.len() {
                        true => Arc::clone(piece),
                        false => Arc::new(Piece::of(kept, piece.heads.clone(), piece.problems.clone())),
                    }
                })
            }
        }
    }
}

/// Describes a server's tool that clients who search do not get, since a tool of mcp-host has its name; `None` for all
/// others.
pub(crate) fn hidden(tool: &Entry) -> Option<String> {
    let told = |name: &str| {
        let name = Theirs(name);
        format!(
            "tool {name} left out for clients that search: mcp-host has a tool of that name; `rename` in the server's \
             entry gives it another one"
        )
    };
    is_own(tool.name()).then(|| told(tool.raw_name()))
}

/// Reports whether a tool must always be listed: it has a user interface, or its definition demands it.
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
        let all = own(|_| true).expect("there are some");
        let tokens = |runs: bool| {
            let kept = all.entries.iter().filter(|entry| (entry.name() == RUN) == runs);
            kept.map(|entry| estimate(entry.definition().as_str())).collect::<Vec<usize>>()
        };
        let (usual, scripts) = (tokens(false), tokens(true));
        assert!(usual.len() == 4 && usual.iter().sum::<usize>() <= 600, "{usual:?}");
        assert!(scripts.len() == 1 && scripts[0] <= 200, "{scripts:?}");
        assert!(all.problems.texts.is_empty(), "{:?}", all.problems);
    }
}
