//! An authorization server, a server that requires its tokens, a user who agrees to everything, and hosts with them.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use mcp_host::auth::{Interaction, Login, SecretStore, StoreError};
use mcp_host::config::{
    Auth, Config, Era, Grant, OAuth, Prefix, Remote, Secret, SecretKey, Server, StoreKind, Transport,
};
use mcp_host::protocol::Raw;
use mcp_host::{Host, HostBuilder, StateName};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Notify;
use url::Url;

use super::site::{Asked, Site, Told};

/// A test that waits longer has failed.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// How an authorization server misbehaves, and what it has issued.
#[derive(Default)]
pub(crate) struct Issuing {
    /// Lifetime of a token in seconds; 0 means an hour.
    pub(super) life: AtomicUsize,
    /// Whether it breaks the connection after it has spent a refresh token.
    pub(super) loses_answers: AtomicBool,
    /// What its responses to renewals wait for.
    pub(super) gate: Mutex<Option<Arc<Notify>>>,
    /// Members that replace those of its metadata.
    pub(super) metadata: Mutex<Value>,
    /// A replacement for the response of its token endpoint.
    pub(super) answer: Mutex<Option<Value>>,
    /// Members that replace those of its device code response.
    pub(super) device: Mutex<Value>,
    /// Answers to a device code, one after the other, before it yields a token: an error, or `lost` with the token.
    pub(super) not_yet: Mutex<VecDeque<&'static str>>,
    /// What releases the next client registration, if it is held.
    pub(super) holds: Mutex<Option<Arc<Notify>>>,
    given: AtomicUsize,
    live: Mutex<HashSet<String>>,
    /// How many refresh tokens were sent twice.
    pub(super) reused: AtomicUsize,
}

impl Issuing {
    /// Revokes all access tokens.
    pub(super) fn expire(&self) {
        self.live.lock().unwrap().retain(|token| token.starts_with("refresh-"));
    }

    /// Revokes all refresh tokens.
    pub(super) fn end_renewals(&self) {
        self.live.lock().unwrap().retain(|token| !token.starts_with("refresh-"));
    }

    /// Revokes all tokens, so that the user has to sign in again.
    pub(super) fn forget(&self) {
        self.live.lock().unwrap().clear();
    }

    pub(super) fn takes(&self, token: Option<&str>) -> bool {
        token.is_some_and(|token| self.live.lock().unwrap().contains(token))
    }

    pub(super) fn judge(self: &Arc<Self>) -> Judge {
        let issuing = self.clone();
        Arc::new(move |token| issuing.takes(token))
    }

    fn token(&self) -> Told {
        let number = self.given.fetch_add(1, Ordering::SeqCst);
        let (access, refresh) = (format!("access-canary-{number}"), format!("refresh-canary-{number}"));
        self.live.lock().unwrap().extend([access.clone(), refresh.clone()]);
        let life = match self.life.load(Ordering::SeqCst) {
            0 => 3600,
            life => life,
        };
        let answer =
            json!({ "access_token": access, "token_type": "Bearer", "expires_in": life, "refresh_token": refresh });
        Told::json(200, &self.answer.lock().unwrap().clone().unwrap_or(answer))
    }

    /// Answers a request for a device code.
    fn code(&self, url: &str) -> Told {
        let mut answer = json!({
            "device_code": "device-canary",
            "user_code": "WDJB-MJHT",
            "verification_uri": format!("{url}/device"),
            "verification_uri_complete": format!("{url}/device?user_code=WDJB-MJHT"),
            "expires_in": 1800,
            "interval": 1,
        });
        for (name, value) in self.device.lock().unwrap().as_object().into_iter().flatten() {
            answer[name] = value.clone();
        }
        Told::json(200, &answer)
    }

    /// Answers a token request with such a code.
    fn of_code(&self, code: &str) -> Told {
        if code != "device-canary" {
            return Told::json(400, &json!({ "error": "invalid_grant" }));
        }
        match self.not_yet.lock().unwrap().pop_front() {
            None => self.token(),
            Some("lost") => Told::Broken,
            Some("away") => Told::Answer(503, Vec::new(), "busy".to_owned()),
            Some(error) => Told::json(400, &json!({ "error": error })),
        }
    }

    fn refresh(&self, token: &str) -> Told {
        if !self.live.lock().unwrap().remove(token) {
            self.reused.fetch_add(1, Ordering::SeqCst);
            return Told::json(400, &json!({ "error": "invalid_grant" }));
        }
        let answer = self.token();
        let answer = if self.loses_answers.load(Ordering::SeqCst) { Told::Broken } else { answer };
        match self.gate.lock().unwrap().clone() {
            Some(gate) => Told::Held(gate, Box::new(answer)),
            None => answer,
        }
    }
}

/// Enables device codes.
pub(super) fn gives_codes(issuing: &Issuing, issuer: &Site) {
    *issuing.metadata.lock().unwrap() = json!({ "device_authorization_endpoint": format!("{}/code", issuer.url) });
}

