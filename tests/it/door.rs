//! The endpoint from outside: where it may listen, and what its files must be.

use mcp_host::config::{BearerClient, Config, HostAuth, HostSettings, HostTls};
use mcp_host::{ErrorKind, Host};
use tokio::net::TcpListener;

#[tokio::test]
async fn h80_others_reach_it_only_with_auth_and_tls() {
    let bearer = HostAuth::Bearer(vec![BearerClient::of_token("laptop", "token").unwrap()]);
    let file = |name: &str| format!("tests/fixtures/tls/{name}").into();
    let tls = HostTls { cert: file("cert.pem"), key: file("none.pem") };
    let (neither, auth, hidden) = (
        "there is neither `host.auth` to identify callers nor `host.tls` to encrypt the traffic",
        "there is no `host.auth` to identify callers",
        "there is no `host.tls` to encrypt tokens and traffic",
    );
    let wide = "0.0.0.0:0";
    let cases = [
        (wide, HostAuth::None, None, false, neither),
        ("[::]:0", HostAuth::None, None, false, neither),
        (wide, HostAuth::None, None, true, auth),
        (wide, HostAuth::None, Some(tls.clone()), false, auth),
        (wide, bearer.clone(), None, false, hidden),
        // Existing files are checked.
        (wide, bearer, Some(tls.clone()), false, "none.pem\" cannot be read"),
        ("127.0.0.1:0", HostAuth::None, Some(tls), false, "none.pem\" cannot be read"),
    ];
    for (listen, auth, tls, insecure_http, text) in cases {
        let what = format!("{listen} {auth:?} {tls:?} {insecure_http}");
        let mut settings = HostSettings::default().auth(auth);
        (settings.tls, settings.insecure_http) = (tls, insecure_http);
        let host = Host::builder().config(Config { host: settings, ..Config::default() }).start().await.unwrap();
        let error = host.open_http(TcpListener::bind(listen).await.unwrap()).expect_err(&what);
        assert_eq!(error.kind(), ErrorKind::Config, "{what}");
        assert!(error.to_string().contains(text), "{what}: {error}");
        host.shutdown().await;
    }
}
