//! Helper programs that supply headers: when they run, what they may supply, how they end, and what is reported if they
//! supply nothing.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mcp_host::config::{Config, Problem, Syntax, Vars, parse_str};
use mcp_host::{Host, StateName};
use serde_json::{Value, json};

use super::site::{Asked, Site, Told};
use super::world::{self, PATIENCE, becomes, call, state};

/// Decides by the headers of a request whether a server accepts it.
type Takes = Box<dyn Fn(&Asked) -> bool + Send + Sync>;

/// A server with a session that accepts certain headers only, and may forget its session once.
async fn server(takes: Takes, forgets: Arc<AtomicBool>) -> Site {
    Site::start(|_| {
        move |asked: &Asked| match asked.method.as_str() {
            _ if !takes(asked) => Told::Answer(401, Vec::new(), String::new()),
            "POST" if asked.body.contains("tools/call") && forgets.swap(false, Ordering::SeqCst) => {
                Told::Answer(404, Vec::new(), String::new())
            }
            "POST" => match world::mcp(asked) {
                Told::Answer(status, mut headers, body) => {
                    if asked.body.contains("\"initialize\"") {
                        headers.push(("mcp-session-id", "s".to_owned()));
                    }
                    Told::Answer(status, headers, body)
                }
                other => other,
            },
            "GET" => Told::Answer(405, Vec::new(), String::new()),
            _ => Told::Answer(200, Vec::new(), String::new()),
        }
    })
    .await
}

/// The entry of a server at this site, which is tried once.
fn entry(url: &str, helper: &Value) -> Value {
    json!({ "type": "http", "url": format!("{url}/mcp"), "era": "legacy", "restart": { "maxRetries": 0 },
            "headersHelper": helper })
}

fn config(servers: &Value, vars: &[(&str, &str)]) -> Config {
    let text = json!({ "mcpServers": servers }).to_string();
    let vars = Vars::from_iter(vars.iter().copied());
    parse_str(&text, Syntax::Json, "mcp.json", &vars).unwrap()
}

async fn host(config: Config) -> Host {
    let host = Host::builder().config(config).start().await.unwrap();
    host.settled().await;
    host
}

/// A script that counts its runs in `runs`, and prints the text with that number.
fn script(home: &Path, text: &str) -> String {
    let (file, runs) = (home.join("give.sh"), home.join("runs"));
    let count = format!("echo >> {0}; n=$(wc -l < {0}); n=$((n))", runs.display());
    std::fs::write(&file, format!("{count}\n{text}\n")).unwrap();
    file.to_str().unwrap().to_owned()
}

fn runs(home: &Path) -> usize {
    std::fs::read_to_string(home.join("runs")).unwrap_or_default().lines().count()
}

fn cause(host: &Host, name: &str) -> (StateName, String) {
    let status = host.status().into_iter().find(|status| status.name == name).unwrap();
    (status.state, status.last_error.unwrap_or_default())
}

#[tokio::test]
async fn h17_a_program_gives_headers_anew_for_each_connection() {
    let home = tempfile::tempdir().unwrap();
    let file = script(
        home.path(),
        r#"cat > /dev/null
printf '{"Authorization": "Bearer given-%s", "X-Name": "%s %s", "X-Url": "%s %s", "X-Words": "%s|%s|%s", "X-Ours": "%s"}' \
  "$n" "$MCP_HOST_SERVER_NAME" "$CLAUDE_CODE_MCP_SERVER_NAME" "$MCP_HOST_SERVER_URL" "$CLAUDE_CODE_MCP_SERVER_URL" \
  "$1" "$2" "$#" "${CARGO_MANIFEST_DIR-none}""#,
    );
    let forgets = Arc::new(AtomicBool::new(false));
    let site = server(Box::new(|_| true), forgets.clone()).await;
    let mut entry = entry(&site.url, &json!(format!("sh {file} ${{WORDS}} 'c  d'")));
    entry["headers"] = json!({ "authorization": "Bearer of-the-config", "X-Team": "core" });
    let host = host(config(&json!({ "a": entry }), &[("WORDS", "a b; $(c)")])).await;
    call(&host).await.unwrap();
    assert_eq!((state(&host), runs(home.path())), (StateName::Connected, 1));
    let url = format!("{}/mcp", site.url);
    let last = site.asked().pop().unwrap();
    for (name, value) in [
        ("authorization", "Bearer given-1"),
        ("x-team", "core"),
        ("x-name", "a a"),
        ("x-url", &format!("{url} {url}")),
        ("x-words", "a b; $(c)|c  d|2"),
        ("x-ours", "none"),
    ] {
        assert_eq!(last.headers.get(name).map(String::as_str), Some(value), "{last:?}");
    }
    // The server forgets its session, which takes another connection, and headers for it.
    forgets.store(true, Ordering::SeqCst);
    call(&host).await.unwrap();
    assert_eq!(runs(home.path()), 2);
    host.shutdown().await;
    let asked = site.asked();
    assert!(asked.iter().all(|asked| asked.token().is_some_and(|token| token.starts_with("given-"))), "{asked:?}");
    assert_eq!(asked.last().unwrap().token(), Some("given-2"));
}

