//! A kept file is no authority: whatever it contains counts like a server's own response, or not at all.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mcp_host::config::{self, Syntax, Vars};
use mcp_host::protocol::ProtocolVersion;
use mcp_host::registry::Kind;
use mcp_host::{Host, StateName};
use serde_json::{Value, json};

use super::{ACT, Home, kept};
use crate::reload::until;

/// What clients are shown, byte for byte, and the problems reported.
#[derive(Debug, PartialEq)]
struct Shown {
    lists: Vec<String>,
    tools: usize,
    problems: Vec<String>,
}

impl Shown {
    fn by(host: &Host, catalog: &mcp_host::Catalog) -> Self {
        let page = |kind| catalog.page(kind, None, ProtocolVersion::LATEST_HANDSHAKE).unwrap().to_string();
        let lists = [Kind::Tools, Kind::Prompts, Kind::ResourceTemplates].map(page).to_vec();
        Self { lists, tools: catalog.tools().len(), problems: host.status()[0].problems.clone() }
    }
}

/// Starts a host over this server, and over one of the alias `other`, which lists nothing.
async fn host(home: &Home, state: &Path, startup_wait: &str) -> Host {
    host_within(home, state, startup_wait, &json!({ "tools": 20 })).await
}

async fn host_within(home: &Home, state: &Path, startup_wait: &str, limits: &Value) -> Host {
    let mut entry = home.entry();
    entry["start"] = json!("lazy");
    let text = json!({
        "host": { "startupWait": startup_wait, "limits": limits },
        "mcpServers": { "it": entry, "other": { "command": "sh", "args": ["-c", "exit 3"], "start": "lazy", "restart": { "maxRetries": 0 } } },
    });
    let config = config::parse_str(&text.to_string(), Syntax::Json, "mcp.json", &Vars::from_process()).unwrap();
    Host::builder().config(config).state_directory(state).start().await.unwrap()
}

/// Returns a state directory with the server's listing, and its text.
async fn once(home: &Home) -> (PathBuf, String) {
    let state = home.path().join("state");
    let host = host(home, &state, "10s").await;
    host.catalog_ready().await;
    let file = until(&host, |_| kept(&state).pop()).await;
    host.shutdown().await;
    let text = fs::read_to_string(&file).unwrap();
    (file, text)
}

/// Returns what is shown of a file with this text, while the server itself is silent.
async fn shown(home: &Home, file: &Path, text: &[u8]) -> Shown {
    shown_within(home, file, text, "60ms").await
}

async fn shown_within(home: &Home, file: &Path, text: &[u8], startup_wait: &str) -> Shown {
    fs::write(file, text).unwrap();
    let host = host(home, &home.path().join("state"), startup_wait).await;
    let shown = Shown::by(&host, &*host.catalog_ready().await);
    host.kill();
    host.shutdown().await;
    shown
}

#[tokio::test]
async fn a_file_that_is_cut_costs_a_wait_and_nothing_else() {
    let home = Home::new(ACT);
    let (file, text) = once(&home).await;
    home.put("hang", "");
    let text = text.as_bytes();
    assert_eq!(shown_within(&home, &file, text, "20s").await.tools, 1);
    // Every byte is tested in `manager/kept/listing.rs`.
    for length in (0..text.len()).rev().step_by(9) {
        assert_eq!(shown(&home, &file, &text[..length]).await.tools, 0, "{length}");
    }
    // And once the server answers it is kept again, whatever is there.
    fs::remove_file(home.path().join("hang")).unwrap();
    let (again, new) = once(&home).await;
    assert_eq!((again, new.as_bytes()), (file, text));
}

