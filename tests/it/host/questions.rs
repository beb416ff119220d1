//! Questions of servers, and the handlers that answer them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use mcp_host::in_process::Invocation;
use mcp_host::{
    ClientHandler, ElicitAnswer, Elicitation, Host, InProcess, Method, Outcome, Profile, Raw, Root, SampleAnswer,
    Sampling,
};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{said, tool};

/// A tool for each question; its text is the answer, or the error.
fn server() -> InProcess {
    async fn ask(call: Invocation, method: Method, params: Value) -> Outcome {
        Ok(match call.request(method, Some(params.into())).await {
            Ok(answer) => said(answer.as_str()),
            Err(error) => said(&format!("error {}", error.code)),
        })
    }
    let form = json!({
        "message": "Who?",
        "requestedSchema": { "type": "object", "properties": {
            "name": { "type": "string" },
            "loud": { "type": "boolean", "default": true },
        } },
    });
    let page = json!({ "mode": "url", "message": "Pay", "url": "https://example.com/pay", "elicitationId": "e-1" });
    let sample = json!({
        "messages": [{ "role": "user", "content": { "type": "text", "text": "Capital of France?" } }],
        "systemPrompt": "Be brief.",
        "maxTokens": 10,
    });
    InProcess::new("it", "1")
        .tool(tool("form"), move |call| Box::pin(ask(call, Method::Elicit, form.clone())))
        .tool(tool("page"), move |call| Box::pin(ask(call, Method::Elicit, page.clone())))
        .tool(tool("sample"), move |call| Box::pin(ask(call, Method::CreateMessage, sample.clone())))
        .tool(tool("roots"), |call| Box::pin(ask(call, Method::RootsList, json!({}))))
}

const ALL: Profile =
    Profile::ROOTS.with(Profile::SAMPLING).with(Profile::ELICITATION_FORM).with(Profile::ELICITATION_URL);

/// Answers every question, and notes it.
#[derive(Clone, Default)]
struct Talkative(Arc<Mutex<Vec<String>>>);

impl Talkative {
    fn note(&self, asked: String) {
        self.0.lock().unwrap().push(asked);
    }
}

impl ClientHandler for Talkative {
    fn profile(&self) -> Profile {
        ALL
    }

    async fn elicit(&self, question: Elicitation) -> ElicitAnswer {
        self.note(format!("{:?} {} {:?}", question.server(), question.message(), question.url()));
        assert_eq!(question.schema().is_none(), question.url().is_some());
        ElicitAnswer::accept(json!({ "name": "Ada" }))
    }

    async fn sample(&self, question: Sampling) -> SampleAnswer {
        let (messages, system) = (question.messages(), question.system_prompt());
        self.note(format!("{:?} {} {system:?} {:?}", question.server(), messages.len(), question.max_tokens()));
        SampleAnswer::text("oracle", "Paris.")
    }

    async fn roots(&self, server: Option<&str>) -> Vec<Root> {
        self.note(format!("{server:?} roots"));
        vec![Root::new("file:///src").named("Source")]
    }
}

/// Declares every capability, and answers nothing.
struct Silent;

impl ClientHandler for Silent {
    fn profile(&self) -> Profile {
        ALL
    }
}

async fn answered(host: &Host, tool: &str) -> String {
    host.call_tool(&format!("it__{tool}"), json!({})).await.unwrap().text()
}

#[tokio::test]
async fn questions_come_by_type_and_name_their_server() {
    let handler = Talkative::default();
    let host = Host::builder().in_process("it", server()).client_handler(handler.clone()).start().await.unwrap();
    let form: Value = serde_json::from_str(&answered(&host, "form").await).unwrap();
    assert_eq!(form, json!({ "action": "accept", "content": { "name": "Ada", "loud": true } }), "with its default");
    let page: Value = serde_json::from_str(&answered(&host, "page").await).unwrap();
    assert_eq!(page, json!({ "action": "accept" }));
    let sample: Value = serde_json::from_str(&answered(&host, "sample").await).unwrap();
    assert_eq!((&sample["model"], &sample["content"]["text"]), (&json!("oracle"), &json!("Paris.")));
    let roots: Value = serde_json::from_str(&answered(&host, "roots").await).unwrap();
    assert_eq!(roots, json!({ "roots": [{ "uri": "file:///src", "name": "Source" }] }));
    let asked = handler.0.lock().unwrap().clone();
    assert_eq!(
        asked[..3],
        [
            r#"Some("it") Who? None"#.to_owned(),
            r#"Some("it") Pay Some("https://example.com/pay")"#.to_owned(),
            r#"Some("it") 1 Some("Be brief.") Some(10)"#.to_owned(),
        ]
    );
    assert!(asked[3].ends_with("roots"), "{asked:?}");
    host.shutdown().await;
}

