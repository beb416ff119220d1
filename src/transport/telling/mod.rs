//! Finds the stderr line that explains why a program failed; pure.
//!
//! That is rarely the last line: package runners and runtimes end with the path of their log, a hint, or their version.
//! So each line is weighed by its words, and known closing lines never count.

/// The explaining line, and the innermost of the causes listed below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Telling {
    line: usize,
    /// The cause: the index of its first line, and the index after its last line; its text may be wrapped.
    because: Option<(usize, usize)>,
}

impl Telling {
    /// Joins the line and its cause into one line; `text` returns the text of the line with that index.
    pub(super) fn of(self, text: impl Fn(usize) -> String) -> String {
        let head = squeeze(text(self.line).trim().trim_start_matches("× "));
        let head = head.trim_end_matches([':', '{', ' ']);
        let Some((from, to)) = self.because else { return head.to_owned() };
        let first = text(from);
        let first = cause(&first).unwrap_or_else(|| first.trim()).to_owned();
        let more =
            (from + 1..to).map(|index| text(index).trim_matches(|c: char| c.is_whitespace() || c == '│').to_owned());
        let because: Vec<String> = std::iter::once(first).chain(more).collect();
        format!("{head}: {}", squeeze(&because.join(" ")))
    }
}

/// Whether the chosen line comes from a package runner that could not get a package.
pub(super) fn is_of_a_package(told: &str) -> bool {
    const RUNNERS: &[&str] = &[
        "npm error",
        "npm ERR!",
        "No solution found when resolving",
        "error: No solution found when resolving",
        "Failed to fetch: ",
        "error: Failed to fetch: ",
        "ERROR: No matching distribution",
        "ERROR: Could not find a version",
    ];
    RUNNERS.iter().any(|head| told.starts_with(head))
}

/// How much a line explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    /// Logged at a level below warning.
    Quiet,
    Warning,
    /// Ordinary text.
    Plain,
    /// Mentions an error.
    Error,
    /// Says what is missing, refused, or wrong.
    Reason,
    /// Final words of a program: an uncaught exception, `error: …`.
    Fatal,
    /// An untrusted certificate. Later failures follow from it.
    Trust,
}

/// Returns the line that explains most; if several do, the last of them. Returns `None` if no line says anything.
pub(super) fn choose(lines: &[String]) -> Option<Telling> {
    let mut best: Option<(Weight, usize)> = None;
    let mut scene = Scene::Open;
    for (index, line) in lines.iter().enumerate() {
        let weight = scene.weigh(line);
        if let Some(weight) = weight.filter(|weight| best.is_none_or(|(best, _)| best <= *weight)) {
            best = Some((weight, index));
        }
    }
    let listed = || lines.iter().rposition(|line| cause(line).is_some_and(|cause| !cause.is_empty()));
    let line = best.map(|(_, line)| line).or_else(listed)?;
    Some(Telling { line, because: innermost(lines, line) })
}

/// How earlier lines affect the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scene {
    Open,
    /// Between the head of a Python traceback and its exception.
    Traceback,
    /// Right after the head of a Rust panic, whose message is on the next line.
    Panic,
    /// In a list of causes.
    Causes,
}

impl Scene {
    fn weigh(&mut self, line: &str) -> Option<Weight> {
        let before = std::mem::replace(self, Self::Open);
        let text = bare(line);
        let indented = line.starts_with([' ', '\t']);
        if text.starts_with("Traceback (most recent call last)") {
            *self = Self::Traceback;
            return None;
        }
        if text.starts_with("thread '") && text.contains(" panicked at ") && text.ends_with(':') {
            *self = Self::Panic;
            return None;
        }
        match before {
            Self::Traceback if indented || text.is_empty() => {
                *self = Self::Traceback;
                return None;
            }
            Self::Traceback | Self::Panic => return Some(Weight::Fatal),
            Self::Causes if indented => {
                *self = Self::Causes;
                return None;
            }
            Self::Causes | Self::Open => {}
        }
        if cause(line).is_some() {
            *self = Self::Causes;
            // Not weighed, even if it is about trust; it is found again as the innermost cause.
            return None;
        }
        weigh(line, text)
    }
}

