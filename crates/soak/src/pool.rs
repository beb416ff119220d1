//! What a `pool` brings at a server that takes one call at a time: calls a second with five connections, compared with one.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::alone::Alone;
use crate::peer;
use crate::process::pause;
use crate::soak::{Plan, Verdict};

/// How long the server works on a call.
const WORK: Duration = Duration::from_millis(20);
const POOL: usize = 5;
/// Calls under way at once: enough that no connection waits for one.
const AT_ONCE: usize = 2 * POOL;
const CALLS: usize = 100;
const CALLS_WHOLE: usize = 1000;
/// How much faster the pool must be.
const FASTER: f64 = 4.5;

/// The argument that makes this program the server.
pub(crate) const SERVER: &str = "pool-server";

/// That server: it works on one call, and reads the next one then.
pub(crate) fn serve() -> std::io::Result<()> {
    let tool = || json!({ "name": "work", "inputSchema": { "type": "object" } });
    peer::serve("pool", tool, |_| {
        pause(WORK);
        std::process::id().to_string().into()
    })
}

pub(crate) fn run(plan: &Plan) -> Verdict {
    let calls = if plan.whole { CALLS_WHOLE } else { CALLS };
    let (one, of_one) = measure(plan, 1, calls)?;
    let (five, of_five) = measure(plan, POOL, calls)?;
    let faster = five / one;
    let text = format!(
        "{calls} calls of {WORK:?}: {one:.1} calls/s by {of_one} process, {five:.1} calls/s by {of_five}; {faster:.2} times as fast"
    );
    if of_one != 1 || of_five != POOL || faster < FASTER {
        return Err(format!("{text}; {FASTER} times at least"));
    }
    Ok(text)
}

/// Returns how many calls a second are answered, and by how many processes.
fn measure(plan: &Plan, pool: usize, calls: usize) -> Result<(f64, usize), String> {
    let home = tempfile::tempdir().map_err(|error| error.to_string())?;
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let config = json!({ "mcpServers": { "it": { "command": own, "args": [SERVER], "pool": pool } } });
    let file = home.path().join("mcp.json");
    fs::write(&file, config.to_string()).map_err(|error| error.to_string())?;
    let mut host = Alone::start(&plan.host, home.path(), &file)?;
    host.ask("tools/list", &json!({}))?;
    // The pool grows while all its processes are busy.
    load(&mut host, 2 * AT_ONCE)?;
    let begun = Instant::now();
    let processes = load(&mut host, calls)?;
    let took = begun.elapsed();
    host.end()?;
    Ok((calls as f64 / took.as_secs_f64(), processes))
}

/// Makes calls, several at once. Returns how many processes answered.
fn load(host: &mut Alone, calls: usize) -> Result<usize, String> {
    let mut processes = std::collections::BTreeSet::new();
    let (mut begun, mut ended) = (0, 0);
    while ended < calls {
        while begun < calls && begun - ended < AT_ONCE {
            host.send("tools/call", &json!({ "name": "it__work", "arguments": {} }))?;
            begun += 1;
        }
        let answer = host.next()?;
        let text = answer["result"]["content"][0]["text"].as_str().ok_or_else(|| format!("a call got {answer}"))?;
        processes.insert(text.to_owned());
        ended += 1;
    }
    Ok(processes.len())
}
