//! Handles that a client keeps, such as states and tasks: each is good in the view alone in which it was given.

use std::sync::Arc;

use serde_json::{Value, json};

use super::jobs::Shop;
use super::support::{Stage, call, retry, stage_of, text};
use crate::config::{Config, View};
use crate::manager::{Chosen, Identity, Principal, Viewed};
use crate::protocol::Method::{TasksCancel, TasksGet, TasksList, TasksResult, ToolsCall};
use crate::protocol::{Profile, ProtocolVersion, Raw};
use crate::router::Client;

/// The local user in this view.
fn at(view: &str) -> Identity {
    Identity { view: Viewed { name: Chosen::named(view), is_private: false }, ..Principal::local().into() }
}

/// Two views that show everything.
fn two_views(config: &mut Config) {
    for name in ["one", "other"] {
        config.host.views.insert(name.to_owned(), View::default());
    }
}

fn modern(stage: &Stage, view: &str) -> Arc<Client> {
    stage.router.modern(at(view), &Raw::trusted(r#"{"elicitation":{}}"#.into())).unwrap()
}

#[tokio::test(start_paused = true)]
async fn h46_a_state_is_good_in_its_view_only() {
    let stage = stage_of(two_views).await;
    let (one, other, all) = (modern(&stage, "one"), modern(&stage, "other"), modern(&stage, "all"));
    for (mine, others) in [(&one, [&other, &all]), (&all, [&one, &other])] {
        let asked = stage.answer(mine, &call("ask")).await;
        let answer = json!({ "action": "accept", "content": { "name": "ann" } });
        let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap();
        let good = retry(&call("ask"), &asked, &json!({ key: answer }));
        for client in others {
            assert_eq!(stage.answer(client, &good).await["error"], -32602);
        }
        assert_eq!(text(&stage.answer(mine, &good).await), answer.to_string());
    }
}

#[tokio::test(start_paused = true)]
async fn h66_a_task_is_known_in_its_view_only() {
    let shop = Shop::of_session(two_views);
    let client =
        |view: &str| shop.router.admit(at(view), ProtocolVersion::V2025_11_25, Profile::ELICITATION_FORM, None);
    let (one, other, all) = (client("one"), client("other"), client("all"));
    for (mine, others) in [(&one, [&other, &all]), (&all, [&one, &other])] {
        let created: Value = shop.answer(mine, ToolsCall, &json!({ "name": "job", "arguments": {}, "task": {} })).await;
        let handle = &created["task"]["taskId"];
        let about = json!({ "taskId": handle });
        for client in others {
            for method in [TasksGet, TasksResult, TasksCancel] {
                assert_eq!(shop.answer(client, method.clone(), &about).await["error"], -32602, "{method}");
            }
            let listed = shop.answer(client, TasksList, &json!({})).await;
            assert!(!listed["tasks"].as_array().unwrap().iter().any(|task| task["taskId"] == *handle), "{listed}");
        }
        assert_eq!(shop.answer(mine, TasksGet, &about).await["taskId"], *handle, "it is as it was");
    }
}
