//! Where a message goes: the table of the specification, each row with each header.

use crate::downstream::classify::{Eras, Header, Route, route};
use crate::protocol::Message;

const MODERN: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
const FUTURE: &str = r#""io.modelcontextprotocol/protocolVersion":"2027-01-01""#;
const PAST: &str = r#""io.modelcontextprotocol/protocolVersion":"2025-11-25""#;
const NUMBER: &str = r#""io.modelcontextprotocol/protocolVersion":7"#;
const ABLE: &str = r#""io.modelcontextprotocol/clientCapabilities":{}"#;

/// Returns `session`, `stateless`, `notice`, or the code of the error.
fn way(message: &str, header: Header<'_>, eras: Eras) -> String {
    let message = Message::parse(&message.to_owned().into()).unwrap();
    match route(message, header, eras) {
        Ok(Route::Session(_)) => "session".to_owned(),
        Ok(Route::Stateless(..)) => "stateless".to_owned(),
        Ok(Route::Notice(_)) => "notice".to_owned(),
        Err(error) => error.code.to_string(),
    }
}

fn request(method: &str, meta: &[&str]) -> String {
    let meta = meta.join(",");
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"_meta":{{{meta}}}}}}}"#)
}

/// A pipe, no header, a legacy revision, the modern one, a future one, two headers.
const HEADERS: [Header<'_>; 6] = [
    Header::None,
    Header::Absent,
    Header::Is("2025-11-25"),
    Header::Is("2026-07-28"),
    Header::Is("2027-01-01"),
    Header::Unclear,
];

#[test]
fn both_eras() {
    let plain = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#.to_owned();
    let notice = r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#.to_owned();
    let claiming =
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"_meta":{{{MODERN}}}}}}}"#);
    let response = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned();
    let escaped = request("tools/list", &[&MODERN.replace('/', r"\/"), &ABLE.replace('/', r"\/")]);
    let (session, stateless, note) = ("session", "stateless", "notice");
    let (header, params, version, method, bad) = ("-32020", "-32602", "-32022", "-32601", "-32600");
    #[rustfmt::skip]
    let rows = [
        //                                                          pipe       absent   legacy   modern     to come  two
        ("claim",              request("tools/list", &[MODERN, ABLE]), [stateless, header,  header,  stateless, header,  header]),
        ("escaped claim",      escaped,                                [stateless, header,  header,  stateless, header,  header]),
        ("claim to come",      request("tools/list", &[FUTURE, ABLE]), [version,   header,  header,  header,    version, header]),
        ("claim of the past",  request("tools/list", &[PAST, ABLE]),   [version,   header,  version, header,    header,  header]),
        ("no capabilities",    request("tools/list", &[MODERN]),       [params,    header,  header,  params,    header,  header]),
        ("claim is no text",   request("tools/list", &[NUMBER, ABLE]), [params,    params,  params,  params,    params,  params]),
        ("claim, initialize",  request("initialize", &[MODERN, ABLE]), [method,    header,  header,  method,    header,  header]),
        ("claim, ping",        request("ping", &[MODERN, ABLE]),       [method,    header,  header,  method,    header,  header]),
        ("initialize",         request("initialize", &[]),             [session,   session, session, header,    header,  bad]),
        ("no claim",           plain,                                  [session,   session, session, params,    params,  bad]),
        ("capabilities alone", request("tools/list", &[ABLE]),         [session,   session, session, params,    params,  bad]),
        ("notification",       notice,                                 [session,   session, session, note,      note,    bad]),
        ("claiming one",       claiming,                               [note,      note,    note,    note,      note,    note]),
        ("response",           response,                               [session,   session, session, bad,       bad,     bad]),
    ];
    for (what, message, ways) in rows {
        for (header, expected) in HEADERS.into_iter().zip(ways) {
            assert_eq!(way(&message, header, Eras::Both), expected, "{what}, {header:?}");
        }
    }
}

#[test]
fn one_era() {
    let plain = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let claim = request("tools/list", &[MODERN, ABLE]);
    let initialize = request("initialize", &[]);
    let response = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    let rows = [
        (Eras::Legacy, plain, Header::Absent, "session"),
        (Eras::Legacy, &claim, Header::Absent, "-32602"),
        (Eras::Legacy, plain, Header::Is("2026-07-28"), "-32600"),
        (Eras::Legacy, &initialize, Header::None, "session"),
        (Eras::Modern, plain, Header::Absent, "-32602"),
        (Eras::Modern, plain, Header::None, "-32602"),
        (Eras::Modern, &claim, Header::None, "stateless"),
        (Eras::Modern, &claim, Header::Is("2026-07-28"), "stateless"),
        (Eras::Modern, &initialize, Header::None, "-32022"),
        (Eras::Modern, &initialize, Header::Is("2025-11-25"), "-32022"),
        (Eras::Modern, response, Header::None, "-32600"),
    ];
    for (eras, message, header, expected) in rows {
        assert_eq!(way(message, header, eras), expected, "{eras:?}, {header:?}: {message}");
    }
}

#[test]
fn what_is_missing_is_named() {
    let message = Message::parse(&request("tools/list", &[ABLE]).into()).unwrap();
    let error = route(message, Header::Is("2026-07-28"), Eras::Both).unwrap_err();
    assert_eq!(error.message, "`_meta` lacks `io.modelcontextprotocol/protocolVersion`");
    let message = Message::parse(&request("tools/list", &[FUTURE, ABLE]).into()).unwrap();
    let error = route(message, Header::None, Eras::Both).unwrap_err();
    assert_eq!(error.data.unwrap().as_str(), r#"{"requested":"2027-01-01","supported":["2026-07-28"]}"#);
}
