//! What is removed, and what stays readable.

use std::sync::mpsc;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn shown(text: &str) -> String {
    Scrubber::default().scrub(text).into_owned()
}

#[test]
fn h97_credentials_are_masked_by_their_shape() {
    for (text, expected) in [
        ("Authorization: Bearer abc.DEF-123", "Authorization: Bearer ***"),
        ("authorization: basic YWRhOnB3", "authorization: basic ***"),
        ("it said BEARER tok3n-x and more", "it said BEARER *** and more"),
        ("grant?code=4/0AX4XfWh&state=x", "grant?code=***&state=x"),
        ("code_verifier=dBjftJeZ4CVPmB92K27u", "code_verifier=***"),
        ("refresh_token=rrrrrr access_token=aaaaaa id_token=iiiiii", "refresh_token=*** access_token=*** id_token=***"),
        (r#"{"client_secret":"hushed","name":"x"}"#, r#"{"client_secret":"***","name":"x"}"#),
        (r#"body: {\"access_token\": \"a bcdef\"}"#, r#"body: {\"access_token\": \"***\"}"#),
        (r#"{"token":"a\"bcdef"}"#, r#"{"token":"***"}"#),
        ("Set-Cookie: sid=1; Path=/", "Set-Cookie: ***"),
        ("cookie: a=b; c=d", "cookie: ***"),
        ("GITHUB_TOKEN=hunter2 npx", "GITHUB_TOKEN=*** npx"),
        ("x-api-key: a1b2c3d4e5f6a7b8c9", "x-api-key: ***"),
        ("key sk-0123456789abcdef.", "key ***"),
        ("https://ada:pw@example.com/x?token=1#f, then", "https://***@example.com/x?…, then"),
        ("see https://example.com/mcp?key=abc", "see https://example.com/mcp?…"),
        // Text that only begins like one of our placeholders is hidden.
        ("Authorization: Bearer TOKENS", "Authorization: Bearer ***"),
        ("Authorization: Bearer token", "Authorization: Bearer ***"),
        ("Authorization: Bearer TOKEN=", "Authorization: Bearer ***"),
        (r#"it sent Bearer errors="x""#, r#"it sent Bearer ***"x""#),
        (r#""Authorization": "Bearer ${TOKEN:-hushed}""#, r#""Authorization": "***""#),
        (r#""Authorization": "Bearer ${A}hushed""#, r#""Authorization": "***""#),
        ("token=value-1: it said", "token=*** it said"),
        ("password=admin! it said", "password=*** it said"),
        ("PGPASSWORD=abc!!! psql", "PGPASSWORD=*** psql"),
        ("token=what?? it said", "token=*** it said"),
        ("token=dots... it said", "token=*** it said"),
    ] {
        assert_eq!(shown(text), expected);
    }
}

#[test]
fn sentences_stay() {
    for text in [
        "server `a` wants authorization: it answered 401",
        "auth.type: is missing",
        r#"mcp-host call TOOL '{"key": "value"}', or mcp-host call TOOL key=value"#,
        "the process ended (exit code: 3): bearer authentication is off",
        "basic usage: run it",
        "put a token for `github` into its `headers`",
        "https://example.com/mcp: cannot be reached. Why?",
        "idle -> connecting",
        "the client sends it as `Authorization: Bearer TOKEN`",
        "send Authorization: Bearer TOKEN.",
        r#""headers": { "Authorization": "Bearer ${TOKEN}", "X-Api-Key": "${env:API_KEY}" }"#,
        "arguments are written key=value: a=1",
        r#"it answered 401: Bearer error="invalid_token", resource_metadata="https://a.example/x""#,
        r#"Bearer realm="a", scope="b""#,
    ] {
        assert!(matches!(Scrubber::default().scrub(text), Cow::Borrowed(same) if same == text), "{}", shown(text));
    }
}

#[test]
fn h97_known_values_are_masked_in_every_form() {
    let mut scrubber = Scrubber::default();
    scrubber.know("p w/\"ü");
    scrubber.know("first line\nsecond line");
    scrubber.know("abc");
    for text in
        ["p w/\"ü", "p w/\\\"ü", "p+w%2F%22%C3%BC", "p%20w%2F%22%C3%BC", "second line", "first line\nsecond line"]
    {
        let out = scrubber.scrub(text).into_owned();
        assert!(out.replace(['\n', '*'], "").is_empty(), "{text}: {out}");
    }
    assert_eq!(scrubber.scrub("abcabc"), "abcabc");
    assert_eq!(format!("{scrubber:?}"), format!("Scrubber({} values)", scrubber.known.len()));
}

#[test]
fn h97_a_value_that_was_cut_is_known_by_its_beginning() {
    let mut scrubber = Scrubber::default();
    scrubber.know("correct horse battery");
    assert_eq!(scrubber.scrub("it said: correct hor"), "it said: ***");
    assert_eq!(scrubber.scrub("it said: correct hor…"), "it said: ***");
    assert_eq!(scrubber.scrub("it said: corre"), "it said: corre");
}

#[test]
fn h97_what_begins_a_credential_again_and_again_is_gone_through_once() {
    const SIZE: usize = 128 * 1024;
    let beginnings = [
        "://",
        "a://b@",
        "://?)",
        ")",
        "@",
        "?x&",
        "a=",
        "a:",
        "token=",
        "token:",
        "token= ",
        "Bearer ",
        "bearer",
        "basic",
        r#""token":""#,
        r#""token":"\"#,
        r#"token=\""#,
        "token='token=\"",
        "auth:basic ",
        "cookie:",
        "cookie:a=b;",
        "cookie=",
        "sk-",
        "eyJ",
        "x",
        " ",
        "\\",
    ];
    let mut scrubber = Scrubber::default();
    // The value's prefix occurs at nearly every position, and its end at none.
    scrubber.know(&format!("{}y", "x".repeat(SIZE)));
    let (done, all) = mpsc::channel();
    std::thread::spawn(move || {
        for begins in beginnings {
            // Once as it is, and once between the start and the end of what a mask may cover.
            let many = begins.repeat(SIZE / begins.len());
            let shown = [many.clone(), format!("token:://bearer {many}\"'? x")].map(|text| scrubber.scrub(&text).len());
            let _ = done.send((begins, shown));
        }
    });
    // This takes well under a second; rescanning the line from each start would take hours.
    for begins in beginnings {
        let (known, shown) = all.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("{begins:?}"));
        assert!(known == begins && shown.iter().all(|length| *length <= 2 * SIZE), "{begins:?}: {shown:?}");
    }
}

#[test]
fn h97_a_value_that_repeats_itself_is_known_by_its_beginning() {
    let mut scrubber = Scrubber::default();
    scrubber.know("abababacababab-abababac");
    for (cut, shown) in [
        ("abababababab", "ababab***"),
        ("xababacababa", "xababacababa"),
        ("abababacab", "***"),
        ("ab abababacababab-abab…", "ab ***"),
        ("abababababac", "abab***"),
    ] {
        assert_eq!(scrubber.scrub(cut), shown, "{cut}");
    }
}

proptest! {
    #[test]
    fn h97_no_known_value_gets_through(
        before in any::<String>(), value in "[ -~]{6,20}", after in any::<String>()
    ) {
        let mut scrubber = Scrubber::default();
        scrubber.know(&value);
        let value = value.trim();
        prop_assume!(value.len() >= 6 && !value.contains('*'));
        let text = format!("{before}{value}{after}");
        let out = scrubber.scrub(&text);
        prop_assert!(!out.contains(value), "{out}");
    }

    #[test]
    fn anything_is_taken(text in any::<String>(), parts in prop::collection::vec(
        prop::sample::select(vec!["=", ":", "\"", "\\", "token", "code", "://", "?", "@", "Bearer ", "sk-", "cookie", "ü", " ", "abcdef123"]), 0..30)
    ) {
        for text in [text, parts.concat()] {
            let out = shown(&text);
            prop_assert!(!out.contains("token=abcdef123"), "{out}");
        }
    }
}

#[test]
fn h97_the_argument_behind_a_telling_option_is_masked() {
    for (args, expected) in [
        (["--token", "hunter2", "x"], ["--token", "***", "x"]),
        (["--token", "-Ab_9", "x"], ["--token", "***", "x"]),
        (["--token", "--verbose", "x"], ["--token", "--verbose", "x"]),
        // One such option after another.
        (["--no-auth", "-token", "hunter2"], ["--no-auth", "***", "***"]),
        (["--token=hunter2", "-v", "x"], ["--token=***", "-v", "x"]),
    ] {
        assert_eq!(arguments(&args.map(str::to_owned)), expected, "{args:?}");
    }
}
