//! Results: adds members that 2026-07-28 requires, and removes members that earlier revisions do not allow.

use super::content;
use crate::protocol::{Edits, Method, ProtocolVersion, Raw, meta};

/// Translates a result for a client of revision `to`. The caller handles a `resultType` with special meaning
/// (`input_required`, `task`); here it is only kept or removed. `info` is our own `serverInfo`. A result that was
/// already made for a modern client stays unchanged.
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

/// Reports whether results of the method say how long they may be cached.
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

/// The members that are read here, found in one pass because results can be large.
const LOOKED_AT: [&str; 4] = ["resultType", "ttlMs", "cacheScope", "_meta"];

/// Adds every member that a result of 2026-07-28 must have.
fn modern(result: &Raw, method: &Method, info: &Raw) -> Raw {
    let [kind, ttl, scope, own] = result.members(LOOKED_AT);
    let mut edits = Edits::new(result);
    let mut put = |name: &str, old: Option<&Raw>, value: &[u8]| match old {
        Some(old) => edits.replace_part(old, value.to_vec()),
        None => edits.append(name, value),
    };
    let said = kind.as_ref().map(Raw::as_str).filter(|kind| kind.starts_with('"'));
    if said.is_none() {
        put("resultType", kind.as_ref(), br#""complete""#);
    }
    if is_cached(method) && said.is_none_or(|kind| kind == r#""complete""#) {
        if !ttl.as_ref().is_some_and(is_count) {
            put("ttlMs", ttl.as_ref(), b"0");
        }
        if !scope.as_ref().is_some_and(|scope| matches!(scope.as_str(), r#""public""# | r#""private""#)) {
            put("cacheScope", scope.as_ref(), br#""private""#);
        }
    }
    let theirs = own.as_ref().and_then(|own| own.member(meta::SERVER_INFO));
    if theirs.as_ref() != Some(info) {
        let mut meta = own.clone().filter(Raw::is_object).unwrap_or_else(Raw::empty_object);
        meta = meta.with_member(meta::SERVER_INFO, info.as_bytes());
        if let Some(theirs) = &theirs {
            meta = meta.with_member(meta::HOST_SERVER_INFO, theirs.as_bytes());
        }
        put("_meta", own.as_ref(), meta.as_bytes());
    }
    edits.apply()
}

/// Removes members that only 2026-07-28 defines.
fn legacy(result: &Raw, method: &Method) -> Raw {
    let [kind, ttl, scope, own] = result.members(LOOKED_AT);
    let mut edits = Edits::new(result);
    let cached = is_cached(method);
    for (name, is_there) in
        [("resultType", kind.is_some()), ("ttlMs", cached && ttl.is_some()), ("cacheScope", cached && scope.is_some())]
    {
        if is_there {
            edits.strip(name);
        }
    }
    if let Some(own) = own
        && let Some(theirs) = own.member(meta::SERVER_INFO)
    {
        let meta = own.without_member(meta::SERVER_INFO).with_member(meta::HOST_SERVER_INFO, theirs.as_bytes());
        edits.replace_part(&own, meta.as_bytes().to_vec());
    }
    edits.apply()
}

/// Reports whether this is a non-negative integer.
fn is_count(value: &Raw) -> bool {
    value.as_str().parse::<u64>().is_ok()
}