#[tokio::test]
async fn h74_what_is_refused_is_asked_for_once_more() {
    let home = tempfile::tempdir().unwrap();
    let file = script(home.path(), r#"printf '{"Authorization": "Bearer given-%s"}' "$n""#);
    let good = Arc::new(AtomicUsize::new(2));
    let taken = good.clone();
    let takes = move |asked: &Asked| asked.token() == Some(&format!("given-{}", taken.load(Ordering::SeqCst)));
    let site = server(Box::new(takes), Arc::default()).await;
    let host = host(config(&json!({ "a": entry(&site.url, &json!(["sh", file])) }), &[])).await;
    // The first was refused, and its replacement is valid.
    assert_eq!((state(&host), runs(home.path())), (StateName::Connected, 2));
    call(&host).await.unwrap();
    // It is no longer valid: one run for all calls that notice.
    good.store(3, Ordering::SeqCst);
    let calls = futures_util::future::join_all((0..8).map(|_| call(&host))).await;
    assert!(calls.iter().all(Result::is_ok), "{calls:?}");
    assert_eq!((state(&host), runs(home.path())), (StateName::Connected, 3));
    // Nothing is valid any more: one more run, and then a user is needed.
    good.store(0, Ordering::SeqCst);
    let refused = call(&host).await.unwrap_err();
    assert_eq!(refused.kind(), mcp_host::ErrorKind::Unauthorized, "{refused}");
    // The lease notices a moment after the call.
    becomes(&host, StateName::Unauthorized).await;
    let (_, cause) = cause(&host, "a");
    assert!(cause.contains("wants other credentials than headersHelper `sh` gives"), "{cause}");
    for _ in 0..3 {
        call(&host).await.unwrap_err();
    }
    assert_eq!(runs(home.path()), 4);
}

#[tokio::test]
async fn h14_a_program_that_does_not_end_goes_with_its_group() {
    let home = tempfile::tempdir().unwrap();
    let pids = home.path().join("pids");
    let text = format!("trap '' TERM; sleep 600 & echo \"$$ $!\" > {0}.new; mv {0}.new {0}; wait", pids.display());
    let file = script(home.path(), &text);
    let site = server(Box::new(|_| true), Arc::default()).await;
    let config = config(&json!({ "a": entry(&site.url, &json!(["sh", file])) }), &[]);
    let host = Host::builder().config(config).start().await.unwrap();
    let started = async {
        loop {
            if let Ok(text) = std::fs::read_to_string(&pids) {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let started = tokio::time::timeout(PATIENCE, started).await.unwrap();
    host.shutdown().await;
    for pid in started.split_whitespace() {
        let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
        let gone = async {
            // A killed process exists until it is reaped.
            while rustix::process::test_kill_process(pid).is_ok() && !is_zombie(pid) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, gone).await.unwrap_or_else(|_| panic!("{pid:?} lives"));
    }
    assert_eq!(site.asked().len(), 0, "nothing was asked without headers");
}

fn is_zombie(pid: rustix::process::Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'))
}

#[tokio::test]
async fn h97_what_is_no_headers_is_told_without_a_value() {
    let cases = [
        ("true", "it must print one JSON object of header names and values (exit code 0)"),
        ("echo leaked-canary", "must print one JSON object"),
        (r#"echo '["leaked-canary"]'"#, "must print one JSON object"),
        (r#"echo '{"X-A": 1}'"#, "must print one JSON object"),
        (r#"echo '{"X-A": "leaked-canary"} more'"#, "must print one JSON object"),
        (r#"printf '%s' '{"X-A": "leaked-canary\r\nX-B: y"}'"#, "printed for `x-a` is not legal in a header"),
        (r#"echo '{"leaked canary": "leaked-canary"}'"#, "a name that is not legal for a header"),
        (r#"echo '{"Host": "leaked-canary"}'"#, "`host`, which is set here for each request"),
        (r#"echo '{"Content-Length": "0"}'"#, "`content-length`, which is set here"),
        (r#"echo '{"Mcp-Session-Id": "leaked-canary"}'"#, "`mcp-session-id`, which is set here"),
        (r#"echo '{"Mcp-Param-X": "leaked-canary"}'"#, "`mcp-param-x`, which is set here"),
        (r#"echo '{"X-A": "leaked-canary", "x-a": "leaked-canary"}'"#, "it printed `x-a` twice"),
        (r#"echo '{"X-A": "leaked-canary", "X-A": "leaked-canary"}'"#, "it printed `x-a` twice"),
        ("yes leaked-canary", "it printed more than 64 KiB (killed)"),
        (r#"printf '{"X-A": "'; head -c 65536 /dev/zero | tr '\0' a; printf '"}'"#, "it printed more than 64 KiB"),
        (
            r#"echo '{"X-A": "leaked-canary"}'; echo first >&2; echo "no vault for leaked-canary" >&2; exit 3"#,
            "gave no headers: it failed (exit code 3): no vault for ***",
        ),
        ("kill -9 $$", "it failed (signal 9)"),
    ];
    let site = server(Box::new(|_| true), Arc::default()).await;
    let mut servers: Value = json!({ "nobody": entry(&site.url, &json!(["/nowhere/leaked", "x"])) });
    for (number, (script, _)) in cases.iter().enumerate() {
        servers[format!("s{number}")] = entry(&site.url, &json!(["sh", "-c", script]));
    }
    let said: Arc<Mutex<Vec<String>>> = Arc::default();
    let host = host(config(&servers, &[])).await;
    for (number, (script, expected)) in cases.iter().enumerate() {
        let (state, cause) = cause(&host, &format!("s{number}"));
        assert_eq!(state, StateName::Failed, "{script}: {cause}");
        assert!(cause.contains(expected) && cause.contains("headersHelper `sh`"), "{script}: {cause}");
        said.lock().unwrap().push(cause);
    }
    let (state, cause) = cause(&host, "nobody");
    assert_eq!(state, StateName::Failed);
    assert!(cause.contains("no such file") && cause.contains("headersHelper"), "{cause}");
    assert!(said.lock().unwrap().iter().all(|cause| !cause.contains("canary")), "{said:?}");
    assert_eq!(site.asked().len(), 0, "nothing was asked without headers");
}

#[tokio::test]
async fn headers_that_are_set_here_anyhow_are_left_out_of_a_config() {
    let site = server(Box::new(|_| true), Arc::default()).await;
    let mut entry = entry(&site.url, &json!(["sh", "-c", "echo '{}'"]));
    entry["headers"] =
        json!({ "Accept": "text/html", "host": "evil.example", "MCP-Session-Id": "x", "X-Team": "core" });
    let config = config(&json!({ "a": entry }), &[]);
    let notes: Vec<String> = config.notes.iter().map(|note| note.message.clone()).collect();
    assert_eq!(notes, ["mcp-host sets this header for each request, ignored"; 3]);
    let host = host(config).await;
    call(&host).await.unwrap();
    let asked = site.asked();
    let first = &asked[0].headers;
    assert!(first["accept"].contains("application/json") && first["host"].starts_with("127.0.0.1"), "{first:?}");
    assert_eq!((first["x-team"].as_str(), first.contains_key("mcp-session-id")), ("core", false));
}

#[test]
fn h17_what_needs_a_shell_is_refused_with_its_place() {
    let read = |helper: &str| {
        let text = format!(
            "{{ \"mcpServers\": {{ \"a\": {{ \"url\": \"https://example.com/mcp\",\n\"headersHelper\": {helper} }} }} }}"
        );
        let config = parse_str(&text, Syntax::Json, "mcp.json", &Vars::default()).expect("one entry fails alone");
        let unusable = config.servers.into_iter().next().expect("there is one").unusable;
        let told = |problem: &Problem| format!("{problem} {:?}", problem.help);
        unusable.map_or(Ok(()), |unusable| Err(unusable.problems().map(told).collect::<String>()))
    };
    for (helper, expected) in [
        ("\"vault read | jq .\"", "`|` needs one"),
        ("\"X=1 vault\"", "a leading variable assignment needs one"),
        ("\"vault '\"", "an unterminated quote needs one"),
        ("\"\"", "names no program"),
        ("[]", "names no program"),
        ("[\"\"]", "names no program"),
        ("7", "expected a list, found a number"),
        ("[\"a\", 7]", "expected a string"),
        ("[\"a\", \"b\\u0000\"]", "contains a NUL character"),
    ] {
        let error = read(helper).unwrap_err();
        assert!(error.contains(expected) && error.contains("headersHelper"), "{helper}: {error}");
        assert!(error.contains("mcp.json:2") && error.contains("\"a\""), "{error}");
    }
    let told = read("\"vault read | jq .\"").unwrap_err();
    assert!(told.contains("write it as a list of words, or put it into a script and name that"), "{told}");
    assert!(read("\"vault read 'a | b'\"").is_ok() && read("[\"vault\", \"a | b\"]").is_ok());
}
