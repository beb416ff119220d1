//! One client on `rmcp` that goes through what server-everything can do.
//!
//! ```text
//! interop_rmcp [options] --url URL
//! interop_rmcp [options] -- COMMAND ARGUMENTS...
//! ```
//!
//! The lines it prints and the options are those of `python/client.py`.
#![expect(clippy::print_stdout, reason = "its lines are what it is run for")]
#![expect(deprecated, reason = "sampling, roots and logging are what is tried here")]

use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::process::{ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rmcp::model::{
    CallToolRequestParams, ClientConfig, CompletionContext, CreateMessageRequestParams, CreateMessageResult,
    ElicitRequestParams, ElicitResult, ElicitationAction, ErrorData, GetPromptRequestParams, Implementation,
    ListRootsResult, LoggingLevel, LoggingMessageNotificationParam, PaginatedRequestParams, ProgressNotificationParam,
    ProtocolVersion, ReadResourceRequestParams, RequestMetaObject, ResourceUpdatedNotificationParam, Root,
    SamplingMessage, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter, UnsubscribeRequestParams,
};
use rmcp::service::{NotificationContext, RequestContext, RunningService};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, RoleClient};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

const FEATURES: &str = "list,echo,progress,sampling,elicitation,roots,annotated,resources,prompts,logging,subscription";

#[derive(Clone, Debug)]
struct Options {
    url: Option<String>,
    command: Vec<String>,
    prefix: String,
    uri_prefix: String,
    mark: String,
    number: u64,
    steps: u64,
    rounds: u64,
    era: String,
    features: String,
}

impl Options {
    fn parse() -> Result<Self, Box<dyn Error + Send + Sync>> {
        let mut given: HashMap<String, String> = HashMap::new();
        let mut arguments = std::env::args().skip(1);
        let mut command = Vec::new();
        while let Some(argument) = arguments.next() {
            match argument.strip_prefix("--") {
                Some("") => command = arguments.by_ref().collect(),
                Some(name) => {
                    let value = arguments.next().ok_or("an option without its value")?;
                    given.insert(name.to_owned(), value);
                }
                None => return Err(format!("not an option: {argument}").into()),
            }
        }
        let mut take = |name: &str, default: &str| given.remove(name).unwrap_or_else(|| default.to_owned());
        Ok(Self {
            url: Some(take("url", "")).filter(|url| !url.is_empty()),
            command,
            prefix: take("prefix", ""),
            uri_prefix: take("uri-prefix", ""),
            mark: take("mark", "mark-r"),
            number: take("number", "3003").parse()?,
            steps: take("steps", "4").parse()?,
            rounds: take("rounds", "1").parse()?,
            era: take("era", "any"),
            features: take("features", FEATURES),
        })
    }
}

/// What came in, beside the answers.
#[derive(Debug, Default)]
struct Heard {
    everything: Vec<String>,
    logs: Vec<String>,
    updates: Vec<String>,
    progress: Vec<(f64, Option<f64>)>,
}

/// What this client answers when it is asked.
#[derive(Clone, Debug)]
struct Handler {
    options: Options,
    heard: Arc<Mutex<Heard>>,
}

impl Handler {
    fn hear(&self, value: &impl Serialize, note: impl FnOnce(&mut Heard)) {
        let mut heard = self.heard.lock().expect("no holder panics");
        heard.everything.push(serde_json::to_string(value).expect("a model is JSON"));
        note(&mut heard);
    }

    fn with<T>(&self, read: impl FnOnce(&mut Heard) -> T) -> T {
        read(&mut self.heard.lock().expect("no holder panics"))
    }

    async fn until(&self, limit: Duration, found: impl Fn(&Heard) -> bool) -> Outcome {
        let end = Instant::now() + limit;
        while !self.with(|heard| found(heard)) {
            expect(Instant::now() < end, &format!("nothing came within {limit:?}"))?;
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let capabilities = json!({"roots": {}, "sampling": {}, "elicitation": {"form": {}, "url": {}}});
        let capabilities = serde_json::from_value(capabilities).expect("capabilities of the specification");
        ClientConfig::new(capabilities, Implementation::new("interop", "1"))
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        self.hear(&params, |_| {});
        let message = SamplingMessage::assistant_text(format!("sampled by {}", self.options.mark));
        Ok(CreateMessageResult::new(message, self.options.mark.clone()).with_stop_reason("endTurn"))
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.hear(&params, |_| {});
        let content = json!({"name": self.options.mark, "integer": self.options.number});
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content))
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        let root = Root::new(format!("file:///{}", self.options.mark)).with_name(self.options.mark.clone());
        Ok(ListRootsResult::new(vec![root]))
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.hear(&params, |heard| heard.progress.push((params.progress, params.total)));
    }

    async fn on_logging_message(&self, params: LoggingMessageNotificationParam, _: NotificationContext<RoleClient>) {
        self.hear(&params, |heard| heard.logs.push(params.data.to_string()));
    }

    async fn on_resource_updated(&self, params: ResourceUpdatedNotificationParam, _: NotificationContext<RoleClient>) {
        self.hear(&params, |heard| heard.updates.push(params.uri.clone()));
    }
}

