//! The way out of a sandbox on macOS: a port of this machine, the only one that the server's profile lets it connect to.
//!
//! Other programs of this machine reach it, too, so a client has to know the password that stands in the server's variables.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::config::SandboxHost;
use crate::counts::ServerCounts;
use crate::dial::system;
use crate::hex;
use crate::sandbox::proxy::{Beyond, Proxy, Rules, USER, accept};

/// The host's side of the way out of one server's process.
#[derive(Debug)]
pub(crate) struct Door {
    listener: TcpListener,
    password: String,
    hosts: Vec<SandboxHost>,
}

impl Door {
    /// Makes a door to these hosts. Returns its port, and the URL of its proxy.
    pub(super) fn open(hosts: &[SandboxHost]) -> io::Result<(Self, u16, String)> {
        let mut password = [0; 16];
        getrandom::fill(&mut password).map_err(io::Error::other)?;
        let password = hex::encode(&password);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let url = format!("http://{USER}:{password}@127.0.0.1:{port}");
        Ok((Self { listener, password, hosts: hosts.to_owned() }, port, url))
    }

    /// Serves the server's connections until `stop`.
    ///
    /// # Cancel safety
    /// A dropped future closes the door and all connections.
    pub(crate) async fn serve(self: Arc<Self>, server: Arc<str>, counts: Arc<ServerCounts>, stop: CancellationToken) {
        let serving = async {
            let listener = tokio::net::TcpListener::from_std(self.listener.try_clone()?)?;
            let proxy = Proxy::new(server.clone(), Rules::listed(self.hosts.clone(), system()), counts);
            let proxy = proxy.beyond(Beyond::of_environment()).for_those_who_know(USER, &self.password);
            accept(&listener, &Arc::new(proxy)).await
        };
        if let Some(Err(error)) = stop.run_until_cancelled(serving).await {
            tracing::warn!("server `{server}`: the way out of its sandbox is closed: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::counts::Counts;

    #[tokio::test]
    async fn h108_a_door_on_macos_is_for_those_who_know_its_password() {
        let (door, port, url) = Door::open(&["a.example".parse().expect("a host")]).expect("a door");
        let proof = base64::Engine::encode(
            &base64::prelude::BASE64_STANDARD,
            url.trim_start_matches("http://").split('@').next().expect("a name and a password"),
        );
        let stop = CancellationToken::new();
        let serving = tokio::spawn(Arc::new(door).serve("a".into(), Counts::default().of("a"), stop.clone()));
        for (header, expected) in
            [(String::new(), "HTTP/1.1 407 "), (format!("Proxy-Authorization: Basic {proof}\r\n"), "HTTP/1.1 403 ")]
        {
            let mut client = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.expect("a connection");
            let head = format!("CONNECT b.example:443 HTTP/1.1\r\n{header}\r\n");
            client.write_all(head.as_bytes()).await.expect("it takes them");
            let mut got = String::new();
            client.read_to_string(&mut got).await.expect("an answer");
            assert!(got.starts_with(expected), "{got}");
        }
        stop.cancel();
        serving.await.expect("it ends");
    }
}
