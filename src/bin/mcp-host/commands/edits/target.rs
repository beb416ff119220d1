//! Which file a command edits: the one named by `--config`, else the one in `$MCP_HOST_CONFIG`, else the user's own. If
//! the working directory has a config, which the other commands read, the user has to choose.

use std::path::{Path, PathBuf};

use mcp_host::config::edit;
use mcp_host::config::{self, LoadRequest};
use mcp_host::edits;

use super::failures::{failed, unknown};
use crate::args::{Common, HERE};
use crate::report::{Exit, Failure};
use crate::servers;
use crate::text::quoted;

/// The names of a project's config.
const NAMES: [&str; 2] = ["mcp-host.json", "mcp-host.toml"];

/// A config file to edit, and the request that loads the config it belongs to.
#[derive(Debug)]
pub(in crate::commands) struct Target {
    pub(in crate::commands) file: PathBuf,
    pub(in crate::commands) request: LoadRequest,
}

impl Target {
    /// Finds the file with an entry.
    pub(in crate::commands) fn of_entry(common: &Common, is_of_user: bool, name: &str) -> Result<Self, Failure> {
        let target = Self::find(common, is_of_user, Some(name))?;
        if !target.file.exists() {
            return Err(config::Error::NotFound { places: vec![target.file] }.into());
        }
        Ok(target)
    }

    /// Finds the file for a new entry.
    pub(in crate::commands) fn of_new(common: &Common, is_of_user: bool) -> Result<Self, Failure> {
        Self::find(common, is_of_user, None)
    }

    fn find(common: &Common, is_of_user: bool, name: Option<&str>) -> Result<Self, Failure> {
        let request = request(common, is_of_user)?;
        let file = match (request.files.as_slice(), name) {
            ([file], _) => file.clone(),
            // If several files have the entry, the last one counts.
            (files, Some(name)) => {
                let has = |file: &&PathBuf| {
                    let text = edits::read(file).ok().flatten().unwrap_or_default();
                    edit::has(&text, file, &request, name)
                };
                match files.iter().rev().find(has) {
                    Some(file) => file.clone(),
                    None => return Err(in_none(files, &request, name)),
                }
            }
            (_, None) => {
                let error = "several configs are named, and a server belongs into one";
                return Err(Failure::new(Exit::Usage, error).help("name one with --config"));
            }
        };
        Ok(Self { file, request })
    }

    /// Returns the text of the file; `None` if there is none.
    pub(in crate::commands) fn text(&self) -> Result<Option<String>, Failure> {
        edits::read(&self.file).map_err(|error| failed(error, &self.file))
    }
}

/// Returns the failure for a server that is in none of several files.
fn in_none(files: &[PathBuf], request: &LoadRequest, name: &str) -> Failure {
    let names = |file: &PathBuf| {
        let text = edits::read(file).ok().flatten().unwrap_or_default();
        edit::names(&text, file, request)
    };
    let known: Vec<String> = files.iter().flat_map(names).collect();
    unknown(name, &known)
}

/// Returns the request that loads the chosen config: its files, and whether they belong to a project.
pub(in crate::commands) fn request(common: &Common, is_of_user: bool) -> Result<LoadRequest, Failure> {
    let mut request = servers::request(common, None);
    if !request.files.is_empty() {
        return Ok(request);
    }
    let project = request.project_directory.take();
    let folder = match &project {
        // Approvals are stored under absolute paths.
        Some(named) if named != Path::new(HERE) => {
            Some(named.canonicalize().or_else(|_| std::path::absolute(named)).unwrap_or_else(|_| named.clone()))
        }
        _ => request.working_directory.clone(),
    };
    let here = |folder: &Path| NAMES.map(|name| folder.join(name)).into_iter().find(|file| file.exists());
    if project.is_some() {
        let folder = folder.unwrap_or_default();
        let file = here(&folder).unwrap_or_else(|| folder.join(NAMES[0]));
        (request.files, request.project) = (vec![file], true);
        return Ok(request);
    }
    let named = request.vars.get("MCP_HOST_CONFIG").filter(|file| !file.is_empty()).map(PathBuf::from);
    if let Some(named) = named.filter(|_| !is_of_user) {
        request.files = vec![named];
        return Ok(request);
    }
    if !is_of_user && let Some(file) = folder.as_deref().and_then(here) {
        let file = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let error = format!("which config is meant: {} of this directory, or your own?", quoted(&file));
        return Err(
            Failure::new(Exit::Usage, error).help("add --project for the one of this directory, --user for your own")
        );
    }
    let own = request.users();
    let file = own.iter().find(|file| file.exists()).or(own.first()).ok_or_else(|| {
        Failure::new(Exit::Usage, "no config to edit: this user has no home directory")
            .help("name a file with --config")
    })?;
    request.files = vec![file.clone()];
    Ok(request)
}
