//! Output without what differs from run to run: paths, ports, process ids, times.

/// Replaces hidden texts, then process ids and measured times. Those appear in tables and behind dots; others stay.
pub(super) fn plain(text: &str, hidden: &[(String, String)]) -> String {
    let mut text = text.to_owned();
    for (from, to) in hidden {
        text = text.replace(from, to);
    }
    for word in ["process ", "pid "] {
        text = numbers_after(&text, word);
    }
    let text = undated(&text);
    let lines: Vec<String> = text.lines().map(timeless).collect();
    lines.join("\n")
}

/// Removes what a server wrote: the line that says why it ended, and its last lines.
pub(super) fn without_words_of_servers(text: &str) -> String {
    const THEIRS: &str = "(its words)";
    let (mut shown, mut is_theirs) = (Vec::new(), false);
    for line in text.lines() {
        if is_theirs && line.starts_with("  ") {
            continue;
        }
        is_theirs = line.ends_with(" wrote to standard error:");
        let ours = line.find("the process ended (").and_then(|at| Some(at + line[at..].find("): ")? + "): ".len()));
        shown.push(ours.map_or_else(|| line.to_owned(), |end| format!("{}{THEIRS}", &line[..end])));
        if is_theirs {
            shown.push(format!("  {THEIRS}"));
        }
    }
    shown.join("\n")
}

/// `process 4711` becomes `process PID`.
fn numbers_after(text: &str, word: &str) -> String {
    let mut parts = text.split(word);
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        shown.push_str(word);
        shown.push_str(if rest.len() < part.len() { "PID" } else { "" });
        shown.push_str(rest);
    }
    shown
}

/// `2026-11-23T14:05:59Z` becomes `DATE`, in any notation.
fn undated(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("20") {
        let stamp = &rest[at..];
        let is_date = stamp.get(..11).is_some_and(|date| {
            let pattern = date.chars().map(|c| if c.is_ascii_digit() { '0' } else { c });
            pattern.eq("0000-00-00T".chars())
        });
        let end = match is_date {
            true => stamp.find(|c: char| !c.is_ascii_digit() && !"-:_.TZ".contains(c)).unwrap_or(stamp.len()),
            false => 2,
        };
        shown.push_str(&rest[..at]);
        let digits = stamp[..end].trim_end_matches(['-', '.', ':', '_']).len();
        shown.push_str(if is_date { "DATE" } else { &stamp[..2] });
        rest = &stamp[if is_date { digits } else { 2 }..];
    }
    shown + rest
}

/// `12 ms` and `1.4 s` become `TIME`; the padding behind them, and behind their headings, becomes two blanks.
fn timeless(line: &str) -> String {
    let mut shown = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        shown.push_str(&rest[..at]);
        let begins = shown.is_empty() || shown.ends_with("  ") || shown.ends_with("· ");
        rest = &rest[at..];
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let unit = ["ms", "s", "min", "h"].into_iter().find_map(|unit| {
            let behind = rest[number..].strip_prefix(' ')?.strip_prefix(unit)?;
            (!behind.starts_with(char::is_alphanumeric)).then_some(behind)
        });
        match unit.filter(|_| begins) {
            Some(behind) => {
                shown.push_str("TIME");
                rest = padding(behind);
                shown.push_str(if rest.len() + 1 < behind.len() { "  " } else { &behind[..behind.len() - rest.len()] });
            }
            None => {
                shown.push_str(&rest[..number]);
                rest = &rest[number..];
            }
        }
    }
    shown.push_str(rest);
    for heading in ["SINCE", "TIME", "AGE"] {
        if let Some(at) = shown.find(&format!("{heading}  ")) {
            let behind = at + heading.len();
            shown = format!("{}  {}", &shown[..behind], shown[behind..].trim_start());
        }
    }
    shown
}

fn padding(text: &str) -> &str {
    text.trim_start_matches(' ')
}

#[test]
fn what_differs_is_taken_out() {
    let hidden = [("/tmp/x1".to_owned(), "~".to_owned())];
    let shown = plain("SINCE    STATE\n1.4 s    ok in /tmp/x1\n230 ms  process 47, 5 s at most · 12 ms", &hidden);
    assert_eq!(plain("at 2026-11-23T14_05_59_608Z-debug, 2026-11-23", &[]), "at DATE-debug, 2026-11-23");
    let said = "s: the process ended (exit code 1): a\ns wrote to standard error:\n  a\n  b\nend";
    let ours = "s: the process ended (exit code 1): (its words)\ns wrote to standard error:\n  (its words)\nend";
    assert_eq!(without_words_of_servers(said), ours);
    assert_eq!(shown, "SINCE  STATE\nTIME  ok in ~\nTIME  process PID, 5 s at most · TIME");
}
