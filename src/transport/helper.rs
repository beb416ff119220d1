//! HTTP headers that a program prints for one connection. The program runs when the first request needs the headers,
//! and again when the server answers 401 to a request with them.
//!
//! The program belongs to the user, like a server's command: no shell, the same environment, its own process group, and
//! the guard. It may take ten seconds and must print one JSON object. Its output is never shown. Only if it fails, one
//! line of its standard error is shown: the line that explains the failure, without anything that was also in the
//! output.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use super::Error;
use super::process::{Ends, Process, describe};
use super::stderr::{StderrTail, drain};
use super::stdio::LAST_WORDS;
use crate::config;
use crate::config::{Secret, Stdio, is_own_header};
use crate::redact::Scrubber;

/// The program's time limit, the same as in the client that introduced such helpers.
const LIMIT: Duration = Duration::from_secs(10);
/// The maximum bytes that the program may print.
const OUTPUT: u64 = 64 * 1024;
/// The maximum number of headers.
const HEADERS: usize = 100;
/// How many words of the output are masked in the standard error.
const WORDS: usize = 1000;

/// The headers helper of one server, and the headers that it gave for one connection.
#[derive(Debug)]
pub(super) struct Helper {
    config: config::Helper,
    command: Stdio,
    given: ArcSwapOption<HelperHeaders>,
    /// Held while the program runs, so that concurrent requests share one run.
    running: tokio::sync::Mutex<()>,
}

/// The result of one run of the program.
#[derive(Debug)]
pub(super) struct HelperHeaders {
    pub(super) headers: HeaderMap,
    /// Whether the program ran because the server had rejected earlier headers.
    again: bool,
    /// Whether the server has accepted a request with these headers.
    worked: AtomicBool,
}

impl Helper {
    pub(super) fn of(name: &str, remote: &config::Remote) -> Option<Self> {
        let config = remote.headers_helper.clone()?;
        let told = |variable: &str, value: &str| (variable.to_owned(), Secret::new(value));
        let url = remote.url.as_str();
        let env = vec![
            told("MCP_HOST_SERVER_NAME", name),
            told("MCP_HOST_SERVER_URL", url),
            told("CLAUDE_CODE_MCP_SERVER_NAME", name),
            told("CLAUDE_CODE_MCP_SERVER_URL", url),
        ];
        let command = Stdio {
            command: config.program.clone(),
            args: config.args.clone(),
            env,
            forward_env: config.inherit_env.clone(),
            ..Stdio::default()
        };
        Some(Self { config, command, given: ArcSwapOption::empty(), running: tokio::sync::Mutex::default() })
    }

    pub(super) fn program(&self) -> &str {
        &self.config.program
    }

    /// Returns the headers of this connection.
    ///
    /// # Cancel safety
    /// Dropping the future ends the program; the next caller runs it again.
    pub(super) async fn headers(&self) -> Result<Arc<HelperHeaders>, Error> {
        if let Some(given) = self.given.load_full() {
            return Ok(given);
        }
        let _running = self.running.lock().await;
        match self.given.load_full() {
            Some(given) => Ok(given),
            None => Box::pin(self.run(false)).await,
        }
    }

    /// Judges the response to a request that carried the headers `sent`. Returns true if the request should be resent
    /// with new headers. Each request is resent at most once (`replaced` says that it was), and headers that replaced
    /// rejected ones are not replaced if the server has never accepted them.
    pub(super) async fn judge(&self, status: u16, sent: &Arc<HelperHeaders>, replaced: bool) -> Result<bool, Error> {
        if status != 401 {
            if (200..300).contains(&status) {
                sent.worked.store(true, Ordering::Relaxed);
            }
            return Ok(false);
        }
        if replaced {
            return Ok(false);
        }
        let _running = self.running.lock().await;
        if self.given.load().as_ref().is_some_and(|given| !Arc::ptr_eq(given, sent)) {
            return Ok(true);
        }
        if sent.again && !sent.worked.load(Ordering::Relaxed) {
            return Ok(false);
        }
        Box::pin(self.run(true)).await.map(|_| true)
    }

    async fn run(&self, again: bool) -> Result<Arc<HelperHeaders>, Error> {
        let tail = StderrTail::default();
        let (mut process, ends) = Process::start(&self.command).map_err(named)?;
        let mut output = Vec::new();
        // The rest of its group ends with `process`, here or when this future is dropped.
        let read = timeout(LIMIT, read(&mut process, ends, &tail, &mut output)).await;
        drop(process);
        let (status, read) = match read {
            Ok((status, read)) => (Some(status), read),
            Err(_) => (None, Err(format!("it did not end within {LIMIT:?}"))),
        };
        let headers = read.and_then(|()| self.parse(&output)).map_err(|reason| {
            let status = status.map(|status| format!(" ({status})")).unwrap_or_default();
            let last = tail.cause().map(|line| format!(": {}", without(&line, &output))).unwrap_or_default();
            Error::Helper { program: self.config.program.clone(), reason: format!("{reason}{status}{last}") }
        })?;
        let given = Arc::new(HelperHeaders { headers, again, worked: AtomicBool::new(false) });
        self.given.store(Some(given.clone()));
        Ok(given)
    }

