//! mcp-host's own tools that find and call the tools of servers: `find_tools`, `call_tool` and `call_read_tool`.
//!
//! A call of `call_tool` becomes the call that it names before anything looks at it, so it takes every step of a call
//! by name: view, pin, rules, limits, questions, progress, tasks. Only its result tells what was called. **Invariant:**
//! none of this decides what a client may see or call; what is found is what the client may call.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::client::Client;
use super::route::{One, OwnTool, Routed};
use super::through::{By, Through};
use super::{Mailbox, Router};
use crate::answered::Answered;
use crate::keep;
use crate::manager::{Lists, Manager};
use crate::protocol::{Method, Raw, Theirs, meta};
use crate::registry::search::{CALL, Detail, FIND, Index, READ, described, is_own, merged, structured};
use crate::registry::{Catalog, Entry, Kind};

/// Turns a call of `call_tool` into the call that it names; returns every other request unchanged.
pub(super) fn unwrap(manager: &Manager, client: &Client, routed: Routed) -> Routed {
    if routed.request.method != Method::ToolsCall || !(client.who.lists != Lists::Full || manager.may_search()) {
        return routed;
    }
    let Some(params) = &routed.request.params else { return routed };
    let reads = match params.text("name").as_deref() {
        Some(CALL) => false,
        Some(READ) => true,
        _ => return routed,
    };
    if has_its_own(manager, client, if reads { READ } else { CALL }) {
        return routed;
    }
    // A duplicate member is refused where every call is read.
    let Ok([_, arguments]) = params.distinct(["name", "arguments"]) else { return routed };
    let (params, through) = inner(params, arguments, reads);
    let mut routed = routed;
    (routed.request.params, routed.route, routed.through) = (Some(params), None, Some(Box::new(through)));
    routed
}

/// Reports whether the client calls a server's own tool of this name, since all tools are listed for this client.
fn has_its_own(manager: &Manager, client: &Client, name: &str) -> bool {
    !manager.is_searching(&client.who) && client.view(manager).callable.entry(Kind::Tools, name).is_some()
}

fn inner(params: &Raw, arguments: Option<Raw>, reads: bool) -> (Raw, Through) {
    let own = if reads { READ } else { CALL };
    let refuse = |text: String| {
        let refused = Some(failed(&text));
        (params.clone(), Through { tool: own.to_owned(), reads, refused, by: By::Search })
    };
    let arguments = arguments.unwrap_or_else(Raw::empty_object);
    let [name, given] = match arguments.distinct(["name", "arguments"]) {
        Ok(members) => members,
        Err(name) => return refuse(format!("{own}: the arguments hold `{name}` twice")),
    };
    let Some(name) = name.as_ref().and_then(Raw::string) else {
        return refuse(format!("{own}: `name` is missing; {FIND} finds the names of tools"));
    };
    if is_own(&name) {
        return refuse(format!("{own}: call `{name}` by its own name"));
    }
    let outer = params.with_member("name", Raw::from_value(&*name).as_bytes());
    let outer = match given {
        Some(given) if given.is_object() => outer.with_member("arguments", given.as_bytes()),
        Some(given) if given.as_bytes() != b"null" => {
            return refuse(format!("{own}: `arguments` of `{}` is not an object", Theirs(&name)));
        }
        _ => outer.with_member("arguments", b"{}"),
    };
    (outer, Through { tool: name.into_owned(), reads, refused: None, by: By::Search })
}

/// Returns a refusal if the call may only read and the tool may change something.
pub(super) fn changes(through: &Through, manager: &Manager, client: &Client, one: &One) -> Option<Raw> {
    let entry = one.listed.entry();
    if !through.reads || entry.is_some_and(|entry| manager.is_trusted_to_read(&client.who, &one.server, entry)) {
        return None;
    }
    let tool = Theirs(&through.tool);
    if through.by.is_script() {
        let text = format!(
            "scripts may call a tool only if the config says that it only reads, and `{tool}` may change something (host.catalog.code.tools)"
        );
        return Some(of_kind("denied", &text));
    }
    Some(failed(&format!("{READ}: `{tool}` is not known to only read; call it with {CALL}")))
}

