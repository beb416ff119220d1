//! What a client of the ledger run saw, and how the histories of all clients are joined with the ledgers of all
//! servers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::server::KINDS;

/// Returns the mark that identifies one call everywhere.
pub(crate) fn mark(client: usize, id: u64) -> String {
    format!("{client}.{id}")
}

/// One request.
#[derive(Clone, Debug, Default)]
struct Call {
    /// The called server; `None` for a handshake.
    server: Option<usize>,
    end: Option<End>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    /// The server's result, with the right mark.
    Done,
    /// An error of the host.
    Failed { kind: String, sent: bool },
}

/// What one client saw.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) client: usize,
    calls: RefCell<Vec<Call>>,
    faults: RefCell<Faults>,
}

/// Violations.
#[derive(Clone, Debug, Default)]
struct Faults {
    crossed: usize,
    doubled: usize,
    /// All other violations.
    wrong: usize,
    /// The first few, in words.
    told: Vec<String>,
}

/// How many violations are described.
const TOLD: usize = 20;

impl Faults {
    fn tell(&mut self, text: String) {
        if self.told.len() < TOLD {
            self.told.push(text);
        }
    }
}

impl History {
    pub(crate) fn new(client: usize) -> Self {
        Self { client, ..Self::default() }
    }

    /// Begins a request, and returns its id.
    pub(crate) fn begin(&self, server: Option<usize>) -> u64 {
        let mut calls = self.calls.borrow_mut();
        calls.push(Call { server, end: None });
        calls.len() as u64 - 1
    }

    pub(crate) fn wrong(&self, text: &str) {
        let mut faults = self.faults.borrow_mut();
        faults.wrong += 1;
        faults.tell(format!("client {}: {text}", self.client));
    }

    fn crossed(&self, text: &str) {
        let mut faults = self.faults.borrow_mut();
        faults.crossed += 1;
        faults.tell(format!("client {}: {text}", self.client));
    }

    /// Takes the whole history, at the end of its client.
    pub(crate) fn take_all(&self) -> Self {
        Self { client: self.client, calls: RefCell::new(self.calls.take()), faults: RefCell::new(self.faults.take()) }
    }

    /// Takes one message of the host, and returns the id of the request that it answers.
    pub(crate) fn take(&self, text: &str) -> Option<u64> {
        let Ok(message) = serde_json::from_str::<Value>(text) else {
            self.wrong(&format!("no message: {text}"));
            return None;
        };
        if let Some(method) = message["method"].as_str() {
            if method == "notifications/progress" {
                let params = &message["params"];
                let expected = params["progressToken"].as_u64().map(|id| mark(self.client, id));
                if expected.as_deref() != params["message"].as_str() {
                    self.crossed(&format!("progress of another call: {text}"));
                }
            }
            return None;
        }
        let Some(id) = message["id"].as_u64() else {
            self.crossed(&format!("an answer to nothing: {text}"));
            return None;
        };
        let mut calls = self.calls.borrow_mut();
        let Some(call) = usize::try_from(id).ok().and_then(|id| calls.get_mut(id)) else {
            self.crossed(&format!("an answer to a request it never sent: {text}"));
            return None;
        };
        if call.end.is_some() {
            let mut faults = self.faults.borrow_mut();
            faults.doubled += 1;
            faults.tell(format!("client {}: a second answer: {text}", self.client));
            return None;
        }
        call.end = Some(match call.server {
            None => End::Done,
            Some(server) => self.end(id, server, &message),
        });
        Some(id)
    }

    fn end(&self, id: u64, server: usize, message: &Value) -> End {
        let (result, name) = (&message["result"], KINDS[server].name);
        let own = &result["_meta"]["mcp-host/error"];
        if own.is_object() {
            if own["server"] != name || result["isError"] != true {
                self.crossed(&format!("an error of another server: {message}"));
            }
            let kind = own["kind"].as_str().unwrap_or_default().to_owned();
            return End::Failed { kind, sent: own["sent"].as_bool().unwrap_or(true) };
        }
        let expected = format!("{} {name}", mark(self.client, id));
        if result["content"][0]["text"] != expected.as_str() {
            self.crossed(&format!("not the answer to {expected}: {message}"));
        }
        End::Done
    }
}