fn weigh(line: &str, text: &str) -> Option<Weight> {
    if is_silent(line, text) {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if has(TRUST) {
        return Some(Weight::Trust);
    }
    let level = level(text);
    if level == Some(Level::Warning) || has(&["deprecationwarning", "experimentalwarning"]) {
        return Some(Weight::Warning);
    }
    if level == Some(Level::Quiet) {
        return Some(Weight::Quiet);
    }
    if is_exception(line) || is_last_word(&lower) {
        return Some(Weight::Fatal);
    }
    if level == Some(Level::Error) || has(REASONS) {
        return Some(Weight::Reason);
    }
    Some(if has(&["error", "exception", "fatal", "panic"]) { Weight::Error } else { Weight::Plain })
}

/// Phrases of untrusted certificates.
const TRUST: &[&str] = &[
    "certificate verify failed",
    "certificate_verify_failed",
    "invalid peer certificate",
    "self-signed certificate",
    "self signed certificate",
    "unable to get local issuer",
    "unable to verify the first certificate",
    "unknownissuer",
    "x509: certificate",
    "certificate has expired",
    "certificate is not yet valid",
];

/// Phrases that say what is missing, refused, or wrong.
const REASONS: &[&str] = &[
    "404",
    "401",
    "403",
    "not found",
    "cannot",
    "can't",
    "could not",
    "couldn't",
    "unable to",
    "no such",
    "no module named",
    "no matching",
    "no solution",
    "denied",
    "refused",
    "forbidden",
    "unauthorized",
    "not permitted",
    "not allowed",
    "not authorized",
    "failed",
    "failure",
    "missing",
    "required",
    "invalid",
    "unexpected",
    "unknown option",
    "unrecognized",
    "unsupported",
    "does not exist",
    "does not provide",
    "not installed",
    "not set",
    "must be set",
    "not defined",
    "expired",
    "timed out",
    "already in use",
    "out of memory",
    "segmentation fault",
    "exec format",
    "enoent",
    "eacces",
    "eperm",
    "econnrefused",
    "enotfound",
    "etimedout",
    "eaddrinuse",
    "err_",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Quiet,
    Warning,
    Error,
}

/// Returns the log level that a logger wrote before its message.
fn level(text: &str) -> Option<Level> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).take(12);
    words
        .into_iter()
        .find_map(|word| match word {
            "TRACE" | "DEBUG" | "INFO" | "NOTICE" => Some(Level::Quiet),
            "WARN" | "WARNING" => Some(Level::Warning),
            "ERROR" | "FATAL" | "CRITICAL" | "SEVERE" => Some(Level::Error),
            _ => None,
        })
        .or_else(|| {
            let first = text.split([' ', ':']).next().unwrap_or_default().to_ascii_lowercase();
            match first.as_str() {
                "info" | "[info]" | "debug" | "[debug]" => Some(Level::Quiet),
                "warn" | "[warn]" | "warning" | "[warning]" => Some(Level::Warning),
                "npm" if text.starts_with("npm warn ") || text.starts_with("npm WARN ") => Some(Level::Warning),
                _ => None,
            }
        })
}

/// Whether a runtime reports an uncaught exception: `TypeError: …`, `Error [ERR_X]: …`, `java.io.IOException: …` at the
/// beginning of a line.
fn is_exception(line: &str) -> bool {
    let line = npm(line).trim_start_matches("Uncaught ");
    let Some((head, rest)) = line.split_once(": ") else { return false };
    let name = head.split_once(" [").map_or(head, |(name, _)| name);
    let name = name
        .rsplit_once(' ')
        .filter(|(before, _)| before.starts_with("Exception in thread"))
        .map_or(name, |(_, name)| name);
    let is_name = name.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '$'));
    is_name && !rest.is_empty() && (name.ends_with("Error") || name.ends_with("Exception") || name == "panic")
}

/// Whether a program reports why it gives up: `error: …`, `fatal: …`, `prog: error: …`.
fn is_last_word(lower: &str) -> bool {
    let heads = ["error:", "fatal:", "fatal error:", "panic:", "error [", "err!", "× "];
    heads.iter().any(|head| lower.starts_with(head)) || lower.contains(": error: ") || lower.contains(": fatal: ")
}

/// Whether a line never explains anything: part of a stack trace or source code, or a closing line.
fn is_silent(line: &str, text: &str) -> bool {
    let indented = line.starts_with([' ', '\t']);
    // npm ends many of its own lines without any text.
    let is_npm = npm(line) != line;
    let text = if is_npm { text.strip_prefix("404").map_or(text, str::trim_start) } else { text };
    let empty = text.trim_matches(|c: char| !c.is_alphanumeric()).is_empty();
    empty
        || EPILOGUES.iter().any(|beginning| text.starts_with(beginning))
        || (is_npm && NPM.iter().any(|beginning| text.starts_with(beginning)))
        || is_of_a_stack(text)
        || is_property(text)
        // A source line, shown with a marker below it.
        || text.starts_with("throw ")
        || (indented && (text.starts_with("raise ") || text.contains("throw new ")))
        || (text.starts_with("Try '") && text.ends_with("for help."))
        || (text.starts_with("node:") && !text.starts_with("node: "))
}

