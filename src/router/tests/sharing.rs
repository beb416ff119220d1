//! Who shares a process with whom (`docs/bridging.md` 15.1): by what servers ask and what clients can answer. On a
//! paused clock.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::{Value, json};

use super::support::{request, text};
use crate::config::{Config, Prefix, Server, Sharing, Stdio, Transport};
use crate::in_process::{InProcess, Running as Runs};
use crate::manager::{Asked, Manager, Principal};
use crate::protocol::{Message, Method, Notification, Outcome, Profile, ProtocolVersion, Raw, Response};
use crate::router::{Client, Router};
use crate::upstream::Starter;

/// By then, unused leases are gone.
pub(super) const GONE: Duration = Duration::from_secs(150);

/// Servers behind pipes, and how often each was started.
pub(super) struct World {
    pub(super) router: Router,
    starts: Vec<Arc<AtomicUsize>>,
}

/// A client with a session that answers what it declared.
pub(super) struct Person {
    pub(super) client: Arc<Client>,
    roots: Arc<std::sync::Mutex<&'static str>>,
    pub(super) asked_for_roots: Arc<AtomicUsize>,
}

/// Tools: `echo` returns which start of the server serves, `ask` elicits, `roots` returns the first root.
fn server(number: Arc<AtomicUsize>) -> Starter {
    Arc::new(move |wire, tasks| {
        let start = number.fetch_add(1, Ordering::SeqCst);
        wire.mute.store(true, Ordering::Relaxed);
        let mut server = InProcess::new("script", "1");
        for name in ["echo", "ask", "roots"] {
            let definition = Raw::from_value(&json!({ "name": name, "inputSchema": { "type": "object" } }));
            server = server.tool(definition, move |invocation| {
                async move {
                    let said = match name {
                        "ask" => {
                            let params =
                                json!({ "message": "?", "requestedSchema": { "type": "object", "properties": {} } });
                            invocation.request(Method::Elicit, Some(Raw::from_value(&params))).await
                        }
                        "roots" => invocation.request(Method::RootsList, None).await,
                        _ => Ok(Raw::empty_object()),
                    };
                    let said = said.map_or_else(|error| format!("error {}", error.code), |said| said.to_string());
                    let text = format!("{start} {said}");
                    Ok(Raw::from_value(&json!({ "content": [{ "type": "text", "text": text }] })))
                }
                .boxed()
            });
        }
        Runs::new(server).start(wire, tasks);
    })
}

/// Builds a world; `known` is what each server is known to ask.
pub(super) fn world(known: &[Asked], change: impl Fn(&mut Server)) -> World {
    world_of(known, change, server)
}

/// Like `world`, with servers of another script.
pub(super) fn world_of(
    known: &[Asked],
    change: impl Fn(&mut Server),
    server: impl Fn(Arc<AtomicUsize>) -> Starter,
) -> World {
    let mut config = Config::default();
    let (mut starters, mut starts) = (HashMap::new(), Vec::new());
    for number in 0..known.len() {
        let name = format!("s{number}");
        let mut entry = Server::new(&name, Transport::Stdio(Stdio::default())).unwrap();
        change(&mut entry);
        config.servers.push(entry);
        starts.push(Arc::<AtomicUsize>::default());
        starters.insert(name, server(starts[number].clone()));
    }
    let info = Raw::from_value(&json!({ "name": "test", "version": "0" }));
    let (manager, news) = Manager::start(config, &starters, info.clone(), None, Default::default());
    for (server, asks) in manager.servers().iter().zip(known) {
        server.note_asked(*asks, None);
    }
    World { router: Router::start(manager, news, info), starts }
}

impl World {
    pub(super) fn person(&self, profile: Profile, roots: &'static str) -> Person {
        let client = self.router.admit(Principal::local(), ProtocolVersion::V2025_11_25, profile, None);
        let roots = Arc::new(std::sync::Mutex::new(roots));
        let asked_for_roots = Arc::<AtomicUsize>::default();
        let (reader, told, count) = (client.clone(), roots.clone(), asked_for_roots.clone());
        tokio::spawn(async move {
            let _reading = reader.mailbox().read();
            while let Some(message) = reader.mailbox().next().await {
                answer(&reader, message, *told.lock().unwrap(), &count);
            }
        });
        Person { client, roots, asked_for_roots }
    }

    /// Returns a tool's result: which start of its server, and the outcome.
    pub(super) async fn call(&self, person: &Person, server: usize, tool: &str) -> String {
        let name = format!("s{server}__{tool}");
        let running =
            request(&self.router, &person.client, Method::ToolsCall, &json!({ "name": name, "arguments": {} }));
        let leg = running.leg.clone();
        let mut answered = std::pin::pin!(running.answer());
        let result: Value = loop {
            tokio::select! {
                biased;
                result = &mut answered => break result,
                Some(message) = leg.next() => {
                    let roots = *person.roots.lock().unwrap();
                    answer(&person.client, message, roots, &person.asked_for_roots);
                }
            }
        };
        text(&result).to_owned()
    }

