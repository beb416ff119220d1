//! Cuts results that are too large for a client's prompt, and returns the rest on request (`host.results`).
//!
//! In: the answer to a call. Out: the answer that the client gets. The last steps on a result are here, in their order:
//! the mark of `call_tool`, then the cut. `crate::oversized` decides what is cut.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::json;
use tokio::time::Instant;

use super::background::Background;
use super::client::Client;
use super::route::{OwnTool, Routed};
use super::search;
use super::through::Through;
use super::{Mailbox, Router};
use crate::answered::{Answered, NoResult};
use crate::keep;
use crate::manager::{Chosen, Manager, Principal};
use crate::oversized::{self, Held, Lost, Part, Room, SCHEME, Tell, cut, matching, pointed};
use crate::protocol::{ErrorObject, Method, ProtocolVersion, Raw, Theirs};
use crate::registry::Kind;
use crate::registry::search::READ_RESULT;

/// The results that are kept.
pub(super) type Store = oversized::Store<Principal, Chosen>;

/// A result of more bytes is cut on a thread that may block.
const LARGE: usize = 64 * 1024;

/// The last steps on the answer to a request, before its client gets it.
#[derive(Debug)]
pub(super) struct After {
    through: Option<Box<Through>>,
    /// The name of the tool, if its result may be cut.
    tool: Option<Box<str>>,
}

impl After {
    pub(super) fn of(manager: &Manager, client: &Client, routed: &Routed) -> Self {
        if routed.request.method != Method::ToolsCall || !manager.has_own_tools() {
            return Self { through: routed.through.clone(), tool: None };
        }
        // Another mcp-host process cuts results by its own config; a command of mcp-host shows the whole result.
        let is_ours = || client.named().0 == Some(env!("CARGO_PKG_NAME"));
        let cuts = manager.cuts_results(&client.who) && !is_ours();
        let params = routed.request.params.as_ref().filter(|_| cuts);
        Self { through: routed.through.clone(), tool: params.and_then(|params| params.text("name")).map(Into::into) }
    }

    /// Returns the word for the tool of mcp-host through which the call came, if any.
    pub(super) fn via(&self) -> Option<&'static str> {
        self.through.as_ref().map(|through| through.by.word())
    }

    /// Returns the answer that the client gets, if any is due.
    pub(super) async fn done(
        self,
        router: &Router,
        client: &Client,
        answered: Option<Answered>,
        leg: &Mailbox,
    ) -> Option<Answered> {
        let answered = match self.through {
            Some(through) => through.marked(answered?),
            None => answered?,
        };
        Some(match (self.tool, answered) {
            (Some(tool), Ok(result)) => {
                let cut = Box::pin(cut_for(router, client, (&tool, &result), leg.limits().results)).await;
                if let (Some(_), Some(subject)) = (&cut, leg.subject()) {
                    subject.was_cut();
                }
                Ok(cut.unwrap_or(result))
            }
            (_, answered) => answered,
        })
    }
}

/// Cuts a result; `None` if it stays unchanged. All kept results together may have `of_all` bytes.
async fn cut_for(router: &Router, client: &Client, (tool, result): (&str, &Raw), of_all: usize) -> Option<Raw> {
    let Router(inner) = router;
    let view = client.view(&inner.manager);
    let entry = view.callable.entry(Kind::Tools, tool);
    // A page of `read_result` is never cut.
    if entry.is_none() && tool == READ_RESULT {
        return None;
    }
    let limits = inner.manager.result_limits(&client.who, entry);
    let results = limits.results.clone();
    let definition = entry.map(|entry| entry.source_json().clone());
    let whole = result.clone();
    let cutting = move || cut(&whole, definition.as_ref(), &limits);
    let mut cut = if result.as_bytes().len() > LARGE { keep::done(cutting).await } else { cutting() }?;
    let owner = owner(client);
    let room = Room { of_one: results.store, of_all };
    let mut put = |held: Held| inner.oversized.put(owner.clone(), held, results.keep, room);
    // A result whose rest cannot be kept is not cut.
    let ids: Vec<String> = cut.take_media().into_iter().map(&mut put).collect::<Option<_>>()?;
    let text = match cut.take_text() {
        Some(held) => Some(put(held)?),
        None => None,
    };
    sweep(&inner.oversized, &inner.background);
    let takes_links = client.revision() >= ProtocolVersion::V2025_06_18;
    let tell = Tell { tool: READ_RESULT, keep: results.keep, takes_links };
    Some(cut.answer(result, text.as_deref(), &ids, &tell))
}

