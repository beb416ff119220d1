//! Turns the end of a script into the result for its client, and the answer to a call into the message for the script.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::answered::{self, Answered, Kind, NoResult};
use crate::config::Code;
use crate::protocol::{Raw, Theirs, meta};
use crate::registry::search::RUN;
use crate::script::{Fault, Limit, Reply, framed};

/// How a script ended, and what it has logged.
pub(super) struct Ending {
    pub(super) log: Log,
    pub(super) end: End,
}

/// How a script ended.
#[derive(Debug)]
pub(super) enum End {
    Returned(Box<RawValue>),
    /// It returned a value of so many bytes, which are too many.
    Long(usize),
    Failed(Fault),
    /// It took longer than it may.
    Time,
    /// It made more calls than it may.
    Calls,
    /// Its process sent an invalid message, or one that is larger than a script's can be.
    Said,
    /// Its process ended. Holds how.
    Gone(String),
    /// Its process did not start. Holds why.
    NotStarted(String),
}

/// The lines that a script has logged, as many as it may.
#[derive(Debug)]
pub(super) struct Log {
    text: String,
    most: usize,
    /// How many lines did not fit.
    more: usize,
}

impl Log {
    pub(super) fn new(most: usize) -> Self {
        Self { text: String::new(), most, more: 0 }
    }

