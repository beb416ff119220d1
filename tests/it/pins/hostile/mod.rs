//! Hostile servers of both eras, generated: each changes every member of its definitions, one alone in each, over stdio and
//! over HTTP, loudly, silently, or over a restart, and back and forth. Under `tofu` and `ask` no client sees or calls what
//! was not approved. Under `warn` each change is told once, by class.
//!
//! The definitions have two forms. Whatever is new in the second one holds the word [`EVIL`], which clients must not hear.

mod server;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use mcp_host::config::{self, Syntax, Vars};
use mcp_host::pins::{Class, What};
use mcp_host::{Event, Events, Host};
use serde_json::json;
use tokio::net::TcpListener;

use self::server::{EVIL, Form, Kept, SERVER, Seen, answer, put, read, shown, told, tools};
use super::{WAYS, Way, changes};
use crate::auth::site::{Asked, Site};
use crate::views::clients::{Client, Transport};

/// The longest that a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks of clients.
const LOOK: Duration = Duration::from_millis(5);

/// The era of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Era {
    Legacy,
    /// 2026-07-28: no session. It tells changes on a stream that was opened for them, or it tells nothing.
    Modern,
}

/// How a server comes to list something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// It says so.
    Loud,
    /// It says nothing: its process ends, or its session, and the next one lists something else.
    Ended,
    /// It says nothing, and nothing ends: the time of its lists (`ttlMs`) is over.
    Expired,
    /// It lists something else after the host was started again.
    Restart,
}

impl How {
    /// Reports whether the host connects to it anew, so that it hears its instructions again, and reads its lists before
    /// any call reaches it.
    fn connects_anew(self) -> bool {
        matches!(self, Self::Ended | Self::Restart)
    }
}

/// Every server: how it is reached, its era, and how it changes.
fn servers() -> Vec<(Way, Era, How)> {
    let mut all = Vec::new();
    for way in WAYS {
        all.extend([How::Loud, How::Ended, How::Restart].map(|how| (way, Era::Legacy, how)));
        all.extend([How::Loud, How::Expired, How::Restart].map(|how| (way, Era::Modern, how)));
    }
    // Over HTTP a server of that era has nothing that could end.
    all.push((Way::Stdio, Era::Modern, How::Ended));
    all
}

/// A hostile server, and its host.
struct World {
    folder: tempfile::TempDir,
    way: Way,
    era: Era,
    how: How,
    /// Whether its instructions change as well.
    says: bool,
    approval: &'static str,
    site: Site,
    host: Host,
    to: SocketAddr,
}

async fn start((way, era): (Way, Era), approval: &str, folder: &Path, url: &str) -> (Host, SocketAddr) {
    let mut entry = match way {
        Way::Stdio => json!({ "command": "sh", "args": ["-c", SERVER, folder] }),
        Way::Http => json!({ "type": "http", "url": format!("{url}/mcp") }),
    };
    entry["era"] = json!(if era == Era::Legacy { "legacy" } else { "modern" });
    entry["restart"] = json!({ "minDelay": "1ms", "maxDelay": "10ms" });
    let text = json!({ "host": { "approval": approval }, "mcpServers": { "it": entry } }).to_string();
    let config = config::parse_str(&text, Syntax::Json, "mcp.json", &Vars::from_process()).unwrap();
    let host = Host::builder().config(config).state_directory(folder.join("state")).start().await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    tokio::spawn(host.open_http(listener).unwrap().serve());
    (host, to)
}

impl World {
    async fn new((way, era, how): (Way, Era, How), approval: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path: PathBuf = folder.path().to_owned();
        put(&path, "now", (how, era, Form::First), true);
        let word = match how {
            How::Loud => "loud",
            How::Ended => "ends",
            How::Expired | How::Restart => "silent",
        };
        fs::write(path.join("how"), word).unwrap();
        let (files, kept) = (path.clone(), Mutex::new(Kept::default()));
        let site = Site::start(move |_| move |asked: &Asked| answer(asked, &files, era, &kept)).await;
        let (host, to) = start((way, era), approval, &path, &site.url).await;
        Self { folder, way, era, how, says: how.connects_anew(), approval, site, host, to }
    }

    fn case(&self) -> String {
        let way = if self.way == Way::Stdio { "stdio" } else { "HTTP" };
        format!("{:?} {:?} over {way} under {}", self.era, self.how, self.approval)
    }

    /// Makes the server list another form.
    async fn turn(&mut self, form: Form) {
        if self.how == How::Restart {
            self.host.shutdown().await;
            put(self.folder.path(), "now", (self.how, self.era, form), self.says);
            let reached = (self.way, self.era);
            (self.host, self.to) = start(reached, self.approval, self.folder.path(), &self.site.url).await;
            return;
        }
        put(self.folder.path(), "next", (self.how, self.era, form), self.says);
        let done = self.host.call_tool("it__flip", json!({})).await;
        assert_eq!(done.unwrap().text(), "done", "{}", self.case());
    }