/// How long results may stay in memory after they expire, if one that was cut later expires sooner.
const LATE: Duration = Duration::from_secs(60);

/// Drops expired results, until none is left, so that they take no memory while no calls come.
fn sweep(store: &Arc<Store>, background: &Background) {
    if !store.needs_sweeping() {
        return;
    }
    let store = Arc::downgrade(store);
    background.spawn(async move {
        while let Some(next) = store.upgrade().and_then(|store| store.sweep()) {
            tokio::time::sleep_until(next.min(Instant::now() + LATE)).await;
        }
    });
}

/// Returns the owner of the results that are kept for this client: who may read them.
fn owner(client: &Client) -> (Principal, Chosen) {
    (client.who.principal.clone(), client.who.view.name.clone())
}

/// Returns mcp-host's own tool that reads on in a kept result: by its URI, or with `read_result`.
pub(super) fn own(by_uri: bool) -> &'static Arc<dyn OwnTool> {
    static TOOLS: OnceLock<[Arc<dyn OwnTool>; 2]> = OnceLock::new();
    let [result, resource] = TOOLS.get_or_init(|| [Arc::new(ReadResult), Arc::new(ReadKept)]);
    if by_uri { resource } else { result }
}

/// Reports whether a URI is that of a kept result.
pub(super) fn is_result(uri: &str) -> bool {
    uri.starts_with(SCHEME)
}

/// Returns the answer to a client that subscribes to a kept result.
pub(super) fn never_changes() -> NoResult {
    ErrorObject::invalid_params("resources/subscribe: a result does not change").into()
}

/// `read_result`.
#[derive(Debug)]
struct ReadResult;

impl OwnTool for ReadResult {
    fn name(&self) -> &str {
        READ_RESULT
    }

    fn call<'a>(
        &'a self,
        router: &'a Router,
        client: &'a Arc<Client>,
        params: Raw,
        _: &'a Arc<Mailbox>,
    ) -> BoxFuture<'a, Answered> {
        Box::pin(async move {
            let read = match Wish::read(&params) {
                Ok(wish) => wish.of(router, client).await,
                Err(text) => Err(text),
            };
            Ok(match read {
                Ok(text) => Raw::from_value(&json!({ "content": [{ "type": "text", "text": text }] })),
                Err(text) => search::failed(&format!("{READ_RESULT}: {text}")),
            })
        })
    }
}

/// The arguments of `read_result`.
#[derive(Debug)]
struct Wish {
    id: String,
    page: usize,
    part: Option<Select>,
}

/// A part of a result.
#[derive(Debug)]
enum Select {
    Matching(String),
    Pointer(String),
}

/// How many bytes `match` and `pointer` may have.
const WORDS: usize = 1024;

impl Wish {
    fn read(params: &Raw) -> Result<Self, String> {
        let arguments = params.member("arguments").unwrap_or_else(Raw::empty_object);
        let members = arguments.distinct(["id", "page", "match", "pointer"]);
        let members = members.map_err(|name| format!("the arguments hold `{name}` twice"))?;
        let [id, page, wanted, pointer] = members.map(|member| member.filter(|member| member.as_bytes() != b"null"));
        let id = id
            .as_ref()
            .and_then(Raw::string)
            .ok_or("`id` is missing; it stands at the end of a result that was cut")?;
        let page = match page.map(|page| page.read::<usize>()) {
            None => 1,
            Some(Ok(page @ 1..)) => page,
            Some(_) => return Err("`page` is not a whole number from 1 on".to_owned()),
        };
        let text = |name: &str, member: Option<Raw>| match member.as_ref().map(Raw::string) {
            None => Ok(None),
            Some(Some(text)) if text.len() <= WORDS => Ok(Some(text.into_owned())),
            Some(Some(_)) => Err(format!("`{name}` has more than {WORDS} bytes")),
            Some(None) => Err(format!("`{name}` is not a string")),
        };
        let part = match (text("match", wanted)?.filter(|text| !text.is_empty()), text("pointer", pointer)?) {
            (Some(_), Some(_)) => return Err("`match` and `pointer` do not go together".to_owned()),
            (Some(text), None) => Some(Select::Matching(text)),
            (None, Some(pointer)) => Some(Select::Pointer(pointer)),
            (None, None) => None,
        };
        Ok(Self { id: id.strip_prefix(SCHEME).unwrap_or(&id).to_owned(), page, part })
    }

