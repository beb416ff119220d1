//! `_meta` of requests: members for the other end pass, members for this hop do not (`docs/bridging.md` 13).

use crate::protocol::{Edits, Raw, TraceParent, meta, object};

/// The ids of a trace (W3C Trace Context) and of our span in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trace {
    /// The trace id to use if the client's cannot be read.
    pub(crate) trace: u128,
    /// The id of our span.
    pub(crate) span: u64,
}

impl Trace {
    /// Creates ids from random bytes.
    pub(crate) fn from_random(bytes: [u8; 24]) -> Self {
        let part = |range: std::ops::Range<usize>| {
            bytes[range].iter().fold(0u128, |value, byte| value << 8 | u128::from(*byte))
        };
        // Zero means no id.
        let span = u64::try_from(part(16..24)).unwrap_or(1);
        Self { trace: part(0..16).max(1), span: span.max(1) }
    }
}

/// Returns the `_meta` that a client's request carries to a server: without the protocol's own keys, `baggage`, and the
/// keys for mcp-host's cache, with `token` (JSON) as the progress token, and with the trace continued under our span. A
/// related task passes only if `both_legacy`, because it has a meaning only then. `trace` is called only if the client
/// sends a trace. Returns `None` if nothing is left.
pub(crate) fn request_meta(
    meta: Option<&Raw>,
    token: Option<&str>,
    both_legacy: bool,
    trace: impl FnOnce() -> Trace,
) -> Option<Raw> {
    let members = meta.and_then(|meta| object(meta.as_value())).unwrap_or_default();
    let find = |name: &str| members.iter().find(|(key, _)| key == name).map(|(_, value)| value.get());
    let parent = find("traceparent");
    let continued = parent.map(|parent| continued(parent, trace()));
    let mut out = Vec::with_capacity(members.len() + 1);
    let mut is_changed = false;
    let mut had_token = false;
    for (key, value) in &members {
        let kept = match &**key {
            "progressToken" if had_token => None,
            "progressToken" => {
                had_token = true;
                token.map(str::to_owned)
            }
            "traceparent" => continued.as_ref().map(|(parent, _)| format!("\"{parent}\"")),
            "tracestate" => continued
                .as_ref()
                .filter(|(_, is_valid)| *is_valid && value.get().starts_with('"'))
                .map(|_| value.get().to_owned()),
            "baggage" | meta::CACHE => None,
            meta::RELATED_TASK if both_legacy => Some(value.get().to_owned()),
            key if key.starts_with(meta::PREFIX) => None,
            _ => Some(value.get().to_owned()),
        };
        is_changed |= kept.as_deref() != Some(value.get());
        out.extend(kept.map(|value| format!("{}:{value}", Raw::from_value(&**key))));
    }
    if let Some(token) = token.filter(|_| !had_token) {
        is_changed = true;
        out.push(format!("\"progressToken\":{token}"));
    }
    if !is_changed {
        return meta.filter(|meta| meta.is_object()).cloned();
    }
    (!out.is_empty()).then(|| Raw::trusted(format!("{{{}}}", out.join(",")).into()))
}

/// Rewrites the params of a notification for another hop: removes the protocol's own keys from `_meta`, such as the id
/// of the change stream that it arrived on.
pub(crate) fn notice(params: Raw) -> Raw {
    let Some(own) = params.value_of("_meta") else { return params };
    let mut edits = Edits::new(&params);
    edits.remove_like(own, |key| key.starts_with(meta::PREFIX));
    edits.apply()
}

/// Continues the trace of a `traceparent` (JSON) with our span, and returns true; if it is not valid, starts a new
/// trace and returns false.
fn continued(parent: &str, ours: Trace) -> (String, bool) {
    let text = parent.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or_default();
    if let Some(TraceParent { trace, flags, .. }) = TraceParent::parse(text) {
        return (format!("00-{trace:032x}-{:016x}-{flags:02x}", ours.span), true);
    }
    (format!("00-{:032x}-{:016x}-00", ours.trace, ours.span), false)
}
