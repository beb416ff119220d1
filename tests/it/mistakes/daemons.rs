//! Mistakes around a running `serve`.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use super::Mistake;
use super::scene::{Running, Scene};
use super::servers::{config, runtime};
use crate::auth::world::{agreed, protected};

impl Scene {
    /// Waits until it serves, hides its port, and returns it.
    pub(super) fn listens(&mut self, program: &mut Running) -> String {
        let line = program.hears("listening on ");
        let port = line.trim_end_matches("/mcp").rsplit(':').next().unwrap().to_owned();
        self.hide(&format!("127.0.0.1:{port}"), "127.0.0.1:PORT");
        self.hide(&format!("port {port}"), "port PORT");
        port
    }

    /// A server that requires a login, as `a`.
    fn has_a_server_with_a_login(&mut self) -> [crate::auth::site::Site; 2] {
        let (_, issuer, server) = runtime().block_on(protected());
        self.hide(&issuer.url, "http://issuer");
        self.hide(&server.url, "http://server");
        self.write("mcp.json", &config("a", &format!(r#"{{ "url": "{}/mcp", "era": "legacy" }}"#, server.url)));
        [issuer, server]
    }

    /// The user opens the page that a login shows, and agrees.
    fn opens_the_page(&mut self, login: &mut Running) {
        let page = login.hears("/authorize?");
        let page = page.trim();
        self.hide(page, "http://issuer/authorize?…");
        let back: url::Url = agreed(&page.parse().unwrap()).parse().unwrap();
        let (host, port) = (back.host_str().unwrap(), back.port().unwrap());
        let mut stream = TcpStream::connect((host, port)).unwrap();
        let path = &back[url::Position::BeforePath..];
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}:{port}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        self.expect(answer.starts_with("HTTP/1.1 200"), "the browser is not welcome back");
        self.remark("the user opens the page on the screen, and agrees");
    }
}

pub(super) const TABLE: &[Mistake] = &[
    Mistake {
        name: "port taken by us",
        says: &["process PID", "mcp-host status", "--listen 127.0.0.1:0"],
        never: &["not one of your mcp-hosts"],
        act: |scene| {
            let mut first = scene.begins_quietly("mcp-host serve --demo --listen 127.0.0.1:0");
            let port = scene.listens(&mut first);
            scene.types(&format!("mcp-host serve --demo --listen 127.0.0.1:{port}"));
        },
    },
    Mistake {
        name: "port taken by another",
        says: &["127.0.0.1:PORT is in use", "--listen 127.0.0.1:0"],
        never: &["mcp-host status"],
        act: |scene| {
            let taken = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = taken.local_addr().unwrap().to_string();
            scene.hide(&address, "127.0.0.1:PORT");
            scene.types(&format!("mcp-host serve --demo --listen {address}"));
        },
    },
    Mistake {
        name: "wide bind",
        says: &["0.0.0.0:8808", "mcp-host token", "host.auth"],
        never: &["listening on"],
        act: |scene| {
            scene.has_a_good_server();
            scene.write("mcp.json", &config("s", r#"{ "command": "good-server" }"#));
            scene.types("mcp-host serve --listen 0.0.0.0:8808 --config mcp.json");
        },
    },
    Mistake {
        name: "broken live edit",
        says: &["not reloaded", "mcp.json:1:1", "Unterminated object", "goes on", "connected"],
        never: &["disconnected"],
        act: |scene| {
            scene.has_a_good_server();
            let good = config("s", r#"{ "command": "good-server" }"#);
            scene.file("mcp.json", &good);
            let mut daemon = scene.begins("mcp-host serve --config mcp.json --listen 127.0.0.1:0");
            scene.listens(&mut daemon);
            daemon.hears("✓ s");
            daemon.hears("1 server: ");
            scene.remark("the user leaves out a brace");
            scene.file("mcp.json", &good.replacen(" }\n  }", "\n  }", 1));
            daemon.hears("not reloaded");
            scene.types("mcp-host status");
            scene.remark("and what the daemon says, after Ctrl-C");
            daemon.signal(rustix::process::Signal::INT);
            scene.ends(daemon);
        },
    },
    Mistake {
        name: "no daemon",
        says: &["no mcp-host is running", "help: mcp-host serve"],
        never: &[],
        act: |scene| {
            scene.types("mcp-host status");
        },
    },
    Mistake {
        name: "no browser",
        says: &["open the page yourself", "http://issuer/authorize?…", "signed in to `a`"],
        never: &["os error"],
        act: |scene| {
            let _sites = scene.has_a_server_with_a_login();
            scene.finds_only_what_is_in_home();
            let mut daemon = scene.begins_quietly("mcp-host serve --config mcp.json --listen 127.0.0.1:0");
            scene.listens(&mut daemon);
            daemon.hears("mcp-host login a");
            let mut login = scene.begins("mcp-host login a");
            scene.opens_the_page(&mut login);
            scene.ends(login);
        },
    },
    Mistake {
        name: "login without keyring",
        says: &["keyring", "openssl rand", "secret.key", "signed in to `a`; the token is kept in"],
        never: &["in memory"],
        act: |scene| {
            let _sites = scene.has_a_server_with_a_login();
            let refused = scene.types("mcp-host login a --no-browser --config mcp.json");
            let command = refused.told.split("help: make a key for encrypted files: ").nth(1);
            let Some(command) = command.and_then(|rest| rest.lines().next()) else {
                return scene.expect(false, "tells no command that makes a key");
            };
            scene.types(command);
            let mut login = scene.begins("mcp-host login a --no-browser --config mcp.json");
            scene.opens_the_page(&mut login);
            scene.ends(login);
        },
    },
    Mistake {
        name: "closed terminal",
        says: &["listening on", "[exit 0]", "no process of it is left"],
        never: &["reload"],
        act: super::closed_terminal::act,
    },
];

#[test]
fn daemons() {
    super::make("daemons", TABLE);
}