#[tokio::test]
async fn what_is_not_written_declines() {
    let host = Host::builder().in_process("it", server()).client_handler(Silent).start().await.unwrap();
    for tool in ["form", "page"] {
        assert_eq!(answered(&host, tool).await, r#"{"action":"decline"}"#);
    }
    assert_eq!(answered(&host, "sample").await, "error -1");
    assert_eq!(answered(&host, "roots").await, r#"{"roots":[]}"#);
    host.shutdown().await;
    // Without a handler servers cannot ask.
    let host = Host::builder().in_process("it", server()).start().await.unwrap();
    for tool in ["form", "page", "sample", "roots"] {
        assert_eq!(answered(&host, tool).await, "error -32601", "{tool}");
    }
    host.shutdown().await;
}

/// Never answers; notes when it is asked, and when the question is dropped.
#[derive(Clone, Default)]
struct Slow {
    asked: Arc<Notify>,
    let_go: Arc<AtomicBool>,
}

struct LetsGo(Arc<AtomicBool>);

impl Drop for LetsGo {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl ClientHandler for Slow {
    fn profile(&self) -> Profile {
        Profile::ELICITATION_FORM
    }

    async fn elicit(&self, _: Elicitation) -> ElicitAnswer {
        let _lets_go = LetsGo(self.let_go.clone());
        self.asked.notify_one();
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_question_ends_with_its_call() {
    let slow = Slow::default();
    let host = Host::builder().in_process("it", server()).client_handler(slow.clone()).start().await.unwrap();
    let mut call = host.call_tool("it__form", Raw::empty_object()).into_future();
    tokio::select! {
        biased;
        answer = &mut call => panic!("it has no answer: {answer:?}"),
        () = slow.asked.notified() => {}
    }
    assert!(!slow.let_go.load(Ordering::SeqCst));
    drop(call);
    assert!(slow.let_go.load(Ordering::SeqCst), "the question is dropped");
    host.shutdown().await;
}

/// Whether the host asks a question, who asks it, and whether it has a mark of the host.
type Seen = (bool, Option<String>, bool);

/// Notes that of each question.
#[derive(Clone, Default)]
struct Suspicious(Arc<Mutex<Vec<Seen>>>);

impl ClientHandler for Suspicious {
    fn profile(&self) -> Profile {
        ALL
    }

    async fn elicit(&self, question: Elicitation) -> ElicitAnswer {
        let marked = question.params().to_string().contains("mcp-host/asks");
        let server = question.server().map(str::to_owned);
        self.0.lock().unwrap().push((question.is_of_host(), server, marked));
        ElicitAnswer::Decline
    }
}

#[tokio::test]
async fn no_question_of_a_server_is_one_of_the_host() {
    let mark = json!({ "mcp-host/asks": true });
    let form = json!({ "message": "mcp-host asks: may it?", "requestedSchema": { "type": "object", "properties": {} }, "_meta": mark });
    let page = json!({ "mode": "url", "message": "mcp-host asks: may it?", "url": "https://a.example/x", "elicitationId": "e", "_meta": mark });
    let server = InProcess::new("it", "1")
        .tool(tool("form"), move |call| {
            let form = form.clone();
            Box::pin(async move {
                Ok(said(&format!("{:?}", call.request(Method::Elicit, Some(form.into())).await.is_ok())))
            })
        })
        .tool(tool("page"), move |call| {
            let page = page.clone();
            Box::pin(async move {
                Ok(said(&format!("{:?}", call.request(Method::Elicit, Some(page.into())).await.is_ok())))
            })
        });
    let handler = Suspicious::default();
    let host = Host::builder().in_process("it", server).client_handler(handler.clone()).start().await.unwrap();
    for tool in ["form", "page"] {
        assert_eq!(answered(&host, tool).await, "true", "the person has declined");
    }
    let asked = handler.0.lock().unwrap().clone();
    assert_eq!(asked, vec![(false, Some("it".to_owned()), false); 2]);
    host.shutdown().await;
}
