//! Starts a new server once, before its entry is written.

use std::collections::BTreeMap;
use std::path::PathBuf;

use mcp_host::StateName;
use mcp_host::config::{Config, LoadRequest, NOT_APPROVED};

use super::target::Target;
use super::write::Preview;
use crate::commands::check;
use crate::commands::connect::last_words;
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::{self, Plan};
use crate::session::{Session, failure, look_closer};
use crate::text;

/// The result of the start.
#[derive(Debug, Default)]
pub(in crate::commands) struct Tried {
    pub(in crate::commands) state: Option<StateName>,
    pub(in crate::commands) tools: usize,
    pub(in crate::commands) ready_after_ms: Option<u64>,
    pub(in crate::commands) tokens: usize,
    /// The definitions of its tools, by their names.
    pub(in crate::commands) definitions: BTreeMap<String, String>,
    /// Set if the server needs a login first.
    pub(in crate::commands) wants: Option<Failure>,
}

impl Tried {
    /// Describes the server: `9 tools, 640 ms, ~2.1k tokens`.
    pub(in crate::commands) fn told(&self) -> String {
        let mut parts = vec![text::count(self.tools, "tool")];
        parts.extend(self.ready_after_ms.map(text::duration));
        parts.push(format!("~{} tokens", thousands(self.tokens)));
        parts.join(", ")
    }
}

fn thousands(count: usize) -> String {
    match count {
        0..1000 => count.to_string(),
        _ => format!("{}.{}k", count / 1000, count % 1000 / 100),
    }
}

/// Returns the config with the new entry. In a project's file the entry counts as approved: the user has just typed it.
pub(in crate::commands) fn approved(
    preview: Preview,
    target: &Target,
    name: &str,
) -> Result<(Config, LoadRequest), Failure> {
    let mut request = target.request.clone();
    request.texts = vec![(target.file.clone(), preview.edited.text)];
    let Some(config) = preview.after else {
        return servers::load(&request).map(|config| (config, request)).map_err(Failure::from);
    };
    let waiting = config.servers.iter().find(|server| server.name == name).and_then(|server| {
        let project = server.project.as_ref()?;
        (server.disabled.as_deref() == Some(NOT_APPROVED)).then(|| (server.source.file.clone(), project.hash.clone()))
    });
    match waiting {
        None => Ok((config, request)),
        Some((file, hash)) => {
            let file: PathBuf = file;
            request.approved = request.approved.clone().and(file, name.to_owned(), hash);
            Ok((servers::load(&request)?, request))
        }
    }
}

/// Starts the new server once.
pub(in crate::commands) async fn start(
    name: &str,
    mut config: Config,
    request: LoadRequest,
    output: &Output,
) -> Result<Tried, Failure> {
    config.servers.retain(|server| server.name == name);
    // The server is not in a config yet, so commands that show more about it would not find it.
    let closer = look_closer(name, "");
    let wanted = |failure: Failure| failure.without_help(&closer);
    if let Some(unusable) = check::unusable(&config) {
        return Err(wanted(unusable));
    }
    let plan = Plan::of(config, request);
    let session = Box::pin(Session::look_alone(plan, String::new(), output)).await?;
    let status = session.status();
    let catalog = session.host.catalog();
    let definition = |tool: &mcp_host::Entry| (tool.name().to_owned(), tool.definition().as_str().to_owned());
    let definitions: BTreeMap<String, String> = catalog.tools().iter().map(definition).collect();
    let tokens = session.host.tokens(None).map_or(0, |ledger| ledger.servers.iter().map(|one| one.definitions).sum());
    session.close().await;
    let Some(status) = status.into_iter().find(|server| server.name == name) else {
        return Err(wanted(Failure::new(Exit::Failed, format!("`{name}` is no server that can be started"))));
    };
    let mut tried = Tried {
        state: Some(status.state),
        tools: status.tools,
        ready_after_ms: status.ready_after_ms,
        tokens,
        definitions,
        wants: None,
    };
    match failure(&status, "") {
        None => Ok(tried),
        Some(failure) if failure.exit == Exit::Unauthorized => {
            tried.wants = Some(failure);
            Ok(tried)
        }
        Some(failure) => {
            last_words(&status).iter().for_each(|line| output.talk(line));
            Err(wanted(failure))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_told_roughly() {
        assert_eq!([0, 999, 1000, 2149, 31_000].map(thousands), ["0", "999", "1.0k", "2.1k", "31.0k"]);
    }
}
