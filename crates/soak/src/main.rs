//! What must hold for hours, tested in minutes: the host is killed, stopped, and loaded, and nothing of it may be left
//! behind. `tests/soak/run [STAGE...] [--whole]` builds and runs it; one file for each stage. Linux only: it reads
//! `/proc`.
//!
//! Only processes that a stage has started are ended, each by its id.

#[cfg(target_os = "linux")]
mod alone;
#[cfg(target_os = "linux")]
mod audit;
#[cfg(target_os = "linux")]
mod beats;
#[cfg(target_os = "linux")]
mod bodies;
#[cfg(target_os = "linux")]
mod client;
#[cfg(target_os = "linux")]
mod clients;
#[cfg(target_os = "linux")]
mod day;
#[cfg(target_os = "linux")]
mod hostile;
#[cfg(target_os = "linux")]
mod joined;
#[cfg(target_os = "linux")]
mod kill9;
#[cfg(target_os = "linux")]
mod ledger;
#[cfg(target_os = "linux")]
mod lists;
#[cfg(target_os = "linux")]
mod peer;
#[cfg(target_os = "linux")]
mod pool;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod refresh;
#[cfg(target_os = "linux")]
mod relay;
#[cfg(target_os = "linux")]
mod reload;
#[cfg(target_os = "linux")]
mod rude;
#[cfg(target_os = "linux")]
mod scripts;
#[cfg(target_os = "linux")]
mod servers;
#[cfg(target_os = "linux")]
mod sessions;
#[cfg(target_os = "linux")]
mod sigterm;
#[cfg(target_os = "linux")]
mod spawn;
#[cfg(target_os = "linux")]
mod stops;

#[cfg(not(target_os = "linux"))]
fn main() -> Result<(), &'static str> {
    Err("this needs Linux")
}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    // Some stages are their own servers.
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some(sessions::SERVER) => {
            sessions::serve();
            return std::process::ExitCode::SUCCESS;
        }
        Some(lists::SERVER) => {
            lists::serve(arguments);
            return std::process::ExitCode::SUCCESS;
        }
        Some(ledger::server::MODE) => {
            return match ledger::server::main(arguments) {
                Ok(()) => std::process::ExitCode::SUCCESS,
                Err(_) => std::process::ExitCode::FAILURE,
            };
        }
        Some(clients::server::MODE) => {
            // Its host is gone, so there is no one to report to.
            let _ = clients::server::serve();
            return std::process::ExitCode::SUCCESS;
        }
        Some(clients::bad::MODE) => {
            return match clients::bad::main(arguments) {
                Ok(()) => std::process::ExitCode::SUCCESS,
                Err(wrong) => {
                    soak::say(&wrong);
                    std::process::ExitCode::FAILURE
                }
            };
        }
        Some(rude::SERVER) => {
            let (kind, flag) = (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default());
            // Its host is gone, so there is no one to report to.
            let _ = rude::run(&kind, flag.as_ref());
            return std::process::ExitCode::SUCCESS;
        }
        Some(beats::SERVER) => {
            // Its host is gone, so there is no one to report to.
            let _ = beats::serve();
            return std::process::ExitCode::SUCCESS;
        }
        Some(relay::SERVER) => {
            // Its host is gone, so there is no one to report to.
            let _ = relay::serve();
            return std::process::ExitCode::SUCCESS;
        }
        Some(stops::SERVER) => {
            // Its host is gone, so there is no one to report to.
            let _ = stops::serve(arguments);
            return std::process::ExitCode::SUCCESS;
        }
        Some(scripts::SERVER) => {
            // Its host is gone, so there is no one to report to.
            let _ = scripts::serve();
            return std::process::ExitCode::SUCCESS;
        }
        Some(pool::SERVER) => {
            // Its host is gone, so there is no one to report to.
            let _ = pool::serve();
            return std::process::ExitCode::SUCCESS;
        }
        _ => {}
    }
    match soak::run() {
        Ok(code) => code,
        Err(wrong) => {
            soak::say(&format!("soak: {wrong}"));
            std::process::ExitCode::from(2)
        }
    }
}

#[cfg(target_os = "linux")]
mod soak {
    use std::io::Write as _;
    use std::path::PathBuf;
    use std::process::ExitCode;

