//! Twenty clients at work while the daemon dies or is restarted: each request gets one response, and no process is
//! left.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::{Client, Place, until};

const CLIENTS: usize = 20;

/// How the calls of a client ended.
#[derive(Debug, Default)]
struct Tally {
    fine: usize,
    unknown: usize,
    other: Vec<Value>,
}

/// Calls until told to stop; each response must be to the request before it, and its own.
fn call(client: &mut Client, over: &AtomicBool, calls: &AtomicUsize) -> Tally {
    let mut tally = Tally::default();
    while !over.load(Ordering::Relaxed) {
        let text = format!("{}/{}", client.process().id(), calls.fetch_add(1, Ordering::Relaxed));
        let id = client.call("echo__echo", &json!({ "text": text }));
        let answer = client.answer(id);
        if answer["result"]["content"][0]["text"] == text.as_str() {
            tally.fine += 1;
        } else if answer["result"]["_meta"]["mcp-host/error"]["kind"] == "outcome_unknown" {
            tally.unknown += 1;
        } else {
            tally.other.push(answer);
        }
    }
    tally
}

/// Makes all clients call while `what` happens, and returns the totals.
fn under_load(clients: &mut [Client], what: impl FnOnce(&dyn Fn(usize))) -> Tally {
    let (over, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
    let tallies: Vec<Tally> = std::thread::scope(|scope| {
        let callers: Vec<_> = clients.iter_mut().map(|client| scope.spawn(|| call(client, &over, &calls))).collect();
        // Waits until this many more calls have begun.
        what(&|more| {
            let then = calls.load(Ordering::Relaxed) + more;
            until(|| calls.load(Ordering::Relaxed) >= then);
        });
        over.store(true, Ordering::Relaxed);
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    tallies.into_iter().fold(Tally::default(), |mut all, one| {
        all.fine += one.fine;
        all.unknown += one.unknown;
        all.other.extend(one.other);
        all
    })
}

/// Ends the clients; none may have got a second response.
fn end(clients: Vec<Client>) {
    for client in clients {
        let heard: Vec<Value> =
            client.heard.iter().filter(|message| message.get("method").is_none()).cloned().collect();
        assert_eq!(heard, Vec::<Value>::new(), "responses to no request");
        let (code, text) = client.leave();
        assert_eq!(code, 0, "{text}");
    }
}

fn clients(place: &Place) -> Vec<Client> {
    let clients: Vec<Client> = (0..CLIENTS).map(|_| place.stdio()).collect();
    let mut clients: Vec<Client> = clients.into_iter().map(Client::begun).collect();
    clients.iter_mut().for_each(|client| assert!(client.tools() > 0));
    clients
}

#[test]
fn a_restart_under_load_fails_no_call() {
    let place = Place::new();
    let mut daemon = Some(place.serve());
    let mut clients = clients(&place);
    let tally = under_load(&mut clients, |more| {
        more(100);
        let old = daemon.take().unwrap();
        old.terminate();
        old.wait();
        daemon = Some(place.serve());
        more(200);
    });
    assert_eq!((tally.unknown, tally.other.as_slice()), (0, &[][..]));
    assert!(tally.fine >= 300, "{tally:?}");
    end(clients);
    drop(daemon);
}

#[test]
fn a_kill_under_load_costs_what_was_under_way_and_no_more() {
    let place = Place::new();
    let mut daemon = Some(place.serve());
    let mut clients = clients(&place);
    let tally = under_load(&mut clients, |more| {
        more(100);
        daemon.take().unwrap().kill();
        daemon = Some(place.serve());
        more(200);
    });
    assert_eq!(tally.other, Vec::<Value>::new());
    assert!(tally.unknown <= CLIENTS, "one for each client at most: {tally:?}");
    // All of them are connected to the new daemon.
    clients.iter_mut().for_each(|client| assert!(client.tools() > 0));
    assert_eq!(place.starts(), 2);
    end(clients);
    drop(daemon);
}

#[test]
fn relays_and_one_shots_beside_a_daemon_start_no_process() {
    let place = Place::several(5);
    let daemon = place.serve();
    until(|| place.starts() == 5);
    let mut clients = clients(&place);
    let one_shots: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let tool = format!("echo{}__echo", number % 5);
            let text = format!("text={number}");
            let args = match number % 2 {
                0 => vec!["call", &tool, &text],
                _ => vec!["tools", "--json"],
            };
            let mut command = place.command(&args);
            command.args(["--config", "mcp.json"]).stdout(std::process::Stdio::piped());
            command.stderr(std::process::Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let id = client.call(&format!("echo{}__echo", number % 5), &json!({ "text": "x" }));
        assert_eq!(client.answer(id)["result"]["content"][0]["text"], "x");
    }
    for (number, one_shot) in one_shots.into_iter().enumerate() {
        let output = one_shot.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains(&if number % 2 == 0 { number.to_string() } else { "echo4__ask".to_owned() }), "{text}");
    }
    assert_eq!(place.starts(), 5);
    end(clients);
    drop(daemon);
}
