//! Invitations to sign in: a call to a server that requires a login, from clients of both eras that can be asked to
//! open a page, and from those that cannot (`docs/hazards.md` H74).

mod clients;
#[cfg(all(unix, feature = "cli", feature = "otel"))]
mod spans;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mcp_host::Profile;
use mcp_host::config::{BearerClient, Enterprise, Grant, HostAuth, Secret, SecretSource};
use mcp_host::{ClientHandler, ElicitAnswer, Elicitation, Host, HostBuilder};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::site::{Asked, Site, Told};
use super::world::{
    Issuing, PATIENCE, call, connected, host, issuer, mcp, named, protected, server, serving, without_a_user,
};
use clients::{Post, World, asked, browse, is_refusal, merged, meta, opened, page, signed_in, text, url};

#[tokio::test]
async fn a_client_without_a_session_signs_in_by_a_page_and_has_its_answer() {
    let world = World::new().await;
    let before = world.issuer.count("POST /token");
    let first = world.ask(&json!({})).await;
    let (address, back) = asked(&first, &world.issuer);
    // Another client gets the same page, and so do concurrent calls.
    let other = json!({ "_meta": merged(meta(&url()), &json!({ "mcp-host/affinity": "other" })) });
    let second = world.ask(&other).await;
    let (same, other_back) = asked(&second, &world.issuer);
    assert_eq!(same, address);
    // The first waits for the browser.
    let accepted = back("accept");
    let mut waiting = std::pin::pin!(world.ask(&accepted));
    let early = tokio::time::timeout(Duration::from_millis(50), &mut waiting).await;
    assert!(early.is_err(), "no user has signed in");
    let (answer, ()) = tokio::join!(waiting, browse(address, &world.issuer));
    assert_eq!(text(&answer), "done");
    let mut more = other_back("accept");
    more["_meta"] = other["_meta"].clone();
    assert_eq!(text(&world.ask(&more).await), "done");
    // Once the browser has returned, the listener is closed.
    assert!(TcpStream::connect(address.split('/').nth(2).unwrap()).await.is_err());
    // A failed refresh, and the code.
    assert_eq!(world.issuer.count("POST /token"), before + 2);
    assert_eq!(text(&world.ask(&json!({})).await), "done");
    world.host.shutdown().await;
}

#[tokio::test]
async fn a_client_with_a_session_signs_in_by_a_page_and_has_its_answer() {
    let world = World::new().await;
    let (one, two) = (world.session("2025-11-25", &url()).await, world.session("2025-11-25", &url()).await);
    let mut call = one.call(1).await;
    let question = call.next().await;
    assert_eq!(question["method"], "elicitation/create", "{question}");
    let address = page(&question["params"], &world.issuer);
    let mut other = two.call(1).await;
    let same = other.next().await;
    assert_eq!(same["params"]["url"], question["params"]["url"]);
    assert_ne!(same["params"]["elicitationId"], question["params"]["elicitationId"]);
    // A client whose user acts elsewhere continues once someone has signed in, and asks no more.
    let three = world.session("2025-11-25", &url()).await;
    let mut late = three.call(1).await;
    let open = late.next().await;
    assert_eq!(open["method"], "elicitation/create", "{open}");
    // Another call of the same client waits too, and asks nothing.
    let mut along = one.call(2).await;
    one.answer(&question, "accept").await;
    two.answer(&same, "cancel").await;
    is_refusal(&other.next().await["result"]);
    browse(address, &world.issuer).await;
    let complete = call.next().await;
    assert_eq!(complete["method"], "notifications/elicitation/complete", "{complete}");
    assert_eq!(complete["params"]["elicitationId"], question["params"]["elicitationId"]);
    assert_eq!(text(&call.next().await["result"]), "done");
    assert_eq!(text(&along.next().await["result"]), "done");
    let withdrawn = late.next().await;
    assert_eq!(
        (&withdrawn["method"], &withdrawn["params"]["requestId"]),
        (&json!("notifications/cancelled"), &open["id"])
    );
    assert_eq!(text(&late.next().await["result"]), "done");
    world.host.shutdown().await;
}

#[tokio::test]
async fn h63_what_is_listed_to_a_login_is_for_nobody_else_to_keep() {
    let world = World::new().await;
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": meta(&json!({})) } });
    let headers = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\n";
    let list = Post::send(&world.address, headers, &body).await.next().await["result"].clone();
    assert_eq!((list["tools"].as_array().map(Vec::len), &list["cacheScope"]), (Some(1), &json!("private")), "{list}");
    world.host.shutdown().await;
}

