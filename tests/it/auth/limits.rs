//! Limits on authorization servers: how much is read, how long they may take, and how far a server may redirect us.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mcp_host::config::Config;
use mcp_host::{Host, StateName};
use serde_json::{Value, json};

use super::site::{Asked, Site, Told};
use super::world::{Issuing, User, config, guarded, mcp, named, server, state};

/// A settled host that tries once.
async fn settled(mut config: Config, user: &User) -> Host {
    config.servers[0].restart.max_retries = 0;
    let host = Host::builder().config(config).interaction(user.clone()).start().await.unwrap();
    host.settled().await;
    host
}

/// An authorization server with this metadata and this token response.
async fn issuer(metadata: fn(&str) -> Value, token: Value) -> Site {
    Site::start(|url| {
        move |asked: &Asked| match asked.line().as_str() {
            "GET /.well-known/oauth-authorization-server" => Told::json(200, &metadata(&url)),
            "POST /register" => Told::json(201, &json!({ "client_id": "me" })),
            "POST /token" if token.is_null() => Told::Silence,
            "POST /token" => Told::json(200, &token),
            _ => Told::json(404, &json!({})),
        }
    })
    .await
}

fn metadata(url: &str) -> Value {
    json!({
        "issuer": url,
        "authorization_endpoint": format!("{url}/authorize"),
        "token_endpoint": format!("{url}/token"),
        "registration_endpoint": format!("{url}/register"),
        "code_challenge_methods_supported": ["S256"],
        "padding": "x".repeat(2000),
    })
}

#[tokio::test]
async fn limit_oauth_document_and_oauth_token() {
    let token = json!({ "access_token": "good", "token_type": "Bearer", "padding": "x".repeat(1000) });
    let issuer = issuer(metadata, token.clone()).await;
    let server = server(named(&issuer), Arc::new(|token: Option<&str>| token == Some("good"))).await;
    let (document, token) = (metadata(&issuer.url).to_string().len(), token.to_string().len());
    let large = 1 << 20;
    for (of_document, of_token, fits) in [
        (document - 1, large, false),
        (document, large, true),
        (document + 1, large, true),
        (large, token - 1, false),
        (large, token, true),
        (large, token + 1, true),
    ] {
        let mut config = config(&[&server]);
        config.host.limits.oauth_document = of_document;
        config.host.limits.oauth_token = of_token;
        let host = settled(config, &User::default()).await;
        assert_eq!(state(&host) == StateName::Connected, fits, "{of_document} {of_token}");
        host.shutdown().await;
    }
}

#[tokio::test]
async fn limit_oauth_request() {
    let issuer = issuer(metadata, Value::Null).await;
    let server = guarded(&issuer, &Arc::new(Issuing::default())).await;
    let mut config = config(&[&server]);
    config.host.limits.oauth_request = Duration::from_millis(300);
    let begun = Instant::now();
    let host = settled(config, &User::default()).await;
    // Ten seconds are the default, and two requests are made.
    assert!(begun.elapsed() < Duration::from_secs(8) && state(&host) != StateName::Connected);
    assert!(issuer.count("POST /token") >= 1);
    host.shutdown().await;
}

#[tokio::test]
async fn limit_redirects() {
    let site = Site::start(|_| {
        |asked: &Asked| match asked.path.strip_prefix("/hop/").and_then(|left| left.parse::<u32>().ok()) {
            Some(0) if asked.method == "POST" => mcp(asked),
            Some(left) if left > 0 => {
                Told::Answer(307, vec![("location", format!("/hop/{}", left - 1))], String::new())
            }
            _ => Told::Answer(405, Vec::new(), String::new()),
        }
    })
    .await;
    for (most, fits) in [(2, false), (3, true), (4, true)] {
        let mut config = config(&[&site]);
        let mcp_host::config::Transport::Http(remote) = &mut config.servers[0].transport else { panic!("over HTTP") };
        remote.url = format!("{}/hop/3", site.url).parse().unwrap();
        config.host.limits.redirects = most;
        let host = settled(config, &User::default()).await;
        let status = host.status().remove(0);
        assert_eq!(status.state == StateName::Connected, fits, "{most}: {:?}", status.last_error);
        if !fits {
            assert!(status.last_error.unwrap_or_default().contains("more than 2 times (host.limits.redirects)"));
        }
        host.shutdown().await;
    }
}