    use crate::{
        audit, beats, bodies, clients, day, hostile, kill9, ledger, lists, refresh, reload, sessions, sigterm, spawn,
    };

    /// The settings of every stage.
    #[derive(Clone, Debug)]
    pub(crate) struct Plan {
        /// The program under test.
        pub(crate) host: PathBuf,
        /// `examples/cycles.rs`, which the stage `spawn` runs.
        pub(crate) cycles: PathBuf,
        /// Whether to run as often as promised, not just as long as time allows.
        pub(crate) whole: bool,
        /// Whether the program was built without link-time optimization, which leaves code and tables in it that nothing
        /// uses.
        pub(crate) untrimmed: bool,
        /// How many minutes the stage `day` takes, if not its own.
        pub(crate) minutes: Option<u64>,
        /// The random seed; reported, so that a run can be repeated.
        pub(crate) seed: u64,
    }

    /// The result of a stage, in one line.
    pub(crate) type Verdict = Result<String, String>;

    type Stage = fn(&Plan) -> Verdict;

    /// Run only when named: the bound of the first is close to what a busy machine measures, and the second takes an
    /// hour.
    const BY_NAME: [&str; 2] = ["bodies", "day"];

    const STAGES: [(&str, Stage); 18] = [
        ("kill9", kill9::run),
        ("spawn", spawn::run),
        ("sigterm", sigterm::run),
        ("sessions", sessions::run),
        ("bodies", bodies::run),
        ("relay", crate::relay::run),
        ("reload", reload::run),
        ("ledger", ledger::run),
        ("lists", lists::run),
        ("audit", audit::run),
        ("beats", beats::run),
        ("stops", crate::stops::run),
        ("pool", crate::pool::run),
        ("scripts", crate::scripts::run),
        ("refresh", refresh::run),
        ("hostile", hostile::run),
        ("clients", clients::run),
        ("day", day::run),
    ];

    pub(crate) fn run() -> Result<ExitCode, String> {
        let mut plan = Plan {
            host: PathBuf::new(),
            cycles: PathBuf::new(),
            whole: false,
            untrimmed: false,
            minutes: None,
            seed: u64::from(std::process::id()),
        };
        let mut wanted = Vec::new();
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--whole" => plan.whole = true,
                "--untrimmed" => plan.untrimmed = true,
                "--host" => plan.host = arguments.next().ok_or("--host needs a file")?.into(),
                "--cycles" => plan.cycles = arguments.next().ok_or("--cycles needs a file")?.into(),
                "--minutes" => {
                    let minutes = arguments.next().and_then(|minutes| minutes.parse().ok());
                    plan.minutes = Some(minutes.ok_or("--minutes needs a number")?);
                }
                "--seed" => {
                    plan.seed = arguments.next().and_then(|seed| seed.parse().ok()).ok_or("--seed needs a number")?;
                }
                stage => match STAGES.iter().find(|(name, _)| *name == stage) {
                    Some(stage) => wanted.push(*stage),
                    None => {
                        return Err(format!(
                            "no stage `{stage}`; there are {}",
                            STAGES.map(|(name, _)| name).join(", ")
                        ));
                    }
                },
            }
        }
        // It is started from other directories.
        plan.host = plan.host.canonicalize().map_err(|error| format!("`{}` (--host): {error}", plan.host.display()))?;
        if wanted.is_empty() {
            wanted = STAGES.into_iter().filter(|(name, _)| !BY_NAME.contains(name)).collect();
        }
        say(&format!("seed {}", plan.seed));
        let mut failed = 0;
        for (name, stage) in &wanted {
            let begun = std::time::Instant::now();
            let (word, text) = match stage(&plan) {
                Ok(text) => ("ok", text),
                Err(text) => {
                    failed += 1;
                    ("FAILED", text)
                }
            };
            say(&format!("{word:6} {name:8} {:4} s  {text}", begun.elapsed().as_secs()));
        }
        say(&format!("{} passed, {failed} failed", wanted.len() - failed));
        Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    pub(crate) fn say(line: &str) {
        let _ = writeln!(std::io::stdout(), "{line}");
    }
}
