//! What `top` draws and what its keys do, on a screen in memory.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};

use super::keys::Deed;
use super::state::{App, Pane};
use super::view;
use crate::commands::feed::Event;

fn key(app: &mut App, code: KeyCode) -> Option<Deed> {
    app.key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn letters(app: &mut App, text: &str) {
    text.chars().for_each(|letter| drop(key(app, KeyCode::Char(letter))));
}

fn take(app: &mut App, event: &Value) {
    let raw = event.to_string();
    app.take(Event::read(&raw), &raw);
}

/// Two servers, one of which has failed; a call, and a line.
fn app() -> App {
    let mut app = App::new(false);
    take(&mut app, &json!({ "type": "hello", "seq": 0, "at": 0, "v": 1, "url": "http://127.0.0.1:8808/mcp" }));
    let files = json!({
        "name": "files", "state": "connected", "rate": 12.5, "p50": 4.2, "p95": 31.0, "callsRunning": 2,
        "callsQueued": 1, "errors": [0, 0, 3], "leases": 1, "tokens": 2140, "rss": 44_040_192, "cpu": 3.4, "calls": 7,
        "target": "npx -y files", "timeline": [{ "at": 1000, "from": "initializing", "to": "connected" }],
    });
    let search = json!({
        "name": "search\u{1b}[2J", "state": "failed", "leases": 0, "calls": 0,
        "lastError": "no such command: uvx", "target": "uvx search", "timeline": [],
    });
    take(&mut app, &json!({ "type": "snapshot", "seq": 0, "at": 0, "servers": [files, search] }));
    app.tick();
    take(&mut app, &json!({ "type": "servers", "seq": 1, "at": 1, "changed": [{ "name": "files", "calls": 9 }] }));
    app.tick();
    take(
        &mut app,
        &json!({
            "type": "call", "seq": 2, "at": 3_600_000, "id": 1, "phase": "end", "server": "files", "tool": "read_file",
            "method": "tools/call", "client": "an agent", "bytesIn": 1, "outcome": "tool_error", "ms": 8.25, "bytesOut": 9,
        }),
    );
    take(
        &mut app,
        &json!({
            "type": "line", "seq": 3, "at": 3_600_000, "server": "files", "source": "stderr", "level": "warning",
            "text": "slow \u{202e}disk",
        }),
    );
    app
}

fn shown(app: &mut App, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view::draw(frame, app)).unwrap();
    let lines: Vec<String> =
        terminal.backend().to_string().lines().map(|line| line.trim_matches('"').trim_end().to_owned()).collect();
    lines.join("\n").trim_end().to_owned()
}

