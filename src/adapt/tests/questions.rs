//! Questions from servers, and their answers.

use proptest::prelude::*;

use super::*;
use crate::protocol::ErrorObject;

fn asked(method: &Method, params: &str, from: V, to: V) -> AdaptedQuestion {
    question(method, Some(raw(params)), from, to, "gh").unwrap_or_else(|refused| panic!("{refused:?}: {params}"))
}

fn params(method: &Method, text: &str, from: V, to: V) -> String {
    asked(method, text, from, to).params.unwrap().to_string()
}

fn refused(method: &Method, text: &str, from: V, to: V) -> Outcome {
    question(method, Some(raw(text)), from, to, "gh").unwrap_err().0
}

const FORM: &str = r#"{"message":"?","requestedSchema":{"type":"object","properties":{"s":{"type":"string","minLength":1.0},"b":{"type":"boolean","default":true},"e":{"type":"string","enum":["x"],"enumNames":["X"]}},"required":["s"]},"z":1}"#;

#[test]
fn what_fits_is_asked_as_it_is() {
    for (from, to) in pairs() {
        assert_eq!(params(&Method::Elicit, FORM, from, to), FORM);
        let sampling = r#"{"messages":[{"role":"user","content":{"type":"text","text":"a"},"z":1e2}],"maxTokens":5}"#;
        assert_eq!(params(&Method::CreateMessage, sampling, from, to), sampling);
        assert!(question(&Method::RootsList, None, from, to, "gh").unwrap().params.is_none());
    }
}

