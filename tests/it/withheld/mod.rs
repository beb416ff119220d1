//! What is withheld, hidden, denied, or disabled reaches no server, whatever way a client takes to it. The matrix is
//! ways × reasons × clients × servers. Each way has a control: where nothing forbids it, it reaches the server.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod listen;
mod merged;
mod page;
mod project;
mod retry;
pub(crate) mod server;

use std::net::SocketAddr;

use mcp_host::config::{Config, Syntax, Vars, parse_str};
use mcp_host::pins::Waiting;
use mcp_host::{Host, StateName};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use self::server::{KINDS, Kind, Server};
use crate::reload::until;
use crate::views::clients::{Client, Transport};

/// Why a client must not reach the tool `act`, the prompt `say`, the resources, and the template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// Nothing: the control.
    Allowed,
    /// Nobody has approved it.
    Unapproved,
    /// It looks like an attack, and the user is strict (`approvalStrict`).
    Suspicious,
    /// It is outside of the view.
    Outside,
    /// A rule always denies it, and hides it.
    Hidden,
    /// A rule always denies it, and shows it.
    Denied,
    /// A rule denies it by a look at the request.
    Judged,
    /// A rule wants a person's permission, and the client cannot be asked.
    Asked,
    /// The entry of the server excludes the tool.
    Excluded,
    /// The server is disabled.
    Disabled,
}

const REASONS: [Reason; 9] = [
    Reason::Unapproved,
    Reason::Suspicious,
    Reason::Outside,
    Reason::Hidden,
    Reason::Denied,
    Reason::Judged,
    Reason::Asked,
    Reason::Excluded,
    Reason::Disabled,
];

/// How a client tries to reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By the name that lists show, or would show.
    Own,
    /// By the server's own name.
    Raw,
    /// A tool that the server does not list, by its own name.
    Unlisted,
    /// By a name in other case.
    OtherCase,
    /// By the name that a second server has for an equal tool.
    Twin,
    /// As the fallback of a tool that may be called.
    Fallback,
    Task,
    /// With keys that occur twice, or differ only in case.
    Keys,
    /// By `call_tool`: by its own name, as a task, and with keys that occur twice.
    Found,
    /// By `call_read_tool`: by its own name, and with keys that occur twice.
    FoundToRead,
    /// By a script: by its own name, and with keys that differ only in case.
    Script,
    /// The app page of the tool.
    Page,
    Prompt,
    Read,
    /// A resource that only a template covers.
    Template,
    /// Hearing of changes: by a subscription, or by a change stream of a client without a session.
    Watch,
    Complete,
}

/// How names of the server are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    Prefixed,
    Bare,
    /// Bare, and a second server has the same tool.
    Twins,
}

const PREFIXED: [Way; 14] = [
    Way::Own,
    Way::Raw,
    Way::Fallback,
    Way::Task,
    Way::Keys,
    Way::Found,
    Way::FoundToRead,
    Way::Script,
    Way::Page,
    Way::Prompt,
    Way::Read,
    Way::Template,
    Way::Watch,
    Way::Complete,
];
const BARE: [Way; 7] = [Way::Own, Way::Unlisted, Way::OtherCase, Way::Task, Way::Keys, Way::Found, Way::FoundToRead];
const TWINS: [Way; 3] = [Way::Twin, Way::Task, Way::Keys];

/// The clients: legacy ones with a session, and modern ones without.
const CLIENTS: [(Transport, &str); 4] = [
    (Transport::Pipe, "2025-11-25"),
    (Transport::Http, "2025-06-18"),
    (Transport::Pipe, "2026-07-28"),
    (Transport::Http, "2026-07-28"),
];

impl Way {
    /// Reports whether the reason forbids what this way leads to.
    fn is_forbidden_by(self, reason: Reason) -> bool {
        let is_tool =
            !matches!(self, Self::Page | Self::Prompt | Self::Read | Self::Template | Self::Watch | Self::Complete);
        match reason {
            Reason::Allowed => false,
            // Concrete resources have no pins.
            Reason::Unapproved | Reason::Suspicious => {
                !matches!(self, Self::Page | Self::Read | Self::Template | Self::Watch)
            }
            // In another case it is another tool, which is not excluded.
            Reason::Excluded => is_tool && self != Self::OtherCase,
            _ => true,
        }
    }