    /// Returns the page that is asked for.
    async fn of(self, router: &Router, client: &Client) -> Result<String, String> {
        let Router(inner) = router;
        let held = inner.oversized.get(&owner(client), &self.id);
        let held = held.map_err(|lost| gone(&self.id, lost))?;
        keep::done(move || self.page_of(&held)).await
    }

    fn page_of(&self, held: &Held) -> Result<String, String> {
        let Held::Text { text, structured } = held else {
            return Err(format!("`{}` is no text; read the resource {SCHEME}{}", self.id, self.id));
        };
        let part = match &self.part {
            None => return page(text, self.page, ""),
            Some(Select::Matching(wanted)) => {
                let (found, count) = matching(text.text(), wanted);
                if count == 0 {
                    return Ok(format!("No line has the text {}.", Theirs(wanted)));
                }
                found
            }
            Some(Select::Pointer(pointer)) => {
                let whole = structured.as_ref().ok_or("this result has no structuredContent")?;
                pointed(whole, pointer).map_err(|why| format!("pointer {}: {why}", Theirs(pointer)))?
            }
        };
        page(&text.of_part(part), self.page, " of these")
    }
}

fn page(text: &Part, number: usize, of: &str) -> Result<String, String> {
    let pages = text.pages();
    let page = text.page(number).ok_or_else(|| format!("there is no page {number}{of}; the last is {pages}"))?;
    if pages == 1 || number == pages {
        return Ok(page.to_owned());
    }
    Ok(format!("{page}\n[mcp-host: page {number} of {pages}; go on with page {}]", number + 1))
}

/// Says why a result is not there.
fn gone(id: &str, lost: Lost) -> String {
    let id = Theirs(id);
    match lost {
        Lost::Expired => format!(
            "expired: the result {id} is no longer kept (host.results.keep, host.results.store, host.limits.results); call the tool again"
        ),
        Lost::Unknown => format!("no result has the id {id}"),
    }
}

/// Reads a result as a resource.
#[derive(Debug)]
struct ReadKept;

impl OwnTool for ReadKept {
    fn name(&self) -> &str {
        SCHEME
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
            let uri = params.text("uri").unwrap_or_default();
            let rest = uri.strip_prefix(SCHEME).unwrap_or_default();
            let (id, query) = rest.split_once('?').unwrap_or((rest, ""));
            let refuse = |why: String| {
                let error = ErrorObject::invalid_params(format!("resource {}: {why}", Theirs(&uri)));
                NoResult::from(error.with_data(Raw::from_value(&json!({ "uri": uri }))))
            };
            let held = inner.oversized.get(&owner(client), id).map_err(|lost| refuse(gone(id, lost)))?;
            let content = match &*held {
                Held::Blob { data, mime } => {
                    let mime = mime.as_deref().unwrap_or("application/octet-stream");
                    json!({ "uri": uri, "mimeType": mime, "blob": data })
                }
                Held::Text { text, .. } => {
                    let shown = match query.strip_prefix("page=") {
                        Some(number) => number.parse().ok().and_then(|number| text.page(number)),
                        None if query.is_empty() => Some(text.text()),
                        None => None,
                    };
                    let pages = text.pages();
                    let shown = shown.ok_or_else(|| refuse(format!("write ?page=1 to ?page={pages}, or nothing")))?;
                    json!({ "uri": uri, "mimeType": "text/plain", "text": shown })
                }
            };
            Ok(Raw::from_value(&json!({ "contents": [content] })))
        })
    }
}
