//! Servers that name someone else where they may speak only for themselves (`docs/hazards.md` H68, H69).

use std::sync::Arc;

use serde_json::json;

use super::site::{Asked, Site, Told};
use super::world::{self, Issuing, issuer};

async fn refused(server: &Site) -> String {
    let host = world::host(&[server], |builder| builder).await;
    let error = host.login("a", &"http://127.0.0.1:1/x".parse().unwrap()).await.unwrap_err();
    host.shutdown().await;
    error.to_string()
}

#[tokio::test]
async fn h68_metadata_of_a_server_is_asked_of_its_own_origin_alone() {
    let issuing = Arc::new(Issuing::default());
    let issuer = issuer(&issuing).await;
    let other = Site::start(|_| |_: &Asked| Told::json(200, &json!({}))).await;
    let (there, url) = (other.url.clone(), issuer.url.clone());
    let server = Site::start(|own| {
        move |asked: &Asked| match asked.line().as_str() {
            "POST /mcp" => {
                let challenge =
                    format!("Bearer resource_metadata=\"{there}/.well-known/oauth-protected-resource/mcp\"");
                Told::Answer(401, vec![("www-authenticate", challenge)], String::new())
            }
            _ => Told::json(200, &json!({ "resource": format!("{own}/mcp"), "authorization_servers": [url] })),
        }
    })
    .await;
    let error = refused(&server).await;
    assert!(error.contains("another origin") && other.lines().is_empty(), "{error} {:?}", other.lines());
}

#[tokio::test]
async fn h69_a_server_that_is_its_own_issuer_is_no_other_one() {
    let server = Site::start(|own| {
        move |asked: &Asked| match asked.line().as_str() {
            "POST /mcp" => Told::Answer(401, vec![("www-authenticate", "Bearer".to_owned())], String::new()),
            "GET /.well-known/oauth-authorization-server" => Told::json(
                200,
                &json!({
                    "issuer": "https://evil.example", "authorization_endpoint": format!("{own}/authorize"),
                    "token_endpoint": format!("{own}/token"), "code_challenge_methods_supported": ["S256"],
                }),
            ),
            _ => Told::Answer(404, Vec::new(), String::new()),
        }
    })
    .await;
    let error = refused(&server).await;
    assert!(error.contains("a different issuer than the one requested"), "{error}");
}
