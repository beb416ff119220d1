//! Children that misbehave: H1 to H18, as far as pipes and processes are concerned.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::cell::RefCell;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::*;
use crate::config::Stdio;
use crate::protocol::{Frame, Message, Method, Raw, RequestId};

/// A child and both ends of its pipes.
struct Child {
    pipe: Pipe,
    reader: PipeReader,
    tail: StderrTail,
}

const CAP: usize = 256 * 1024;

fn start(command: &str, args: &[&str]) -> Child {
    let stdio = Stdio {
        command: command.to_owned(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        ..Stdio::default()
    };
    let (tail, limits) =
        (StderrTail::default(), Limits { message: CAP, queue: 4 * CAP, depth: crate::protocol::DEPTH });
    let (pipe, reader) = spawn(&stdio, &limits, "test".into(), tail.clone(), &TaskTracker::new()).unwrap();
    Child { pipe, reader, tail }
}

fn sh(script: &str) -> Child {
    start("sh", &["-c", script])
}

/// A child that prints exactly this.
fn says(text: &[u8]) -> Child {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let (_, path) = file.keep().unwrap();
    start("sh", &["-c", r#"cat "$0"; rm "$0"; sleep 60"#, path.to_str().unwrap()])
}

fn ladder(close: u64, terminate: u64) -> Ladder {
    let (close, terminate) = (Duration::from_millis(close), Duration::from_millis(terminate));
    Ladder { close, terminate, kill: CancellationToken::new() }
}

impl Child {
    /// Returns the ids of its answers; broken ones in parentheses.
    async fn heard(&mut self, count: usize) -> String {
        let mut said = Vec::new();
        while said.len() < count {
            said.push(match self.reader.next().await.unwrap() {
                Heard::Message(Message::Response(response)) => response.id.unwrap().to_string(),
                Heard::Message(Message::Notification(notice)) => {
                    notice.params.unwrap().member("n").unwrap().to_string()
                }
                Heard::Message(Message::Request(request)) => format!("{}?", request.id),
                // A possible batch is not decided here.
                Heard::Batch(..) => continue,
                Heard::Broken(id, error) => format!("({id}: {error})"),
            });
        }
        said.join(" ")
    }

    /// Returns the number in its next notification.
    async fn number(&mut self) -> i32 {
        self.heard(1).await.parse().unwrap()
    }

    async fn end(mut self) -> Error {
        loop {
            if let Err(error) = self.reader.next().await {
                self.reader.stop(ladder(0, 0)).await;
                return error;
            }
        }
    }
}

fn request(id: u64, size: usize) -> Frame {
    let params = Raw::from_value(&serde_json::json!({ "x": "x".repeat(size) }));
    Frame::request(&RequestId::Number(id as i64), &Method::ToolsCall, Some(&params))
}

/// Whether a process exists and is not a zombie.
fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    let there = rustix::process::test_kill_process(rustix::process::Pid::from_raw(pid).unwrap()).is_ok();
    there && !stat.is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z")))
}

async fn wait_gone(pid: i32) {
    let gone = async {
        while is_alive(pid) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), gone).await.unwrap_or_else(|_| panic!("{pid} is alive"));
}

thread_local! {
    /// The target whose log records are counted on this thread, and their number.
    static COUNTED: RefCell<Option<(&'static str, Arc<AtomicUsize>)>> = const { RefCell::new(None) };
}

/// Counts the log records of one target on this thread.
///
/// It is the subscriber of the whole process: `tracing` asks only the registering thread's subscriber about a new
/// callsite if the process has just one, and turns the callsite off for all threads if that thread has none.
struct LogCounter;

impl LogCounter {
    /// Returns the count. The counting ends with the thread.
    fn of(target: &'static str) -> Arc<AtomicUsize> {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            tracing::subscriber::set_global_default(Self).unwrap();
            // A callsite that was met between the two steps of the call above is off.
            tracing::callsite::rebuild_interest_cache();
        });
        let count = Arc::<AtomicUsize>::default();
        COUNTED.set(Some((target, count.clone())));
        count
    }
}

