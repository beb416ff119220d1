//! The tools, and which of them run as tasks.

use std::sync::Arc;
use std::time::Duration;

use mcp_host::protocol::ErrorObject;
use serde_json::{Value, json};

use crate::task::{Ended, Task};

/// Whether a tool runs as a task.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Support {
    Never,
    Optional,
    Required,
}

impl Support {
    fn word(self) -> &'static str {
        match self {
            Self::Never => "forbidden",
            Self::Optional => "optional",
            Self::Required => "required",
        }
    }
}

const TOOLS: [(&str, &str, Support); 7] = [
    ("greet", "Says hello.", Support::Never),
    ("slow_compute", "Takes as many seconds as it is told.", Support::Optional),
    ("failing_job", "Fails after a second.", Support::Required),
    ("protocol_error_job", "Ends with an error of the protocol.", Support::Optional),
    ("confirm_delete", "Asks before it does something.", Support::Optional),
    ("multi_input", "Asks two things at once.", Support::Optional),
    ("test_tool_with_task", "Asks for a name first, then runs.", Support::Required),
];

pub(crate) fn support(name: &str) -> Result<Support, ErrorObject> {
    let found = TOOLS.iter().find(|(tool, ..)| *tool == name).map(|(.., support)| *support);
    found.ok_or_else(|| ErrorObject::invalid_params(format!("unknown tool: {name}")))
}

/// Returns the result of `tools/list`. Only 2025-11-25 says which tools run as tasks; those that may do so declare at
/// least `with_support`.
pub(crate) fn list(with_support: Option<Support>) -> Value {
    let tools = TOOLS.iter().map(|(name, about, support)| {
        let mut tool = json!({ "name": name, "description": about, "inputSchema": schema(name) });
        if let (Some(least), true) = (with_support, *support != Support::Never) {
            tool["execution"] = json!({ "taskSupport": least.max(*support).word() });
        }
        tool
    });
    json!({ "tools": tools.collect::<Vec<_>>() })
}

fn schema(name: &str) -> Value {
    let properties = match name {
        "greet" => json!({ "name": { "type": "string" } }),
        "slow_compute" => json!({ "seconds": { "type": "number" }, "label": { "type": "string" } }),
        "confirm_delete" => json!({ "filename": { "type": "string" } }),
        _ => json!({}),
    };
    json!({ "type": "object", "properties": properties })
}

/// Runs the tool. `task` is set if it runs as one; `name` is what `test_tool_with_task` was told.
pub(crate) async fn run(tool: String, arguments: Value, task: Option<Arc<Task>>, name: Option<String>) -> Ended {
    let text = |member: &str| arguments[member].as_str().unwrap_or_default().to_owned();
    match tool.as_str() {
        "greet" => Ok(answer(&format!("Hello, {}!", text("name")))),
        "slow_compute" => {
            let seconds = arguments["seconds"].as_f64().filter(|seconds| (0.0..1e6).contains(seconds)).unwrap_or(1.0);
            tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
            Ok(answer(&format!("computed {} in {seconds} s", text("label"))))
        }
        "failing_job" => {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(json!({ "content": [{ "type": "text", "text": "the job failed" }], "isError": true }))
        }
        "protocol_error_job" => Err(ErrorObject::internal("the job broke down")),
        "confirm_delete" => {
            let reply = ask(task.as_deref(), &format!("Delete {}?", text("filename")), "confirm", "boolean").await?;
            let done = if reply["content"]["confirm"] == true { "deleted" } else { "kept" };
            Ok(answer(&format!("{done} {}", text("filename"))))
        }
        "multi_input" => {
            let task = task.as_deref();
            let (name, sure) =
                tokio::join!(ask(task, "Who are you?", "name", "string"), ask(task, "Sure?", "confirm", "boolean"));
            Ok(answer(&format!("{} {}", name?["content"], sure?["content"])))
        }
        _ => Ok(answer(&format!("done for {}", name.unwrap_or_default()))),
    }
}

async fn ask(task: Option<&Task>, message: &str, field: &str, kind: &str) -> Ended {
    let task = task.ok_or_else(|| ErrorObject::internal("this tool asks, and only a task can"))?;
    Ok(task.ask(question(message, field, kind)).await)
}

/// Returns a question in the form of 2026-07-28; its `params` are those of the request in 2025-11-25.
pub(crate) fn question(message: &str, field: &str, kind: &str) -> Value {
    let schema = json!({ "type": "object", "properties": { field: { "type": kind } }, "required": [field] });
    json!({
        "method": "elicitation/create",
        "params": { "mode": "form", "message": message, "requestedSchema": schema },
    })
}

/// Returns what `test_tool_with_task` asks before it becomes a task.
pub(crate) fn name_question() -> Value {
    question("What is your name?", "name", "string")
}

fn answer(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}
