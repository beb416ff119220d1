//! Builds the results of `initialize` and `server/discover`, in which mcp-host describes itself.

use super::client::Client;
use super::extensions::offered;
use super::finish::Finish;
use crate::manager::Manager;
use crate::protocol::{ProtocolVersion, Raw, meta};

/// Returns the result of `initialize`. It never waits for a server.
pub(super) fn initialized(manager: &Manager, finish: &Finish, client: &Client) -> Raw {
    let revision = client.revision();
    let tasks = if revision == ProtocolVersion::V2025_11_25 && manager.settings().tasks {
        r#","tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}"#
    } else {
        ""
    };
    let extensions = offered(manager, revision, &client.who);
    let extensions = match extensions.as_bytes() {
        // An empty `extensions` object is left out.
        b"{}" => String::new(),
        _ => format!(r#","extensions":{extensions}"#),
    };
    let completions = if revision >= ProtocolVersion::V2025_03_26 { r#","completions":{}"# } else { "" };
    let mut result = format!(
        r#"{{"protocolVersion":"{revision}","capabilities":{{"tools":{{"listChanged":true}},"prompts":{{"listChanged":true}},"resources":{{"subscribe":true,"listChanged":true}},"logging":{{}}{completions}{tasks}{extensions}}},"serverInfo":{}"#,
        finish.info()
    );
    instruct(&mut result, manager, client);
    if let Some(id) = manager.host_id() {
        result += &format!(r#","_meta":{{"{}":"{}"}}"#, meta::HOST_ID, id.as_str());
    }
    result.push('}');
    Raw::trusted(result.into())
}

/// Returns the result of `server/discover`. It never waits for a server.
pub(super) fn discovered(manager: &Manager, finish: &Finish, client: &Client) -> Raw {
    let versions: Vec<&str> = ProtocolVersion::MODERN.iter().map(|version| version.as_str()).collect();
    let mut result = format!(
        r#"{{"supportedVersions":{},"capabilities":{{"tools":{{"listChanged":true}},"prompts":{{"listChanged":true}},"resources":{{"subscribe":true,"listChanged":true}},"completions":{{}},"logging":{{}},"extensions":{}}}"#,
        Raw::from_value(&versions),
        offered(manager, ProtocolVersion::LATEST_MODERN, &client.who)
    );
    instruct(&mut result, manager, client);
    result.push('}');
    let hints = manager.freshness(&client.who_now(), None);
    let id = manager.host_id();
    let own = id.map(|id| format!(r#","{}":"{}""#, meta::HOST_ID, id.as_str())).unwrap_or_default();
    finish.completed_with(&own, &Raw::trusted(result.into()), Some(hints))
}

fn instruct(result: &mut String, manager: &Manager, client: &Client) {
    if let Some(instructions) = manager.instructions(&client.who) {
        *result += r#","instructions":"#;
        *result += Raw::from_value(&instructions).as_str();
    }
}