/// Returns the answer for a name that no tool has.
pub(super) async fn unknown(through: &Through, manager: &Manager, client: &Client) -> Raw {
    let index = index(manager.twinned(&client.view(manager).callable)).await;
    let name = through.tool.clone();
    let near = move || index.nearest(&name).into_iter().map(|name| format!("`{name}`")).collect();
    let near: Vec<String> = keep::done(near).await;
    let help = match near.split_last() {
        None => String::new(),
        Some((last, [])) => format!("; the nearest is {last}"),
        Some((last, others)) => format!("; the nearest are {} and {last}", others.join(", ")),
    };
    let text = format!("no tool is called `{}`{help}", Theirs(&through.tool));
    if through.by.is_script() { of_kind("unknown", &text) } else { failed(&text) }
}

/// Returns a refusal with a kind that scripts can check.
fn of_kind(kind: &str, text: &str) -> Raw {
    let own = json!({ meta::HOST_ERROR: { "kind": kind } });
    failed(text).with_member("_meta", Raw::from_value(&own).as_bytes())
}

/// Returns the index of a catalog, which is built on a thread that may block.
async fn index(catalog: Arc<Catalog>) -> Arc<Index> {
    match catalog.index_now() {
        Some(index) => index,
        None => {
            let made = tokio::task::spawn_blocking(move || catalog.index());
            made.await.unwrap_or_default()
        }
    }
}

/// `find_tools`.
#[derive(Debug)]
pub(super) struct FindTools;

/// How many names a page has.
const PAGE: usize = 100;
/// How many tools are found at most.
const FOUND: usize = 20;
/// How many bytes of a query count.
const QUERY: usize = 1024;

impl OwnTool for FindTools {
    fn name(&self) -> &str {
        FIND
    }

    fn call<'a>(
        &'a self,
        router: &'a Router,
        client: &'a Arc<Client>,
        params: Raw,
        _: &'a Arc<Mailbox>,
    ) -> BoxFuture<'a, Answered> {
        Box::pin(async move {
            let Router(inner) = router;
            let view = client.settled_view(&inner.manager, &inner.background).await;
            let catalog = inner.manager.twinned(&view.callable);
            let wish = match Wish::read(&params) {
                Ok(wish) => wish,
                Err(text) => return Ok(failed(&text)),
            };
            let index = index(catalog).await;
            if let Some(server) = wish.server.as_deref()
                && !index.entries().iter().any(|entry| entry.server().as_str() == server)
            {
                let text = format!("{FIND}: no tool of a server `{}`. {}", Theirs(server), servers(&index).0);
                return Ok(failed(&text));
            }
            // Each unknown name is compared with the names of all tools.
            if !wish.names.is_empty() {
                return Ok(keep::done(move || named(&index, &wish)).await);
            }
            Ok(match &wish {
                Wish { query: Some(query), .. } => {
                    let ranks = ranked(&inner.manager, &index, query, wish.server.as_deref()).await;
                    found(&index, &wish, &ranks)
                }
                Wish { server: Some(server), .. } => match names_of(&index, server, wish.after.as_deref()) {
                    Ok(names) => names,
                    Err(text) => failed(&text),
                },
                _ => {
                    let (text, list) = servers(&index);
                    answer(&text, &Raw::from_value(&json!({ "servers": list })))
                }
            })
        })
    }
}

/// The arguments.
#[derive(Debug)]
struct Wish {
    query: Option<String>,
    server: Option<String>,
    names: Vec<String>,
    limit: usize,
    detail: Detail,
    after: Option<String>,
}

impl Wish {
    fn read(params: &Raw) -> Result<Self, String> {
        let arguments = params.member("arguments").unwrap_or_else(Raw::empty_object);
        let members = arguments.distinct(["query", "server", "names", "limit", "detail", "after"]);
        let members = members.map_err(|name| format!("{FIND}: the arguments hold `{name}` twice"))?;
        let [query, server, names, limit, detail, after] =
            members.map(|member| member.filter(|member| member.as_bytes() != b"null"));
        let text = |name: &str, member: Option<Raw>| match member {
            None => Ok(None),
            Some(member) => match member.string() {
                Some(text) => Ok(Some(text.into_owned()).filter(|text| !text.is_empty())),
                None => Err(format!("{FIND}: `{name}` is not a string")),
            },
        };
        let detail = match text("detail", detail)?.as_deref() {
            None | Some("signature") => Detail::Signature,
            Some("brief") => Detail::Brief,
            Some("schema") => Detail::Schema,
            Some(_) => return Err(format!("{FIND}: `detail` is not one of brief, signature, schema")),
        };
        let limit = match limit.map(|limit| limit.read::<usize>()) {
            None => 5,
            Some(Ok(limit @ 1..=FOUND)) => limit,
            Some(_) => return Err(format!("{FIND}: `limit` is not a whole number from 1 to {FOUND}")),
        };
        let names = match names.map(|names| names.read::<Vec<String>>()) {
            None => Vec::new(),
            Some(Ok(names)) if names.len() <= FOUND => names,
            Some(_) => return Err(format!("{FIND}: `names` is not an array of up to {FOUND} strings")),
        };
        let query = text("query", query)?;
        if query.as_ref().is_some_and(|query| query.len() > QUERY) {
            return Err(format!("{FIND}: `query` has more than {QUERY} bytes; a few words are enough"));
        }
        Ok(Self { query, server: text("server", server)?, names, limit, detail, after: text("after", after)? })
    }
}