#[tokio::test]
async fn h74_whoever_declines_has_the_error_and_is_not_asked_again() {
    for action in ["decline", "cancel"] {
        let world = World::new().await;
        let first = world.ask(&json!({})).await;
        let (address, back) = asked(&first, &world.issuer);
        is_refusal(&world.ask(&back(action)).await);
        // Its port is closed, and no one is asked anything more.
        closed(address).await;
        let before = world.issuer.lines().len() + world.site.lines().len();
        is_refusal(&world.ask(&json!({})).await);
        let session = world.session("2025-11-25", &url()).await;
        is_refusal(&session.call(1).await.next().await["result"]);
        assert_eq!(world.issuer.lines().len() + world.site.lines().len(), before);
        world.host.shutdown().await;

        let world = World::new().await;
        let session = world.session("2025-11-25", &url()).await;
        let mut call = session.call(1).await;
        let question = call.next().await;
        session.answer(&question, action).await;
        is_refusal(&call.next().await["result"]);
        is_refusal(&session.call(2).await.next().await["result"]);
        closed(page(&question["params"], &world.issuer)).await;
        is_refusal(&world.ask(&json!({})).await);
        // The user acts: everything is as before.
        signed_in(&world.host).await;
        world.issuing.forget();
        let _ = asked(&world.ask(&json!({})).await, &world.issuer);
        world.host.shutdown().await;
    }
}

#[tokio::test]
async fn h74_whoever_declines_has_the_error_while_another_signs_in() {
    let world = World::new().await;
    let (one, two) = (world.session("2025-11-25", &url()).await, world.session("2025-11-25", &url()).await);
    let mut call = one.call(1).await;
    let question = call.next().await;
    one.answer(&question, "accept").await;
    let mut other = two.call(1).await;
    let same = other.next().await;
    let mut along = two.call(2).await;
    two.answer(&same, "decline").await;
    is_refusal(&other.next().await["result"]);
    is_refusal(&along.next().await["result"]);
    is_refusal(&two.call(3).await.next().await["result"]);
    // So has one without a session.
    let first = world.ask(&json!({})).await;
    is_refusal(&world.ask(&asked(&first, &world.issuer).1("decline")).await);
    is_refusal(&world.ask(&json!({})).await);
    browse(page(&question["params"], &world.issuer), &world.issuer).await;
    assert_eq!(call.next().await["method"], "notifications/elicitation/complete");
    assert_eq!(text(&call.next().await["result"]), "done");
    assert_eq!(text(&two.call(4).await.next().await["result"]), "done");
    world.host.shutdown().await;
}

