//! The record: calls without arguments, lines, and events that a feed reads once each.

mod late;

use std::time::Duration;

use serde_json::{Value, json};

use super::feed::Wanted;
use super::*;
use crate::counts::Tally;
use crate::observe::{Noted, Observed, Observer, Passing, Subject, Whose};
use crate::protocol::{ErrorObject, Raw};
use crate::redact::{Learned, Scrubber};

fn second(second: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(second)
}

fn record() -> (Record, Observer) {
    let (record, observer) = (Record::default(), Observer::default());
    record.open();
    record.look(SystemTime::now());
    observer.tell(vec![Arc::new(record.clone())]);
    (record, observer)
}

/// Begins a call of `tool` of a server.
fn begin<'a>(observer: &'a Observer, at: SystemTime, server: &str, tool: &str) -> Observed<'a> {
    begin_known(observer, at, server, tool).0
}

/// Does the same, and returns what is known of the call while it runs.
fn begin_known<'a>(
    observer: &'a Observer,
    at: SystemTime,
    server: &str,
    tool: &str,
) -> (Observed<'a>, &'static Tally, &'static Passing) {
    let params = Raw::from_value(&json!({ "name": tool, "arguments": { "key": "canary-7731" } }));
    let subject = Arc::<Subject>::default();
    subject.is(&server.into(), &tool.into(), &Arc::default());
    let method = &Method::ToolsCall;
    let (client, door) = (Some("an agent".into()), Some("http"));
    let begun = || Begun {
        principal: "p",
        client,
        door,
        at,
        method,
        params: Some(&params),
        subject,
        via: None,
        parent: None,
        revision: None,
        id: None,
        #[cfg(feature = "otel")]
        origin: None,
    };
    let (tally, passing): (&Tally, &Passing) = (Box::leak(Box::default()), Box::leak(Box::default()));
    tally.begin(method, true, params.as_bytes().len(), tokio::time::Instant::now());
    let noted = || Noted { method: method.clone(), client: Some("an agent".into()), door: Some("http"), via: None };
    let observed = observer.begin(method, (tally, passing), noted, begun).unwrap();
    passing.is(&Arc::new(Whose { server: server.into(), scrubber: Arc::default() }), &tool.into());
    (observed, tally, passing)
}

