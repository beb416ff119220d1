//! An HTTP server that refuses everyone, and echoes the whole request in its refusal.

use std::io::{BufRead, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};

use serde_json::json;

/// Starts it; it ends with the test. The path selects the kind of refusal.
pub(super) fn start() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || serve(stream));
        }
    });
    origin
}

/// Reads one request: its head, and its body of a stated length. Returns `None` at the end.
pub(crate) fn request(reader: &mut impl BufRead) -> Option<(String, Vec<u8>)> {
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return None;
        }
        if let Some(told) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = told.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
        head += &line;
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    Some((head, body))
}

fn serve(mut stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some((head, body)) = request(&mut reader) {
        let id = serde_json::from_slice::<serde_json::Value>(&body).unwrap_or_default()["id"].clone();
        let _ = stream.write_all(refusal(&head, &id).as_bytes());
    }
}

fn refusal(head: &str, id: &serde_json::Value) -> String {
    let path = head.split(' ').nth(1).unwrap_or_default();
    // What matters is at the end of the request, and only the beginning of a refusal is shown.
    let all: Vec<&str> = head.lines().filter(|line| !line.starts_with("accept") && !line.starts_with("host")).collect();
    let all = all.join(" ; ");
    let last: String = all
        .split(": ")
        .filter(|part| part.contains("canary") || part.starts_with("Basic"))
        .collect::<Vec<_>>()
        .join(" ");
    let (status, heads, body) = match path {
        path if path.starts_with("/500") => {
            ("500 Oops", "content-type: application/json\r\n".to_owned(), json!({ "said": all }).to_string())
        }
        path if path.starts_with("/error") => {
            let error = json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32000, "message": format!("refused: {all}") } });
            ("200 OK", "content-type: application/json\r\n".to_owned(), error.to_string())
        }
        path if path.starts_with("/type") => ("200 OK", format!("content-type: {last}\r\n"), all),
        _ => ("307 Over There", format!("location: http://{last}.example/cb?code={last}&x={last}\r\n"), all),
    };
    format!("HTTP/1.1 {status}\r\n{heads}content-length: {}\r\n\r\n{body}", body.len())
}
