//! `host.catalog`, and `catalog` of a view: how the tools are listed that a client may see.
//!
//! **Invariant:** this decides what a list says, never what a client may see or call.

use std::collections::BTreeSet;

use super::HostSettings;
use super::code::{self, Code, ScriptTools};
use crate::config::fields::{Field, Fields};
use crate::config::keys::words;
use crate::config::report::Report;
use crate::config::selector::{self, Selector};
use crate::config::tools::refuse_rest;
use crate::config::{Config, Server, ToolRules};
use crate::glob::is_match;

const KEYS: [&str; 7] = ["always", "budget", "code", "compact", "maxTools", "mode", "native"];

words! {
    /// How tools are listed.
    pub enum CatalogMode {
        /// All of them.
        #[default]
        Full = "full",
        /// Two or three tools of the host itself, with which a client finds and calls the others.
        Search = "search",
        /// Like `search`, and a tool of the host that runs scripts, which call the others.
        Code = "code",
        /// Like `search` if the full list is too large for the client, else like `full`.
        Auto = "auto",
    }
}

words! {
    /// How much of the definitions of tools a full list leaves out.
    pub enum Compact {
        /// Nothing.
        #[default]
        Off = "off",
        /// What models do not need: `$schema`, titles in schemas, examples, output schemas.
        Light = "light",
        /// The same as `light`, and the ends of long descriptions.
        Tight = "tight",
    }
}

/// How the tools are listed that a client may see.
///
/// ```
/// use mcp_host::config::{CatalogMode, CatalogSettings, HostSettings};
///
/// let mut catalog = CatalogSettings::default();
/// catalog.mode = CatalogMode::Search;
/// let host = HostSettings::default().catalog(catalog);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CatalogSettings {
    /// How tools are listed.
    pub mode: CatalogMode,
    /// How many tokens the definitions of a full list may have.
    pub budget: usize,
    /// How many tools a full list may have.
    pub max_tools: usize,
    /// Tools that are listed in `search` mode, too.
    pub always: Vec<Selector>,
    /// How much of the definitions a full list leaves out.
    pub compact: Compact,
    /// Globs over the names of clients with a tool search of their own: `auto` gives them the full list.
    pub native: Vec<String>,
    /// What scripts may do, in `code` mode.
    pub code: Code,
}

impl Default for CatalogSettings {
    fn default() -> Self {
        Self {
            mode: CatalogMode::Full,
            budget: 25_000,
            max_tools: 128,
            always: Vec::new(),
            compact: Compact::Off,
            native: ["claude-code*", "codex*"].map(str::to_owned).into(),
            code: Code::default(),
        }
    }
}

impl CatalogSettings {
    /// Reports whether lists are sent as servers wrote them.
    pub(crate) fn is_plain(&self) -> bool {
        self.mode == CatalogMode::Full && self.compact == Compact::Off
    }

    /// Reports whether a client with this name has a tool search of its own.
    pub(crate) fn is_native(&self, client: &str) -> bool {
        self.native.iter().any(|glob| is_match(glob, client))
    }

    fn read(&mut self, field: &Field<'_>, report: &mut Report) {
        let Some(mut fields) = field.fields(report) else { return };
        if let Some(field) = fields.take(&["mode"], report)
            && let Some(mode) = field.word(report)
            && (mode != CatalogMode::Code || code::is_built(&field, report))
        {
            self.mode = mode;
        }
        if let Some(budget) = fields.take(&["budget"], report).and_then(|field| tokens(&field, report)) {
            self.budget = budget;
        }
        if let Some(most) = fields.take(&["maxTools"], report).and_then(|field| field.positive_count(report)) {
            self.max_tools = most;
        }
        if let Some(field) = fields.take(&["always"], report) {
            self.always = selector::read(&field, report);
        }
        if let Some(compact) = fields.take(&["compact"], report).and_then(|field| field.word(report)) {
            self.compact = compact;
        }
        if let Some(field) = fields.take(&["native"], report) {
            self.native = field.texts(report);
        }
        if let Some(field) = fields.take(&["code"], report) {
            self.code.read(&field, report);
            self.code.check(&field, report);
        }
        refuse_rest(fields, &KEYS, report);
    }
}

/// Reads a number of tokens: `25000` or `"25k"`.
fn tokens(field: &Field<'_>, report: &mut Report) -> Option<usize> {
    let Some(text) = field.node.text() else { return field.positive_count(report) };
    let count = text.strip_suffix('k').and_then(|count| count.parse::<usize>().ok()?.checked_mul(1000));
    let count = count.or_else(|| text.parse().ok()).filter(|count| *count > 0);
    if count.is_none() {
        let message = format!("{} is not a number of tokens", field.quote(text));
        report.problem(field.at, &field.path, message).help("write it like 25000 or \"25k\"");
    }
    count
}

/// Reads `host.catalog`. It must be read before the views, which begin with it.
pub(super) fn fill(settings: &mut HostSettings, fields: &mut Fields<'_>, report: &mut Report) {
    if let Some(field) = fields.take(&["catalog"], report) {
        settings.catalog.read(&field, report);
    }
}

