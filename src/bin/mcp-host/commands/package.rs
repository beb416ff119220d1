//! `mcp-host __package DIR`: the man pages and the completions of a package, from the texts of `--help`.

use std::fs;
use std::path::Path;

use clap::CommandFactory as _;

use crate::args::{Cli, Package};
use crate::completion;
use crate::output::Output;
use crate::report::{Exit, Failure};

/// The shells, and the names of their completion files in a package.
const SCRIPTS: [(&str, &str); 3] = [("bash", "mcp-host.bash"), ("zsh", "_mcp-host"), ("fish", "mcp-host.fish")];

pub(crate) fn run(args: &Package, output: &Output) -> Result<Exit, Failure> {
    let (pages, scripts) = (args.folder.join("man"), args.folder.join("completions"));
    for folder in [&pages, &scripts] {
        fs::create_dir_all(folder).map_err(|error| unwritable(folder, &error))?;
    }
    clap_mangen::generate_to(Cli::command(), &pages).map_err(|error| unwritable(&pages, &error))?;
    for (shell, name) in SCRIPTS {
        let script = completion::script(shell)?.unwrap_or_default();
        let file = scripts.join(name);
        fs::write(&file, script + "\n").map_err(|error| unwritable(&file, &error))?;
    }
    output.remark(&format!("written: {} and {}", pages.display(), scripts.display()));
    Ok(Exit::Ok)
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    let error = format!("cannot write {}: {error}", path.display());
    Failure::new(Exit::Failed, error).help("name a folder that you may write to")
}
