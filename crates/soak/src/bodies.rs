//! Incomplete bodies: as many connections as allowed each send 4 MiB less one byte. The host's memory stays within its
//! limits, and a client that calls meanwhile is served (`docs/hazards.md` H103).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout};

use crate::client::{Answer, Peer};
use crate::clients::raise_files;
use crate::hostile::memory;
use crate::sessions::{Host, SERVER};
use crate::soak::{Plan, Verdict};

/// The length that each body announces: `limits.body`.
const BODY: usize = 4 << 20;
/// All of `limits.connections` but those of the client beside them.
const CONNECTIONS: usize = 2040;
/// How much the host may grow over its memory at rest, in KiB.
const MORE: u64 = 80 * 1024;
/// Growth below this is no load.
const LOAD: u64 = 16 * 1024;
/// How long the client beside them waits for its response, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often it calls.
const PACE: Duration = Duration::from_millis(40);

pub(crate) fn run(plan: &Plan) -> Verdict {
    raise_files()?;
    let home = tempfile::tempdir().map_err(|error| error.to_string())?;
    let file = home.path().join("mcp.json");
    let myself = std::env::current_exe().map_err(|error| error.to_string())?;
    let config = json!({ "mcpServers": { "little": { "command": myself, "args": [SERVER] } } });
    std::fs::write(&file, config.to_string()).map_err(|error| error.to_string())?;
    let mut host = Host::start(plan, home.path(), &file)?;
    let address = host.address()?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    LocalSet::new().block_on(&runtime, load(host.0.id(), address, plan.whole))
}

async fn load(pid: u32, address: SocketAddr, whole: bool) -> Verdict {
    let mut beside = Beside::open(address).await?;
    sleep(Duration::from_secs(2)).await;
    let idle = memory(pid, "VmRSS:")?;
    // From here on, its peak is that of the bodies.
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").map_err(|error| error.to_string())?;
    let (once, again) = if whole { (10, 60) } else { (4, 6) };
    let mut peaks = [0; 2];
    for (peak, (comes_back, seconds)) in peaks.iter_mut().zip([(false, once), (true, again)]) {
        // All connect before any of them sends.
        let mut streams = Vec::new();
        for _ in 0..CONNECTIONS {
            streams.push(TcpStream::connect(address).await.ok());
        }
        let mut crowd = JoinSet::new();
        for stream in streams {
            crowd.spawn_local(send(address, stream, comes_back));
        }
        beside.calls_for(Duration::from_secs(seconds)).await?;
        crowd.shutdown().await;
        *peak = memory(pid, "VmHWM:")?.saturating_sub(idle);
    }
    let (calls, longest) = beside.end();
    let told = format!(
        "{CONNECTIONS} bodies of 4 MiB that are never whole: {} MiB at rest, {} MiB more at most, {} with others in their place \
         (bound {}); {calls} calls beside them, each answered within {longest:?}",
        idle / 1024,
        peaks[0] / 1024,
        peaks[1] / 1024,
        MORE / 1024
    );
    if peaks[1] > MORE {
        return Err(format!("too much memory: {told}"));
    }
    if peaks[0] < LOAD {
        return Err(format!("this is no load: {told}"));
    }
    Ok(told)
}

/// Sends all but the last byte and holds the connection until it ends; `comes_back` then reconnects.
async fn send(address: SocketAddr, mut stream: Option<TcpStream>, comes_back: bool) {
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {BODY}\r\n\r\n"
    );
    let piece = [b' '; 64 * 1024];
    loop {
        if let Some(mut stream) = stream.take() {
            // Connections that were refused break.
            let _: std::io::Result<()> = async {
                stream.write_all(head.as_bytes()).await?;
                let mut left = BODY - 1;
                while left > 0 {
                    let size = left.min(piece.len());
                    stream.write_all(piece.get(..size).unwrap_or_default()).await?;
                    left -= size;
                }
                while stream.read(&mut [0; 1024]).await? > 0 {}
                Ok(())
            }
            .await;
        }
        if !comes_back {
            return;
        }
        tokio::task::yield_now().await;
        stream = TcpStream::connect(address).await.ok();
    }
}

/// The client beside them.
struct Beside {
    peer: Peer,
    calls: u64,
    longest: Duration,
}

impl Beside {
    async fn open(address: SocketAddr) -> Result<Self, String> {
        let peer =
            Peer::open(format!("http://{address}/mcp")).await.map_err(|answer| format!("no session: {answer:?}"))?;
        let mut beside = Self { peer, calls: 0, longest: Duration::ZERO };
        beside.call().await?;
        Ok(beside)
    }

    async fn call(&mut self) -> Result<(), String> {
        let (id, begun) = (self.calls + 1, Instant::now());
        let answer = timeout(PATIENCE, self.peer.call(id, "little__small", &json!({}))).await;
        match answer.map_err(|_| format!("the client beside them was not served within {PATIENCE:?}"))? {
            Answer::One(answer) if answer["result"]["content"][0]["text"] == "small" => {
                self.calls = id;
                self.longest = self.longest.max(begun.elapsed());
                Ok(())
            }
            other => Err(format!("the client beside them was answered {other:?}")),
        }
    }

    async fn calls_for(&mut self, time: Duration) -> Result<(), String> {
        let begun = Instant::now();
        while begun.elapsed() < time {
            self.call().await?;
            sleep(PACE).await;
        }
        Ok(())
    }

    fn end(self) -> (u64, Duration) {
        (self.calls, self.longest)
    }
}
