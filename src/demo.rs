//! Two small servers to try things with: `mcp-host serve --demo` runs both, `examples/echo_server.rs` runs [`echo`].
//!
//! **Invariant:** they need nothing but this crate: no network, no file, no other program.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::in_process::{InProcess, Invocation};
use crate::protocol::{ErrorObject, Method, Outcome, Raw};

/// Returns a server with `echo` (text), `countdown` (progress, cancellable), and `ask` (elicitation).
#[must_use]
pub fn echo() -> InProcess {
    InProcess::new("echo", env!("CARGO_PKG_VERSION"))
        .tool(raw(ECHO), |call| Box::pin(async move { repeat(&call) }))
        .tool(raw(COUNTDOWN), |call| Box::pin(count_down(call)))
        .tool(raw(ASK), |call| Box::pin(greet(call)))
}

/// Returns a server that tells the time with a tool, a resource, and a prompt.
#[must_use]
pub fn clock() -> InProcess {
    InProcess::new("clock", env!("CARGO_PKG_VERSION"))
        .tool(raw(NOW), |_| Box::pin(async { Ok(tell_time()) }))
        .resource(raw(TIME), |_| Box::pin(async { Ok(read_time()) }))
        .prompt(raw(PLAN), |call| Box::pin(async move { plan_hour(&call) }))
}

fn repeat(call: &Invocation) -> Outcome {
    let text = call.arguments.text("text").ok_or_else(|| ErrorObject::invalid_params("`text` must be a string"))?;
    Ok(answer(&text))
}

async fn count_down(call: Invocation) -> Outcome {
    let from =
        match call.arguments.member("from") {
            None => 5,
            Some(from) => from.read::<u32>().ok().filter(|from| (1..=LONGEST).contains(from)).ok_or_else(|| {
                ErrorObject::invalid_params(format!("`from` must be a whole number from 1 to {LONGEST}"))
            })?,
        };
    for left in (1..=from).rev() {
        call.progress(f64::from(from - left), Some(f64::from(from)), &format!("{left} …")).await;
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
            () = call.cancelled() => return Ok(failure("stopped")),
        }
    }
    call.progress(f64::from(from), Some(f64::from(from)), "zero").await;
    Ok(answer(&format!("counted down from {from}")))
}

async fn greet(call: Invocation) -> Outcome {
    let reply = match call.request(Method::Elicit, Some(raw(FORM))).await {
        Ok(reply) => reply,
        Err(error) => return Ok(failure(&format!("this client cannot be asked: {}", error.message))),
    };
    let content = reply.member("content").unwrap_or_else(Raw::empty_object);
    Ok(match (reply.text("action").as_deref(), content.text("name"), content.text("color")) {
        (Some("accept"), Some(name), Some(color)) => answer(&format!("Hello {name}, {color} suits you.")),
        (Some("accept"), Some(name), None) => answer(&format!("Hello {name}.")),
        (Some("accept"), ..) => failure("the form came back without a name"),
        _ => answer("As you like, stranger."),
    })
}

fn tell_time() -> Raw {
    let unix = unix_seconds();
    let utc = rfc_3339(unix);
    let structured = json!({ "utc": utc, "unix": unix });
    Raw::from_value(&json!({ "content": [{ "type": "text", "text": utc }], "structuredContent": structured }))
}

fn read_time() -> Raw {
    let text = rfc_3339(unix_seconds());
    Raw::from_value(&json!({ "contents": [{ "uri": "clock://now", "mimeType": "text/plain", "text": text }] }))
}

fn plan_hour(call: &Invocation) -> Outcome {
    let topic = call.arguments.text("topic").ok_or_else(|| ErrorObject::invalid_params("`topic` is required"))?;
    let text = format!("It is {}. Plan the next hour for me: {topic}.", rfc_3339(unix_seconds()));
    let message = json!({ "role": "user", "content": { "type": "text", "text": text } });
    Ok(Raw::from_value(&json!({ "messages": [message] })))
}

fn answer(text: &str) -> Raw {
    Raw::from_value(&json!({ "content": [text_block(text)] }))
}

fn failure(text: &str) -> Raw {
    Raw::from_value(&json!({ "content": [text_block(text)], "isError": true }))
}

fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// Returns one of the JSON texts below on one line. The members keep their order, since clients show a form's fields in
/// that order.
fn raw(json: &'static str) -> Raw {
    Raw::trusted(json.lines().map(str::trim).collect::<String>().into())
}

fn unix_seconds() -> u64 {
    // A clock before 1970 reads as 1970.
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Formats a time (seconds since 1970) like `2026-07-28T12:00:00Z`, by the days-to-civil algorithm: it counts in eras
/// of 400 years that begin in March.
fn rfc_3339(unix: u64) -> String {
    let (days, second) = (unix / 86_400 + 719_468, unix % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second % 3_600 / 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The longest countdown, in seconds.
const LONGEST: u32 = 60;

const ECHO: &str = r#"{
    "name": "echo",
    "description": "Answers with the text it was given.",
    "inputSchema": { "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] },
    "annotations": { "readOnlyHint": true }
}"#;

const COUNTDOWN: &str = r#"{
    "name": "countdown",
    "description": "Counts down to zero, one number a second, and reports its progress.",
    "inputSchema": {
        "type": "object",
        "properties": { "from": { "type": "integer", "minimum": 1, "maximum": 60, "default": 5 } }
    },
    "annotations": { "readOnlyHint": true }
}"#;

const ASK: &str = r#"{
    "name": "ask",
    "description": "Asks the user for a name and a color, and answers with a greeting.",
    "inputSchema": { "type": "object" },
    "annotations": { "readOnlyHint": true }
}"#;

const FORM: &str = r#"{
    "mode": "form",
    "message": "Who are you?",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "name": { "type": "string", "title": "Your name", "minLength": 1 },
            "color": { "type": "string", "title": "A color", "enum": ["red", "green", "blue"], "default": "green" }
        },
        "required": ["name"]
    }
}"#;

const NOW: &str = r#"{
    "name": "now",
    "description": "Tells the time in UTC.",
    "inputSchema": { "type": "object" },
    "outputSchema": {
        "type": "object",
        "properties": { "utc": { "type": "string" }, "unix": { "type": "integer" } },
        "required": ["utc", "unix"]
    },
    "annotations": { "readOnlyHint": true }
}"#;

const TIME: &str = r#"{
    "uri": "clock://now",
    "name": "now",
    "description": "The time in UTC, as of the moment it is read.",
    "mimeType": "text/plain"
}"#;

const PLAN: &str = r#"{
    "name": "plan",
    "description": "Plans the hour that has begun.",
    "arguments": [{ "name": "topic", "description": "What the hour is for.", "required": true }]
}"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_json() {
        for text in [ECHO, COUNTDOWN, ASK, FORM, NOW, TIME, PLAN] {
            Raw::parse(raw(text).bytes()).unwrap();
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let dates = [0, 951_782_399, 951_782_400, 1_709_251_199, 1_785_240_000].map(rfc_3339);
        assert_eq!(
            dates,
            [
                "1970-01-01T00:00:00Z",
                "2000-02-28T23:59:59Z",
                "2000-02-29T00:00:00Z",
                "2024-02-29T23:59:59Z",
                "2026-07-28T12:00:00Z",
            ]
        );
    }
}
