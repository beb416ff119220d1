//! One endpoint for many MCP (Model Context Protocol) servers, as a crate.
//!
//! [`Host`] connects to every server of a config, merges their tools, prompts, and resources under qualified names, and
//! routes calls. The program `mcp-host` is built on it. The [`cookbook`] has recipes. ARCHITECTURE.md describes the layout
//! of the code and the path of one message through it.
//!
//! ```no_run
//! # async fn example() -> Result<(), mcp_host::Error> {
//! let host = mcp_host::Host::builder().config_file("mcp.json").start().await?;
//! for tool in host.catalog_ready().await.tools() {
//!     println!("{}", tool.name());
//! }
//! let arguments = serde_json::json!({ "path": "notes.txt" });
//! let result = host.call_tool("files__read_file", arguments).timeout(std::time::Duration::from_secs(30)).await?;
//! println!("{}", result.text());
//! host.shutdown().await;
//! # Ok(()) }
//! ```

mod adapt;
mod answered;
pub mod approvals;
mod audit;
pub mod auth;
mod boot;
pub mod config;
pub mod cookbook;
#[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the endpoint and the status socket read it"))]
mod counts;
pub mod demo;
mod dial;
mod doubled;
mod downstream;
pub mod edits;
mod error;
#[cfg(feature = "server")]
mod export;
pub mod exposed;
mod expression;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod glob;
mod hex;
mod host;
pub mod in_process;
#[cfg(feature = "install")]
#[doc(hidden)]
pub mod install;
mod keep;
mod lineage;
mod lock;
mod loopback;
mod manager;
pub mod name;
#[doc(hidden)]
pub mod nearest;
mod observe;
mod oversized;
#[cfg(feature = "cluster")]
mod peers;
#[cfg(feature = "server")]
mod pieces;
pub mod pins;
mod plain;
pub mod policy;
pub mod protocol;
mod queues;
#[cfg_attr(not(feature = "server"), allow(dead_code, unreachable_pub, reason = "only the status socket reads it"))]
mod record;
pub mod redact;
pub mod registry;
mod router;
mod sandbox;
#[cfg(all(unix, feature = "script"))]
mod script;
mod seal;
mod select;
#[cfg(feature = "server")]
mod sessions;
mod threads;
#[cfg_attr(not(feature = "otel"), allow(dead_code, reason = "only traces need it"))]
mod traced;
mod transport;
#[cfg_attr(not(feature = "install"), allow(dead_code, reason = "only an install makes trees"))]
mod trees;
mod upstream;

pub use config::Config;
pub use dial::{Certificates, Changed as ChangedCertificate};
pub use downstream::Eras;
#[cfg(feature = "server")]
pub use downstream::admin;
pub use error::{Error, ErrorKind};
#[cfg(any(feature = "schemas", test))]
pub use host::InvalidSchema;
pub use host::{
    Asked, Call, CallResult, ClientHandler, Completion, ElicitAnswer, Elicitation, Event, Events, Host, HostBuilder,
    LimitedNews, ListsChange, Progress, Root, SampleAnswer, Sampling, Session, Updates, VerdictNews,
};
#[cfg(feature = "server")]
pub use host::{HttpEndpoint, SocketEndpoint};
pub use in_process::InProcess;
pub use manager::{ConfigStatus, DefinitionNews, Ledger, Reload, ServerStatus, ServerTokens, StateChange};
pub use protocol::{ErrorObject, Method, Outcome, Profile, Raw};
pub use registry::{Catalog, Entry};
pub use router::{ClientChange, ClientEvent, ClientEvents, ClientNews, ClientStatus, Decided, OpenAsk};
pub use sandbox::{Learned, Needed, Touched};
pub use transport::{LogMessage, StderrLine, Unstartable, guard};
#[cfg(unix)]
pub use transport::{Orphan, orphans};
pub use upstream::StateName;
