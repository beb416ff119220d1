//! Finds files of credentials in a text that does more than name them.

use super::Spot;
use super::words::{Word, is_only_told};

const WHAT: &str = "a file of credentials";

/// Parts of paths. None is the beginning of another.
const FILES: [&str; 27] = [
    ".ssh/",
    ".ssh\\",
    "id_rsa",
    "id_ed25519",
    "id_ecdsa",
    ".aws/credentials",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".kube/config",
    ".docker/config.json",
    ".gnupg/",
    ".config/gcloud",
    ".config/gh/hosts",
    ".azure/",
    ".vault-token",
    ".cursor/mcp.json",
    ".codeium/windsurf/mcp_config.json",
    "claude_desktop_config.json",
    "application_default_credentials",
    "/etc/passwd",
    "/etc/shadow",
    "/proc/self/environ",
    "login.keychain",
    "wallet.dat",
    ".bash_history",
];

/// Files that many tools name for good reasons, so they are reported only if a text does something with them.
const COMMON: [&str; 3] = [".env", "printenv", ".aws/config"];

/// Words by which a text accesses a file.
const TAKES: [&str; 34] = [
    "read", "reads", "reading", "cat", "send", "sends", "include", "pass", "upload", "content", "contents", "output",
    "repeat", "put", "copy", "attach", "append", "add", "collect", "extract", "give", "share", "forward", "post",
    "paste", "provide", "submit", "lies", "whole", "file", "key", "open", "load", "needs",
];

/// Words that speak against an access: they describe what a tool does with its own files.
const KEEPS: [&str; 12] = [
    "default",
    "defaults",
    "stored",
    "saved",
    "save",
    "write",
    "writes",
    "configured",
    "kubeconfig",
    "profile",
    "located",
    "looks",
];

pub(super) fn spots(text: &str, words: &[Word], found: &mut Vec<Spot>) {
    let lower = text.to_ascii_lowercase();
    let bytes = lower.as_bytes();
    let mut soft = None;
    for (at, _) in bytes.windows(2).enumerate().filter(|(_, pair)| may_begin(pair)) {
        let rest = &lower[at..];
        let Some((file, is_common)) = file(rest) else { continue };
        let range = at..at + file.len();
        if is_common && !is_whole(bytes, &range) {
            continue;
        }
        let hard = takes(text, words, range.start) && !is_only_told(text, words, &range);
        if hard {
            return found.push((WHAT, true, range));
        }
        if !is_common {
            soft.get_or_insert(range);
        }
    }
    found.extend(soft.map(|range| (WHAT, false, range)));
}

/// Reports whether a file may begin with these two bytes, so that most positions cost next to nothing.
fn may_begin(pair: &[u8]) -> bool {
    match pair[0] {
        b'.' => pair[1].is_ascii_alphabetic(),
        b'/' => matches!(pair[1], b'e' | b'p'),
        _ => matches!(pair, b"id" | b"cl" | b"ap" | b"lo" | b"wa" | b"pr"),
    }
}

fn file(rest: &str) -> Option<(&'static str, bool)> {
    let starts = |file: &&&'static str| rest.starts_with(**file);
    let certain = FILES.iter().find(starts).map(|file| (*file, false));
    certain.or_else(|| COMMON.iter().find(starts).map(|file| (*file, true)))
}

/// Reports whether a name stands alone: `.env`, but not `.environment` or `process.env`.
fn is_whole(bytes: &[u8], range: &std::ops::Range<usize>) -> bool {
    let before = range.start.checked_sub(1).map(|at| bytes[at]);
    let after = bytes.get(range.end).copied();
    !before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b')')
        && !after.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'.')
}

/// Reports whether the words around a file say that it is accessed.
fn takes(text: &str, words: &[Word], at: usize) -> bool {
    let here = words.partition_point(|word| word.range.end <= at);
    // The words of the path itself do not count.
    let end = text[at..].find(char::is_whitespace).map_or(text.len(), |length| at + length);
    let behind = words.partition_point(|word| word.range.start < end);
    let (before, after) = (&words[here.saturating_sub(10)..here], &words[behind..words.len().min(behind + 6)]);
    let has = |list: &[&str]| before.iter().chain(after).any(|word| list.contains(&&*word.text));
    // A command such as `cat` comes directly before its file.
    text[..at].trim_end_matches(['~', '/', '$']).ends_with("cat ") || has(&TAKES) && !has(&KEEPS)
}
