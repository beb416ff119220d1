//! Connections from the sandbox as bytes, and hosts that are sockets of this machine.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::net::TcpListener;

use super::{Beyond, Proxy, Rules};
use crate::counts::Counts;
use crate::dial::{Lookup, system};

/// Starts a host that reads until `end`, and answers with what it received. Returns its port.
async fn host(end: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut got = Vec::new();
            while !got.ends_with(end) && stream.read_buf(&mut got).await.is_ok_and(|count| count > 0) {}
            let _ = stream.write_all(&got).await;
        }
    });
    port
}

/// Returns what a proxy with this list answers to these bytes, and what it counted.
async fn said(listed: &[String], bytes: &[u8]) -> (Vec<u8>, Vec<(String, u64)>) {
    let hosts = listed.iter().map(|host| host.parse().expect("a host")).collect();
    let counts = Counts::default().of("a");
    let proxy = Proxy::new("a".into(), Rules::listed(hosts, system()), counts.clone());
    (exchanged(&proxy, bytes).await, counts.refused().read().into_iter().collect())
}

/// Returns the answer of a proxy to these bytes.
async fn exchanged(proxy: &Proxy, bytes: &[u8]) -> Vec<u8> {
    let (mut client, end): (DuplexStream, DuplexStream) = duplex(64 * 1024);
    let serving = proxy.serve(end);
    let asking = async move {
        client.write_all(bytes).await.expect("it takes them");
        let mut got = Vec::new();
        client.read_to_end(&mut got).await.expect("it answers");
        got
    };
    tokio::join!(serving, asking).1
}

