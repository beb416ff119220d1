//! Typed questions (requests from servers) to the embedding program, and its answers.
//!
//! Requests from servers come in; the results that go back to them go out. **Invariant:** a question without an answer
//! is declined, and no server is told of a capability that [`ClientHandler::profile`] does not name.

use std::future::ready;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::json;

use super::defaults;
use crate::protocol::{ErrorObject, Method, Outcome, Profile, Raw};

/// Answers the questions of servers. By default, elicitation and sampling are declined, and there are no roots.
///
/// ```
/// use mcp_host::{ClientHandler, ElicitAnswer, Elicitation, Profile};
///
/// struct Agreeable;
///
/// impl ClientHandler for Agreeable {
///     fn profile(&self) -> Profile {
///         Profile::ELICITATION_FORM
///     }
///
///     async fn elicit(&self, question: Elicitation) -> ElicitAnswer {
///         println!("{:?} asks: {}", question.server(), question.message());
///         ElicitAnswer::accept(serde_json::json!({ "name": "Ada" }))
///     }
/// }
/// ```
pub trait ClientHandler: Send + Sync + 'static {
    /// Returns the client capabilities that servers are told. Servers ask for nothing else.
    fn profile(&self) -> Profile;

    /// Has a person fill in a form, or visit a page. The host adds the form's defaults for fields that an accepted form
    /// leaves out.
    fn elicit(&self, question: Elicitation) -> impl Future<Output = ElicitAnswer> + Send {
        drop(question);
        ready(ElicitAnswer::Decline)
    }

    /// Has a model answer a server's sampling request.
    fn sample(&self, question: Sampling) -> impl Future<Output = SampleAnswer> + Send {
        drop(question);
        ready(SampleAnswer::Decline)
    }

    /// Returns the folders in which a server may work. `server` is its configured name; `None` if it asks outside of a
    /// call.
    fn roots(&self, server: Option<&str>) -> impl Future<Output = Vec<Root>> + Send {
        let _ = server;
        ready(Vec::new())
    }
}

/// A question to a person: a form to fill in, or a page to visit (`elicitation/create`).
///
/// ```
/// # fn show(question: &mcp_host::Elicitation) {
/// match question.url() {
///     Some(page) => println!("{}: {page}", question.message()),
///     None => println!("{}: {:?}", question.message(), question.schema()),
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Elicitation {
    server: Option<String>,
    is_of_host: bool,
    params: Raw,
}

impl Elicitation {
    /// Returns the configured name of the server that asks; `None` if the question belongs to no call, or if the host itself
    /// asks.
    #[must_use]
    pub fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// Reports whether the host itself asks, in its own words: a rule wants a person's permission for a call, or a server
    /// wants a login. No server can ask such a question.
    #[must_use]
    pub fn is_of_host(&self) -> bool {
        self.is_of_host
    }

    /// Returns the question's text for the person.
    #[must_use]
    pub fn message(&self) -> String {
        self.params.text("message").unwrap_or_default()
    }

    /// Returns the URL of the page to visit; `None` for a form. Show the whole URL, and ask before opening it.
    #[must_use]
    pub fn url(&self) -> Option<String> {
        if self.params.text("mode").as_deref() == Some("url") { self.params.text("url") } else { None }
    }

    /// Returns the schema of the form, an object whose properties are the fields; `None` for a page.
    #[must_use]
    pub fn schema(&self) -> Option<Raw> {
        self.params.member("requestedSchema")
    }

    /// Returns all params of the question, as the server sent them.
    #[must_use]
    pub fn params(&self) -> &Raw {
        &self.params
    }
}

/// The answer to an [`Elicitation`].
///
/// ```
/// use mcp_host::ElicitAnswer;
///
/// let form = ElicitAnswer::accept(serde_json::json!({ "name": "Ada" }));
/// assert_eq!(form, ElicitAnswer::Accept(serde_json::json!({ "name": "Ada" }).into()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElicitAnswer {
    /// The person agrees. Holds the field values of a form as an object, which the host leaves out for a page.
    Accept(Raw),
    /// The person refuses.
    Decline,
    /// The person gave no answer.
    Cancel,
}

impl ElicitAnswer {
    /// Agrees, with these field values.
    pub fn accept(fields: impl Into<Raw>) -> Self {
        Self::Accept(fields.into())
    }

