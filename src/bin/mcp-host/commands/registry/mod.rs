//! The commands about servers of a registry.

mod failures;
mod install;
mod locked;
mod outdated;
mod search;
mod show;
mod tree;
mod update;
mod values;

use std::path::PathBuf;

use mcp_host::config::{self, LoadRequest, Registry};
use mcp_host::install::{Freshness, Index};

use self::failures::failed;
use crate::args::{Common, RegistryCommand};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers;
use crate::text;

pub(super) async fn run(command: &RegistryCommand, common: &Common, output: &Output) -> Result<Exit, Failure> {
    match command {
        RegistryCommand::Search(args) => search::run(args, common, output).await,
        RegistryCommand::Show(args) => show::run(args, common, output).await,
        RegistryCommand::Install(args) => Box::pin(install::run(args, common, output)).await,
        RegistryCommand::Outdated(args) => Box::pin(outdated::run(args, common, output)).await,
        RegistryCommand::Update(args) => Box::pin(update::run(args, common, output)).await,
    }
}

/// Opens the registry of the config; without a config, the official one. A project's config cannot configure the host,
/// so it does not choose the registry.
fn open(request: &LoadRequest) -> Result<Index, Failure> {
    let registry = match servers::load(request) {
        Ok(config) => config.host.registry,
        Err(config::Error::NotFound { .. }) => Registry::default(),
        Err(error) => return Err(error.into()),
    };
    Index::new(&registry, folder()).map_err(|error| failed(&error))
}

/// Returns the folder for cached answers of registries. Relative paths are ignored: their content would depend on the
/// owner of the working directory.
fn folder() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")))?;
    Some(cache.join("mcp-host/registry"))
}

/// Prints a note if the registry could not be reached.
fn tell_age(freshness: Freshness, index: &Index, output: &Output) {
    if let Freshness::Offline(age) = freshness {
        let age = text::duration(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        output.talk(&format!("warning: {} cannot be asked: this is what it said {age} ago", index.origin()));
    }
}

/// Splits `NAME@VERSION`.
fn named(text: &str) -> (&str, Option<&str>) {
    match text.split_once('@') {
        Some((name, version)) => (name, Some(version)),
        None => (text, None),
    }
}
