//! A site that answers by a closure and records its requests; it may also break the connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

impl Asked {
    /// `METHOD /path`, without the query.
    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.method, self.path.split('?').next().unwrap_or_default())
    }

    /// Returns a field of the posted form.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        let mut pairs = url::form_urlencoded::parse(self.body.as_bytes());
        pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    }

    pub(crate) fn token(&self) -> Option<&str> {
        self.headers.get("authorization")?.strip_prefix("Bearer ")
    }
}

/// How a request is answered.
pub(crate) enum Told {
    /// Status, more headers, body.
    Answer(u16, Vec<(&'static str, String)>, String),
    /// The connection breaks.
    Broken,
    /// Nothing, for as long as the client waits.
    Silence,
    /// This answer, once it is released.
    Held(Arc<Notify>, Box<Self>),
    /// A stream of events, as they come, until there are no more or the client is gone.
    Events(Receiver<String>),
}

impl Told {
    pub(crate) fn json(status: u16, body: &serde_json::Value) -> Self {
        Self::Answer(status, vec![("content-type", "application/json".to_owned())], body.to_string())
    }
}

/// A site on loopback.
pub(crate) struct Site {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    _serving: JoinSet<()>,
}

type Answer = Arc<dyn Fn(&Asked) -> Told + Send + Sync>;

impl Site {
    /// Starts the site; the closure may use its URL.
    pub(crate) async fn start<F: Fn(&Asked) -> Told + Send + Sync + 'static>(answer: impl FnOnce(String) -> F) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://127.0.0.1:{}", listener.local_addr().unwrap().port());
        let (answer, asked): (Answer, Arc<Mutex<Vec<Asked>>>) = (Arc::new(answer(url.clone())), Arc::default());
        let (mut serving, seen) = (JoinSet::new(), asked.clone());
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, answer.clone(), seen.clone()));
            }
        });
        Self { url, asked, _serving: serving }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// Returns the lines of its requests.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.asked().iter().map(Asked::line).collect()
    }

    pub(crate) fn count(&self, line: &str) -> usize {
        self.lines().iter().filter(|asked| *asked == line).count()
    }
}

async fn serve(mut stream: TcpStream, answer: Answer, seen: Arc<Mutex<Vec<Asked>>>) {
    let Some(asked) = read(&mut stream).await else { return };
    seen.lock().unwrap().push(asked.clone());
    let mut told = answer(&asked);
    while let Told::Held(gate, then) = told {
        gate.notified().await;
        told = *then;
    }
    let (status, headers, body) = match told {
        Told::Held(..) => return,
        Told::Events(events) => return stream_events(stream, events).await,
        Told::Answer(status, headers, body) => (status, headers, body),
        Told::Broken => {
            // A reset, not an end: data in flight is lost.
            let _ = socket_reset(&stream);
            return;
        }
        Told::Silence => {
            let _ = stream.read(&mut [0]).await;
            return;
        }
    };
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    let text = format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}");
    let _ = stream.write_all(text.as_bytes()).await;
    let _ = stream.shutdown().await;
}

async fn stream_events(mut stream: TcpStream, mut events: Receiver<String>) {
    let head = "HTTP/1.1 200 X\r\nconnection: close\r\ncontent-type: text/event-stream\r\n\r\n";
    let _ = stream.write_all(head.as_bytes()).await;
    let mut end = [0];
    loop {
        tokio::select! {
            event = events.recv() => match event {
                Some(event) if stream.write_all(event.as_bytes()).await.is_ok() => {}
                _ => break,
            },
            _ = stream.read(&mut end) => break,
        }
    }
}

fn socket_reset(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_zero_linger()
}

async fn read(stream: &mut TcpStream) -> Option<Asked> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.lines();
    let mut words = lines.next()?.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let headers: HashMap<_, _> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length: usize = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = bytes.split_off(end + 4);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some(Asked { method, path, headers, body: String::from_utf8_lossy(&body).into_owned() })
}
