//! `mcp-host sandbox`: shows what the sandbox of a server refuses, and what would have to be granted.

mod did;
mod explain;
mod learn;
mod trace;

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use crate::args::{Common, Sandbox, SandboxCommand};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::state_directory;
use crate::text;

pub(crate) async fn run(args: &Sandbox, common: &Common, output: &Output) -> Result<Exit, Failure> {
    match &args.what {
        SandboxCommand::Explain(args) => Box::pin(explain::run(args, common, output)).await,
        SandboxCommand::Learn(args) => Box::pin(learn::run(args, common, output)).await,
    }
}

/// Returns the error for a server in a container, which cannot be watched from outside.
fn contained(name: &str) -> Failure {
    let error = format!("server `{}` runs in a container, and what happens there cannot be watched", text::line(name));
    Failure::new(Exit::Usage, error).help("what it is to have of this machine is what `read` and `write` list")
}

/// How many times longer a start may take under strace.
const SLOWER: u32 = 5;

/// A folder that only the user can access; removed on drop.
struct Folder(PathBuf);

impl Folder {
    /// Creates a folder in the state directory, because strace's output contains names of the user's files.
    fn make() -> Result<Self, Failure> {
        let Some(state) = state_directory() else {
            return Err(Failure::new(Exit::Failed, "there is no state directory; set HOME"));
        };
        let folder = state.join(format!("trace-{}", std::process::id()));
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(|error| Failure::new(Exit::Failed, format!("{}: {error}", folder.display())))?;
        Ok(Self(folder))
    }

    /// Returns the file to which strace writes.
    fn trace(&self) -> PathBuf {
        self.0.join("trace")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
