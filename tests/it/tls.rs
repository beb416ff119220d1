//! Servers behind TLS (H33): who is trusted, who is not, and what is reported then. The server is a host behind a proxy
//! that presents certificates made for the test.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::path::Path;
use std::sync::{Arc, Mutex};

use mcp_host::config::{Syntax, Vars, parse_str};
use mcp_host::protocol::Raw;
use mcp_host::{Host, InProcess, StateName};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// A certificate and its key, in PEM.
struct Shown {
    chain: String,
    key: String,
}

/// A test authority.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        let key = KeyPair::generate().unwrap();
        // Two authorities of one name would be confused.
        params.distinguished_name.push(DnType::CommonName, format!("authority {:x?}", &key.public_key_raw()[..8]));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    fn signs(&self, name: &str, until: i32) -> Shown {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(until, 1, 1));
        let key = KeyPair::generate().unwrap();
        Shown { chain: params.signed_by(&key, &self.issuer).unwrap().pem(), key: key.serialize_pem() }
    }
}

fn self_signed() -> Shown {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    Shown { chain: made.cert.pem(), key: made.signing_key.serialize_pem() }
}

/// A server that speaks TLS; its certificate can be changed.
struct Server {
    url: String,
    tls: Arc<Mutex<Arc<ServerConfig>>>,
    _host: Host,
}

fn server_config(
    shown: &Shown,
    wants: Option<&Authority>,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(versions).unwrap();
    let builder = match wants {
        Some(authority) => {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        }
        None => builder.with_no_client_auth(),
    };
    let chain = vec![CertificateDer::from_pem_slice(shown.chain.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(shown.key.as_bytes()).unwrap();
    Arc::new(builder.with_single_cert(chain, key).unwrap())
}

impl Server {
    async fn start(shown: &Shown) -> Self {
        Self::with(server_config(shown, None, rustls::ALL_VERSIONS)).await
    }

    async fn with(config: Arc<ServerConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (plain, front) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), listener.local_addr().unwrap());
        let (behind, port) = (plain.local_addr().unwrap(), front.port());
        let text = json!({"mcpServers": {}, "host": {"allowedHosts": [format!("localhost:{port}")], "sse": false}});
        let config_text = parse_str(&text.to_string(), Syntax::Json, "server.json", &Vars::default()).unwrap();
        let host = Host::builder().config(config_text).start().await.unwrap();
        let serving = host.clone();
        tokio::spawn(async move { serving.serve_http(plain).await });
        let tls = Arc::new(Mutex::new(config));
        let current = tls.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = TlsAcceptor::from(current.lock().unwrap().clone());
                tokio::spawn(async move {
                    let mut stream = match acceptor.accept(stream).into_fallible().await {
                        Ok(stream) => stream,
                        // Its data is lost if the connection ends before the client has read it.
                        Err((_, mut stream)) => {
                            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
                            return;
                        }
                    };
                    let mut plain = TcpStream::connect(behind).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut stream, &mut plain).await;
                });
            }
        });
        Self { url: format!("https://localhost:{port}/mcp"), tls, _host: host }
    }

    fn shows(&self, shown: &Shown) {
        *self.tls.lock().unwrap() = server_config(shown, None, rustls::ALL_VERSIONS);
    }

    /// Connects a separate host, and returns its final state and the cause.
    async fn seen_by(&self, tls: &Value, state: &Path) -> (StateName, String) {
        let entry =
            json!({"url": self.url, "tls": tls, "type": "http", "restart": {"maxRetries": 0, "minDelay": "10ms"}});
        let text = json!({"mcpServers": {"far": entry}, "host": {"startupWait": "20s"}}).to_string();
        let config = parse_str(&text, Syntax::Json, "test.json", &Vars::default()).unwrap();
        let host = Host::builder().config(config).state_directory(state).start().await.unwrap();
        host.settled().await;
        let status = host.status().remove(0);
        host.shutdown().await;
        (status.state, status.last_error.unwrap_or_default())
    }
}

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

