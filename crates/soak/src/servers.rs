//! Servers in the shapes that leave orphans: wrappers, grandchildren, processes that leave their group or session.

use std::path::Path;

use serde_json::{Map, Value, json};

/// Every shape, as a shell script whose `$0` is a program that is a small server with the argument `__demo-server`.
const SHAPES: [(&str, &str); 8] = [
    ("plain", r#"exec "$0" __demo-server"#),
    // Like `npx` and `uvx`: a parent that only waits.
    ("wrapped", r#""$0" __demo-server; true"#),
    ("grandchild", r#"sleep 600 & exec "$0" __demo-server"#),
    ("escaped", r#"setsid sleep 600 & exec "$0" __demo-server"#),
    ("daemon", r#"(setsid sh -c 'sleep 600 & sleep 600' </dev/null >/dev/null 2>&1 &); exec "$0" __demo-server"#),
    ("stubborn", r#"trap '' TERM HUP INT; (trap '' TERM; sleep 600) & "$0" __demo-server; sleep 600"#),
    ("silent", r#"trap '' TERM HUP INT; setsid sleep 600 & while :; do sleep 1; done"#),
    ("crashing", r#"setsid sleep 600 & sleep 0.0$$; exit 1"#),
];

/// Returns a config with one server of each shape; every process of them carries the word.
pub(crate) fn config(host: &Path, word: &str) -> Value {
    let server = |script: &str| {
        json!({
            "command": "sh", "args": ["-c", script, host, word], "env": { "SOAK": word },
            "restart": { "minDelay": "20ms", "maxDelay": "200ms", "maxRetries": 1000 },
            "startTimeout": "10s"
        })
    };
    let servers: Map<_, _> = SHAPES.iter().map(|(name, script)| ((*name).to_owned(), server(script))).collect();
    json!({ "mcpServers": servers, "host": { "startupWait": "200ms" } })
}
