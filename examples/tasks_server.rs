//! A server whose tools run as tasks: what the official conformance suite's `tasks-*` scenarios expect, and the same
//! tools with the tasks of 2025-11-25. `tests/conformance/run` puts it behind the host.
//!
//! `tasks_server --listen 127.0.0.1:8901` serves the extension `io.modelcontextprotocol/tasks` of 2026-07-28 over HTTP
//! and announces it on standard output. Without an argument it speaks over standard input and output, with tasks as in
//! 2025-11-25; with `--always` each tool there that may run as a task only runs as one. It takes only constants and
//! types of the wire from the crate; the wire itself is plain code, so that the server is not built from what it tests.

#[path = "tasks_server/http.rs"]
mod http;
#[path = "tasks_server/pipe.rs"]
mod pipe;
#[path = "tasks_server/task.rs"]
mod task;
#[path = "tasks_server/tools.rs"]
mod tools;

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;

use tools::Support;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tasks = Arc::new(task::Store::default());
    let mut args = std::env::args().skip(1);
    match (args.next().as_deref(), args.next(), args.next()) {
        (None, ..) => Ok(pipe::serve(tasks, Support::Optional).await?),
        (Some("--always"), None, _) => Ok(pipe::serve(tasks, Support::Required).await?),
        (Some("--listen"), Some(address), None) => {
            let listener = TcpListener::bind(address.parse::<SocketAddr>()?).await?;
            writeln!(std::io::stdout(), "listening on http://{}/mcp", listener.local_addr()?)?;
            Ok(http::serve(&listener, tasks).await?)
        }
        _ => Err("usage: tasks_server [--listen ADDR:PORT | --always]".into()),
    }
}
