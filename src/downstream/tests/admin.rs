//! The status socket and the lock of an address.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::support::stage;
use crate::downstream::admin::{Answers, AskError, Error, Refused, SignInReply, StatusSocket, ask_in};

const FIRST: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8808);
const SECOND: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8809);

fn mode(path: &std::path::Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn h83_status_is_told() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("mcp-host");
    let socket = StatusSocket::open_in(&directory, FIRST).unwrap();
    assert_eq!((mode(&directory), mode(&directory.join("8808.sock"))), (0o700, 0o600));
    let stage = stage().await;
    let stop = CancellationToken::new();
    let served = tokio::spawn({
        let stop = stop.clone();
        async move {
            let reload = || async { Err("mcp.json:1: no".to_owned()) };
            let sign_in = |_| async { Ok(SignInReply::abandoned(false)) };
            let page = |_| Err(Refused::because("no page here"));
            let act = |_| async { None };
            let answers = Answers { reload, restart: |_: &str| false, sign_in, page, act };
            socket.serve(&stage.router, answers, |_| async {}, &stop).await
        }
    });
    for port in [Some(8808), None] {
        let line = ask_in(&directory, port).await.unwrap();
        assert!(!line.contains('\n'));
        let status: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(status["pid"], std::process::id());
        assert_eq!(status["listen"], "127.0.0.1:8808");
        assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
        assert!(status["uptimeMs"].is_u64());
        let told = status["limits"].as_array().unwrap().iter().find(|limit| limit["limit"] == "clientQueues").unwrap();
        assert_eq!((&told["used"], &told["cap"], &told["unit"]), (&0.into(), &(32 << 20).into(), &"bytes".into()));
        assert_eq!(status["gauges"]["leases"], 1);
        assert_eq!(
            (&status["servers"][0]["name"], &status["servers"][0]["state"]),
            (&"script".into(), &"connected".into())
        );
    }
    stop.cancel();
    served.await.unwrap();
    assert!(matches!(ask_in(&directory, None).await, Err(AskError::NotRunning { port: None })));
}

#[tokio::test]
async fn h83_a_folder_that_others_can_look_into_is_closed_to_them() {
    let home = tempfile::tempdir().unwrap();
    for open in [0o755, 0o777, 0o711] {
        std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(open)).unwrap();
        let _socket = StatusSocket::open_in(home.path(), FIRST).unwrap();
        assert_eq!(mode(home.path()), 0o700);
    }
}

#[tokio::test]
async fn h94_one_daemon_per_address() {
    let home = tempfile::tempdir().unwrap();
    let first = StatusSocket::open_in(home.path(), FIRST).unwrap();
    let refused = StatusSocket::open_in(home.path(), FIRST).unwrap_err();
    assert!(matches!(refused, Error::Running { pid, .. } if pid == Some(std::process::id())));
    let sentence = format!("another mcp-host, process {}, serves 127.0.0.1:8808 already", std::process::id());
    assert_eq!(refused.to_string(), sentence);

    let _second = StatusSocket::open_in(home.path(), SECOND).unwrap();
    let several = ask_in(home.path(), None).await.unwrap_err();
    assert_eq!(several.to_string(), "more than one mcp-host is running: 127.0.0.1:8808, 127.0.0.1:8809");
    assert!(matches!(ask_in(home.path(), Some(1)).await, Err(AskError::NotRunning { port: Some(1) })));

    drop(first);
    // A killed daemon leaves its socket behind.
    drop(std::os::unix::net::UnixListener::bind(home.path().join("8808.sock")).unwrap());
    StatusSocket::open_in(home.path(), FIRST).unwrap();
}
