//! One audit line: who called what on which server, when, and how the call ended. Arguments appear only as a hash.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::answered::Kind;
use crate::hex;
use crate::observe::{At, Begun, Ended};
use crate::protocol::Raw;
use crate::redact::without_query;

/// How many bytes of a name are kept.
const NAME: usize = 1024;

/// One call. The fields are the members of the JSON line.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Line {
    time: String,
    principal: String,
    client: Option<String>,
    server: Option<String>,
    method: String,
    /// The server's own name for the tool or prompt, or the URI of the resource without its query.
    target: Option<String>,
    /// The hash of the called definition, as `mcp-host lock` writes it; null if there is no definition.
    pin: Option<String>,
    /// The view that the client uses.
    view: Option<String>,
    /// The verdict of the rules on the call; null if no rules apply to it.
    verdict: Option<VerdictLine>,
    /// The hash of the raw bytes of `arguments`.
    arguments: Option<String>,
    outcome: &'static str,
    /// The kind of failure, if there was no answer.
    kind: Option<&'static str>,
    /// The JSON-RPC error code, if the server answered with an error.
    code: Option<i64>,
    bytes_in: usize,
    bytes_out: usize,
    duration_ms: u64,
    /// Whether the answer came from the cache (`cache`).
    #[serde(skip_serializing_if = "is_false")]
    cached: bool,
    /// Whether the client got only the beginning of the result (`results`).
    #[serde(skip_serializing_if = "is_false")]
    cut: bool,
    /// Why the host made this call itself, on behalf of another call of the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    via: Option<&'static str>,
    /// The name of the script, if the call runs one.
    #[serde(skip_serializing_if = "Option::is_none")]
    script: Option<String>,
    /// The name of the script that made the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// The verdict of the rules on a call.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct VerdictLine {
    verdict: &'static str,
    rule: Option<String>,
    enforced: bool,
    /// The outcome of asking a person.
    asked: Option<&'static str>,
}

impl Line {
    pub(super) fn begin(call: &Begun<'_>) -> Self {
        let members = |params: &Raw| params.members(["name", "uri", "arguments"]);
        let [name, uri, arguments] = call.params.map_or([None, None, None], members);
        let named = name.or(uri).as_ref().and_then(Raw::string).map(|named| short(&without_query(&named)));
        Self {
            time: timestamp(call.at),
            principal: short(call.principal),
            client: call.client.as_deref().map(short),
            server: None,
            method: short(call.method.as_str()),
            target: named,
            pin: None,
            view: None,
            verdict: None,
            arguments: arguments
                .map(|arguments| format!("sha256:{}", hex::encode(&Sha256::digest(arguments.as_bytes())))),
            outcome: "",
            kind: None,
            code: None,
            bytes_in: 0,
            bytes_out: 0,
            duration_ms: 0,
            cached: false,
            cut: false,
            via: call.via,
            script: None,
            parent: call.parent.map(str::to_owned),
        }
    }

    /// Adds which server the call went to and how the call ended.
    pub(super) fn end(&mut self, ended: &Ended<'_>) {
        self.verdict = ended.judged.map(|judged| VerdictLine {
            verdict: judged.verdict,
            rule: judged.rule.as_deref().map(str::to_owned),
            enforced: judged.enforced,
            asked: ended.asked,
        });
        if let Some(At { server, target, scrubber }) = ended.at {
            self.server = Some(server.as_ref().to_owned());
            self.target = Some(short(&scrubber.without_known(&without_query(target))));
        }
        (self.pin, self.view) = (ended.pin.map(str::to_owned), ended.view.map(str::to_owned));
        self.script = ended.script.map(str::to_owned);
        self.outcome = ended.end.word();
        self.kind = ended.kind.map(Kind::word);
        self.code = ended.code;
        self.cached = ended.cached;
        self.cut = ended.cut;
        self.bytes_in = ended.bytes_in;
        self.bytes_out = ended.bytes_out;
        self.duration_ms = u64::try_from(ended.took.as_millis()).unwrap_or(u64::MAX);
    }

    /// Writes the line with its newline.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        // Writing to a vector never fails, and every key is a string.
        let _ = serde_json::to_writer(&mut *out, self);
        out.push(b'\n');
    }
}

/// Cuts a name after at most [`NAME`] bytes.
fn short(text: &str) -> String {
    let end = (0..=NAME.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    text[..end].to_owned()
}

/// Formats a time as `2026-11-22T13:35:04.123Z`.
pub(super) fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// Returns the date `days` after 1970-01-01. Years begin in March here, so that a leap day is the last day of its year.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day)
}
