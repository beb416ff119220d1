//! Tasks, as written by the core of 2025-11-25 and by the extension of 2026-07-28 (`docs/bridging.md` 11).
//!
//! The two differ in form: `ttl` became `ttlMs`; the result that creates a task was nested and is now flat; a tool call
//! with `isError` used to make its task failed, and now makes it completed.

use std::time::Duration;

use crate::protocol::{ErrorObject, Outcome, Raw, code, meta, object};

/// The extension's id.
pub(crate) const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// The longest task id of a server, in bytes: it is kept as long as the task, and sealed into the id that the client
/// gets.
pub(crate) const LONGEST_ID: usize = 1024;

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Working,
    InputRequired,
    Completed,
    Failed,
    Cancelled,
}

impl Status {
    /// Returns the word on the wire.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::InputRequired => "input_required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns the status of a task; an unknown word means that it is still running.
    pub(crate) fn of(task: &Raw) -> Self {
        let word = task.text("status").unwrap_or_default();
        let all = [Self::InputRequired, Self::Completed, Self::Failed, Self::Cancelled];
        all.into_iter().find(|status| status.as_str() == word).unwrap_or(Self::Working)
    }

    /// Reports whether the task has ended.
    pub(crate) fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// Returns the task that a result creates: its member `task` in 2025-11-25, the result itself in 2026-07-28.
pub(crate) fn created(result: &Raw) -> Option<Raw> {
    if result.text("resultType").as_deref() == Some("task") {
        return result.text("taskId").map(|_| result.clone());
    }
    result.member("task").filter(|task| task.text("taskId").is_some())
}

/// Asks a server of 2025-11-25 to run the call as a task.
pub(crate) fn wanted(params: &Raw) -> Raw {
    params.with_member("task", b"{}")
}

/// Marks a tool of a 2026-07-28 server that supports tasks. Such a server alone decides which calls become tasks, which
/// a client of 2025-11-25 understands as `optional`.
pub(crate) fn marked(tool: &Raw) -> Raw {
    match tool.value_of("execution") {
        Some(_) => tool.clone(),
        None => tool.with_member("execution", br#"{"taskSupport":"optional"}"#),
    }
}

/// The members of a task whose names differ, old and new; all other members that a server adds pass.
const RENAMED: [(&str, &str); 2] = [("ttl", "ttlMs"), ("pollInterval", "pollIntervalMs")];
/// The members that 2026-07-28 puts beside those of the task itself.
const BESIDE: [&str; 5] = ["resultType", "result", "error", "inputRequests", "requestState"];

/// Writes a task in the form of 2026-07-28, under the id that the client knows.
pub(crate) fn modern(task: &Raw, id: &str) -> Raw {
    let newer = |name: &str| RENAMED.iter().find(|(old, _)| *old == name).map(|(_, new)| *new);
    let task = rewritten(task, id, |name| (!BESIDE.contains(&name)).then(|| newer(name).unwrap_or(name)));
    // The member is required; `null` means forever.
    if task.member("ttlMs").is_some() { task } else { task.with_member("ttlMs", b"null") }
}

/// Writes a task in the form of 2025-11-25, under the id that the client knows.
pub(crate) fn legacy(task: &Raw, id: &str) -> Raw {
    let older = |name: &str| RENAMED.iter().find(|(_, new)| *new == name).map(|(old, _)| *old);
    let has_failed = task.member("result").is_some_and(|result| is_error(&result));
    let task =
        rewritten(task, id, |name| (!BESIDE.contains(&name) && name != "_meta").then(|| older(name).unwrap_or(name)));
    let task = if task.member("ttl").is_some() { task } else { task.with_member("ttl", b"null") };
    if has_failed { with_status(&task, Status::Failed) } else { task }
}

/// Gives the task the id that the client knows.
pub(crate) fn renamed(task: &Raw, id: &str) -> Raw {
    task.with_member("taskId", Raw::from_value(id).as_bytes())
}

pub(crate) fn with_status(task: &Raw, status: Status) -> Raw {
    task.with_member("status", Raw::from_value(status.as_str()).as_bytes())
}

/// Adds the outcome of its request to a task of 2026-07-28. A tool result with `isError` counts as completed.
pub(crate) fn ended(task: &Raw, outcome: &Outcome) -> Raw {
    match outcome {
        Ok(result) => with_status(task, Status::Completed).with_member("result", unrelated(result).as_bytes()),
        Err(error) => with_status(task, Status::Failed).with_member("error", Raw::from_value(error).as_bytes()),
    }
}

/// Returns how a task of 2026-07-28 ended, as far as the server says.
pub(crate) fn outcome(task: &Raw) -> Outcome {
    match Status::of(task) {
        Status::Completed => task
            .member("result")
            .ok_or_else(|| ErrorObject::internal("the server says the task completed, but not how")),
        Status::Cancelled => Err(ErrorObject::new(code::INTERNAL, "the task was cancelled")),
        _ => Err(task
            .member("error")
            .and_then(|error| error.read().ok())
            .unwrap_or_else(|| ErrorObject::internal("the server says the task failed, but not why"))),
    }
}

/// Reports whether a tool result is an error.
fn is_error(result: &Raw) -> bool {
    result.member("isError").is_some_and(|flag| flag.as_bytes() == b"true")
}

/// Names the task, by the id that the client knows, in the `_meta` of a body of 2025-11-25.
pub(crate) fn related(body: &Raw, id: &str) -> Raw {
    let task = format!(r#"{{"taskId":{}}}"#, Raw::from_value(id));
    match body.member("_meta").filter(Raw::is_object) {
        Some(own) => body.with_member("_meta", own.with_member(meta::RELATED_TASK, task.as_bytes()).as_bytes()),
        None => body.with_member("_meta", format!(r#"{{"{}":{task}}}"#, meta::RELATED_TASK).as_bytes()),
    }
}

/// Returns the task that a body of 2025-11-25 belongs to.
pub(crate) fn related_to(body: &Raw) -> Option<String> {
    body.member("_meta")?.member(meta::RELATED_TASK)?.text("taskId")
}

/// Removes the related task from a body.
pub(crate) fn unrelated(body: &Raw) -> Raw {
    match body.member("_meta").filter(|own| own.member(meta::RELATED_TASK).is_some()) {
        Some(own) => {
            let own = own.without_member(meta::RELATED_TASK);
            let is_empty = object(own.as_value()).is_none_or(|members| members.is_empty());
            if is_empty { body.without_member("_meta") } else { body.with_member("_meta", own.as_bytes()) }
        }
        None => body.clone(),
    }
}

/// Returns the time that the server wants between two polls of a task, but at least `POLL_MIN` and at most `POLL_MAX`.
pub(crate) fn poll_interval(task: &Raw) -> Duration {
    let [old, new] = task.members(["pollInterval", "pollIntervalMs"]);
    let told = new.or(old).and_then(|interval| interval.read::<f64>().ok()).filter(|interval| interval.is_finite());
    let told = told.map(|interval| Duration::from_millis(interval.clamp(0.0, 1e9) as u64));
    told.unwrap_or(POLL).clamp(POLL_MIN, POLL_MAX)
}

const POLL: Duration = Duration::from_millis(500);
const POLL_MIN: Duration = Duration::from_millis(20);
const POLL_MAX: Duration = Duration::from_secs(10);

/// Creates a task of 2025-11-25 that has already ended.
pub(crate) fn done(id: &str, outcome: &Outcome, at: Duration) -> Raw {
    let failed = outcome.as_ref().map_or(true, is_error);
    let status = if failed { Status::Failed } else { Status::Completed };
    let at = timestamp(at);
    Raw::from_value(&serde_json::json!({
        "taskId": id, "status": status.as_str(), "createdAt": at, "lastUpdatedAt": at, "ttl": null,
    }))
}

/// Rewrites a task: members keep their order, `name` renames or drops them, and the id is replaced.
fn rewritten(task: &Raw, id: &str, name: impl for<'a> Fn(&'a str) -> Option<&'a str>) -> Raw {
    let id = Raw::from_value(id);
    let members = object(task.as_value()).unwrap_or_default();
    let kept = members.iter().filter_map(|(key, value)| Some((name(key)?, value.get())));
    let written = kept.map(|(key, value)| {
        let value = if key == "taskId" { id.as_str() } else { value };
        format!("{}:{value}", Raw::from_value(key))
    });
    Raw::trusted(format!("{{{}}}", written.collect::<Vec<_>>().join(",")).into())
}

/// Formats a time since 1970 as ISO 8601 (H. Hinnant, "chrono-compatible low-level date algorithms").
pub(crate) fn timestamp(since_1970: Duration) -> String {
    let (days, seconds) = (since_1970.as_secs() / 86_400, since_1970.as_secs() % 86_400);
    // Count from 0000-03-01, in eras of 400 years.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since_1970.subsec_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Raw {
        Raw::parse(&text.to_owned().into()).unwrap()
    }

    #[test]
    fn each_revision_gets_its_own_names() {
        let old = r#"{"taskId":"up","status":"working","createdAt":"a","lastUpdatedAt":"b","ttl":60000,"pollInterval":100,"vendor":{"x":1.0}}"#;
        let new = r#"{"taskId":"h","status":"working","createdAt":"a","lastUpdatedAt":"b","ttlMs":60000,"pollIntervalMs":100,"vendor":{"x":1.0}}"#;
        assert_eq!(modern(&raw(old), "h").as_str(), new);
        assert_eq!(legacy(&raw(new), "up").as_str(), old);
        assert_eq!(modern(&raw(r#"{"taskId":"up"}"#), "h").as_str(), r#"{"taskId":"h","ttlMs":null}"#);
        assert_eq!(legacy(&raw(r#"{"taskId":"up","ttlMs":null}"#), "h").as_str(), r#"{"taskId":"h","ttl":null}"#);
    }

    #[test]
    fn what_stands_beside_a_task_stays_out_of_it() {
        let beside = r#"{"resultType":"task","taskId":"up","status":"completed","ttlMs":1,"result":{"isError":true},"requestState":"s","inputRequests":{},"_meta":{"a":1}}"#;
        assert_eq!(legacy(&raw(beside), "h").as_str(), r#"{"taskId":"h","status":"failed","ttl":1}"#);
        let expected = r#"{"taskId":"h","status":"completed","ttlMs":1,"_meta":{"a":1}}"#;
        assert_eq!(modern(&raw(beside), "h").as_str(), expected);
    }

    #[test]
    fn a_result_creates_a_task_or_does_not() {
        let flat = r#"{"resultType":"task","taskId":"t","status":"working"}"#;
        assert_eq!(created(&raw(flat)).unwrap().as_str(), flat);
        assert_eq!(created(&raw(r#"{"task":{"taskId":"t"},"_meta":{}}"#)).unwrap().as_str(), r#"{"taskId":"t"}"#);
        for other in [
            r#"{"content":[]}"#,
            r#"{"resultType":"complete","taskId":"t"}"#,
            r#"{"task":7}"#,
            r#"{"resultType":"task"}"#,
        ] {
            assert_eq!(created(&raw(other)), None, "{other}");
        }
    }

    #[test]
    fn tools_of_a_server_that_decides_alone_may_all_be_tasks() {
        for (tool, expected) in [
            (r#"{"name":"a"}"#, r#"{"name":"a","execution":{"taskSupport":"optional"}}"#),
            (r#"{"name":"b","execution":{}}"#, r#"{"name":"b","execution":{}}"#),
            ("7", "7"),
        ] {
            assert_eq!(marked(&raw(tool)).as_str(), expected);
        }
    }

    #[test]
    fn a_tool_that_failed_completed_since_2026() {
        let task = raw(r#"{"taskId":"t","status":"failed"}"#);
        let tool = Ok(raw(r#"{"isError":true,"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"up"}}}"#));
        let expected = r#"{"taskId":"t","status":"completed","result":{"isError":true}}"#;
        assert_eq!(ended(&task, &tool).as_str(), expected);
        let kept = Ok(raw(r#"{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"up"},"a":1}}"#));
        let expected = r#"{"taskId":"t","status":"completed","result":{"_meta":{"a":1}}}"#;
        assert_eq!(ended(&task, &kept).as_str(), expected);
        let error = Err(ErrorObject::new(-7, "no"));
        let expected = r#"{"taskId":"t","status":"failed","error":{"code":-7,"message":"no"}}"#;
        assert_eq!(ended(&task, &error).as_str(), expected);
        assert_eq!(outcome(&raw(expected)), error);
        assert_eq!(outcome(&raw(r#"{"status":"completed","result":{"content":[]}}"#)), Ok(raw(r#"{"content":[]}"#)));
        assert!(outcome(&raw(r#"{"status":"cancelled"}"#)).is_err());
        assert!(outcome(&raw(r#"{"status":"completed"}"#)).is_err());
    }

    #[test]
    fn a_related_task_is_known_by_the_clients_id() {
        let named = r#"{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"up"}}}"#;
        assert_eq!(related_to(&raw(named)).as_deref(), Some("up"));
        let expected = r#"{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"h"}}}"#;
        assert_eq!(related(&raw(named), "h").as_str(), expected);
        assert_eq!(related(&raw("{}"), "h").as_str(), expected);
        assert_eq!(related_to(&raw("{}")), None);
    }

    #[test]
    fn polls_are_neither_a_flood_nor_a_sleep() {
        let every = |task: &str| poll_interval(&raw(task)).as_millis();
        assert_eq!(every("{}"), 500);
        assert_eq!(every(r#"{"pollInterval":0}"#), 20);
        assert_eq!(every(r#"{"pollIntervalMs":1e300}"#), 10_000);
        assert_eq!(every(r#"{"pollIntervalMs":"x"}"#), 500);
        assert_eq!(every(r#"{"pollIntervalMs":150}"#), 150);
    }

    #[test]
    fn what_was_over_at_once_is_a_task_that_is_over() {
        let at = Duration::from_millis(1_785_196_799_123);
        let text = done("h", &Ok(raw("{}")), at).to_string();
        assert_eq!(
            text,
            r#"{"createdAt":"2026-07-27T23:59:59.123Z","lastUpdatedAt":"2026-07-27T23:59:59.123Z","status":"completed","taskId":"h","ttl":null}"#
        );
        assert!(done("h", &Ok(raw(r#"{"isError":true}"#)), at).text("status").as_deref() == Some("failed"));
        assert_eq!(timestamp(Duration::ZERO), "1970-01-01T00:00:00.000Z");
        assert_eq!(timestamp(Duration::from_secs(951_782_400)), "2000-02-29T00:00:00.000Z");
    }
}
