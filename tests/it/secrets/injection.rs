//! A server's output can neither forge a line of the log nor fill it: H98.

use serde_json::json;

use super::{Daemon, program};

/// Ten mebibytes of one letter.
const HUGE: &str = r"head -c 10485760 /dev/zero | tr '\0' x";

#[test]
fn h98_what_servers_say_makes_no_line_of_its_own() {
    let home = tempfile::tempdir().unwrap();
    let refuses = format!(
        r#"printf 'a\033[2J\033]0;title\007\rWARN forged\n' >&2; {HUGE} >&2; echo >&2; {HUGE}; printf 'noise \033[2J\n'
read -r line; id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
printf '{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"info","data":"\\u001b[2J\\nWARN forged '
{HUGE}; printf '"}}}}\n'
printf '{{"jsonrpc":"2.0","id":%s,"error":{{"code":-32000,"message":"no\\u001b[2J\\r\\nWARN forged ' "$id"; {HUGE}; printf '"}}}}\n'
read -r line"#
    );
    let config = json!({ "mcpServers": {
        "forger": { "command": "sh", "args": ["-c", refuses], "restart": { "maxRetries": 0 } } } });
    let file = home.path().join("mcp.json");
    std::fs::write(&file, config.to_string()).unwrap();
    let named = file.to_str().unwrap();
    let mut daemon =
        Daemon::start(program(home.path(), "trace", &["serve", "--listen", "127.0.0.1:0", "--config", named]));
    if !daemon.said.contains("forger") {
        daemon.until("forger");
    }
    let said = daemon.end();
    assert!(said.contains(r"a\u{1b}]0;title\u{7}\rWARN forged"), "standard error is shown, escaped");
    assert!(said.contains("not a message on standard output"), "noise is reported");
    for line in said.lines() {
        assert!(line.len() <= 4096, "{} bytes: {}", line.len(), line.chars().take(200).collect::<String>());
        assert!(!line.contains(char::is_control), "{line:?}");
        assert!(!line.starts_with("WARN forged") && !line.starts_with('x'), "{line}");
    }
}