const DEVICE_CODE: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// Starts an authorization server.
pub(super) async fn issuer(issuing: &Arc<Issuing>) -> Site {
    let issuing = issuing.clone();
    let registered = AtomicUsize::new(0);
    Site::start(|url| {
        move |asked: &Asked| match asked.line().as_str() {
            "GET /.well-known/oauth-authorization-server" => {
                let mut metadata = json!({
                    "issuer": url,
                    "authorization_endpoint": format!("{url}/authorize"),
                    "token_endpoint": format!("{url}/token"),
                    "registration_endpoint": format!("{url}/register"),
                    "revocation_endpoint": format!("{url}/revoke"),
                    "code_challenge_methods_supported": ["S256"],
                    "token_endpoint_auth_methods_supported": ["none"],
                });
                for (name, value) in issuing.metadata.lock().unwrap().as_object().into_iter().flatten() {
                    metadata[name] = value.clone();
                }
                Told::json(200, &metadata)
            }
            "POST /register" => {
                let number = registered.fetch_add(1, Ordering::SeqCst);
                let port = url.rsplit(':').next().unwrap_or_default();
                let told = Told::json(201, &json!({ "client_id": format!("client-{number}-of-{port}") }));
                match issuing.holds.lock().unwrap().take() {
                    Some(gate) => Told::Held(gate, Box::new(told)),
                    None => told,
                }
            }
            "POST /token" => match asked.field("grant_type").as_deref() {
                Some(DEVICE_CODE) => issuing.of_code(&asked.field("device_code").unwrap_or_default()),
                Some("refresh_token") => issuing.refresh(&asked.field("refresh_token").unwrap_or_default()),
                _ => issuing.token(),
            },
            "POST /code" => issuing.code(&url),
            "POST /revoke" => Told::json(200, &json!({})),
            _ => Told::json(404, &json!({})),
        }
    })
    .await
}

/// Decides whether a server accepts a token.
pub(super) type Judge = Arc<dyn Fn(Option<&str>) -> bool + Send + Sync>;
pub(super) type Named = Arc<dyn Fn() -> String + Send + Sync>;

/// Names this issuer in every refusal.
pub(super) fn named(issuer: &Site) -> Named {
    let url = issuer.url.clone();
    Arc::new(move || url.clone())
}

/// How a server refuses requests without a valid token.
pub(super) struct Refusal {
    metadata: String,
}

impl Refusal {
    /// Adds these parameters to its challenge.
    pub(super) fn with(&self, status: u16, parameters: &str) -> Told {
        let challenge = format!("Bearer {parameters}resource_metadata=\"{}\"", self.metadata);
        Told::Answer(status, vec![("www-authenticate", challenge)], String::new())
    }
}

/// Starts a server that requires tokens.
pub(super) async fn server(issuer: Named, takes: Judge) -> Site {
    serving(issuer, takes, |asked, _| mcp(asked)).await
}

/// Like `server`, with its own responses to requests with a token.
pub(super) async fn serving(
    issuer: Named,
    takes: Judge,
    answer: impl Fn(&Asked, &Refusal) -> Told + Send + Sync + 'static,
) -> Site {
    Site::start(|url| {
        let refusal = Refusal { metadata: format!("{url}/.well-known/oauth-protected-resource/mcp") };
        move |asked: &Asked| match asked.line().as_str() {
            "GET /.well-known/oauth-protected-resource/mcp" => {
                Told::json(200, &json!({ "resource": format!("{url}/mcp"), "authorization_servers": [issuer()] }))
            }
            "POST /mcp" if takes(asked.token()) => answer(asked, &refusal),
            "POST /mcp" => refusal.with(401, ""),
            "DELETE /mcp" => Told::Answer(200, Vec::new(), String::new()),
            "GET /mcp" => Told::Answer(405, Vec::new(), String::new()),
            _ => Told::Answer(404, Vec::new(), String::new()),
        }
    })
    .await
}

/// A server whose tokens come from `issuer`, which knows the valid ones.
pub(super) async fn guarded(issuer: &Site, issuing: &Arc<Issuing>) -> Site {
    server(named(issuer), issuing.judge()).await
}

/// An authorization server, and a server that requires its tokens.
pub(crate) async fn protected() -> (Arc<Issuing>, Site, Site) {
    let issuing = Arc::new(Issuing::default());
    let issuer = issuer(&issuing).await;
    let server = guarded(&issuer, &issuing).await;
    (issuing, issuer, server)
}

pub(super) fn mcp(asked: &Asked) -> Told {
    let message: Value = serde_json::from_str(&asked.body).unwrap_or_default();
    let result = match message["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": "2025-11-25", "capabilities": { "tools": {} }, "serverInfo": { "name": "s", "version": "1" },
        }),
        Some("tools/list") => json!({ "tools": [{ "name": "t", "inputSchema": { "type": "object" } }] }),
        Some("tools/call") => json!({ "content": [{ "type": "text", "text": "done" }] }),
        _ => return Told::Answer(202, Vec::new(), String::new()),
    };
    Told::json(200, &json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
}

/// A user who agrees to everything; the browser returns at once.
#[derive(Clone, Default)]
pub(super) struct User {
    pub(super) pages: Arc<Mutex<Vec<Url>>>,
}

