//! What is resent and what never is (`docs/hazards.md` H57), over real sockets and a real process, counting what was
//! executed; and the end of a session in the middle of everything (H30).

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::far::{Far, Met, kinds, router_of, told};
use super::support::{call, request};
use crate::config::{Stdio, Transport};
use crate::manager::Principal;
use crate::protocol::{Method, Notification, Profile, ProtocolVersion};
use crate::router::{Client, Router};

fn client(router: &Router) -> Arc<Client> {
    let profile = Profile::ROOTS.with(Profile::ROOTS_CHANGED);
    router.admit(Principal::local(), ProtocolVersion::V2025_11_25, profile, None)
}

/// Returns a client that has its lease.
async fn settled(router: &Router) -> Arc<Client> {
    let client = client(router);
    let listed = request(router, &client, Method::ToolsList, &json!({})).answer().await;
    assert_eq!(listed["tools"].as_array().map(Vec::len), Some(2), "{listed}");
    client
}

/// Returns kind, `sent`, and `retryable` of an error of ours; `None` for a result.
fn fault(answer: &Value) -> Option<(String, bool, bool)> {
    let details = if answer["isError"] == true { &answer["_meta"]["mcp-host/error"] } else { &answer["data"] };
    let kind = details["kind"].as_str()?.to_owned();
    assert_eq!(details["server"], "far");
    Some((kind, details["sent"].as_bool().unwrap(), details["retryable"].as_bool().unwrap()))
}

fn unknown() -> Option<(String, bool, bool)> {
    Some(("outcome_unknown".to_owned(), true, false))
}

/// Waits until a call is served as if nothing had happened.
async fn calm(router: &Router, client: &Arc<Client>) {
    assert_eq!(fault(&ask(router, client, &Method::ToolsCall, &call("go")).await), None);
}

async fn ask(router: &Router, client: &Arc<Client>, method: &Method, params: &Value) -> Value {
    request(router, client, method.clone(), params).whole_answer().await
}

#[tokio::test]
async fn h57_http_sent_and_lost_is_repeated_once_for_reads_and_never_for_calls() {
    let far = Far::start().await;
    let router = far.router(|_| {});
    let client = settled(&router).await;
    for (method, params) in kinds() {
        let is_call = method == Method::ToolsCall;
        far.meet(&[Met::Lost]);
        let answer = ask(&router, &client, &method, &params).await;
        assert_eq!(fault(&answer), if is_call { unknown() } else { None }, "{method} {answer}");
        assert_eq!(far.work(), if is_call { 1 } else { 2 }, "{method}");
        if !is_call {
            far.meet(&[Met::Lost, Met::Lost]);
            let answer = ask(&router, &client, &method, &params).await;
            assert_eq!(fault(&answer), unknown(), "{method} {answer}");
            assert_eq!(far.work(), 2, "{method}: once more, and no more");
        }
    }
}

#[tokio::test]
async fn h57_only_the_users_word_makes_a_call_repeatable() {
    let far = Far::start().await;
    for (repeatable, trust, tool, wanted) in [
        (&[][..], false, "safe", 1),
        (&["safe"][..], false, "safe", 2),
        (&["safe"][..], false, "go", 1),
        (&[][..], true, "safe", 2),
        (&[][..], true, "go", 1),
    ] {
        let router = far.router(|entry| {
            entry.repeatable = repeatable.iter().map(|tool| (*tool).to_owned()).collect();
            entry.trust_annotations = trust;
        });
        let client = settled(&router).await;
        far.meet(&[Met::Lost]);
        let answer = ask(&router, &client, &Method::ToolsCall, &call(tool)).await;
        assert_eq!(fault(&answer), if wanted == 1 { unknown() } else { None }, "{tool} {answer}");
        assert_eq!(far.work(), wanted, "{repeatable:?} {trust} {tool}");
    }
}

#[tokio::test]
async fn h57_http_refused_before_work_is_sent_once_more() {
    let far = Far::start().await;
    let router = far.router(|_| {});
    let client = settled(&router).await;
    for (method, params) in kinds() {
        calm(&router, &client).await;
        far.meet(&[Met::Refused]);
        let answer = ask(&router, &client, &method, &params).await;
        assert_eq!(fault(&answer), None, "{method} {answer}");
        assert_eq!((far.work(), far.seen(method.as_str()), far.seen("initialize")), (1, 2, 1), "{method}");
        calm(&router, &client).await;
        far.meet(&[Met::Refused, Met::Refused]);
        let answer = ask(&router, &client, &method, &params).await;
        assert_eq!(fault(&answer), Some(("unavailable".to_owned(), false, true)), "{method} {answer}");
        assert_eq!((far.work(), far.seen(method.as_str())), (0, 2), "{method}: no third time");
    }
}

#[tokio::test]
async fn h57_http_what_never_left_is_sent_when_the_server_is_back() {
    let far = Far::start().await;
    let router = far.router(|_| {});
    let client = settled(&router).await;
    for (method, params) in kinds() {
        calm(&router, &client).await;
        far.meet(&[]);
        far.close().await;
        let before = router.manager().status()[0].restarts;
        let asked = request(&router, &client, method.clone(), &params);
        // It was tried, and retried.
        while router.manager().status()[0].restarts < before + 2 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        far.open().await;
        let answer = asked.whole_answer().await;
        assert_eq!(fault(&answer), None, "{method} {answer}");
        assert_eq!((far.work(), far.seen(method.as_str())), (1, 1), "{method}");
    }
}

