//! Determines a message's era, legacy (with a handshake) or modern (since 2026-07-28, without a session), and so
//! whether it goes to a session or is served by itself (`docs/bridging.md` 3.2). It does no I/O.
//!
//! The message's content decides; over HTTP the headers must agree with it. A pipe has no headers; otherwise its rules
//! are the same. A message whose `_meta` claims 2026-07-28 goes to no session, even if it carries a session id.
//! `initialize` opens a session, even on a pipe that has served modern requests.

use std::sync::LazyLock;

use bytes::Bytes;
use memchr::memmem::Finder;

use crate::protocol::{
    ErrorObject, Malformed, Message, Method, Names, Notification, ProtocolVersion, Raw, Request, Theirs, code, meta,
};

/// The eras (groups of MCP revisions) that a host speaks with its clients.
///
/// ```no_run
/// # async fn example() -> Result<(), mcp_host::Error> {
/// use mcp_host::{Eras, Host};
///
/// Host::builder().config_file("mcp.json").eras(Eras::Legacy).start().await?.serve_stdio().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eras {
    /// Both eras; each message decides which one it belongs to.
    #[default]
    Both,
    /// Only the revisions with a handshake (`initialize`).
    Legacy,
    /// Only the revisions without a session (since 2026-07-28).
    Modern,
}

/// What a message's header `MCP-Protocol-Version` says.
#[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the HTTP door has headers"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header<'a> {
    /// The transport has no headers: a pipe.
    None,
    /// The header is missing.
    Absent,
    /// The header occurs once.
    Is(&'a str),
    /// The header occurs more than once, or is not text.
    Unclear,
}

/// Where a message goes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Route {
    /// The message goes to its session, or opens one.
    Session(Message),
    /// The request is served by itself.
    Stateless(Request, Envelope),
    /// A notification outside a session. Over a pipe it may withdraw a request; over HTTP it has no effect.
    Notice(Notification),
}

/// What a modern request says about its sender.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Envelope {
    /// The sender's client capabilities: what a server may ask of it while it serves the request.
    pub(super) capabilities: Raw,
    /// The sender's own description; shown, never trusted.
    pub(super) info: Option<Raw>,
    /// The lowest level of log messages that the sender wants.
    pub(super) level: Option<String>,
    /// The affinity word, by which a client sets itself apart from other clients of the same person.
    pub(super) affinity: Option<String>,
}

/// The first character of affinity words that our own doors assign; words from clients may not start with it.
pub(super) const OURS: char = '\0';
/// The longest affinity word, in bytes; longer ones are ignored.
const LONGEST: usize = 128;

/// Routes one message.
///
/// # Errors
/// With the JSON-RPC error for a message that is refused; `Refusal::judged` picks its HTTP status.
pub(super) fn route(message: Message, header: Header<'_>, eras: Eras) -> Result<Route, ErrorObject> {
    match message {
        Message::Request(request) => self::request(request, header, eras),
        Message::Notification(notice) => notification(notice, header, eras),
        Message::Response(_) if eras == Eras::Modern => {
            Err(ErrorObject::new(code::INVALID_REQUEST, "no requests go to clients here, so no response is expected"))
        }
        Message::Response(_) => {
            check_legacy(header)?;
            Ok(Route::Session(message))
        }
    }
}

fn request(request: Request, header: Header<'_>, eras: Eras) -> Result<Route, ErrorObject> {
    let meta = request.params.as_ref().and_then(meta_of);
    let claim = meta.as_ref().and_then(|meta| meta.member(meta::PROTOCOL_VERSION));
    match (claim, eras) {
        (Some(claim), Eras::Both | Eras::Modern) => {
            let envelope = envelope(&claim, meta.as_ref(), header)?;
            if is_served(&request.method) {
                Ok(Route::Stateless(request, envelope))
            } else {
                Err(ErrorObject::method_not_found(request.method.as_str()))
            }
        }
        (Some(claim), Eras::Legacy)
            if claim.string().is_none_or(|v| ProtocolVersion::parse_handshake(&v).is_none()) =>
        {
            let version = claim.string().unwrap_or_default();
            Err(ErrorObject::invalid_params(unsupported(&version)))
        }
        (None, Eras::Modern) if request.method == Method::Initialize => {
            let requested = request.params.as_ref().and_then(|params| params.text("protocolVersion"));
            Err(unsupported_version(&requested.unwrap_or_default()))
        }
        (None, Eras::Modern) => Err(missing(meta.as_ref())),
        (None, Eras::Both) if is_modern(header) => {
            if request.method == Method::Initialize {
                let text = "`initialize` belongs to revisions before the one that `MCP-Protocol-Version` names";
                return Err(ErrorObject::new(code::HEADER_MISMATCH, text));
            }
            Err(missing(meta.as_ref()))
        }
        _ => {
            check_legacy(header)?;
            Ok(Route::Session(Message::Request(request)))
        }
    }
}

