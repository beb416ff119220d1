//! A config reload with an open door: the new access rules apply at once.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::support::*;
use crate::config::{HostAuth, HostTls};
use crate::downstream::http::tls::acceptor;

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

/// Waits until the connection ends, whatever comes before.
async fn ends(peer: &mut Peer) {
    let rest = async { while peer.chunk().await.is_some() {} };
    tokio::time::timeout(Duration::from_secs(20), rest).await.unwrap();
}

#[tokio::test]
async fn h80_a_client_that_is_taken_out_has_nothing_any_more() {
    let house = house_of(bearer(stage().await)).await;
    let ann = house.client_as(Some(ANN), "2025-11-25").await;
    let mut stream = house.again(&ann).await;
    assert_eq!(stream.get("").await.status, 200);
    let mut listens = house.connect().await;
    listens.token = Some(ANN);
    assert_eq!(listens.post_modern(&listen(1, serde_json::json!({ "toolsListChanged": true }))).await.status, 200);
    let mut old = house.connect().await;
    let head = old.send(&format!("GET /sse HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer {ANN}\r\n\r\n")).await;
    assert_eq!(head.status, 200);
    let mut bob = house.client_as(Some(BOB), "2025-11-25").await;

    let stage = for_alone(house.stage, &[("bob", BOB)]);
    let house = House { stage, ..house };
    assert_eq!(house.again(&ann).await.post(PING).await.status, 401);
    for stream in [&mut stream, &mut listens, &mut old] {
        ends(stream).await;
    }
    // Even his connection is the same.
    assert!(bob.ask(PING).await["result"].is_object());

    // She is allowed again, but her old session is gone.
    let stage = for_alone(house.stage, &[("ann", ANN), ("bob", BOB)]);
    let house = House { stage, ..house };
    assert_eq!(house.again(&ann).await.post(PING).await.status, 404);
    // A new token is a new proof.
    let mut again = house.client_as(Some(ANN), "2025-11-25").await;
    let _stage = for_alone(house.stage, &[("ann", "another token"), ("bob", BOB)]);
    assert_eq!(again.send_if(&again.request("POST", "", PING)).await.unwrap_or(401), 401);
    assert!(bob.ask(PING).await["result"].is_object());
}

#[tokio::test]
async fn h80_whom_nobody_asked_who_they_are_is_asked_from_now_on() {
    let house = house().await;
    let mut client = house.client("2025-11-25").await;
    let mut idle = house.connect().await;
    let stage = bearer(house.stage);
    let house = House { stage, ..house };
    // Old connections are closed, or refuse.
    for peer in [&mut client, &mut idle] {
        let request = peer.request("POST", "", PING);
        assert_eq!(peer.send_if(&request).await.unwrap_or(401), 401);
    }
    assert_eq!(house.connect().await.post(PING).await.status, 401);
    house.stage.router.manager().configure(|settings| settings.auth = HostAuth::None);
    assert_eq!(house.again(&client).await.post(PING).await.status, 404, "a session of nobody in particular ended");
    house.client("2025-11-25").await;
}

#[tokio::test]
async fn h79_names_and_origins_are_those_of_the_config_at_once() {
    let house = house().await;
    let manager = house.stage.router.manager().clone();
    let mut peer = house.connect().await;
    for (allowed, status) in [(false, 403), (true, 200), (false, 403)] {
        manager.configure(|settings| {
            let names = |name: &str| if allowed { vec![name.to_owned()] } else { Vec::new() };
            (settings.allowed_hosts, settings.allowed_origins) = (names("tools.example"), names("https://web.example"));
        });
        for heads in ["Host: tools.example", "Host: HOST\r\nOrigin: https://web.example"] {
            let head = peer.send(&format!("GET /healthz HTTP/1.1\r\n{heads}\r\n\r\n")).await;
            peer.body(&head).await;
            assert_eq!(head.status, status, "{heads}");
        }
    }
}

#[tokio::test]
async fn a_certificate_is_renewed_under_the_same_name() {
    let folder = tempfile::tempdir().unwrap();
    let files = HostTls { cert: folder.path().join("cert.pem"), key: folder.path().join("key.pem") };
    let renew = || {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(&files.cert, made.cert.pem()).unwrap();
        std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
        made.cert.der().clone()
    };
    let first = renew();
    let stage = stage().await;
    stage.router.manager().configure(|settings| settings.tls = Some(files.clone()));
    let tls = Some(acceptor(&files).unwrap());
    let house = house_with(stage, Settings { tls, ..Settings::default() }).await;
    let manager = house.stage.router.manager();
    assert!(shows(&house, &first).await);
    let second = renew();
    assert!(shows(&house, &first).await, "it is not read for each connection");
    manager.configure(|_| {});
    assert!(shows(&house, &second).await && !shows(&house, &first).await);
    // An unusable certificate changes nothing.
    std::fs::write(&files.cert, "no certificate").unwrap();
    manager.configure(|_| {});
    assert!(shows(&house, &second).await && !shows(&house, &first).await);
}

/// Reports whether the door presents this certificate: nothing else is trusted.
async fn shows(house: &House, certificate: &CertificateDer<'static>) -> bool {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let stream = TcpStream::connect(("127.0.0.1", house.port)).await.unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await.is_ok()
}
