//! `mcp-host completions`: the script that completes commands in a shell.

use crate::args::Completions;
use crate::completion;
use crate::output::Output;
use crate::report::{Exit, Failure};

pub(crate) fn run(args: &Completions, output: &Output) -> Result<Exit, Failure> {
    let Some(script) = completion::script(&args.shell)? else {
        let error = format!("no completions are known for `{}`", args.shell);
        return Err(Failure::new(Exit::Usage, error).help("bash, zsh, fish, elvish and powershell are known"));
    };
    output.lines(script.lines())?;
    Ok(Exit::Ok)
}