    pub(super) fn leases(&self) -> usize {
        self.router.meter().gauges().leases
    }

    pub(super) fn starts(&self, server: usize) -> usize {
        self.starts[server].load(Ordering::SeqCst)
    }
}

fn answer(client: &Arc<Client>, message: Message, roots: &str, count: &AtomicUsize) {
    let Message::Request(asked) = message else { return };
    let outcome: Outcome = Ok(Raw::from_value(&match asked.method {
        Method::RootsList => {
            count.fetch_add(1, Ordering::SeqCst);
            json!({ "roots": [{ "uri": roots }] })
        }
        _ => json!({ "action": "accept", "content": { "of": client.owner().0 } }),
    }));
    client.answer(Response { id: Some(asked.id), outcome });
}

pub(super) const FORM: Profile = Profile::ELICITATION_FORM;
pub(super) const ROOTS: Profile = Profile::ROOTS.with(Profile::ROOTS_CHANGED);

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_nothing_is_one_process_whatever_clients_can() {
    let world = world(&[Asked::NOTHING], |_| {});
    let all = ROOTS.with(FORM).with(Profile::SAMPLING).with(Profile::ELICITATION_URL);
    for profile in [Profile::EMPTY, ROOTS, FORM, Profile::SAMPLING, all, all.with(Profile::APPS)] {
        let person = world.person(profile, "file:///a");
        assert_eq!(world.call(&person, 0, "echo").await, "0 {}");
    }
    assert_eq!((world.leases(), world.starts(0)), (1, 1));
}

