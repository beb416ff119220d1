//! Servers that real tools start, or fail to: npx, uvx, pip, node, and python, with registries on loopback. The tools'
//! words differ by version: those that must be shown are in the table, the snapshot omits them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::Mistake;
use super::scene::Scene;
use super::servers::{config, runtime};
use crate::auth::site::Told;

/// A tool that some machines lack, and how to detect it.
#[derive(Clone, Copy)]
enum Tool {
    Node,
    Npx,
    Uvx,
    Python,
    Pip,
}

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Npx => "npx",
            Self::Uvx => "uvx",
            Self::Python => "python3",
            Self::Pip => "python3 -m pip",
        }
    }

    /// Returns its folder.
    fn folder(self) -> Option<PathBuf> {
        let program = self.name().split(' ').next()?;
        let path = std::env::var_os("PATH")?;
        let found = std::env::split_paths(&path).find(|folder| folder.join(program).is_file())?;
        match self {
            Self::Pip => output(&found.join(program), &["-m", "pip", "--version"]).and_then(|_| Self::Python.folder()),
            // What is found may be a shim that needs variables that the scene lacks.
            Self::Python => {
                let real = output(&found.join(program), &["-c", "import sys; print(sys.executable)"])?;
                Path::new(real.trim()).parent().map(Path::to_owned)
            }
            _ => Some(found),
        }
    }
}

fn output(program: &Path, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).ok())?
}

impl Scene {
    /// Makes commands find these tools, and reports whether they are installed.
    fn has(&mut self, tools: &[Tool]) -> bool {
        self.is_foreign = true;
        for tool in tools {
            match tool.folder() {
                Some(folder) => self.looks_in(&folder),
                None => {
                    self.lacks = Some(tool.name());
                    return false;
                }
            }
        }
        true
    }

    /// A server `s` of these tools, and the output when it does not start.
    fn tries(&mut self, tools: &[Tool], entry: &str) {
        if self.has(tools) {
            self.file("mcp.json", &config("s", entry));
            self.types("mcp-host tools --config mcp.json");
            self.types("mcp-host check --connect --config mcp.json");
        }
    }

    /// Like `tries`, behind a certificate that is unknown here. The user follows the help, and gets further: to a
    /// package that does not exist.
    fn follows_the_help(&mut self, tools: &[Tool], entry: fn(&str) -> String) {
        if !self.has(tools) {
            return;
        }
        let registry = self.has_a_registry_of_an_unknown_authority();
        let entry = entry(&registry);
        self.file("mcp.json", &config("s", &entry));
        let shown = self.types("mcp-host tools --config mcp.json");
        self.types("mcp-host check --connect --config mcp.json");
        let named = shown.err.split("\": \"/path/to/ca.pem\"").next().and_then(|text| text.rsplit('"').next());
        let Some(variable) = named.filter(|name| name.chars().all(|c| c.is_ascii_uppercase() || c == '_')) else {
            return self.expect(false, "names no variable for the file of an authority");
        };
        self.remark(&format!("the user sets {variable} in `env` of `s`"));
        let set = format!(r#""env": {{ "{variable}": "{}", "#, self.path("~/ca.pem").display());
        self.write("mcp.json", &config("s", &entry.replace(r#""env": { "#, &set)));
        let shown = self.types("mcp-host tools --config mcp.json");
        self.expect(shown.err.contains("there is no such package"), "is no better when it is followed");
    }

    /// Returns the URL of a registry without packages.
    fn has_an_empty_registry(&mut self) -> String {
        let site = self.has_a_site(|_| Told::Answer(404, Vec::new(), "not found".to_owned()));
        let url = site.url.clone();
        // It runs as long as the process.
        std::mem::forget(site);
        url
    }

    /// Returns the URL of a registry with a certificate of an unknown authority, as companies have it.
    fn has_a_registry_of_an_unknown_authority(&mut self) -> String {
        let (authority, server) = of_an_unknown_authority();
        self.write("~/ca.pem", &authority);
        let acceptor = TlsAcceptor::from(Arc::new(server));
        let listener = runtime().block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        runtime().spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(empty(acceptor.accept(stream)));
            }
        });
        self.hide(&url, "https://localhost:PORT");
        self.hide(&format!("port={}", url.rsplit(':').next().unwrap()), "port=PORT");
        url
    }
}

/// Answers clients that accept the certificate: there is nothing.
async fn empty(stream: impl Future<Output = std::io::Result<TlsStream<TcpStream>>>) -> std::io::Result<()> {
    let (mut stream, mut head) = (stream.await?, Vec::new());
    while !head.ends_with(b"\r\n\r\n") && stream.read_buf(&mut head).await? > 0 {}
    stream.write_all(b"HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await?;
    stream.shutdown().await
}

/// Returns the certificate of an authority, and a server with one that it has signed.
fn of_an_unknown_authority() -> (String, ServerConfig) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "the authority of a company");
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    let authority = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, "localhost");
    let chain = params.signed_by(&key, &authority).unwrap().pem();
    let chain = vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    (pem, builder.with_no_client_auth().with_single_cert(chain, key).unwrap())
}

