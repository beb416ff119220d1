//! The local redirect endpoint of a browser login: one port, one path, one redirect that is accepted, and a page that
//! never changes (`docs/hazards.md` H70). It may also have a door: a local address that leads to the issuer's page.
//! With a door, the endpoint accepts the redirect only from the browser that came in through this door.

use std::io;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use url::Url;

use super::{Error, jwt};

const PATH: &str = "/callback";
const DOOR: &str = "/login/";
const HEAD_BYTES: u64 = 16 * 1024;
/// How long a connection may stay silent.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many connections are served at once; further ones have to wait. Browsers open connections that they may never
/// use.
const AT_ONCE: usize = 16;
const PAGE: &str = "<!doctype html><title>mcp-host</title><p>You can close this page and go on where you were.</p>";

/// A local port that waits for the browser of one login to come back.
///
/// ```no_run
/// # async fn example() -> std::io::Result<()> {
/// let redirect = mcp_host::auth::Redirect::open().await?;
/// println!("the browser comes back to {}", redirect.url());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Redirect {
    listener: TcpListener,
    port: u16,
    door: Option<Door>,
}

/// A local address that leads to the issuer's page.
struct Door {
    /// The last segment of the address's path, which is random.
    key: String,
    /// The value of the cookie that marks the browser that came in through the door.
    mark: String,
    page: Url,
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").finish_non_exhaustive()
    }
}

/// What a request to the local port asks for.
#[derive(Debug)]
enum Incoming {
    /// The redirect of the login; holds its path with the query.
    Back(String),
    /// The door.
    In,
    /// Anything else, which is answered with this HTTP status.
    Nothing(&'static str),
}

impl Redirect {
    /// Opens a free port on the loopback address.
    ///
    /// # Errors
    /// Fails if no port is available.
    pub async fn open() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        Ok(Self { listener, port, door: None })
    }

    /// Returns the redirect URI of the login.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}{PATH}", self.port)
    }

    /// Adds a door that leads to this page. Also returns the URL of the door.
    pub(super) fn with_door(self, page: Url) -> Result<(Self, String), Error> {
        let door = Door { key: jwt::unguessable()?, mark: jwt::unguessable()?, page };
        let url = format!("http://127.0.0.1:{}{DOOR}{}", self.port, door.key);
        Ok((Self { door: Some(door), ..self }, url))
    }

    /// Waits for the browser to come back, and returns the whole URL that it requests. Rejects other requests.
    pub async fn hit(&self) -> String {
        let mut serving = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(done) = serving.next() => {
                    if let Ok(Ok(Some(path))) = done {
                        return format!("http://127.0.0.1:{}{path}", self.port);
                    }
                }
                accepted = self.listener.accept(), if serving.len() < AT_ONCE => match accepted {
                    Ok((stream, _)) => serving.push(timeout(PATIENCE, self.serve(stream))),
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                },
            }
        }
    }

    /// Answers one request. If it is the redirect, returns its path with the query.
    async fn serve(&self, mut stream: TcpStream) -> io::Result<Option<String>> {
        let mut head = Vec::new();
        let mut reader = (&mut stream).take(HEAD_BYTES);
        while !head.windows(4).any(|window| window == b"\r\n\r\n") {
            if reader.read_buf(&mut head).await? == 0 {
                return Ok(None);
            }
        }
        let wanted = self.judge(&String::from_utf8_lossy(&head));
        let (status, more, body) = match (&wanted, &self.door) {
            (Incoming::Back(_), _) => ("200 OK", String::new(), PAGE),
            (Incoming::In, Some(door)) => ("303 See Other", door.leads(self.port), ""),
            (Incoming::In, None) => ("404 Not Found", String::new(), ""),
            (Incoming::Nothing(status), _) => (*status, String::new(), ""),
        };
        let answer = format!(
            "HTTP/1.1 {status}\r\n{more}content-type: text/html; charset=utf-8\r\ncache-control: no-store\r\n\
             referrer-policy: no-referrer\r\ncontent-security-policy: default-src 'none'\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        Ok(match wanted {
            Incoming::Back(path) => Some(path),
            Incoming::In | Incoming::Nothing(_) => None,
        })
    }

    fn judge(&self, head: &str) -> Incoming {
        let mut lines = head.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let headers: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(':')).collect();
        let all = |name: &'static str| {
            let of_name = move |(one, _): &&(&str, &str)| one.eq_ignore_ascii_case(name);
            headers.iter().filter(of_name).map(|(_, value)| value.trim())
        };
        let mut hosts = all("host");
        let host = format!("127.0.0.1:{}", self.port);
        if !matches!((hosts.next(), hosts.next()), (Some(value), None) if value == host) {
            return Incoming::Nothing("421 Misdirected Request");
        }
        if method != "GET" {
            return Incoming::Nothing("405 Method Not Allowed");
        }
        let Some(door) = &self.door else { return back(path) };
        if path.strip_prefix(DOOR) == Some(&door.key) {
            return Incoming::In;
        }
        let mark = format!("{}={}", door.cookie(self.port), door.mark);
        let is_marked = all("cookie").flat_map(|value| value.split(';')).any(|one| one.trim() == mark);
        match back(path) {
            Incoming::Back(_) if !is_marked => Incoming::Nothing("403 Forbidden"),
            wanted => wanted,
        }
    }
}

