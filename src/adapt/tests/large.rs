//! Large bodies are translated in one pass: all servers and clients share one thread. Each of these took minutes when
//! every member was searched for once per member.

use std::fmt::Write as _;

use super::*;

const MANY: usize = 20_000;

/// Joins `count` items with commas.
fn many(count: usize, each: impl Fn(usize) -> String) -> String {
    (0..count).map(each).collect::<Vec<_>>().join(",")
}

fn asked(method: &Method, params: &str, to: V) -> Result<Raw, Outcome> {
    question(method, Some(raw(params)), V25C, to, "gh").map(|asked| asked.params.unwrap()).map_err(|refused| refused.0)
}

#[test]
fn h48_many_keys_of_the_protocol_go_in_one_pass() {
    let own = many(MANY, |at| format!(r#""io.modelcontextprotocol/{at}":{at}"#));
    let said = format!(r#"{{"message":"?","_meta":{{"a":1.0,{own},"b":2}}}}"#);
    let kept = r#"{"message":"?","_meta":{"a":1.0,"b":2}}"#;
    assert_eq!(notice(raw(&said)).to_string(), kept);
    for to in [V25C, V26] {
        assert_eq!(asked(&Method::Elicit, &said, to).unwrap().to_string(), kept);
    }
}

#[test]
fn h48_many_blocks_become_messages_in_one_pass() {
    let block = r#"{"type":"text","text":""}"#;
    let blocks = many(MANY, |_| block.to_owned());
    let sampling = format!(r#"{{"messages":[{{"role":"user","content":[{blocks}],"z":1.0}}]}}"#);
    let told = asked(&Method::CreateMessage, &sampling, V25B).unwrap();
    let one = format!(r#"{{"role":"user","content":{block},"z":1.0}}"#);
    assert_eq!(told.to_string(), format!(r#"{{"messages":[{}]}}"#, many(MANY, |_| one.clone())));
    // A member beside the blocks is not repeated for each of them.
    let beside = "x".repeat(1 << 20);
    let sampling = format!(r#"{{"messages":[{{"role":"user","content":[{blocks}],"z":"{beside}"}}]}}"#);
    let Err(Err(error)) = asked(&Method::CreateMessage, &sampling, V25B) else { panic!("it is many gigabytes") };
    assert_eq!(error.code, -32602);
}

#[test]
fn h48_many_fields_are_asked_in_one_pass() {
    let fields = many(MANY, |at| format!(r#""f{at}":{{"type":"array","items":{{"enum":["x"]}}}}"#));
    let names = many(MANY, |at| format!(r#""f{at}""#));
    let form = |fields: &str, more: &str| {
        format!(
            r#"{{"requestedSchema":{{"type":"object","properties":{{{fields}}},"required":[{names},"f7","s"]}}{more}}}"#
        )
    };
    let asked_for = question(&Method::Elicit, Some(raw(&form(&fields, ""))), V25C, V25B, "gh").unwrap();
    let told = value(&asked_for.params.unwrap());
    assert_eq!(told["requestedSchema"]["required"], serde_json::json!(["s"]));
    assert_eq!(told["requestedSchema"]["properties"].as_object().unwrap().len(), MANY);
    let on = many(MANY, |at| format!(r#""f{at}__0":{}"#, at == 7));
    let answer = asked_for.fold.answer(Ok(raw(&format!(r#"{{"action":"accept","content":{{{on}}}}}"#)))).unwrap();
    let answer = value(&answer);
    assert_eq!(
        (&answer["content"]["f7"], &answer["content"]["f8"]),
        (&serde_json::json!(["x"]), &serde_json::json!([]))
    );
    // The search for free names is bounded, and a field's texts are not repeated for each of its values.
    let mut taken = String::new();
    for length in 2..1000 {
        write!(taken, r#""f{}0":{{"type":"string"}},"#, "_".repeat(length)).unwrap();
    }
    let of_all = format!(r#"{taken}"f":{{"type":"array","items":{{"enum":["x"]}}}}"#);
    let values = many(64, |at| format!("\"{at}\""));
    let long = "x".repeat(1 << 20);
    let spoken = format!(r#""f":{{"type":"array","description":"{long}","items":{{"enum":[{values}]}}}}"#);
    for fields in [of_all, spoken] {
        let cancelled = Err(Ok(raw(r#"{"action":"cancel"}"#)));
        assert_eq!(asked(&Method::Elicit, &form(&fields, ""), V25B), cancelled);
    }
}

#[test]
fn h48_many_texts_are_compared_with_a_structure_that_is_read_once() {
    let (texts, numbers) =
        (many(MANY, |_| r#"{"type":"text","text":"[0]"}"#.to_owned()), many(MANY, |at| at.to_string()));
    let said = format!(r#"{{"content":[{texts}],"structuredContent":[{numbers}]}}"#);
    let told = value(&result(raw(&said), &Method::ToolsCall, V26, V25B, &info()));
    assert_eq!(told["content"].as_array().unwrap().len(), MANY + 1);
}
