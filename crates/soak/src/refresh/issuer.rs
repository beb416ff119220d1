//! An authorization server whose tokens live two seconds and whose refresh tokens are single-use, and the server that
//! accepts its tokens.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

/// How long an access token lives.
pub(super) const LIFE: Duration = Duration::from_secs(2);
const BODY_BYTES: usize = 64 * 1024;

/// A running issuer.
pub(super) struct Issuer {
    pub(super) url: String,
    state: Arc<Site>,
    task: tokio::task::JoinHandle<()>,
}

/// What it saw.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    pub(super) sign_ins: usize,
    pub(super) refreshes: usize,
    pub(super) reused: usize,
}

struct Site {
    url: String,
    given: Mutex<Given>,
}

#[derive(Default)]
struct Given {
    told: Told,
    next: u64,
    /// Access tokens, and when they expire.
    access: HashMap<String, Instant>,
    /// Unused refresh tokens.
    refresh: HashSet<String>,
}

impl Issuer {
    pub(super) async fn start() -> Result<Self, String> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
        let url = format!("http://{}", listener.local_addr().map_err(|error| error.to_string())?);
        let state = Arc::new(Site { url: url.clone(), given: Mutex::default() });
        let router = Router::new().fallback(answer).with_state(state.clone());
        let task = tokio::spawn(async move {
            // It ends with the task.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { url, state, task })
    }

    pub(super) fn told(&self) -> Told {
        self.state.given().told
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Site {
    fn given(&self) -> MutexGuard<'_, Given> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves the token endpoint.
    fn token(&self, form: &HashMap<String, String>) -> Response {
        let mut given = self.given();
        if form.get("grant_type").is_some_and(|grant| grant == "refresh_token") {
            given.told.refreshes += 1;
            let known = form.get("refresh_token").is_some_and(|token| given.refresh.remove(token));
            if !known {
                // A reused token may be stolen, so the whole family is revoked (RFC 9700, 4.14.2).
                given.told.reused += 1;
                given.access.clear();
                given.refresh.clear();
                return (StatusCode::BAD_REQUEST, r#"{"error":"invalid_grant"}"#).into_response();
            }
        } else {
            given.told.sign_ins += 1;
        }
        given.next += 1;
        let (access, refresh) = (format!("access-{}", given.next), format!("refresh-{}", given.next));
        given.access.insert(access.clone(), Instant::now() + LIFE);
        given.refresh.insert(refresh.clone());
        let answer = json!({ "access_token": access, "token_type": "Bearer", "expires_in": LIFE.as_secs(), "refresh_token": refresh });
        of_json(&answer)
    }

    fn takes(&self, headers: &HeaderMap) -> bool {
        let token = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        token.is_some_and(|token| self.given().access.get(token).is_some_and(|end| Instant::now() < *end))
    }
}

async fn answer(State(site): State<Arc<Site>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_BYTES).await else { return StatusCode::BAD_REQUEST.into_response() };
    let url = &site.url;
    match (&head.method, head.uri.path()) {
        (&Method::GET, "/.well-known/oauth-protected-resource/mcp") => {
            of_json(&json!({ "resource": format!("{url}/mcp"), "authorization_servers": [url] }))
        }
        (&Method::GET, "/.well-known/oauth-authorization-server") => of_json(&json!({
            "issuer": url,
            "authorization_endpoint": format!("{url}/authorize"),
            "token_endpoint": format!("{url}/token"),
            "registration_endpoint": format!("{url}/register"),
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
        })),
        (&Method::POST, "/register") => {
            (StatusCode::CREATED, [(header::CONTENT_TYPE, "application/json")], r#"{"client_id":"soak"}"#)
                .into_response()
        }
        (&Method::POST, "/token") => site.token(&url::form_urlencoded::parse(&body).into_owned().collect()),
        (&Method::POST, "/mcp") if site.takes(&head.headers) => mcp(&body),
        (&Method::POST, "/mcp") => {
            let metadata = format!("Bearer resource_metadata=\"{url}/.well-known/oauth-protected-resource/mcp\"");
            (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, metadata)]).into_response()
        }
        (&Method::DELETE, "/mcp") => StatusCode::OK.into_response(),
        (&Method::GET, "/mcp") => StatusCode::METHOD_NOT_ALLOWED.into_response(),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

/// A server with one tool.
fn mcp(body: &Bytes) -> Response {
    let message: Value = serde_json::from_slice(body).unwrap_or_default();
    let result = match message["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": "2025-11-25", "capabilities": { "tools": {} }, "serverInfo": { "name": "s", "version": "1" },
        }),
        Some("tools/list") => json!({ "tools": [{ "name": "t", "inputSchema": { "type": "object" } }] }),
        Some("tools/call") => json!({ "content": [{ "type": "text", "text": "done" }] }),
        _ => return StatusCode::ACCEPTED.into_response(),
    };
    of_json(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
}

fn of_json(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}
