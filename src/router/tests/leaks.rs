//! Nothing is left of calls, clients, and leases that have ended (`docs/hazards.md` H55).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;

use super::support::*;
use crate::protocol::{Method, Notification, Profile, ProtocolVersion, Raw, Response};
use crate::router::Client;
use crate::router::gauges::Gauges;

/// The number of kinds of steps; they take turns.
const KINDS: usize = 8;
const CALLS: usize = 10_000;
/// How often clients come and go.
const EACH: usize = 250;

impl Stage {
    /// A call that ends by its number: answered, refused, asked, withdrawn, or dropped.
    async fn step(&self, number: usize, client: &Arc<Client>, modern: &Arc<Client>) {
        // A server that asks more than fifty times in a second is refused.
        tokio::time::sleep(Duration::from_millis(30)).await;
        let begun = || self.script.begun.load(Ordering::SeqCst);
        let before = begun();
        match number % KINDS {
            0 => drop(self.answer(client, &call("nothing of that name")).await),
            1 => {
                let running = self.call(client, &call("held"));
                self.until(|_| begun() > before).await;
                running.drop().await;
            }
            2 => {
                let running = self.call(client, &call("held"));
                self.until(|_| begun() > before).await;
                let params = Some(Raw::from_value(&json!({ "requestId": running.id })));
                self.router.notify(client, Notification { method: Method::Cancelled, params });
                running.answer().await;
            }
            3 => {
                let running = self.call(client, &call("ask"));
                let question = running.question().await;
                let outcome = Ok(Raw::from_value(&json!({ "action": "decline" })));
                client.answer(Response { id: Some(question.id), outcome });
                running.answer().await;
            }
            4 => {
                let running = self.call(client, &call("ask"));
                running.question().await;
                running.drop().await;
            }
            5 => {
                // The client abandons the question.
                let asked = self.answer(modern, &call("ask")).await;
                assert_eq!(asked["resultType"], "input_required", "{asked}");
                let again = retry(&call("ask"), &asked, &json!({ "i1": { "action": "decline" } }));
                if number.is_multiple_of(3) {
                    self.answer(modern, &again).await;
                }
            }
            _ => drop(self.answer(client, &call("echo")).await),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn h55_after_ten_thousand_calls_all_tables_are_empty() {
    let stage = stage_of(|config| config.servers[0].max_concurrent = 1000).await;
    let profile = Profile::from_capabilities(Raw::trusted(ALL.into()).as_value());
    for crowd in 0..CALLS / EACH {
        let client = stage.legacy(ProtocolVersion::V2025_11_25, profile);
        let modern = stage.modern(FORM);
        for number in 0..EACH {
            stage.step(crowd * EACH + number, &client, &modern).await;
        }
        assert!(stage.router.meter().gauges().clients > 0);
        stage.router.clients().close(&client);
    }
    // Calls that wait for a client that does not return end, and so do unused clients and leases.
    let limits = stage.router.limits();
    tokio::time::sleep(limits.answer + limits.session_idle + Duration::from_secs(120)).await;
    let left = stage.router.meter().gauges();
    let wanted = Gauges { leases: left.leases, ..Gauges::default() };
    assert_eq!(left, wanted);
    assert!(left.leases <= 1, "the one that lists: {left:?}");
}

#[tokio::test(start_paused = true)]
async fn h55_clients_that_leave_have_one_task_wait_for_their_leases() {
    let stage = stage().await;
    let come_and_go = async || {
        let client = stage.legacy(ProtocolVersion::V2025_11_25, Profile::EMPTY);
        stage.answer(&client, &call("echo")).await;
        stage.router.clients().close(&client);
    };
    come_and_go().await;
    let tasks = stage.router.manager().running_tasks();
    for _ in 0..100 {
        come_and_go().await;
    }
    assert_eq!(stage.router.manager().running_tasks(), tasks);
}