fn notification(notice: Notification, header: Header<'_>, eras: Eras) -> Result<Route, ErrorObject> {
    let claims = || {
        let meta = notice.params.as_ref().and_then(meta_of);
        meta.is_some_and(|meta| meta.member(meta::PROTOCOL_VERSION).is_some())
    };
    if eras == Eras::Modern || (eras == Eras::Both && (is_modern(header) || claims())) {
        return Ok(Route::Notice(notice));
    }
    check_legacy(header)?;
    Ok(Route::Session(Message::Notification(notice)))
}

/// The most messages in one batch (`docs/hazards.md` H39).
const BATCH: usize = 100;

/// Splits a batch (2025-03-26) into its messages, each of which may be malformed by itself. Only sessions with that
/// revision have batches.
///
/// # Errors
/// When the batch is empty, too large, or contains a message that claims a revision in its `_meta`; or when the header
/// names no revision with a handshake.
pub(super) fn batch(items: &[Bytes], header: Header<'_>) -> Result<Vec<Result<Message, Malformed>>, ErrorObject> {
    let refused = |text: &str| ErrorObject::new(code::INVALID_REQUEST, text);
    if items.is_empty() {
        return Err(refused("the batch is empty"));
    }
    if items.len() > BATCH {
        return Err(refused(&format!("the batch has more than {BATCH} messages")));
    }
    check_legacy(header)?;
    let messages: Vec<_> = items.iter().map(Message::parse).collect();
    let claims = |message: &Message| {
        let params = match message {
            Message::Request(request) => request.params.as_ref(),
            Message::Notification(notice) => notice.params.as_ref(),
            Message::Response(_) => None,
        };
        params.and_then(meta_of).is_some_and(|meta| meta.member(meta::PROTOCOL_VERSION).is_some())
    };
    if messages.iter().flatten().any(claims) {
        return Err(refused("a message with its own protocol version cannot be part of a batch"));
    }
    Ok(messages)
}

/// Returns the error for a batch in a session with another revision.
pub(super) fn no_batches() -> ErrorObject {
    ErrorObject::new(code::INVALID_REQUEST, "batches are supported only in sessions of 2025-03-26")
}

/// Returns `_meta` if it may claim a revision. Few messages do: the scan of a large message has noted whether there is
/// such a key; otherwise the key is searched for as text. (The slash in the key may be escaped, so only the text before
/// it is searched for.)
fn meta_of(params: &Raw) -> Option<Raw> {
    static NAME: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("io.modelcontextprotocol"));
    let may_claim = params.has_names(Names::PROTOCOL).unwrap_or_else(|| NAME.find(params.as_bytes()).is_some());
    if may_claim { params.member("_meta") } else { None }
}

/// Reads the envelope of a request. The checks have the order in which the spec has servers refuse: first that the
/// headers agree, then that every member is present, then that the revision is supported.
fn envelope(claim: &Raw, meta: Option<&Raw>, header: Header<'_>) -> Result<Envelope, ErrorObject> {
    let malformed = |key: &str, what: &str| ErrorObject::invalid_params(format!("`_meta`: `{key}` must be {what}"));
    let version = claim.string().ok_or_else(|| malformed(meta::PROTOCOL_VERSION, "a string"))?;
    let mismatch = |text: &str| Err(ErrorObject::new(code::HEADER_MISMATCH, text));
    match header {
        Header::None => {}
        Header::Absent => return mismatch("the header `MCP-Protocol-Version` is missing"),
        Header::Unclear => return mismatch("the header `MCP-Protocol-Version` must occur once"),
        Header::Is(named) if named != version => {
            return mismatch("the header `MCP-Protocol-Version` names a different revision than `_meta`");
        }
        Header::Is(_) => {}
    }
    let [capabilities, info, level, affinity] = meta.map_or([const { None }; 4], |meta| {
        meta.members([meta::CLIENT_CAPABILITIES, meta::CLIENT_INFO, meta::LOG_LEVEL, meta::AFFINITY])
    });
    let Some(capabilities) = capabilities else { return Err(missing(meta)) };
    if !capabilities.is_object() {
        return Err(malformed(meta::CLIENT_CAPABILITIES, "an object"));
    }
    if info.as_ref().is_some_and(|info| !info.is_object()) {
        return Err(malformed(meta::CLIENT_INFO, "an object"));
    }
    let level =
        level.map(|level| level.string().map(String::from).ok_or_else(|| malformed(meta::LOG_LEVEL, "a string")));
    let is_word = |word: &String| word.len() <= LONGEST && !word.starts_with(OURS);
    let affinity = affinity.and_then(|word| word.string().map(String::from)).filter(is_word);
    let envelope = Envelope { capabilities, info, level: level.transpose()?, affinity };
    if !ProtocolVersion::MODERN.iter().any(|known| known.as_str() == version) {
        return Err(unsupported_version(&version));
    }
    Ok(envelope)
}

