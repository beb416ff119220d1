//! A relay whose client and daemons are the ends of sockets.

use std::cell::RefCell;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use mcp_host::admin::At;
use serde_json::Value;

use super::*;

/// The daemons that a relay finds, one after the other.
#[derive(Default)]
struct Daemons {
    next: Vec<Joined>,
    asked: Vec<u64>,
    /// The other end of a host in this process.
    own: Option<UnixStream>,
    told: RefCell<Vec<String>>,
}

impl Source for Daemons {
    fn find(&mut self, asked: u64, _: bool) -> Option<Joined> {
        self.asked.push(asked);
        self.next.pop()
    }

    fn own(&mut self, asked: u64) -> io::Result<UnixStream> {
        self.asked.push(asked);
        let (here, mut there) = UnixStream::pair()?;
        // The host's answer, in case the relay begins a session with it.
        there.write_all(b"{\"id\":0,\"result\":{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{}}}\n")?;
        self.own = Some(there);
        Ok(here)
    }

    fn tell(&self, text: &str) {
        self.told.borrow_mut().push(text.to_owned());
    }
}

fn daemon(boot: &str) -> (Joined, UnixStream) {
    let (here, there) = UnixStream::pair().unwrap();
    there.set_nonblocking(true).unwrap();
    (Joined { stream: here, boot: boot.to_owned(), at: At::Port(1), path: "1.sock".into() }, there)
}

/// Reads what is available.
fn read(mut stream: &UnixStream) -> String {
    let mut bytes = Vec::new();
    // The stream has no end yet.
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8(bytes).unwrap()
}

impl Pump<'_, Daemons> {
    /// Lets the client send, and forwards to the daemons.
    fn client_says(&mut self, text: &str) {
        self.input.extend_from_slice(text.as_bytes());
        // Queued bytes are written before more input is taken.
        for _ in 0..2 {
            self.take_said();
            self.peers.iter_mut().for_each(Peer::write);
        }
    }

    /// Lets the relay read from a daemon.
    fn heard_from(&mut self, at: usize) {
        for _ in 0..20 {
            self.read_peer(at, &mut vec![0; PIECE]);
        }
        self.hear_held();
        self.bury();
        self.peers.iter_mut().for_each(Peer::write);
    }

    fn says(&mut self, at: usize, mut daemon: &UnixStream, text: &str) {
        daemon.write_all(text.as_bytes()).unwrap();
        self.heard_from(at);
    }

    /// Returns the messages for the client so far.
    fn told(&self) -> Vec<Value> {
        let text = std::str::from_utf8(&self.out).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
    }
}

fn ids(messages: &str) -> Vec<u64> {
    messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()?["id"].as_u64()).collect()
}

const LEAVES: &str = "{\"method\":\"notifications/mcp-host/leaving\",\"params\":{\"taken\":1}}\n";

fn long() -> String {
    "x".repeat(HELD + 1000)
}

fn call(id: u64, text: &str) -> String {
    format!("{{\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"x\":\"{text}\"}}}}\n")
}

#[test]
fn what_a_stopping_daemon_has_taken_is_not_said_to_the_next() {
    let ((first, old), (second, new)) = (daemon("a"), daemon("b"));
    let mut daemons = Daemons { next: vec![second], ..Daemons::default() };
    let mut pump = Pump::new(&mut daemons, first).unwrap();
    pump.client_says(&call(1, "short"));
    // The daemon asks something, and stops in the middle of a long message.
    pump.says(0, &old, "{\"id\":7,\"method\":\"elicitation/create\"}\n");
    let message = call(2, &long());
    let (head, tail) = message.split_at(HELD + 10);
    pump.client_says(head);
    pump.says(0, &old, LEAVES);
    pump.look_around();
    pump.client_says(tail);
    assert_eq!(ids(&read(&new)), [2], "the first message is under way at the daemon before");
    // The next message begins a new line.
    pump.client_says("{\"id\":7,\"result\":{}}\n");
    assert_eq!(ids(&read(&old)), [1, 7]);
    pump.says(0, &old, "{\"id\":1,\"result\":{}}\n");
    assert_eq!(pump.told().iter().filter(|message| message["id"] == 1).count(), 1);
    assert!(pump.kept.is_busy());
    pump.says(1, &new, "{\"id\":2,\"result\":{}}\n");
    assert!(!pump.kept.is_busy());
}