impl tracing::Subscriber for LogCounter {
    fn register_callsite(&self, _: &'static tracing::Metadata<'static>) -> tracing::subscriber::Interest {
        tracing::subscriber::Interest::sometimes()
    }
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        COUNTED.with_borrow(|counted| counted.as_ref().is_some_and(|(target, _)| metadata.target() == *target))
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        COUNTED.with_borrow(|counted| {
            if let Some((_, count)) = counted {
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// A shell function that reports a number.
const TELL: &str = r#"tell() { printf '{"jsonrpc":"2.0","method":"n","params":{"n":%d}}\n' "$1"; };"#;

#[tokio::test]
async fn h1_answers_arrive_between_noise() {
    let noise: [&[u8]; 20] = [
        b"",
        b"   ",
        b"\r",
        b"Server started",
        b"\x1b[32mready\x1b[0m",
        b"[1,2]",
        b"{}",
        b"null",
        b"42",
        b"\"text\"",
        b"\xef\xbb\xbf",
        b"\x00\x01\x02",
        b"\xff\xfe",
        b"{\"broken\":1",
        b"{'id': 1}",
        b"data: {}",
        b"Content-Length: 5",
        b"{\"jsonrpc\":\"2.0\"}",
        b"{\"jsonrpc\":\"1.0\",\"method\":\"x\"}",
        b"true false",
    ];
    let mut text = Vec::new();
    for (number, noise) in noise.iter().enumerate() {
        text.extend_from_slice(noise);
        text.extend_from_slice(
            format!("\n{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{}}}}\r\n", 100 + number).as_bytes(),
        );
    }
    let mut child = says(&text);
    let want: Vec<String> = (100..120).map(|id: u64| id.to_string()).collect();
    assert_eq!(child.heard(20).await, want.join(" "));
    child.reader.stop(ladder(0, 0)).await;
}

#[tokio::test]
async fn h1_noise_is_told_once_and_the_rest_at_the_end() {
    let told = LogCounter::of("mcp_host::transport::noise");
    let mut child =
        sh(&format!("{TELL} n=0; while n=$((n + 1)); do yes noise | head -n 20; tell $n; read -r line; done"));
    assert_eq!(child.number().await, 1);
    // The child waits now, so only its log line can come.
    while told.load(Ordering::SeqCst) == 0 {
        let _elapsed = tokio::time::timeout(Duration::from_millis(100), child.reader.next()).await.unwrap_err();
    }
    child.pipe.request(1, request(1, 1)).unwrap();
    assert_eq!((child.number().await, told.load(Ordering::SeqCst)), (2, 1), "an hour has not passed");
    child.reader.stop(ladder(0, 0)).await;
    assert_eq!(told.load(Ordering::SeqCst), 2, "at the end the rest is told");
}

#[tokio::test]
async fn h3_an_answer_over_the_cap_fails_its_call_alone() {
    let large = "a".repeat(CAP);
    let text = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{{\"text\":\"{large}\"}}}}\n{{\"jsonrpc\":\"2.0\",\"result\":\"{large}\",\"id\":8}}\n{{\"jsonrpc\":\"2.0\",\"id\":9,\"result\":{{}}}}\n"
    );
    let mut child = says(text.as_bytes());
    assert_eq!(child.heard(2).await, format!("(7: {}) 9", Error::TooLarge(CAP)));
    child.reader.stop(ladder(0, 0)).await;
}

#[tokio::test]
async fn h3_a_line_without_end_ends_the_child() {
    let child = sh("tr '\\0' a </dev/zero");
    let pid = child.pipe.pid().unwrap() as i32;
    assert_eq!(child.end().await, Error::TooLarge(CAP));
    assert!(!is_alive(pid));
}

#[tokio::test]
async fn h4_what_is_no_text_fails_the_call_it_answers() {
    let mut child = says(
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\xff\"}\n\xff\xff\n{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n",
    );
    assert_eq!(child.heard(2).await, "(1: not JSON: invalid UTF-8 at byte 34) 2");
    child.reader.stop(ladder(0, 0)).await;
}

#[tokio::test]
async fn h38_what_nests_deeper_than_the_limit_fails_its_call_alone() {
    let answer = |id: u64, depth: usize| {
        let (open, close) = ("[".repeat(depth - 2), "]".repeat(depth - 2));
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"x":{open}{close}}}}}"#)
    };
    let (most, more) = (answer(1, crate::protocol::DEPTH), answer(2, crate::protocol::DEPTH + 1));
    let mut child = says(format!("{most}\n{more}\n{}\n", answer(3, 3)).as_bytes());
    let heard = child.heard(3).await;
    assert!(heard.starts_with("1 (2: ") && heard.ends_with(") 3"), "{heard}");
    child.reader.stop(ladder(0, 0)).await;
}

#[tokio::test]
async fn h5_a_flood_on_standard_error_blocks_nothing() {
    let mut child =
        sh(r#"head -c 67108864 /dev/zero | tr '\0' e >&2; echo '{"jsonrpc":"2.0","id":1,"result":{}}'; sleep 60"#);
    assert_eq!(child.heard(1).await, "1");
    child.reader.stop(ladder(0, 0)).await;
    assert!(child.tail.bytes() <= 8 * 1024, "one line, {} bytes", child.tail.bytes());

    let mut child = sh(&format!("{TELL} seq 1 5000 >&2; tell 1; sleep 60"));
    assert_eq!(child.number().await, 1);
    while child.tail.last().as_deref() != Some("5000") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(child.tail.lines(), 200);
    child.reader.stop(ladder(0, 0)).await;
}

#[tokio::test]
async fn h5_of_standard_error_a_hundred_lines_a_second_are_told() {
    let told = LogCounter::of("mcp_host::stderr");
    let begun = Instant::now();
    let child = sh("seq 1 20000 >&2; sleep 60");
    while child.tail.last().as_deref() != Some("20000") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (told, seconds) = (told.load(Ordering::SeqCst), begun.elapsed().as_secs() as usize);
    assert!((100..=100 * (seconds + 2)).contains(&told), "{told} in {seconds} s");
    child.reader.stop(ladder(0, 0)).await;
}

#[tokio::test]
async fn h6_a_child_that_reads_nothing_fills_its_own_queue_alone() {
    let child = sh("exec sleep 60");
    let mut refused = 0;
    for id in 0..10_000 {
        match child.pipe.request(id, request(id, 1024)) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error, Error::Overloaded(4 * CAP));
                refused += 1;
            }
        }
    }
    // Nothing has been awaited: no call waits for the child.
    assert!(refused > 8_000, "{refused} of 10000 were refused");
    child.reader.stop(ladder(0, 0)).await;
}

