//! Markers in the responses of servers without sessions: for whom they are (`docs/hazards.md` H63), and that they ask
//! something (H44). On a paused clock.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::support::*;
use crate::config::{self, Config, Stdio, Transport};
use crate::manager::{Manager, Principal};
use crate::protocol::{Message, Method, Profile, ProtocolVersion, Raw, Request, RequestId, Response};
use crate::router::{Client, Router};
use crate::transport::Wire;
use crate::upstream::Starter;

/// The responses of a server.
type Answers = Arc<dyn Fn(&Request) -> Value + Send + Sync>;

fn starter(answers: Answers) -> Starter {
    Arc::new(move |Wire { out, mut input, .. }, tasks| {
        let answers = answers.clone();
        tasks.spawn(async move {
            while let Some(message) = input.recv().await {
                let Message::Request(request) = message else { continue };
                let outcome = Ok(Raw::from_value(&answers(&request)));
                let response = Response { id: Some(request.id), outcome };
                let _ = out.send((None, Message::Response(response))).await;
            }
        });
    })
}

/// A router over servers of 2026-07-28 with these responses.
fn router(servers: impl IntoIterator<Item = Answers>) -> Router {
    let (mut config, mut memory) = (Config::default(), HashMap::new());
    for (number, answers) in servers.into_iter().enumerate() {
        let name = format!("s{number}");
        let mut entry = config::Server::new(&name, Transport::Stdio(Stdio::default())).unwrap();
        entry.era = config::Era::Modern;
        config.servers.push(entry);
        memory.insert(name, starter(answers));
    }
    let info = Raw::from_value(&json!({ "name": "test", "version": "0" }));
    let (manager, news) = Manager::start(config, &memory, info.clone(), None, Default::default());
    Router::start(manager, news, info)
}

/// Makes a request of a client without a session, and returns its response.
async fn ask(router: &Router, client: &Arc<Client>, method: Method, params: &Value) -> Value {
    let request = Request { id: RequestId::Number(1), method, params: Some(Raw::from_value(params)) };
    let (leg, closing) = (router.modern_leg(None), CancellationToken::new());
    router.stateless(client, request, &leg, &closing).await.unwrap().unwrap().read().unwrap()
}

/// A server that marks all its responses with a scope.
fn marked(mark: Option<&'static str>) -> Answers {
    Arc::new(move |request| {
        let mut result = match request.method {
            Method::Discover => {
                json!({ "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {}, "resources": {} } })
            }
            Method::ToolsList => json!({ "tools": [{ "name": "go", "inputSchema": { "type": "object" } }] }),
            Method::ResourcesList => json!({ "resources": [{ "name": "a", "uri": "x:a" }] }),
            Method::ResourceTemplatesList => json!({ "resourceTemplates": [] }),
            _ => json!({ "contents": [] }),
        };
        (result["resultType"], result["ttlMs"]) = (json!("complete"), json!(60_000));
        if let Some(mark) = mark {
            result["cacheScope"] = json!(mark);
        }
        result
    })
}

#[tokio::test(start_paused = true)]
async fn h63_what_a_server_keeps_for_one_is_for_everybody_to_keep_in_no_answer_of_ours() {
    let (all, one) = (Some("public"), Some("private"));
    for (marks, wanted) in [
        (&[all][..], "public"),
        (&[one], "private"),
        (&[None], "private"),
        (&[Some("mine")], "private"),
        (&[all, all], "public"),
        (&[all, one], "private"),
        (&[one, all], "private"),
    ] {
        let router = router(marks.iter().map(|mark| marked(*mark)));
        let client = router.modern(Principal::local(), &Raw::empty_object()).unwrap();
        for method in [Method::ToolsList, Method::ResourcesList, Method::ResourceTemplatesList, Method::Discover] {
            let answer = ask(&router, &client, method.clone(), &json!({})).await;
            assert_eq!(answer["cacheScope"], wanted, "{marks:?} {method}: {answer}");
        }
        let listed = ask(&router, &client, Method::ResourcesList, &json!({})).await;
        assert_eq!(listed["resources"].as_array().map(Vec::len), Some(marks.len()), "{listed}");
        let read = ask(&router, &client, Method::ResourcesRead, &json!({ "uri": listed["resources"][0]["uri"] })).await;
        let wanted = if marks[0] == all { "public" } else { "private" };
        assert_eq!(read["cacheScope"], wanted, "{marks:?}: {read}");
    }
}

#[tokio::test(start_paused = true)]
async fn h63_a_list_is_for_as_few_as_any_of_its_pages() {
    for (pages, wanted) in
        [(["public"; 2], "public"), (["private", "public"], "private"), (["public", "private"], "private")]
    {
        let (first, second) = (marked(Some(pages[0])), marked(Some(pages[1])));
        let server: Answers = Arc::new(move |request| {
            let is_second = request.params.as_ref().is_some_and(|params| params.member("cursor").is_some());
            let mut result = if is_second { second(request) } else { first(request) };
            if request.method == Method::ToolsList && is_second {
                result["tools"][0]["name"] = json!("last");
            } else if request.method == Method::ToolsList {
                result["nextCursor"] = json!("more");
            }
            result
        });
        let router = router([server]);
        let client = router.modern(Principal::local(), &Raw::empty_object()).unwrap();
        let listed = ask(&router, &client, Method::ToolsList, &json!({})).await;
        assert_eq!(listed["tools"].as_array().map(Vec::len), Some(2), "{listed}");
        assert_eq!(listed["cacheScope"], wanted, "{pages:?}: {listed}");
    }
}

/// Answers every request with a question.
fn curious(request: &Request) -> Value {
    match request.method {
        Method::Discover => json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"],
            "capabilities": { "prompts": {}, "completions": {} } }),
        Method::PromptsList => json!({ "resultType": "complete", "prompts": [{ "name": "p" }] }),
        _ => {
            let form = json!({ "message": "?", "requestedSchema": { "type": "object", "properties": {} } });
            let question = json!({ "method": "elicitation/create", "params": form });
            json!({ "resultType": "input_required", "inputRequests": { "q": question }, "requestState": "s" })
        }
    }
}

#[tokio::test(start_paused = true)]
async fn h44_a_question_for_an_answer_to_what_may_not_ask_is_put_to_nobody() {
    let router = router([Arc::new(curious) as Answers]);
    let modern = router.modern(Principal::local(), &Raw::trusted(FORM.into())).unwrap();
    let legacy = router.admit(Principal::local(), ProtocolVersion::V2025_11_25, Profile::ELICITATION_FORM, None);
    let listed = request(&router, &modern, Method::PromptsList, &json!({})).answer().await;
    let name = &listed["prompts"][0]["name"];
    let asked = request(&router, &modern, Method::PromptsGet, &json!({ "name": name })).answer().await;
    assert_eq!(asked["resultType"], "input_required", "this may: {asked}");
    let argument = json!({ "name": "a", "value": "" });
    let params = json!({ "ref": { "type": "ref/prompt", "name": name }, "argument": argument });
    for client in [&modern, &legacy] {
        let running = request(&router, client, Method::Complete, &params);
        let leg = running.leg.clone();
        let answer = tokio::time::timeout(Duration::from_secs(60), running.whole_answer()).await;
        let answer = answer.expect("the question is put");
        assert_eq!(answer["data"]["kind"], "malformed", "{answer}");
        assert!(leg.try_next().is_none() && client.mailbox().try_next().is_none());
    }
}
