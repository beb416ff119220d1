//! Observers hear how every request ends, whatever serves it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::support::{FORM, Stage, call, request, stage};
use crate::answered::Failed;
use crate::observe::{At, Begun, End, Ended, Listener, Pending, Wants};
use crate::protocol::{Method, Profile, ProtocolVersion, Raw, Request, RequestId};

/// A request and its end: its method, how it ended, and its target at the server.
type Heard = (String, End, Option<String>);

/// Listens to all requests.
#[derive(Clone, Debug, Default)]
struct Ear(Arc<Mutex<Vec<Heard>>>);

#[derive(Debug)]
struct Open(Ear, String);

impl Listener for Ear {
    fn wants(&self, _: &Method) -> Wants {
        Wants::Whole
    }

    fn begin(&self, call: &Begun<'_>) -> Result<Box<dyn Pending>, Failed> {
        assert_eq!(call.principal, "local");
        Ok(Box::new(Open(self.clone(), call.method.to_string())))
    }

    fn finish(&self) -> BoxFuture<'_, ()> {
        async {}.boxed()
    }
}

impl Pending for Open {
    fn end(self: Box<Self>, ended: &Ended<'_>) {
        let Self(ear, method) = *self;
        ear.0.lock().unwrap().push((method, ended.end, ended.at.map(|At { target, .. }| target.to_string())));
    }
}

impl Ear {
    fn on(stage: &Stage) -> Self {
        let ear = Self::default();
        stage.router.observer().tell(vec![Arc::new(ear.clone())]);
        ear
    }

    fn heard(&self) -> Vec<Heard> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

fn heard(method: &Method, end: End, target: Option<&str>) -> Heard {
    (method.to_string(), end, target.map(str::to_owned))
}

#[tokio::test(start_paused = true)]
async fn each_request_is_told_with_its_end() {
    let stage = stage().await;
    let ear = Ear::on(&stage);
    let client = stage.legacy(ProtocolVersion::V2025_11_25, Profile::EMPTY);
    request(&stage.router, &client, Method::Ping, &json!({})).answer().await;
    stage.answer(&client, &call("echo")).await;
    stage.answer(&client, &json!({ "arguments": {} })).await;
    assert_eq!(
        ear.heard(),
        [
            heard(&Method::Ping, End::Ok, None),
            heard(&Method::ToolsCall, End::Ok, Some("echo")),
            heard(&Method::ToolsCall, End::Error, None)
        ]
    );
    let held = stage.call(&client, &call("held"));
    stage.until(|script| script.begun.load(Ordering::SeqCst) == 2).await;
    held.drop().await;
    assert_eq!(ear.heard(), [heard(&Method::ToolsCall, End::Cancelled, Some("held"))]);
    stage.router.close_doors();
    stage.answer(&client, &call("echo")).await;
    assert_eq!(ear.heard(), [heard(&Method::ToolsCall, End::HostError, None)]);
}

#[tokio::test(start_paused = true)]
async fn what_is_served_beside_all_others_is_told_too() {
    let stage = stage().await;
    let ear = Ear::on(&stage);
    let client = stage.modern(FORM);
    let closing = CancellationToken::new();
    let ask = |method: Method| {
        let params = Some(Raw::from_value(&json!({ "notifications": {} })));
        let request = Request { id: RequestId::Number(1), method, params };
        stage.router.stateless(&client, request, &stage.router.modern_leg(None), &closing)
    };
    ask(Method::Discover).await.unwrap().unwrap();
    assert_eq!(ear.heard(), [heard(&Method::Discover, End::Ok, None)]);
    let listen = tokio::spawn(ask(Method::Listen));
    closing.cancel();
    listen.await.unwrap().unwrap().unwrap();
    assert_eq!(ear.heard(), [heard(&Method::Listen, End::Ok, None)]);
    drop(ask(Method::Ping));
    assert!(ear.heard().is_empty(), "what was never polled has not begun");
}
