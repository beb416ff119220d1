//! One JSON-RPC message: the envelope is parsed once and strictly; params and results stay raw.
//!
//! Not here: the meaning of methods. A batch (2025-03-26) is first split by [`batch`], because an array is not a
//! message.

use std::fmt;

use bytes::Bytes;

use super::notes::NOTED;
use super::raw::quoted;
use super::scan::{DEPTH, Scanner, Trust, key_of};
use super::{ErrorObject, Method, Raw, RequestId, code};

/// How a request ended: its result, or its error.
///
/// ```
/// use mcp_host::{ErrorObject, Outcome, Raw};
///
/// let done: Outcome = Ok(Raw::empty_object());
/// let failed: Outcome = Err(ErrorObject::internal("the disk is full"));
/// ```
pub type Outcome = Result<Raw, ErrorObject>;

/// One message of JSON-RPC 2.0.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Expects a response.
    Request(Request),
    /// Expects no response.
    Notification(Notification),
    /// Answers a request.
    Response(Response),
}

/// A request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The sender's id of the request.
    pub id: RequestId,
    /// The requested method.
    pub method: Method,
    /// The arguments; absent is not the same as `{}`.
    pub params: Option<Raw>,
}

/// A notification.
#[derive(Clone, Debug, PartialEq)]
pub struct Notification {
    /// The kind of notification.
    pub method: Method,
    /// The details.
    pub params: Option<Raw>,
}

/// A response.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// The id of the request; `None` only in an error about a request whose id could not be read.
    pub id: Option<RequestId>,
    /// The result or the error.
    pub outcome: Outcome,
}