/// Reads `catalog` of a view. Settings that it does not give are those of `host.catalog`.
pub(super) fn of_view(host: &CatalogSettings, field: &Field<'_>, report: &mut Report) -> CatalogSettings {
    let mut own = host.clone();
    own.read(field, report);
    own
}

impl HostSettings {
    /// Sets how tools are listed.
    #[must_use]
    pub fn catalog(mut self, catalog: CatalogSettings) -> Self {
        self.catalog = catalog;
        self
    }

    /// Returns how tools are listed in the view with this name.
    pub(crate) fn catalog_of(&self, view: &str) -> &CatalogSettings {
        self.views.get(view).and_then(|view| view.catalog.as_ref()).unwrap_or(&self.catalog)
    }

    /// Reports whether any list differs from what servers wrote.
    pub(crate) fn has_catalogs(&self) -> bool {
        let of_views = self.views.values().filter_map(|view| view.catalog.as_ref());
        !of_views.chain([&self.catalog]).all(CatalogSettings::is_plain)
    }
}

impl Config {
    /// Returns a message for each view whose scripts can call no tool, because no tool is trusted to be read-only.
    ///
    /// ```
    /// assert!(mcp_host::Config::default().idle_scripts().is_empty());
    /// ```
    #[must_use]
    pub fn idle_scripts(&self) -> Vec<String> {
        let trusts = |server: &Server| server.trust_annotations || server.tools.trust_reads();
        if self.servers.iter().any(trusts) {
            return Vec::new();
        }
        let host = &self.host;
        let views = host.views.keys().map(String::as_str).chain([host.default_view.as_str()]);
        let views: BTreeSet<&str> = views.collect();
        let is_idle = |view: &&str| {
            let catalog = host.catalog_of(view);
            catalog.mode == CatalogMode::Code
                && catalog.code.tools == ScriptTools::Read
                && !host.tools_in(view).is_some_and(ToolRules::trust_reads)
        };
        let line = |view: &str| {
            format!(
                "view {view}: scripts can call no tool, because none is trusted to only read: write \"tools\": \"all\" in \
                 `code` of the catalog, or \"readOnlyHint\": true in `annotations` of tools"
            )
        };
        views.into_iter().filter(is_idle).map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Error, Syntax, Vars, parse_str};
    use super::*;

    #[cfg(all(unix, feature = "script"))]
    #[test]
    fn views_whose_scripts_can_call_nothing_are_told() {
        let idle = |host: &str, server: &str| {
            let text = format!(r#"{{ "mcpServers": {{ "a": {{ "command": "a", {server} }} }}, "host": {host} }}"#);
            parse_str(&text, Syntax::Json, "f.json", &Vars::default()).unwrap().idle_scripts().len()
        };
        let (nothing, trusts) = (r#""tags": []"#, r#""tools": { "x": { "annotations": { "readOnlyHint": true } } }"#);
        let code = r#"{ "catalog": { "mode": "code" } }"#;
        assert_eq!([idle(code, nothing), idle(code, trusts), idle("{}", nothing)], [1, 0, 0]);
        assert_eq!(idle(r#"{ "catalog": { "mode": "code", "code": { "tools": "all" } } }"#, nothing), 0);
        assert_eq!(idle(r#"{ "views": { "v": { "catalog": { "mode": "code" } } } }"#, nothing), 1);
    }

    fn read(host: &str) -> Result<Config, Error> {
        let text = format!("{{ \"mcpServers\": {{}},\n\"host\": {host} }}");
        parse_str(&text, Syntax::Json, "f.json", &Vars::default())
    }

    #[test]
    fn a_view_begins_with_what_the_host_says() {
        let host = read(
            r#"{ "catalog": { "mode": "search", "budget": "9k", "always": ["tag:x"] },
                 "views": { "a": { "catalog": { "mode": "full", "budget": 700 } }, "b": {} } }"#,
        );
        let host = host.unwrap().host;
        let (a, b) = (host.catalog_of("a"), host.catalog_of("b"));
        assert_eq!((a.mode, a.budget, a.always.len()), (CatalogMode::Full, 700, 1));
        assert_eq!((b.mode, b.budget), (CatalogMode::Search, 9000));
        assert!(host.has_catalogs() && !HostSettings::default().has_catalogs());
    }

    #[test]
    fn mistakes_are_told_with_what_to_write() {
        let error = read(
            r#"{ "catalog": { "mode": "script", "budget": "many", "maxTools": 0, "always": ["hint:x"], "compat": "light" } }"#,
        );
        insta::assert_snapshot!(error.unwrap_err(), @r#"
        f.json:2: host.catalog.mode: "script" is not one of full, search, code, auto
        f.json:2: host.catalog.budget: "many" is not a number of tokens
        f.json:2: host.catalog.maxTools: must be more than zero
        f.json:2: host.catalog.always[0]: "hint:x" is no selector
        f.json:2: host.catalog.compat: unknown key
        "#);
    }
}
