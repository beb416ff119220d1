//! The life of a guard: it follows its host and cleans up after it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::time::{Duration, Instant};

use super::sweep::{self, Group, Which};

/// Runs until the host is gone and all its children have ended.
pub(super) fn run(host: &str) {
    // Ctrl-C and hangup from the terminal are for the host, which decides about its servers while it lives.
    let _ = rustix::process::setsid();
    sweep::name_this_process("mcp-host-guard");
    // If the host is gone already, this is the start time of the process that adopted us: the first process, the oldest
    // of all.
    let since = rustix::process::getppid().and_then(|host| sweep::started(host.as_raw_pid())).unwrap_or_default();
    let children = listen(host, since);
    let unsure = children.values().any(Option::is_none);
    let groups: Vec<Group> = children.into_values().flatten().collect();
    for group in &groups {
        group.kill();
    }
    let which = Which { marks: &[format!("{host}.")], groups: &groups, since };
    if unsure || !groups.is_empty() {
        clear(&which, &SETTLING);
    } else {
        clear(&which, &[Duration::ZERO]);
    }
}

/// Follows the host's reports until it is gone; returns the children that remain.
fn listen(host: &str, since: u64) -> BTreeMap<u64, Option<Group>> {
    let mut children = BTreeMap::new();
    let (mut buffer, mut rest) = ([0u8; 16 * 1024], Vec::new());
    let mut input = std::io::stdin().lock();
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return children,
            Ok(count) => rest.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => return children,
        }
        let whole = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines: Vec<u8> = rest.drain(..whole).collect();
        let mut ended = BTreeSet::new();
        for line in String::from_utf8_lossy(&lines).lines() {
            let mut words = line.split(' ');
            let (what, number) = (words.next(), words.next().and_then(|number| number.parse::<u64>().ok()));
            match (what, number) {
                (Some("?"), Some(number)) => drop(children.insert(number, None)),
                (Some("+"), Some(number)) => {
                    let group = words.next().and_then(|group| Group::led_by(group.parse().ok()?));
                    children.insert(number, group);
                }
                (Some("-"), Some(number)) => {
                    children.remove(&number);
                    ended.insert(number);
                }
                _ => {}
            }
        }
        // The host has ended the child's group; processes that left the group are ended here.
        if !ended.is_empty() {
            let marks: Vec<_> = ended.iter().map(|number| format!("{host}.{number} ")).collect();
            clear(&Which { marks: &marks, groups: &[], since }, &[Duration::ZERO]);
        }
    }
}

/// Scans and kills until as many scans in a row as there are `pauses` find nothing.
fn clear(which: &Which<'_>, pauses: &[Duration]) {
    let begun = Instant::now();
    let mut quiet = 0;
    let mut pause = pauses[0];
    while quiet < pauses.len() && begun.elapsed() < PATIENCE {
        #[expect(clippy::disallowed_methods, reason = "this process has one thread and nothing else to do")]
        std::thread::sleep(pause);
        quiet = if sweep::kill(which) == 0 { quiet + 1 } else { 0 };
        pause = pauses.get(quiet).copied().unwrap_or_default().max(DYING);
    }
}

/// The pauses between scans. A child between `fork` and the end of `exec` shows no mark yet; on a busy machine that may
/// take a while.
const SETTLING: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(10), Duration::from_millis(40), Duration::from_millis(100)];
/// How long a killed process may take to disappear before the next scan.
const DYING: Duration = Duration::from_millis(2);
/// How long to go on: a process that is not dead by then cannot be killed.
const PATIENCE: Duration = Duration::from_secs(5);