/// Ranks the tools, with the embedding program's own ranker if it has one.
async fn ranked(manager: &Manager, index: &Arc<Index>, query: &str, server: Option<&str>) -> Vec<usize> {
    let (by, query, server) = (index.clone(), query.to_owned(), server.map(str::to_owned));
    // An unknown word is compared with all words of all tools, and servers may list any number of them.
    let (own, query, server) = keep::done(move || {
        let own = by.rank(&query, server.as_deref());
        (own, query, server)
    })
    .await;
    let Some(ranker) = manager.ranker() else { return own };
    let (index, fallback) = (index.clone(), own.clone());
    let both = move || {
        let entries = index.entries();
        let other = ranker.rank(&query, entries);
        let is_its = |at: &usize| {
            let entry = entries.get(*at);
            entry.is_some_and(|entry| server.as_deref().is_none_or(|alias| entry.server().as_str() == alias))
        };
        let other: Vec<usize> = other.into_iter().filter(is_its).collect();
        merged(entries.len(), [&own, &other])
    };
    tokio::task::spawn_blocking(both).await.unwrap_or(fallback)
}

fn found(index: &Index, wish: &Wish, ranks: &[usize]) -> Raw {
    if ranks.is_empty() {
        let text = format!("Nothing fits. Use other words, or look through a server. {}", servers(index).0);
        return answer(&text, &Raw::from_value(&json!({ "tools": [], "more": 0, "note": text })));
    }
    let shown: Vec<&Entry> = ranks.iter().take(wish.limit).filter_map(|at| index.entries().get(*at)).collect();
    told(&shown, wish.detail, ranks.len() - shown.len(), None)
}

fn named(index: &Index, wish: &Wish) -> Raw {
    let of = |name: &String| index.entries().iter().find(|entry| entry.name() == name);
    let shown: Vec<&Entry> = wish.names.iter().filter_map(of).collect();
    let unknown = wish.names.iter().filter(|name| of(name).is_none());
    let unknown = unknown.map(|name| {
        let near = index.nearest(name).first().map(|near| format!("; the nearest is `{near}`")).unwrap_or_default();
        format!("no tool is called `{}`{near}", Theirs(name))
    });
    let unknown: Vec<String> = unknown.collect();
    if shown.is_empty() {
        return failed(&unknown.join("\n"));
    }
    told(&shown, wish.detail, 0, Some(&unknown))
}