fn back(path: &str) -> Incoming {
    if path.split('?').next() != Some(PATH) || !path.contains('?') {
        return Incoming::Nothing("404 Not Found");
    }
    Incoming::Back(path.to_owned())
}

impl Door {
    /// Returns the name of the cookie that marks the browser. It contains the port, because all ports of an address
    /// share their cookies.
    fn cookie(&self, port: u16) -> String {
        format!("mcp-host-login-{port}")
    }

    /// Returns the headers that redirect a browser to the page and mark it with a cookie. The browser comes back by a
    /// link from another site, so the cookie is `SameSite=Lax`.
    fn leads(&self, port: u16) -> String {
        let (name, mark, page) = (self.cookie(port), &self.mark, &self.page);
        format!("location: {page}\r\nset-cookie: {name}={mark}; Path={PATH}; HttpOnly; SameSite=Lax\r\n")
    }
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

    fn get(path: &str, host: &str) -> String {
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")
    }

    #[tokio::test]
    async fn h70_one_path_one_method_one_host_one_hit() {
        let redirect = Redirect::open().await.unwrap();
        let port = redirect.port;
        let own = format!("127.0.0.1:{port}");
        let browser = async {
            // A silent connection does not block the others.
            let _silent = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            for (head, status) in [
                (get("/callback?code=x", "evil.example"), "421"),
                (get("/callback?code=x", &format!("localhost:{port}")), "421"),
                (get("/callback?code=x", &own).replace("GET", "POST"), "405"),
                (get("/", &own), "404"),
                (get("/callback", &own), "404"),
                (get("/login/", &own), "404"),
                (get("/callback/../x?code=x", &own), "404"),
            ] {
                let answer = ask(port, &head).await;
                assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{head} {answer}");
            }
            ask(port, &get("/callback?code=canary&state=<script>", &own)).await
        };
        let (url, answer) = tokio::join!(redirect.hit(), browser);
        assert_eq!(url, format!("http://127.0.0.1:{port}/callback?code=canary&state=<script>"));
        // The page contains nothing of the request.
        assert!(answer.contains(PAGE) && !answer.contains("canary") && !answer.contains("script"), "{answer}");
        drop(redirect);
        assert!(TcpStream::connect(("127.0.0.1", port)).await.is_err());
    }

    #[tokio::test]
    async fn h70_with_a_door_only_the_browser_that_came_in_by_it_is_believed() {
        let page: Url = "https://i.example/authorize?state=s".parse().unwrap();
        let (redirect, door) = Redirect::open().await.unwrap().with_door(page).unwrap();
        let port = redirect.port;
        let own = format!("127.0.0.1:{port}");
        let path = door.strip_prefix(&format!("http://{own}")).unwrap().to_owned();
        let browser = async {
            let led = ask(port, &get(&path, &own)).await;
            assert!(
                led.starts_with("HTTP/1.1 303") && led.contains("location: https://i.example/authorize?state=s\r\n")
            );
            let cookie = led.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
            let mark = cookie.split(';').next().unwrap();
            let back = get("/callback?code=x", &own);
            let with = |cookie: &str| back.replace("\r\n\r\n", &format!("\r\nCookie: {cookie}\r\n\r\n"));
            let other = format!("{}=x", mark.split('=').next().unwrap());
            let elsewhere = get(&path, "evil.example");
            for (head, status) in [
                (back.clone(), "403"),
                (with(&other), "403"),
                (with(&format!("{mark}x")), "403"),
                (get(&format!("{path}x"), &own), "404"),
                (get("/login/", &own), "404"),
                (elsewhere, "421"),
            ] {
                let answer = ask(port, &head).await;
                assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{head} {answer}");
                assert!(!answer.contains("i.example"), "{answer}");
            }
            ask(port, &with(&format!("a=b; {mark}"))).await
        };
        let (url, answer) = tokio::join!(redirect.hit(), browser);
        assert_eq!(url, format!("http://127.0.0.1:{port}/callback?code=x"));
        assert!(answer.contains(PAGE), "{answer}");
    }
}
