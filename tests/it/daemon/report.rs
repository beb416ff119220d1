//! Rules that only report: what they say is in the audit, in the metrics, and in the feed, and nothing is refused.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use super::{daemon, run};

#[test]
fn what_is_only_reported_is_in_the_audit_the_metrics_and_the_feed() {
    let rule = json!({ "name": "tried", "verdict": "deny", "tools": ["echo__echo"] });
    let mut reporting = rule.clone();
    reporting["report"] = json!(true);
    for (policy, verdict, name) in [
        (json!({ "rules": [reporting] }), "deny", "tried"),
        (json!({ "mode": "report", "rules": [rule] }), "deny", "tried"),
        (json!({ "mode": "report", "default": "ask" }), "ask", "default"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path();
        let echo = json!({ "command": env!("CARGO_BIN_EXE_mcp-host"), "args": ["__demo-server"] });
        let host = json!({ "policy": policy, "audit": { "file": "audit.jsonl" } });
        let mut daemon = daemon(home, &json!({ "host": host, "mcpServers": { "echo": echo } }));
        daemon.hears("✓ echo");
        let mut feed = UnixStream::connect(home.join(format!("mcp-host/{}.sock", daemon.port))).unwrap();
        feed.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
        writeln!(feed, "{}", json!({ "feed": { "parts": ["calls"] } })).unwrap();
        let mut lines = BufReader::new(feed).lines();
        assert_eq!(run(home, &["call", "echo__echo", "text=hello"]), "exit 0\nhello\n", "{policy}");

        let ended = |line: &str| crate::feed::event(line)["phase"] == "end";
        let told = lines.find_map(|line| Some(line.unwrap()).filter(|line| ended(line))).unwrap();
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!((&told["outcome"], &told["rule"]), (&json!("ok"), &json!(name)), "{policy}: {told}");

        let metrics = run(home, &["metrics"]);
        // No rule of the config is called so.
        let label = if name == "default" { "" } else { name };
        let counted = format!(r#"mcp_host_verdicts_total{{rule="{label}",verdict="{verdict}",enforced="false"}} 1"#);
        assert!(metrics.lines().any(|line| line == counted), "{policy}: {metrics}");

        daemon.end();
        let audit = std::fs::read_to_string(home.join("audit.jsonl")).unwrap();
        let calls: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let call = calls.iter().find(|line| line["method"] == "tools/call").unwrap_or_else(|| panic!("{audit}"));
        let expected = json!({ "verdict": verdict, "rule": name, "enforced": false, "asked": null });
        assert_eq!((&call["outcome"], &call["verdict"]), (&json!("ok"), &expected), "{policy}");
    }
}