    /// Returns the requests of this way: methods, and params as they are written.
    fn requests(self, names: Names, is_modern: bool) -> Vec<(&'static str, String)> {
        let own = if names == Names::Prefixed { "it__act" } else { "act" };
        let call = |name: &str| ("tools/call", json!({ "name": name, "arguments": {} }).to_string());
        let read = |uri: &str| ("resources/read", json!({ "uri": uri }).to_string());
        match self {
            Self::Own => vec![call(own)],
            Self::Raw | Self::Twin => vec![call("act")],
            Self::Unlisted => vec![call("secret")],
            Self::OtherCase => ["ACT", "Act", "aCT", "\u{212a}act"].map(call).to_vec(),
            Self::Fallback => vec![call("it__other")],
            // A client without a session says by its capabilities that it takes tasks.
            Self::Task if is_modern => vec![call(own)],
            Self::Task => {
                vec![("tools/call", json!({ "name": own, "arguments": {}, "task": { "ttl": 9000 } }).to_string())]
            }
            Self::Keys => {
                let with = |arguments: &str| ("tools/call", format!(r#"{{"name":"{own}","arguments":{arguments}}}"#));
                [
                    r#"{"path":"safe","path":"x"}"#,
                    r#"{"path":"x","path":"safe"}"#,
                    r#"{"path":"safe","Path":"x"}"#,
                    r#"{"PATH":"x","path":"safe"}"#,
                    r#"{"path":"safe","p\u0061th":"x"}"#,
                    r#"{"pat\u212a":"x","path":"x"}"#,
                ]
                .map(with)
                .to_vec()
            }
            Self::Found => {
                let mut all = Vec::new();
                for way in [Self::Own, Self::Task, Self::Keys] {
                    for (method, params) in way.requests(names, is_modern) {
                        all.push((method, format!(r#"{{"name":"call_tool","arguments":{params}}}"#)));
                    }
                }
                let inner = json!({ "name": own, "arguments": {} });
                for name in ["call_tool", "call_read_tool"] {
                    let task = json!({ "name": name, "arguments": inner, "task": { "ttl": 9000 } });
                    all.push(("tools/call", task.to_string()));
                }
                all
            }
            Self::FoundToRead => {
                let inner = [Self::Own, Self::Keys].into_iter().flat_map(|way| way.requests(names, is_modern));
                let call = |params: String| format!(r#"{{"name":"call_read_tool","arguments":{params}}}"#);
                inner.map(|(method, params)| (method, call(params))).collect()
            }
            Self::Script => [
                "return await call('it__act', {})",
                "return await Promise.all([call('it__act', { path: 'safe', Path: 'x' })])",
                "return await call('it__act', { path: 'x' })",
            ]
            .map(|script| {
                ("tools/call", json!({ "name": "run_script", "arguments": { "script": script } }).to_string())
            })
            .to_vec(),
            Self::Page => ["ui://it--page/x", "ui://page/x"].map(read).to_vec(),
            Self::Prompt => vec![("prompts/get", json!({ "name": "it__say" }).to_string())],
            Self::Read => ["it+table:x", "table:x"].map(read).to_vec(),
            Self::Template => vec![read("it+row:1")],
            Self::Watch if is_modern => {
                let all = vec!["it+table:x", "table:x", "it+row:1"];
                let sets = all.iter().map(|uri| vec![*uri]).chain([all.clone()]);
                let listen = |uris: Vec<&str>| json!({ "notifications": { "resourceSubscriptions": uris } });
                sets.map(|uris| ("subscriptions/listen", listen(uris).to_string())).collect()
            }
            Self::Watch => ["it+table:x", "table:x", "it+row:1"]
                .map(|uri| ("resources/subscribe", json!({ "uri": uri }).to_string()))
                .to_vec(),
            Self::Complete => {
                let of = |kind: &str, key: &str, name: &str| {
                    let argument = json!({ "name": "a", "value": "" });
                    let params = json!({ "ref": { "type": kind, key: name }, "argument": argument });
                    ("completion/complete", params.to_string())
                };
                vec![of("ref/prompt", "name", "it__say"), of("ref/resource", "uri", "it+row:{a}")]
            }
        }
    }

    /// Reports whether this way leads to the server where nothing forbids it.
    fn has_control(self, names: Names) -> bool {
        // With prefixes it is unknown.
        self != Self::Raw || names != Names::Prefixed
    }

    /// Returns what the server gets where nothing forbids this way: a method, and a text in the message.
    fn arrives(self, kind: Kind) -> (&'static str, &'static str) {
        match self {
            Self::Unlisted => ("tools/call", r#""secret""#),
            Self::OtherCase => ("tools/call", r#""ACT""#),
            Self::Page => ("resources/read", r#""ui://page/x""#),
            Self::Prompt => ("prompts/get", r#""say""#),
            Self::Read => ("resources/read", r#""table:x""#),
            Self::Template => ("resources/read", r#""row:1""#),
            Self::Watch if kind == Kind::ModernHttp => ("subscriptions/listen", r#""table:x""#),
            Self::Watch => ("resources/subscribe", r#""table:x""#),
            Self::Complete => ("completion/complete", r#""a""#),
            _ => ("tools/call", r#""act""#),
        }
    }
}

/// Returns `host` of the config, and what the reason adds to the entry of the server.
fn settings(reason: Reason, names: Names) -> (Value, Value) {
    let tools = if names == Names::Prefixed { "it__act" } else { "server:it" };
    let rules = |more: &Value| {
        let with = |name: &str, key: &str, value: &str| {
            let mut rule = json!({ "name": name, "verdict": "deny", key: [value] });
            rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            rule
        };
        let rules = [with("t", "tools", tools), with("p", "prompts", "it__say"), with("r", "resources", "*")];
        json!({ "approval": "off", "policy": { "rules": rules } })
    };
    let host = match reason {
        Reason::Allowed | Reason::Excluded | Reason::Disabled => json!({ "approval": "off" }),
        Reason::Unapproved => json!({ "approval": "ask" }),
        Reason::Suspicious => json!({ "approval": "warn", "approvalStrict": true }),
        Reason::Outside => json!({ "approval": "off", "view": "v",
            "views": { "v": { "exclude": [tools], "prompts": ["none"], "resources": ["none"] } } }),
        Reason::Hidden => rules(&json!({})),
        Reason::Denied => rules(&json!({ "hide": false })),
        Reason::Judged => {
            let mut host = rules(&json!({ "when": "view == 'all'" }));
            host["policy"]["rules"][0]["when"] = json!("!has(args.path) || args.path != 'safe'");
            host
        }
        Reason::Asked => rules(&json!({ "verdict": "ask" })),
    };
    let more = match reason {
        Reason::Excluded => json!({ "excludeTools": ["act", "secret"] }),
        Reason::Disabled => json!({ "disabled": true }),
        _ => json!({}),
    };
    (host, more)
}

fn config(server: &Server, twin: &Server, reason: Reason, names: Names) -> Config {
    let (host, more) = settings(reason, names);
    let mut entry = server.entry();
    entry["tools"] = json!({
        "other": { "fallback": { "tool": "it__act", "on": [], "match": "quota" } },
        // What the config says to only read can be called by `call_read_tool`.
        "act": { "annotations": { "readOnlyHint": true } },
    });
    entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    // Whoever finds tools finds and calls no more than by name, whatever is listed.
    let mut host = host;
    match names {
        Names::Prefixed => {
            host["catalog"] = json!({ "mode": if cfg!(feature = "script") { "code" } else { "search" } });
        }
        Names::Bare => host["catalog"] = json!({ "compact": "tight" }),
        Names::Twins => {}
    }
    let mut servers = json!({ "it": entry });
    if names != Names::Prefixed {
        servers["it"]["prefix"] = json!("never");
    }
    if names == Names::Twins {
        servers["twin"] = twin.entry();
        servers["twin"]["prefix"] = json!("never");
    }
    parsed(&json!({ "host": host, "mcpServers": servers }).to_string())
}

fn parsed(text: &str) -> Config {
    parse_str(text, Syntax::Json, "test.json", &Vars::from_process()).unwrap_or_else(|error| panic!("{error}"))
}

/// Reports whether somebody approves it where approval is the reason: what is another way to something else.
fn is_approved(one: &Waiting) -> bool {
    one.server == "twin" || one.name == "other"
}

/// Starts a host, waits until its servers have listed, and approves what may be called.
async fn start(host: Host, reason: Reason) -> (Host, SocketAddr) {
    host.settled().await;
    if reason != Reason::Disabled {
        let up = |host: &Host| host.status().iter().all(|one| one.state == StateName::Connected).then_some(());
        until(&host, up).await;
    }
    // What a server lists but concrete resources, and what of that is suspicious.
    let of_each = match reason {
        Reason::Unapproved => 4,
        Reason::Suspicious => 3,
        _ => 0,
    };
    if of_each > 0 {
        let count = of_each * host.status().len();
        until(&host, |host| (host.status().iter().map(|one| one.changed.len()).sum::<usize>() == count).then_some(()))
            .await;
        let waiting = host.waiting_for_approval().await.unwrap();
        let approved: Vec<Waiting> = waiting.into_iter().filter(is_approved).collect();
        assert_eq!(host.approve(&approved).await.unwrap(), approved.len());
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    tokio::spawn(host.open_http(listener).unwrap().serve());
    (host, to)
}

fn capabilities(revision: &str) -> Value {
    match revision {
        "2026-07-28" => json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } }),
        _ => json!({}),
    }
}

/// Takes all ways to one server. Returns how many requests were made, and what went wrong.
async fn all_ways(kind: Kind, names: Names, reason: Reason) -> (usize, Vec<String>) {
    let (server, twin) = (Server::new(kind).await, Server::new(Kind::Stdio).await);
    let builder = Host::builder().config(config(&server, &twin, reason, names));
    #[cfg(feature = "script")]
    let builder = builder.script_program(env!("CARGO_BIN_EXE_mcp-host"));
    let (host, to) = start(builder.start().await.unwrap(), reason).await;
    let ways: &[Way] = match names {
        Names::Prefixed => &PREFIXED,
        Names::Bare => &BARE,
        Names::Twins => &TWINS,
    };
    let (mut count, mut faults) = (0, Vec::new());
    for (transport, revision) in CLIENTS {
        let mut client = Client::able(&host, to, transport, revision, ("", capabilities(revision))).await;
        for way in ways.iter().filter(|way| cfg!(feature = "script") || **way != Way::Script) {
            if reason != Reason::Allowed && !way.is_forbidden_by(reason) {
                continue;
            }
            let case = format!("{way:?} × {reason:?} × {transport:?} {revision} × {kind:?}, {names:?}");
            server.got();
            let (mut got, mut is_taken) = (Vec::new(), false);
            for (method, params) in way.requests(names, client.is_modern()) {
                count += 1;
                let (answer, is_refused) = if method == "subscriptions/listen" {
                    let params: Value = serde_json::from_str(&params).unwrap();
                    let granted = client.listen(&params["notifications"]).await;
                    let is_refused = granted["resourceSubscriptions"].is_null();
                    (granted, is_refused)
                } else {
                    let answer = client.ask_raw(method, &params).await;
                    let is_refused = answer["error"].is_object() || answer["result"]["isError"] == true;
                    (answer, is_refused)
                };
                got.extend(server.got());
                is_taken |= !is_refused;
                if reason != Reason::Allowed && names != Names::Twins && !is_refused {
                    faults.push(format!("{case}: {params} is answered: {answer}"));
                }
            }
            if reason == Reason::Allowed {
                let (method, text) = way.arrives(kind);
                let arrives = |message: &Value| message["method"] == method && message.to_string().contains(text);
                // A server is asked once for what several clients watch.
                let is_there = got.iter().any(arrives) || *way == Way::Watch && is_taken;
                if way.has_control(names) && !is_there {
                    faults.push(format!("{case}: the control does not arrive: {got:?}"));
                }
            } else {
                // The tool whose fallback it is may be called.
                got.retain(|message| *way != Way::Fallback || message["params"]["name"] != "other");
                if !got.is_empty() {
                    faults.push(format!("{case}: the server got {got:?}"));
                }
            }
        }
    }
    host.shutdown().await;
    (count, faults)
}

async fn matrix(kind: Kind) {
    let mut all = Vec::new();
    for names in [Names::Prefixed, Names::Bare, Names::Twins] {
        for reason in [Reason::Allowed].into_iter().chain(REASONS) {
            let (count, mut faults) = all_ways(kind, names, reason).await;
            assert!(count >= 32, "{names:?} {reason:?}: {count} requests");
            all.append(&mut faults);
        }
    }
    assert!(all.is_empty(), "{} faults:\n{}", all.len(), all.join("\n"));
}

#[tokio::test]
async fn nothing_that_is_forbidden_reaches_a_server_over_stdio() {
    matrix(KINDS[0]).await;
}

#[tokio::test]
async fn nothing_that_is_forbidden_reaches_a_server_over_http() {
    matrix(KINDS[1]).await;
}

#[tokio::test]
async fn nothing_that_is_forbidden_reaches_a_modern_server() {
    matrix(KINDS[2]).await;
}