    fn result(self, is_page: bool) -> Raw {
        match self {
            Self::Accept(_) if is_page => Raw::from_value(&json!({ "action": "accept" })),
            Self::Accept(fields) => {
                Raw::from_value(&json!({ "action": "accept" })).with_member("content", fields.as_bytes())
            }
            Self::Decline => Raw::from_value(&json!({ "action": "decline" })),
            Self::Cancel => Raw::from_value(&json!({ "action": "cancel" })),
        }
    }
}

/// A request that a model answers (`sampling/createMessage`).
///
/// ```
/// # fn show(question: &mcp_host::Sampling) {
/// for message in question.messages() {
///     println!("{message}");
/// }
/// println!("at most {:?} tokens", question.max_tokens());
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Sampling {
    server: Option<String>,
    params: Raw,
}

impl Sampling {
    /// Returns the configured name of the server that asks; `None` if the question belongs to no call.
    #[must_use]
    pub fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// Returns the conversation so far, each message with `role` and `content`.
    #[must_use]
    pub fn messages(&self) -> Vec<Raw> {
        self.params.member("messages").and_then(|messages| messages.read().ok()).unwrap_or_default()
    }

    /// Returns the system prompt, if the server sets one.
    #[must_use]
    pub fn system_prompt(&self) -> Option<String> {
        self.params.text("systemPrompt")
    }

    /// Returns the largest number of tokens that the model may generate, if the server sets one.
    #[must_use]
    pub fn max_tokens(&self) -> Option<u64> {
        self.params.member("maxTokens")?.read().ok()
    }

    /// Returns all params of the question, as the server sent them.
    #[must_use]
    pub fn params(&self) -> &Raw {
        &self.params
    }
}

/// The answer to a [`Sampling`] request.
///
/// ```
/// use mcp_host::SampleAnswer;
///
/// let answer = SampleAnswer::text("my-model", "Paris.");
/// assert!(matches!(answer, SampleAnswer::Message(_)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SampleAnswer {
    /// The model's message: the result of `sampling/createMessage`, an object.
    Message(Raw),
    /// The person refuses.
    Decline,
}

impl SampleAnswer {
    /// Answers with this text from the named model.
    #[must_use]
    pub fn text(model: &str, text: &str) -> Self {
        Self::Message(Raw::from_value(&json!({
            "role": "assistant",
            "content": { "type": "text", "text": text },
            "model": model,
            "stopReason": "endTurn",
        })))
    }
}

/// A folder that a server may work in.
///
/// ```
/// let root = mcp_host::Root::new("file:///home/ada/src").named("Source code");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Root {
    uri: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

impl Root {
    /// Creates a root from a `file:` URI.
    #[must_use]
    pub fn new(uri: impl Into<String>) -> Self {
        Self { uri: uri.into(), name: None }
    }

    /// Adds a name for people.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }
}

/// An object-safe [`ClientHandler`].
pub(super) trait Answers: Send + Sync {
    fn profile(&self) -> Profile;
    fn elicit(&self, question: Elicitation) -> BoxFuture<'_, ElicitAnswer>;
    fn sample(&self, question: Sampling) -> BoxFuture<'_, SampleAnswer>;
    fn roots<'a>(&'a self, server: Option<&'a str>) -> BoxFuture<'a, Vec<Root>>;
}

impl<H: ClientHandler> Answers for H {
    fn profile(&self) -> Profile {
        ClientHandler::profile(self)
    }

    fn elicit(&self, question: Elicitation) -> BoxFuture<'_, ElicitAnswer> {
        Box::pin(ClientHandler::elicit(self, question))
    }

    fn sample(&self, question: Sampling) -> BoxFuture<'_, SampleAnswer> {
        Box::pin(ClientHandler::sample(self, question))
    }

    fn roots<'a>(&'a self, server: Option<&'a str>) -> BoxFuture<'a, Vec<Root>> {
        Box::pin(ClientHandler::roots(self, server))
    }
}

/// Who asks a question.
#[derive(Clone, Debug)]
pub(super) enum Asker {
    /// The host itself.
    Host,
    /// A server, by its configured name; `None` if the question belongs to no call.
    Server(Option<String>),
}

