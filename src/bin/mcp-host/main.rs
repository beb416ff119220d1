//! The program: arguments, exit codes, terminal. The work is done in the library.
//!
//! Each command has a file in `commands/`. **Invariant:** only `output.rs` prints; stdout is for data, stderr for
//! messages.

mod advice;
mod args;
mod arguments;
mod commands;
mod compare;
mod completion;
mod elicit;
mod found;
mod given;
mod heap;
mod hidden;
mod itself;
mod joined;
mod listen;
mod live;
mod mask;
mod named;
mod nearest;
mod opener;
mod others;
mod output;
mod paint;
mod parameters;
mod payload;
#[cfg(unix)]
mod relay;
mod report;
mod save;
mod schema;
mod servers;
mod session;
mod signals;
#[cfg(unix)]
mod starter;
mod suggest;
#[cfg(unix)]
mod supervised;
mod table;
mod telemetry;
mod text;
mod usage;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::CommandFactory as _;
use clap::builder::StyledStr;
use tokio::runtime::{Builder, Runtime};

use args::{Cli, Command};
use output::Output;
use report::{Exit, Failure};
use usage::{Mistake, Misunderstood};

/// How many task polls to run between checks for I/O. A server that sends without end always has another poll ready,
/// and each poll reads as much as its turn allows: with the default, other servers would wait for megabytes from this
/// one.
const LOOK: u32 = 8;
/// Targets that most commands do not log: these commands print themselves why a server did not start.
const TOLD: &str = ",mcp_host::upstream=error,mcp_host::host=error,mcp_host::start=error,mcp_host::stderr=error";
/// The same targets, and the one for definitions that are not approved.
const SHOWN: &str = ",mcp_host::upstream=error,mcp_host::host=error,mcp_host::start=error,mcp_host::stderr=error,mcp_host::unapproved=error";

fn main() -> ExitCode {
    mcp_host::guard();
    // The servers must not inherit open files of this process, such as a lock.
    #[cfg(unix)]
    close_fds::set_fds_cloexec(3, &[]);
    let words: Vec<OsString> = std::env::args_os().collect();
    if let Some(exit) = completion::answer(&words) {
        return exit.into();
    }
    #[cfg(unix)]
    let tried = {
        let read = relay::Words::read(&words);
        if let Some(exit) = read.as_ref().and_then(relay::attempt) {
            return exit.into();
        }
        read.is_some()
    };
    #[cfg(not(unix))]
    let tried = false;
    let exit = match usage::parse(&words) {
        Ok(cli) => start(cli, tried),
        Err(misunderstood) => not_run(misunderstood, &words),
    };
    exit.into()
}

/// Runs a command. `tried` says that a daemon was already tried and did not let us in.
fn start(cli: Cli, tried: bool) -> Exit {
    #[cfg(unix)]
    if !tried && let Some(exit) = relay::Words::of(&cli).and_then(|words| relay::attempt(&words)) {
        return exit;
    }
    #[cfg(not(unix))]
    let _ = tried;
    let common = cli.common();
    let output = Output::new(common.json, common.quiet, common.color.unwrap_or_default());
    // For `stdio`, only the log tells the state of the servers. Problems with the config are printed by each command.
    let told = match cli.command {
        Some(Command::Stdio(_) | Command::Daemon(_)) => ",mcp_host::host=error",
        Some(Command::Serve(_)) => ",mcp_host::upstream=error,mcp_host::host=error",
        // These commands print themselves which definitions are not approved.
        Some(Command::Check(ref check)) if check.locked => SHOWN,
        Some(Command::Approve(_) | Command::Lock(_)) => SHOWN,
        _ => TOLD,
    };
    telemetry::install(&output, common.verbose, common.quiet, told);
    let Some(command) = cli.command else {
        return print_help(&output);
    };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            return Failure::new(Exit::Failed, format!("cannot start threads: {error}"))
                .help("too many processes or files are open: look at `ulimit -a`")
                .tell(&output);
        }
    };
    let outcome = runtime.block_on(Box::pin(commands::run(command, &common, &output)));
    // A blocking read of stdin cannot be canceled: its thread is left behind.
    runtime.shutdown_timeout(Duration::from_millis(500));
    outcome.unwrap_or_else(|failure| failure.tell(&output))
}

/// Creates the runtime. It has one thread: a call crosses several tasks, and waking one on another core costs more than
/// the work in between. Blocking work runs on other threads.
pub(crate) fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().event_interval(LOOK).build()
}

fn print_help(output: &Output) -> Exit {
    page(&Cli::command().render_help(), output)
}

/// Prints help or the version, which are data, or reports a usage error.
fn not_run(misunderstood: Misunderstood, words: &[OsString]) -> Exit {
    let output = Output::new(false, false, usage::color(words));
    match misunderstood {
        Misunderstood::Asked(error) => page(&error.render(), &output),
        Misunderstood::Wrong(Mistake { wrong, help }) => Failure::new(Exit::Usage, wrong).help(help).tell(&output),
    }
}

fn page(text: &StyledStr, output: &Output) -> Exit {
    match output.page_of_help(text) {
        Ok(()) => Exit::Ok,
        Err(error) => Failure::from(error).tell(output),
    }
}
