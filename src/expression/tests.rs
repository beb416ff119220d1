//! What expressions mean, what they may not be, and how long they may take.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::protocol::Raw;

fn raw(arguments: &Value) -> Raw {
    Raw::from_value(arguments)
}

/// Evaluates an expression with these arguments, and with facts that do not change.
fn evaluated(text: &str, arguments: &Value) -> Result<bool, String> {
    let expression = Expression::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    with(&expression, &raw(arguments))
}

fn with(expression: &Expression, arguments: &Raw) -> Result<bool, String> {
    let args = Arguments::new(Some(arguments));
    let claims = json!({ "groups": ["dev", "ops"], "sub": "u1" });
    let tags = ["code".to_owned(), "db".to_owned()];
    let values = Values {
        principal: "ci",
        claims: claims.as_object(),
        client: ("Editor", Some("1.2")),
        view: "review",
        server: "db",
        tool: "db__query",
        name: "query",
        tags: &tags,
        hints: [Some(false), Some(true), None, None],
        args: &args,
    };
    expression.evaluate(&values, &mut Budget::default())
}

#[test]
fn an_expression_sees_what_is_known_of_a_request() {
    for text in [
        "principal == 'ci' && view == 'review' && server == 'db' && tool == 'db__query' && name == 'query'",
        "client.name == 'Editor' && client.version.startsWith('1.')",
        "'dev' in claims.groups && claims.sub == \"u1\" && !has(claims.email)",
        "'code' in tags && tags.exists(t, t == 'db') && size(tags) == 2",
        "hints.destructiveHint == true && hints.readOnlyHint == false && hints.idempotentHint == null",
        "hints.openWorldHint != true",
    ] {
        assert_eq!(evaluated(text, &json!({})), Ok(true), "{text}");
    }
}

#[test]
fn the_words_of_cel_mean_what_they_mean_elsewhere() {
    let arguments = json!({ "s": "Prod-1", "n": 3, "f": 2.5, "u": u64::MAX, "l": [1, 2, 3], "o": { "k": "v", "e": null }, "t": true,
        "rows": [{ "id": 1 }, { "id": 2 }], "e": [] });
    for (text, expected) in [
        ("args.s.lowerAscii().startsWith('prod') && args.s.upperAscii() == 'PROD-1'", true),
        ("args.s.contains('od-') && args.s.endsWith('1') && size(args.s) == 6 && args.s.size() > 5", true),
        ("args.n == 3.0 && args.n < args.f + 1.0 && args.f <= 2.5 && args.u > args.n", true),
        ("args.n + 1 == 4 && args.n - 4 == -1 && args.n * 2 == 6 && args.n / 2 == 1 && args.n % 2 == 1", true),
        ("-args.n == -3 && !args.t == false && !!args.t", true),
        ("2 in args.l && !(4 in args.l) && args.l[0] == 1 && args.l + [4] == [1, 2, 3, 4]", true),
        ("'k' in args.o && args.o.k == 'v' && args.o['k'] == 'v' && has(args.o.e) && args.o.e == null", true),
        ("has(args.s) && !has(args.none) && 'n' in args && !('none' in args) && args['n'] == 3", true),
        ("args.l.all(x, x > 0) && args.l.exists(x, x == 2) && args.l.exists_one(x, x > 2)", true),
        ("args.l.map(x, x * 2) == [2, 4, 6] && args.l.filter(x, x > 1) == [2, 3]", true),
        ("args.l.map(x, x > 1, x * x) == [4, 9] && args.e.all(x, false) && !args.e.exists(x, true)", true),
        ("args.rows.all(r, args.rows.exists(q, q.id >= r.id))", true),
        ("args.o.exists(k, k == 'e') && args.exists(k, k == 'rows') && size(args) == 9", true),
        ("args.t ? args.n == 3 : args.none == 3", true),
        ("args.n == 3 || args.none == 1", true),
        ("args.none == 1 || args.n == 3", true),
        ("args.none == 1 && args.n == 4", false),
        ("args.l.exists(x, x == 'a' || x == 3)", true),
        ("args.l.exists(x, args.l[x] == 3 )", true),
        ("args.s == 3 || args.s == null || args.l == args.o", false),
        ("'a' < 'b' && 'Z' < 'a' && false < true", true),
        ("string(args.n) == '3' && int('12') == 12 && double('1.5') == 1.5 && int(args.f) == 2", true),
        ("r'\\d' == '\\\\d' && '''a'b''' == 'a\\'b' && \"\\u0041\" == 'A'", true),
        ("1u == 1 && 0x10 == 16 && 1e3 == 1000", true),
    ] {
        assert_eq!(evaluated(text, &arguments), Ok(expected), "{text}");
    }
}

