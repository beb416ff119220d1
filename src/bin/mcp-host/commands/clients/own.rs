//! The user's own config, into which clients' servers are copied and which linked clients use.

use std::path::PathBuf;

use mcp_host::config::{Config, LoadRequest};

use crate::args::Common;
use crate::commands::edits::target::Target;
use crate::report::{Exit, Failure};
use crate::servers;

/// The config file, its text, and its parsed content.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) file: PathBuf,
    pub(super) request: LoadRequest,
    /// The text; `None` if there is no file yet.
    pub(super) text: Option<String>,
    pub(super) config: Config,
}

impl Own {
    pub(super) fn find(common: &Common, is_of_user: bool) -> Result<Self, Failure> {
        if common.project.is_some() {
            let error = "clients are linked with your own config, not with that of a project";
            return Err(Failure::new(Exit::Usage, error).help("leave out --project; --config FILE names another file"));
        }
        let target = Target::of_new(common, is_of_user)?;
        let text = target.text()?;
        let Target { file, request } = target;
        let file = std::path::absolute(&file).unwrap_or(file);
        let request = LoadRequest { files: vec![file.clone()], ..request };
        let config = match &text {
            Some(text) if !text.trim().is_empty() => servers::load(&with(&request, text))?,
            _ => Config::default(),
        };
        Ok(Self { file, request, text, config })
    }

    /// Returns the config. Fails if there is no file.
    pub(super) fn existing(common: &Common, is_of_user: bool) -> Result<Self, Failure> {
        let own = Self::find(common, is_of_user)?;
        if own.text.is_some() {
            return Ok(own);
        }
        let error = format!("there is no config yet that clients could be linked with: {}", own.file.display());
        Err(Failure::new(Exit::Usage, error)
            .help("mcp-host import --all takes over the servers of your clients; mcp-host add adds one"))
    }
}

/// Returns a request that loads the config with this text in place of its file's content.
pub(super) fn with(request: &LoadRequest, text: &str) -> LoadRequest {
    let texts = request.files.iter().map(|file| (file.clone(), text.to_owned())).collect();
    LoadRequest { texts, ..request.clone() }
}
