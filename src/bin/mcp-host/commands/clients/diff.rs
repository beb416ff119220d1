//! Shows how an edit changes a file: the changed lines, with a few lines around them, and without values that may be
//! secret.

use mcp_host::config::edit;

use crate::compare::{Step, steps};
use crate::text;

/// How many unchanged lines are shown around changed ones.
const AROUND: usize = 2;
/// How many characters of a line are shown, because some files consist of one line.
const WIDTH: usize = 160;

/// Returns the changed lines as `- old` and `+ new`, with unchanged lines around them.
pub(super) fn shown(before: &str, now: &str) -> Vec<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), now.lines().collect());
    let (old_shown, new_shown) = (edit::masked(before), edit::masked(now));
    let steps = steps(&old, &new);
    let differs: Vec<usize> = (0..steps.len()).filter(|at| !matches!(steps[*at], Step::Same(_))).collect();
    let is_near = |at: usize| {
        let next = differs.partition_point(|differs| *differs < at);
        let near = |differs: Option<&usize>| differs.is_some_and(|differs| differs.abs_diff(at) <= AROUND);
        near(differs.get(next)) || near(next.checked_sub(1).and_then(|before| differs.get(before)))
    };
    let (mut lines, mut is_cut) = (Vec::new(), false);
    for (at, step) in steps.iter().enumerate() {
        if !is_near(at) {
            if !std::mem::replace(&mut is_cut, true) && !lines.is_empty() {
                lines.push("  …".to_owned());
            }
            continue;
        }
        is_cut = false;
        let (sign, line) = match *step {
            Step::Same(at) => (' ', new_shown.get(at)),
            Step::Gone(at) => ('-', old_shown.get(at)),
            Step::New(at) => ('+', new_shown.get(at)),
        };
        let line = text::line(line.map_or("", String::as_str)).into_owned();
        lines.push(format!("{sign} {}", text::cut(&line, WIDTH)).trim_end().to_owned());
    }
    if lines.last().is_some_and(|last| last == "  …") {
        lines.pop();
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_shown_and_no_secret() {
        let before = "{\n  \"a\": 1,\n  \"b\": 2,\n  \"c\": 3,\n  \"mcpServers\": {\n    \"x\": { \"command\": \"x\" }\n  },\n  \"d\": 4,\n  \"e\": 5\n}\n";
        let entry = "\"y\": { \"url\": \"https://a.example/mcp\", \"headers\": { \"X\": \"hunter2\" } }";
        let now = before
            .replace("\"x\": { \"command\": \"x\" }\n", &format!("\"x\": {{ \"command\": \"x\" }},\n    {entry}\n"));
        let wanted = [
            "    \"mcpServers\": {",
            "-     \"x\": { \"command\": \"x\" }",
            "+     \"x\": { \"command\": \"x\" },",
            "+     \"y\": { \"url\": \"https://a.example/mcp\", \"headers\": { \"X\": \"***\" } }",
            "    },",
        ];
        assert_eq!(shown(before, &now)[1..6], wanted);
        assert_eq!(shown(before, before), [""; 0]);
        assert_eq!(
            shown("", "[mcp_servers.mcp-host]\nurl = \"http://a\"\n"),
            ["+ [mcp_servers.mcp-host]", "+ url = \"http://a\""]
        );
    }
}
