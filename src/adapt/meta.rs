//! `_meta` of requests: what is the client's business goes on, what is this hop's stays here (`docs/bridging.md` 13).

use crate::protocol::{Edits, Raw, meta, object};

/// Ids for a trace: of the trace itself, and of our part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trace {
    /// Used where the client's own cannot be read.
    pub(crate) trace: u128,
    /// Ours.
    pub(crate) span: u64,
}

impl Trace {
    /// Ids from random bytes.
    pub(crate) fn from_random(bytes: [u8; 24]) -> Self {
        let part = |range: std::ops::Range<usize>| {
            bytes[range].iter().fold(0u128, |value, byte| value << 8 | u128::from(*byte))
        };
        // Zero means none.
        let span = u64::try_from(part(16..24)).unwrap_or(1);
        Self { trace: part(0..16).max(1), span: span.max(1) }
    }
}

/// The `_meta` of a client's request as it goes to a server: without the protocol's own keys and without `baggage`, with
/// `token` (JSON) as its progress token, the trace continued under our own span. `both_legacy`: only then a related task
/// means anything there. `trace` is asked only where there is a trace. `None`: there is nothing to say.
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
            "baggage" => None,
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

/// The params of a notification as another hop has them: without the protocol's own keys in `_meta`, such as the id of the
/// stream of changes that it came on.
pub(crate) fn notice(params: Raw) -> Raw {
    let Some(own) = params.value_of("_meta") else { return params };
    let mut edits = Edits::new(&params);
    edits.remove_like(own, |key| key.starts_with(meta::PREFIX));
    edits.apply()
}

/// The trace of that `traceparent` (JSON) with our span, and whether it could be read; else a fresh one.
fn continued(parent: &str, ours: Trace) -> (String, bool) {
    let text = parent.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or_default();
    let parts: Vec<&str> = text.split('-').collect();
    if let [version, trace, span, flags, rest @ ..] = &*parts {
        let is_hex = |text: &str, length: usize| {
            text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        };
        let is_some = |text: &str| text.bytes().any(|byte| byte != b'0');
        let is_version = is_hex(version, 2) && *version != "ff" && (*version != "00" || rest.is_empty());
        let are_ids = is_hex(trace, 32) && is_some(trace) && is_hex(span, 16) && is_some(span);
        if is_version && are_ids && is_hex(flags, 2) {
            return (format!("00-{trace}-{:016x}-{flags}", ours.span), true);
        }
    }
    (format!("00-{:032x}-{:016x}-00", ours.trace, ours.span), false)
}