    /// Parses the output as headers. Errors contain nothing of the output except names of legal headers.
    fn parse(&self, output: &[u8]) -> Result<HeaderMap, String> {
        let Members(members) = serde_json::from_slice(output)
            .map_err(|_| "it must print one JSON object of header names and values".to_owned())?;
        self.config.learn(members.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        if members.len() > HEADERS {
            return Err(format!("it printed more than {HEADERS} headers"));
        }
        let mut headers = HeaderMap::with_capacity(members.len());
        for (name, value) in &members {
            let header = HeaderName::try_from(name.as_str())
                .map_err(|_| "it printed a name that is not legal for a header".to_owned())?;
            if is_own_header(header.as_str()) {
                return Err(format!("it printed `{header}`, which is set here for each request"));
            }
            let mut value = HeaderValue::try_from(value.as_str())
                .map_err(|_| format!("the value that it printed for `{header}` is not legal in a header"))?;
            value.set_sensitive(true);
            if headers.insert(header.clone(), value).is_some() {
                return Err(format!("it printed `{header}` twice"));
            }
        }
        Ok(headers)
    }
}

/// Reads the output until the program has ended. Returns the exit status, and, as an error, why the output is unusable.
async fn read(
    process: &mut Process,
    ends: Ends,
    tail: &StderrTail,
    output: &mut Vec<u8>,
) -> (String, Result<(), String>) {
    let Ends { stdin, stdout, stderr } = ends;
    drop(stdin);
    let large = {
        let printed = async {
            let _ = stdout.take(OUTPUT + 1).read_to_end(output).await;
            if output.len() as u64 > OUTPUT { Err(()) } else { Ok(()) }
        };
        let talked = async {
            drain(stderr, tail.clone(), None).await;
            Ok(())
        };
        let mut pipes = pin!(async { tokio::try_join!(printed, talked).is_err() });
        tokio::select! {
            biased;
            large = &mut pipes => large,
            _ = process.wait() => {
                // A descendant may hold the pipes open; its output does not matter here.
                timeout(LAST_WORDS, pipes).await.unwrap_or(false)
            }
        }
    };
    if large {
        return ("killed".to_owned(), Err(format!("it printed more than {} KiB", OUTPUT / 1024)));
    }
    let status = process.wait().await;
    let good = status.is_some_and(|status| status.success());
    (describe(status), if good { Ok(()) } else { Err("it failed".to_owned()) })
}

/// Masks everything in the line that is also in the output: a traced program repeats its secrets.
fn without(line: &str, output: &[u8]) -> String {
    let output = String::from_utf8_lossy(output);
    let mut printed = Scrubber::default();
    output.split(|c: char| c.is_whitespace() || c == '"').take(WORDS).for_each(|word| printed.know(word));
    printed.scrub(line).into_owned()
}

/// Adds `headersHelper`, the setting that names the program, to the error.
fn named(error: Error) -> Error {
    let from = |reason| format!("{reason} (headersHelper)");
    match error {
        Error::Spawn { command, reason } => Error::Spawn { command, reason: from(reason) },
        Error::Exhausted { command, reason } => Error::Exhausted { command, reason: from(reason) },
        other => other,
    }
}

/// The members of an object of strings, in order, duplicates included.
struct Members(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Texts;
        impl<'de> Visitor<'de> for Texts {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Texts)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn h14_a_program_has_ten_seconds() {
        let mut remote = config::Remote::new("http://127.0.0.1:9/mcp".parse().unwrap());
        let mut helper = config::Helper::new("sleep");
        helper.args.push("600".to_owned());
        remote.headers_helper = Some(helper);
        let began = tokio::time::Instant::now();
        let error = Helper::of("s", &remote).unwrap().headers().await.unwrap_err();
        assert_eq!(error.to_string(), "headersHelper `sleep` gave no headers: it did not end within 10s");
        assert_eq!(began.elapsed(), LIMIT);
    }

    #[tokio::test]
    async fn h74_what_came_after_a_refusal_is_the_last_unless_it_was_taken() {
        let mut remote = config::Remote::new("http://127.0.0.1:9/mcp".parse().unwrap());
        let mut program = config::Helper::new("sh");
        program.args = vec!["-c".to_owned(), "printf '{\"X-A\": \"%s\"}' $$".to_owned()];
        remote.headers_helper = Some(program);
        let helper = Helper::of("s", &remote).unwrap();
        let first = helper.headers().await.unwrap();
        assert!(Arc::ptr_eq(&first, &helper.headers().await.unwrap()));
        // The first request that is refused brings new headers for all.
        assert_eq!(helper.judge(401, &first, false).await, Ok(true));
        let second = helper.headers().await.unwrap();
        assert_ne!(first.headers, second.headers);
        assert_eq!(helper.judge(401, &first, false).await, Ok(true));
        assert_eq!(helper.judge(401, &second, true).await, Ok(false));
        assert_eq!(helper.judge(401, &second, false).await, Ok(false));
        assert_eq!(helper.judge(403, &second, false).await, Ok(false));
        assert!(Arc::ptr_eq(&second, &helper.headers().await.unwrap()));
        assert_eq!(helper.judge(200, &second, false).await, Ok(false));
        assert_eq!(helper.judge(401, &second, false).await, Ok(true));
        assert!(!Arc::ptr_eq(&second, &helper.headers().await.unwrap()));
    }
}