#[test]
fn an_error_is_told_without_a_value_of_the_client() {
    let arguments = json!({ "s": "the-canary", "n": i64::MAX, "l": [1], "o": { "canary": 1 } });
    let mut told = Vec::new();
    for text in [
        "args.none == 1",
        "args.o.none == 1",
        "args.o[args.s] == 1",
        "args.s + 1 == 2",
        "args.s > 1",
        "args.n + 1 > 0",
        "1 / 0 == 1",
        "args.l[3] == 1",
        "int(args.s) == 1",
        "args.s",
        "args.s && true",
        "args.l.all(x, x)",
        "args.s.all(x, true)",
        "size(args.n) == 1",
        "args.l.exists(x, args.none)",
        "1 in args.s",
        "-args.s == 1",
        "args.s.size == 1",
    ] {
        let error = evaluated(text, &arguments).expect_err(text);
        assert!(!error.contains("canary"), "{error}");
        told.push(format!("{text}: {error}"));
    }
    insta::assert_snapshot!(told.join("\n"), @"
    args.none == 1: there is no `none`; ask with has() first
    args.o.none == 1: there is no `none`; ask with has() first
    args.o[args.s] == 1: there is no member with that name; ask with `in` first
    args.s + 1 == 2: this operator does not take values of these kinds
    args.s > 1: a comparison does not take values of these kinds
    args.n + 1 > 0: a number is too large
    1 / 0 == 1: a division by zero
    args.l[3] == 1: the list has no item with that number
    int(args.s) == 1: a text is no number
    args.s: the result is neither true nor false
    args.s && true: `&&` does not take values of these kinds
    args.l.all(x, x): `all` or `exists` does not take values of these kinds
    args.s.all(x, true): a macro does not take values of these kinds
    size(args.n) == 1: `size` does not take values of these kinds
    args.l.exists(x, args.none): there is no `none`; ask with has() first
    1 in args.s: `in` does not take values of these kinds
    -args.s == 1: `-` does not take values of these kinds
    args.s.size == 1: `.` does not take values of these kinds
    ");
    let expression = Expression::parse("args.n == 1").unwrap();
    let unreadable = Err("the arguments are no object, too large, or cannot be read".to_owned());
    for arguments in ["[1]", "\"n\"", r#"{"n":1e999}"#, "{\"n\":\"\\ud800\"}"] {
        assert_eq!(with(&expression, &Raw::trusted(arguments.into())), unreadable, "{arguments}");
    }
    // Not even the other side of `||` helps if the arguments cannot be read.
    let expression = Expression::parse("args.n == 1 || true").unwrap();
    assert_eq!(with(&expression, &Raw::trusted("[1]".into())), unreadable);
}

#[test]
fn what_is_no_expression_is_told_with_what_is_wrong() {
    let mut told = Vec::new();
    for text in [
        "",
        "args.x = 1",
        "args.x ==",
        "argz.x == 1",
        "matches(args.x, 'a')",
        "args.x.matches('a')",
        "args.x.startsWith('a', 'b')",
        "startsWith(args.x, 'a')",
        "'1'.int() == 1",
        "has(args)",
        "args.all(x)",
        "[1].all(args, true)",
        "[1].all(x, [1].all(y, [1].all(z, true)))",
        "{'a': 1}.a == 1",
        "b'a' == b'a'",
        ".args.x == 1",
        "x.y == 1",
        "type(args) == map",
        "'abc",
    ] {
        told.push(format!("{text}: {}", Expression::parse(text).expect_err(text)));
    }
    insta::assert_snapshot!(told.join("\n"), @"
        : column 1: unexpected end expecting expression
        args.x = 1: column 8: unexpected '=' expecting the end
        args.x ==: column 10: unexpected end expecting expression
        argz.x == 1: unknown name `argz`; the names are principal, claims, client, view, server, tool, name, tags, hints, args
        matches(args.x, 'a'): there are no regular expressions, and no function `matches`; the functions are size, startsWith, endsWith, contains, lowerAscii, upperAscii, string, int, double, and has, all, exists, exists_one, map, filter
        args.x.matches('a'): there are no regular expressions, and no function `matches`; the functions are size, startsWith, endsWith, contains, lowerAscii, upperAscii, string, int, double, and has, all, exists, exists_one, map, filter
        args.x.startsWith('a', 'b'): `startsWith` takes 1 values, not 2
        startsWith(args.x, 'a'): `startsWith` is written x.startsWith(…)
        '1'.int() == 1: `int` is written int(x)
        has(args): column 5: invalid argument to has() macro
        args.all(x): `all` cannot be used this way; the functions are size, startsWith, endsWith, contains, lowerAscii, upperAscii, string, int, double, and has, all, exists, exists_one, map, filter
        [1].all(args, true): `args` means something already; use another name for the items
        [1].all(x, [1].all(y, [1].all(z, true))): more than 2 macros like `all` inside one another
        {'a': 1}.a == 1: objects (`{}`) cannot be written here
        b'a' == b'a': bytes (`b'…'`) cannot be written here
        .args.x == 1: unknown name `.args`; the names are principal, claims, client, view, server, tool, name, tags, hints, args
        x.y == 1: unknown name `x`; the names are principal, claims, client, view, server, tool, name, tags, hints, args
        type(args) == map: unknown function `type`; the functions are size, startsWith, endsWith, contains, lowerAscii, upperAscii, string, int, double, and has, all, exists, exists_one, map, filter
        'abc: column 1: unterminated string literal
        ");
}

#[test]
fn limits_of_texts_at_their_edges() {
    let long = |length: usize| format!("'{}' == ''", "a".repeat(length - 8));
    assert!(Expression::parse(&long(4096)).is_ok());
    assert_eq!(Expression::parse(&long(4097)).unwrap_err(), "it has 4097 bytes; 4096 at most");
    let deep = |depth: usize| format!("{}true{}", "(".repeat(depth), ")".repeat(depth));
    assert!(Expression::parse(&deep(24)).is_ok());
    assert_eq!(Expression::parse(&deep(25)).unwrap_err(), "brackets are nested more than 24 deep");
    let lists = |depth: usize| format!("{}1{} == 1", "[".repeat(depth), "]".repeat(depth));
    assert!(Expression::parse(&lists(24)).is_ok() && Expression::parse(&lists(25)).is_err());
    // Brackets in string literals and comments do not count.
    for text in [
        r#"'((((((((((((((((((((((((((((' != """("(((((((((((((((((((((((((((((""""#,
        "true // (((((((((((((((((((((((((((",
    ] {
        assert!(Expression::parse(text).is_ok(), "{text}: {:?}", Expression::parse(text));
    }
    // Expressions without brackets may be deep, too.
    for (one, last) in [("1+", "1 == 2"), ("!-", "1"), ("true ? true : ", "true"), ("a.", "b"), ("1-", "(1)")] {
        let text = format!("{}{last}", one.repeat((4096 - last.len()) / one.len()));
        assert!(Expression::parse(&text).is_err(), "{one}");
    }
    let or = ["name == 'a'"; 250].join(" || ");
    assert_eq!(evaluated(&or, &json!({})), Ok(false));
}

#[test]
fn it_knows_which_arguments_it_reads() {
    let members = |names: &[&str]| Reads::Members(names.iter().map(|name| (*name).to_owned()).collect());
    for (text, reads) in [
        ("name == 'a'", Reads::Nothing),
        ("args.x == 1 && args['y'] == 2", members(&["x", "y"])),
        ("has(args.x) && args.x.z.size() > 1 && 'w' in args", members(&["w", "x"])),
        ("tags.all(t, t in args.x)", members(&["x"])),
        ("size(args) == 1", Reads::All),
        ("args.x == 1 && args.exists(k, k == 'y')", Reads::All),
        ("args.exists(k, k == 'y') && args.x == 1", Reads::All),
        ("args[name] == 1", Reads::All),
        ("name in args", Reads::All),
        ("args == args", Reads::All),
    ] {
        assert_eq!(*Expression::parse(text).unwrap().reads(), reads, "{text}");
    }
    let names = Expression::parse("args.a.b == 1 && claims['c'] == 2 && 'd' in args.a && has(args.a.e)").unwrap();
    assert_eq!(names.names().iter().map(String::as_str).collect::<Vec<_>>(), ["a", "b", "c", "d", "e"]);
}

#[test]
fn only_what_is_named_of_the_arguments_is_read() {
    // The members that are not looked at could not be parsed.
    let arguments = Raw::trusted(r#"{"big":1e999,"x":1,"bad":"\ud800"}"#.into());
    assert_eq!(with(&Expression::parse("args.x == 1").unwrap(), &arguments), Ok(true));
    assert!(with(&Expression::parse("args.big == 1").unwrap(), &arguments).is_err());
}

#[test]
fn no_work_grows_beyond_its_bounds() {
    let of = |count: usize| json!({ "l": (0..count).collect::<Vec<_>>() });
    assert_eq!(evaluated("args.l.all(x, x >= 0)", &of(1000)), Ok(true));
    let many = Err("more than 1000 items are looked at one by one".to_owned());
    assert_eq!(evaluated("args.l.all(x, x >= 0)", &of(1001)), many);
    assert_eq!(evaluated("args.l.all(x, x >= 0) || true", &of(1001)), many);
    let wide: serde_json::Map<String, Value> = (0..1001).map(|number| (number.to_string(), json!(1))).collect();
    assert_eq!(evaluated("args.all(k, true)", &Value::Object(wide)), many);
    let long = Err("it takes too many steps".to_owned());
    assert_eq!(evaluated("args.l.all(x, args.l.all(y, x + y >= 0))", &of(30)), Ok(true));
    for text in [
        "args.l.all(x, args.l.all(y, x + y >= 0))",
        "args.l.all(x, args.l == args.l)",
        "args.l.all(x, x in [-1] + args.l)",
        "args.l.map(x, args.l).map(y, y + y) == []",
    ] {
        assert_eq!(evaluated(text, &of(1000)), long, "{text}");
    }
    let text = |length: usize| json!({ "s": "a".repeat(length), "l": (0..1000).collect::<Vec<_>>() });
    let most = arguments::MOST - r#"{"l":[],"s":""}"#.len() - 10 - 180 - 2700 - 999;
    assert_eq!(evaluated("args.s.contains('b')", &text(most)), Ok(false));
    assert!(evaluated("args.s.contains('b')", &text(most + 1)).is_err());
    let doubled = format!("size({}args.s) > 0", "args.s + ".repeat(60));
    for text_of in ["args.l.exists(x, args.s.contains('b'))", "args.l.exists(x, args.s + 'b' == 'b')", &doubled] {
        assert_eq!(evaluated(text_of, &text(200_000)), long, "{text_of}");
    }
    // To find members among many arguments takes steps.
    let wide: serde_json::Map<String, Value> = (0..20_000).map(|number| (number.to_string(), json!(1))).collect();
    let wide = Value::Object(wide);
    assert_eq!(evaluated("has(args.none)", &wide), Ok(false));
    let all = format!("[{}].all(x, !has(args.none))", ["1"; 500].join(","));
    assert_eq!(evaluated(&all, &wide), long);
}

/// Expressions of the grammar that we accept and that `cel` evaluates as well.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("args.s".to_owned()),
        Just("args.n".to_owned()),
        Just("args.l".to_owned()),
        Just("args.o".to_owned()),
        Just("args.none".to_owned()),
        Just("args.o.k".to_owned()),
        Just("args.l[0]".to_owned()),
        Just("has(args.o.k)".to_owned()),
        Just("has(args.none)".to_owned()),
        Just("name".to_owned()),
        Just("null".to_owned()),
        any::<bool>().prop_map(|flag| flag.to_string()),
        (-3..9i64).prop_map(|number| number.to_string()),
        (0..9u8).prop_map(|number| format!("{number}.5")),
        "[ab]{0,2}".prop_map(|text| format!("'{text}'")),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        let one = inner;
        let binary = prop::sample::select(vec!["==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "&&", "||", "in"]);
        let method = prop::sample::select(vec!["startsWith", "endsWith", "contains"]);
        let fold = prop::sample::select(vec!["all", "exists", "exists_one", "map", "filter"]);
        prop_oneof![
            4 => (one.clone(), binary, one.clone()).prop_map(|(one, binary, other)| format!("({one} {binary} {other})")),
            1 => (one.clone(), method, one.clone()).prop_map(|(one, method, other)| format!("{one}.{method}({other})")),
            1 => (one.clone(), fold, one.clone()).prop_map(|(one, fold, body)| format!("{one}.{fold}(x, {body})")),
            1 => (one.clone(), one.clone(), one.clone()).prop_map(|(one, then, other)| format!("({one} ? {then} : {other})")),
            1 => one.clone().prop_map(|one| format!("size({one})")),
            1 => one.clone().prop_map(|one| format!("!({one})")),
            1 => (one.clone(), one.clone()).prop_map(|(one, other)| format!("[{one}, {other}]")),
            1 => (one.clone(), one).prop_map(|(one, at)| format!("{one}[{at}]")),
            1 => Just("[1, 2, 3].exists(x, x == args.n)".to_owned()),
        ]
    })
}

fn arguments() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(|flag| json!(flag)),
        (-3..9i64).prop_map(|number| json!(number)),
        (0..9u8).prop_map(|number| json!(f64::from(number) + 0.5)),
        "[ab]{0,2}".prop_map(|text| json!(text)),
    ];
    let value = leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| json!(items)),
            prop::collection::btree_map("[ko]", inner, 0..2).prop_map(|members| json!(members)),
        ]
    });
    prop::collection::btree_map("[snlo]", value, 0..5).prop_map(|members| json!(members))
}

