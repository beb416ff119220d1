//! Idle stops (`idleStop`) of servers that changed a definition once: no call is lost, the records of what was approved stay
//! as they are, and neither the log nor a client is told of the change again (`docs/hazards.md` H85).

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::alone::Alone;
use crate::kill9::Chance;
use crate::peer;
use crate::process::pause;
use crate::soak::{Plan, Verdict};

const SERVERS: usize = 10;
const ROUNDS: usize = 10;
const ROUNDS_WHOLE: usize = 100;
/// After which time a server that is not used ends.
const IDLE: Duration = Duration::from_millis(50);
/// How long before and after that time calls come that race its end.
const AROUND: Duration = Duration::from_millis(15);
/// How long servers may take to start, to end, and to be told of.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than changes of lists are gathered.
const QUIET: Duration = Duration::from_secs(3);
/// What the host logs of a server that changed a definition.
const TOLD: &str = "it lists what was not approved";

/// The argument that makes this program a server.
pub(crate) const SERVER: &str = "stops-server";

/// That server: its folder says whether it has changed, and gets a byte for each start and each end.
pub(crate) fn serve(mut arguments: impl Iterator<Item = String>) -> std::io::Result<()> {
    let folder = PathBuf::from(arguments.next().unwrap_or_default());
    note(&folder, "starts")?;
    let tool = || {
        let text = if folder.join("changed").exists() { "Acts otherwise." } else { "Acts." };
        json!({ "name": "act", "description": text, "inputSchema": { "type": "object" } })
    };
    peer::serve("stops", tool, |_| "done".into())?;
    note(&folder, "ends")
}

fn note(folder: &Path, file: &str) -> std::io::Result<()> {
    fs::OpenOptions::new().create(true).append(true).open(folder.join(file))?.write_all(b".")
}

pub(crate) fn run(plan: &Plan) -> Verdict {
    let rounds = if plan.whole { ROUNDS_WHOLE } else { ROUNDS };
    let home = Home::new()?;
    let mut first = home.start(plan)?;
    first.ask("tools/list", &json!({}))?;
    call_all(&mut first)?;
    first.end()?;
    if home.records()?.len() != SERVERS {
        return Err(format!("{} records of {SERVERS} servers after the first start", home.records()?.len()));
    }
    home.change()?;

    let mut host = home.start(plan)?;
    host.ask("tools/list", &json!({}))?;
    call_all(&mut host)?;
    let mut told = 0;
    wait("the host tells of each change", || {
        told += told_of(&host);
        told == SERVERS
    })?;
    pause(QUIET);
    host.hear();
    home.all_ended()?;
    let (records, changes, stops) = (home.records()?, host.changes, home.count("ends"));
    for _ in 0..rounds {
        call_all(&mut host)?;
        home.all_ended()?;
    }
    let stops = home.count("ends") - stops;
    let mut chance = Chance(plan.seed);
    for _ in 0..rounds {
        let later = Duration::from_micros(chance.below(2 * AROUND.as_micros() as usize) as u64);
        pause(IDLE + later - AROUND);
        call_all(&mut host)?;
    }
    home.all_ended()?;
    pause(QUIET);
    host.hear();
    told += told_of(&host);
    let text = format!(
        "{stops} idle stops of {SERVERS} servers, each after a call that was answered; then {} calls about when a server stops, all answered; told of each change {} times, {} lists told to have changed",
        SERVERS * rounds,
        told as f64 / SERVERS as f64,
        host.changes - changes
    );
    let same = home.records()? == records;
    host.end()?;
    if stops != SERVERS * rounds || told != SERVERS || !same {
        return Err(format!("{text}; records unchanged: {same}; {} stops were due", SERVERS * rounds));
    }
    Ok(format!("{text}; records unchanged"))
}

fn told_of(host: &Alone) -> usize {
    host.logged().iter().filter(|line| line.contains(TOLD)).count()
}

/// Calls every server once, all at the same time, and waits for the answers.
fn call_all(host: &mut Alone) -> Result<(), String> {
    for server in 0..SERVERS {
        host.send("tools/call", &json!({ "name": format!("s{server}__act"), "arguments": {} }))?;
    }
    for _ in 0..SERVERS {
        let answer = host.next()?;
        if answer["result"]["content"][0]["text"] != "done" {
            return Err(format!("a call got {answer}"));
        }
    }
    Ok(())
}

/// Waits until something holds.
fn wait(what: &str, mut holds: impl FnMut() -> bool) -> Result<(), String> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if holds() {
            return Ok(());
        }
        pause(Duration::from_millis(5));
    }
    Err(format!("not within {PATIENCE:?}: {what}"))
}

/// A folder with a config, the host's state, and a folder for each server.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Result<Self, String> {
        let home = Self(tempfile::tempdir().map_err(|error| error.to_string())?);
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut servers = serde_json::Map::new();
        for number in 0..SERVERS {
            let folder = home.at(number);
            fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
            let entry =
                json!({ "command": own, "args": [SERVER, folder], "idleStop": format!("{}ms", IDLE.as_millis()) });
            servers.insert(format!("s{number}"), entry);
        }
        let config = json!({ "host": { "approval": "warn" }, "mcpServers": servers });
        fs::write(home.0.path().join("mcp.json"), config.to_string()).map_err(|error| error.to_string())?;
        Ok(home)
    }

    fn at(&self, server: usize) -> PathBuf {
        self.0.path().join(format!("s{server}"))
    }

    fn start(&self, plan: &Plan) -> Result<Alone, String> {
        Alone::start(&plan.host, self.0.path(), &self.0.path().join("mcp.json"))
    }

    /// Makes every server list another form from its next start on.
    fn change(&self) -> Result<(), String> {
        (0..SERVERS)
            .try_for_each(|server| fs::write(self.at(server).join("changed"), ""))
            .map_err(|error| error.to_string())
    }

    /// Returns the records of what was approved, by their files.
    fn records(&self) -> Result<BTreeMap<PathBuf, Vec<u8>>, String> {
        let folder = self.0.path().join(".local/state/mcp-host/pins");
        let files = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?.flatten();
        let records = files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|end| end == "json"));
        records.map(|path| Ok((path.clone(), fs::read(path).map_err(|error| error.to_string())?))).collect()
    }

    /// Returns how often the servers noted something, together.
    fn count(&self, file: &str) -> usize {
        (0..SERVERS).map(|server| self.count_of(server, file)).sum()
    }

    fn count_of(&self, server: usize, file: &str) -> usize {
        fs::read(self.at(server).join(file)).map_or(0, |bytes| bytes.len())
    }

    /// Waits until every server that was started has ended.
    fn all_ended(&self) -> Result<(), String> {
        wait("each server ends after its idle time", || {
            (0..SERVERS).all(|server| self.count_of(server, "starts") == self.count_of(server, "ends"))
        })
    }
}