#[test]
fn the_smallest_screen_has_what_matters() {
    insta::assert_snapshot!(shown(&mut app(), 60, 16), @r"
    127.0.0.1:8808/mcp  12.5/s  2 servers: 1 connected, 1 failed
    Servers by state
      STATE        NAME          RATE    P50/P95 ms   RUN/Q  ERR
    ✗ failed       search\u{1b…   0.0           -/-     0/0    0
    ✓ connected    files         12.5        4.2/31     2/1    3










    Enter one  / filter  s sort  c l t  r restart  p pause  ? q
    ");
}

#[test]
fn a_wider_screen_has_what_servers_cost() {
    insta::assert_snapshot!(shown(&mut app(), 100, 16), @r"
    127.0.0.1:8808/mcp  12.5/s  2 servers: 1 connected, 1 failed
    Servers by state
      STATE        NAME                     RATE    P50/P95 ms   RUN/Q  ERR LEASE  TOKENS      RSS   CPU
    ✗ failed       search\u{1b}[2J           0.0           -/-     0/0    0     0       -        -     -
    ✓ connected    files                    12.5        4.2/31     2/1    3     1    2.1k   42 MiB    3%










    Enter one  / filter  s sort  c l t  r restart  p pause  ? q
    ");
}

#[test]
fn the_widest_screen_has_a_curve() {
    insta::assert_snapshot!(shown(&mut app(), 160, 16), @r"
    127.0.0.1:8808/mcp  12.5/s  2 servers: 1 connected, 1 failed
    Servers by state
      STATE        NAME                   RATE    P50/P95 ms   RUN/Q  ERR LEASE  TOKENS      RSS   CPU  60 s
    ✗ failed       search\u{1b}[2J         0.0           -/-     0/0    0     0       -        -     -
    ✓ connected    files                  12.5        4.2/31     2/1    3     1    2.1k   42 MiB    3%                                                             █










    Enter one  / filter  s sort  c l t  r restart  p pause  ? q
    ");
}

#[test]
fn a_screen_that_is_too_small_says_so() {
    assert_eq!(shown(&mut app(), 59, 20), "top needs 60 columns and 16 rows");
    assert_eq!(shown(&mut app(), 80, 15), "top needs 60 columns and 16 rows");
}

#[test]
fn enter_opens_one_server_and_tab_goes_through_its_parts() {
    let mut app = app();
    key(&mut app, KeyCode::Enter);
    assert!(shown(&mut app, 80, 16).contains("Changes of search\\u{1b}[2J, failed: no such command: uvx"));
    key(&mut app, KeyCode::Esc);
    letters(&mut app, "j");
    key(&mut app, KeyCode::Enter);
    let mut parts = String::new();
    for _ in 0..4 {
        parts += &shown(&mut app, 80, 16);
        parts += "\n---\n";
        key(&mut app, KeyCode::Tab);
    }
    assert_eq!(app.pane, Pane::Timeline, "it begins anew");
    // The times are of another day, and shown as ages.
    let aged = |line: &str| match line.char_indices().nth(14) {
        Some((end, _)) if line[..end].contains(" d ") => format!("AGE           {}", &line[end..]),
        _ => line.to_owned(),
    };
    let parts: Vec<String> = parts.lines().map(aged).collect();
    insta::assert_snapshot!(parts.join("\n"), @r"
    127.0.0.1:8808/mcp  12.5/s  2 servers: 1 connected, 1 failed
    Changes of files, connected: npx -y files
    TIME           FROM              TO              CAUSE
    AGE            initializing ->   ✓ connected











    Tab next  Esc back  / filter  r restart  p pause  ? q
    ---
    127.0.0.1:8808/mcp  12.5/s  2 servers: 1 connected, 1 failed
    Tools by use of files, connected: npx -y files
    TOOL                                                   CALLS  FAILED     MEAN ms
    read_file                                                  1       1         8.2











    Tab next  Esc back  / filter  r restart  p pause  ? q
    ---
    127.0.0.1:8808/mcp  12.5/s  2 servers: 1 connected, 1 failed
    Calls of files, connected: npx -y files
    TIME           SERVER        CALL                         TOOK  OUTCOME
    AGE            files         read_file                  8.2 ms  tool_error











    Tab next  Esc back  / filter  r restart  p pause  ? q
    ---
    127.0.0.1:8808/mcp  12.5/s  2 servers: 1 connected, 1 failed
    Lines of files, connected: npx -y files
    TIME           SERVER        FROM    TEXT
    AGE            files         stderr  slow \u{202e}disk











    Tab next  Esc back  / filter  r restart  p pause  ? q
    ---
    ");
}

#[test]
fn a_filter_and_an_order_are_typed() {
    let mut app = app();
    let names = |app: &App| app.servers().iter().map(|(name, _)| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(names(&app), ["search\u{1b}[2J", "files"], "what needs a person comes first");
    letters(&mut app, "s");
    assert_eq!(names(&app), ["files", "search\u{1b}[2J"]);
    letters(&mut app, "ss");
    assert_eq!((app.sort.word(), names(&app)[0].as_str()), ("p95", "files"));
    letters(&mut app, "/FIL");
    assert_eq!(key(&mut app, KeyCode::Char('q')), None, "it is typed");
    key(&mut app, KeyCode::Backspace);
    key(&mut app, KeyCode::Enter);
    assert_eq!(names(&app), ["files"]);
    key(&mut app, KeyCode::Esc);
    assert_eq!(names(&app).len(), 2);
    letters(&mut app, "/nothing");
    assert!(shown(&mut app, 60, 16).contains("the filter lets nothing pass"));
}

#[test]
fn a_restart_is_asked_for_first() {
    let mut app = app();
    letters(&mut app, "jr");
    assert!(shown(&mut app, 60, 16).ends_with("restart files? y or n"));
    assert_eq!(key(&mut app, KeyCode::Char('n')), None);
    assert!(!shown(&mut app, 60, 16).contains("restart files?"));
    letters(&mut app, "r");
    assert_eq!(key(&mut app, KeyCode::Char('y')), Some(Deed::Restart("files".to_owned())));
    assert_eq!(key(&mut app, KeyCode::Char('o')), Some(Deed::Open));
    assert_eq!(key(&mut app, KeyCode::Char('q')), Some(Deed::Quit));
    let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    letters(&mut app, "/");
    assert_eq!(app.key(control), Some(Deed::Quit), "also while somebody types");
}

#[test]
fn only_what_is_on_the_screen_is_drawn_anew() {
    let mut app = app();
    let call = json!({ "type": "call", "seq": 4, "at": 4, "id": 2, "phase": "end", "server": "files", "tool": "a", "ms": 1.0 });
    let begun = json!({ "type": "call", "seq": 4, "at": 4, "id": 3, "phase": "begin", "server": "files", "tool": "a" });
    let line = json!({ "type": "line", "seq": 5, "at": 5, "server": "files", "source": "stderr", "level": "info", "text": "x" });
    let servers = json!({ "type": "servers", "seq": 5, "at": 6, "changed": [{ "name": "files", "rate": 2.0 }] });
    let events = [call, begun, line, servers, json!({ "type": "beat", "seq": 5, "at": 7 })];
    let mut drawn = |keys: &str| {
        letters(&mut app, keys);
        events.each_ref().map(|event| {
            app.is_new = false;
            take(&mut app, event);
            app.is_new
        })
    };
    assert_eq!(drawn(""), [false, false, false, true, false], "servers");
    assert_eq!(drawn("c"), [true, false, false, true, false], "calls");
    assert_eq!(drawn("t"), [true, false, false, true, false], "tools");
    assert_eq!(drawn("l"), [false, false, true, true, false], "lines");
    assert_eq!(drawn("p"), [false; 5], "nothing while it is paused");
}

#[test]
fn calls_that_are_only_counted_are_told() {
    let mut app = app();
    let counts =
        json!([{ "server": "files", "calls": 900, "failed": 1 }, { "server": "search", "calls": 50, "failed": 0 }]);
    take(&mut app, &json!({ "type": "call", "seq": 4, "at": 4, "phase": "counts", "counts": counts }));
    assert!(!shown(&mut app, 60, 16).contains("950"), "servers have their rates");
    for (key, pane) in
        [("c", "Calls  950 more are counted, not told\n"), ("t", "Tools by use  950 more are counted, not told\n")]
    {
        letters(&mut app, key);
        assert!(shown(&mut app, 60, 16).contains(pane), "{}", shown(&mut app, 60, 16));
    }
}

#[test]
fn of_many_calls_those_on_the_screen_are_drawn() {
    let mut app = app();
    for id in 0..100 {
        let tool = format!("tool-{id:02}");
        take(
            &mut app,
            &json!({ "type": "call", "seq": 4, "at": 4, "id": id, "phase": "end", "tool": tool, "ms": 1.0 }),
        );
    }
    letters(&mut app, "c");
    let first = shown(&mut app, 60, 16);
    assert!(first.contains("tool-99") && first.contains("tool-88") && !first.contains("tool-87"), "{first}");
    key(&mut app, KeyCode::End);
    let last = shown(&mut app, 60, 16);
    assert!(last.contains("read_file") && last.contains("tool-10") && !last.contains("tool-11"), "{last}");
    assert_eq!(app.rows, (101, 12));
    letters(&mut app, "/tool-5");
    let filtered = shown(&mut app, 60, 16);
    assert!(
        filtered.contains("tool-59") && filtered.contains("tool-50") && !filtered.contains("tool-49"),
        "{filtered}"
    );
    assert_eq!(app.rows, (10, 12));
}

#[test]
fn a_pause_holds_what_is_shown() {
    let mut app = app();
    letters(&mut app, "p");
    let before = shown(&mut app, 60, 16);
    assert!(before.contains("paused"));
    take(&mut app, &json!({ "type": "servers", "seq": 4, "at": 4, "changed": [], "gone": ["files"] }));
    assert_eq!(shown(&mut app, 60, 16), before);
    letters(&mut app, "p");
    assert!(shown(&mut app, 60, 16).contains("1 server: 1 failed"));
}

#[test]
fn the_cursor_follows_its_server_and_stays_on_the_screen() {
    let mut app = App::new(true);
    let servers: Vec<Value> =
        (0..40).map(|number| json!({ "name": format!("s{number:02}"), "state": "connected" })).collect();
    take(&mut app, &json!({ "type": "snapshot", "seq": 0, "at": 0, "servers": servers }));
    key(&mut app, KeyCode::End);
    let last = shown(&mut app, 60, 16);
    assert!(last.contains("s39") && !last.contains("s00"), "{last}");
    take(&mut app, &json!({ "type": "servers", "seq": 1, "at": 1, "changed": [{ "name": "s39", "state": "failed" }] }));
    assert!(shown(&mut app, 60, 16).contains("failed"), "it is the first one now");
    key(&mut app, KeyCode::Home);
    assert_eq!(app.subject().as_deref(), Some("s39"));
    key(&mut app, KeyCode::PageDown);
    assert_eq!(app.subject().as_deref(), Some("s11"));
    letters(&mut app, "?");
    assert!(shown(&mut app, 60, 16).contains("restart the server; asks first"));
}