/// The features, one method each.
struct Run {
    client: RunningService<RoleClient, Handler>,
    options: Options,
    modern: bool,
    uri: String,
}

impl Run {
    async fn feature(&self, name: &str) -> Outcome {
        match name {
            "list" => self.list().await,
            "echo" => self.echo().await,
            "progress" => self.progress().await,
            "sampling" => self.sampling().await,
            "elicitation" => self.elicitation().await,
            "roots" => self.roots().await,
            "annotated" => self.annotated().await,
            "resources" => self.resources().await,
            "prompts" => self.prompts().await,
            "logging" => self.logging().await,
            "subscription" => self.subscription().await,
            _ => Err(format!("no feature {name}").into()),
        }
    }

    fn handler(&self) -> &Handler {
        self.client.service()
    }

    async fn call(&self, tool: &str, arguments: Value) -> Result<Value, Box<dyn Error + Send + Sync>> {
        let Value::Object(arguments) = arguments else { return Err("arguments are an object".into()) };
        let mut params = CallToolRequestParams::new(self.options.prefix.clone() + tool).with_arguments(arguments);
        if self.modern {
            let mut meta = RequestMetaObject::new();
            meta.set_log_level(LoggingLevel::Debug);
            params.meta = Some(meta);
        }
        let result = serde_json::to_value(self.client.call_tool(params).await?)?;
        self.handler().hear(&result, |_| {});
        expect(result["isError"] != true, &result)?;
        Ok(result)
    }