/// Evaluates with the interpreter of `cel`.
fn peer(text: &str, arguments: &Value) -> Option<bool> {
    let program = cel::Program::compile(text).ok()?;
    let mut context = cel::Context::default();
    context.add_variable("args", arguments.clone()).ok()?;
    context.add_variable("name", "query").ok()?;
    match program.execute(&context) {
        Ok(cel::Value::Bool(result)) => Some(result),
        _ => None,
    }
}

proptest! {
    #[test]
    fn expressions_mean_what_the_interpreter_of_cel_says(text in expression(), arguments in arguments()) {
        if let Ok(expression) = Expression::parse(&text) {
            let found = with(&expression, &raw(&arguments)).ok();
            prop_assert_eq!(found, peer(&text, &arguments), "{} with {}", text, arguments);
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,200}", arguments in arguments()) {
        if let Ok(expression) = Expression::parse(&text) {
            let _ = with(&expression, &raw(&arguments));
        }
    }

    #[test]
    fn no_words_make_it_panic(
        words in prop::collection::vec(prop::sample::select(vec![
            "args", "name", ".", "x", "(", ")", "[", "]", "{", "}", "'a'", "\"", "'", "1", "1.5", "-", "!", "+", "==", "&&", "||", "?",
            ":", ",", "in", "has", "all", "map", "size", "true", "null", "\\", "r'", "//", "\n", "0x", "u", "@", "`",
        ]), 0..60),
        arguments in arguments(),
    ) {
        for text in [words.concat(), words.join(" ")] {
            if let Ok(expression) = Expression::parse(&text) {
                let _ = with(&expression, &raw(&arguments));
            }
        }
    }
}
