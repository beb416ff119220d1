//! The commands that edit the config. Each edit is proven before it is written, recorded for `undo`, and reported in
//! one line.

mod add;
pub(super) mod attempt;
pub(super) mod failures;
pub(super) mod pasted;
pub(super) mod secrets;
mod show;
pub(super) mod target;
mod undo;
pub(super) mod write;

use mcp_host::config::edit::Change;

use self::target::Target;
use super::unused;
use crate::args::{Common, EditCommand};
use crate::output::Output;
use crate::report::{Exit, Failure};

pub(super) async fn run(command: &EditCommand, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let is_of_user = command.is_of_user();
    let target = |name: &str| Target::of_entry(common, is_of_user, name);
    match command {
        EditCommand::Add(args) if args.name == add::PASTED => Box::pin(pasted::run(args, common, output)).await,
        EditCommand::Add(args) => Box::pin(add::run(args, common, output)).await,
        EditCommand::Remove(args) => {
            let change = Change::Remove { name: args.name.clone() };
            let target = target(&args.name)?;
            let exit = write::run(&target, change, output).await?;
            unused::sweep(&write::edits()?, &target.file, output).await;
            Ok(exit)
        }
        EditCommand::Enable(args) => {
            let change = Change::Switch { name: args.name.clone(), on: true };
            write::run(&target(&args.name)?, change, output).await
        }
        EditCommand::Disable(args) => {
            let change = Change::Switch { name: args.name.clone(), on: false };
            write::run(&target(&args.name)?, change, output).await
        }
        EditCommand::Rename(args) => {
            let change = Change::Rename { name: args.name.clone(), to: args.to.clone() };
            write::run(&target(&args.name)?, change, output).await
        }
        EditCommand::Servers(_) => show::list(common, is_of_user, output).await,
        EditCommand::Get(args) => show::get(&args.name, common, is_of_user, output),
        EditCommand::Undo(args) => undo::run(args, common, output).await,
    }
}