    pub(super) fn add(&mut self, line: &str) {
        if self.more > 0 || self.text.len() + line.len() >= self.most {
            self.more += 1;
            return;
        }
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// Returns the lines, and says how many are left out; `None` if there are none.
    fn shown(&self) -> Option<String> {
        let text = self.text.trim_end_matches('\n');
        match self.more {
            0 if self.text.is_empty() => None,
            0 => Some(text.to_owned()),
            more => Some(format!(
                "{text}\n[mcp-host: {more} more lines of the log are left out (host.catalog.code.output)]"
            )),
        }
    }
}

/// Returns the result of `run_script`.
pub(super) fn answer(end: &End, log: &Log, code: &Code) -> Raw {
    let value = match end {
        // The process is not trusted to have checked this.
        End::Returned(value) if value.get().len() > code.output => {
            return failed(&long(value.get().len(), code), None, log);
        }
        End::Returned(value) => value,
        End::Failed(fault) => {
            let kind = fault.kind.as_deref().filter(|kind| is_kind(kind));
            return failed(&of_fault(fault, code), kind, log);
        }
        end => return failed(&of_limit(end, code), None, log),
    };
    // The value is nested three levels deep in a message, and JSON parsers limit the depth.
    if Raw::parse(&format!("[[[{}]]]", value.get()).into()).is_err() {
        return failed("it returned a value that is nested too deeply: return a flatter one", None, log);
    }
    let log = log.shown();
    let mut content = vec![json!({ "type": "text", "text": value.get() })];
    content.extend(log.iter().map(|log| json!({ "type": "text", "text": log })));
    // Some clients give their model only the structured content. Others parse the text if there is none, and fail if
    // that is no object.
    let mut structured = Raw::empty_object().with_member("value", value.get().as_bytes());
    if let Some(log) = log {
        structured = structured.with_member("log", Raw::from_value(&log).as_bytes());
    }
    Raw::from_value(&json!({ "content": content })).with_member("structuredContent", structured.as_bytes())
}

fn failed(text: &str, kind: Option<&str>, log: &Log) -> Raw {
    let mut content = vec![json!({ "type": "text", "text": format!("{RUN}: {text}") })];
    content.extend(log.shown().map(|log| json!({ "type": "text", "text": log })));
    let mut result = json!({ "content": content, "isError": true });
    if let Some(kind) = kind {
        result["_meta"] = json!({ meta::HOST_ERROR: { "kind": kind } });
    }
    Raw::from_value(&result)
}

/// The kinds of failed calls that are not among mcp-host's own kinds of failures.
const OTHER_KINDS: [&str; 5] = ["tool_error", "unknown", "error", "cancelled", "input_required"];

/// Reports whether a failed call of a script can be of this kind. A script can make up other words.
fn is_kind(word: &str) -> bool {
    Kind::ALL.iter().any(|kind| kind.word() == word) || OTHER_KINDS.contains(&word)
}

/// Describes what a script threw, and where.
fn of_fault(fault: &Fault, code: &Code) -> String {
    match fault.limit {
        Some(Limit::Cpu) => {
            return format!("it computed for more than {:?}: do less, or raise host.catalog.code.cpu", code.cpu);
        }
        Some(Limit::Memory) => return of_memory(code),
        None => {}
    }
    let line = fault.line.map(|line| format!(" at line {line}")).unwrap_or_default();
    let kind = fault.kind.as_ref().map(|kind| format!(" ({})", Theirs(kind))).unwrap_or_default();
    format!("{}{kind}{line}: {}", Theirs(&fault.name), Theirs(&fault.text))
}

fn of_memory(code: &Code) -> String {
    format!("it needs more than {} bytes of memory: hold less at once, or raise host.catalog.code.memory", code.memory)
}

fn of_limit(end: &End, code: &Code) -> String {
    match end {
        End::Time => {
            format!("it ran for more than {:?} with its calls: do less, or raise host.catalog.code.time", code.time)
        }
        End::Calls => {
            format!("it made more than {} calls: make fewer, or raise host.catalog.code.calls", code.calls)
        }
        End::Said => of_memory(code),
        End::Gone(how) if how == "signal 24" => {
            format!("it computed for more than {:?}: do less, or raise host.catalog.code.cpu", code.cpu)
        }
        End::Gone(how) => {
            format!("its process ended ({how}); most likely it needs more memory (host.catalog.code.memory)")
        }
        End::NotStarted(why) => format!("its process cannot be started: {why}"),
        End::Long(bytes) => long(*bytes, code),
        End::Returned(_) | End::Failed(_) => String::new(),
    }
}

fn long(bytes: usize, code: &Code) -> String {
    let most = code.output;
    format!("it returned {bytes} bytes; {most} at most: return less, or raise host.catalog.code.output")
}

/// Writes the answer to a call as a message for the script. A value that it could not hold becomes an error.
pub(super) fn written(reply: &Reply, most: usize) -> Vec<u8> {
    let bytes = reply.value.get().len();
    if bytes <= most
        && let Ok(frame) = framed(reply)
    {
        return frame;
    }
    let text =
        format!("the result has {bytes} bytes; a script takes {most} at most (half of host.catalog.code.memory)");
    framed(&refusal(reply.id, "too_large", "", &text)).unwrap_or_default()
}

/// Returns the answer to a call that is refused.
pub(super) fn refusal(id: u32, kind: &str, tool: &str, text: &str) -> Reply {
    let value = serde_json::value::to_raw_value(&json!({ "kind": kind, "tool": tool, "text": text }));
    Reply { id, ok: false, value: value.unwrap_or_else(|_| RawValue::NULL.to_owned()) }
}

/// Returns what a script gets of the answer to its call: the structured content, else the text as JSON, else the text; or an
/// error.
pub(super) fn reply(id: u32, tool: &str, answered: &Answered) -> Reply {
    let result = match answered {
        Ok(result) => result,
        Err(NoResult::Failed(failed)) => return refusal(id, failed.kind.word(), tool, &failed.text),
        Err(NoResult::Error(error)) => return refusal(id, "error", tool, &error.message),
    };
    let [structured, content, own] = result.members(["structuredContent", "content", "_meta"]);
    match answered::End::of_result(result) {
        answered::End::Ok => {}
        answered::End::ToolError => {
            // Only mcp-host can write this key.
            let kind = own.and_then(|own| own.member(meta::HOST_ERROR)).and_then(|error| error.text("kind"));
            let text = content.as_ref().and_then(text_of).unwrap_or_default();
            return refusal(id, kind.as_deref().unwrap_or("tool_error"), tool, &text);
        }
        _ => {
            let text =
                "it asks its user something, which a script cannot pass on for this client; call it by its own name";
            return refusal(id, "input_required", tool, text);
        }
    }
    let value = match (structured, content) {
        (Some(structured), _) => structured,
        (None, Some(content)) => match text_of(&content) {
            Some(text) => Raw::parse(&text.clone().into()).unwrap_or_else(|_| Raw::from_value(&text)),
            None => content,
        },
        (None, None) => Raw::null(),
    };
    Reply { id, ok: true, value: value.as_value().to_owned() }
}

/// Returns the text of a result; `None` if it has none.
fn text_of(content: &Raw) -> Option<String> {
    let parts: Vec<Value> = content.read().ok()?;
    let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ErrorObject;

    fn got(result: &str) -> (bool, Value) {
        let reply = reply(1, "a__x", &Ok(Raw::trusted(result.to_owned().into())));
        (reply.ok, serde_json::from_str(reply.value.get()).unwrap())
    }

    #[test]
    fn a_script_gets_the_most_useful_form_of_a_result() {
        let text = |text: &str| json!({ "content": [{ "type": "text", "text": text }] });
        let mut both = text("ignored");
        both["structuredContent"] = json!({ "a": 1 });
        let image = json!({ "type": "image", "data": "AA==", "mimeType": "image/png" });
        for (result, value) in [
            (both, json!({ "a": 1 })),
            (text("[1, 2]"), json!([1, 2])),
            (text("hello"), json!("hello")),
            (text("1 and 2"), json!("1 and 2")),
            (json!({ "content": [image] }), json!([image])),
            (json!({ "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] }), json!("a\nb")),
            (json!({}), Value::Null),
        ] {
            assert_eq!(got(&result.to_string()), (true, value), "{result}");
        }
    }

    #[test]
    fn failures_are_errors_with_a_kind() {
        let error = |kind: &str, text: &str| (false, json!({ "kind": kind, "tool": "a__x", "text": text }));
        let failed = r#"{"content":[{"type":"text","text":"no such file"}],"isError":true}"#;
        assert_eq!(got(failed), error("tool_error", "no such file"));
        assert_eq!(got(r#"{"resultType":"input_required"}"#).1["kind"], "input_required");
        let refused = reply(1, "a__x", &Err(ErrorObject::new(-32000, "never").into()));
        let refused: Value = serde_json::from_str(refused.value.get()).unwrap();
        assert_eq!((false, refused), error("error", "never"));
    }

    #[test]
    fn a_script_makes_up_no_kind_of_failure() {
        let fault =
            |kind: &str| Fault { name: "CallError".to_owned(), kind: Some(kind.to_owned()), ..Fault::default() };
        let told = |kind: &str| answer(&End::Failed(fault(kind)), &Log::new(10), &Code::default());
        for kind in ["tool_error", "denied"] {
            let own = told(kind).member("_meta").and_then(|own| own.member(meta::HOST_ERROR));
            assert_eq!(own.and_then(|own| own.text("kind")).as_deref(), Some(kind));
        }
        assert!(told("none of ours").member("_meta").is_none());
    }

    #[test]
    fn a_log_has_as_much_as_it_may_and_says_what_is_left_out() {
        let mut log = Log::new(10);
        assert_eq!(log.shown(), None);
        for line in ["12345", "123", "1", "2"] {
            log.add(line);
        }
        let left_out = "[mcp-host: 2 more lines of the log are left out (host.catalog.code.output)]";
        assert_eq!(log.shown(), Some(format!("12345\n123\n{left_out}")));
    }
}