fn npx(registry: &str) -> String {
    // A company may have configured a trusted authority for all of npm on this machine.
    let env = format!(
        r#""npm_config_registry": "{registry}", "npm_config_globalconfig": "/dev/null", "npm_config_fetch_retries": "0""#
    );
    format!(r#"{{ "command": "npx", "args": ["-y", "@example/no-such-server"], "env": {{ {env} }} }}"#)
}

fn uvx(registry: &str) -> String {
    let env = format!(r#""UV_DEFAULT_INDEX": "{registry}/simple", "UV_HTTP_RETRIES": "0""#);
    format!(r#"{{ "command": "uvx", "args": ["no-such-server"], "env": {{ {env} }} }}"#)
}

fn pip(registry: &str) -> String {
    let env = format!(r#""PIP_INDEX_URL": "{registry}/simple", "PIP_CONFIG_FILE": "/dev/null", "PIP_RETRIES": "0""#);
    let script = "python3 -m pip install --target lib no-such-server >&2 && exec python3 -m no_such_server";
    format!(r#"{{ "command": "sh", "args": ["-c", "{script}"], "env": {{ {env} }} }}"#)
}

pub(super) const TABLE: &[Mistake] = &[
    Mistake {
        name: "npx package missing",
        says: &["`s`", "404", "@example/no-such-server", "help: "],
        never: &["did not start: npm error A complete log"],
        act: |scene| {
            let registry = scene.has_an_empty_registry();
            scene.tries(&[Tool::Node, Tool::Npx], &npx(&registry));
        },
    },
    Mistake {
        name: "npx behind an unknown authority",
        says: &["`s`", "certificate", "NODE_EXTRA_CA_CERTS"],
        never: &[],
        act: |scene| {
            scene.follows_the_help(&[Tool::Node, Tool::Npx], npx);
        },
    },
    Mistake {
        name: "uvx package missing",
        says: &["`s`", "no-such-server was not found in the package registry", "help: "],
        never: &[],
        act: |scene| {
            let registry = scene.has_an_empty_registry();
            scene.tries(&[Tool::Uvx, Tool::Python], &uvx(&registry));
        },
    },
    Mistake {
        name: "uvx behind an unknown authority",
        says: &["`s`", "UnknownIssuer", "SSL_CERT_FILE"],
        never: &[],
        act: |scene| {
            scene.follows_the_help(&[Tool::Uvx, Tool::Python], uvx);
        },
    },
    Mistake {
        name: "pip package missing",
        says: &["`s`", "No matching distribution found for no-such-server", "help: "],
        never: &[],
        act: |scene| {
            let registry = scene.has_an_empty_registry();
            scene.tries(&[Tool::Pip], &pip(&registry));
        },
    },
    Mistake {
        name: "pip behind an unknown authority",
        says: &["`s`", "CERTIFICATE_VERIFY_FAILED", "PIP_CERT"],
        never: &[],
        act: |scene| {
            scene.follows_the_help(&[Tool::Pip], pip);
        },
    },
    Mistake {
        name: "node module missing",
        says: &["`s`", "Cannot find module 'no-such-module'", "help: "],
        never: &["did not start: Node.js"],
        act: |scene| {
            scene.write("server.js", "require('no-such-module');\n");
            scene.tries(&[Tool::Node], r#"{ "command": "node", "args": ["server.js"] }"#);
        },
    },
    Mistake {
        name: "python module missing",
        says: &["`s`", "No module named no_such_server", "help: "],
        never: &[],
        act: |scene| scene.tries(&[Tool::Python], r#"{ "command": "python3", "args": ["-m", "no_such_server"] }"#),
    },
    Mistake {
        name: "traceback at start",
        says: &["`s`", "KeyError: 'NOTES_API_KEY'", "help: "],
        never: &["did not start: Traceback"],
        act: |scene| {
            scene.write("server.py", "import os\nkey = os.environ['NOTES_API_KEY']\n");
            scene.tries(&[Tool::Python], r#"{ "command": "python3", "args": ["server.py"] }"#);
        },
    },
];

#[test]
fn tools() {
    super::make("tools", TABLE);
}
