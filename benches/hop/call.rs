//! The requests that the load client sends, as bytes made once, and the check of their responses.

use std::borrow::Cow;
use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail, ensure};
use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The protocol revision that the load client requests, as plain clients do today.
pub(crate) const REVISION: &str = "2025-11-25";
/// The first message of a client without capabilities.
pub(crate) const INITIALIZE: &str = concat!(
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
    r#""capabilities":{},"clientInfo":{"name":"hop","version":"1"}}}"#
);
pub(crate) const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const LIST: &str = r#","method":"tools/list"}"#;

/// Above this size, only every sixteenth response is parsed whole: the client must not become the workload.
const PARSE_ALWAYS: usize = 128 * 1024;
/// The number of digits in the stamp, a part of a call's text that ties the echo to its call.
const STAMP: usize = 8;

/// One kind of request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// Echoes a text of this many bytes.
    Echo(usize),
    /// Returns this many bytes.
    Blob(usize),
    /// Sleeps for this many milliseconds.
    Slow(u64),
    /// Lists this many tools, over all pages.
    List(usize),
}

impl Work {
    /// Returns the name of the tool that does this work, as the echo server lists it.
    pub(crate) fn tool(self) -> &'static str {
        match self {
            Self::Echo(_) | Self::List(_) => "echo",
            Self::Blob(_) => "blob",
            Self::Slow(_) => "slow",
        }
    }
}

/// A request that differs between calls only in its id and its stamp.
#[derive(Debug)]
pub(crate) struct Call {
    after_id: Vec<u8>,
    after_stamp: Option<Vec<u8>>,
    least: usize,
}

impl Call {
    pub(crate) fn new(work: Work, tool: &str) -> Self {
        let call = |arguments: &str| {
            format!(r#","method":"tools/call","params":{{"name":"{tool}","arguments":{{{arguments}"#).into_bytes()
        };
        match work {
            Work::Echo(bytes) => Self {
                after_id: call(r#""text":""#),
                after_stamp: Some(format!("{}\"}}}}}}", text(bytes - STAMP)).into_bytes()),
                least: bytes,
            },
            Work::Blob(bytes) => {
                Self { after_id: call(&format!(r#""bytes":{bytes}}}}}}}"#)), after_stamp: None, least: bytes }
            }
            Work::Slow(millis) => {
                Self { after_id: call(&format!(r#""ms":{millis}}}}}}}"#)), after_stamp: None, least: 1 }
            }
            Work::List(tools) => Self { after_id: LIST.into(), after_stamp: None, least: tools * 100 },
        }
    }

    /// Appends the request with this id to `out`.
    pub(crate) fn write(&self, id: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
        out.extend_from_slice(id.to_string().as_bytes());
        out.extend_from_slice(&self.after_id);
        if let Some(rest) = &self.after_stamp {
            out.extend_from_slice(stamp(id).as_bytes());
            out.extend_from_slice(rest);
        }
    }

    /// Checks that `answer` is the result of the call with this id.
    pub(crate) fn check(&self, id: u64, answer: &[u8]) -> Result<()> {
        if answer.len() <= PARSE_ALWAYS || id.is_multiple_of(16) {
            let got = answer_id(answer)?;
            ensure!(got == id, "expected the response to {id}, got that of {got}");
        }
        ensure!(answer.len() >= self.least, "short answer: {}", excerpt(answer));
        if self.after_stamp.is_some() && memmem::find(answer, stamp(id).as_bytes()).is_none() {
            bail!("not the echo of call {id}: {}", excerpt(answer));
        }
        Ok(())
    }
}

/// Returns the id of a successful response.
pub(crate) fn answer_id(answer: &[u8]) -> Result<u64> {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        id: u64,
        #[serde(borrow)]
        result: Option<&'a RawValue>,
    }
    let envelope: Envelope<'_> =
        serde_json::from_slice(answer).with_context(|| format!("not an answer: {}", excerpt(answer)))?;
    ensure!(envelope.result.is_some(), "refused: {}", excerpt(answer));
    Ok(envelope.id)
}

/// Returns the request for one page of the tool list; without a cursor, for the first page.
pub(crate) fn list(id: u64, cursor: Option<&str>) -> String {
    match cursor {
        None => format!(r#"{{"jsonrpc":"2.0","id":{id}{LIST}"#),
        Some(cursor) => {
            let cursor = serde_json::Value::from(cursor);
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list","params":{{"cursor":{cursor}}}}}"#)
        }
    }
}

/// Returns the cursor of the next page, or `None` after the last page. Searches only the two ends of a response, since
/// no server puts the cursor among the tools.
pub(crate) fn next_cursor(answer: &[u8]) -> Result<Option<String>> {
    const END: usize = 512;
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Page {
        next_cursor: Option<String>,
    }
    #[derive(Deserialize)]
    struct Envelope {
        result: Page,
    }
    let ends = [&answer[..answer.len().min(END)], &answer[answer.len().saturating_sub(END)..]];
    if !ends.iter().any(|end| memmem::find(end, b"\"nextCursor\"").is_some()) {
        return Ok(None);
    }
    let envelope: Envelope = serde_json::from_slice(answer).context("a page of the list")?;
    Ok(envelope.result.next_cursor)
}

/// Returns the names of the tools on one page.
pub(crate) fn names(answer: &[u8]) -> Result<Vec<Cow<'_, str>>> {
    #[derive(Deserialize)]
    struct Tool<'a> {
        #[serde(borrow)]
        name: Cow<'a, str>,
    }
    #[derive(Deserialize)]
    struct Page<'a> {
        #[serde(borrow)]
        tools: Vec<Tool<'a>>,
    }
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(borrow)]
        result: Page<'a>,
    }
    let envelope: Envelope<'_> =
        serde_json::from_slice(answer).with_context(|| format!("not a list of tools: {}", excerpt(answer)))?;
    Ok(envelope.result.tools.into_iter().map(|tool| tool.name).collect())
}

/// Returns text like that of real tools: short lines with a quoted word, and thus with the escapes that slow down
/// parsers. `bytes` is its length on the wire, escapes included.
pub(crate) fn text(bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 80);
    let mut line = 0_u32;
    while text.len() < bytes {
        write!(text, r#"{line:05} let path = \"src/lib.rs\"; // what a line of some source looks like\n"#)
            .expect("a string takes all");
        line += 1;
    }
    text.truncate(bytes);
    // The cut may have hit an escape: an odd run of backslashes at the end would escape the closing quote.
    if text.ends_with('\\') {
        text.pop();
        text.push('.');
    }
    text
}

/// Returns the first bytes of a response, for an error message.
pub(crate) fn excerpt(answer: &[u8]) -> String {
    String::from_utf8_lossy(&answer[..answer.len().min(240)]).into_owned()
}

fn stamp(id: u64) -> String {
    format!("{id:0STAMP$}")
}
