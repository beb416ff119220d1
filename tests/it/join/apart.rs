//! If HTTP clients prove who they are, a client at the socket is someone else.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::{Place, until};

/// A server whose only tool is named after its process id, and returns it.
const SERVER: &str = r#"
echo started >>"$0"
while read -r line; do
  id=${line#*\"id\":}; id=${id%%[,\}]*}
  case $line in
    *'"method":"notifications'*) continue ;;
    *'"method":"initialize"'*)
      result='{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"method":"tools/list"'*) result='{"tools":[{"name":"t'$$'","inputSchema":{"type":"object"}}]}' ;;
    *'"method":"tools/call"'*) result='{"content":[{"type":"text","text":"'$$'"}]}' ;;
    *) echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"no"}}'; continue ;;
  esac
  echo '{"jsonrpc":"2.0","id":'$id',"result":'$result'}'
done"#;

/// Makes one POST of the client `a`, and returns the session and the body of the response.
pub(super) fn post(port: u16, session: Option<&str>, message: &Value) -> (Option<String>, Value) {
    let body = message.to_string();
    let session = session.map(|session| format!("mcp-session-id: {session}\r\n")).unwrap_or_default();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(
        stream,
        "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer foo\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nmcp-protocol-version: 2025-11-25\r\nconnection: close\r\n\
         {session}content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let header = text.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).map(|id| id.trim().to_owned());
    let json = text.lines().find_map(|line| serde_json::from_str(line.trim_start_matches("data: ")).ok());
    (header, json.unwrap_or_default())
}

fn tools(answer: &Value) -> Vec<String> {
    let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn nothing_of_the_user_is_in_the_lists_of_others() {
    // The client `a` has the token `foo`.
    let hash = "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";
    let place = Place::new();
    place.write(&json!({
        "mcpServers": { "s": { "command": "sh", "args": ["-c", SERVER, place.file("starts")] } },
        "host": { "join": "auto", "auth": { "type": "bearer", "clients": { "a": hash } } },
    }));
    let daemon = place.serve();
    until(|| place.starts() == 1);
    let port: u16 = place.sockets()[0].file_stem().unwrap().to_str().unwrap().parse().unwrap();
    let mut user = place.stdio().begun();
    let shown = tools(&user.ask("tools/list", &json!({})));
    let [name] = shown.as_slice() else { panic!("{shown:?}") };
    let id = user.call(name, &json!({}));
    let answer = user.answer(id);
    // Its process: not the one that the daemon started, whose list everyone sees.
    let own = if answer["result"]["content"].is_array() && answer["result"]["isError"] != true {
        format!("s__t{}", answer["result"]["content"][0]["text"].as_str().unwrap())
    } else {
        // The tool has another name there.
        until(|| tools(&user.ask("tools/list", &json!({}))) != shown);
        tools(&user.ask("tools/list", &json!({}))).remove(0)
    };
    assert_eq!(place.starts(), 2, "it has a process of its own: {answer}");
    let params = json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "a", "version": "1" },
    });
    let (session, _) =
        post(port, None, &json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }));
    let session = session.expect("a session");
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {} });
    let others = tools(&post(port, Some(&session), &list).1);
    assert!(others.len() == 1 && !others.contains(&own), "{others:?} and {own}");
    assert_eq!(user.leave().0, 0);
    drop(daemon);
}