/// The bound of `docs/bridging.md` 15.1.
#[tokio::test(start_paused = true)]
async fn twelve_clients_of_eight_profiles_over_ten_servers() {
    let mut known = [Asked::NOTHING; 10];
    (known[6], known[7]) = (Asked::ELICITATION, Asked::ELICITATION);
    (known[8], known[9]) = (Asked::ROOTS, Asked::ROOTS);
    let world = world(&known, |_| {});
    let (s, apps) = (Profile::SAMPLING, Profile::APPS);
    let profiles = [Profile::EMPTY, ROOTS, FORM, s, ROOTS.with(FORM), ROOTS.with(s), FORM.with(s), ROOTS.with(apps)];
    let lists = ["file:///a", "file:///b", "file:///c"];
    let persons: Vec<Person> = (0..12).map(|number| world.person(profiles[number % 8], lists[number % 3])).collect();
    let k = persons.iter().filter(|person| person.client.profile().has(FORM)).count();
    let bound = 6 + 2 * (k + 1) + 2 * 4;
    for tool in ["list", "echo", "ask", "roots", "ask"] {
        for person in &persons {
            for server in 0..10 {
                if tool == "list" {
                    request(&world.router, &person.client, Method::ToolsList, &json!({})).answer().await;
                } else if tool == "echo"
                    || (tool == "ask" && (6..8).contains(&server))
                    || (tool == "roots" && server > 7)
                {
                    let said = world.call(person, server, tool).await;
                    let profile = person.client.profile();
                    match tool {
                        "ask" if profile.has(FORM) => {
                            let own = format!(r#""of":{}"#, person.client.owner().0);
                            assert!(said.contains(&own), "{said} is not of {own}");
                        }
                        "ask" => assert!(said.contains("error -32601"), "{said}"),
                        "roots" if profile.has(ROOTS) => {
                            assert!(said.contains(*person.roots.lock().unwrap()), "{said}");
                        }
                        "roots" => assert!(said.contains("error") || said.contains("[]"), "{said}"),
                        _ => {}
                    }
                }
                assert!(world.leases() <= bound, "{} leases, {bound} at most", world.leases());
            }
        }
    }
    assert!(persons.iter().all(|person| person.asked_for_roots.load(Ordering::SeqCst) <= 1), "once a session");
    for person in &persons {
        world.router.clients().close(&person.client);
    }
    tokio::time::sleep(GONE).await;
    assert_eq!(world.leases(), 10, "one a server");
}

#[tokio::test(start_paused = true)]
async fn a_question_on_a_shared_lease_has_its_clients_move() {
    let world = world(&[Asked::NOTHING], |_| {});
    let (one, two, three) = (world.person(FORM, ""), world.person(FORM, ""), world.person(Profile::EMPTY, ""));
    for person in [&one, &two, &three] {
        assert_eq!(world.call(person, 0, "echo").await, "0 {}");
    }
    // It names the call during which it asks, so that call's client gets the question; the lease stays shared.
    let said = world.call(&one, 0, "ask").await;
    assert!(said.starts_with("0 ") && said.contains(&format!(r#""of":{}"#, one.client.owner().0)), "{said}");
    for person in [&one, &two] {
        let said = world.call(person, 0, "ask").await;
        assert!(!said.starts_with("0 ") && said.contains(&format!(r#""of":{}"#, person.client.owner().0)), "{said}");
    }
    let said = world.call(&three, 0, "echo").await;
    assert!(!said.starts_with("0 "), "less is declared there: {said}");
    let words = world.router.manager().status()[0].sharing.join("\n");
    assert!(words.contains("asks clients for elicitation") && words.contains("for one client"), "{words}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_goes_with_the_only_client_that_has_called() {
    let world = world(&[Asked::NOTHING], |_| {});
    let (one, two) = (world.person(FORM, ""), world.person(FORM, ""));
    let said = world.call(&one, 0, "ask").await;
    assert!(said.starts_with("0 ") && said.contains("accept"), "{said}");
    assert_eq!(world.call(&one, 0, "echo").await, "0 {}", "with what is in its memory");
    assert!(!world.call(&two, 0, "echo").await.starts_with("0 "));
    assert_eq!(world.call(&one, 0, "echo").await, "0 {}");
}

#[tokio::test(start_paused = true)]
async fn clients_that_told_the_same_roots_share() {
    let world = world(&[Asked::ROOTS], |_| {});
    let [one, two, three] = ["file:///a", "file:///a", "file:///b"].map(|roots| world.person(ROOTS, roots));
    let first = world.call(&one, 0, "roots").await;
    assert!(first.contains("file:///a"), "{first}");
    assert_eq!(world.call(&two, 0, "roots").await, first);
    let other = world.call(&three, 0, "roots").await;
    assert!(other.contains("file:///b"), "{other}");
    // A client that is alone keeps its process when its roots change; one that is not moves.
    let changed = |person: &Person| {
        *person.roots.lock().unwrap() = "file:///c";
        world.router.notify(&person.client, Notification { method: Method::RootsListChanged, params: None });
    };
    changed(&three);
    tokio::time::sleep(Duration::from_millis(10)).await;
    let stays = world.call(&three, 0, "roots").await;
    assert_eq!((stays.get(..1), stays.contains("file:///c")), (other.get(..1), true), "{stays}");
    changed(&two);
    tokio::time::sleep(Duration::from_millis(10)).await;
    let moved = world.call(&two, 0, "roots").await;
    assert_eq!(moved, stays, "to those with the same roots");
    assert_eq!(world.call(&one, 0, "roots").await, first);
}

/// The client is not asked for roots either.
#[tokio::test(start_paused = true)]
async fn a_name_that_tells_of_no_server_opens_no_lease_where_lists_are_known() {
    let world = world(&[Asked::ROOTS; 3], |entry| entry.prefix = Prefix::Auto);
    let one = world.person(ROOTS, "file:///a");
    let ask = |method, params: Value| request(&world.router, &one.client, method, &params).answer();
    let list = ask(Method::ToolsList, json!({})).await;
    assert_eq!(list["tools"].as_array().map(Vec::len), Some(9), "{list}");
    let answer = ask(Method::ToolsCall, json!({ "name": "nothing", "arguments": {} })).await;
    assert_eq!(answer["message"], "unknown tool: nothing");
    assert_eq!((world.leases(), one.asked_for_roots.load(Ordering::SeqCst)), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn by_profile_one_process_a_set_of_capabilities() {
    let world = world(&[Asked::NOTHING], |entry| entry.sharing = Sharing::Profile);
    let persons = [FORM, FORM, ROOTS].map(|profile| world.person(profile, ""));
    let mut said = Vec::new();
    for person in &persons {
        said.push(world.call(person, 0, "echo").await);
    }
    assert!(said[0] == said[1] && said[0] != said[2], "{said:?}");
}

/// A server in this process may send requests to its clients. They share it all the same, and nobody asks them for their
/// roots in advance.
#[tokio::test(start_paused = true)]
async fn what_a_server_in_this_process_asks_moves_nobody() {
    let world = world(&[Asked::ROOTS.with(Asked::ELICITATION)], |entry| entry.sharing = Sharing::Profile);
    let both = FORM.with(ROOTS);
    let persons = [both, both].map(|profile| world.person(profile, "file:///a"));
    let said = [world.call(&persons[0], 0, "echo").await, world.call(&persons[1], 0, "echo").await];
    assert_eq!(said[0], said[1], "one connection");
    let asked: usize = persons.iter().map(|person| person.asked_for_roots.load(Ordering::SeqCst)).sum();
    assert_eq!((asked, world.router.manager().servers()[0].asks()), (0, Asked::NOTHING));
}

#[tokio::test(start_paused = true)]
async fn what_is_forgotten_is_shared_anew() {
    let world = world(&[Asked::ELICITATION], |_| {});
    let (one, two) = (world.person(FORM, ""), world.person(FORM, ""));
    let own = [world.call(&one, 0, "echo").await, world.call(&two, 0, "echo").await];
    assert_ne!(own[0], own[1]);
    assert_eq!(world.router.manager().forget_asks("s0"), Some(vec!["elicitation"]));
    let three = [world.person(FORM, ""), world.person(FORM, "")];
    assert_eq!(world.call(&three[0], 0, "echo").await, world.call(&three[1], 0, "echo").await);
    assert_eq!(world.router.manager().forget_asks("nobody"), None);
}