#[tokio::test]
async fn h41_h88_a_poisoned_file_is_shown_as_if_the_server_had_answered_so() {
    let deep = format!("{}{{}}{}", r#"{"items":"#.repeat(100), "}".repeat(100));
    let wide: Vec<String> = (0..300).map(|number| format!(r##""p{number}":{{"$ref":"#/$defs/a"}}"##)).collect();
    let poison = [
        ACT.to_owned(),
        // Control and invisible characters, also in a name.
        r#"{"name":"b\u001b[2J\u202e","description":"\u001b]52;c;AAAA\u0007 hidden\u200b\udb40\udc41","inputSchema":{}}"#.to_owned(),
        // Another server's name, and a duplicate.
        r#"{"name":"other__act","inputSchema":{}}"#.to_owned(),
        r#"{"name":"act","description":"twin","inputSchema":{}}"#.to_owned(),
        // Invalid names, and invalid definitions.
        format!(r#"{{"name":"{}","inputSchema":{{}}}}"#, "n".repeat(5000)),
        r#"{"name":"","inputSchema":{}}"#.to_owned(),
        r#"{"name":7}"#.to_owned(),
        "7".to_owned(),
        r#"{"name":"c","inputSchema":[],"annotations":7,"_meta":null}"#.to_owned(),
        r#"{"name":"d","title":null,"inputSchema":{"type":"array","properties":7,"required":"x"}}"#.to_owned(),
        // Costly schemas: deep, large, and endlessly self-referential.
        format!(r#"{{"name":"e","inputSchema":{deep}}}"#),
        format!(r#"{{"name":"f","inputSchema":{{"description":"{}"}}}}"#, "x".repeat(300 << 10)),
        format!(
            r##"{{"name":"g","inputSchema":{{"$defs":{{"a":{{"$ref":"#/$defs/a"}}}},"properties":{{{}}}}}}}"##,
            wide.join(",")
        ),
        r#"{"name":"h","inputSchema":{"pattern":"(a+)+$","maxLength":1e400,"minimum":-0.0,"type":"object"}}"#.to_owned(),
        // It claims that it came through many hosts.
        r#"{"name":"i","_meta":{"mcp-host/path":["1","2","3","4","5","6","7","8","9"]}}"#.to_owned(),
    ];
    let many = (0..30).map(|number| format!(r#"{{"name":"many{number}"}}"#));
    let poison = poison.into_iter().chain(many).collect::<Vec<_>>().join(",");

    let home = Home::new(ACT);
    let (file, text) = once(&home).await;
    let told = {
        // How the server itself fares with it.
        let server = Home::new(&poison);
        let host = host(&server, &server.path().join("state"), "10s").await;
        let told = Shown::by(&host, &*host.catalog_ready().await);
        assert_eq!(host.status()[0].state, StateName::Connected, "{:?}", host.status()[0].last_error);
        host.shutdown().await;
        told
    };
    assert_eq!(told.tools, 20, "the cap holds: {:?}", told.problems);
    assert!(!told.lists[0].contains("\\u001b") && !told.lists[0].contains('\u{202e}'), "{}", told.lists[0]);
    home.put("hang", "");
    let of_file = text.replace(ACT, &poison);
    assert!(of_file.len() > poison.len());
    let kept = shown_within(&home, &file, of_file.as_bytes(), "10s").await;
    assert_eq!((kept.tools, &kept.problems), (told.tools, &told.problems));
    assert!(kept == told, "byte for byte");
}

#[tokio::test]
async fn a_file_that_is_none_of_ours_is_not_shown() {
    let home = Home::new(ACT);
    let (file, text) = once(&home).await;
    home.put("hang", "");
    let more = format!(r#"{},"tools":["#, r#""x":"y""#);
    for (wrong, text) in [
        ("of another version", text.replace(r#""version":1"#, r#""version":2"#)),
        ("without a version", text.replace(r#""version":1"#, r#""other":1"#)),
        ("of an unknown revision", text.replace("2025-11-25", "2031-01-01")),
        ("of another key", text.replace(r#""key":"rest""#, r#""key":"\"local\" {}""#)),
        ("of more than one page", text.replace(r#""tools":["#, r#""nextCursor":"n","tools":["#)),
        ("with a list that is none", text.replace(r#""tools":["#, r#""prompts":7,"tools":["#)),
        ("larger than a server may list", text.replace(r#""tools":["#, &more.replace('y', &"y".repeat(9 << 20)))),
        // A response like that costs a server its connection.
        (
            "deeper than a message may be",
            text.replace(r#"{"type":"object"}"#, &format!("{}{{}}{}", r#"{"a":"#.repeat(2000), "}".repeat(2000))),
        ),
        ("no JSON", "[".repeat(100_000)),
        ("no object", "[1]".to_owned()),
        ("no text", String::from_utf8_lossy(&[0xff, 0, 0xfe]).into_owned()),
    ] {
        assert_eq!(shown(&home, &file, text.as_bytes()).await.tools, 0, "{wrong}");
    }
    // Bytes that are not text, a folder, and a file that never ends.
    assert_eq!(shown(&home, &file, &[0xff; 4096]).await.tools, 0);
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let host = host(&home, &home.path().join("state"), "60ms").await;
    assert_eq!(host.catalog_ready().await.tools().len(), 0);
    host.kill();
    host.shutdown().await;
    fs::remove_dir(&file).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
    let begun = std::time::Instant::now();
    let host = self::host(&home, &home.path().join("state"), "60ms").await;
    assert_eq!(host.catalog_ready().await.tools().len(), 0);
    assert!(begun.elapsed() < Duration::from_secs(10));
    host.kill();
    host.shutdown().await;
}

#[tokio::test]
async fn a_state_directory_that_takes_no_files_costs_a_wait_and_nothing_else() {
    let home = Home::new(ACT);
    let state = home.path().join("state");
    fs::create_dir(&state).unwrap();
    fs::write(state.join("offers"), "a file").unwrap();
    for _ in 0..2 {
        let host = host(&home, &state, "10s").await;
        assert_eq!(host.catalog_ready().await.tools().len(), 1);
        host.shutdown().await;
    }
    assert_eq!(fs::read_to_string(state.join("offers")).unwrap(), "a file");
}

#[tokio::test]
async fn limit_offers_bounds_what_is_kept_for_the_next_start() {
    for (room, count) in [("1B", 0), ("1MiB", 1)] {
        let home = Home::new(ACT);
        let state = home.path().join("state");
        let host = host_within(&home, &state, "10s", &json!({ "offers": room })).await;
        assert_eq!(host.catalog_ready().await.tools().len(), 1);
        // What was listed is written before the host ends.
        host.shutdown().await;
        assert_eq!(kept(&state).len(), count, "{room}");
    }
}