/// Describes tools, a line each, or with their schemas.
fn told(shown: &[&Entry], detail: Detail, more: usize, notes: Option<&[String]>) -> Raw {
    let schema = |entry: &Entry| {
        let schema = entry.source_member("inputSchema").filter(|_| detail == Detail::Schema);
        schema.filter(Raw::is_object)
    };
    let line = |entry: &&Entry| match schema(entry) {
        Some(schema) => format!("{}\n  inputSchema: {}", described(entry, detail), schema.as_str()),
        None => described(entry, detail),
    };
    let mut lines: Vec<String> = shown.iter().map(line).collect();
    lines.extend(notes.into_iter().flatten().cloned());
    if more > 0 {
        lines.push(format!("{more} more may fit."));
    }
    // Some clients give their model only the structured content, so it says all that the lines say.
    let tool = |entry: &&Entry| match schema(entry) {
        Some(schema) => structured(entry, detail).with_member("inputSchema", schema.as_bytes()),
        None => structured(entry, detail),
    };
    let tools: Vec<Raw> = shown.iter().map(tool).collect();
    let tools: Vec<&str> = tools.iter().map(Raw::as_str).collect();
    let mut all = Raw::trusted(format!(r#"{{"tools":[{}],"more":{more}}}"#, tools.join(",")).into());
    if let Some(notes) = notes.filter(|notes| !notes.is_empty()) {
        all = all.with_member("note", Raw::from_value(&notes.join("\n")).as_bytes());
    }
    answer(&lines.join("\n"), &all)
}

/// Returns one page of the names of a server's tools.
///
/// # Errors
/// With the answer, if no tool has the name `after`.
fn names_of(index: &Index, server: &str, after: Option<&str>) -> Result<Raw, String> {
    let mut names = index.entries().iter().filter(|entry| entry.server().as_str() == server).map(Entry::name);
    if let Some(after) = after
        && !names.by_ref().any(|name| name == after)
    {
        let after = Theirs(after);
        return Err(format!("{FIND}: {server} has no tool `{after}` now; leave out `after` for its first names"));
    }
    let shown: Vec<&str> = names.by_ref().take(PAGE).collect();
    let more = names.count();
    let mut text = shown.join("\n");
    if let (Some(last), true) = (shown.last(), more > 0) {
        text += &format!("\n{more} more: go on with after: \"{last}\"");
    }
    let tools: Vec<Value> = shown.iter().map(|name| json!({ "name": name })).collect();
    Ok(answer(&text, &Raw::from_value(&json!({ "tools": tools, "more": more }))))
}

/// Returns the servers with the counts of their tools, as a text and as values.
fn servers(index: &Index) -> (String, Vec<Value>) {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for entry in index.entries() {
        let alias = entry.server().as_str();
        match counts.last_mut().filter(|(last, _)| *last == alias) {
            Some((_, count)) => *count += 1,
            None => counts.push((alias, 1)),
        }
    }
    let each: Vec<String> = counts.iter().map(|(alias, count)| format!("{alias} ({count})")).collect();
    let text =
        if each.is_empty() { "No server has tools now.".to_owned() } else { format!("Servers: {}", each.join(", ")) };
    (text, counts.iter().map(|(alias, count)| json!({ "server": alias, "tools": count })).collect())
}

fn answer(text: &str, structured: &Raw) -> Raw {
    let content = Raw::from_value(&json!({ "content": [{ "type": "text", "text": text }] }));
    content.with_member("structuredContent", structured.as_bytes())
}

pub(super) fn failed(text: &str) -> Raw {
    Raw::from_value(&json!({ "content": [{ "type": "text", "text": text }], "isError": true }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn raw(text: &str) -> Raw {
        Raw::parse(&bytes::Bytes::copy_from_slice(text.as_bytes())).unwrap()
    }

    fn unwrapped(arguments: &str) -> (Raw, Through) {
        let params = raw(&format!(r#"{{"name":"call_tool","arguments":{arguments},"_meta":{{"progressToken":7}}}}"#));
        inner(&params, params.member("arguments"), false)
    }

    #[test]
    fn the_inner_call_keeps_every_byte_of_its_arguments() {
        let (params, through) = unwrapped(r#"{"name":"a__x","arguments":{"n":1.50,"n2":[1, 2]}}"#);
        assert_eq!(
            params.as_str(),
            r#"{"name":"a__x","arguments":{"n":1.50,"n2":[1, 2]},"_meta":{"progressToken":7}}"#
        );
        assert!(through.refused.is_none() && through.tool == "a__x");
    }

    #[test]
    fn what_names_no_call_is_refused() {
        for (arguments, text) in [
            ("{}", "call_tool: `name` is missing; find_tools finds the names of tools"),
            (r#"{"name":"call_tool"}"#, "call_tool: call `call_tool` by its own name"),
            (r#"{"name":"a","name":"b"}"#, "call_tool: the arguments hold `name` twice"),
            (r#"{"name":"a","arguments":"{}"}"#, "call_tool: `arguments` of `a` is not an object"),
        ] {
            let (_, through) = unwrapped(arguments);
            assert_eq!(through.refused, Some(failed(text)));
        }
    }

    proptest! {
        #[test]
        fn any_arguments_are_read_or_refused(text in "\\PC{0,30}", number in any::<i64>()) {
            let _ = Wish::read(&Raw::from_value(&json!({ "arguments": { "query": text, "limit": number } })));
            let _ = inner(&Raw::empty_object(), Some(Raw::from_value(&json!({ "name": text, "arguments": number }))), true);
        }
    }
}
