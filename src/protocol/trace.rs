//! The place of a request in a trace (W3C Trace Context).

use super::Raw;

/// The content of a `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceParent {
    pub(crate) trace: u128,
    pub(crate) span: u64,
    pub(crate) flags: u8,
}

impl TraceParent {
    /// Reads a `traceparent`. Returns `None` if it is malformed.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('-').collect();
        let [version, trace, span, flags, rest @ ..] = &*parts else { return None };
        let is_hex = |text: &str, length: usize| {
            text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        };
        if !is_hex(version, 2) || *version == "ff" || (*version == "00" && !rest.is_empty()) {
            return None;
        }
        if !is_hex(trace, 32) || !is_hex(span, 16) || !is_hex(flags, 2) {
            return None;
        }
        let parsed = Self {
            trace: u128::from_str_radix(trace, 16).ok()?,
            span: u64::from_str_radix(span, 16).ok()?,
            flags: u8::from_str_radix(flags, 16).ok()?,
        };
        // Zero means no id.
        (parsed.trace != 0 && parsed.span != 0).then_some(parsed)
    }

    /// Reads the `traceparent` in the `_meta` of a request's params.
    pub(crate) fn of(params: &Raw) -> Option<Self> {
        Self::parse(&params.member("_meta")?.member("traceparent")?.string()?)
    }

    /// Reports whether the sender records the trace.
    #[cfg_attr(not(feature = "otel"), allow(dead_code, reason = "only spans are sampled"))]
    pub(crate) fn is_sampled(self) -> bool {
        self.flags & 1 == 1
    }
}

/// Returns the id of the trace that a request is part of, as its client says.
pub(crate) fn trace_of(params: &Raw) -> Option<String> {
    TraceParent::of(params).map(|parent| format!("{:032x}", parent.trace))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_read_strictly() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let read = TraceParent::parse(good).unwrap();
        assert_eq!((read.trace >> 96, read.span, read.is_sampled()), (0x0af7_6519, 0xb7ad_6b71_6920_3331, true));
        let bad = [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            &format!("{good}-00"),
            &good.to_uppercase(),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            &good[..good.len() - 1],
            "é0-0-0-0",
        ];
        for text in bad {
            assert_eq!(TraceParent::parse(text), None, "{text}");
        }
        assert!(TraceParent::parse(&format!("cc{}-what-is-new", &good[2..])).is_some());
        let params = Raw::from_value(&serde_json::json!({ "_meta": { "traceparent": good } }));
        assert_eq!(trace_of(&params).unwrap(), &good[3..35]);
        assert_eq!(trace_of(&Raw::empty_object()), None);
    }
}
