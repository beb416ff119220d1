//! Sends client bytes to the door, the HTTP endpoint for clients, over a pipe in this process and with a clock that
//! jumps ahead.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::pieces;
use crate::config::{Config, Prefix, Server, Stdio, Transport};
use crate::downstream::http::fuzzing::Door;
use crate::in_process::Running;
use crate::manager::Manager;
use crate::protocol::Raw;
use crate::router::Router;
use crate::upstream::Starter;

/// Inputs per door. After these, a new door has room for sessions again.
const INPUTS: usize = 256;
/// How long an answer may take. An event stream never ends, and time advances whenever all tasks are idle.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a connection may outlive its client: as long as a call, if more requests are queued.
const GONE: Duration = Duration::from_secs(2 * 60 * 60);

struct World {
    runtime: Runtime,
    door: Door,
    left: usize,
}

/// Checks that the answer to any bytes is HTTP, and that the next client is served.
pub fn http(data: &[u8]) {
    thread_local!(static WORLD: RefCell<Option<World>> = const { RefCell::new(None) });
    let (_, pieces) = pieces(data);
    WORLD.with_borrow_mut(|world| {
        let mut now = world.take().filter(|world| world.left > 0).unwrap_or_else(World::new);
        now.left -= 1;
        let answer = now.say(&pieces);
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "no HTTP: {}", answer.escape_ascii());
        let good = good();
        let answer = now.say(&[good.as_bytes()]);
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("still here"), "after it: {answer}");
        *world = Some(now);
    });
}

impl World {
    fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
        let runtime = runtime.expect("there are descriptors");
        let door = runtime.block_on(async {
            let server = Running::new(crate::demo::echo());
            let mut entry = Server::new("echo", Transport::Stdio(Stdio::default())).expect("a name that is an alias");
            entry.prefix = Prefix::Never;
            let mut config = Config::default();
            config.servers.push(entry);
            let start: Starter = Arc::new(move |wire, tasks| server.start(wire, tasks));
            let info = Raw::from_value(&json!({ "name": "fuzzed", "version": "0" }));
            let memory = HashMap::from([("echo".to_owned(), start)]);
            let (manager, news) = Manager::start(config, &memory, info.clone(), None, Default::default());
            Door::new(Router::start(manager, news, info))
        });
        Self { runtime, door, left: INPUTS }
    }

    /// Sends the bytes over a new connection and returns everything that comes back.
    fn say(&self, pieces: &[&[u8]]) -> Vec<u8> {
        self.runtime.block_on(async {
            let (client, server) = duplex(64 * 1024);
            let serving = tokio::spawn(self.door.serve(server));
            let mut answer = Vec::new();
            // A client that has sent everything does not hang up: it waits for answers.
            let (mut reader, mut writer) = tokio::io::split(client);
            let talk = async {
                let say = async {
                    for piece in pieces {
                        // A refused request is not read to the end.
                        if writer.write_all(piece).await.is_err() {
                            break;
                        }
                    }
                };
                let ((), _) = tokio::join!(say, reader.read_to_end(&mut answer));
            };
            let _ = timeout(PATIENCE, talk).await;
            drop((reader, writer));
            if let Err(error) = timeout(GONE, serving).await.expect("a connection whose client is gone ends") {
                std::panic::resume_unwind(error.into_panic());
            }
            answer
        })
    }
}

/// Returns a request that is answered immediately.
fn good() -> String {
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"f","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;
    let params = format!(r#"{{"name":"echo","arguments":{{"text":"still here"}},{meta}}}"#);
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
    format!(
        "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:8808\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\n\
         mcp-name: echo\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}
