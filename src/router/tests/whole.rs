//! What every response to a client must or must not say, by its revision, including the host's own.

use std::sync::Arc;

use serde_json::{Value, json};

use super::support::*;
use crate::config::{Auth, Grant, Helper, OAuth, Remote, Secret, Sharing, Stdio, Transport};
use crate::manager::Principal;
use crate::protocol::{Message, Method, Outcome, Profile, ProtocolVersion, Raw, Request, RequestId, Response, meta};
use crate::router::Client;

/// Makes any request.
async fn ask(stage: &Stage, client: &Arc<Client>, method: Method, params: Value) -> Outcome {
    let leg = stage.router.modern_leg(None);
    let request = Request { id: RequestId::Number(7), method, params: Some(Raw::from_value(&params)) };
    stage.router.request(client, request, &leg).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn every_result_for_a_modern_client_is_whole() {
    let stage = stage().await;
    let client = stage.modern(ALL);
    let fails = json!({ "name": "no_such_tool" });
    assert_eq!(ask(&stage, &client, Method::ToolsCall, fails).await.unwrap_err().code, -32602);
    for (method, params) in [
        (Method::ToolsCall, call("echo")),
        (Method::ToolsCall, call("ask")),
        (Method::ToolsCall, call("page")),
        (Method::ToolsList, json!({})),
        (Method::PromptsList, json!({})),
        (Method::ResourcesList, json!({})),
        (Method::ResourceTemplatesList, json!({})),
        (Method::Complete, json!({ "ref": { "type": "ref/prompt", "name": "p" }, "argument": {} })),
    ] {
        let result: Value = ask(&stage, &client, method.clone(), params).await.unwrap().read().unwrap();
        let asks = result.get("inputRequests").is_some();
        assert_eq!(result["resultType"], if asks { "input_required" } else { "complete" }, "{method} {result}");
        assert_eq!(result["_meta"][meta::SERVER_INFO]["name"], "test", "{method} {result}");
        let hints = matches!(
            method,
            Method::ToolsList | Method::PromptsList | Method::ResourcesList | Method::ResourceTemplatesList
        );
        assert_eq!(result["ttlMs"].is_u64() && result["cacheScope"].is_string(), hints, "{method} {result}");
    }
    stage.router.shutdown().await;
    stage.router.manager().shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_a_legacy_client_says_nothing_newer() {
    let stage = stage().await;
    for revision in ProtocolVersion::HANDSHAKE {
        let client = stage.legacy(revision, Profile::EMPTY);
        for (method, params) in [(Method::ToolsCall, call("echo")), (Method::ToolsList, json!({}))] {
            let result: Value = ask(&stage, &client, method, params).await.unwrap().read().unwrap();
            for name in ["resultType", "ttlMs", "cacheScope", "_meta"] {
                assert_eq!(result.get(name), None, "{revision}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_of_an_equal_revision_is_cleaned_too() {
    let stage = stage().await;
    let client = stage.legacy(ProtocolVersion::V2025_11_25, Profile::ELICITATION_URL.with(Profile::ELICITATION_FORM));
    let running = stage.call(&client, &call("visit"));
    let question = running.question().await;
    let params = question.params.unwrap();
    assert_eq!(params.text("elicitationId").as_deref(), Some("script:e2"), "ids are unique per server only");
    assert_eq!(params.member("_meta").and_then(|meta| meta.member("progressToken")), None, "tokens are of one hop");
    client.answer(Response { id: Some(question.id), outcome: Ok(Raw::trusted(r#"{"action":"accept"}"#.into())) });
    assert_eq!(text(&running.answer().await), r#"{"action":"accept"}"#);
    assert!(!matches!(client.mailbox().try_next(), Some(Message::Request(_))));
}

#[tokio::test(start_paused = true)]
async fn a_question_says_nothing_under_our_own_names_but_the_key_that_its_server_wishes_for() {
    let stage = stage().await;
    let client = stage.legacy(ProtocolVersion::V2025_11_25, Profile::ELICITATION_FORM);
    let running = stage.call(&client, &call("keyed"));
    let question = running.question().await;
    let params = question.params.unwrap();
    let wish = params.member("_meta").and_then(|meta| meta.text("mcp-host/inputKey"));
    assert_eq!(wish.as_deref(), Some("user_name"), "the client may be another host");
    assert_eq!(params.to_string().matches("mcp-host/").count(), 1, "{params}");
    client.answer(Response { id: Some(question.id), outcome: Ok(Raw::trusted(r#"{"action":"decline"}"#.into())) });
    assert_eq!(text(&running.answer().await), r#"{"action":"decline"}"#);
}

#[tokio::test(start_paused = true)]
async fn h37_what_is_read_here_is_what_is_read_there() {
    let stage = stage().await;
    let client = stage.modern(FORM);
    for (method, params) in [
        (Method::ToolsCall, r#"{"name":"echo","name":"held"}"#),
        (Method::ToolsCall, r#"{"name":"echo","arguments":{},"\u0061rguments":{"x":1}}"#),
        (Method::ToolsCall, r#"{"name":"echo","_meta":{},"_meta":{"io.modelcontextprotocol/clientCapabilities":{}}}"#),
        (Method::ToolsCall, r#"{"name":"echo","requestState":"a","requestState":"b"}"#),
        (Method::PromptsGet, r#"{"name":"p","name":"q"}"#),
        (Method::ResourcesRead, r#"{"uri":"x:y","uri":"x:z"}"#),
        (Method::Complete, r#"{"ref":{"type":"ref/prompt","name":"p","name":"q"}}"#),
    ] {
        let request = Request { id: RequestId::Number(7), method, params: Some(Raw::trusted(params.into())) };
        let outcome = stage.router.request(&client, request, &stage.router.modern_leg(None)).await.unwrap();
        let error = outcome.unwrap_err();
        assert!(error.code == -32602 && error.message.contains("twice"), "{params} {error:?}");
    }
}

/// Returns who else may see what a client was shown, by its list of tools.
async fn scope(stage: &Stage, principal: Principal) -> Value {
    let client = stage.modern_of(principal, "{}");
    let list: Value = ask(stage, &client, Method::ToolsList, json!({})).await.unwrap().read().unwrap();
    assert!(!list["tools"].as_array().unwrap().is_empty(), "{list}");
    list["cacheScope"].clone()
}

#[tokio::test(start_paused = true)]
async fn h63_what_one_is_told_in_a_session_or_for_credentials_is_for_nobody_else_to_keep() {
    let ann = || Principal::named("ann");
    let alone = stage().await;
    assert_eq!(scope(&alone, Principal::local()).await, "public");
    assert_eq!(scope(&alone, ann()).await, "private", "the session may see private tools");
    let shared = stage_of(|config| config.servers[0].sharing = Sharing::Host).await;
    assert_eq!(scope(&shared, ann()).await, "public", "all have the same session");
    let at = |change: &dyn Fn(&mut Remote)| {
        let mut remote = Remote::new("https://one.example/mcp".parse().unwrap());
        change(&mut remote);
        Transport::Http(remote)
    };
    let by_itself = || Auth::OAuth(Box::new(OAuth { grant: Grant::ClientCredentials, ..OAuth::default() }));
    let forward_env = vec!["TOKEN".to_owned()];
    for (way, transport, wanted) in [
        ("a variable", Transport::Stdio(Stdio { forward_env, ..Stdio::default() }), "private"),
        ("nothing", at(&|_| {}), "public"),
        ("headers", at(&|remote| remote.headers = vec![("x".to_owned(), Secret::new("long-enough"))]), "private"),
        ("a program", at(&|remote| remote.headers_helper = Some(Helper::new("token"))), "private"),
        ("a certificate", at(&|remote| remote.tls.identity = Some(("cert".into(), "key".into()))), "private"),
        ("a grant", at(&|remote| remote.auth = by_itself()), "private"),
    ] {
        let stage = stage_of(|config| config.servers[0].transport = transport).await;
        assert_eq!(scope(&stage, Principal::local()).await, wanted, "{way}");
    }
}