/// Waits until nothing listens at this address any more.
async fn closed(address: &str) {
    let gone = async {
        while TcpStream::connect(address.split('/').nth(2).unwrap()).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
}

#[tokio::test]
async fn who_cannot_be_asked_is_told_how_to_sign_in() {
    let world = World::new().await;
    for capabilities in [json!({}), json!({ "elicitation": {} }), json!({ "elicitation": { "form": {} } })] {
        let mut post = world.modern(&capabilities, &json!({})).await;
        is_refusal(&post.next().await["result"]);
    }
    for (revision, capabilities) in
        [("2025-11-25", json!({})), ("2025-11-25", json!({ "elicitation": {} })), ("2025-06-18", url())]
    {
        let session = world.session(revision, &capabilities).await;
        is_refusal(&session.call(1).await.next().await["result"]);
    }
    // The embedding program signs in by `Host::login`.
    assert_eq!(call(&world.host).await.unwrap_err().kind(), mcp_host::ErrorKind::Unauthorized);
    // None of that used up the one invitation.
    let _ = asked(&world.ask(&json!({})).await, &world.issuer);
    world.host.shutdown().await;
}

#[tokio::test]
async fn nobody_is_asked_to_sign_in_where_tokens_come_without_a_user() {
    let given = json!({ "access_token": "word", "issued_token_type": "urn:ietf:params:oauth:token-type:id-jag" });
    let idp = Site::start(|_| move |_: &Asked| Told::json(200, &given)).await;
    let word = SecretSource::Given(Secret::new("word"));
    let company = Enterprise::new(format!("{}/token", idp.url).parse().unwrap(), "c", word.clone());
    for grant in [Grant::ClientCredentials, Grant::Workload(word), Grant::Enterprise(Box::new(company))] {
        let (issuing, issuer, site) = protected().await;
        let host = Host::builder().config(without_a_user(&site, grant.clone())).start().await.unwrap();
        connected(&host).await;
        let world = World::open(issuing, issuer, site, host, "127.0.0.1:0").await;
        // Tokens issued from now on are not accepted.
        *world.issuing.answer.lock().unwrap() = Some(json!({ "access_token": "dead", "token_type": "Bearer" }));
        for _ in 0..2 {
            let refused = world.ask(&json!({})).await;
            assert_eq!(refused["_meta"]["mcp-host/error"]["kind"], "auth_required", "{grant:?} {refused}");
            assert!(text(&refused).contains("no user can sign in to it"), "{refused}");
        }
        let redirect = "http://127.0.0.1:1/x".parse().unwrap();
        let error = world.host.login("a", &redirect).await.unwrap_err();
        let told = error.to_string();
        assert!(told.contains("auth.grant") && told.contains("nobody has to sign in"), "{told}");
        assert_eq!(error.kind(), mcp_host::ErrorKind::Config);
        assert_eq!(world.issuer.count("POST /register"), 0);
        world.host.shutdown().await;
    }
}

/// A program that can open pages.
struct Opens;

impl ClientHandler for Opens {
    fn profile(&self) -> Profile {
        Profile::ELICITATION_URL
    }

    async fn elicit(&self, _: Elicitation) -> ElicitAnswer {
        panic!("it was asked")
    }
}

#[tokio::test]
async fn an_embedding_program_is_not_asked_by_elicitation() {
    let (issuing, _issuer, server) = protected().await;
    let host = host(&[&server], |builder: HostBuilder| builder.client_handler(Opens)).await;
    signed_in(&host).await;
    issuing.forget();
    assert_eq!(call(&host).await.unwrap_err().kind(), mcp_host::ErrorKind::Unauthorized);
    host.shutdown().await;
}

#[tokio::test]
async fn a_client_that_may_be_on_another_machine_is_told_how_to_sign_in() {
    for listen in ["0.0.0.0:0", "127.0.0.1:0"] {
        let world = World::with(
            |config| {
                let client = BearerClient::of_token("laptop", "token-of-the-laptop").unwrap();
                config.host.auth = HostAuth::Bearer(vec![client]);
                config.host.insecure_http = true;
            },
            listen,
        )
        .await;
        let headers = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: a__t\r\n\
             Authorization: Bearer token-of-the-laptop\r\n";
        let params = json!({ "name": "a__t", "arguments": {}, "_meta": meta(&url()) });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let mut post = Post::send(&world.address, headers, &body).await;
        is_refusal(&post.next().await["result"]);
        world.host.shutdown().await;
    }
}

#[tokio::test]
async fn a_login_that_takes_long_is_asked_about_again() {
    let world = World::with(|config| config.host.limits.answer = Duration::from_millis(200), "127.0.0.1:0").await;
    let first = world.ask(&json!({})).await;
    let (address, back) = asked(&first, &world.issuer);
    let again = world.ask(&back("accept")).await;
    let (same, back) = asked(&again, &world.issuer);
    assert_eq!(same, address);
    browse(address, &world.issuer).await;
    assert_eq!(text(&world.ask(&back("accept")).await), "done");
    world.host.shutdown().await;
}

#[tokio::test]
async fn h74_an_invitation_that_nobody_was_shown_was_none() {
    let world = World::with(|config| config.host.limits.login = Duration::from_millis(300), "127.0.0.1:0").await;
    let (session, gate) = (world.session("2025-11-25", &url()).await, Arc::new(Notify::new()));
    let before = world.issuer.count("POST /register");
    *world.issuing.holds.lock().unwrap() = Some(gate.clone());
    let gone = async {
        while world.issuer.count("POST /register") == before {
            tokio::task::yield_now().await;
        }
        session.cancel(1).await;
    };
    let (call, ()) = tokio::join!(session.call(1), gone);
    call.end().await;
    gate.notify_one();
    let registered = world.issuer.asked().into_iter().rfind(|asked| asked.line() == "POST /register").unwrap();
    let registered: Value = serde_json::from_str(&registered.body).unwrap();
    closed(registered["redirect_uris"][0].as_str().unwrap()).await;
    let _ = asked(&world.ask(&json!({})).await, &world.issuer);
    world.host.shutdown().await;
}

#[tokio::test]
async fn a_login_that_nobody_finishes_ends() {
    let world = World::with(|config| config.host.limits.login = Duration::from_millis(300), "127.0.0.1:0").await;
    let session = world.session("2025-11-25", &url()).await;
    let mut call = session.call(1).await;
    let question = call.next().await;
    session.answer(&question, "accept").await;
    assert_eq!(call.next().await["method"], "notifications/elicitation/complete");
    is_refusal(&call.next().await["result"]);
    closed(page(&question["params"], &world.issuer)).await;
    world.host.shutdown().await;
}

#[tokio::test]
async fn h74_an_invitation_whose_token_never_works_costs_six_requests_and_one_prompt() {
    let issuing = Arc::new(Issuing::default());
    // Without a refresh token, there is nothing to try before the user is asked.
    *issuing.answer.lock().unwrap() = Some(json!({ "access_token": "first-canary", "token_type": "Bearer" }));
    let issuer = issuer(&issuing).await;
    let open = Arc::new(AtomicBool::new(true));
    let judge = open.clone();
    let takes = move |token: Option<&str>| token.is_some() && judge.load(Ordering::SeqCst);
    let site = server(named(&issuer), Arc::new(takes)).await;
    let world = World::of(issuing, issuer, site, |_| {}, "127.0.0.1:0").await;
    open.store(false, Ordering::SeqCst);
    let before = (world.site.lines().len(), world.issuer.lines().len());
    let first = world.ask(&json!({})).await;
    let (address, back) = asked(&first, &world.issuer);
    browse(address, &world.issuer).await;
    is_refusal(&world.ask(&back("accept")).await);
    for _ in 0..10 {
        is_refusal(&world.ask(&json!({})).await);
    }
    let requests = [&world.site.lines()[before.0..], &world.issuer.lines()[before.1..]].concat();
    assert!(requests.len() <= 6, "{requests:?}");
    world.host.shutdown().await;
}

/// A server that has one of each, and for some arguments requires more than a login grants.
fn family(asked: &Asked) -> Told {
    let message: Value = serde_json::from_str(&asked.body).unwrap_or_default();
    let content = json!({ "type": "text", "text": "done" });
    let result = match message["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": "2025-11-25",
            "capabilities": { "tools": {}, "prompts": {}, "resources": {} },
            "serverInfo": { "name": "s", "version": "1" },
        }),
        Some("prompts/list") => json!({ "prompts": [{ "name": "p" }] }),
        Some("resources/list") => json!({ "resources": [{ "uri": "file:///r", "name": "r" }] }),
        Some("resources/templates/list") => json!({ "resourceTemplates": [] }),
        Some("prompts/get") => json!({ "messages": [{ "role": "user", "content": content }] }),
        Some("resources/read") => json!({ "contents": [{ "uri": "file:///r", "text": "done" }] }),
        Some("tools/call") => match message["params"]["arguments"]["scope"].as_str() {
            Some(scope) => {
                let challenge = format!("Bearer error=\"insufficient_scope\"{scope}");
                return Told::Answer(403, vec![("www-authenticate", challenge)], String::new());
            }
            None => return mcp(asked),
        },
        _ => return mcp(asked),
    };
    Told::json(200, &json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
}