/// Reports whether a client without a session may send a request with this method. For methods that an extension adds
/// (tasks), the router also decides.
fn is_served(method: &Method) -> bool {
    use Method as M;
    matches!(
        method,
        M::Discover
            | M::ToolsList
            | M::ToolsCall
            | M::PromptsList
            | M::PromptsGet
            | M::ResourcesList
            | M::ResourceTemplatesList
            | M::ResourcesRead
            | M::Complete
            | M::Listen
            | M::TasksGet
            | M::TasksUpdate
            | M::TasksCancel
    )
}

/// Reports whether the header names a known or future revision without sessions.
pub(super) fn is_modern(header: Header<'_>) -> bool {
    let Header::Is(named) = header else { return false };
    let date = named.len() == 10 && named.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    date && named >= ProtocolVersion::MODERN[0].as_str()
}

/// Refuses a session's message whose header names no revision with a handshake. The header may be missing.
pub(super) fn check_legacy(header: Header<'_>) -> Result<(), ErrorObject> {
    let named = match header {
        Header::None | Header::Absent => return Ok(()),
        Header::Is(named) if ProtocolVersion::parse_handshake(named).is_some() => return Ok(()),
        Header::Is(named) => named,
        Header::Unclear => {
            return Err(ErrorObject::new(code::INVALID_REQUEST, "the header `MCP-Protocol-Version` must occur once"));
        }
    };
    Err(ErrorObject::new(code::INVALID_REQUEST, unsupported(named)))
}

/// Names the required members that a request's `_meta` lacks.
fn missing(meta: Option<&Raw>) -> ErrorObject {
    let keys = [meta::PROTOCOL_VERSION, meta::CLIENT_CAPABILITIES];
    let lacking = keys.into_iter().filter(|key| meta.is_none_or(|meta| meta.member(key).is_none()));
    let names: Vec<String> = lacking.map(|key| format!("`{key}`")).collect();
    ErrorObject::invalid_params(format!("`_meta` lacks {}", names.join(" and ")))
}

fn unsupported_version(requested: &str) -> ErrorObject {
    let supported: Vec<&str> = ProtocolVersion::MODERN.iter().map(|version| version.as_str()).collect();
    let requested: String = requested.chars().take(64).collect();
    let text =
        format!("protocol version {requested:?} is not supported; without a handshake it is {}", supported.join(", "));
    let data = Raw::from_value(&serde_json::json!({ "supported": supported, "requested": requested }));
    ErrorObject::new(code::UNSUPPORTED_VERSION, text).with_data(data)
}

/// Returns the error text for a version that sessions do not support here.
fn unsupported(version: &str) -> String {
    let version: String = version.chars().take(64).collect();
    let names: Vec<&str> = ProtocolVersion::HANDSHAKE.iter().map(|version| version.as_str()).collect();
    format!("protocol version {version:?} is not supported; after `initialize` it is one of {}", names.join(", "))
}

/// Returns the error for a request before `initialize`.
pub(super) fn not_initialized(method: &str) -> ErrorObject {
    ErrorObject::new(
        code::INVALID_REQUEST,
        format!("`{}` before `initialize`: only `ping` may come first", Theirs(method)),
    )
}

/// Returns the result of a `ping` that the door answers itself, before there is a session.
pub(super) fn pong() -> Raw {
    Raw::empty_object()
}
