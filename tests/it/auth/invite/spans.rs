//! Logins as spans: those that a client is invited to, and those that the embedding program begins.

use mcp_host::config::Otel;
use opentelemetry_proto::tonic::trace::v1::Span;

use super::clients::{World, asked, browse, is_refusal, text};
use crate::otel::{Answers, attributes, collector, spans};

const LOGIN: &str = "mcp_host.login";

#[tokio::test]
async fn each_login_has_a_span_of_its_own() {
    let (origin, got) = collector(Answers::Ok);
    let otel = Otel::default().endpoint(origin.parse().unwrap());
    // The embedding program has signed in once by then.
    let world = World::with(|config| config.host.otel = Some(otel), "127.0.0.1:0").await;
    let first = world.ask(&serde_json::json!({})).await;
    let (address, back) = asked(&first, &world.issuer);
    let accepted = back("accept");
    let (answer, ()) = tokio::join!(world.ask(&accepted), browse(address, &world.issuer));
    assert_eq!(text(&answer), "done");
    world.issuing.forget();
    let again = world.ask(&serde_json::json!({})).await;
    let (_, back) = asked(&again, &world.issuer);
    is_refusal(&world.ask(&back("decline")).await);
    world.host.shutdown().await;
    let logins = |spans: &[Span]| spans.iter().filter(|span| span.name == LOGIN).count();
    let all = tokio::task::spawn_blocking(move || spans(&got, |spans| logins(spans) >= 3)).await.unwrap();
    let told = all.iter().filter(|span| span.name == LOGIN).map(|span| {
        assert!(span.end_time_unix_nano > span.start_time_unix_nano && span.parent_span_id.is_empty(), "{span:?}");
        let of = attributes(&span.attributes);
        (of["mcp_host.server"].clone(), of.get("error.type").cloned())
    });
    let failed = Some("login_failed".to_owned());
    let expected = [None, None, failed].map(|error| ("a".to_owned(), error));
    assert_eq!(told.collect::<Vec<_>>(), expected);
    assert!(!format!("{all:?}").contains("canary"), "no token and no code: {all:#?}");
}
