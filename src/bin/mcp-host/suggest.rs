//! Suggests names that a shell can complete: servers from the config files, tools and the like from a running daemon.
//!
//! The options' parsers come from clap; `completion.rs` answers the shell. **Invariant:** a suggestion starts no
//! server, takes only a moment, and prints nothing if it fails.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use mcp_host::admin;
use mcp_host::config::{LoadRequest, clients, edit};
use mcp_host::edits;
use mcp_host::registry::Kind;

/// How long a shell waits for names from a daemon.
const DAEMON: Duration = Duration::from_millis(50);
/// How long a shell waits for names from files, which may be on a slow disk.
const FILES: Duration = Duration::from_millis(500);

/// Suggests servers of the config.
pub(crate) fn servers() -> ArgValueCandidates {
    ArgValueCandidates::new(|| candidates(of_files()))
}

/// Suggests tools that a running daemon has.
pub(crate) fn tools() -> ArgValueCandidates {
    ArgValueCandidates::new(|| candidates(of_daemon(&[Kind::Tools])))
}

/// Suggests servers of the config, and tools that a running daemon has.
pub(crate) fn servers_and_tools() -> ArgValueCandidates {
    ArgValueCandidates::new(|| candidates(of_files().into_iter().chain(of_daemon(&[Kind::Tools])).collect()))
}

/// Suggests prompts that a running daemon has.
pub(crate) fn prompts() -> ArgValueCandidates {
    ArgValueCandidates::new(|| candidates(of_daemon(&[Kind::Prompts])))
}

/// Suggests resources that a running daemon has.
pub(crate) fn resources() -> ArgValueCandidates {
    ArgValueCandidates::new(|| candidates(of_daemon(&[Kind::Resources])))
}

/// Suggests the clients that are known.
pub(crate) fn known_clients() -> ArgValueCandidates {
    ArgValueCandidates::new(|| candidates(clients::ALL.iter().map(|client| client.id.to_owned()).collect()))
}

/// Leaves out names that a shell would not take as one plain word, because servers choose the names.
fn candidates(names: Vec<String>) -> Vec<CompletionCandidate> {
    let is_plain = |name: &String| {
        !name.is_empty() && !name.starts_with('-') && name.chars().all(|c| c.is_alphanumeric() || "_-./:@+".contains(c))
    };
    names.into_iter().filter(is_plain).map(CompletionCandidate::new).collect()
}

fn of_files() -> Vec<String> {
    within(FILES, || {
        let mut request = LoadRequest::from_process();
        request.files = named_files(std::env::args_os());
        let Ok(files) = request.found() else { return Vec::new() };
        let names = |file: &PathBuf| {
            let text = edits::read(file).ok().flatten().unwrap_or_default();
            edit::names(&text, file, &request)
        };
        files.iter().flat_map(names).collect()
    })
}

fn of_daemon(kinds: &'static [Kind]) -> Vec<String> {
    within(DAEMON, move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
            return Vec::new();
        };
        let owners = runtime.block_on(async { tokio::time::timeout(DAEMON, admin::owners(None)).await });
        let Ok(Ok(owners)) = owners else { return Vec::new() };
        kinds.iter().flat_map(|kind| owners.names(*kind)).map(str::to_owned).collect()
    })
}

/// Looks names up in a thread of its own, and gives up after `limit`.
fn within(limit: Duration, look: impl FnOnce() -> Vec<String> + Send + 'static) -> Vec<String> {
    let (tell, told) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().spawn(move || drop(tell.send(look())));
    thread.ok().and_then(|_| told.recv_timeout(limit).ok()).unwrap_or_default()
}

/// Returns the files after `--config` on the line that is being typed.
fn named_files(words: impl Iterator<Item = OsString>) -> Vec<PathBuf> {
    let mut words = words.map(|word| word.to_string_lossy().into_owned());
    let mut files = Vec::new();
    while let Some(word) = words.next() {
        if word == "--config" || word == "-c" {
            files.extend(words.next());
        } else if let Some(file) = word.strip_prefix("--config=") {
            files.push(file.to_owned());
        }
    }
    let home = std::env::var("HOME").unwrap_or_default();
    let whole = |file: String| match file.strip_prefix("~/") {
        Some(rest) => PathBuf::from(&home).join(rest),
        None => PathBuf::from(file),
    };
    files.into_iter().filter(|file| !file.is_empty()).map(whole).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_line_are_read() {
        let words = |line: &str| named_files(line.split(' ').map(OsString::from));
        assert_eq!(words("mcp-host get --config a.json -c b.toml"), [PathBuf::from("a.json"), PathBuf::from("b.toml")]);
        assert_eq!(words("mcp-host --config=a.json get x"), [PathBuf::from("a.json")]);
        assert!(words("mcp-host get --config").is_empty());
    }

    #[test]
    fn only_plain_words_are_suggested() {
        let names = ["files", "a b", "$(id)", "-x", "files__read", "ui://a/b", "é", "a\nb", ""].map(str::to_owned);
        let shown: Vec<_> = candidates(names.to_vec()).iter().map(|it| it.get_value().to_owned()).collect();
        assert_eq!(shown, ["files", "files__read", "ui://a/b", "é"]);
    }
}
