//! Recipes for programs that embed the host.
//!
//! # Start, list, call, stop
//!
//! ```no_run
//! # async fn recipe() -> Result<(), mcp_host::Error> {
//! use std::time::Duration;
//!
//! use mcp_host::Host;
//! use serde_json::json;
//!
//! let host = Host::builder().config_file("mcp.json").start().await?;
//! for tool in host.catalog_ready().await.tools() {
//!     println!("{}: {}", tool.name(), tool.definition());
//! }
//! let call = host.call_tool("files__read_file", json!({ "path": "notes.txt" })).timeout(Duration::from_secs(30));
//! let result = call.on_progress(|step| println!("{} of {:?}", step.progress, step.total)).await?;
//! // A failed tool says why in its text, for the model to read.
//! println!("{}: {}", if result.is_error() { "failed" } else { "done" }, result.text());
//! host.shutdown().await;
//! # Ok(()) }
//! ```
//!
//! # Cancel a call
//!
//! Drop the future of the call. The server is told that the call is cancelled.
//!
//! ```no_run
//! # async fn recipe(host: mcp_host::Host) {
//! let call = host.call_tool("build__run", serde_json::json!({}));
//! tokio::select! {
//!     result = call => println!("{result:?}"),
//!     _ = tokio::signal::ctrl_c() => println!("cancelled"),
//! }
//! # }
//! ```
//!
//! # Act on an error
//!
//! ```no_run
//! # async fn recipe(host: mcp_host::Host) {
//! use mcp_host::ErrorKind;
//! use serde_json::json;
//!
//! let mut result = host.call_tool("files__raed_file", json!({ "path": "notes.txt" })).await;
//! if let Err(error) = &result
//!     && error.is_retryable()
//! {
//!     result = host.call_tool("files__read_file", json!({ "path": "notes.txt" })).await;
//! }
//! match result {
//!     Ok(result) => println!("{}", result.text()),
//!     Err(error) if error.kind() == ErrorKind::Unknown => println!("{error}; near: {:?}", error.nearest()),
//!     Err(error) if error.kind() == ErrorKind::Unauthorized => println!("sign in to {:?} first", error.server()),
//!     Err(error) => println!("{error}: {}", error.help().unwrap_or("no help")),
//! }
//! # }
//! ```
//!
//! # Answer questions of servers
//!
//! ```no_run
//! # async fn recipe() -> Result<(), mcp_host::Error> {
//! use mcp_host::{ClientHandler, ElicitAnswer, Elicitation, Host, Profile, Root, SampleAnswer, Sampling};
//!
//! struct Agent;
//!
//! impl ClientHandler for Agent {
//!     fn profile(&self) -> Profile {
//!         Profile::ELICITATION_FORM.with(Profile::SAMPLING).with(Profile::ROOTS)
//!     }
//!
//!     async fn elicit(&self, question: Elicitation) -> ElicitAnswer {
//!         println!("{:?} asks: {}", question.server(), question.message());
//!         ElicitAnswer::Decline
//!     }
//!
//!     async fn sample(&self, question: Sampling) -> SampleAnswer {
//!         SampleAnswer::text("my-model", &format!("an answer to {} messages", question.messages().len()))
//!     }
//!
//!     async fn roots(&self, _server: Option<&str>) -> Vec<Root> {
//!         vec![Root::new("file:///home/ada/src").named("Source code")]
//!     }
//! }
//!
//! let host = Host::builder().config_file("mcp.json").client_handler(Agent).start().await?;
//! # Ok(()) }
//! ```
//!
//! # Follow servers and their lists
//!
//! ```no_run
//! # async fn recipe(host: mcp_host::Host) {
//! use mcp_host::Event;
//!
//! let mut events = host.events();
//! while let Some(event) = events.next().await {
//!     match event {
//!         Event::State(change) => println!("{} is {}: {:?}", change.server, change.to, change.cause),
//!         Event::Lists(lists) if lists.tools => println!("{} tools", host.catalog().tools().len()),
//!         Event::Log(message) => println!("{} [{}]: {}", message.server, message.level, message.data),
//!         Event::Stderr(line) => println!("{}: {}", line.server, line.text),
//!         _ => {}
//!     }
//! }
//! # }
//! ```
//!
//! # A session for each conversation
//!
//! ```no_run
//! # async fn recipe(host: mcp_host::Host) -> Result<(), mcp_host::Error> {
//! // A server with `"sharing": "session"` runs once for each session, and ends with it.
//! let session = host.session();
//! session.call_tool("browser__open", serde_json::json!({ "url": "https://example.com" })).await?;
//! # Ok(()) }
//! ```
//!
//! # A config without a file
//!
//! ```no_run
//! # async fn recipe() -> Result<(), Box<dyn std::error::Error>> {
//! use mcp_host::Host;
//! use mcp_host::config::{Config, Remote, Server, Stdio};
//!
//! let files = Server::new("files", Stdio::new("npx").args(["-y", "@modelcontextprotocol/server-filesystem", "."]))?;
//! let example = Server::new("example", Remote::new("https://example.com/mcp".parse()?).header("X-Team", "blue"))?;
//! let host = Host::builder().config(Config::default().server(files.lazy()).server(example)).start().await?;
//! host.add_server(Server::new("clock", Stdio::new("mcp-clock"))?);
//! host.remove_server("example");
//! # Ok(()) }
//! ```
//!
//! # Follow a config file
//!
//! ```no_run
//! # async fn recipe() -> Result<(), mcp_host::Error> {
//! let host = mcp_host::Host::builder().config_file("mcp.json").follow().start().await?;
//! // The host follows the file by itself; this call reloads it at once.
//! let changes = host.reload_files().await?;
//! println!("added: {:?}, removed: {:?}, changed: {:?}", changes.added, changes.removed, changes.changed);
//! println!("problems: {:?}", host.config_status().borrow().problems);
//! # Ok(()) }
//! ```
//!
//! # In-process tools
//!
//! ```no_run
//! # async fn recipe() -> Result<(), mcp_host::Error> {
//! use mcp_host::{Host, InProcess};
//! use serde_json::json;
//!
//! let greet = json!({ "name": "greet", "inputSchema": { "type": "object" } });
//! let server = InProcess::new("mine", "1.0.0").tool(greet.into(), |_call| {
//!     Box::pin(async { Ok(json!({ "content": [{ "type": "text", "text": "Hello." }] }).into()) })
//! });
//! let host = Host::builder().in_process("mine", server).start().await?;
//! assert_eq!(host.call_tool("mine__greet", json!({})).await?.text(), "Hello.");
//! # Ok(()) }
//! ```
//!
//! # Sign in to a server
//!
//! ```no_run
//! # async fn recipe(host: mcp_host::Host) -> Result<(), Box<dyn std::error::Error>> {
//! let login = host.device_login("github").await?;
//! println!("enter {} at {}", login.user_code(), login.verification_uri());
//! login.finish().await?;
//! # Ok(()) }
//! ```
