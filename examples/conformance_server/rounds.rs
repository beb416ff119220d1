//! The scenarios of 2026-07-28: tools and a prompt that need answers of the client before they end. They ask by
//! requests, like every in-process server; the host translates that for clients without a session.

use futures_util::future::{BoxFuture, join_all};
use mcp_host::InProcess;
use mcp_host::in_process::Invocation;
use mcp_host::protocol::{ErrorObject, Outcome, Profile, Raw, code};
use serde_json::json;

use crate::asks;
use crate::ways::{self, Ways};
use crate::words::{answer, failure, messages, prompt, text, tool};

/// Adds the tools and the prompt, if this server asks by results.
pub(crate) fn add(server: InProcess, ways: Ways) -> InProcess {
    let server = add_plain(server);
    match ways {
        Ways::Both | Ways::Results => add_asking(server),
        Ways::Requests => ASKING.iter().fold(server, |server, name| {
            ways::without(server, &format!("test_input_required_result_{name}"), "needs 2026-07-28")
        }),
    }
}

const ASKING: [&str; 8] = [
    "elicitation",
    "sampling",
    "list_roots",
    "request_state",
    "tampered_state",
    "multiple_inputs",
    "multi_round",
    "capabilities",
];

/// Adds the tools that ask nothing.
fn add_plain(server: InProcess) -> InProcess {
    server
        .tool(tool("test_logging_tool", "Writes a log line.", &[]), |call| {
            Box::pin(async move {
                call.log("info", Raw::from_value("a line for those who asked for one")).await;
                Ok(answer("A log line was written."))
            })
        })
        .tool(tool("test_missing_capability", "Needs a client that can sample.", &[]), |call| {
            Box::pin(async move { need_sampling(&call) })
        })
}

fn add_asking(server: InProcess) -> InProcess {
    let server = server
        .tool(named("elicitation", "Asks for a name."), |call| Box::pin(greet(call)))
        .tool(named("sampling", "Asks the client's model."), |call| Box::pin(ask_model(call)))
        .tool(named("list_roots", "Asks for the client's roots."), |call| Box::pin(list_roots(call)))
        .tool(named("request_state", "Asks to confirm."), |call| Box::pin(confirm(call)))
        .tool(named("tampered_state", "Asks to confirm."), |call| Box::pin(confirm(call)))
        .tool(named("multiple_inputs", "Asks three things at once."), |call| Box::pin(ask_three(call)))
        .tool(named("multi_round", "Asks twice."), |call| Box::pin(ask_twice(call)))
        .tool(named("capabilities", "Asks what the client can be asked."), |call| Box::pin(ask_what_can_be(call)));
    let server = server.tool(tool("test_streaming_elicitation", "Reports, then asks to confirm.", &[]), |call| {
        Box::pin(async move {
            call.progress(1.0, Some(2.0), "asking").await;
            confirm(call).await
        })
    });
    server.prompt(prompt("test_input_required_result_prompt", "Asks for its context.", &[]), |call| {
        Box::pin(async move {
            let asked = asks::for_text(&call, "user_context", "What context should the prompt use?", "context").await;
            let context = asked.map_err(ErrorObject::internal)?.unwrap_or_else(|| "none".to_owned());
            Ok(messages(&[text(&format!("Use this context: {context}"))]))
        })
    })
}

fn named(name: &str, about: &str) -> Raw {
    tool(&format!("test_input_required_result_{name}"), about, &[])
}

async fn greet(call: Invocation) -> Outcome {
    told(asks::for_text(&call, "user_name", "What is your name?", "name").await, |name| match name {
        Some(name) => format!("Hello, {name}!"),
        None => "Hello, whoever you are!".to_owned(),
    })
}

async fn ask_model(call: Invocation) -> Outcome {
    told(asks::the_model(&call, "capital_question", "What is the capital of France?", 100).await, |said| said)
}

async fn list_roots(call: Invocation) -> Outcome {
    told(asks::for_roots(&call).await, |roots| format!("Roots: {roots}"))
}

/// The host keeps and seals what the state must carry.
async fn confirm(call: Invocation) -> Outcome {
    told(asks::to_confirm(&call).await, |ok| format!("state-ok, confirmed: {ok}"))
}

async fn ask_three(call: Invocation) -> Outcome {
    let (name, greeting, roots) = tokio::join!(
        asks::for_text(&call, "user_name", "What is your name?", "name"),
        asks::the_model(&call, "greeting", "Generate a greeting", 50),
        asks::for_roots(&call),
    );
    let all = || Ok::<_, String>(format!("{} {}! Roots: {}", greeting?, name?.unwrap_or_default(), roots?));
    told(all(), |all| all)
}

async fn ask_twice(call: Invocation) -> Outcome {
    let name = asks::for_text(&call, "step1", "Step 1: What is your name?", "name").await;
    let name = match name {
        Ok(name) => name.unwrap_or_default(),
        Err(error) => return Ok(failure(&error)),
    };
    let color = asks::for_text(&call, "step2", "Step 2: What is your favorite color?", "color").await;
    told(color, |color| format!("{name} likes {}.", color.unwrap_or_default()))
}

/// Asks everything that this client declared, at once.
async fn ask_what_can_be(call: Invocation) -> Outcome {
    let can = call.profile();
    let mut questions: Vec<BoxFuture<'_, Result<String, String>>> = Vec::new();
    if can.has(Profile::ELICITATION_FORM) {
        questions.push(Box::pin(async {
            Ok(asks::for_text(&call, "user_name", "What is your name?", "name").await?.unwrap_or_default())
        }));
    }
    if can.has(Profile::SAMPLING) {
        questions.push(Box::pin(asks::the_model(&call, "greeting", "Generate a greeting", 50)));
    }
    if can.has(Profile::ROOTS) {
        questions.push(Box::pin(asks::for_roots(&call)));
    }
    let answers: Result<Vec<String>, String> = join_all(questions).await.into_iter().collect();
    told(answers, |answers| format!("{} answers: {}", answers.len(), answers.join("; ")))
}

fn need_sampling(call: &Invocation) -> Outcome {
    if call.profile().has(Profile::SAMPLING) {
        return Ok(answer("This client can sample."));
    }
    let data = Raw::from_value(&json!({ "requiredCapabilities": { "sampling": {} } }));
    Err(ErrorObject::new(code::MISSING_CAPABILITY, "this tool needs a client that can sample").with_data(data))
}

/// Returns the answers as a sentence, or why there are none.
fn told<T>(asked: Result<T, String>, sentence: impl FnOnce(T) -> String) -> Outcome {
    Ok(asked.map_or_else(|error| failure(&error), |asked| answer(&sentence(asked))))
}
