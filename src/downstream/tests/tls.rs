//! TLS at the door.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::support::*;
use super::two::Two;
use crate::config::HostTls;
use crate::downstream::http::tls::acceptor;

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls").join(name)
}

async fn secure_house() -> House {
    let tls = acceptor(&HostTls { cert: file("cert.pem"), key: file("key.pem") }).unwrap();
    house_with(bearer(stage().await), Settings { tls: Some(tls), ..Settings::default() }).await
}

async fn connect(house: &House, alpn: &[&str]) -> TlsStream<TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(file("cert.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(("127.0.0.1", house.port)).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

#[tokio::test]
async fn both_protocols_are_spoken_over_tls() {
    let house = secure_house().await;
    for alpn in [&["http/1.1"][..], &[]] {
        let mut stream = connect(&house, alpn).await;
        let request = format!("GET /healthz HTTP/1.1\r\nHost: localhost:{}\r\nConnection: close\r\n\r\n", house.port);
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    }
    let stream = connect(&house, &["h2", "http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let two = Two::over(stream, house.port).await;
    let token = format!("Bearer {ANN}");
    let answer = two.post(&initialize("2025-11-25"), &[("authorization", &token)]).await;
    assert_eq!(answer.status, 200);
    assert_eq!(two.post(&initialize("2025-11-25"), &[]).await.status, 401);
}

#[tokio::test]
async fn h80_nothing_is_said_without_tls_where_there_is_tls() {
    let house = secure_house().await;
    let mut stream = TcpStream::connect(("127.0.0.1", house.port)).await.unwrap();
    let request = format!("GET /healthz HTTP/1.1\r\nHost: localhost:{}\r\n\r\n", house.port);
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn h81_a_handshake_has_ten_seconds() {
    let house = secure_house().await;
    for said in [&b""[..], &[22, 3, 1, 1, 0]] {
        let mut stream = TcpStream::connect(("127.0.0.1", house.port)).await.unwrap();
        let begun = Instant::now();
        stream.write_all(said).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert_eq!(begun.elapsed().as_secs(), 10, "{said:?}");
    }
    // A client that is silent after its handshake does not get ten more seconds.
    let begun = Instant::now();
    let mut stream = connect(&house, &["http/1.1"]).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(begun.elapsed() <= Duration::from_millis(10_100), "{:?}", begun.elapsed());
}

#[test]
fn bad_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "-----BEGIN NOTHING-----\n").unwrap();
    let cases = [
        (file("none.pem"), file("key.pem"), "none.pem\" cannot be read: No such file"),
        (file("cert.pem"), file("none.pem"), "none.pem\" cannot be read: No such file"),
        (empty.clone(), file("key.pem"), "empty.pem\" holds no certificate; it has to be PEM"),
        (file("cert.pem"), empty, "empty.pem\" holds no private key; it has to be PEM"),
        (file("key.pem"), file("key.pem"), "key.pem\" holds no certificate"),
        (file("cert.pem"), file("cert.pem"), "cert.pem\" holds no private key"),
        (file("cert.pem"), file("other-key.pem"), "name the files of one pair"),
    ];
    for (cert, key, part) in cases {
        let Err(error) = acceptor(&HostTls { cert, key }) else { panic!("{part}") };
        assert!(error.to_string().contains(part), "{error}");
    }
}