#[test]
fn a_long_answer_is_for_who_asked() {
    let ((first, old), (second, new)) = (daemon("a"), daemon("b"));
    let mut daemons = Daemons { next: vec![second], ..Daemons::default() };
    let mut pump = Pump::new(&mut daemons, first).unwrap();
    for id in [7, 8] {
        pump.says(0, &old, &format!("{{\"id\":{id},\"method\":\"sampling/createMessage\"}}\n"));
    }
    let answer = |id: u64| format!("{{\"id\":{id},\"result\":{{\"x\":\"{}\"}}}}\n", long());
    // The first answer is being sent when the daemon stops; the second begins later.
    let first = answer(7);
    let (head, tail) = first.split_at(HELD + 10);
    pump.client_says(head);
    pump.says(0, &old, LEAVES);
    pump.look_around();
    pump.client_says(tail);
    let mut heard = read(&old);
    let second = answer(8);
    let (head, tail) = second.split_at(HELD + 10);
    pump.client_says(head);
    pump.client_says(tail);
    heard += &read(&old);
    assert_eq!(ids(&heard), [7, 8]);
    assert_eq!(read(&new), "");
    assert!(pump.peers[0].questions.is_empty());
}

#[test]
fn questions_of_the_next_daemon_have_ids_far_above() {
    let ((first, old), (second, _new)) = (daemon("a"), daemon("b"));
    let mut daemons = Daemons { next: vec![second], ..Daemons::default() };
    let mut pump = Pump::new(&mut daemons, first).unwrap();
    pump.says(0, &old, "{\"id\":7,\"method\":\"elicitation/create\"}\n");
    pump.says(0, &old, LEAVES);
    pump.look_around();
    // The daemon may ask more while it stops.
    pump.says(0, &old, "{\"id\":8,\"method\":\"elicitation/create\"}\n");
    assert_eq!(pump.source.asked, [7 + APART]);
}

#[test]
fn a_long_message_waits_for_a_daemon() {
    for has_another in [true, false] {
        let ((first, old), (second, new)) = (daemon("a"), daemon("b"));
        let mut daemons = Daemons::default();
        let mut pump = Pump::new(&mut daemons, first).unwrap();
        drop(old);
        pump.heard_from(0);
        pump.look_around();
        let message = call(1, &long());
        let (head, tail) = message.split_at(HELD + 10);
        pump.client_says(head);
        let away = pump.away.as_mut().unwrap();
        assert!(away.waits.is_some() && away.next <= Instant::now(), "the client waits");
        let other = if has_another {
            pump.source.next.push(second);
            pump.look_around();
            new
        } else {
            away.waits = Instant::now().checked_sub(AWAY);
            pump.look_around();
            let own = pump.source.own.take().unwrap();
            own.set_nonblocking(true).unwrap();
            own
        };
        assert!(pump.input.is_empty(), "it goes on by itself");
        pump.client_says(tail);
        assert_eq!(read(&other), message);
    }
}

#[test]
fn a_long_answer_is_not_broken_into_by_another_daemon() {
    let ((first, old), (second, new)) = (daemon("a"), daemon("b"));
    let mut daemons = Daemons { next: vec![second], ..Daemons::default() };
    let mut pump = Pump::new(&mut daemons, first).unwrap();
    for id in [1, 2] {
        pump.client_says(&call(id, "short"));
    }
    pump.says(0, &old, LEAVES);
    pump.look_around();
    let answer = |id: u64| format!("{{\"id\":{id},\"result\":{{\"x\":\"{}\"}}}}\n", long());
    let (one, two) = (answer(1), answer(2));
    let ((one, one_tail), (two, two_tail)) = (one.split_at(HELD + 10), two.split_at(HELD + 20));
    pump.says(0, &old, one);
    pump.says(1, &new, "{\"method\":\"notifications/message\"}\n");
    pump.says(1, &new, two);
    pump.says(0, &old, one_tail);
    pump.says(1, &new, two_tail);
    let told = pump.told();
    let told: Vec<_> = told.iter().map(|message| message["id"].as_u64()).collect();
    assert_eq!(told, [Some(1), None, Some(2)]);
    // The daemon disconnects in the middle of its message: the other one is read.
    pump.out.clear();
    for id in [3, 4] {
        pump.client_says(&call(id, "short"));
    }
    let (three, four) = (answer(3), answer(4));
    pump.says(0, &old, three.split_at(HELD + 10).0);
    pump.says(1, &new, &four);
    drop(old);
    pump.heard_from(0);
    let text = String::from_utf8(pump.out.clone()).unwrap();
    assert_eq!(ids(&text), [4]);
}

