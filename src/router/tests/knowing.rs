//! Consequences of what is known of a server (`docs/bridging.md` 15.2, 15.3): whose roots it is told, and what is
//! forgotten.

use serde_json::{Value, json};

use super::sharing::{FORM, Person, ROOTS, World, world};
use super::support::{request, retry, text};
use crate::manager::{Asked, Principal};
use crate::protocol::{Method, Profile, Raw};

const CAPABILITIES: &str = r#"{"roots":{}}"#;

/// Returns what the tool `roots` says to a client without a session whose root is `uri`, and whether the client was
/// asked for its roots first.
async fn modern(world: &World, word: Option<&str>, uri: &str) -> (String, bool) {
    let capabilities = Raw::trusted(CAPABILITIES.into());
    let client = world.router.pool().get(Principal::local(), &capabilities, word).unwrap();
    let params = json!({ "name": "s0__roots", "arguments": {} });
    let result = request(&world.router, &client, Method::ToolsCall, &params).answer().await;
    if result["resultType"] != "input_required" {
        return (text(&result).to_owned(), false);
    }
    assert_eq!(result["inputRequests"]["roots"]["method"], "roots/list", "{result}");
    let answers = json!({ "roots": { "roots": [{ "uri": uri }] } });
    let next = retry(&params, &result, &answers);
    let result: Value = request(&world.router, &client, Method::ToolsCall, &next).answer().await;
    (text(&result).to_owned(), true)
}

fn start(said: &str) -> &str {
    said.split(' ').next().unwrap()
}

#[tokio::test(start_paused = true)]
async fn who_has_a_word_of_its_own_is_asked_for_roots_once_and_others_at_each_call() {
    let world = world(&[Asked::ROOTS], |_| {});
    for (asked, word) in [(true, Some("a")), (false, Some("a")), (true, Some("b"))] {
        let (said, first) = modern(&world, word, "file:///one").await;
        assert!(said.contains("file:///one") && first == asked, "{word:?}: {said}, asked: {first}");
    }
    let mut starts = Vec::new();
    for uri in ["file:///one", "file:///two", "file:///one"] {
        let (said, first) = modern(&world, None, uri).await;
        assert!(said.contains(uri) && first, "{said}");
        starts.push(start(&said).to_owned());
    }
    assert!(starts[0] == starts[2] && starts[0] != starts[1], "one a list of roots: {starts:?}");
    // Nor does it belong to the first client that called there, though its server has asked for roots.
    let person = world.person(ROOTS, "file:///one");
    assert_eq!(start(&world.call(&person, 0, "roots").await), starts[0]);
}

#[tokio::test(start_paused = true)]
async fn those_with_the_same_roots_share_also_where_more_is_asked() {
    let world = world(&[Asked::ROOTS.with(Asked::ELICITATION)], |_| {});
    let persons = [(); 2].map(|()| world.person(ROOTS, "file:///one"));
    let mut starts = Vec::new();
    for person in &persons {
        let said = world.call(person, 0, "roots").await;
        assert!(said.contains("file:///one"), "{said}");
        starts.push(start(&said).to_owned());
    }
    assert_eq!(starts[0], starts[1]);
}

/// A completion cannot be answered by a question, so its conversation's roots are unknown.
#[tokio::test(start_paused = true)]
async fn who_could_not_be_asked_for_roots_shares_with_those_who_have_none() {
    let world = world(&[Asked::ROOTS], |_| {});
    let (said, _) = modern(&world, None, "file:///one").await;
    assert_eq!((said.contains("file:///one"), world.leases()), (true, 2));
    let capabilities = Raw::trusted(CAPABILITIES.into());
    let client = world.router.pool().get(Principal::local(), &capabilities, None).unwrap();
    let manager = world.router.manager();
    let lease = manager.lease(&manager.servers()[0].clone(), &client.who_with(None)).unwrap();
    assert_eq!(world.leases(), 2, "no process for it alone");
    assert!(lease.roots().is_none(), "nor is it that of others' roots");
}

/// A server applies what it is told to all of its clients.
#[tokio::test(start_paused = true)]
async fn a_server_that_several_have_called_is_told_the_roots_of_none() {
    let world = world(&[Asked::NOTHING], |_| {});
    let [one, two] = ["file:///a", "file:///b"].map(|roots| world.person(ROOTS, roots));
    for person in [&one, &two] {
        assert_eq!(world.call(person, 0, "echo").await, "0 {}");
    }
    let first = world.call(&one, 0, "roots").await;
    assert!(first.starts_with("0 ") && first.contains("[]"), "{first}");
    // Now it is known to ask, and each has its own.
    for (person, own) in [(&one, "file:///a"), (&two, "file:///b")] {
        let said = world.call(person, 0, "roots").await;
        assert!(!said.starts_with("0 ") && said.contains(own), "{said}");
    }
    let stays = world.person(Profile::EMPTY, "");
    assert!(world.call(&stays, 0, "echo").await.starts_with("0 "), "an empty list of roots does no harm");
}

#[tokio::test(start_paused = true)]
async fn what_is_forgotten_is_declared_again() {
    let world = world(&[Asked::ELICITATION], |_| {});
    let rest = world.person(Profile::EMPTY, "");
    assert!(world.call(&rest, 0, "echo").await.starts_with("0 "));
    let able = world.person(FORM, "");
    let own = world.call(&able, 0, "ask").await;
    assert!(own.contains("accept") && !own.starts_with("0 "), "{own}");
    assert_eq!(world.router.manager().forget_asks("s0"), Some(vec!["elicitation"]));
    let words = world.router.manager().status()[0].sharing.join("\n");
    assert!(words.contains("has asked clients nothing so far"), "{words}");
    // The lease without the capability serves no one any more: its server would never ask there.
    let said = world.call(&rest, 0, "echo").await;
    assert!(!said.starts_with("0 "), "{said}");
    let (one, two) = (world.person(FORM, ""), world.person(FORM, ""));
    assert_eq!(start(&world.call(&one, 0, "echo").await), start(&said));
    assert_eq!(start(&world.call(&two, 0, "echo").await), start(&said));
    let again = world.call(&one, 0, "ask").await;
    assert!(again.contains("accept") || again.contains("cancel"), "{again}");
    assert!(world.router.manager().status()[0].sharing.join("\n").contains("asks clients for elicitation"));
    for person in [&one, &two] {
        accepted(&world, person).await;
    }
}

async fn accepted(world: &World, person: &Person) {
    let said = world.call(person, 0, "ask").await;
    assert!(said.contains(&format!(r#""of":{}"#, person.client.owner().0)), "{said}");
}
