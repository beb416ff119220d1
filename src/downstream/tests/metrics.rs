//! `/metrics` over HTTP: who gets it, and in which form.

use super::support::*;
use crate::answered::End;
use crate::config::{HostAuth, Metrics};
use crate::counts::Group;

const SCRAPER: &str = "the token of a scraper";

/// Sends a request with a token, and returns the answer's head and text.
async fn ask(house: &House, method: &str, path: &str, token: Option<&str>) -> (Head, String) {
    let mut peer = house.connect().await;
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let head = peer.send(&format!("{method} {path} HTTP/1.1\r\nHost: HOST\r\n{token}\r\n")).await;
    let text = if method == "HEAD" { String::new() } else { peer.body(&head).await };
    (head, text)
}

async fn status(house: &House, method: &str, path: &str, token: Option<&str>) -> u16 {
    ask(house, method, path, token).await.0.status
}

fn set(house: &House, metrics: Metrics) {
    house.stage.router.manager().configure(|settings| settings.metrics = metrics);
}

#[tokio::test]
async fn the_local_user_gets_them_as_open_metrics() {
    let house = house().await;
    let mut client = house.client("2025-11-25").await;
    client.ask(&call(1, "echo")).await;
    let (head, text) = ask(&house, "GET", "/metrics", None).await;
    assert_eq!(head.status, 200);
    assert_eq!(head.headers["content-type"], "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert_eq!(head.headers["cache-control"], "no-store");
    let has = |line: &str| assert!(text.lines().any(|found| found == line), "no {line} in {text}");
    has(r#"mcp_host_calls_total{server="script",method="tools/call",outcome="ok"} 1"#);
    has(r#"mcp_host_server_up{server="script"} 1"#);
    has(r#"mcp_host_tools{server="script"} 6"#);
    has(r#"mcp_host_table_entries{table="sessions"} 1"#);
    has("mcp_host_overhead_seconds_count 1");
    assert!(text.ends_with("# EOF\n"));
    let (head, _) = ask(&house, "HEAD", "/metrics", None).await;
    assert_eq!((head.status, head.headers["content-type"].contains("openmetrics")), (200, true));
    let (head, _) = ask(&house, "POST", "/metrics", None).await;
    assert_eq!((head.status, head.headers["allow"].as_str()), (405, "GET, HEAD"));
}

#[tokio::test]
async fn a_text_is_made_once_a_second() {
    let house = house().await;
    let (_, first) = ask(&house, "GET", "/metrics", None).await;
    let mut client = house.client("2025-11-25").await;
    client.ask(&call(1, "echo")).await;
    let called = r#"method="tools/call",outcome="ok"} 1"#;
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    tokio::time::resume();
    let (_, again) = ask(&house, "GET", "/metrics", None).await;
    assert!(!first.contains(called) && again.contains(called));
}

#[tokio::test]
async fn each_request_of_a_batch_is_counted_by_itself() {
    let house = house().await;
    let mut client = house.client("2025-03-26").await;
    let ping = r#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#;
    let head = client.post(&format!("[{},{ping},{},{}]", call(1, "echo"), call(2, "quick"), call(3, "none"))).await;
    assert_eq!(head.status, 200);
    client.body(&head).await;
    let counts = house.stage.router.observer().counted();
    let of = |server: &str, group, end| match server {
        "" => counts.none().calls(group, end),
        server => counts.of(server).calls(group, end),
    };
    until(|| of("script", Group::ToolsCall, End::Error) == 1).await;
    assert_eq!((of("script", Group::ToolsCall, End::Ok), of("", Group::Other, End::Ok)), (2, 1));
}

#[tokio::test]
async fn without_metrics_the_path_is_unknown() {
    let house = house().await;
    set(&house, Metrics::off().token(SCRAPER));
    let (head, text) = ask(&house, "GET", "/metrics", None).await;
    let (unknown, same) = ask(&house, "GET", "/nowhere", None).await;
    assert_eq!((head.status, text), (unknown.status, same));
    assert_eq!(status(&house, "GET", "/metrics", Some(SCRAPER)).await, 404);
    set(&house, Metrics::default());
    assert_eq!(status(&house, "GET", "/metrics", None).await, 200);
}

#[tokio::test]
async fn h80_a_token_for_metrics_opens_nothing_else() {
    let house = house_of(bearer(stage().await)).await;
    assert_eq!(status(&house, "GET", "/metrics", None).await, 401);
    assert_eq!(status(&house, "GET", "/metrics", Some(SCRAPER)).await, 401);
    assert_eq!(status(&house, "GET", "/metrics", Some(ANN)).await, 200, "a client's token");
    set(&house, Metrics::default().token(SCRAPER));
    assert_eq!(status(&house, "GET", "/metrics", Some(SCRAPER)).await, 200);
    assert_eq!(status(&house, "HEAD", "/metrics", Some(SCRAPER)).await, 200);
    assert_eq!(status(&house, "GET", "/metrics", Some(ANN)).await, 200);
    assert_eq!(status(&house, "POST", "/metrics", Some(SCRAPER)).await, 405);
    for wrong in [None, Some("the token of a scrape"), Some("")] {
        assert_eq!(status(&house, "GET", "/metrics", wrong).await, 401, "{wrong:?}");
    }
    for path in ["/mcp", "/sse", "/messages", "/console", "/nowhere", "/metrics/", "/METRICS"] {
        for method in ["GET", "POST", "DELETE"] {
            assert_eq!(status(&house, method, path, Some(SCRAPER)).await, 401, "{method} {path}");
        }
    }
    let query = format!("/metrics?access_token={}", SCRAPER.replace(' ', "%20"));
    assert_eq!(status(&house, "GET", &query, None).await, 401, "no token is taken from a URL");
    // Where clients need no token, none is needed here either.
    house.stage.router.manager().configure(|settings| settings.auth = HostAuth::None);
    assert_eq!(status(&house, "GET", "/metrics", None).await, 200);
}

#[tokio::test]
async fn h79_a_web_page_gets_no_metrics_even_with_the_token() {
    let house = house().await;
    set(&house, Metrics::default().token(SCRAPER));
    let token = format!("Authorization: Bearer {SCRAPER}\r\n");
    for header in [
        "Host: evil.example\r\n",
        "Host: HOST\r\nOrigin: http://evil.example\r\n",
        "Host: HOST\r\nSec-Fetch-Site: cross-site\r\n",
    ] {
        let mut peer = house.connect().await;
        let head = peer.send(&format!("GET /metrics HTTP/1.1\r\n{header}{token}\r\n")).await;
        assert_eq!(head.status, 403, "{header}");
    }
}

/// Another user of this machine, such as the one as whom Prometheus runs.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn h80_another_user_of_this_machine_needs_the_token() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let house = house().await;
    set(&house, Metrics::default().token(SCRAPER));
    let token = format!("Authorization: Bearer {SCRAPER}\\r\\n");
    for (path, header, line) in [
        ("/metrics", "", "HTTP/1.1 403 Forbidden"),
        ("/metrics", &*token, "HTTP/1.1 200 OK"),
        ("/mcp", &*token, "HTTP/1.1 403 Forbidden"),
    ] {
        assert_eq!(super::principals::get_with(65_534, house.port, path, header).await, line, "{path} {header}");
    }
}
