//! The hostile servers of the stage `hostile`: this program itself, started as `soak __hostile KIND FLAG`. Each is a
//! good server until the file FLAG exists, and good again when it is gone.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::process::pause;

/// The first argument of such a server.
pub(crate) const SERVER: &str = "__hostile";
/// Notifications per second: twice what is let through.
const FLOOD: u32 = 2000;
/// How long a burst of them is.
const BURST: Duration = Duration::from_millis(5);

/// Runs the server of this kind until its host is gone.
pub(crate) fn run(kind: &str, flag: &Path) -> Result<(), String> {
    let answered = match kind {
        "http" => serve_http(flag),
        kind => serve_pipe(kind, flag),
    };
    answered.map_err(|error| error.to_string())
}

/// Returns the response of a good server; `None` if the message expects none.
fn answer(message: &Value) -> Option<Value> {
    let id = message.get("id")?;
    let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
    let tools = ["go", "event", "body"].map(tool);
    let result = match message["method"].as_str()? {
        "initialize" => json!({ "protocolVersion": "2025-11-25", "serverInfo": { "name": "hostile", "version": "1" },
            "capabilities": { "tools": { "listChanged": true }, "logging": {} } }),
        "tools/list" => json!({ "tools": tools }),
        "tools/call" => json!({ "content": [{ "type": "text", "text": "done" }] }),
        _ => json!({}),
    };
    Some(json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

fn serve_pipe(kind: &str, flag: &Path) -> std::io::Result<()> {
    let out = Arc::new(Mutex::new(std::io::stdout()));
    let (is_deaf, kind) = (kind == "deaf", kind.to_owned());
    let (talk, watched) = (out.clone(), flag.to_owned());
    let mut talking = false;
    for line in BufReader::new(std::io::stdin()).lines() {
        let message: Value = serde_json::from_str(&line?).unwrap_or_default();
        if let Some(answer) = answer(&message) {
            let mut out = out.lock().expect("no panic inside");
            writeln!(out, "{answer}")?;
            out.flush()?;
        }
        if message["method"] == "tools/list" && !std::mem::replace(&mut talking, true) && !is_deaf {
            let (talk, watched, kind) = (talk.clone(), watched.clone(), kind.clone());
            std::thread::spawn(move || rave(&kind, &talk, &watched));
        }
        // It reads nothing meanwhile.
        while is_deaf && flag.exists() {
            pause(BURST);
        }
    }
    Ok(())
}

/// Misbehaves while the flag exists.
fn rave(kind: &str, out: &Mutex<std::io::Stdout>, flag: &Path) {
    let endless = vec![b'a'; 64 * 1024];
    let burst = FLOOD * u32::try_from(BURST.as_millis()).unwrap_or(1) / 1000;
    let mut flood = String::new();
    for number in 0..burst {
        let notice = if number % 10 == 0 {
            json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" })
        } else {
            json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "error", "data": "x".repeat(200) } })
        };
        flood += &format!("{notice}\n");
    }
    let mut is_raving = false;
    loop {
        if !flag.exists() {
            // An unfinished line would be buffered for as long as this runs.
            if std::mem::take(&mut is_raving) && kind == "line" {
                let mut out = out.lock().expect("no panic inside");
                if out.write_all(b"\n").and_then(|()| out.flush()).is_err() {
                    return;
                }
            }
            pause(BURST);
            continue;
        }
        is_raving = true;
        let bytes = if kind == "line" { &endless[..] } else { flood.as_bytes() };
        let mut out = out.lock().expect("no panic inside");
        if out.write_all(bytes).and_then(|()| out.flush()).is_err() {
            return;
        }
        drop(out);
        if kind != "line" {
            pause(BURST);
        }
    }
}

/// Announces its port on standard output, and serves until its standard input ends.
fn serve_http(flag: &Path) -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", listener.local_addr()?.port())?;
    out.flush()?;
    let flag = flag.to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let flag = flag.clone();
            std::thread::spawn(move || talk(stream, &flag));
        }
    });
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn talk(stream: TcpStream, flag: &Path) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        while !head.ends_with("\r\n\r\n") {
            let before = head.len();
            if stream.read_line(&mut head)? == 0 {
                return Ok(());
            }
            let line = head[before..].to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or_default();
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let out = stream.get_mut();
        if message["method"] == "tools/call" && flag.exists() {
            return without_end(out, message["params"]["name"] == "body");
        }
        let text = match answer(&message) {
            Some(answer) => {
                let body = answer.to_string();
                format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                )
            }
            None if head.starts_with("POST") => "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n".to_owned(),
            None => "HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n".to_owned(),
        };
        out.write_all(text.as_bytes())?;
    }
}

/// A chunked body, or an event, that never ends.
fn without_end(out: &mut TcpStream, is_body: bool) -> std::io::Result<()> {
    let kind = if is_body { "application/json" } else { "text/event-stream" };
    write!(out, "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n6\r\ndata: \r\n")?;
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    loop {
        out.write_all(chunk.as_bytes())?;
    }
}
