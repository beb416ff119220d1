//! Completions: the script for a shell, and the answers when that script asks for possible next words.

use std::ffi::OsString;
use std::io;

use clap::CommandFactory as _;
use clap_complete::CompleteEnv;
use clap_complete::env::Shells;

use crate::args::Cli;
use crate::report::Exit;

/// The variable with which a script asks; its value is the shell.
const ASKED: &str = "_MCP_HOST_COMPLETE";
const NAME: &str = "mcp-host";

/// Answers a shell that asks for possible next words; `None` if none asks. A failure prints nothing: its message would
/// appear in the line that is being typed.
pub(crate) fn answer(words: &[OsString]) -> Option<Exit> {
    std::env::var_os(ASKED).filter(|shell| !shell.is_empty())?;
    let here = std::env::current_dir().ok();
    let asked = CompleteEnv::with_factory(Cli::command).var(ASKED).bin(NAME).completer(NAME);
    match asked.try_complete(words.iter().cloned(), here.as_deref()) {
        Ok(_) => Some(Exit::Ok),
        Err(_) => Some(Exit::Failed),
    }
}

/// Returns the script for a shell; `None` if the shell is not known.
pub(crate) fn script(shell: &str) -> io::Result<Option<String>> {
    let shells = Shells::builtins();
    let Some(completer) = shells.completer(shell) else { return Ok(None) };
    let mut script = Vec::new();
    completer.write_registration(ASKED, NAME, NAME, NAME, &mut script)?;
    Ok(Some(String::from_utf8_lossy(&script).trim().to_owned()))
}