    /// Returns the calls that the server got while it was in a form.
    fn calls(&self, form: Form) -> Vec<String> {
        let begin = format!("{form:?} ");
        let calls = read(self.folder.path(), "calls");
        calls.lines().filter_map(|line| line.strip_prefix(&begin)).map(str::to_owned).collect()
    }

    /// Returns new clients: one with a session, and one without.
    async fn clients(&self) -> Vec<Client> {
        let mut clients = Vec::new();
        for (transport, revision) in [(Transport::Pipe, "2025-11-25"), (Transport::Http, "2026-07-28")] {
            clients.push(Client::enter(&self.host, self.to, transport, revision, "").await);
        }
        clients
    }

    fn changed(&self) -> usize {
        self.host.status()[0].changed.len()
    }

    /// Looks as clients do, until so many definitions wait and each client sees what is expected. Before that, too, no client
    /// hears of the second form, and no call reaches the server in that form, if `is_secret`.
    async fn until(&self, waiting: usize, expected: &Seen, is_secret: bool) -> Vec<Client> {
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            self.nudge().await;
            let mut clients = self.clients().await;
            let mut all = Vec::new();
            for client in &mut clients {
                all.push(seen(client).await);
                if is_secret && self.how.connects_anew() {
                    // Of another change nobody can know before the server has said so, or its list is read again.
                    client.ask("tools/call", json!({ "name": "it__act_title", "arguments": { "a": "x" } })).await;
                }
                assert!(!is_secret || !client.heard.contains(EVIL), "{}: {}", self.case(), client.heard);
            }
            if is_secret {
                assert_eq!(self.calls(Form::Evil), [""; 0], "{}", self.case());
            }
            if self.changed() == waiting && all.iter().all(|seen| seen == expected) {
                return clients;
            }
            let state = (self.changed(), all, self.host.status()[0].changed.clone());
            assert!(tokio::time::Instant::now() < end, "{}: {waiting} {expected:?}: {state:?}", self.case());
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Does what makes the host notice a silent change: the next request notices a lost session, and the next list that a
    /// list is over.
    async fn nudge(&self) {
        for mut client in self.clients().await {
            match self.how {
                How::Ended => drop(client.ask("prompts/get", json!({ "name": "it__stay" })).await),
                How::Expired => drop(seen(&mut client).await),
                How::Loud | How::Restart => {}
            }
        }
    }

    /// Calls everything that the form lists, and checks that each call is refused, or that each arrives.
    async fn call_all(&self, clients: Vec<Client>, form: Form, is_allowed: bool) {
        for mut client in clients {
            for name in shown(form).into_iter().filter(|name| name.starts_with("it__")) {
                let (before, prompt) = (self.calls(form).len(), name == "it__say" || name == "it__stay");
                let method = if prompt { "prompts/get" } else { "tools/call" };
                let answer = client.ask(method, json!({ "name": name, "arguments": { "a": "x" } })).await;
                let is_refused = answer["error"].is_object() || answer["result"]["isError"] == true;
                let stays = name == "it__stay";
                assert_eq!(is_refused, !(is_allowed || stays), "{}: {name}: {answer}", self.case());
                let sent = self.calls(form).len() - before;
                assert_eq!(sent, usize::from(is_allowed && !stays), "{}: {name}", self.case());
            }
        }
    }
}

/// Returns what a client sees, but for `flip`.
async fn seen(client: &mut Client) -> Seen {
    let mut seen = Seen::new();
    for (method, member, key) in [
        ("tools/list", "tools", "name"),
        ("prompts/list", "prompts", "name"),
        ("resources/templates/list", "resourceTemplates", "uriTemplate"),
    ] {
        let answer = client.ask(method, json!({})).await;
        let items = answer["result"][member].as_array().unwrap_or_else(|| panic!("{answer}")).clone();
        seen.extend(items.iter().map(|item| item[key].as_str().unwrap().to_owned()));
    }
    seen.remove("it__flip");
    seen
}

/// A server turns, turns back, and turns again. Then a person approves it.
async fn strict(server: (Way, Era, How), approval: &'static str) {
    let mut world = World::new(server, approval).await;
    let (first, evil) = (shown(Form::First), shown(Form::Evil));
    if approval == "ask" {
        let count = tools(Form::First).len() + 5;
        world.until(count, &Seen::new(), true).await;
        let waiting = world.host.waiting_for_approval().await.unwrap();
        assert_eq!(world.host.approve(&waiting).await.unwrap(), count);
    }
    let clients = world.until(0, &first, true).await;
    world.call_all(clients, Form::First, true).await;
    let count = told(server.2).len();
    let stays = Seen::from(["it__stay".to_owned()]);
    for form in [Form::Evil, Form::First, Form::Evil] {
        world.turn(form).await;
        if form == Form::First {
            let clients = world.until(0, &first, true).await;
            world.call_all(clients, form, true).await;
        } else {
            let clients = world.until(count, &stays, true).await;
            world.call_all(clients, form, false).await;
        }
    }
    let waiting = world.host.waiting_for_approval().await.unwrap();
    assert_eq!(world.host.approve(&waiting).await.unwrap(), count, "{}", world.case());
    let clients = world.until(0, &evil, false).await;
    world.call_all(clients, Form::Evil, true).await;
    world.host.shutdown().await;
}

/// Reads the news of definitions, until there are so many, or to the end of the host.
async fn news(events: &mut Events, count: usize) -> Vec<((What, String), Vec<Class>)> {
    let mut news = Vec::new();
    while news.len() < count {
        match events.next().await {
            Some(Event::Definition(one)) => {
                assert!(!one.withheld, "{one:?}");
                news.push(((one.what, one.name), one.classes));
            }
            Some(_) => {}
            None => break,
        }
    }
    news.sort();
    news
}

/// A server turns, and its host tells of it once, and no more after a restart.
async fn lenient(server: (Way, Era, How)) {
    let mut world = World::new(server, "warn").await;
    world.until(0, &shown(Form::First), true).await;
    let (told, case) = (told(server.2).into_iter().collect::<Vec<_>>(), world.case());
    let mut events = world.host.events();
    world.turn(Form::Evil).await;
    if server.2 == How::Restart {
        events = world.host.events();
    }
    world.nudge().await;
    let heard = tokio::time::timeout(PATIENCE, news(&mut events, told.len())).await;
    assert_eq!(heard.unwrap_or_else(|_| panic!("{case}: {:?}", world.host.status()[0].changed)), told, "{case}");
    let clients = world.until(told.len(), &shown(Form::Evil), false).await;
    world.call_all(clients, Form::Evil, true).await;
    // Nothing more is told of it, neither now nor after a restart.
    world.how = How::Restart;
    world.turn(Form::Evil).await;
    assert!(news(&mut events, usize::MAX).await.is_empty(), "{case}");
    events = world.host.events();
    world.until(told.len(), &shown(Form::Evil), false).await;
    world.host.shutdown().await;
    drop(world);
    assert!(news(&mut events, usize::MAX).await.is_empty(), "{case}");
}

/// Tries all servers that are reached in a way and have an era, beside one another.
async fn every<T: Future<Output = ()>>(way: Way, era: Era, one: impl Fn((Way, Era, How)) -> T) {
    let all = servers().into_iter().filter(|server| (server.0, server.1) == (way, era));
    futures_util::future::join_all(all.map(one)).await;
}

async fn no_client_sees_or_calls_it(way: Way, era: Era) {
    every(way, era, |server| async move {
        for approval in ["tofu", "ask"] {
            strict(server, approval).await;
        }
    })
    .await;
}

#[tokio::test]
async fn h85_whatever_a_process_changes_no_client_sees_or_calls_it_under_tofu_and_ask() {
    no_client_sees_or_calls_it(Way::Stdio, Era::Legacy).await;
}

#[tokio::test]
async fn h85_whatever_a_session_changes_no_client_sees_or_calls_it_under_tofu_and_ask() {
    no_client_sees_or_calls_it(Way::Http, Era::Legacy).await;
}

#[tokio::test]
async fn h85_whatever_a_modern_process_changes_no_client_sees_or_calls_it_under_tofu_and_ask() {
    no_client_sees_or_calls_it(Way::Stdio, Era::Modern).await;
}

#[tokio::test]
async fn h85_whatever_a_modern_url_changes_no_client_sees_or_calls_it_under_tofu_and_ask() {
    no_client_sees_or_calls_it(Way::Http, Era::Modern).await;
}

#[tokio::test]
async fn h85_whatever_a_server_changes_it_is_told_once_by_class_under_warn() {
    for (way, era) in
        [(Way::Stdio, Era::Legacy), (Way::Http, Era::Legacy), (Way::Stdio, Era::Modern), (Way::Http, Era::Modern)]
    {
        every(way, era, lenient).await;
    }
}

#[tokio::test]
async fn h85_a_list_that_is_over_is_read_again_for_clients_of_both_eras() {
    for way in WAYS {
        for number in [0, 1] {
            let mut world = World::new((way, Era::Modern, How::Expired), "tofu").await;
            world.until(0, &shown(Form::First), true).await;
            world.turn(Form::Evil).await;
            let end = tokio::time::Instant::now() + PATIENCE;
            while world.changed() == 0 {
                let mut client = world.clients().await.swap_remove(number);
                seen(&mut client).await;
                assert!(tokio::time::Instant::now() < end, "client {number}");
                tokio::time::sleep(LOOK).await;
            }
            world.host.shutdown().await;
        }
    }
}

#[test]
fn h85_the_forms_of_a_hostile_server_differ_in_one_member_of_each_tool() {
    for (first, evil) in tools(Form::First).iter().zip(tools(Form::Evil)).take(changes().len()) {
        let (first, evil) = (first.as_object().unwrap(), evil.as_object().unwrap());
        let differing = evil.iter().filter(|(key, value)| first.get(*key) != Some(value)).count();
        assert_eq!((differing, first.len()), (1, evil.len()), "{evil:?}");
    }
}
