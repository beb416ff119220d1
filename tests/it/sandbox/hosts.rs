//! `sandbox.network` with a list of hosts: what is listed is reached by the proxy, and nothing else.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use serde_json::json;

use super::support::{Home, Program, can_have_namespaces};

/// A page on loopback; returns its port.
pub(super) fn page() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count > 0) {
                head.extend(byte);
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\na page");
        }
    });
    port
}

/// Fetches a page as a program that reads the variables of proxies does.
pub(super) fn fetch(port: u16) -> String {
    format!("import urllib.request\nr = urllib.request.urlopen('http://127.0.0.1:{port}/', timeout=20).read()")
}

#[test]
fn h108_listed_hosts_are_reached_and_others_are_told() {
    if !can_have_namespaces("h108: hosts of a list") {
        return;
    }
    let (listed, other) = (page(), page());
    for level in ["default", "strict"] {
        let home = Home::new();
        let hosts = json!({ "level": level, "network": [format!("127.0.0.1:{listed}"), "api.example.com"] });
        let servers = json!({ "box": home.entry(&hosts), "off": home.entry(&json!("off")) });
        let mut program = home.start(&servers);
        assert_eq!(program.run("box", &fetch(listed)).as_deref(), Ok("b'a page'"), "{level}");
        assert_eq!(program.run("off", &fetch(other)).as_deref(), Ok("b'a page'"));
        assert_eq!(
            program.run("box", &fetch(other)),
            Err("HTTPError: HTTP Error 403: Forbidden".to_owned()),
            "{level}"
        );
        // Past the proxy there is nobody.
        for port in [listed, other] {
            let past = program.run("box", &format!("socket.create_connection(('127.0.0.1', {port}), 5)"));
            assert!(past.is_err_and(|error| error.starts_with("ConnectionRefusedError: ")), "{level}");
        }
        let tunnel = |host: &str| {
            format!(
                "import urllib.parse\nat = urllib.parse.urlparse(os.environ['https_proxy'])\n\
                 s = socket.create_connection((at.hostname, at.port), 20)\n\
                 s.sendall(b'CONNECT {host} HTTP/1.1\\r\\n\\r\\n'); r = s.recv(12)"
            )
        };
        let mut says = |host: &str| program.run("box", &tunnel(host)).unwrap();
        assert_eq!(says(&format!("127.0.0.1:{listed}")), "b'HTTP/1.1 200'");
        for host in ["169.254.169.254:80", "2852039166:80", "[::1]:80", "api.example.com:22", "evil.example:443"] {
            assert_eq!(says(host), "b'HTTP/1.1 403'", "{host}");
        }
        assert_eq!(program.run("box", "r = os.environ['NODE_USE_ENV_PROXY']").as_deref(), Ok("1"));
    }
}

/// A server that asks for two hosts when it starts, and then serves.
const CURIOUS: &str = r#"
import os, runpy, sys, urllib.request
for host in ["one.example", "one.example", "two.example:8443"]:
    try: urllib.request.urlopen(f"http://{host}/", timeout=20)
    except OSError: pass
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0])
"#;

#[test]
fn h108_refused_hosts_are_told_with_their_count() {
    if !can_have_namespaces("h108: refused hosts") {
        return;
    }
    let home = Home::new();
    std::fs::write(home.at("tools/curious.py"), CURIOUS).unwrap();
    let mut entry = home.entry(&json!({ "level": "strict", "network": ["api.example.com"] }));
    entry["args"] = json!([home.at("tools/curious.py"), home.at("tools/server.py")]);
    home.write(&json!({ "box": entry }));
    let output = home.run(&["check", "--connect"]);
    let told = String::from_utf8(output.stdout).unwrap();
    let told: Vec<&str> = told.lines().filter(|line| line.contains("refused")).collect();
    let expected =
        ["box: its sandbox refused one.example:80 (2 times)", "box: its sandbox refused two.example:8443 (1 time)"];
    assert_eq!(told, expected);
    let output = home.run(&["doctor"]);
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
    assert!(said.contains("the sandbox of `box` refused one.example:80, two.example:8443"), "{said}");
    // A server that does not start for want of a host says so, too.
    entry["args"] = json!([home.at("tools/curious.py"), home.at("tools/absent.py")]);
    home.write(&json!({ "box": entry }));
    let output = home.run(&["check", "--connect"]);
    let said = String::from_utf8(output.stderr).unwrap();
    let help = "help: its sandbox refused one.example:80, two.example:8443: if `box` is to reach that, list it in its entry: \
                \"sandbox\": { \"network\": [\"…\"] }\n";
    assert!(said.contains(help), "{said}");
}

/// A proxy of a company on loopback: says what it was asked for, to anyone who asks. Returns its port.
fn of_company() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count > 0) {
                head.extend(byte);
            }
            let length = head.len();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
            let is_tunnel = head.starts_with(b"CONNECT ");
            let answer = if is_tunnel { "HTTP/1.1 200 OK\r\n\r\n" } else { &answer };
            let _ = stream.write_all(&[answer.as_bytes(), &head].concat());
        }
    });
    port
}

#[test]
fn h108_listed_hosts_are_reached_by_the_proxy_of_this_machine() {
    if !can_have_namespaces("h108: the proxy of this machine") {
        return;
    }
    let (home, company, near) = (Home::new(), of_company(), page());
    // An address for documentation, which nobody has; so no name is resolved.
    let hosts = json!({ "level": "strict", "network": ["203.0.113.7", format!("127.0.0.1:{near}")] });
    home.write(&json!({ "box": home.entry(&hosts) }));
    let mut command = home.command(&["stdio"]);
    command.env("HTTPS_PROXY", format!("http://ada:pass@127.0.0.1:{company}"));
    command.env("http_proxy", format!("127.0.0.1:{company}"));
    let mut program = Program::start(command);
    let tunnel = |host: &str| {
        format!(
            "import urllib.parse\nat = urllib.parse.urlparse(os.environ['https_proxy'])\n\
             s = socket.create_connection((at.hostname, at.port), 20)\n\
             s.sendall(b'CONNECT {host} HTTP/1.1\\r\\n\\r\\n'); r = b''\n\
             while len(r) < 150:\n more = s.recv(150)\n if not more: break\n r += more"
        )
    };
    let got = program.run("box", &tunnel("203.0.113.7:443")).unwrap();
    let expected = "b'HTTP/1.1 200 Connection established\\r\\n\\r\\nCONNECT 203.0.113.7:443 HTTP/1.1\\r\\n\
                    Host: 203.0.113.7:443\\r\\nProxy-Authorization: Basic YWRhOnBhc3M=\\r\\n\\r\\n'";
    assert_eq!(got, expected);
    let plain = "import urllib.request\nr = urllib.request.urlopen('http://203.0.113.7/x', timeout=20).read()";
    let got = program.run("box", plain).unwrap();
    assert!(got.starts_with("b'GET http://203.0.113.7:80/x HTTP/1.1\\r\\n") && !got.contains("Authorization"), "{got}");
    // This machine is not asked of it, and what is not listed is asked of nobody. `proxy/tests.rs` has NO_PROXY.
    assert_eq!(program.run("box", &fetch(near)).as_deref(), Ok("b'a page'"));
    assert!(program.run("box", &tunnel("203.0.113.9:443")).unwrap().starts_with("b'HTTP/1.1 403 "));
    let environment = "r = [value for value in os.environ.values() if 'pass' in value]";
    assert_eq!(program.run("box", environment).as_deref(), Ok("[]"), "its password is not for the server");
}