#[tokio::test]
async fn h33_only_a_good_certificate_is_believed() {
    let (authority, other) = (Authority::new(), Authority::new());
    let folder = folder(&[("ca.pem", &authority.pem), ("no.pem", "nothing")]);
    let path = folder.path();
    let ca = json!({"ca": path.join("ca.pem")});
    let server = Server::start(&authority.signs("localhost", 2100)).await;
    assert_eq!(server.seen_by(&ca, path).await, (StateName::Connected, String::new()));
    for (shown, tls, said) in [
        (None, json!({}), "no authority that this machine knows vouches for its certificate"),
        (None, json!({"ca": path.join("no.pem")}), "no certificate in PEM"),
        (None, json!({"ca": path.join("absent.pem")}), "absent.pem cannot be used as a certificate"),
        (Some(authority.signs("localhost", 2021)), ca.clone(), "its certificate has expired"),
        (Some(authority.signs("other.example", 2100)), ca.clone(), r#"is for "other.example", not for "localhost""#),
        (Some(other.signs("localhost", 2100)), ca.clone(), "no authority that this machine knows"),
        (Some(self_signed()), ca.clone(), "no authority that this machine knows"),
    ] {
        if let Some(shown) = &shown {
            server.shows(shown);
        }
        let (state, error) = server.seen_by(&tls, path).await;
        assert_eq!(state, StateName::Failed, "{error}");
        assert!(error.contains(said), "{said}: {error}");
    }
}

#[tokio::test]
async fn h33_a_pinned_certificate_and_no_other() {
    let (first, second) = (self_signed(), self_signed());
    let server = Server::start(&first).await;
    let folder = folder(&[]);
    let pin = |shown: &Shown| {
        use sha2::{Digest as _, Sha256};
        let hash = Sha256::digest(CertificateDer::from_pem_slice(shown.chain.as_bytes()).unwrap());
        hash.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":")
    };
    let tls = json!({"pin": pin(&first)});
    assert_eq!(server.seen_by(&tls, folder.path()).await.0, StateName::Connected);
    server.shows(&second);
    let (state, error) = server.seen_by(&tls, folder.path()).await;
    assert_eq!(state, StateName::Failed);
    assert!(error.contains("but tls.pin names sha256:"), "{error}");
    // The public certificate of a pinned server is not enough without its key.
    assert_eq!(server.seen_by(&json!({"pin": pin(&second)}), folder.path()).await.0, StateName::Connected);
}

#[tokio::test]
async fn h33_trust_on_first_use_and_a_change() {
    let (first, second) = (self_signed(), self_signed());
    let server = Server::start(&first).await;
    let folder = folder(&[]);
    let tls = json!({"trustOnFirstUse": true});
    for _ in 0..2 {
        assert_eq!(server.seen_by(&tls, folder.path()).await.0, StateName::Connected);
    }
    server.shows(&second);
    let (state, error) = server.seen_by(&tls, folder.path()).await;
    assert_eq!(state, StateName::Failed);
    assert!(error.contains("mcp-host approve") && error.matches("sha256:").count() == 2, "{error}");
    let certificates = mcp_host::Certificates::new(Some(folder.path()));
    let changed = certificates.changed().unwrap();
    assert_eq!(changed.len(), 1);
    assert!(certificates.accept(&changed[0].origin, &changed[0].shown).await.unwrap());
    assert_eq!(server.seen_by(&tls, folder.path()).await.0, StateName::Connected);
    // An expired one is never trusted, known or not.
    let authority = Authority::new();
    server.shows(&authority.signs("localhost", 2021));
    let (_, error) = server.seen_by(&tls, folder.path()).await;
    assert!(error.contains("expired"), "{error}");
}

/// File locks, each held by a stopped process.
#[cfg(unix)]
struct Held {
    let_go: std::sync::mpsc::Sender<()>,
    until_told: std::thread::JoinHandle<bool>,
}