/// Neither direction waits for the other: the child's output is read while it reads nothing.
#[tokio::test]
async fn h6_race_10_both_pipes_are_full() {
    let mut child = sh(r#"seq -f '{"jsonrpc":"2.0","id":%g,"result":{}}' 1 20000; exec sleep 60"#);
    let mut id = 0;
    while child.pipe.request(id, request(id, 1024)).is_ok() {
        id += 1;
    }
    for expected in 1..=20_000 {
        assert_eq!(child.number().await, expected);
    }
    child.reader.stop(ladder(0, 0)).await;
}

#[tokio::test(start_paused = true)]
async fn h6_a_write_that_is_stuck_is_a_loss() {
    let child = sh("exec sleep 600");
    let before = tokio::time::Instant::now();
    child.pipe.request(1, request(1, CAP)).unwrap();
    assert_eq!(child.end().await, Error::Deaf);
    assert!((29..32).contains(&before.elapsed().as_secs()), "{:?}", before.elapsed());
}

#[tokio::test]
async fn h6_a_child_that_closes_its_input_is_a_loss() {
    let child = sh(r#"exec <&-; exec sleep 60"#);
    // Until it has closed it, writes fit into the pipe.
    let writing = async {
        while child.pipe.send(request(1, 1024)).is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), writing).await.unwrap();
    assert_eq!(child.end().await, Error::Deaf);
}

#[tokio::test]
async fn h9_what_was_not_written_is_told_apart() {
    let mut child = sh(&format!("{TELL} head -c 1 >/dev/null; tell $$; exec sleep 600"));
    child.pipe.request(1, request(1, CAP)).unwrap();
    // A byte of the first has arrived, and the child reads no more.
    let pid = child.number().await;
    child.pipe.request(2, request(2, 10)).unwrap();
    child.pipe.request(3, request(3, 10)).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), rustix::process::Signal::KILL).unwrap();
    assert!(matches!(child.reader.next().await, Err(Error::Exited { .. })));
    assert_eq!(child.pipe.abandon(), [2, 3]);
    assert_eq!(child.pipe.request(4, request(4, 10)), Err(Error::Unwritten));
    child.reader.stop(ladder(0, 0)).await;
}

