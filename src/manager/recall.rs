//! Reports changes of states, of the config, and of definitions to listeners and to the record of the last minutes
//! (`record`).

use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;
use serde_json::json;
use tokio::sync::broadcast;

use super::{DefinitionNews, Manager, Reload, StateChange};
#[cfg(feature = "otel")]
use crate::auth::LoginEnd;
use crate::auth::LoginNews;
use crate::counts::{Count, HostCount};
use crate::record::{Change, Level, Part, Record, Said, Source};
use crate::transport::Spoken;
use crate::upstream::StateName;

impl Manager {
    /// Returns the record of what happened lately.
    pub(crate) fn record(&self) -> &Record {
        self.0.spoken.record()
    }

    /// Applies the current limits to the record.
    pub(super) fn follow_limits(&self) {
        let limits = self.limits();
        self.record().limit(limits.calls, limits.lines);
    }

    /// Subscribes to changes of states, from now on.
    pub(crate) fn events(&self) -> broadcast::Receiver<StateChange> {
        self.0.events.subscribe()
    }

    /// Subscribes to ends of logins, from now on.
    #[cfg(feature = "otel")]
    pub(crate) fn logins(&self) -> broadcast::Receiver<LoginEnd> {
        self.0.logins.subscribe()
    }

    /// Subscribes to what servers write to users (log messages and standard error), from now on.
    pub(crate) fn spoken(&self) -> broadcast::Receiver<Spoken> {
        self.0.spoken.subscribe()
    }

    /// Reports a change of a state.
    pub(super) fn emit(&self, change: StateChange) {
        let (from, to, cause) = (change.from.as_str(), change.to.as_str(), change.cause.as_deref());
        self.record().changed(&Change { server: &change.server, from, to, cause }, change.at);
        if change.to == StateName::Unauthorized {
            self.remember_login(&change.server, "needed");
        }
        // There may be no listener.
        let _ = self.0.events.send(change);
    }

    /// Remembers a reload, and forgets the lines of servers that are gone.
    pub(super) fn remember_reload(&self, done: &Reload) {
        self.record().counts().one(HostCount::ReloadOk);
        done.removed.iter().for_each(|server| self.record().forget(server));
        self.happened(Part::Config, &json!({ "reloaded": true, "changes": done }));
        let parts = [("new", &done.added), ("changed", &done.changed), ("gone", &done.removed)];
        let said: Vec<String> = parts
            .into_iter()
            .filter(|(_, servers)| !servers.is_empty())
            .map(|(word, servers)| format!("{word}: {}", servers.join(", ")))
            .collect();
        let said = if said.is_empty() { "no server has changed".to_owned() } else { said.join("; ") };
        self.say(Level::Info, &format!("config reloaded: {said}"));
    }

    /// Records that the new config files were rejected.
    pub(super) fn remember_refusal(&self, problems: &[String]) {
        self.record().counts().one(HostCount::ReloadRefused);
        self.happened(Part::Config, &json!({ "reloaded": false, "problems": problems }));
        problems.iter().for_each(|problem| self.say(Level::Warning, &format!("config not reloaded: {problem}")));
    }

    /// Records a definition that was not approved.
    pub(super) fn remember_definition(&self, news: &DefinitionNews) {
        let DefinitionNews { server, what, name, withheld, .. } = news;
        self.record().counts().of(server).one(Count::DefinitionChanges);
        let shown = json!({ "server": server, "what": what, "name": name, "withheld": withheld });
        self.happened(Part::Approvals, &shown);
    }

    /// Records a step of a login: `needed`, `begun`, `done`, `failed`, or `out`.
    pub(crate) fn remember_login(&self, server: &str, what: &'static str) {
        self.happened(Part::Logins, &json!({ "server": server, "what": what }));
    }

    /// Records the beginning and the end of all logins from now on.
    pub(super) fn follow_logins(&self) {
        let inner = Arc::downgrade(&self.0);
        self.0.keys.tell_logins(move |news| {
            if let Some(inner) = inner.upgrade() {
                Self(inner).login_goes_on(news);
            }
        });
    }

    fn login_goes_on(&self, LoginNews { server, begun, end }: LoginNews<'_>) {
        let what = match end {
            None => "begun",
            Some(true) => "done",
            Some(false) => "failed",
        };
        self.remember_login(server, what);
        #[cfg(feature = "otel")]
        if let Some(is_done) = end {
            let (server, ended) = (server.to_owned(), SystemTime::now());
            // There may be no listener.
            let _ = self.0.logins.send(LoginEnd { server, begun, ended, is_done });
        }
        #[cfg(not(feature = "otel"))]
        let _ = begun;
    }

    fn happened(&self, part: Part, members: &impl Serialize) {
        if self.record().is_on() {
            // This cannot fail, because all keys are strings.
            let text = serde_json::to_string(members).unwrap_or_default();
            self.record().happened(part, &text, SystemTime::now());
        }
    }

    /// Keeps a line of the host itself.
    fn say(&self, level: Level, text: &str) {
        let text = text.as_bytes().into();
        let said = Said { server: None, source: Source::Host, level, text: &text, scrubber: None };
        self.record().line(&said, SystemTime::now());
    }
}
