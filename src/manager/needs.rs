//! Reports whether tools can be called now, for `mcp-host check --needs`. The answer comes from what is known, without
//! a request to any server.
//!
//! In: exposed names, and a view. Out: for each name whether it is callable, and if not, why. **Invariant:** no server
//! is started, and no name is revealed: a tool outside of the view is unknown.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::sight::Scope;
use super::status::last_words;
use super::{Manager, Server};
use crate::config::{ALL_VIEW, Start};
use crate::nearest::nearest;
use crate::registry::{Catalog, Kind, Resolution};
use crate::upstream::StateName;

/// Whether a tool can be called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Need {
    /// It is listed, and its server runs or starts with the call.
    Callable,
    /// No tool of the view has that name.
    Unknown,
    /// Its server requires a login.
    Login,
    /// Its server is not up.
    Down,
    /// Its definition waits for approval.
    Withheld,
    /// A rule refuses it.
    Denied,
    /// A state that only another version of mcp-host knows.
    #[default]
    #[serde(other)]
    Other,
}

/// A tool that somebody needs, and whether it can be called.
///
/// ```
/// use mcp_host::admin::{Need, Needed};
///
/// let reply: Needed = serde_json::from_str(r#"{"tool":"db__read","need":"down","server":"db","why":"exited"}"#)?;
/// assert_eq!((reply.need, reply.server.as_deref()), (Need::Down, Some("db")));
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Needed {
    /// The exposed name.
    pub tool: String,
    /// Whether it can be called.
    pub need: Need,
    /// The name of its server in the config, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Why it cannot be called, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The nearest names, if it is unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nearest: Vec<String>,
}

impl Manager {
    /// Reports whether these tools can be called in the view of this name; without a name, in that of clients that
    /// choose none.
    ///
    /// # Errors
    /// Returns the names of all views if there is none of this name.
    pub(crate) fn needed(&self, tools: &[String], view: Option<&str>) -> Result<Vec<Needed>, Vec<String>> {
        let settings = self.settings();
        if view.is_some_and(|name| name != ALL_VIEW && !settings.views.contains_key(name)) {
            let all = std::iter::once(ALL_VIEW.to_owned());
            return Err(all.chain(settings.views.keys().filter(|name| *name != ALL_VIEW).cloned()).collect());
        }
        let scope = self.scope_of(view);
        let parts = self.all_parts();
        let known = self.0.look(&scope, &parts);
        let allowed = self.scope_within_rules(view).map(|scope| self.0.look(&scope, &parts));
        let is_denied =
            |tool: &str| allowed.as_ref().is_some_and(|allowed| !matches!(allowed.tool(tool), Resolution::Found(_)));
        let need = |tool: &String| match self.need(tool, &scope, &known) {
            Needed { need: Need::Callable | Need::Login | Need::Down, server: Some(server), .. } if is_denied(tool) => {
                let why = Some("a rule of `host.policy` denies it".to_owned());
                Needed { tool: tool.clone(), need: Need::Denied, server: Some(server), why, nearest: Vec::new() }
            }
            needed => needed,
        };
        Ok(tools.iter().map(need).collect())
    }

    fn need(&self, tool: &str, scope: &Scope, known: &Catalog) -> Needed {
        let (servers, name) = (self.servers(), tool.to_owned());
        let found = match known.tool(tool) {
            Resolution::Found(target) => servers.iter().find(|server| server.id == target.server),
            Resolution::Ambiguous(names) => {
                let nearest = names.iter().map(ToString::to_string).collect();
                return Needed { tool: name, need: Need::Unknown, nearest, ..Needed::default() };
            }
            Resolution::Unknown => None,
        };
        if let Some(server) = found {
            let (need, why) = self.readiness(server);
            return Needed { tool: name, need, server: Some(server.config.name.clone()), why, nearest: Vec::new() };
        }
        let server = self.withholder((Kind::Tools, tool), scope, &servers);
        if let Some(server) = server {
            let (server, need) = (Some(server.config.name.clone()), Need::Withheld);
            return Needed { tool: name, need, server, ..Needed::default() };
        }
        // A server that has never listed anything may have the tool.
        let bearer = known.bearer(tool);
        let is_mute = |server: &&Arc<Server>| {
            let may_have = match bearer {
                Some(bearer) => server.config.alias == *bearer,
                None => server.config.prefix.may_stay(),
            };
            may_have && scope.holds(server) && Self::offer_of_any(server).is_none()
        };
        if let Some(server) = servers.iter().find(is_mute) {
            let (need, why) = match self.readiness(server) {
                (Need::Callable, _) => (Need::Down, Some("it has not listed its tools yet".to_owned())),
                other => other,
            };
            return Needed { tool: name, need, server: Some(server.config.name.clone()), why, nearest: Vec::new() };
        }
        let names = known.each(Kind::Tools).map(|entry| entry.name());
        let nearest = nearest(tool, names).into_iter().map(str::to_owned).collect();
        Needed { tool: name, need: Need::Unknown, nearest, ..Needed::default() }
    }

    /// Reports whether a call would reach the server.
    fn readiness(&self, server: &Server) -> (Need, Option<String>) {
        let state = self.shown(server);
        let is_to_start = server.config.start != Start::Eager || !server.config.idle_stop.is_zero();
        match state {
            StateName::Connected => (Need::Callable, None),
            StateName::Idle | StateName::Disconnecting | StateName::Disconnected if is_to_start => {
                (Need::Callable, None)
            }
            StateName::Unauthorized => (Need::Login, None),
            _ => (Need::Down, Some(last_words(server).unwrap_or_else(|| format!("it is {state}")))),
        }
    }
}
