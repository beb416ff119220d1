//! The commands, one file each.

mod approve;
mod asked;
mod asks;
mod auth;
mod call;
mod callers;
mod calls;
mod check;
mod clients;
mod completions;
mod connect;
mod daemon;
mod desk;
mod device;
mod doctor;
mod edits;
mod feed;
mod key;
mod list;
mod lock;
mod login;
mod logout;
mod logs;
mod metrics;
mod needs;
mod open;
#[cfg(feature = "package")]
mod package;
mod policy;
mod prompt;
mod read;
mod registry;
mod restart;
#[cfg(target_os = "linux")]
mod sandbox;
mod serve;
mod service;
mod serving;
mod status;
mod stdio;
mod suspects;
mod token;
mod tokens;
mod tools;
#[cfg(feature = "top")]
mod top;
mod unsuited;
mod unused;
mod watch;

use std::io::BufRead as _;

use mcp_host::demo;

use crate::args::{Command, Common, SetupCommand};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::signals::Signals;

/// Runs a command to its end.
pub(crate) async fn run(command: Command, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let mut signals = Signals::listen()?;
    match command {
        Command::Serve(args) => Box::pin(serve::run(&args, common, &mut signals, output)).await,
        Command::Stdio(_) => Box::pin(stdio::run(common, &mut signals, output)).await,
        Command::Daemon(args) => Box::pin(daemon::run(&args, common, &mut signals, output)).await,
        Command::Login(args) if args.device => Box::pin(device::run(&args, common, &mut signals, output)).await,
        command => tokio::select! {
            outcome = once(command, common, output) => outcome,
            // The command is dropped, and its servers with it.
            _ = signals.next() => Err(Failure::silent(Exit::Interrupted)),
        },
    }
}

/// Runs a one-shot command.
async fn once(command: Command, common: &Common, output: &Output) -> Result<Exit, Failure> {
    match command {
        Command::Check(args) if args.connect => Box::pin(connect::run(&args, common, output)).await,
        Command::Check(args) if args.locked => Box::pin(lock::check(&args, common, output)).await,
        Command::Check(args) if !args.needs.is_empty() => Box::pin(needs::run(&args, common, output)).await,
        Command::Check(args) => check::run(&args, common, output),
        Command::Tools(args) => Box::pin(tools::run(&args, common, output)).await,
        Command::Resources(args) => Box::pin(list::run(list::Kind::Resources, &args, common, output)).await,
        Command::Prompts(args) => Box::pin(list::run(list::Kind::Prompts, &args, common, output)).await,
        Command::Call(args) => Box::pin(call::run(&args, common, output)).await,
        Command::Read(args) => Box::pin(read::run(&args, common, output)).await,
        Command::Prompt(args) => Box::pin(prompt::run(&args, common, output)).await,
        Command::Edit(command) => Box::pin(edits::run(&command, common, output)).await,
        Command::Client(command) => Box::pin(clients::run(&command, common, output)).await,
        Command::Registry(command) => Box::pin(registry::run(&command, common, output)).await,
        Command::Approve(args) => approve::run(&args, common, output).await,
        Command::Lock(args) => Box::pin(lock::run(&args, common, output)).await,
        Command::Policy(args) => Box::pin(policy::run(&args, common, output)).await,
        #[cfg(target_os = "linux")]
        Command::Sandbox(args) => Box::pin(sandbox::run(&args, common, output)).await,
        Command::Status(args) => status::run(&args, common, output).await,
        Command::Login(args) => Box::pin(login::run(&args, common, output)).await,
        Command::Logout(args) => Box::pin(logout::run(&args, common, output)).await,
        Command::Logs(args) => Box::pin(logs::run(&args, common, output)).await,
        #[cfg(feature = "top")]
        Command::Top(args) => Box::pin(top::run(&args, common, output)).await,
        Command::Calls(args) => Box::pin(calls::run(&args, common, output)).await,
        Command::Metrics(args) => metrics::run(&args, common, output).await,
        Command::Tokens(args) => tokens::run(&args, common, output).await,
        Command::Open(args) => open::run(&args, common, output).await,
        Command::Asks(args) => asks::run(&args, common, output).await,
        Command::Auth(args) => Box::pin(auth::run(&args, common, output)).await,
        Command::Token(args) => token::run(&args, common, output),
        Command::Restart(args) => restart::run(&args, common, output).await,
        Command::Setup(SetupCommand::Doctor(args)) => Box::pin(doctor::run(&args, common, output)).await,
        Command::Setup(SetupCommand::Service(args)) => Box::pin(service::run(&args, common, output)).await,
        Command::Setup(SetupCommand::Completions(args)) => completions::run(&args, output),
        #[cfg(feature = "package")]
        Command::Setup(SetupCommand::Package(args)) => package::run(&args, output),
        Command::Serve(_) | Command::Stdio(_) | Command::Daemon(_) | Command::DemoServer(_) => demo_server().await,
    }
}

/// Runs the demo server that is a child process: a hidden mode of this program.
async fn demo_server() -> Result<Exit, Failure> {
    demo::echo().serve_stdio().await?;
    Ok(Exit::Ok)
}

/// Asks the user to confirm. Returns false for any answer but yes.
async fn agreed(question: &str, output: &Output) -> bool {
    output.ask(question);
    // A blocking read of stdin cannot be canceled: Ctrl-C leaves its thread behind.
    let answer = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line).map(|_| line)
    });
    matches!(answer.await, Ok(Ok(line)) if matches!(line.trim(), "y" | "Y" | "yes"))
}