#[cfg(unix)]
impl Held {
    /// Holds them until told, or for a minute: a test that waits for them would wait forever.
    #[expect(clippy::disallowed_methods, reason = "the lock is for another process")]
    fn new(state: &Path, names: &[&str]) -> Self {
        use rustix::process::{Pid, Signal, kill_process};

        let holders: Vec<std::process::Child> = names
            .iter()
            .map(|name| {
                let path = state.join(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                let file = std::fs::File::create(path).unwrap();
                rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
                // A lock belongs to the open file, so it goes along.
                let holder = std::process::Command::new("sleep").arg("600").stdin(file).spawn().unwrap();
                kill_process(Pid::from_child(&holder), Signal::STOP).unwrap();
                holder
            })
            .collect();
        let (let_go, told) = std::sync::mpsc::channel();
        let until_told = std::thread::spawn(move || {
            let was_told = told.recv_timeout(std::time::Duration::from_secs(60)).is_ok();
            for mut holder in holders {
                holder.kill().unwrap();
                holder.wait().unwrap();
            }
            was_told
        });
        Self { let_go, until_told }
    }

    /// Releases the locks, and reports whether they were held until now.
    fn end(self) -> bool {
        let _ = self.let_go.send(());
        self.until_told.join().unwrap()
    }
}

/// Everything runs on one thread here: a handshake that waits for a lock would block it.
#[cfg(unix)]
#[tokio::test]
async fn h94_a_process_that_holds_locks_and_is_stopped_holds_up_no_call() {
    let server = Server::start(&self_signed()).await;
    let folder = folder(&[]);
    let held = Held::new(folder.path(), &["certificates.lock", "servers.lock", "offers/lock"]);
    let restart = json!({"minDelay": "10ms", "maxDelay": "10ms", "maxRetries": 1000});
    let far = json!({"url": server.url, "tls": {"trustOnFirstUse": true}, "type": "http", "restart": restart});
    let text = json!({"mcpServers": {"far": far}}).to_string();
    let config = parse_str(&text, Syntax::Json, "test.json", &Vars::default()).unwrap();
    let tool = Raw::from_value(&json!({"name": "t", "inputSchema": {"type": "object"}}));
    let near = InProcess::new("near", "1").tool(tool, |_| Box::pin(async { Ok(Raw::empty_object()) }));
    let builder = Host::builder().config(config).in_process("near", near).state_directory(folder.path());
    let host = builder.start().await.unwrap();
    let far = || host.status().into_iter().find(|server| server.name == "far").unwrap();
    let refused = async {
        while !far().last_error.is_some_and(|error| error.contains("cannot be kept")) {
            host.call_tool("near__t", Raw::empty_object()).await.unwrap();
        }
    };
    let in_time = tokio::time::timeout(std::time::Duration::from_secs(120), refused).await;
    assert!(held.end() && in_time.is_ok(), "{:?}", far());
    let mut events = host.events();
    let connected = async {
        while far().state != StateName::Connected {
            events.next().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), connected).await.unwrap();
    host.shutdown().await;
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn h33_another_certificate_is_believed_by_a_command() {
    use crate::reload::program::{Daemon, mcp_host};

    let (first, second) = (self_signed(), self_signed());
    let server = Server::start(&first).await;
    let home = folder(&[]);
    let entry = json!({ "type": "http", "url": server.url, "tls": { "trustOnFirstUse": true } });
    std::fs::write(home.path().join("mcp.json"), json!({ "mcpServers": { "far": entry } }).to_string()).unwrap();
    let run = |args: &[&str]| {
        let output = mcp_host(home.path(), &[args, &["--config", "mcp.json"]].concat()).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(run(&["tools"]).0, 0);
    assert_eq!(run(&["approve", "far"]).0, 0, "it is what it was");
    server.shows(&second);
    let daemon = Daemon::start(mcp_host(home.path(), &["serve", "--config", "mcp.json", "--listen", "127.0.0.1:0"]));
    daemon.hears("mcp-host approve");
    let (exit, shown) = run(&["approve"]);
    let prints: Vec<&str> =
        shown.lines().filter_map(|line| line.trim_start().split_once(" sha256:")).map(|(sign, _)| sign).collect();
    assert_eq!((exit, &*prints), (6, &["-", "+"][..]), "{shown}");
    let (_, json) = run(&["approve", "far", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json[0]["server"], &json[0]["approved"]), (&json!("far"), &json!(false)), "{json}");
    assert_eq!(run(&["approve", "far", "--yes"]).0, 0);
    // The daemon reports it.
    daemon.hears("✓ far");
    assert_eq!(run(&["tools"]).0, 0);
}

#[tokio::test]
async fn a_server_that_wants_a_certificate_of_ours() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let (ours, strangers) = (clients.signs("me", 2100), Authority::new().signs("me", 2100));
    let folder = folder(&[
        ("ca.pem", &authority.pem),
        ("me.pem", &ours.chain),
        ("me.key", &ours.key),
        ("stranger.pem", &strangers.chain),
        ("stranger.key", &strangers.key),
    ]);
    let file = |name: &str| folder.path().join(name);
    let shown = authority.signs("localhost", 2100);
    let server = Server::with(server_config(&shown, Some(&clients), rustls::ALL_VERSIONS)).await;
    let tls = json!({"ca": file("ca.pem"), "cert": file("me.pem"), "key": file("me.key")});
    assert_eq!(server.seen_by(&tls, folder.path()).await, (StateName::Connected, String::new()));
    for (tls, said) in [
        (json!({"ca": file("ca.pem")}), "it wants a certificate of ours; name one as `tls.cert` and `tls.key`"),
        (
            json!({"ca": file("ca.pem"), "cert": file("stranger.pem"), "key": file("stranger.key")}),
            "it does not accept our certificate",
        ),
        (json!({"ca": file("ca.pem"), "cert": file("me.pem"), "key": file("stranger.key")}), "do not belong together"),
    ] {
        let (state, error) = server.seen_by(&tls, folder.path()).await;
        assert_eq!(state, StateName::Failed, "{error}");
        assert!(error.contains(said), "{said}: {error}");
    }
}

#[tokio::test]
async fn a_version_that_is_too_old() {
    let authority = Authority::new();
    let folder = folder(&[("ca.pem", &authority.pem)]);
    let shown = authority.signs("localhost", 2100);
    let server = Server::with(server_config(&shown, None, &[&rustls::version::TLS12])).await;
    let tls = |version: &str| json!({"ca": folder.path().join("ca.pem"), "minVersion": version});
    assert_eq!(server.seen_by(&tls("1.2"), folder.path()).await.0, StateName::Connected);
    let (state, error) = server.seen_by(&tls("1.3"), folder.path()).await;
    assert_eq!(state, StateName::Failed);
    assert!(error.contains("tls.minVersion"), "{error}");
}