async fn of_a_family() -> World {
    let issuing = Arc::new(Issuing::default());
    let issuer = issuer(&issuing).await;
    let site = serving(named(&issuer), issuing.judge(), |asked, _| family(asked)).await;
    World::of(issuing, issuer, site, |_| {}, "127.0.0.1:0").await
}

#[tokio::test]
async fn prompts_and_resources_are_served_after_a_login_too() {
    let world = of_a_family().await;
    let uri = world.host.catalog().resources()[0].name().to_owned();
    for (method, key, name) in [("prompts/get", "name", "a__p"), ("resources/read", "uri", &uri)] {
        world.issuing.forget();
        let params = json!({ key: name, "_meta": meta(&url()) });
        let first = world.request(method, name, params.clone()).await.next().await["result"].clone();
        let (address, back) = asked(&first, &world.issuer);
        browse(address, &world.issuer).await;
        let done = world.request(method, name, merged(params, &back("accept"))).await.next().await;
        assert!(done["result"].to_string().contains("done"), "{done}");
    }
    world.host.shutdown().await;
}

#[tokio::test]
async fn a_login_is_asked_for_with_the_scopes_that_are_wanted_and_not_where_none_would_help() {
    let world = of_a_family().await;
    signed_in(&world.host).await;
    let before = world.issuer.lines().len();
    is_refusal(&world.ask(&json!({ "arguments": { "scope": "" } })).await);
    assert_eq!(world.issuer.lines().len(), before);
    let first = world.ask(&json!({ "arguments": { "scope": ", scope=\"write\"" } })).await;
    let (address, _) = asked(&first, &world.issuer);
    let page = opened(address, None).await.1.remove("location").unwrap();
    assert!(page.contains("scope=write"), "{page}");
    world.host.shutdown().await;
}

