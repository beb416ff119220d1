//! Where a browser comes back to after a login: a port of this machine, one path, one hit, a page that never changes
//! (`hazards.md` H70).

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const PATH: &str = "/callback";
const HEAD_BYTES: u64 = 16 * 1024;
/// Who connects and says nothing is not waited for.
const PATIENCE: Duration = Duration::from_secs(5);
const PAGE: &str = "<!doctype html><title>mcp-host</title><p>You can close this page and go back to the terminal.</p>";

/// An open port.
#[derive(Debug)]
pub(crate) struct Redirect {
    listener: TcpListener,
    port: u16,
}

impl Redirect {
    pub(crate) async fn open() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        Ok(Self { listener, port })
    }

    /// Where the browser is to be sent back to.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}{PATH}", self.port)
    }

    /// Waits for the browser: the whole URL that it came with. Whatever else comes is turned away, one after the other.
    pub(crate) async fn hit(&self) -> String {
        loop {
            let Ok((stream, _)) = self.listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            if let Ok(Ok(Some(path))) = timeout(PATIENCE, self.serve(stream)).await {
                return format!("http://127.0.0.1:{}{path}", self.port);
            }
        }
    }

    /// Answers one request: the path with its query, if it is the one that is waited for.
    async fn serve(&self, mut stream: TcpStream) -> io::Result<Option<String>> {
        let mut head = Vec::new();
        let mut reader = (&mut stream).take(HEAD_BYTES);
        while !head.windows(4).any(|window| window == b"\r\n\r\n") {
            if reader.read_buf(&mut head).await? == 0 {
                return Ok(None);
            }
        }
        let head = String::from_utf8_lossy(&head);
        let judged = judge(&head, self.port);
        let (status, body) = match &judged {
            Ok(_) => ("200 OK", PAGE),
            Err(status) => (*status, ""),
        };
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncache-control: no-store\r\n\
             referrer-policy: no-referrer\r\ncontent-security-policy: default-src 'none'\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        Ok(judged.ok())
    }
}

/// The path with its query, or the status for whoever is not meant.
fn judge(head: &str, port: u16) -> Result<String, &'static str> {
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let host = format!("127.0.0.1:{port}");
    let mut hosts = lines.filter_map(|line| line.split_once(':')).filter(|(name, _)| name.eq_ignore_ascii_case("host"));
    let own = matches!((hosts.next(), hosts.next()), (Some((_, value)), None) if value.trim() == host);
    if !own {
        return Err("421 Misdirected Request");
    }
    if method != "GET" {
        return Err("405 Method Not Allowed");
    }
    if path.split('?').next() != Some(PATH) || !path.contains('?') {
        return Err("404 Not Found");
    }
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(port: u16, head: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn h70_one_path_one_method_one_host_one_hit() {
        let redirect = Redirect::open().await.unwrap();
        let port = redirect.port;
        let get = |path: &str, host: &str| format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let own = format!("127.0.0.1:{port}");
        let browser = async {
            for (head, status) in [
                (get("/callback?code=x", "evil.example"), "421"),
                (get("/callback?code=x", &format!("localhost:{port}")), "421"),
                (get("/callback?code=x", &own).replace("GET", "POST"), "405"),
                (get("/", &own), "404"),
                (get("/callback", &own), "404"),
                (get("/callback/../x?code=x", &own), "404"),
            ] {
                let answer = ask(port, &head).await;
                assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{head} {answer}");
            }
            ask(port, &get("/callback?code=canary&state=<script>", &own)).await
        };
        let (url, answer) = tokio::join!(redirect.hit(), browser);
        assert_eq!(url, format!("http://127.0.0.1:{port}/callback?code=canary&state=<script>"));
        // Nothing of the request is in the page.
        assert!(answer.contains(PAGE) && !answer.contains("canary") && !answer.contains("script"), "{answer}");
        drop(redirect);
        assert!(TcpStream::connect(("127.0.0.1", port)).await.is_err());
    }
}
