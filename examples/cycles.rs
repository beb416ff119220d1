//! Starts hosts of 20 servers and ends them, over and over, for the stage `spawn` of `tests/soak/run`:
//!
//!     cycles HOST CYCLES SEED WORD
//!
//! In the end this process has as many descriptors, threads, and children as after its first host
//! (`docs/hazards.md` H15): a line says so, or what differs. HOST is the program whose demo server runs, CYCLES is how
//! many servers are started in all, and each has WORD in its environment. Linux only: it reads `/proc`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use mcp_host::Host;
use serde_json::{Map, Value, json};

/// Servers of one host.
const FLEET: usize = 20;
/// How long the last fleet may take to end.
const SETTLE: Duration = Duration::from_secs(2);
/// How long a thread for blocking work stays idle.
const IDLE: Duration = Duration::from_millis(10);

fn main() -> ExitCode {
    mcp_host::guard();
    let (line, code) = match run() {
        Ok(line) => (line, ExitCode::SUCCESS),
        Err(line) => (line, ExitCode::FAILURE),
    };
    let _ = std::io::Write::write_all(&mut std::io::stdout(), format!("{line}\n").as_bytes());
    code
}

fn run() -> Result<String, String> {
    let mut arguments = std::env::args().skip(1);
    let mut argument = || arguments.next().ok_or("usage: cycles HOST CYCLES SEED WORD");
    let program = PathBuf::from(argument()?);
    let cycles: usize = argument()?.parse().map_err(|_| "CYCLES is not a number")?;
    let mut state: u64 = argument()?.parse().map_err(|_| "SEED is not a number")?;
    let word = argument()?;
    // The generator of Knuth's MMIX; its high bits are the random ones.
    let mut chance = |end: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % end
    };
    // A thread for blocking work ends soon after it, so the threads that are counted are those that stay.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().thread_keep_alive(IDLE).build().map_err(|error| error.to_string())?;
    let home = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut fleet = || {
        // Every third is shut down while it starts.
        let life = (chance(3) == 0).then(|| Duration::from_millis(chance(50)));
        runtime.block_on(fleet(&program, home.path(), &word, life))
    };
    // The first fleet creates what stays: the guard.
    fleet()?;
    let before = Balance::settled(None);
    for _ in 0..cycles / FLEET {
        fleet()?;
    }
    let after = Balance::settled(Some(&before));
    if before == after {
        Ok(format!("{cycles} cycles; before and after: {after}"))
    } else {
        Err(format!("before: {before}; after {cycles} cycles: {after}"))
    }
}

/// Runs one host with its servers, from start to shutdown. Without a `life` it ends once its tools are there.
async fn fleet(program: &Path, home: &Path, word: &str, life: Option<Duration>) -> Result<(), String> {
    let server = |number: usize| {
        let (command, args) = match number % 5 {
            0 => ("sh", json!(["-c", r#""$0" __demo-server; true"#, program])),
            1 => ("sh", json!(["-c", r#"setsid sleep 600 & exec "$0" __demo-server"#, program])),
            2 => ("true", json!([])),
            _ => (program.to_str().unwrap_or_default(), json!(["__demo-server"])),
        };
        // A server that ends at once is not retried, so that nothing waits for it.
        let restart = json!({ "maxRetries": 0 });
        json!({ "command": command, "args": args, "env": { "SOAK": word }, "restart": restart })
    };
    let servers: Map<String, Value> = (0..FLEET).map(|number| (format!("s{number}"), server(number))).collect();
    let file = home.join("mcp.json");
    std::fs::write(&file, json!({ "mcpServers": servers }).to_string()).map_err(|error| error.to_string())?;
    let host = Host::builder().config_file(file).start().await.map_err(|error| error.to_string())?;
    if let Some(life) = life {
        let _ = tokio::time::timeout(life, host.catalog_ready()).await;
    } else if host.catalog_ready().await.tools().is_empty() {
        return Err("no server was ready in time".to_owned());
    }
    tokio::time::timeout(Duration::from_secs(17), host.shutdown())
        .await
        .map_err(|_| "a shutdown took more than 17 s".to_owned())
}

/// The resources of this process.
#[derive(Debug, PartialEq, Eq)]
struct Balance {
    descriptors: usize,
    threads: usize,
    children: usize,
}

impl Balance {
    fn now() -> Self {
        let count = |folder| std::fs::read_dir(folder).map_or(0, Iterator::count);
        // Each thread lists the children that it started.
        let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let children = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
        Self {
            descriptors: count("/proc/self/fd"),
            threads: count("/proc/self/task"),
            children: children.map(|line| line.split_whitespace().count()).sum(),
        }
    }

    /// Counts until the balance equals `wanted`, or without it until two counts in a row are equal. After [`SETTLE`] it
    /// returns the last count.
    fn settled(wanted: Option<&Self>) -> Self {
        let begun = Instant::now();
        let mut last = Self::now();
        loop {
            #[expect(clippy::disallowed_methods, reason = "no runtime runs meanwhile")]
            std::thread::sleep(Duration::from_millis(100));
            let now = Self::now();
            if wanted.map_or(now == last, |wanted| now == *wanted) || begun.elapsed() > SETTLE {
                return now;
            }
            last = now;
        }
    }
}

impl std::fmt::Display for Balance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} descriptors, {} threads, {} children", self.descriptors, self.threads, self.children)
    }
}