fn answered() -> crate::answered::Answered {
    Ok(Raw::trusted(r#"{"content":"canary-7731"}"#.into()))
}

fn say(record: &Record, server: &str, text: &str, at: SystemTime) {
    let (server, text) = (Arc::<str>::from(server), Arc::<[u8]>::from(text.as_bytes()));
    let said = Said { server: Some(&server), source: Source::Stderr, level: Level::Info, text: &text, scrubber: None };
    record.line(&said, at);
}

/// Returns the events after one as JSON; each is valid under the schema.
fn after(watcher: &Watcher, seq: u64, wanted: &Wanted) -> Vec<Value> {
    let Read::Events(events) = watcher.after(seq, usize::MAX, u64::MAX) else { panic!("events are dropped") };
    written(events, wanted)
}

fn written(events: impl IntoIterator<Item = Event>, wanted: &Wanted) -> Vec<Value> {
    let mut out = Vec::new();
    events.into_iter().for_each(|event| event.write(&mut out, wanted, str::to_owned));
    let schema: Value = serde_json::from_str(include_str!("../feed.schema.json")).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(wanted.arguments == Arguments::Masked || !text.contains("canary-7731"), "{text}");
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for event in &events {
        assert!(
            schema.is_valid(event),
            "{event}: {:?}",
            schema.iter_errors(event).next().map(|error| error.to_string())
        );
    }
    events
}

fn all() -> Wanted {
    Wanted::default()
}

#[test]
fn a_call_begins_and_ends_in_the_feed() {
    let (record, observer) = record();
    let watcher = record.watch(At::Socket, Arguments::None).unwrap();
    begin(&observer, second(7), "git", "push").finish(Some(&answered()));
    begin(&observer, second(7), "git", "pull").finish(Some(&Err(ErrorObject::new(-1, "no").into())));
    let mut events = after(&watcher, 0, &all());
    for event in &mut events {
        let members = event.as_object_mut().unwrap();
        let host = members.remove("hostMs").map(|host| host.as_f64().unwrap());
        let whole = members.remove("ms").map(|ms| ms.as_f64().unwrap());
        // The test takes some time itself.
        let at = members.insert("at".to_owned(), json!(7000)).and_then(|at| at.as_u64()).unwrap();
        assert!((7000..7000 + whole.map_or(1, |ms| ms as u64 + 2)).contains(&at), "{at}, {whole:?}");
        assert_eq!((host.is_some(), host <= whole), (event["phase"] == "end", true));
    }
    let common = |seq: u64, id: u64, tool: &str, phase: &str| {
        json!({
            "type": "call", "seq": seq, "at": 7000, "id": id, "phase": phase, "server": "git", "tool": tool,
            "method": "tools/call", "client": "an agent", "door": "http", "bytesIn": 49,
        })
    };
    let ended = |mut event: Value, outcome: &str, bytes: u64| {
        event["outcome"] = outcome.into();
        event["bytesOut"] = bytes.into();
        event
    };
    let expected = [
        common(1, 1, "push", "begin"),
        ended(common(2, 1, "push", "end"), "ok", 25),
        common(3, 2, "pull", "begin"),
        ended(common(4, 2, "pull", "end"), "error", 2),
    ];
    assert_eq!(events, expected);
}

#[test]
fn nothing_is_kept_before_somebody_can_ask() {
    let (record, observer) = (Record::default(), Observer::default());
    observer.tell(vec![Arc::new(record.clone())]);
    begin(&observer, second(1), "git", "push").finish(Some(&answered()));
    say(&record, "git", "hello", second(1));
    record.happened(Part::Config, "{}", second(1));
    assert_eq!(record.watch(At::Socket, Arguments::None).unwrap().now().0, 0);
    assert!(record.watch(At::Socket, Arguments::None).unwrap().past(10, &all()).1.kept().is_empty());
}

#[test]
fn calls_are_events_while_somebody_looks_and_ten_minutes_longer() {
    let (record, observer) = (Record::default(), Observer::default());
    record.open();
    observer.tell(vec![Arc::new(record.clone())]);
    let push = || begin(&observer, second(1), "git", "push").finish(Some(&answered()));
    let events = || record.kept().events.last();
    push();
    record.look(SystemTime::now() - LOOKED);
    push();
    assert_eq!(events(), 0);
    let _ = record.watch(At::Socket, Arguments::None).unwrap().past(0, &all());
    push();
    assert_eq!(events(), 2);
}

#[cfg(feature = "server")]
#[test]
fn a_call_that_began_before_anybody_looked_is_told_of_once() {
    let (record, observer) = (Record::default(), Observer::default());
    record.open();
    observer.tell(vec![Arc::new(record.clone())]);
    let (long, tally, passing) = begin_known(&observer, second(1), "git", "clone");
    let (short, short_tally, short_passing) = begin_known(&observer, second(1), "git", "pull");
    short.finish(Some(&answered()));
    let watcher = record.watch(At::Socket, Arguments::None).unwrap();
    watcher.look(SystemTime::now());
    // A second check adds no event, and neither does one of a call that has ended.
    for _ in 0..2 {
        record.join(passing, tally, &Arc::default());
        record.join(short_passing, short_tally, &Arc::default());
    }
    let running: Vec<Value> =
        watcher.now().1.iter().map(|call| serde_json::to_value(call.running(str::to_owned)).unwrap()).collect();
    assert_eq!(running.len(), 1, "{running:?}");
    assert_eq!((&running[0]["tool"], &running[0]["client"]), (&json!("clone"), &json!("an agent")));
    long.finish(Some(&Err(ErrorObject::new(-1, "no").into())));
    assert!(watcher.now().1.is_empty());
    let told: Vec<Value> = after(&watcher, 0, &all()).iter().map(|event| event["phase"].clone()).collect();
    assert_eq!(told, ["begin", "end"]);
    // Its end is an event, so it is not counted among the calls without one.
    record.settle(u64::MAX);
    let (_, past) = watcher.past(10, &all());
    let told = |call: &Value| format!("{} {} {}", call["tool"], call["outcome"], call["bytesIn"]).replace('"', "");
    let mut past: Vec<String> = written(past.kept(), &all()).iter().map(told).collect();
    past.sort();
    assert_eq!(past, ["clone error 50", "pull ok 49"]);
    assert!(after(&watcher, 0, &all()).iter().all(|event| event["phase"] != "counts"));
}

#[test]
fn the_last_calls_are_kept_though_nobody_looks() {
    let (record, observer) = (Record::default(), Observer::default());
    record.open();
    record.limit(3, 1000);
    observer.tell(vec![Arc::new(record.clone())]);
    let push = |tool: &str, answered| begin(&observer, second(1), "git", tool).finish(Some(&answered));
    ["a", "b", "c"].into_iter().for_each(|tool| push(tool, answered()));
    push("d", Err(ErrorObject::new(-1, "no").into()));
    let running = begin(&observer, second(1), "hub", "long");
    let watcher = record.watch(At::Socket, Arguments::None).unwrap();
    let calls = Wanted { parts: Some(vec![Part::Calls]), ..all() };
    let (seq, past) = watcher.past(10, &calls);
    let now = unix_ms(SystemTime::now());
    let mut shown = written(past.kept(), &calls);
    for event in &mut shown {
        let members = event.as_object_mut().unwrap();
        let at = members.remove("at").unwrap().as_u64().unwrap();
        assert!(at <= now && now - at < 60_000, "{at} is not a moment before {now}");
        assert!(members.remove("hostMs").unwrap().as_f64() <= members.remove("ms").unwrap().as_f64());
    }
    let expected = |id: u64, tool: &str, outcome: &str, bytes: u64| {
        json!({
            "type": "call", "seq": 0, "id": id, "phase": "end", "server": "git", "tool": tool, "method": "tools/call",
            "client": "an agent", "door": "http", "bytesIn": 46, "outcome": outcome, "bytesOut": bytes,
        })
    };
    assert_eq!(shown, [expected(1, "b", "ok", 25), expected(2, "c", "ok", 25), expected(3, "d", "error", 2)]);
    // A call that began before any feed watched has no event of its own: it is counted.
    running.finish(None);
    let later = SystemTime::now() + Duration::from_secs(2);
    begin(&observer, later, "git", "e").finish(Some(&answered()));
    watcher.settle(later);
    watcher.settle(later);
    let told: Vec<_> = after(&watcher, seq, &calls)
        .iter()
        .map(|event| format!("{} {} {}", event["tool"], event["phase"], event["counts"]).replace('"', ""))
        .collect();
    assert_eq!(told, ["null counts [{calls:1,failed:0,server:hub}]", "e begin null", "e end null"]);
    // All of them are the past of the next feed, the last three.
    let (_, past) = record.watch(At::Page, Arguments::None).unwrap().past(10, &calls);
    let tools: Vec<_> =
        written(past.kept(), &calls).iter().map(|event| event["tool"].as_str().unwrap().to_owned()).collect();
    assert_eq!(tools.len(), 3);
    assert!(tools.contains(&"e".to_owned()) && tools.contains(&"long".to_owned()), "{tools:?}");
}

#[test]
fn a_long_target_is_kept_short_and_without_secrets() {
    let (record, observer) = (Record::default(), Observer::default());
    record.open();
    observer.tell(vec![Arc::new(record.clone())]);
    let mut knows = Scrubber::default();
    knows.know("tr0ub4dor");
    let whose = Arc::new(Whose { server: "git".into(), scrubber: Arc::new(knows) });
    let (tally, passing) = (Tally::default(), Passing::default());
    let method = &Method::ResourcesRead;
    tally.begin(method, true, 0, tokio::time::Instant::now());
    let noted = || Noted { method: method.clone(), client: None, door: None, via: None };
    let call = observer.begin(method, (&tally, &passing), noted, || unreachable!("nobody looks")).unwrap();
    let target = format!("file:///tr0ub4dor/{}", "long/".repeat(10_000));
    passing.is(&whose, &target.into());
    call.finish(Some(&answered()));
    let watcher = record.watch(At::Socket, Arguments::None).unwrap();
    let calls = Wanted { parts: Some(vec![Part::Calls]), ..all() };
    let shown = written(watcher.past(1, &calls).1.kept(), &calls);
    let tool = shown[0]["tool"].as_str().unwrap();
    assert!(tool.starts_with("file:///***/long/") && tool.len() <= 1024 + 4, "{tool}");
}

#[test]
fn limit_calls_the_oldest_go_and_running_ones_stay() {
    let (record, observer) = record();
    record.limit(2, 1024);
    let long = begin(&observer, second(1), "git", "long");
    for number in 0..3 {
        begin(&observer, second(2), "git", &number.to_string()).finish(Some(&answered()));
    }
    let watcher = record.watch(At::Socket, Arguments::None).unwrap();
    let tools =
        |events: Vec<Value>| events.iter().map(|event| event["tool"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(tools(written(watcher.past(10, &all()).1.kept(), &all())), ["1", "2"]);
    assert_eq!(watcher.now().1.len(), 1, "it still runs");
    long.finish(Some(&answered()));
    assert!(watcher.now().1.is_empty());
    assert_eq!(tools(written(watcher.past(1, &all()).1.kept(), &all())), ["2"]);
}

#[test]
fn of_many_calls_in_a_second_most_are_counted() {
    let (record, observer) = record();
    let is_now = |second| *lock(&record.0.clock) = Some(second);
    is_now(second(1));
    for _ in 0..60 {
        begin(&observer, second(1), "git", "push").finish(Some(&Err(ErrorObject::new(-1, "no").into())));
    }
    let watcher = record.watch(At::Socket, Arguments::None).unwrap();
    assert_eq!(after(&watcher, 0, &all()).len(), 100);
    watcher.settle(second(1));
    assert_eq!(after(&watcher, 100, &all()), Vec::<Value>::new(), "the second is not over");
    watcher.settle(second(2));
    let counts = json!([{ "server": "git", "calls": 10, "failed": 10 }]);
    let event = json!({ "type": "call", "seq": 101, "at": 2000, "phase": "counts", "counts": counts });
    assert_eq!(after(&watcher, 100, &all()), [event]);
    is_now(second(2));
    begin(&observer, second(2), "git", "push").finish(Some(&answered()));
    assert_eq!(after(&watcher, 101, &all()).len(), 2);
    assert_eq!(watcher.past(1000, &all()).1.kept().len(), 61, "the record has all of them");
}

#[test]
fn limit_lines_the_oldest_of_a_server_go() {
    let (record, _) = record();
    // Each line of `a` costs 201 bytes.
    record.limit(10, 5 * 201);
    for number in 0..10 {
        say(&record, "a", &format!("{number}{}", " x".repeat(20)), second(1));
    }
    say(&record, "b", "one", second(2));
    let watcher = record.watch(At::Socket, Arguments::None).unwrap();
    let texts = |server: Option<&str>| {
        let wanted = Wanted { server: server.map(|server| (server.to_owned(), server.to_owned())), ..all() };
        let events = written(watcher.past(100, &wanted).1.kept(), &wanted);
        events
            .iter()
            .map(|event| event["text"].as_str().unwrap().split(' ').next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(texts(Some("a")), ["5", "6", "7", "8", "9"]);
    assert_eq!(texts(None), ["5", "6", "7", "8", "9", "one"]);
    assert!(record.kept().lines.bytes() <= 5 * 201 + 163);
    record.forget("a");
    assert_eq!(texts(None), ["one"]);
}

#[test]
fn the_lines_of_all_servers_have_a_cap() {
    let (record, _) = record();
    let long = "x".repeat(1024);
    for server in 0..80 {
        (0..250).for_each(|_| say(&record, &server.to_string(), &long, second(1)));
    }
    let bytes = record.kept().lines.bytes();
    assert!((12 << 20..=16 << 20).contains(&bytes), "{bytes}");
}

#[test]
fn a_flood_of_lines_leaves_the_feed_some_and_says_so() {
    let (record, _) = record();
    (0..150).for_each(|number| say(&record, "a", &number.to_string(), second(1)));
    say(&record, "a", "after", second(2));
    let watcher = record.watch(At::Socket, Arguments::None).unwrap();
    let events = after(&watcher, 0, &all());
    assert_eq!(events.len(), 102);
    let expected = "50 lines are left out here; `mcp-host logs` has the last ones";
    assert_eq!((&events[100]["source"], &events[100]["text"]), (&json!("host"), &json!(expected)));
    assert_eq!(events[101]["text"], "after");
    assert_eq!(watcher.past(1000, &all()).1.kept().len(), 151);
}

#[test]
fn a_line_is_shown_plain_cut_and_without_what_is_secret_by_then() {
    let (record, _) = record();
    let (learned, mut knows) = (Learned::default(), Scrubber::default());
    knows.follow(&learned);
    let (server, knows) = (Arc::<str>::from("a"), Arc::new(knows));
    for text in ["\u{1b}[31mtr0ub4dor\u{1b}[0m\u{7}\u{1b}]0;x", &"y".repeat(2000)] {
        let text = Arc::<[u8]>::from(text.as_bytes());
        let (source, level) = (Source::Log, Level::parse("warning"));
        record.line(&Said { server: Some(&server), source, level, text: &text, scrubber: Some(&knows) }, second(1));
    }
    let mut more = Scrubber::default();
    more.know("tr0ub4dor");
    learned.learn(&more);
    let events = after(&record.watch(At::Socket, Arguments::None).unwrap(), 0, &all());
    assert_eq!((&events[0]["text"], &events[0]["level"]), (&json!(r"***\u{7}\u{1b}]0;x"), &json!("warning")));
    assert_eq!(events[1]["text"], "y".repeat(1024) + "…");
}

#[test]
fn a_feed_that_resumes_loses_and_doubles_nothing() {
    let (record, observer) = record();
    let watcher = record.watch(At::Socket, Arguments::None).unwrap();
    let mut seen: Vec<u64> = Vec::new();
    for round in 0..3000 {
        *lock(&record.0.clock) = Some(second(round));
        say(&record, "a", "line", second(round));
        begin(&observer, second(round), "git", "push").finish(Some(&answered()));
        // It reads seldom, a few at a time, and each time as a feed that resumes.
        if round % 500 == 499 {
            let again = record.watch(At::Socket, Arguments::None).unwrap();
            while let Read::Events(events) = again.after(seen.last().copied().unwrap_or(0), 7, u64::MAX) {
                if events.is_empty() {
                    break;
                }
                seen.extend(events.iter().map(|event| event.seq));
            }
        }
    }
    assert_eq!(seen, (1..=9000).collect::<Vec<_>>());
    assert!(matches!(watcher.after(4903, 1, 9000), Read::Missed(4097)));
    assert!(matches!(watcher.after(4904, 1, 9000), Read::Events(events) if events[0].seq == 4905));
    assert!(matches!(watcher.after(9001, 1, 9000), Read::Missed(0)), "that was another run");
}

#[tokio::test]
async fn a_feed_is_woken_by_each_event_and_there_are_sixteen() {
    let (record, _) = record();
    let watchers: Vec<Watcher> = std::iter::from_fn(|| record.watch(At::Socket, Arguments::None)).collect();
    assert_eq!(watchers.len(), FEEDS);
    let mut changed = Box::pin(watchers[0].changed(0));
    assert!(futures_util::FutureExt::now_or_never(&mut changed).is_none());
    record.changed(&Change { server: "a", from: "connected", to: "failed", cause: Some("no") }, second(1));
    changed.await;
    let events = after(&watchers[0], 0, &all());
    let state = json!({ "type": "server", "seq": 1, "at": 1000, "server": "a", "from": "connected", "to": "failed", "cause": "no" });
    let line = json!({ "type": "line", "seq": 2, "at": 1000, "server": "a", "source": "state", "level": "error", "text": "connected -> failed: no" });
    assert_eq!(events, [state, line]);
    drop(watchers);
    assert!(record.watch(At::Socket, Arguments::None).is_some());
}

#[test]
fn a_feed_gets_the_parts_and_the_server_that_it_wants() {
    let (record, observer) = record();
    say(&record, "a", "of a", second(1));
    say(&record, "b", "of b", second(1));
    record.happened(Part::Config, r#"{"reloaded":true}"#, second(1));
    begin(&observer, second(1), "a-1", "t").finish(None);
    let kinds = |wanted: &Wanted| {
        let events = after(&record.watch(At::Socket, Arguments::None).unwrap(), 0, wanted);
        events.iter().map(|event| event["seq"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let of = |parts: Option<Vec<Part>>, server: bool| Wanted {
        parts,
        server: server.then(|| ("a".to_owned(), "a-1".to_owned())),
        arguments: Arguments::None,
    };
    assert_eq!(kinds(&all()), [1, 2, 3, 4, 5]);
    assert_eq!(kinds(&of(None, true)), [1, 3, 4, 5]);
    assert_eq!(kinds(&of(Some(vec![Part::Lines]), true)), [1]);
    assert_eq!(kinds(&of(Some(vec![Part::Calls, Part::Config]), false)), [3, 4, 5]);
}

#[test]
fn arguments_and_results_are_told_to_those_who_ask_and_kept_no_longer() {
    let (record, observer) = record();
    let push = || begin(&observer, second(7), "git", "push").finish(Some(&answered()));
    let of = |arguments: Arguments| Wanted { arguments, ..all() };
    push();
    let asking = record.watch(At::Socket, Arguments::Masked).unwrap();
    push();
    let told = |wanted: &Wanted| {
        let events = after(&asking, 2, wanted);
        (events[0]["args"].clone(), events[1]["args"].clone(), events[1]["result"].clone())
    };
    let value = json!({ "key": "***" });
    assert_eq!(told(&of(Arguments::Masked)), (value.clone(), value, json!({ "content": "canary-7731" })));
    assert_eq!(told(&of(Arguments::Shape)).2, json!({ "content": "string 11" }));
    assert_eq!(told(&of(Arguments::Shape)).0, json!({ "key": "string 11" }));
    assert_eq!(told(&all()), Default::default());
    let before = after(&asking, 0, &of(Arguments::Masked));
    assert_eq!((&before[0]["args"], &before[1]["result"]), (&Value::Null, &Value::Null), "nobody asked then");
    drop(asking);
    let late = record.watch(At::Socket, Arguments::None).unwrap();
    let kept = after(&late, 0, &of(Arguments::Masked));
    assert!(kept.iter().all(|event| event.get("args").is_none() && event.get("result").is_none()), "{kept:?}");
    push();
    assert_eq!(after(&late, 4, &of(Arguments::Masked))[1].get("args"), None);
}

#[test]
fn progress_is_told_seldom_and_without_secrets() {
    let (record, observer) = record();
    let subject = Arc::<Subject>::default();
    let mut knows = Scrubber::default();
    knows.know("tr0ub4dor");
    subject.is(&"git".into(), &"push".into(), &Arc::new(knows));
    let method = &Method::ToolsCall;
    let tally: &Tally = Box::leak(Box::default());
    tally.begin(method, true, 0, tokio::time::Instant::now());
    let passing = Passing::default();
    let noted = || unreachable!("somebody looks");
    let (at, params) = (
        second(7),
        Raw::from_value(&json!({
            "_meta": { "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" }
        })),
    );
    let heard = subject.clone();
    let begun = || Begun {
        principal: "p",
        client: None,
        door: None,
        at,
        method,
        params: Some(&params),
        subject: heard,
        via: None,
        parent: None,
        revision: None,
        id: None,
        #[cfg(feature = "otel")]
        origin: None,
    };
    let call = observer.begin(method, (tally, &passing), noted, begun).unwrap();
    let step = |params: Value| subject.progress(&Raw::from_value(&params));
    step(json!({ "progress": 1 }));
    let watcher = record.watch(At::Socket, Arguments::None).unwrap();
    step(json!({ "progress": "much" }));
    assert_eq!(after(&watcher, 1, &all()), Vec::<Value>::new(), "nobody looked, then it was none");
    let inner = record.kept().calls.running().remove(0);
    let params = Raw::from_value(&json!({ "progress": 2.5, "total": 4, "message": "\u{1b}[1mof tr0ub4dor" }));
    let told = |now: u64| inner.progress(&params, now).map(|progress| serde_json::to_value(&progress).unwrap());
    let far = unix_ms(SystemTime::now()) + 1000;
    assert_eq!(told(far), Some(json!({ "progress": 2.5, "total": 4, "message": "of ***" })));
    assert_eq!((told(far + 249), told(far + 250).is_some()), (None, true));
    record
        .kept()
        .events
        .push(8000, What::Progress(inner.clone(), Arc::new(inner.progress(&params, far + 600).unwrap())));
    call.finish(Some(&answered()));
    let events = after(&watcher, 1, &all());
    assert_eq!(
        (&events[0]["phase"], &events[0]["total"], &events[1]["phase"]),
        (&json!("progress"), &json!(4), &json!("end"))
    );
    assert_eq!(events[1]["trace"], "0af7651916cd43dd8448eb211c80319c");
}

#[cfg(feature = "server")]
#[test]
fn changes_of_a_state_are_kept_for_each_server() {
    let (record, _) = record();
    for number in 0..70 {
        record.changed(&Change { server: "a", from: "idle", to: "connecting", cause: None }, second(number));
    }
    let shown = serde_json::to_value(record.lately("a").0).unwrap();
    assert_eq!((shown.as_array().unwrap().len(), &shown[0]["at"]), (64, &json!(6000)));
    record.forget("a");
    assert!(record.lately("a").0.is_empty());
}