/// Why bytes are not a message, and the parts that could be read.
#[derive(Clone, Debug, PartialEq)]
pub struct Malformed {
    /// The id, if it could be read.
    pub id: Option<RequestId>,
    /// `-32700` for invalid JSON, `-32600` for anything but a single message.
    pub code: i64,
    /// What is wrong, in a few words.
    pub reason: String,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Malformed {}

/// Whether the bytes may be a batch: they begin like an array.
pub(crate) fn is_batch(bytes: &[u8]) -> bool {
    bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[')
}

/// Splits a batch into its messages, unparsed; `None` if it is not an array.
pub(crate) fn batch(bytes: &Bytes) -> Option<Vec<Bytes>> {
    if !is_batch(bytes) {
        return None;
    }
    let items: Vec<&serde_json::value::RawValue> = serde_json::from_slice(bytes).ok()?;
    Some(items.into_iter().map(|item| Raw::part(bytes, item).bytes().clone()).collect())
}

impl Message {
    /// Reads one message. The parts share the buffer of `bytes`.
    ///
    /// # Errors
    /// When the bytes are not JSON, an array, or not a JSON-RPC 2.0 envelope.
    pub fn parse(bytes: &Bytes) -> Result<Self, Malformed> {
        Self::parse_within(bytes, DEPTH)
    }

    /// Reads one message that may nest up to `depth` levels, the envelope included.
    ///
    /// # Errors
    /// As [`Message::parse`].
    pub(crate) fn parse_within(bytes: &Bytes, depth: usize) -> Result<Self, Malformed> {
        Envelope::read(bytes, depth.saturating_sub(1), Trust::None)?.classify()
    }

    /// Reads one message from a server to pass it on: the envelope is parsed as strictly, but escapes in strings are
    /// left to later readers. The message may nest up to `depth` levels, the envelope included.
    ///
    /// # Errors
    /// As [`Message::parse`].
    pub(crate) fn passing(bytes: &Bytes, depth: usize) -> Result<Self, Malformed> {
        Envelope::read(bytes, depth.saturating_sub(1), Trust::Escapes)?.classify()
    }

    /// Returns the `id` of the request that a truncated or broken response answers. `None` if the text breaks before
    /// the `id`, has two that differ, or has a `method`, so that it is no response (`docs/hazards.md` H3, H4).
    pub(crate) fn answered_by(head: &[u8]) -> Option<RequestId> {
        let (mut id, mut is_other) = (None, false);
        let mut scanner = Scanner::new(head);
        // The scan fails where the text breaks; the members seen until then are all there is.
        let _ = scanner.object(|key, range| {
            match &*key {
                "id" => {
                    let read = std::str::from_utf8(&head[range]).ok().and_then(RequestId::from_raw);
                    is_other |= id.replace(read.clone()).is_some_and(|earlier| earlier != read);
                }
                "method" => is_other = true,
                _ => {}
            }
            Ok(())
        });
        id.flatten().filter(|_| !is_other)
    }

    /// Writes the message.
    #[must_use]
    pub fn frame(&self) -> Frame {
        match self {
            Self::Request(request) => Frame::request(&request.id, &request.method, request.params.as_ref()),
            Self::Notification(notice) => notice.frame(),
            Self::Response(response) => response.frame(),
        }
    }
}

impl Notification {
    /// Writes the notification.
    #[must_use]
    pub fn frame(&self) -> Frame {
        Frame::call([br#"{"jsonrpc":"2.0","method":"#, b"", b""], &self.method, self.params.as_ref())
    }
}

impl Response {
    /// Writes the response.
    #[must_use]
    pub fn frame(&self) -> Frame {
        let digits = &mut itoa::Buffer::new();
        let id = self.id.as_ref().map(|id| id.text(digits)).unwrap_or_default();
        let (name, comma): (&[u8], &[u8]) = if self.id.is_some() { (br#""id":"#, b",") } else { (b"", b"") };
        let head: [&[u8]; 4] = [br#"{"jsonrpc":"2.0","#, name, &id, comma];
        match &self.outcome {
            Ok(result) => Frame::new(&head, br#""result":"#, Some(result)),
            Err(error) => Frame::new(&head, br#""error":"#, Some(&Raw::from_value(error))),
        }
    }
}

/// A written message in up to three pieces, so that a large body is never copied behind its head.
#[derive(Clone, Debug)]
pub struct Frame {
    head: Bytes,
    body: Bytes,
    /// Whether the body is known to have no line breaks.
    is_flat: bool,
}

/// Bodies up to this size are copied behind their head: one piece is cheaper than two.
const INLINE: usize = 4096;
const TAIL: &[u8] = b"}";

impl Frame {
    /// Writes a message: its first members, and the last one, whose name is `name`. The buffer gets its exact size, as a
    /// larger one would be allocated twice.
    fn new(head: &[&[u8]], name: &[u8], body: Option<&Raw>) -> Self {
        let bytes = body.map_or(&[][..], Raw::as_bytes);
        let (inline, tail) = if bytes.len() > INLINE { (&[][..], &[][..]) } else { (bytes, TAIL) };
        let size = head.iter().map(|piece| piece.len()).sum::<usize>() + name.len() + inline.len() + tail.len();
        let mut whole = Vec::with_capacity(size);
        head.iter().for_each(|piece| whole.extend_from_slice(piece));
        [name, inline, tail].into_iter().for_each(|piece| whole.extend_from_slice(piece));
        match body.filter(|_| tail.is_empty()) {
            Some(body) => Self { head: whole.into(), body: body.bytes().clone(), is_flat: body.is_flat() },
            None => Self { head: whole.into(), body: Bytes::new(), is_flat: true },
        }
    }

    /// Writes a request.
    #[must_use]
    pub(crate) fn request(id: &RequestId, method: &Method, params: Option<&Raw>) -> Self {
        let digits = &mut itoa::Buffer::new();
        Self::call([br#"{"jsonrpc":"2.0","id":"#, &id.text(digits), br#","method":"#], method, params)
    }

    fn call([first, id, then]: [&[u8]; 3], method: &Method, params: Option<&Raw>) -> Self {
        let escaped;
        let (quote, name): (&[u8], &[u8]) = match method {
            Method::Other(name) => {
                escaped = quoted(name);
                (b"", &escaped)
            }
            known => (b"\"", known.as_str().as_bytes()),
        };
        let params_name: &[u8] = if params.is_some() { br#","params":"# } else { b"" };
        Self::new(&[first, id, then, quote, name, quote], params_name, params)
    }

    /// Returns the pieces in order.
    #[must_use]
    pub(crate) fn pieces(self) -> [Bytes; 3] {
        let tail = if self.body.is_empty() { Bytes::new() } else { Bytes::from_static(TAIL) };
        [self.head, self.body, tail]
    }

    /// The length in bytes.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        if self.body.is_empty() { self.head.len() } else { self.head.len() + self.body.len() + TAIL.len() }
    }

    /// Joins all pieces into one buffer.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        if self.body.is_empty() {
            return self.head;
        }
        let mut out = Vec::with_capacity(self.len());
        out.extend_from_slice(&self.head);
        out.extend_from_slice(&self.body);
        out.extend_from_slice(TAIL);
        out.into()
    }

    /// Removes line breaks, for transports that end a message with one. JSON has them only between tokens, where a
    /// space means the same.
    #[must_use]
    pub fn on_one_line(self) -> Self {
        Self {
            head: one_line(self.head),
            body: if self.is_flat { self.body } else { one_line(self.body) },
            is_flat: true,
        }
    }
}

fn one_line(bytes: Bytes) -> Bytes {
    if memchr::memchr2(b'\n', b'\r', &bytes).is_none() {
        return bytes;
    }
    let mut out = bytes.to_vec();
    for byte in &mut out {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    out.into()
}

impl Malformed {
    fn no_json(reason: impl fmt::Display) -> Self {
        Self { id: None, code: code::PARSE, reason: format!("not JSON: {reason}") }
    }

    fn shape(id: Option<RequestId>, reason: &str) -> Self {
        Self { id, code: code::INVALID_REQUEST, reason: reason.to_owned() }
    }
}

/// The members of an envelope; each at most once.
#[derive(Debug, Default, PartialEq)]
struct Envelope {
    jsonrpc: Option<Raw>,
    id: Option<Raw>,
    method: Option<Raw>,
    params: Option<Raw>,
    result: Option<Raw>,
    error: Option<Raw>,
}

impl Envelope {
    /// Reads an envelope whose values may nest up to `depth` levels.
    fn read(bytes: &Bytes, depth: usize, trust: Trust) -> Result<Self, Malformed> {
        if let Some(envelope) = Self::once(bytes, depth, trust) {
            return Ok(envelope);
        }
        let scanner = match trust {
            Trust::None => Scanner::checked(bytes),
            Trust::Escapes => Scanner::passing(bytes),
        };
        Self::again(bytes, scanner.map_err(Malformed::no_json)?.within(depth))
    }

    /// Reads an envelope in one pass; `None` if anything is wrong with it.
    fn once(bytes: &Bytes, depth: usize, trust: Trust) -> Option<Self> {
        let mut scanner = Scanner::once(bytes).within(depth);
        let mut envelope = Self::default();
        let (mut is_twice, mut of_params, mut of_result) = (false, 0..0, 0..0);
        let read = scanner.each(|scanner, key| {
            // As bytes: whether they are UTF-8 is known once the whole body is.
            let plain = &bytes[key.start + 1..key.end - 1];
            let decoded = match plain.contains(&b'\\') {
                true => Some(key_of(&bytes[key]).ok_or_else(|| scanner.fault("a bad key"))?),
                false => None,
            };
            let key = decoded.as_deref().map_or(plain, str::as_bytes);
            let range = match key {
                b"params" | b"result" => scanner.body()?,
                _ => scanner.value()?,
            };
            match key {
                b"params" => of_params = range.clone(),
                b"result" => of_result = range.clone(),
                _ => {}
            }
            if let Some(slot) = envelope.slot(key) {
                is_twice |= slot.replace(Raw::trusted(bytes.slice(range))).is_some();
            }
            Ok(())
        });
        read.ok()?;
        for (slot, range) in [(&mut envelope.params, of_params), (&mut envelope.result, of_result)] {
            if let Some(body) = slot.take() {
                let body = body.named(scanner.names());
                *slot = Some(if range.len() < NOTED { body } else { body.noted(scanner.notes(&range)) });
            }
        }
        scanner.end().ok()?;
        (!is_twice && scanner.is_fine(trust)).then_some(envelope)
    }

    fn slot(&mut self, key: &[u8]) -> Option<&mut Option<Raw>> {
        Some(match key {
            b"jsonrpc" => &mut self.jsonrpc,
            b"id" => &mut self.id,
            b"method" => &mut self.method,
            b"params" => &mut self.params,
            b"result" => &mut self.result,
            b"error" => &mut self.error,
            _ => return None,
        })
    }

    /// Reads an envelope that may be wrong once more, to report what is wrong.
    fn again(bytes: &Bytes, mut scanner: Scanner<'_>) -> Result<Self, Malformed> {
        let first = scanner.peek();
        if first != Some(b'{') {
            scanner.value().and_then(|_| scanner.end()).map_err(Malformed::no_json)?;
            let batch = "a batch: this revision takes one message at a time";
            let reason = if first == Some(b'[') { batch } else { "not a JSON-RPC message: not an object" };
            return Err(Malformed::shape(None, reason));
        }
        let mut envelope = Self::default();
        let mut twice = None;
        let read = scanner.object(|key, range| {
            if let Some(slot) = envelope.slot(key.as_bytes())
                && slot.replace(Raw::trusted(bytes.slice(range))).is_some()
            {
                twice = Some(key.into_owned());
            }
            Ok(())
        });
        read.and_then(|()| scanner.end()).map_err(Malformed::no_json)?;
        match twice {
            Some(key) => Err(Malformed::shape(None, &format!("not a JSON-RPC message: duplicate `{key}`"))),
            None => Ok(envelope),
        }
    }

    fn classify(self) -> Result<Message, Malformed> {
        let id = match &self.id {
            None => None,
            Some(raw) if raw.as_bytes() == b"null" && self.error.is_some() => None,
            Some(raw) => match RequestId::from_raw(raw.as_str()) {
                Some(id) => Some(id),
                None => return Err(Malformed::shape(None, "`id` is neither a string nor an integer")),
            },
        };
        if self.jsonrpc.is_none_or(|version| version.as_bytes() != br#""2.0""#) {
            return Err(Malformed::shape(id, "`jsonrpc` is not \"2.0\""));
        }
        match (self.method, self.result, self.error) {
            (Some(method), None, None) => call(id, &method, self.params),
            (None, Some(result), None) => match id {
                Some(id) => Ok(Message::Response(Response { id: Some(id), outcome: Ok(result) })),
                None => Err(Malformed::shape(None, "a result without `id`")),
            },
            (None, None, Some(error)) => match error.read::<ErrorObject>() {
                Ok(error) => Ok(Message::Response(Response { id, outcome: Err(error) })),
                Err(_) => Err(Malformed::shape(id, "`error` is not an error object")),
            },
            (None, None, None) => Err(Malformed::shape(id, "neither `method` nor `result` nor `error`")),
            _ => Err(Malformed::shape(id, "more than one of `method`, `result`, `error`")),
        }
    }
}

fn call(id: Option<RequestId>, method: &Raw, params: Option<Raw>) -> Result<Message, Malformed> {
    let Some(method) = method.string().map(|method| Method::parse(&method)) else {
        return Err(Malformed::shape(id, "`method` is not a string"));
    };
    let params = match params {
        None => None,
        Some(raw) if raw.as_bytes() == b"null" => None,
        Some(raw) if raw.is_object() => Some(raw),
        Some(_) => return Err(Malformed::shape(id, "`params` is not an object")),
    };
    Ok(match id {
        Some(id) => Message::Request(Request { id, method, params }),
        None => Message::Notification(Notification { method, params }),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A message is read again only to say what is wrong with it.
        #[test]
        fn one_pass_reads_what_a_careful_reader_reads(
            members in prop::collection::vec((
                "(jsonrpc|id|method|params|result|error|param\\\\u0073|\\\\x|x)",
                "(\"2.0\"|1|\\{\\}|\\{\"a\":\\{\"b\":\\[\\[\\]\\]\\}\\}|\\[\\[\\]\\]|\"\\\\x\"|\"\\\\u00e9é\"|\"\u{1}\"|\\{\"a\":1|\\{\"\\\\x\":[1]\\})",
            ), 0..5),
            space in "(|\n| )",
            depth in 0..6usize,
        ) {
            let members: Vec<_> = members.iter().map(|(name, value)| format!("\"{name}\":{space}{value}")).collect();
            let bytes: Bytes = format!("{{{}}}{space}", members.join(",")).into();
            for trust in [Trust::None, Trust::Escapes] {
                let scanner = match trust {
                    Trust::None => Scanner::checked(&bytes),
                    Trust::Escapes => Scanner::passing(&bytes),
                };
                let carefully = Envelope::again(&bytes, scanner.unwrap().within(depth)).ok();
                prop_assert_eq!(Envelope::once(&bytes, depth, trust), carefully, "{:?} {:?}", trust, bytes);
            }
        }
    }
}