#[tokio::test]
async fn h108_the_proxy_of_a_watched_server_passes_and_counts_everything_for_that_server_alone() {
    let port = host(b"end").await;
    let counts = Counts::default().of("a");
    let proxy = Proxy::new("a".into(), Rules::all(system()), counts.clone()).for_those_who_know("u", "p");
    let head = format!("CONNECT localhost:{port} HTTP/1.1\r\n");
    for strange in ["", "Proxy-Authorization: Basic dTpx\r\n"] {
        let got = exchanged(&proxy, format!("{head}{strange}\r\n").as_bytes()).await;
        assert!(got.starts_with(b"HTTP/1.1 407 "), "{strange}");
    }
    assert!(
        exchanged(&proxy, b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x09")
            .await
            .starts_with(b"\x05\x00\x05\x02")
    );
    assert!(counts.refused().read().is_empty());
    let known = format!("{head}proxy-authorization: Basic dTpw\r\n\r\nthe end");
    assert!(exchanged(&proxy, known.as_bytes()).await.ends_with(b"\r\n\r\nthe end"));
    let names: Vec<String> = counts.refused().read().into_keys().collect();
    assert!(names.contains(&format!("localhost:{port}")) && names.contains(&format!("127.0.0.1:{port}")), "{names:?}");
}

#[tokio::test]
async fn h108_a_listed_host_is_reached_by_all_three_ways() {
    let port = host(b"end").await;
    let listed = [format!("127.0.0.1:{port}")];
    let (got, refused) = said(&listed, format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nthe end").as_bytes()).await;
    assert_eq!(
        (String::from_utf8_lossy(&got).as_ref(), refused),
        ("HTTP/1.1 200 Connection established\r\n\r\nthe end", vec![])
    );
    let plain = format!("POST http://127.0.0.1:{port}/x HTTP/1.1\r\nContent-Length: 3\r\n\r\nend");
    let (got, _) = said(&listed, plain.as_bytes()).await;
    let expected =
        format!("POST /x HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 3\r\nConnection: close\r\n\r\nend");
    assert_eq!(String::from_utf8_lossy(&got), expected);
    let [high, low] = port.to_be_bytes();
    let socks = [&[5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, high, low][..], b"the end"].concat();
    let (got, _) = said(&listed, &socks).await;
    assert_eq!(got, [&[5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], b"the end"].concat());
}

#[tokio::test]
async fn h108_what_is_not_listed_is_refused_and_counted_by_its_name() {
    let port = host(b"end").await;
    let listed = ["a.example".to_owned()];
    let (got, refused) = said(&listed, format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n").as_bytes()).await;
    let got = String::from_utf8_lossy(&got);
    assert!(got.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{got}");
    let words = format!("mcp-host: the sandbox of this server refused 127.0.0.1:{port}: it is not listed\n");
    assert!(got.ends_with(&words), "{got}");
    assert_eq!(refused, [(format!("127.0.0.1:{port}"), 1)]);
    let (got, refused) = said(&listed, b"\x05\x01\x00\x05\x01\x00\x03\x09b.example\x01\xbb").await;
    assert_eq!((&got[..4], refused), (&[5, 0, 5, 2][..], vec![("b.example:443".to_owned(), 1)]));
}

#[tokio::test]
async fn h108_what_is_no_request_is_refused() {
    for (bytes, answer) in [
        (&b"hello\r\n\r\n"[..], &b"HTTP/1.1 400 "[..]),
        (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 "),
        // Requests without a password, requests to listen, and datagrams are refused.
        (b"\x05\x01\x02", b"\x05\xff"),
        (b"\x05\x01\x00\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x01", b"\x05\x00\x05\x07"),
        (b"\x05\x01\x00\x05\x03\x00\x01\x7f\x00\x00\x01\x00\x01", b"\x05\x00\x05\x07"),
    ] {
        let (got, refused) = said(&["a.example".to_owned()], bytes).await;
        assert!(got.starts_with(answer) && refused.is_empty(), "{bytes:?}: {got:?}");
    }
    let endless = [b"GET http://a.example/ HTTP/1.1\r\nA: ".to_vec(), vec![b'a'; 20_000]].concat();
    let (got, _) = said(&["a.example".to_owned()], &endless).await;
    assert!(got.starts_with(b"HTTP/1.1 400 "));
}

#[tokio::test]
async fn h108_a_host_that_is_away_is_told_as_that() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let listed = [format!("127.0.0.1:{port}")];
    let (got, refused) = said(&listed, format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n").as_bytes()).await;
    let got = String::from_utf8_lossy(&got);
    assert!(got.starts_with("HTTP/1.1 502 ") && got.ends_with("mcp-host: Connection refused\n"), "{got}");
    assert_eq!(refused, []);
}

/// A proxy of a company: answers the first head it gets, or each of these parts of SOCKS5, and then with what it got.
async fn of_company(parts: &'static [(usize, &'static [u8])]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let mut all = Vec::new();
        for (length, answer) in parts {
            let mut got = Vec::new();
            let is_whole = |got: &[u8]| if *length == 0 { got.ends_with(b"\r\n\r\n") } else { got.len() >= *length };
            while !is_whole(&got) {
                got.push(stream.read_u8().await.expect("more"));
            }
            stream.write_all(answer).await.expect("it takes them");
            all.extend(got);
        }
        stream.write_all(&all).await.expect("it takes them");
    });
    port
}

/// Knows one name, at this address, and no others.
fn knows(name: &'static str, address: SocketAddr) -> Lookup {
    Arc::new(move |asked| {
        let found = if asked == name { Ok(vec![address]) } else { Err(std::io::ErrorKind::NotFound.into()) };
        Box::pin(async move { found })
    })
}

/// Returns the answer of a proxy to these bytes, where all goes by `company` but `direct.example`, which is at `direct`.
async fn said_beyond(company: &str, direct: u16, bytes: &[u8]) -> String {
    let hosts = ["api.example", "*.evil.example", "direct.example"].map(|host| format!("{host}:{direct}"));
    let listed = hosts.iter().map(String::as_str).chain(["api.example"]);
    let near = format!("127.0.0.1:{direct}");
    let listed = listed.chain([near.as_str()]).map(|host| host.parse().expect("a host")).collect();
    let lookup = knows("direct.example", ([127, 0, 0, 1], direct).into());
    let proxy = Proxy::new("a".into(), Rules::listed(listed, lookup), Counts::default().of("a"));
    let proxy = proxy.beyond(Beyond::by(company, "direct.example"));
    String::from_utf8_lossy(&exchanged(&proxy, bytes).await).into_owned()
}

#[tokio::test]
async fn h108_a_listed_host_is_reached_by_the_proxy_of_this_machine() {
    let direct = host(b"end").await;
    let company = of_company(&[(0, b"HTTP/1.1 200 Fine\r\nVia: x\r\n\r\nbefore ")]).await;
    let url = format!("http://u:p@127.0.0.1:{company}");
    let got = said_beyond(&url, direct, b"CONNECT api.example:443 HTTP/1.1\r\n\r\n").await;
    let expected = "HTTP/1.1 200 Connection established\r\n\r\nbefore CONNECT api.example:443 HTTP/1.1\r\n\
                    Host: api.example:443\r\nProxy-Authorization: Basic dTpw\r\n\r\n";
    assert_eq!(got, expected);
    let company = of_company(&[(0, b"HTTP/1.1 200 OK\r\n\r\n")]).await;
    let url = format!("127.0.0.1:{company}");
    let got = said_beyond(&url, direct, b"GET http://api.example/x HTTP/1.1\r\nAccept: */*\r\n\r\n").await;
    let expected = "HTTP/1.1 200 OK\r\n\r\nGET http://api.example:80/x HTTP/1.1\r\nHost: api.example\r\nAccept: */*\r\n\
                    Connection: close\r\n\r\n";
    assert_eq!(got, expected);
    let company = of_company(&[(3, b"\x05\x02"), (5, b"\x01\x00"), (18, b"\x05\x00\x00\x01\0\0\0\0\0\0")]).await;
    let url = format!("socks5h://u:p@127.0.0.1:{company}");
    let got = said_beyond(&url, direct, b"CONNECT api.example:443 HTTP/1.1\r\n\r\n").await;
    let expected =
        "HTTP/1.1 200 Connection established\r\n\r\n\x05\x01\x02\x01\x01u\x01p\x05\x01\x00\x03\x0bapi.example\x01";
    assert!(got.starts_with(expected), "{got:?}");
}

#[tokio::test]
async fn h108_what_no_proxy_names_is_reached_directly_and_what_is_not_listed_by_nothing() {
    let direct = host(b"end").await;
    // Nobody answers there.
    let absent = "http://127.0.0.1:1";
    for to in [format!("direct.example:{direct}"), format!("127.0.0.1:{direct}")] {
        let got = said_beyond(absent, direct, format!("CONNECT {to} HTTP/1.1\r\n\r\nthe end").as_bytes()).await;
        assert!(got.ends_with("\r\n\r\nthe end"), "{to}: {got}");
    }
    let got = said_beyond(absent, direct, b"CONNECT other.example:443 HTTP/1.1\r\n\r\n").await;
    assert!(got.starts_with("HTTP/1.1 403 "), "{got}");
}

#[tokio::test]
async fn h108_a_proxy_of_this_machine_that_fails_is_named_and_not_passed_by() {
    let refusing = of_company(&[(0, b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")]).await;
    let ended = of_company(&[]).await;
    for (company, expected) in [
        (
            format!("http://u:secret@127.0.0.1:{refusing}"),
            format!("127.0.0.1:{refusing}, answered HTTP/1.1 407 Proxy Authentication Required"),
        ),
        (format!("http://127.0.0.1:{ended}"), format!("127.0.0.1:{ended}, does not serve: ")),
        (
            "https://proxy.example".to_owned(),
            "proxy.example:443, is one of https://, which a sandbox cannot use: name one of http:// or socks5://"
                .to_owned(),
        ),
    ] {
        let got = said_beyond(&company, 9, b"CONNECT api.example:443 HTTP/1.1\r\n\r\n").await;
        assert!(got.starts_with("HTTP/1.1 502 ") && !got.contains("secret"), "{got}");
        assert!(got.contains(&format!("mcp-host: the proxy of this machine, {expected}")), "{got}");
    }
}