#[tokio::test]
async fn h57_a_notification_is_sent_once_whatever_comes_of_it() {
    let far = Far::start().await;
    let router = far.router(|_| {});
    let client = settled(&router).await;
    for met in [Met::Lost, Met::Refused] {
        calm(&router, &client).await;
        far.meet(&[met]);
        router.notify(&client, Notification { method: Method::RootsListChanged, params: None });
        while far.seen("notifications/roots/list_changed") == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // A request behind it, after everything that follows.
        let answer = ask(&router, &client, &Method::ToolsCall, &call("go")).await;
        assert_eq!(fault(&answer), None, "{answer}");
        assert_eq!(far.seen("notifications/roots/list_changed"), 1, "{met:?}");
    }
}

#[tokio::test]
async fn h30_five_hundred_calls_at_the_end_of_a_session_begin_one_new_one() {
    const CALLS: usize = 500;
    let far = Far::start().await;
    let router = far.router(|_| {});
    let client = settled(&router).await;
    // A session that has served a call.
    calm(&router, &client).await;
    far.meet(&[]);
    far.expire();
    let calls: Vec<_> = (0..CALLS).map(|_| request(&router, &client, Method::ToolsCall, &call("go"))).collect();
    for call in calls {
        let answer = call.whole_answer().await;
        assert_eq!(fault(&answer), None, "{answer}");
    }
    assert_eq!((far.work(), far.seen("initialize")), (CALLS, 1));
    assert!(far.seen("tools/call") <= 2 * CALLS, "{}", far.seen("tools/call"));
}

/// A shell server that keeps a ledger, and dies or stops reading when a file tells it to. When it stops reading, it
/// creates the file `half` once one more byte has arrived, and dies when something is written into the pipe `over`.
fn process(home: &std::path::Path) -> Transport {
    let mut script = r#"dir=$0
        while read -r line; do
            id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
            case $line in
            "#
    .to_owned();
    for method in ["initialize", "tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
        let result = told(method).unwrap();
        script += &format!(
            "*'\"{method}\"'*) printf '{{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}}\\n' \"$id\" '{result}' ;;\n"
        );
    }
    script += r#"*'"notifications/'*) ;;
            *) printf '%s\n' "$line" | sed 's/.*"method":"\([a-z/]*\)".*/\1/' >>"$dir/ledger"
               if rm "$dir/die" 2>/dev/null; then exit 1; fi
               if rm "$dir/deaf" 2>/dev/null; then
                   mkfifo "$dir/over"; head -c 1 >/dev/null; : >"$dir/half"; read -r over <"$dir/over"; exit 1
               fi
               printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[],"messages":[],"contents":[],"completion":{"values":[]}}}\n' "$id" ;;
            esac
        done"#;
    let home = home.to_str().unwrap().to_owned();
    Transport::Stdio(Stdio { command: "sh".to_owned(), args: vec!["-c".to_owned(), script, home], ..Stdio::default() })
}

/// Waits until another process makes the condition true.
#[cfg(unix)]
async fn until(condition: impl Fn() -> bool) {
    let so = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), so).await.expect("it is not so after a minute");
}

fn ledger(home: &std::path::Path, method: &Method) -> usize {
    let ledger = std::fs::read_to_string(home.join("ledger")).unwrap_or_default();
    ledger.lines().filter(|line| *line == method.as_str()).count()
}

#[cfg(unix)]
#[tokio::test]
async fn h57_stdio_sent_and_lost_is_repeated_once_for_reads_and_never_for_calls() {
    let home = tempfile::tempdir().unwrap();
    let router = router_of(process(home.path()), |_| {});
    let client = settled(&router).await;
    for (method, params) in kinds() {
        let is_call = method == Method::ToolsCall;
        std::fs::write(home.path().join("die"), "").unwrap();
        let answer = ask(&router, &client, &method, &params).await;
        assert_eq!(fault(&answer), if is_call { unknown() } else { None }, "{method} {answer}");
        assert_eq!(ledger(home.path(), &method), if is_call { 1 } else { 2 }, "{method}");
    }
    router.manager().shutdown().await;
}

/// The first call stops the server from reading, the second fills its pipe, and those behind it are never sent.
#[cfg(unix)]
#[tokio::test]
async fn h57_stdio_what_never_left_is_sent_to_the_next_process() {
    let home = tempfile::tempdir().unwrap();
    let router = router_of(process(home.path()), |_| {});
    let client = settled(&router).await;
    std::fs::write(home.path().join("deaf"), "").unwrap();
    let first = request(&router, &client, Method::ToolsCall, &call("go"));
    until(|| ledger(home.path(), &Method::ToolsCall) == 1).await;
    let large = json!({ "name": "go", "arguments": { "text": "x".repeat(1 << 20) } });
    let half = request(&router, &client, Method::ToolsCall, &large);
    // The server has read one byte of it, and its pipe has little room left.
    until(|| home.path().join("half").exists()).await;
    let queued: Vec<_> =
        kinds().into_iter().map(|(method, params)| request(&router, &client, method, &params)).collect();
    let all = 2 + queued.len();
    until(|| router.manager().status()[0].calls_running == all).await;
    std::fs::write(home.path().join("over"), "\n").unwrap();
    assert_eq!(fault(&first.whole_answer().await), unknown());
    assert_eq!(fault(&half.whole_answer().await), unknown(), "part of it was sent");
    for queued in queued {
        let answer = queued.whole_answer().await;
        assert_eq!(fault(&answer), None, "{answer}");
    }
    for (method, _) in kinds() {
        let wanted = if method == Method::ToolsCall { 2 } else { 1 };
        assert_eq!(ledger(home.path(), &method), wanted, "{method}");
    }
    router.manager().shutdown().await;
}