#[tokio::test]
async fn h10_race_9_the_last_line_without_end_is_no_message() {
    let mut child = sh(r#"printf '{"jsonrpc":"2.0","id":1,"result":{}}'"#);
    let error = child.reader.next().await.unwrap_err();
    assert_eq!(error, Error::Exited { status: "exit code 0".to_owned(), stderr: None });
    child.reader.stop(ladder(0, 0)).await;
}

#[tokio::test]
async fn h11_output_closed_and_process_alive() {
    let begun = Instant::now();
    let child = sh("exec >&-; exec sleep 60");
    let error = child.end().await;
    assert_eq!(error, Error::Exited { status: "it closed its standard output".to_owned(), stderr: None });
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn h11_process_dead_and_pipe_held_open() {
    for script in ["sleep 60 & exit 3", "while :; do echo noise; done & exit 3"] {
        let begun = Instant::now();
        let error = sh(script).end().await;
        assert_eq!(error, Error::Exited { status: "exit code 3".to_owned(), stderr: None }, "{script}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{script}: {:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn h12_a_wrapper_is_ended_with_what_it_wraps() {
    // The wrapper waits; exits at once; exits on SIGTERM and leaves its child behind.
    for script in [
        "sleep 600 & tell $!; wait",
        "sleep 600 & tell $!; exit",
        "trap 'exit' TERM; (trap '' TERM; sleep 600) & tell $!; wait",
    ] {
        let mut child = sh(&format!("{TELL} {script}"));
        let grandchild = child.number().await;
        assert!(is_alive(grandchild), "{script}");
        child.reader.stop(ladder(50, 200)).await;
        wait_gone(grandchild).await;
    }
}

#[tokio::test]
async fn h12_a_dropped_child_takes_its_group_along() {
    let mut child = sh(&format!("{TELL} sleep 600 & tell $!; wait"));
    let grandchild = child.number().await;
    drop(child);
    wait_gone(grandchild).await;
}

#[tokio::test]
async fn h14_a_slow_but_useful_exit_is_respected() {
    let home = tempfile::tempdir().unwrap();
    let saved = home.path().join("saved");
    let script = |trap: &str| format!("{TELL} {trap} tell 1; read -r line; sleep 0.3; echo done > {}", saved.display());
    // At the end of its input, and on SIGTERM.
    for (trap, close) in [("", 5_000), ("trap 'sleep 0.3; echo done > \"$0\"; exit 0' TERM;", 10)] {
        let script = format!("{}; [ -n \"$(echo)\" ] || sleep 0.1", script(trap));
        let mut child = start("sh", &["-c", &script, saved.to_str().unwrap()]);
        assert_eq!(child.number().await, 1);
        let begun = Instant::now();
        child.reader.stop(ladder(close, 5_000)).await;
        assert!(begun.elapsed() < Duration::from_secs(4), "it was not waited for longer than it took");
        assert_eq!(std::fs::read_to_string(&saved).unwrap(), "done\n");
        std::fs::remove_file(&saved).unwrap();
    }
}

#[tokio::test]
async fn h14_what_a_wrapper_leaves_behind_is_told_to_end_before_it_is_killed() {
    let home = tempfile::tempdir().unwrap();
    let saved = home.path().join("saved");
    // The wrapper exits at the end of its input, its child on SIGTERM.
    let script = r#"(trap 'echo done >"$0"; exit' TERM; tell 1; while :; do sleep 0.01; done) & read -r line"#;
    let mut child = start("sh", &["-c", &format!("{TELL} {script}"), saved.to_str().unwrap()]);
    assert_eq!(child.number().await, 1);
    child.reader.stop(ladder(5_000, 5_000)).await;
    assert_eq!(std::fs::read_to_string(&saved).unwrap(), "done\n");
}

#[tokio::test]
async fn h14_a_hundred_stubborn_children_end_side_by_side() {
    let mut children = Vec::new();
    for _ in 0..100 {
        let mut child = sh(&format!("trap '' TERM; {TELL} tell 1; exec sleep 600"));
        assert_eq!(child.number().await, 1);
        children.push(child);
    }
    let pids: Vec<i32> = children.iter().map(|child| child.pipe.pid().unwrap() as i32).collect();
    let begun = Instant::now();
    let stops = children.into_iter().map(|child| child.reader.stop(ladder(2_000, 3_000)));
    futures_util::future::join_all(stops).await;
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    assert!(pids.into_iter().all(|pid| !is_alive(pid)));
}

#[tokio::test]
async fn h15_no_zombie_is_left() {
    for script in ["exit 0", "exec sleep 600", "sleep 600 & wait"] {
        let child = sh(script);
        let pid = child.pipe.pid().unwrap();
        child.reader.stop(ladder(50, 50)).await;
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{script}");
    }
}

#[tokio::test]
async fn h16_nothing_leaks_into_a_child() {
    let home = tempfile::tempdir().unwrap();
    let out = home.path().join("out");
    // A descriptor of ours. The masks are those that `grep` inherits: a shell blocks signals while it forks.
    let _open = std::fs::File::create(home.path().join("descriptor")).unwrap();
    let script = r#"exec 4>"$0"; env | sed 's/=.*//' >&4; echo -- >&4; ls -l /proc/$$/fd >&4; echo -- >&4
        grep -E '^Sig(Blk|Ign)' /proc/self/status >&4; echo '{"jsonrpc":"2.0","id":1,"result":{}}'; sleep 60"#;
    let stdio = Stdio {
        command: "sh".to_owned(),
        args: vec!["-c".to_owned(), script.to_owned(), out.to_str().unwrap().to_owned()],
        forward_env: vec!["CARGO_PKG_NAME".to_owned()],
        ..Stdio::default()
    };
    let limits = Limits { message: CAP, queue: CAP, depth: crate::protocol::DEPTH };
    let (pipe, mut reader) = spawn(&stdio, &limits, "t".into(), StderrTail::default(), &TaskTracker::new()).unwrap();
    assert!(matches!(reader.next().await, Ok(Heard::Message(_))));
    let text = std::fs::read_to_string(&out).unwrap();
    let [names, descriptors, masks] = text.split("--\n").collect::<Vec<_>>().try_into().unwrap();
    let fixed = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TMPDIR", "TZ", "TERM", "TEMP", "TMP"];
    // Variables that the shell itself sets.
    let shell = ["PWD", "OLDPWD", "SHLVL", "_"];
    for name in names.lines() {
        let is_way_out = name.to_ascii_lowercase().ends_with("_proxy")
            || name.contains("CERT")
            || name.contains("_CA")
            || name.contains("_SSL_");
        let allowed = fixed.contains(&name)
            || shell.contains(&name)
            || name.starts_with("LC_")
            || name.starts_with("XDG_")
            || is_way_out;
        assert!(allowed || name == "_MCP_HOST_GUARD" || name == "CARGO_PKG_NAME", "{name} leaks");
    }
    assert!(names.lines().any(|name| name == "CARGO_PKG_NAME"), "forwardEnv is heard");
    if cfg!(target_os = "linux") {
        assert!(descriptors.contains("/out") && !descriptors.contains("/descriptor"), "{descriptors}");
        let set = |text: &str, name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        let (broken_pipe, ignored) = (1 << 12, set(masks, "SigIgn:"));
        assert_eq!(set(masks, "SigBlk:"), 0, "{masks}");
        assert_eq!(ignored & broken_pipe, 0, "we ignore it, a child does not");
        assert_eq!(ignored & !set(&own, "SigIgn:"), 0, "no more than we were started with");
    }
    assert!(pipe.pid().is_some());
    reader.stop(ladder(0, 0)).await;
}

#[tokio::test]
async fn h17_arguments_reach_the_child_as_they_are() {
    let home = tempfile::tempdir().unwrap();
    let out = home.path().join("out");
    let odd = ["; touch x", "$(id)", "`id`", "a && b", "|", "%PATH%", "$HOME", "*", "'\"", "", "-n", "\\", "a\nb"];
    let script =
        r#"for each; do printf '%s\0' "$each"; done > "$0"; echo '{"jsonrpc":"2.0","id":1,"result":{}}'; sleep 60"#;
    let args: Vec<&str> = ["-c", script, out.to_str().unwrap()].into_iter().chain(odd).collect();
    let mut child = start("sh", &args);
    assert_eq!(child.heard(1).await, "1");
    let text = std::fs::read_to_string(&out).unwrap();
    assert_eq!(text.trim_end_matches('\0').split('\0').collect::<Vec<_>>(), odd);
    child.reader.stop(ladder(0, 0)).await;
    // A command is the name of a program, not a shell line.
    let stdio = Stdio { command: "true; true".to_owned(), ..Stdio::default() };
    let limits = Limits { message: CAP, queue: CAP, depth: crate::protocol::DEPTH };
    let started = spawn(&stdio, &limits, "test".into(), StderrTail::default(), &TaskTracker::new());
    assert!(matches!(started, Err(Error::Spawn { .. })));
}

#[test]
fn h105_an_excerpt_is_one_plain_line() {
    let said = format!("a\n\u{1b}[2J\u{202e}\u{2066}{}", "x".repeat(1 << 20));
    let told = excerpt(said.as_bytes(), 200);
    assert!(told.starts_with(r"a\n\u{1b}[2J\u{202e}\u{2066}xxx") && told.len() == 200, "{told}");
}
