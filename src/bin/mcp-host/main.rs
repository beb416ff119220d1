//! The program: arguments, exit codes, terminal. What it does is in the library.
//!
//! One file of `commands/` for each command. **Invariant:** only `output.rs` prints; stdout is data, stderr is talk.

mod args;
mod commands;
mod elicit;
mod hidden;
mod live;
mod mask;
mod nearest;
mod opener;
mod output;
mod parameters;
mod payload;
mod report;
mod servers;
mod session;
mod signals;
mod telemetry;
mod text;

use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory as _, Parser as _};
use tokio::runtime::{Builder, Runtime};

use args::{Cli, Command};
use output::Output;
use report::{Exit, Failure};

/// After so many steps of tasks it is looked what came in. While one server talks without end there is always another step,
/// and each reads as much as its turn allows: by default the others would be heard after megabytes of it.
const LOOK: u32 = 8;

fn main() -> ExitCode {
    mcp_host::guard();
    // What this process was started with, a lock perhaps, is not for the servers.
    #[cfg(unix)]
    close_fds::set_fds_cloexec(3, &[]);
    let exit = match Cli::try_parse() {
        Ok(cli) => start(cli),
        Err(error) => usage(&error),
    };
    exit.into()
}

fn start(cli: Cli) -> Exit {
    let common = cli.common();
    let output = Output::new(common.json, common.quiet);
    // Nobody but the log tells how the servers of `stdio` are. How its config is, every command tells by itself.
    let told = match cli.command {
        Some(Command::Stdio(_)) => ",mcp_host::host=error",
        _ => ",mcp_host::upstream=error,mcp_host::host=error",
    };
    telemetry::install(&output, common.verbose, common.quiet, told);
    let Some(command) = cli.command else {
        return print_help(&output);
    };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::new(Exit::Failed, format!("cannot start threads: {error}")).tell(&output),
    };
    let outcome = runtime.block_on(Box::pin(commands::run(command, &common, &output)));
    // A read of stdin cannot be called back: its thread is left behind.
    runtime.shutdown_timeout(Duration::from_millis(500));
    outcome.unwrap_or_else(|failure| failure.tell(&output))
}

/// One thread for everything: a call crosses several tasks, and waking one on another core costs more than the work in
/// between. What may block runs on threads of its own.
fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().event_interval(LOOK).build()
}

fn print_help(output: &Output) -> Exit {
    let help = Cli::command().render_help().to_string();
    match output.line(help.trim_end()) {
        Ok(()) => Exit::Ok,
        Err(error) => Failure::from(error).tell(output),
    }
}

/// Help and version are data; all else is an error of usage.
fn usage(error: &clap::Error) -> Exit {
    let output = Output::new(false, false);
    if error.use_stderr() {
        let (wrong, help) = args::explain(error);
        return Failure::new(Exit::Usage, wrong).help(help).tell(&output);
    }
    match output.line(error.render().to_string().trim_end()) {
        Ok(()) => Exit::Ok,
        Err(error) => Failure::from(error).tell(&output),
    }
}