/// The totals of a run.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    pub(crate) calls: usize,
    answered: usize,
    /// For each kind of error: how many calls failed with it, and how many of these were executed all the same.
    failed: BTreeMap<String, (usize, usize)>,
    marks: usize,
    unanswered: usize,
    faults: Faults,
}

impl Sum {
    /// Joins what the clients saw with what the servers recorded.
    pub(crate) fn of(histories: &[History], ledgers: &Path) -> Result<Self, String> {
        let mut sum = Self::default();
        let mut done: Vec<Vec<u8>> = histories.iter().map(|history| vec![0; history.calls.borrow().len()]).collect();
        for entry in std::fs::read_dir(ledgers).map_err(|error| error.to_string())? {
            let path = entry.map_err(|error| error.to_string())?.path();
            let name = path.file_name().and_then(|name| name.to_str()?.split('-').next()).unwrap_or_default();
            let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
            for line in text.lines() {
                sum.marks += 1;
                sum.note(histories, &mut done, name, line);
            }
        }
        for (at, history) in histories.iter().enumerate() {
            let faults = history.faults.borrow();
            sum.faults.crossed += faults.crossed;
            sum.faults.doubled += faults.doubled;
            sum.faults.wrong += faults.wrong;
            faults.told.iter().for_each(|text| sum.faults.tell(text.clone()));
            for (id, call) in history.calls.borrow().iter().enumerate().filter(|(_, call)| call.server.is_some()) {
                sum.judge(&mark(history.client, id as u64), call, done[at][id] > 0);
            }
        }
        Ok(sum)
    }

    /// Takes one line of a ledger.
    fn note(&mut self, histories: &[History], done: &mut [Vec<u8>], server: &str, line: &str) {
        let place = line.split_once('.').and_then(|(client, id)| {
            let (client, id) = (client.parse::<usize>().ok()?, id.parse::<usize>().ok()?);
            let at = histories.iter().position(|history| history.client == client)?;
            let call = histories[at].calls.borrow().get(id).cloned()?;
            (KINDS[call.server?].name == server).then_some((at, id))
        });
        let Some((at, id)) = place else {
            self.faults.crossed += 1;
            return self.faults.tell(format!("{server} executed an unknown call: {line}"));
        };
        done[at][id] = done[at][id].saturating_add(1);
        if done[at][id] > 1 {
            self.faults.doubled += 1;
            self.faults.tell(format!("{server}: {line} was done {} times", done[at][id]));
        }
    }

    /// Checks that the client's outcome of a call fits what was executed.
    fn judge(&mut self, mark: &str, call: &Call, done: bool) {
        self.calls += 1;
        let wrong = match &call.end {
            None => {
                self.unanswered += 1;
                return self.faults.tell(format!("{mark} has no answer"));
            }
            Some(End::Done) => {
                self.answered += 1;
                (!done).then(|| "was answered but not executed".to_owned())
            }
            Some(End::Failed { kind, sent }) => {
                let count = self.failed.entry(kind.clone()).or_default();
                count.0 += 1;
                count.1 += usize::from(done);
                let known = match kind.as_str() {
                    "outcome_unknown" | "timeout" | "malformed" => *sent,
                    "unavailable" | "overloaded" => !*sent,
                    _ => false,
                };
                match (known, *sent, done) {
                    (false, ..) => Some(format!("ended with `{kind}` and sent = {sent}")),
                    (true, false, true) => Some(format!("ended with `{kind}`, not sent, and was done")),
                    _ => None,
                }
            }
        };
        if let Some(wrong) = wrong {
            self.faults.wrong += 1;
            self.faults.tell(format!("{mark} {wrong}"));
        }
    }

    /// Returns the violations, in words.
    pub(crate) fn told(&self) -> &[String] {
        &self.faults.told
    }

    pub(crate) fn is_good(&self) -> bool {
        let Faults { crossed, doubled, wrong, .. } = self.faults;
        crossed + doubled + wrong + self.unanswered == 0
    }
}

impl std::fmt::Display for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} calls: {} answered", self.calls, self.answered)?;
        for (kind, (count, done)) in &self.failed {
            write!(f, ", {count} {kind} ({done} done)")?;
        }
        let Faults { crossed, doubled, wrong, .. } = self.faults;
        write!(f, "; {} marks; {crossed} crossed, {doubled} doubled, {} unanswered", self.marks, self.unanswered)?;
        if wrong > 0 {
            write!(f, ", {wrong} otherwise wrong")?;
        }
        Ok(())
    }
}
