//! `host.threads`: how many threads serve connections of clients.

use super::super::fields::Fields;
use super::super::report::Report;
use super::HostSettings;
#[cfg(feature = "server")]
use crate::threads;
use crate::threads::MOST;

#[cfg(feature = "server")]
impl HostSettings {
    /// Returns how many threads serve connections, with `auto` resolved for this machine.
    pub(crate) fn thread_count(&self) -> usize {
        self.threads.unwrap_or_else(threads::usual)
    }
}

const HELP: &str = "write a number such as 2, or \"auto\" for one thread a core";

/// Reads `threads`.
pub(super) fn fill(settings: &mut HostSettings, fields: &mut Fields<'_>, report: &mut Report) {
    let Some(field) = fields.take(&["threads"], report) else { return };
    if let Some(text) = field.node.text() {
        if text == "auto" {
            settings.threads = None;
        } else if let Some(text) = field.text(report) {
            let problem = report.problem(field.at, &field.path, format!("{} is not a number", field.quote(text)));
            problem.help(HELP);
        }
        return;
    }
    match field.count(report) {
        Some(count @ 1..=MOST) => settings.threads = Some(count),
        Some(count) => {
            let problem = report.problem(field.at, &field.path, format!("{count} is not between 1 and {MOST}"));
            problem.help(HELP);
        }
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Syntax, parse_str};
    use crate::config::vars::Vars;

    fn read(threads: &str) -> Result<Option<usize>, String> {
        let text = format!(r#"{{ "host": {{ "threads": {threads} }} }}"#);
        let config = parse_str(&text, Syntax::Json, "f.json", &Vars::default());
        config.map(|config| config.host.threads).map_err(|error| error.to_string())
    }

    #[test]
    fn it_is_a_number_or_auto() {
        assert_eq!([read("1"), read("32"), read(r#""auto""#)], [Ok(Some(1)), Ok(Some(32)), Ok(None)]);
        let wrong = ["0", "33", "1.5", "true", r#""two""#].map(|threads| read(threads).unwrap_err());
        insta::assert_snapshot!(wrong.join("\n"), @r#"
        f.json:1: host.threads: 0 is not between 1 and 32
        f.json:1: host.threads: 33 is not between 1 and 32
        f.json:1: host.threads: 1.5 is not a whole number
        f.json:1: host.threads: expected a whole number, found a boolean
        f.json:1: host.threads: "two" is not a number
        "#);
    }
}
