//! The commands about other MCP clients on this machine: `clients`, `import`, `export`, `link`, `unlink`, `migrate`.
//!
//! Each command reads the clients' files (`here.rs`), plans the changes (`plan.rs`), shows them, asks, and writes all
//! files as one edit, which `undo` can undo. A client whose file cannot be used is reported, and the others are still
//! changed.

mod diff;
mod here;
mod import;
mod link;
mod list;
mod migrate;
mod own;
mod plan;
mod same;
mod way;

pub(super) use self::list::{Linked, Seen, seen};
use crate::args::{ClientCommand, Common};
use crate::output::Output;
use crate::report::{Exit, Failure};

pub(super) async fn run(command: &ClientCommand, common: &Common, output: &Output) -> Result<Exit, Failure> {
    match command {
        ClientCommand::Clients(args) => list::run(common, args.user.user, output),
        ClientCommand::Import(args) => import::run(args, common, output).await,
        ClientCommand::Export(args) => link::export(args, common, output),
        ClientCommand::Link(args) => link::link(args, common, output).await,
        ClientCommand::Unlink(args) => link::unlink(args, common, output).await,
        ClientCommand::Migrate(args) => Box::pin(migrate::run(args, common, output)).await,
    }
}