/// Answers a request from a server, or of the host itself.
pub(super) async fn answer(
    handler: Option<&dyn Answers>,
    asker: Asker,
    method: &Method,
    params: Option<Raw>,
) -> Outcome {
    let unknown = || ErrorObject::method_not_found(method.as_str());
    let handler = handler.ok_or_else(unknown)?;
    let params = params.unwrap_or_else(Raw::empty_object);
    let is_of_host = matches!(asker, Asker::Host);
    let server = match asker {
        Asker::Host => None,
        Asker::Server(server) => server,
    };
    match method {
        Method::Elicit => {
            let question = Elicitation { server, is_of_host, params };
            let (params, is_page) = (question.params.clone(), question.url().is_some());
            let answer = handler.elicit(question).await;
            Ok(defaults::filled(&params, answer.result(is_page)))
        }
        Method::CreateMessage => match handler.sample(Sampling { server, params }).await {
            SampleAnswer::Message(message) => Ok(message),
            SampleAnswer::Decline => Err(ErrorObject::new(REJECTED, "the user rejected the sampling request")),
        },
        Method::RootsList => Ok(Raw::from_value(&json!({ "roots": handler.roots(server.as_deref()).await }))),
        _ => Err(unknown()),
    }
}

/// The JSON-RPC error code for a sampling request that the user rejected.
const REJECTED: i64 = -1;

#[cfg(test)]
mod tests {
    use super::*;

    /// Has only the required method.
    struct Silent;

    impl ClientHandler for Silent {
        fn profile(&self) -> Profile {
            Profile::EMPTY
        }
    }

    struct Willing;

    impl ClientHandler for Willing {
        fn profile(&self) -> Profile {
            Profile::ROOTS
        }

        async fn elicit(&self, question: Elicitation) -> ElicitAnswer {
            ElicitAnswer::accept(json!({ "who": question.server() }))
        }

        async fn sample(&self, question: Sampling) -> SampleAnswer {
            SampleAnswer::text("m", &format!("{} of {:?}", question.messages().len(), question.max_tokens()))
        }

        async fn roots(&self, server: Option<&str>) -> Vec<Root> {
            vec![Root::new("file:///a"), Root::new("file:///b").named(server.unwrap_or("nobody"))]
        }
    }

    async fn ask(handler: &dyn Answers, method: Method, params: serde_json::Value) -> String {
        match answer(Some(handler), Asker::Server(Some("s".to_owned())), &method, Some(params.into())).await {
            Ok(result) => result.to_string(),
            Err(error) => format!("{} {}", error.code, error.message),
        }
    }

    #[tokio::test]
    async fn what_a_handler_does_not_answer_is_declined() {
        assert_eq!(ask(&Silent, Method::Elicit, json!({ "message": "?" })).await, r#"{"action":"decline"}"#);
        assert!(ask(&Silent, Method::CreateMessage, json!({})).await.starts_with("-1 "));
        assert_eq!(ask(&Silent, Method::RootsList, json!({})).await, r#"{"roots":[]}"#);
        assert!(ask(&Silent, Method::ToolsList, json!({})).await.starts_with("-32601 "));
        let nobody = answer(None, Asker::Server(None), &Method::RootsList, None).await;
        assert_eq!(nobody, Err(ErrorObject::method_not_found("roots/list")));
    }

    #[tokio::test]
    async fn answers_become_results() {
        let form = json!({ "message": "?", "requestedSchema": { "properties": { "n": { "default": 1 } } } });
        assert_eq!(ask(&Willing, Method::Elicit, form).await, r#"{"action":"accept","content":{"who":"s","n":1}}"#);
        let page = json!({ "mode": "url", "message": "?", "url": "https://example.com" });
        assert_eq!(ask(&Willing, Method::Elicit, page).await, r#"{"action":"accept"}"#);
        let sample = ask(&Willing, Method::CreateMessage, json!({ "messages": [{}, {}], "maxTokens": 9 })).await;
        assert!(sample.contains(r#""text":"2 of Some(9)""#), "{sample}");
        let roots = r#"{"roots":[{"uri":"file:///a"},{"name":"s","uri":"file:///b"}]}"#;
        assert_eq!(ask(&Willing, Method::RootsList, json!({})).await, roots);
    }
}
