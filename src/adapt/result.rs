//! Results: what each has to say since 2026-07-28, and what may not be said before.

use serde_json::value::RawValue;

use super::content;
use crate::protocol::{Edits, Method, ProtocolVersion, Raw, member, meta};

/// Where the name of the server behind us stands, for people to read.
const BEHIND: &str = "mcp-host/serverInfo";

/// The result of a request as a client of revision `to` has it. A `resultType` that means something (`input_required`,
/// `task`) is the caller's business; here it is only kept or taken away. `info` is our own `serverInfo`. What was made for a
/// modern client already stays as it is.
pub(crate) fn result(result: Raw, method: &Method, from: ProtocolVersion, to: ProtocolVersion, info: &Raw) -> Raw {
    let result = if from > to { content::lowered(result, method, from, to) } else { result };
    if to.is_modern() {
        modern(&result, method, info)
    } else if from.is_modern() {
        legacy(&result, method)
    } else {
        result
    }
}

/// The methods whose results say how long they may be kept.
fn is_cached(method: &Method) -> bool {
    matches!(
        method,
        Method::Discover
            | Method::ToolsList
            | Method::PromptsList
            | Method::ResourcesList
            | Method::ResourceTemplatesList
            | Method::ResourcesRead
    )
}

/// With everything that a result of 2026-07-28 must say.
fn modern(result: &Raw, method: &Method, info: &Raw) -> Raw {
    let root = result.as_value();
    let mut edits = Edits::new(result);
    let kind = result.value_of("resultType").filter(|kind| kind.get().starts_with('"'));
    if kind.is_none() {
        edits.set(root, "resultType", br#""complete""#);
    }
    if is_cached(method) && kind.is_none_or(|kind| kind.get() == r#""complete""#) {
        if result.value_of("ttlMs").is_none_or(|ttl| !is_count(ttl)) {
            edits.set(root, "ttlMs", b"0");
        }
        if result.value_of("cacheScope").is_none_or(|scope| !matches!(scope.get(), r#""public""# | r#""private""#)) {
            edits.set(root, "cacheScope", br#""private""#);
        }
    }
    match result.value_of("_meta").filter(|meta| meta.get().starts_with('{')) {
        Some(own) => {
            let said = member(own, meta::SERVER_INFO).map(RawValue::get);
            if let Some(theirs) = said.filter(|said| *said != info.as_str()) {
                edits.set(own, BEHIND, theirs.as_bytes());
            }
            if said != Some(info.as_str()) {
                edits.set(own, meta::SERVER_INFO, info.as_bytes());
            }
        }
        None => edits.set(root, "_meta", format!(r#"{{"{}":{info}}}"#, meta::SERVER_INFO).as_bytes()),
    }
    edits.apply()
}

/// Without what only 2026-07-28 knows.
fn legacy(result: &Raw, method: &Method) -> Raw {
    let root = result.as_value();
    let mut edits = Edits::new(result);
    edits.remove(root, "resultType");
    if is_cached(method) {
        edits.remove(root, "ttlMs");
        edits.remove(root, "cacheScope");
    }
    if let Some(own) = result.value_of("_meta")
        && let Some(theirs) = member(own, meta::SERVER_INFO)
    {
        edits.remove(own, meta::SERVER_INFO);
        edits.set(own, BEHIND, theirs.get().as_bytes());
    }
    edits.apply()
}

/// Whether this is a whole number from zero on.
fn is_count(value: &RawValue) -> bool {
    value.get().parse::<u64>().is_ok()
}