#[test]
fn what_is_of_the_servers_own_hop_stays_there() {
    let own = r#"{"message":"?","_meta":{"progressToken":7,"a":1.0,"io.modelcontextprotocol/related-task":{"taskId":"t"},"io.modelcontextprotocol/x":1},"task":{}}"#;
    let kept = r#"{"message":"?","_meta":{"a":1.0,"io.modelcontextprotocol/related-task":{"taskId":"t"}},"task":{}}"#;
    assert_eq!(params(&Method::Elicit, own, V25C, V25C), kept);
    assert_eq!(params(&Method::Elicit, own, V25C, V26), r#"{"message":"?","_meta":{"a":1.0}}"#);
}

#[test]
fn visits_and_their_ids() {
    let visit = r#"{"mode":"url","url":"https://e.com","elicitationId":"7","message":"?"}"#;
    let scoped = r#"{"mode":"url","url":"https://e.com","elicitationId":"gh:7","message":"?"}"#;
    assert_eq!(params(&Method::Elicit, visit, V25C, V25C), scoped);
    assert_eq!(params(&Method::Elicit, visit, V25C, V26), r#"{"mode":"url","url":"https://e.com","message":"?"}"#);
    let modern = r#"{"mode":"url","url":"https://e.com","message":"?"}"#;
    assert_eq!(
        url::numbered(&raw(modern), "u1").to_string(),
        r#"{"mode":"url","url":"https://e.com","message":"?","elicitationId":"u1"}"#
    );
    assert_eq!(url::scoped(&raw(r#"{"elicitationId":"7"}"#), "gh").to_string(), r#"{"elicitationId":"gh:7"}"#);
    assert!(url::is_url(Some(&raw(modern))) && !url::is_url(Some(&raw(FORM))) && !url::is_url(None));
}

#[test]
fn the_error_that_wants_pages_visited() {
    let data = r#"{"elicitations":[{"mode":"url","elicitationId":"7","url":"https://e.com","message":"a"},{"z":1},{"url":"https://f.com"}],"z":1.0}"#;
    let error = ErrorObject::new(-32042, "m").with_data(raw(data));
    let wanted: Vec<String> = url::required(&error).unwrap().iter().map(Raw::to_string).collect();
    assert_eq!(
        wanted,
        [r#"{"mode":"url","url":"https://e.com","message":"a"}"#, r#"{"url":"https://f.com","mode":"url"}"#]
    );
    assert_eq!(url::scoped_error(error.clone(), "gh").data.unwrap().to_string(), data.replace("\"7\"", "\"gh:7\""));
    assert_eq!(url::required(&ErrorObject { code: -32041, ..error }), None);
    for odd in ["3", "{}", r#"{"elicitations":[]}"#, r#"{"elicitations":{"url":"x"}}"#] {
        assert_eq!(url::required(&ErrorObject::new(-32042, "m").with_data(raw(odd))), None, "{odd}");
    }
}

#[test]
fn titled_choices_for_2025_06_18() {
    let form = |fields: &str| {
        format!(r#"{{"message":"?","requestedSchema":{{"type":"object","properties":{{{fields}}},"required":["a"]}}}}"#)
    };
    let newer = form(
        r#""a":{"type":"string","title":"A","oneOf":[{"const":"r","title":"Red"},{"const":"g"}],"default":"r"},"n":{"type":"integer","default":1,"minimum":0.0},"b":{"type":"boolean","default":true}"#,
    );
    let older = form(
        r#""a":{"type":"string","title":"A","enum":["r","g"],"enumNames":["Red","g"]},"n":{"type":"integer","minimum":0.0},"b":{"type":"boolean","default":true}"#,
    );
    for (from, to) in [(V25C, V25B), (V26, V25B), (V26, V25A)] {
        assert_eq!(params(&Method::Elicit, &newer, from, to), older);
    }
    assert_eq!(params(&Method::Elicit, &newer, V26, V25C), newer);
    assert_eq!(params(&Method::Elicit, &older, V25B, V26), older);
}

#[test]
fn choices_of_several_for_2025_06_18() {
    let newer = r#"{"message":"?","requestedSchema":{"type":"object","properties":{"c":{"type":"array","title":"Colors","description":"d","minItems":1,"items":{"anyOf":[{"const":"r","title":"Red"},{"const":"g","title":"Green"}]},"default":["g"]},"s":{"type":"string"},"t":{"type":"array","items":{"type":"string","enum":["x"]}}},"required":["s","c"]}}"#;
    let AdaptedQuestion { params, fold } = asked(&Method::Elicit, newer, V26, V25B);
    let older = r#"{"message":"?","requestedSchema":{"type":"object","properties":{"c__0":{"description":"d","title":"Colors: Red","type":"boolean"},"c__1":{"default":true,"description":"d","title":"Colors: Green","type":"boolean"},"s":{"type":"string"},"t__0":{"title":"t: x","type":"boolean"}},"required":["s"]}}"#;
    assert_eq!(params.unwrap().to_string(), older);
    let answer = |text: &str| fold.answer(Ok(raw(text))).unwrap().to_string();
    assert_eq!(
        answer(r#"{"action":"accept","content":{"c__1":true,"s":"1.50","c__0":true,"t__0":false}}"#),
        r#"{"action":"accept","content":{"s":"1.50","c":["r","g"],"t":[]}}"#
    );
    assert_eq!(
        answer(r#"{"action":"accept","content":{"c__1":false,"s":""}}"#),
        r#"{"action":"accept","content":{"s":"","t":[]}}"#,
        "an empty list would be too short: the server is told nothing"
    );
    for other in [r#"{"action":"decline"}"#, r#"{"action":"cancel","content":{"c__0":true}}"#, "3"] {
        assert_eq!(answer(other), other);
    }
    let gone = ErrorObject::new(-1, "no");
    assert_eq!(fold.answer(Err(gone.clone())), Err(gone));
}

#[test]
fn a_switch_takes_no_name_that_is_taken() {
    let form = r#"{"requestedSchema":{"properties":{"c":{"type":"array","items":{"enum":["x","y"]}},"c__1":{"type":"string"}}}}"#;
    let AdaptedQuestion { params, fold } = asked(&Method::Elicit, form, V25C, V25B);
    let names: Vec<String> =
        value(&params.unwrap())["requestedSchema"]["properties"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(names, ["c__1", "c___0", "c___1"]);
    let answer = fold.answer(Ok(raw(r#"{"action":"accept","content":{"c___1":true,"c__1":"z"}}"#))).unwrap();
    assert_eq!(answer.to_string(), r#"{"action":"accept","content":{"c__1":"z","c":["y"]}}"#);
}

#[test]
fn what_no_older_form_can_ask_is_cancelled() {
    let field = |field: &str| format!(r#"{{"requestedSchema":{{"type":"object","properties":{{"f":{field}}}}}}}"#);
    let many = format!(r#"{{"type":"array","items":{{"enum":[{}"x"]}}}}"#, "\"y\",".repeat(80));
    for odd in [
        r#"{"type":"object","properties":{}}"#,
        r#"{"type":"array"}"#,
        r#"{"type":"array","items":{"type":"string"}}"#,
        r#"{"type":"array","items":{"enum":[1]}}"#,
        r#"{"type":"array","items":{"enum":[]}}"#,
        r#"{"type":"string","oneOf":[{"title":"x"}]}"#,
        &many,
    ] {
        assert_eq!(refused(&Method::Elicit, &field(odd), V26, V25B), Ok(raw(r#"{"action":"cancel"}"#)), "{odd}");
        assert_eq!(params(&Method::Elicit, &field(odd), V25C, V26), field(odd));
    }
}

#[test]
fn sampling_by_revision() {
    let newer = r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image","data":"","mimeType":"i"}],"z":1.0},{"role":"assistant","content":{"type":"text","text":"b"}},{"role":"user","content":[]}],"maxTokens":1e2,"tools":[],"toolChoice":{"mode":"none"}}"#;
    let older = r#"{"messages":[{"role":"user","content":{"type":"text","text":"a"},"z":1.0},{"role":"user","content":{"type":"image","data":"","mimeType":"i"},"z":1.0},{"role":"assistant","content":{"type":"text","text":"b"}}],"maxTokens":1e2}"#;
    for (from, to) in [(V25C, V25B), (V26, V24)] {
        assert_eq!(params(&Method::CreateMessage, newer, from, to), older);
    }
    assert_eq!(params(&Method::CreateMessage, newer, V26, V25C), newer);
    let message = |block: &str| format!(r#"{{"messages":[{{"role":"user","content":{block}}}]}}"#);
    let sound = message(r#"{"type":"audio","data":"","mimeType":"a"}"#);
    assert_eq!(params(&Method::CreateMessage, &sound, V25C, V25A), sound);
    for (text, to) in [
        (sound, V24),
        (message(r#"[{"type":"tool_result","toolUseId":"1","content":[]}]"#), V25B),
        (message(r#"{"type":"tool_use"}"#), V25B),
        (message(r#"{"type":"smell"}"#), V25B),
        (r#"{"messages":[],"tools":[{"name":"t"}]}"#.to_owned(), V25B),
    ] {
        let Err(error) = refused(&Method::CreateMessage, &text, V26, to) else { panic!("{text}") };
        assert_eq!(error.code, -32602, "{text}");
    }
}

#[test]
fn an_answer_to_sampling_is_one_block_for_older_servers() {
    let answer = |text: &str, from, to| {
        let AdaptedQuestion { fold, .. } = asked(&Method::CreateMessage, r#"{"messages":[]}"#, from, to);
        fold.answer(Ok(raw(text))).map(|answer| answer.to_string())
    };
    let of = |content: &str| format!(r#"{{"role":"assistant","content":{content},"model":"m"}}"#);
    let one = r#"{"type":"text","text":"a"}"#;
    let two = of(&format!(r#"[{one},{{"type":"text","text":"b"}}]"#));
    assert_eq!(answer(&of(one), V25B, V26), Ok(of(one)));
    assert_eq!(answer(&of(&format!("[{one}]")), V25B, V26), Ok(of(one)));
    assert_eq!(answer(&two, V24, V25C), Ok(of(r#"{"text":"a\nb","type":"text"}"#)));
    assert_eq!(answer(&two, V25C, V26), Ok(two.clone()));
    assert_eq!(answer(&two, V26, V25C), Ok(two));
    let sound = of(r#"{"type":"audio","data":"","mimeType":"a"}"#);
    assert_eq!(answer(&sound, V25A, V25B), Ok(sound.clone()));
    assert_eq!(answer(&sound, V24, V25B).unwrap_err().code, -32603);
    let newer = r#"{"resultType":"complete","role":"assistant","content":{}}"#;
    assert_eq!(answer(newer, V25C, V26), Ok(r#"{"role":"assistant","content":{}}"#.to_owned()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_json_breaks_it(text in json(), answer in json()) {
        let wrapped = format!(r#"{{"message":"?","requestedSchema":{{"type":"object","properties":{text}}},"messages":{text},"_meta":{text}}}"#);
        for (from, to) in pairs() {
            for method in [Method::Elicit, Method::CreateMessage, Method::RootsList] {
                for params in [&text, &wrapped] {
                    let Ok(AdaptedQuestion { params, fold }) = question(&method, Some(raw(params)), from, to, "gh") else { continue };
                    let params = params.unwrap();
                    prop_assert_eq!(raw(params.as_str()), params);
                    for answer in [answer.clone(), format!(r#"{{"action":"accept","content":{answer}}}"#)] {
                        if let Ok(given) = fold.answer(Ok(raw(&answer))) {
                            prop_assert_eq!(raw(given.as_str()), given);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn every_set_of_choices_comes_back(values in prop::collection::btree_set("[a-z\"é]{1,4}", 1..6), picks in any::<u8>(), titled in any::<bool>()) {
        let values: Vec<String> = values.into_iter().collect();
        let list: Vec<Value> = values.iter().map(|value| if titled { serde_json::json!({ "const": value, "title": "T" }) } else { value.as_str().into() }).collect();
        let items = serde_json::json!({ if titled { "anyOf" } else { "enum" }: list });
        let form = serde_json::json!({ "requestedSchema": { "properties": { "f": { "type": "array", "items": items } } } });
        let AdaptedQuestion { params, fold } = asked(&Method::Elicit, &form.to_string(), V26, V25B);
        let shown = value(&params.unwrap())["requestedSchema"]["properties"].as_object().unwrap().len();
        prop_assert_eq!(shown, values.len());
        let picked: Vec<&String> = values.iter().enumerate().filter(|(index, _)| picks >> index & 1 == 1).map(|(_, value)| value).collect();
        let content: serde_json::Map<String, Value> = (0..values.len()).map(|index| (format!("f__{index}"), (picks >> index & 1 == 1).into())).collect();
        let answer = serde_json::json!({ "action": "accept", "content": content });
        let folded = fold.answer(Ok(raw(&answer.to_string()))).unwrap();
        prop_assert_eq!(value(&folded), serde_json::json!({ "action": "accept", "content": { "f": picked } }));
    }
}