impl User {
    pub(super) fn prompts(&self) -> usize {
        self.pages.lock().unwrap().len()
    }
}

/// Returns the address to which the browser of a user who agreed returns.
pub(crate) fn agreed(page: &Url) -> String {
    let field = |name: &str| page.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
    format!(
        "{}?code=code-canary&state={}",
        field("redirect_uri").unwrap_or_default(),
        field("state").unwrap_or_default()
    )
}

impl Interaction for User {
    fn redirect_uri(&self) -> Url {
        "http://127.0.0.1:1/callback".parse().unwrap()
    }

    fn authorize(&self, _: &str, page: Url) -> BoxFuture<'static, Result<String, String>> {
        let back = agreed(&page);
        self.pages.lock().unwrap().push(page);
        Box::pin(async move { Ok(back) })
    }
}

/// A store shared by several hosts.
#[derive(Clone, Default)]
pub(super) struct Shared(pub(super) Arc<mcp_host::auth::MemoryStore>);

impl SecretStore for Shared {
    fn read(&self, key: &str) -> Result<Option<Secret>, StoreError> {
        self.0.read(key)
    }

    fn write(&self, key: &str, secret: &Secret) -> Result<(), StoreError> {
        self.0.write(key, secret)
    }

    fn remove(&self, key: &str) -> Result<(), StoreError> {
        self.0.remove(key)
    }
}

/// The config of servers at these sites, under the names `a`, `b`, and so on.
pub(super) fn config(sites: &[&Site]) -> Config {
    let server = |(site, name): (&&Site, char)| {
        let remote = Remote::new(format!("{}/mcp", site.url).parse().unwrap());
        let mut server = Server::new(&name.to_string(), Transport::Http(remote)).unwrap();
        (server.prefix, server.era) = (Prefix::Always, Era::Legacy);
        server
    };
    Config { servers: sites.iter().zip('a'..).map(server).collect(), ..Config::default() }
}

/// The config of a server whose tokens need no user.
pub(super) fn without_a_user(site: &Site, grant: Grant) -> Config {
    let mut config = config(&[site]);
    let Transport::Http(remote) = &mut config.servers[0].transport else { unreachable!() };
    let mut oauth = OAuth::default();
    oauth.grant = grant;
    (oauth.client_id, oauth.client_secret) = (Some("c".to_owned()), Some(Secret::new("s")));
    remote.auth = Auth::OAuth(Box::new(oauth));
    config
}

/// A settled host with these servers.
pub(super) async fn host(sites: &[&Site], with: impl FnOnce(HostBuilder) -> HostBuilder) -> Host {
    let host = with(Host::builder().config(config(sites))).start().await.unwrap();
    host.settled().await;
    host
}

/// A settled host with this server and a user.
pub(super) async fn of_a_user(server: &Site) -> (Host, User) {
    let user = User::default();
    (host(&[server], |builder| builder.interaction(user.clone())).await, user)
}

/// A settled host whose logins are stored in files of this folder.
pub(super) async fn sharing(server: &Site, folder: &TempDir) -> Host {
    sharing_with(server, folder, |_| {}).await
}

/// Like `sharing`, with another config.
pub(super) async fn sharing_with(server: &Site, folder: &TempDir, change: impl FnOnce(&mut Config)) -> Host {
    let mut config = config(&[server]);
    change(&mut config);
    let secrets = &mut config.host.secrets;
    (secrets.store, secrets.key) = (StoreKind::File, SecretKey::parse(&"07".repeat(32)));
    let host = Host::builder().config(config).state_directory(folder.path()).start().await.unwrap();
    host.settled().await;
    host
}

/// Calls the tool of server `a`.
pub(super) async fn call(host: &Host) -> Result<Raw, mcp_host::Error> {
    call_with(host, Raw::empty_object()).await
}

pub(super) async fn call_with(host: &Host, arguments: Raw) -> Result<Raw, mcp_host::Error> {
    host.call_tool("a__t", arguments).timeout(PATIENCE).await.map(Raw::from)
}

pub(super) fn state(host: &Host) -> StateName {
    host.status()[0].state
}

/// Waits until the server is connected.
pub(super) async fn connected(host: &Host) {
    becomes(host, StateName::Connected).await;
}

/// Waits until the server is in this state.
pub(super) async fn becomes(host: &Host, wanted: StateName) {
    let waiting = async {
        let mut events = host.events();
        while state(host) != wanted {
            events.next().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap();
}

/// Begins a login at server `a` whose browser returns to `redirect`, and returns the URL it returns with, too.
pub(super) async fn agreed_login(host: &Host, redirect: &str) -> (Login, String) {
    let login = host.login("a", &redirect.parse().unwrap()).await.unwrap();
    let back = agreed(login.authorize_url());
    (login, back)
}

/// Signs in at server `a`, and waits until it is connected.
pub(super) async fn sign_in(host: &Host) {
    let (login, back) = agreed_login(host, "http://127.0.0.1:1/x").await;
    login.finish(&back).await.unwrap();
    connected(host).await;
}