/// Beginnings of closing and separating lines, which are never the reason.
const EPILOGUES: &[&str] = &[
    // Node and Bun.
    "Require stack:",
    "- /",
    "Node.js v",
    "Bun v",
    "(Use `node --trace",
    // npm and npx, also where the line lacks their name.
    "A complete log of this run",
    "Note that you can also install",
    "tarball, folder, http url",
    "If you are behind a proxy",
    "npm notice",
    // uv, uvx and pip.
    "hint:",
    "help:",
    "note:",
    "Installed ",
    "Resolved ",
    "Prepared ",
    "Audited ",
    "[notice]",
    "[end of output]",
    "For more information",
    // docker.
    "Run 'docker",
    "See 'docker",
    "Status: Downloaded",
    "Digest: ",
    // Python.
    "File \"",
    "During handling of the above exception",
    "The above exception was the direct cause",
    "sys:1:",
    // Go, Rust, Java.
    "goroutine ",
    "exit status ",
    "stack backtrace:",
    "Stack backtrace:",
    "... ",
];

/// Beginnings of the text after `npm error` in lines that only repeat the error in fewer words.
const NPM: &[&str] = &[
    "code ",
    "errno ",
    "syscall ",
    "path ",
    "dest ",
    "This is related to npm not being able to find a file",
    "'proxy' config is set properly",
];

/// Whether a line is a stack frame: `at main (/srv/index.js:3:9)`, or the location alone: `/srv/index.js:3`.
fn is_of_a_stack(text: &str) -> bool {
    let text = text.trim_end_matches([' ', '{']);
    let ends = text.rsplit_once(':').is_some_and(|(_, end)| !end.is_empty() && end.bytes().all(|b| b.is_ascii_digit()));
    match text.strip_prefix("at ") {
        Some(_) => ends || text.ends_with(')'),
        None => ends && text.contains(['/', '[']) && !text.contains(char::is_whitespace) && !text.contains("http"),
    }
}

/// Whether a line is a property of an error as Node prints it: `code: 'ENOENT',`.
fn is_property(text: &str) -> bool {
    let Some((name, value)) = text.split_once(": ") else { return false };
    let value = value.trim_end_matches(',');
    let literal = (value.starts_with('\'') && value.ends_with('\''))
        || (value.starts_with('[') && value.ends_with(']'))
        || value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    literal
        && matches!(
            name,
            "code" | "errno" | "syscall" | "address" | "port" | "path" | "type" | "requireStack" | "hostname"
        )
}

/// Returns the text of a cause that is listed below an error: empty if the line only begins such a list, `None` if it
/// is another line.
fn cause(line: &str) -> Option<&str> {
    let text = line.trim_start_matches(|c: char| c.is_whitespace() || "╰├─▶│".contains(c));
    let listed = text.len() < line.len() && line.contains('▶');
    ["cause: ", "Caused by:", "[cause]: "]
        .iter()
        .find_map(|head| text.strip_prefix(head))
        .map(str::trim)
        .or(listed.then_some(text))
}

/// Returns the innermost of the causes that follow an error: the index of its first line, and the index after its last.
fn innermost(lines: &[String], from: usize) -> Option<(usize, usize)> {
    let (mut found, mut listing) = (None, false);
    for (index, line) in lines.iter().enumerate().skip(from + 1) {
        let indented = line.starts_with([' ', '\t']);
        let silent = is_silent(line, bare(line));
        match (cause(line), &mut found) {
            (Some(""), _) => listing = true,
            (Some(_), _) => (found, listing) = (Some((index, index + 1)), false),
            (None, _) if listing && indented && !silent => found = Some((index, index + 1)),
            // Causes in lists drawn with box characters are wrapped.
            (None, Some((first, end))) if indented && !silent && *end == index && lines[*first].contains('▶') => {
                *end = index + 1;
            }
            (None, _) if silent || indented => {}
            (None, _) => break,
        }
    }
    found
}

/// Removes the prefix that a program puts before each of its lines.
fn bare(line: &str) -> &str {
    let line = npm(line).trim();
    line.strip_prefix("× ").unwrap_or(line)
}

fn npm(line: &str) -> &str {
    ["npm error", "npm ERR!"].iter().find_map(|head| line.strip_prefix(head)).map_or(line, str::trim_start)
}

/// Collapses whitespace to single spaces.
fn squeeze(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
