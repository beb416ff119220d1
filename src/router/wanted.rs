//! Reads from a request's params what the request names, which decides where it goes (`route.rs`). Pure.
//!
//! In: params as the client sent them. Out: a [`Wanted`], or the error that the client gets. **Invariant:** a member
//! that decides where a request goes, or what it does there, occurs only once in the params (`docs/hazards.md` H37).

use crate::config::Limits;
use crate::protocol::{ErrorObject, Method, Raw, Theirs};

/// The kind of thing that a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Tool,
    Prompt,
    Resource,
    /// A URI template, or a URI that matches one.
    Template,
    /// Nothing: list requests and settings concern every server.
    Nothing,
}

impl What {
    /// Returns the word for it in error messages.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Prompt => "prompt",
            Self::Resource => "resource",
            Self::Template => "resource template",
            Self::Nothing => "server",
        }
    }
}

/// A request whose params have been read as far as routing needs them.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) method: Method,
    pub(super) params: Raw,
    pub(super) what: What,
    /// The name, URI, or URI template, as the client knows it.
    pub(super) name: String,
    /// The JSON value in the params that holds the name.
    pub(super) named: Raw,
    /// The `_meta` member of the params.
    pub(super) meta: Option<Raw>,
    /// The `task` member of the params, if the request is a tool call.
    pub(super) task: Option<Raw>,
}

impl Wanted {
    /// Reads a `tools/call` request.
    pub(super) fn tool(params: Option<Raw>) -> Result<Self, ErrorObject> {
        let params = params.unwrap_or_else(Raw::empty_object);
        let names = ["name", "arguments", "_meta", "task", "requestState", "inputResponses"];
        let [named, arguments, meta, task, ..] = params.distinct(names).map_err(twice)?;
        let missing = || ErrorObject::invalid_params("tools/call: `name` is missing");
        let named = named.ok_or_else(missing)?;
        let name = named.string().ok_or_else(missing)?.into_owned();
        if arguments.is_some_and(|arguments| !arguments.is_object() && arguments.as_bytes() != b"null") {
            let text = format!("tool `{}`: `arguments` is not an object", Theirs(&name));
            return Err(ErrorObject::invalid_params(text));
        }
        Ok(Self { method: Method::ToolsCall, params, what: What::Tool, name, named, meta, task })
    }

    /// Reads a `prompts/get` request.
    pub(super) fn prompt(params: Option<Raw>) -> Result<Self, ErrorObject> {
        let params = params.unwrap_or_else(Raw::empty_object);
        let names = ["name", "_meta", "arguments", "requestState", "inputResponses"];
        let [named, meta, ..] = params.distinct(names).map_err(twice)?;
        let missing = || ErrorObject::invalid_params("prompts/get: `name` is missing");
        let named = named.ok_or_else(missing)?;
        let name = named.string().ok_or_else(missing)?.into_owned();
        Ok(Self { method: Method::PromptsGet, params, what: What::Prompt, name, named, meta, task: None })
    }

    /// Reads a request about a resource.
    pub(super) fn resource(method: Method, params: Option<Raw>, limits: &Limits) -> Result<Self, ErrorObject> {
        let params = params.unwrap_or_else(Raw::empty_object);
        let [named, meta, ..] = params.distinct(["uri", "_meta", "requestState", "inputResponses"]).map_err(twice)?;
        let missing = || ErrorObject::invalid_params(format!("{method}: `uri` is missing"));
        let named = named.ok_or_else(missing)?;
        let name = named.string().ok_or_else(missing)?.into_owned();
        measured(&format!("{method}: `uri`"), &name, limits)?;
        Ok(Self { method, params, what: What::Resource, name, named, meta, task: None })
    }

    /// Reads a `completion/complete` request, for an argument of a prompt or of a URI template.
    pub(super) fn completion(params: Option<Raw>, limits: &Limits) -> Result<Self, ErrorObject> {
        let params = params.unwrap_or_else(Raw::empty_object);
        let [reference, meta] = params.distinct(["ref", "_meta"]).map_err(twice)?;
        let wrong = || ErrorObject::invalid_params("completion/complete: `ref` names neither a prompt nor a resource");
        let reference = reference.ok_or_else(wrong)?;
        let [kind, name, uri] = reference.distinct(["type", "name", "uri"]).map_err(twice)?;
        let kind = kind.as_ref().and_then(Raw::string).ok_or_else(wrong)?;
        let named = if kind == "ref/prompt" { name } else { uri }.ok_or_else(wrong)?;
        let name = named.string().ok_or_else(wrong)?.into_owned();
        measured("completion/complete: what `ref` names", &name, limits)?;
        let what = match &*kind {
            "ref/prompt" => What::Prompt,
            "ref/resource" => What::Template,
            _ => return Err(wrong()),
        };
        Ok(Self { method: Method::Complete, params, what, name, named, meta, task: None })
    }

    /// Reads a request that names nothing.
    pub(super) fn unnamed(method: Method, params: Option<Raw>) -> Self {
        let params = params.unwrap_or_else(Raw::empty_object);
        let (named, meta) = (Raw::from_value(""), params.member("_meta"));
        Self { method, params, what: What::Nothing, name: String::new(), named, meta, task: None }
    }
}

/// Refuses a URI, a cursor, or a name that is longer than `host.limits.uri` bytes.
pub(super) fn measured(what: &str, text: &str, limits: &Limits) -> Result<(), ErrorObject> {
    if text.len() <= limits.uri {
        return Ok(());
    }
    let text = format!("{what} has {} bytes; {} at most (host.limits.uri)", text.len(), limits.uri);
    Err(ErrorObject::invalid_params(text))
}

/// Returns the error for a duplicate member: the router and the server must read the same one.
fn twice(name: &str) -> ErrorObject {
    ErrorObject::invalid_params(format!("the params hold `{name}` twice"))
}
