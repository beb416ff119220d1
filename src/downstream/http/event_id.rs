//! The ids of events: `STREAM-EVENT`. A client sends the last one that it saw as `Last-Event-ID`, to resume a stream.
//!
//! In a session that was revived, the id begins with `LIFE.`, so that no event of one life of the session passes for
//! one of another. In the stream that answers one request, `~` and the request follow: `3-1~c17` is an event of the
//! call with the id 17. So the host can answer a request of an earlier life, about which it knows nothing else.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use crate::protocol::{Method, RequestId};

/// The id of an event that a client sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EventId {
    /// The life of the session; 0 is the first.
    pub(super) life: u32,
    pub(super) stream: u32,
    pub(super) event: u64,
    /// The request that the stream answers, if the id says it.
    pub(super) asked: Option<Asked>,
}

/// A request, as it is named in event ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// Whether it calls a tool: a lost call is answered in another form than any other lost request.
    pub(super) is_call: bool,
    pub(super) id: RequestId,
}

/// The part of event ids that names the request that their stream answers: an [`Asked`] as text, or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Label(Box<str>);

/// The longest string id of a request that event ids repeat, in bytes.
const LONGEST: usize = 64;

impl Label {
    /// Returns the label for a request.
    pub(super) fn of(Asked { is_call, id }: &Asked) -> Self {
        let kind = if *is_call { 'c' } else { 'r' };
        match id {
            RequestId::Number(number) => Self(format!("~{kind}{number}").into()),
            RequestId::Text(text) if text.len() <= LONGEST => {
                Self(format!("~{kind}.{}", BASE64_URL_SAFE_NO_PAD.encode(text.as_bytes())).into())
            }
            RequestId::Text(_) => Self::default(),
        }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the id of an event in the life of a session.
pub(super) fn write((life, stream): (u32, u32), event: u64, label: &Label) -> String {
    match life {
        0 => format!("{stream}-{event}{label}"),
        life => format!("{life:x}.{stream}-{event}{label}"),
    }
}

impl EventId {
    /// Reads the id of an event; `None` if it is none of ours.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (place, asked) = match text.split_once('~') {
            Some((place, asked)) => (place, Some(Asked::parse(asked)?)),
            None => (text, None),
        };
        let (life, place) = match place.split_once('.') {
            Some((life, place)) => (u32::from_str_radix(life, 16).ok()?, place),
            None => (0, place),
        };
        let (stream, event) = place.split_once('-')?;
        Some(Self { life, stream: stream.parse().ok()?, event: event.parse().ok()?, asked })
    }
}

impl Asked {
    pub(super) fn of(method: &Method, id: &RequestId) -> Self {
        Self { is_call: *method == Method::ToolsCall, id: id.clone() }
    }

    fn parse(text: &str) -> Option<Self> {
        let (is_call, id) = match text.strip_prefix('c') {
            Some(id) => (true, id),
            None => (false, text.strip_prefix('r')?),
        };
        let id = match id.strip_prefix('.') {
            Some(text) => {
                let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok().filter(|bytes| bytes.len() <= LONGEST)?;
                RequestId::Text(String::from_utf8(bytes).ok()?.into())
            }
            None => RequestId::Number(id.parse().ok()?),
        };
        Some(Self { is_call, id })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ids_are_short_and_say_what_they_are_of() {
        let label = |method, id| Label::of(&Asked::of(&method, &id));
        assert_eq!(write((0, 3), 1, &label(Method::ToolsCall, RequestId::Number(17))), "3-1~c17");
        assert_eq!(write((0x2a, 3), 1, &label(Method::Ping, RequestId::Text("a/ b".into()))), "2a.3-1~r.YS8gYg");
        assert_eq!(write((0, 0), 7, &Label::default()), "0-7");
        let long = RequestId::Text("x".repeat(LONGEST + 1).into());
        assert_eq!(label(Method::ToolsCall, long), Label::default());
        for none in ["", "1", "-", "1-", "-1", "x-1", "1-x", "1-1~", "1-1~x1", "1-1~c", "1-1~c.*", "1-1~c1.5", "g.1-1"]
        {
            assert_eq!(EventId::parse(none), None, "{none}");
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            life in any::<u32>(),
            stream in any::<u32>(),
            event in any::<u64>(),
            number in proptest::option::of(any::<i64>()),
            text in "\\PC{0,16}",
            is_call in any::<bool>(),
        ) {
            let id = number.map_or(RequestId::Text(text.into()), RequestId::Number);
            let method = if is_call { Method::ToolsCall } else { Method::PromptsGet };
            let asked = Asked::of(&method, &id);
            let written = write((life, stream), event, &Label::of(&asked));
            prop_assert!(written.bytes().all(|byte| byte.is_ascii_graphic()), "{}", written);
            prop_assert_eq!(EventId::parse(&written), Some(EventId { life, stream, event, asked: Some(asked) }));
        }

        #[test]
        fn no_text_breaks_it(text in "\\PC{0,30}") {
            let _ = EventId::parse(&text);
        }
    }
}
