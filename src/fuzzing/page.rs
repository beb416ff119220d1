//! The API of the page, and what feeds show of arguments.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::Value;

use crate::downstream::admin::Act;
use crate::downstream::console::fuzzing as page;
use crate::record::fuzzing::told;

/// A value that no feed may show.
const SECRET: &str = "tr0ub4dor-canary";
/// The most bytes that are shown of one value.
const TOLD: usize = 4096;

/// Checks that the parsers of the API refuse in JSON, on one line; that no body may have an additional member, such as
/// a command (`docs/hazards.md` H83); and that what feeds show of arguments is short and contains no known secret. The
/// first line is a path and a query, the rest a body.
pub fn console(data: &[u8]) {
    let cut = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (head, body) = (String::from_utf8_lossy(&data[..cut]), data.get(cut + 1..).unwrap_or_default());
    let (path, query) = head.split_once('?').unwrap_or((&head, ""));
    let _ = page::route(path);
    let members: HashMap<String, String> = url::form_urlencoded::parse(query.as_bytes())
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect();
    if let Err(refused) = page::feed(&members) {
        is_refusal(&refused);
    }
    if let Some(refused) = page::refused(body) {
        is_refusal(&refused);
    }
    // The socket accepts the same bodies, each under the name of its request.
    if let Some(request) = Act::read(body, false) {
        let _ = (page::at_socket(&request.name), page::takes(&request.body));
    }
    let Ok(Value::Object(mut value)) = serde_json::from_slice::<Value>(body) else { return };
    shown(&Value::Object(value.clone()), body);
    if page::takes(body) {
        for more in ["command", "args", "env", "path", "url", "cwd"] {
            value.insert(more.to_owned(), "x".into());
            assert!(!page::takes(Value::Object(value.clone()).to_string().as_bytes()), "{more}: {value:?}");
            value.remove(more);
        }
    }
}

fn is_refusal(answer: &[u8]) {
    let answer: Value = serde_json::from_slice(answer).expect("a refusal is JSON");
    let message = answer["message"].as_str().expect("it says why");
    assert!(answer["error"].is_string() && !message.is_empty() && !message.contains('\n'), "{answer}");
}

/// Puts a secret beside the value, and checks what feeds show of both.
fn shown(value: &Value, body: &[u8]) {
    let text = String::from_utf8_lossy(body);
    let beside: Cow<'_, str> = text.chars().take(200).collect();
    let value = serde_json::json!({ "said": format!("{beside}{SECRET}{beside}"), "value": value });
    for told in told(&value, SECRET) {
        assert!(told.len() <= TOLD, "{} bytes are told", told.len());
        assert!(!told.contains(SECRET), "{told}");
        assert!(serde_json::from_str::<Value>(&told).is_ok(), "{told}");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn requests_are_read_and_refused() {
        let seeds: [&[u8]; 10] = [
            b"/\n{\"two\\nlines\":1}",
            b"/console/feed?from=1&past=2&parts=calls,lines&arguments=shape\n",
            b"/console/feed?arguments=raw\n{\"code\":\"x\"}",
            b"/console/call\n{\"tool\":\"a\",\"arguments\":{\"text\":[1,{\"b\":null}]}}",
            b"/console/answer\n{\"call\":1,\"question\":2,\"action\":\"accept\",\"content\":{}}",
            b"/console/approve\n{\"kind\":\"definitions\",\"server\":\"a\",\"hash\":\"b\"}",
            b"/\n{\"call\":{\"tool\":\"a\"}}",
            b"/console/login\n{\"server\":\"a\",\"device\":true}",
            b"\xff?\xff=\n{",
            b"",
        ];
        seeds.into_iter().for_each(super::console);
    }
}