#[test]
fn daemons_that_go_at_once_are_as_good_as_none() {
    let (first, old) = daemon("a");
    let mut daemons = Daemons::default();
    let mut pump = Pump::new(&mut daemons, first).unwrap();
    pump.client_says("{\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\"}}\n");
    pump.says(0, &old, "{\"id\":1,\"result\":{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{}}}\n");
    drop(old);
    pump.heard_from(0);
    pump.client_says(&call(2, "short"));
    // Each daemon disconnects before the session has begun.
    pump.source.next.push(daemon("b").0);
    pump.look_around();
    assert!(pump.current().is_none() && pump.over.is_none());
    let away = pump.away.as_mut().unwrap();
    (away.next, away.waits) = (Instant::now(), Instant::now().checked_sub(AWAY));
    pump.source.next.push(daemon("c").0);
    pump.look_around();
    assert!(pump.source.own.is_some(), "the client does not wait longer");
}

/// The client has closed its side. Requests that the daemon leaves unanswered after that get no answer, as with a host
/// of the client's own; only the death of a daemon is reported.
#[test]
fn the_end_of_a_session_is_no_death() {
    for ends_well in [true, false] {
        let (first, old) = daemon("a");
        let mut daemons = Daemons::default();
        let mut pump = Pump::new(&mut daemons, first).unwrap();
        pump.client_says(&call(1, "slow"));
        pump.client_says("{\"id\":2,\"method\":\"subscriptions/listen\"}\n");
        pump.says(0, &old, "{\"id\":7,\"method\":\"elicitation/create\"}\n");
        pump.out.clear();
        pump.hears = false;
        assert_eq!(pump.over(Instant::now()), None);
        if ends_well {
            pump.says(0, &old, &LEAVES.replace('1', "2"));
        }
        drop(old);
        pump.heard_from(0);
        let told = pump.told();
        let answered = |id: u64| told.iter().any(|message| message["id"] == id && message["method"].is_null());
        assert_eq!([1, 2].map(answered), [!ends_well; 2], "{told:?}");
        if ends_well {
            assert_eq!(told, [] as [Value; 0]);
            assert_eq!(pump.over(Instant::now()), Some(End::Done));
        }
    }
}

#[test]
fn a_client_that_has_left_gets_answers_and_no_host() {
    for is_late in [false, true] {
        let (first, old) = daemon("a");
        let mut daemons = Daemons::default();
        let mut pump = Pump::new(&mut daemons, first).unwrap();
        drop(old);
        pump.heard_from(0);
        pump.client_says(&call(2, "short"));
        pump.hears = false;
        assert_eq!(pump.over(Instant::now()), None, "a daemon may come in time");
        if is_late {
            // The timeout for last answers has passed.
            pump.end = Some(Instant::now());
        } else {
            // The client had waited for a daemon long before it left.
            let away = pump.away.as_mut().unwrap();
            (away.next, away.waits) = (Instant::now(), Instant::now().checked_sub(AWAY));
            pump.look_around();
        }
        let ended = pump.over(Instant::now());
        let told = pump.told();
        assert_eq!((told.len(), &told[0]["id"]), (1, &Value::from(2)));
        assert_eq!(told[0]["result"]["_meta"]["mcp-host/error"]["kind"], "unavailable");
        assert_eq!(ended.is_some(), is_late, "it is written first");
        pump.out.clear();
        assert_eq!(pump.over(Instant::now()), Some(End::Done));
        assert!(pump.source.own.is_none());
    }
}
