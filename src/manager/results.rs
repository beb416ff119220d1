//! Decides how much of a result a client gets at once: by the settings of the tool, then of the client's view, then of
//! the host.
//!
//! In: the config, and the tool that was called. Out: the limits that `crate::oversized` cuts by, and whether any result can
//! be cut. **Invariant:** a tool's settings in the view override those of the server, member by member.

use super::Manager;
use super::lease::Who;
use crate::config::{HostSettings, Layer as _, ResultLimits, ToolResults, ToolRules};
use crate::registry::Entry;

impl Manager {
    /// Returns how much of a result its client gets at once. `tool` is `None` for a tool in no list, which has no
    /// settings of its own.
    pub(crate) fn result_limits(&self, who: &Who, tool: Option<&Entry>) -> ResultLimits {
        let settings = self.settings();
        let view = who.view.name.name(&settings);
        let mut said = ToolResults::default();
        if let Some(tool) = tool {
            said = settings.tools_in(view).map(|rules| rules.results_of(tool.name())).unwrap_or_default();
            let servers = self.servers();
            let server = servers.iter().find(|server| server.config.alias == *tool.server());
            if let Some(server) = server {
                said.lay_over(&server.config.tools.results_of(tool.raw_name()));
            }
        }
        settings.results_of(view).of_tool(said)
    }

    /// Reports whether any result for this client can be cut.
    pub(crate) fn cuts_results(&self, who: &Who) -> bool {
        let settings = self.settings();
        let view = who.view.name.name(&settings);
        settings.results_of(view).is_on() || self.says_any(&settings, view, ToolResults::is_on)
    }

    /// Reports whether this client has the tool `read_result`.
    pub(crate) fn reads_on_for(&self, who: &Who) -> bool {
        let settings = self.settings();
        self.reads_on(&settings, who.view.name.name(&settings))
    }

    /// Reports whether clients of a view have the tool `read_result`: whether texts can be cut.
    pub(super) fn reads_on(&self, settings: &HostSettings, view: &str) -> bool {
        settings.results_of(view).limit > 0 || self.says_any(settings, view, ToolResults::has_limit)
    }

    /// Reports whether `is_such` holds for the result settings of any tool, in the view or at its server.
    fn says_any(&self, settings: &HostSettings, view: &str, is_such: fn(&ToolResults) -> bool) -> bool {
        let says = |rules: &ToolRules| rules.any(|tool| is_such(&tool.results));
        settings.tools_in(view).is_some_and(says) || self.servers().iter().any(|server| says(&server.config.tools))
    }
}
