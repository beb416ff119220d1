//! Tools that answer at once, with each type of content.

use mcp_host::InProcess;
use mcp_host::protocol::Raw;
use serde_json::json;

use crate::words::{WAV, answer, failure, image, text, tool};

/// Adds the tools.
pub(crate) fn add(server: InProcess) -> InProcess {
    let embedded = json!({
        "type": "resource",
        "resource": {
            "uri": "test://embedded-resource",
            "mimeType": "text/plain",
            "text": "This is an embedded resource content.",
        },
    });
    let mixed = json!({
        "type": "resource",
        "resource": {
            "uri": "test://mixed-content-resource",
            "mimeType": "application/json",
            "text": r#"{"test":"data","value":123}"#,
        },
    });
    let audio = json!({ "type": "audio", "data": WAV, "mimeType": "audio/wav" });
    let fixed = [
        ("test_simple_text", "Answers with text.", vec![text("This is a simple text response for testing.")]),
        ("test_image_content", "Answers with an image.", vec![image()]),
        ("test_audio_content", "Answers with audio.", vec![audio]),
        ("test_embedded_resource", "Answers with a resource.", vec![embedded]),
        (
            "test_multiple_content_types",
            "Answers with text, an image and a resource.",
            vec![text("Multiple content types test:"), image(), mixed],
        ),
    ];
    let server = fixed.into_iter().fold(server, |server, (name, description, content)| {
        let result = Raw::from_value(&json!({ "content": content }));
        server.tool(tool(name, description, &[]), move |_| {
            let result = result.clone();
            Box::pin(async { Ok(result) })
        })
    });
    let about = "Has an input schema with what JSON Schema 2020-12 brought; answers with its arguments.";
    let schema = tool("json_schema_2020_12_tool", about, &[]).with_member("inputSchema", SCHEMA_2020_12.as_bytes());
    server
        .tool(schema, |call| Box::pin(async move { Ok(answer(call.arguments.as_str())) }))
        .tool(tool("test_error_handling", "Fails.", &[]), |_| {
            Box::pin(async { Ok(failure("This tool intentionally returns an error for testing")) })
        })
}

/// Each keyword that a gateway may lose on the way (SEP-1613, SEP-2106).
const SCHEMA_2020_12: &str = r##"{
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": { "street": { "type": "string" }, "city": { "type": "string" } }
        }
    },
    "properties": {
        "name": { "type": "string" },
        "address": { "$ref": "#/$defs/address" },
        "contactMethod": { "type": "string", "enum": ["phone", "email"] },
        "phone": { "type": "string" },
        "email": { "type": "string" }
    },
    "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
    "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
    "then": { "required": ["phone"] },
    "else": { "required": ["email"] },
    "additionalProperties": false
}"##;
