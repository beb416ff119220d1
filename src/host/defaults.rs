//! Fills in the default values of form fields that an answer leaves out: accepting a form accepts its defaults
//! (2025-11-25, elicitation).

use crate::protocol::{Raw, object};

/// Returns the answer to an elicitation, with default values for the form fields that it leaves out.
pub(super) fn filled(params: &Raw, answer: Raw) -> Raw {
    if answer.text("action").as_deref() != Some("accept") || params.text("mode").as_deref() == Some("url") {
        return answer;
    }
    let properties = params.member("requestedSchema").and_then(|schema| schema.member("properties"));
    let Some(properties) = properties else { return answer };
    let given = answer.member("content").filter(Raw::is_object);
    let mut content = given.unwrap_or_else(Raw::empty_object);
    let mut changed = false;
    for (name, field) in object(properties.as_value()).unwrap_or_default() {
        let default = Raw::part(properties.bytes(), field).member("default");
        if let Some(default) = default.filter(|_| content.member(&name).is_none()) {
            content = content.with_member(&name, default.as_bytes());
            changed = true;
        }
    }
    if changed { answer.with_member("content", content.as_bytes()) } else { answer }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fill(params: &serde_json::Value, answer: &str) -> String {
        filled(&Raw::from_value(params), Raw::parse(&answer.to_owned().into()).expect("JSON")).to_string()
    }

    #[test]
    fn what_is_left_out_of_an_accepted_form_gets_its_default() {
        let fields = json!({
            "name": { "type": "string", "default": "John Doe" },
            "age": { "type": "integer", "default": 30 },
            "tags": { "type": "array", "default": ["a"] },
            "note": { "type": "string" },
        });
        let form = json!({ "message": "?", "requestedSchema": { "type": "object", "properties": fields } });
        let all = r#"{"action":"accept","content":{"age":30,"name":"John Doe","tags":["a"]}}"#;
        assert_eq!(fill(&form, r#"{"action":"accept"}"#), all);
        assert_eq!(
            fill(&form, r#"{"action":"accept","content":{"name":"Ada","age":1.0}}"#),
            r#"{"action":"accept","content":{"name":"Ada","age":1.0,"tags":["a"]}}"#
        );
        for untouched in [
            r#"{"action":"decline"}"#,
            r#"{"action":"cancel","content":{}}"#,
            r#"{"action":"accept","content":{"name":"","age":0,"tags":[]}}"#,
        ] {
            assert_eq!(fill(&form, untouched), untouched);
        }
    }

    #[test]
    fn a_page_to_visit_has_no_fields() {
        let page = json!({ "mode": "url", "message": "?", "url": "https://example.com" });
        assert_eq!(fill(&page, r#"{"action":"accept"}"#), r#"{"action":"accept"}"#);
    }
}