    async fn text(&self, tool: &str, arguments: Value) -> Result<String, Box<dyn Error + Send + Sync>> {
        let result = self.call(tool, arguments).await?;
        let parts = result["content"].as_array().into_iter().flatten();
        Ok(parts.filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n"))
    }

    async fn list(&self) -> Outcome {
        let mut names = BTreeSet::new();
        let mut cursor = None;
        loop {
            let page = self.client.list_tools(Some(PaginatedRequestParams::default().with_cursor(cursor))).await?;
            names.extend(page.tools.into_iter().map(|tool| tool.name.into_owned()));
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        for name in ["get-roots-list", "trigger-elicitation-request", "trigger-sampling-request", "echo", "get-sum"] {
            expect(names.contains(&(self.options.prefix.clone() + name)), &format!("no {name} in {names:?}"))?;
        }
        let wanted = self.options.era == "any" || self.modern == (self.options.era == "modern");
        expect(wanted, &format!("modern: {}", self.modern))
    }

    async fn echo(&self) -> Outcome {
        let mark = &self.options.mark;
        expect(self.text("echo", json!({"message": mark})).await? == format!("Echo: {mark}"), "another echo")
    }

    async fn progress(&self) -> Outcome {
        let steps = self.options.steps;
        self.handler().with(|heard| heard.progress.clear());
        let arguments = json!({"duration": 0.1 * steps as f64, "steps": steps});
        let text = self.text("trigger-long-running-operation", arguments).await?;
        expect(text.contains(&format!("Steps: {steps}")), &text)?;
        let wanted: Vec<_> = (1..=steps).map(|step| (step as f64, Some(steps as f64))).collect();
        // The crate hands each notification to a task of its own.
        let all = self.handler().until(Duration::from_secs(1), |heard| heard.progress.len() >= wanted.len()).await;
        let mut seen = self.handler().with(|heard| heard.progress.clone());
        seen.sort_by(|left, right| left.0.total_cmp(&right.0));
        expect(all.is_ok() && seen == wanted, &format!("{seen:?}"))
    }

    async fn sampling(&self) -> Outcome {
        let arguments = json!({"prompt": self.options.mark, "maxTokens": 10});
        let text = self.text("trigger-sampling-request", arguments).await?;
        expect(text.contains(&format!("sampled by {}", self.options.mark)), &text)
    }

    async fn elicitation(&self) -> Outcome {
        let text = self.text("trigger-elicitation-request", json!({})).await?;
        expect(text.contains(&format!("- Name: {}", self.options.mark)), &text)?;
        expect(text.contains(&format!("- Favorite Integer: {}", self.options.number)), &text)
    }

    async fn roots(&self) -> Outcome {
        let text = self.text("get-roots-list", json!({})).await?;
        let own = text.contains(&format!("URI: file:///{}", self.options.mark));
        expect(own && text.contains("(1 total)"), &text)
    }

    async fn annotated(&self) -> Outcome {
        let result = self.call("get-annotated-message", json!({"messageType": "error", "includeImage": true})).await?;
        let found: Vec<_> =
            result["content"].as_array().into_iter().flatten().map(|part| &part["annotations"]).collect();
        let wanted = [
            json!({"audience": ["user", "assistant"], "priority": 1.0}),
            json!({"audience": ["user"], "priority": 0.5}),
        ];
        expect(found == wanted.iter().collect::<Vec<_>>(), &result)
    }

    async fn resources(&self) -> Outcome {
        let templates = serde_json::to_value(self.client.list_all_resource_templates().await?)?;
        let template = format!("{}demo://resource/dynamic/text/{{resourceId}}", self.options.uri_prefix);
        let listed = templates.as_array().into_iter().flatten().any(|each| each["uriTemplate"] == template.as_str());
        expect(listed, &templates)?;
        let read = serde_json::to_value(self.client.read_resource(ReadResourceRequestParams::new(&self.uri)).await?)?;
        let start = format!("Resource {}:", self.options.number);
        let content = &read["contents"][0];
        let same = content["uri"] == self.uri.as_str()
            && content["text"].as_str().is_some_and(|text| text.starts_with(&start));
        expect(same, &read)?;
        let links = self.call("get-resource-links", json!({"count": 2})).await?;
        let link = links["content"][1]["uri"].as_str().unwrap_or_default();
        expect(link.starts_with(&format!("{}demo://", self.options.uri_prefix)), &links)?;
        let read = serde_json::to_value(self.client.read_resource(ReadResourceRequestParams::new(link)).await?)?;
        expect(read["contents"][0]["uri"] == link, &read)
    }

    async fn prompts(&self) -> Outcome {
        let Value::Object(arguments) = json!({"city": self.options.mark, "state": "X"}) else { unreachable!() };
        let name = self.options.prefix.clone() + "args-prompt";
        let prompt = self.client.get_prompt(GetPromptRequestParams::new(name).with_arguments(arguments)).await?;
        let prompt = serde_json::to_value(prompt)?;
        let wanted = format!("What's weather in {}, X?", self.options.mark);
        expect(prompt["messages"][0]["content"]["text"] == wanted.as_str(), &prompt)?;
        let name = self.options.prefix.clone() + "completable-prompt";
        let known = HashMap::from([("department".to_owned(), "Engineering".to_owned())]);
        let context = Some(CompletionContext::with_arguments(known));
        let answer = self.client.complete_prompt_argument(name, "name", "A", context).await?;
        expect(answer.values == ["Alice"], &format!("{answer:?}"))
    }

    async fn logging(&self) -> Outcome {
        if !self.modern {
            self.client.set_level(SetLevelRequestParams::new(LoggingLevel::Debug)).await?;
        }
        self.handler().with(|heard| heard.logs.clear());
        self.call("toggle-simulated-logging", json!({})).await?;
        let level = |line: &String| line.to_lowercase().contains("level");
        let came = self.handler().until(Duration::from_secs(12), |heard| heard.logs.iter().any(level)).await;
        self.call("toggle-simulated-logging", json!({})).await?;
        came
    }

    async fn subscription(&self) -> Outcome {
        let limit = Duration::from_secs(12);
        if self.modern {
            let filter = SubscriptionFilter::builder().resource_subscriptions([self.uri.clone()]).build();
            let mut stream = self.client.listen(filter).await?;
            self.call("toggle-subscriber-updates", json!({})).await?;
            let event = timeout(limit, stream.next()).await;
            self.call("toggle-subscriber-updates", json!({})).await?;
            let event = serde_json::to_value(event??)?;
            self.handler().hear(&event, |_| {});
            stream.cancel().await?;
            return expect(event["params"]["uri"] == self.uri.as_str(), &event);
        }
        self.client.subscribe(SubscribeRequestParams::new(&self.uri)).await?;
        self.call("toggle-subscriber-updates", json!({})).await?;
        let came = self.handler().until(limit, |heard| !heard.updates.is_empty()).await;
        self.call("toggle-subscriber-updates", json!({})).await?;
        self.client.unsubscribe(UnsubscribeRequestParams::new(&self.uri)).await?;
        came?;
        let updates = self.handler().with(|heard| heard.updates.clone());
        expect(updates.iter().all(|uri| *uri == self.uri), &format!("{updates:?}"))?;
        // The server logs a subscription with its URI: a log message that is somebody's own.
        let own = format!("/text/{}", self.options.number);
        self.handler().until(Duration::from_secs(5), |heard| heard.logs.iter().any(|line| line.contains(&own))).await
    }

    /// The marks of others in what came in.
    fn foreign(&self) -> BTreeSet<String> {
        let everything = self.handler().with(|heard| heard.everything.join("\n"));
        let is_word = |letter: char| letter.is_alphanumeric() || letter == '-' || letter == '_';
        let word = |rest: &str| rest.chars().take_while(|letter| is_word(*letter)).collect::<String>();
        let marks = everything.match_indices("mark-").map(|(at, _)| word(&everything[at..]));
        let text = "dynamic/text/";
        let numbers = everything.match_indices(text).map(|(at, _)| word(&everything[at + text.len()..]));
        let own = self.options.number.to_string();
        marks
            .filter(|mark| *mark != self.options.mark)
            .chain(numbers.filter(|number| number.len() >= own.len() && *number != own))
            .collect()
    }
}

fn expect(condition: bool, what: &(impl ToString + ?Sized)) -> Outcome {
    if condition { Ok(()) } else { Err(what.to_string().chars().take(600).collect::<String>().into()) }
}

async fn connect(options: &Options) -> Result<RunningService<RoleClient, Handler>, Box<dyn Error + Send + Sync>> {
    let handler = Handler { options: options.clone(), heard: Arc::default() };
    let modern = vec![ProtocolVersion::V_2026_07_28];
    let lifecycle = match options.era.as_str() {
        "legacy" => ClientLifecycleMode::Initialize,
        "modern" => ClientLifecycleMode::Discover { preferred_versions: modern },
        _ => ClientLifecycleMode::Auto { preferred_versions: modern, legacy_version: None },
    };
    if let Some(url) = &options.url {
        let transport = StreamableHttpClientTransport::from_uri(url.as_str());
        return Ok(handler.serve_with_lifecycle(transport, lifecycle).await?);
    }
    let (program, arguments) = options.command.split_first().ok_or("neither --url nor a command")?;
    let mut command = Command::new(program);
    command.args(arguments);
    let (transport, _) = TokioChildProcess::builder(command).stderr(Stdio::inherit()).spawn()?;
    Ok(handler.serve_with_lifecycle(transport, lifecycle).await?)
}

async fn run() -> Result<usize, Box<dyn Error + Send + Sync>> {
    let options = Options::parse()?;
    let client = timeout(Duration::from_secs(60), connect(&options)).await??;
    let version = client.peer_info().map(|info| info.protocol_version.to_string()).unwrap_or_default();
    let uri = format!("{}demo://resource/dynamic/text/{}", options.uri_prefix, options.number);
    let run = Run { client, options: options.clone(), modern: version.as_str() >= "2026", uri };
    let mut failed = 0;
    for round in 1..=options.rounds {
        for feature in options.features.split(',') {
            let label = if options.rounds == 1 { feature.to_owned() } else { format!("{feature} #{round}") };
            let outcome = match timeout(Duration::from_secs(60), run.feature(feature)).await {
                Ok(outcome) => outcome,
                Err(late) => Err(late.into()),
            };
            match outcome {
                Ok(()) => println!("ok {label}"),
                Err(error) => {
                    failed += 1;
                    println!("FAIL {label}: {}", error.to_string().replace('\n', " "));
                }
            }
        }
    }
    let foreign = run.foreign();
    if foreign.is_empty() {
        println!("ok only its own messages");
    } else {
        failed += 1;
        println!("FAIL only its own messages: {foreign:?}");
    }
    timeout(Duration::from_secs(15), run.client.cancel()).await??;
    Ok(failed)
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    // The HTTP client wants a provider of cryptography even where everything is plain loopback.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match run().await {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            println!("FAIL connect: {}", error.to_string().replace('\n', " "));
            ExitCode::FAILURE
        }
    }
}
