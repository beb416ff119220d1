//! Resources and a template.

use mcp_host::InProcess;
use mcp_host::in_process::Invocation;
use mcp_host::protocol::Raw;
use serde_json::json;

use crate::words::PNG;

pub(crate) fn add(server: InProcess) -> InProcess {
    let fixed = [
        ("static-text", "text/plain", "text", "This is the content of the static text resource."),
        ("static-binary", "image/png", "blob", PNG),
        ("watched-resource", "text/plain", "text", "This is the content of the watched resource."),
    ];
    let server = fixed.into_iter().fold(server, |server, (name, mime, key, content)| {
        let uri = format!("test://{name}");
        let about = format!("The {} for tests.", name.replace('-', " "));
        let definition = json!({ "uri": uri, "name": name, "description": about, "mimeType": mime });
        let result = Raw::from_value(&json!({ "contents": [{ "uri": uri, "mimeType": mime, key: content }] }));
        server.resource(Raw::from_value(&definition), move |_| {
            let result = result.clone();
            Box::pin(async { Ok(result) })
        })
    });
    let template = json!({
        "uriTemplate": "test://template/{id}/data",
        "name": "template-data",
        "description": "Data with the id from its URI.",
        "mimeType": "application/json",
    });
    server.resource_template(Raw::from_value(&template), |call| Box::pin(async move { Ok(read_template(&call)) }))
}

fn read_template(call: &Invocation) -> Raw {
    let uri = call.params.text("uri").unwrap_or_default();
    let id = uri.trim_start_matches("test://template/").trim_end_matches("/data");
    let text = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") }).to_string();
    Raw::from_value(&json!({ "contents": [{ "uri": uri, "mimeType": "application/json", "text": text }] }))
}