#[cfg(unix)]
mod program {
    use std::process::Stdio;

    use tokio::io::{AsyncWriteExt as _, BufReader};

    use super::super::program::{Said, come_back, daemon_with, mcp_host, spawn};
    use super::clients::next;
    use super::*;

    const KEY: (&str, &str) = ("MCP_HOST_SECRET_KEY", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=");

    /// A login by the daemon, which `mcp-host stdio` finds and the issuer revokes.
    #[tokio::test]
    async fn h97_over_a_pipe_too_and_nothing_secret_is_said() {
        let (issuing, issuer, site) = protected().await;
        let (home, said) = (tempfile::tempdir().unwrap(), Said::default());
        let home = home.path();
        let mut daemon = daemon_with(home, &site, &said, &[KEY]).await;
        let mut login = spawn(mcp_host(home, &["login", "a", "--no-browser"]), &said);
        let at = said.line(|line| line.starts_with("http://") && line.contains("/authorize?")).await;
        come_back(&at).await;
        assert!(login.wait().await.unwrap().success());
        daemon.kill().await.unwrap();

        let mut command = mcp_host(home, &["stdio", "--config", "mcp.json", "-vvv"]);
        command.env(KEY.0, KEY.1).stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let errors = said.clone();
        errors.read(child.stderr.take().unwrap());
        let mut answers = Vec::new();
        let mut say = async |message: Value| input.write_all(format!("{message}\n").as_bytes()).await.unwrap();
        let call = |id: u64, more: Value| {
            let params = merged(json!({ "name": "a__t", "arguments": {}, "_meta": meta(&url()) }), &more);
            json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
        };
        say(call(1, json!({}))).await;
        assert_eq!(text(&next(&mut lines).await["result"]), "done");

        issuing.forget();
        say(call(2, json!({}))).await;
        let first = next(&mut lines).await["result"].clone();
        let (address, back) = asked(&first, &issuer);
        browse(address, &issuer).await;
        say(call(3, back("accept"))).await;
        answers.push(next(&mut lines).await);
        assert_eq!(text(&answers[0]["result"]), "done");

        issuing.forget();
        let client = json!({ "protocolVersion": "2025-11-25", "capabilities": url(), "clientInfo": { "name": "c", "version": "1" } });
        say(json!({ "jsonrpc": "2.0", "id": 4, "method": "initialize", "params": client })).await;
        next(&mut lines).await;
        say(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        let plain = json!({ "name": "a__t", "arguments": {} });
        say(json!({ "jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": plain })).await;
        let mut ended = false;
        loop {
            let message = next(&mut lines).await;
            answers.push(message.clone());
            match message["method"].as_str() {
                Some("elicitation/create") => {
                    let address = page(&message["params"], &issuer).to_owned();
                    say(json!({ "jsonrpc": "2.0", "id": message["id"], "result": { "action": "accept" } })).await;
                    browse(&address, &issuer).await;
                }
                Some("notifications/elicitation/complete") => ended = true,
                Some(_) => {}
                None => break,
            }
        }
        assert!(ended, "{answers:#?}");
        assert_eq!(text(&answers.last().unwrap()["result"]), "done");
        drop(input);
        child.wait().await.unwrap();
        let told = [said.all(), answers.iter().map(Value::to_string).collect(), vec![first.to_string()]].concat();
        let canary: Vec<_> = told.iter().filter(|line| line.contains("canary")).collect();
        assert_eq!(canary, Vec::<&String>::new());
        assert!(!told.iter().any(|line| line.contains(KEY.1)));
    }
}
