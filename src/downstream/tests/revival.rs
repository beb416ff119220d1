//! Sessions that are revived by their ids: after they left memory, and after a restart.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::support::*;
use crate::sessions::Kept;

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
/// What a client is told on its first stream after its session was revived.
const RENEWED: [&str; 3] =
    ["notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed"];

/// A house whose key other houses have, too.
async fn keyed(stage: Stage, kept: &Arc<Kept>) -> House {
    house_with(stage, Settings { kept: Arc::clone(kept), ..Settings::default() }).await
}

/// Stops a house and opens another one, with other servers and clients, and the same key.
async fn restarted(house: House, kept: &Arc<Kept>, stage: Stage) -> House {
    house.stop.cancel();
    house.served.await.unwrap().unwrap();
    keyed(stage, kept).await
}

/// Returns the status of a request in the session of this client, over a connection of its own.
async fn status(house: &House, peer: &Peer, method: &str) -> u16 {
    let mut again = house.again(peer).await;
    let request = again.request(method, "", if method == "POST" { PING } else { "" });
    again.send(&request).await.status
}

/// Reads the stream up to the notices that all lists have changed, and returns the ids of these events.
async fn renewed(stream: &mut Peer) -> Vec<String> {
    let mut ids = Vec::new();
    while ids.len() < RENEWED.len() {
        let event = stream.event().await.unwrap();
        if let Some((id, method)) = event.split_once(' ') {
            assert_eq!(method, RENEWED[ids.len()]);
            ids.push(id.to_owned());
        }
    }
    ids
}

#[tokio::test]
async fn h62_a_restart_ends_no_session_of_any_revision() {
    let kept = Arc::<Kept>::default();
    let mut house = keyed(stage().await, &kept).await;
    let mut peers = Vec::new();
    for revision in REVISIONS {
        peers.push((revision, house.client(revision).await));
    }
    for round in 1..=2 {
        house = restarted(house, &kept, stage().await).await;
        assert_eq!(house.stage.sessions(), 0);
        for (revision, peer) in &peers {
            let mut again = house.again(peer).await;
            // The first message is of any kind.
            if round == 1 {
                let head = again.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
                assert_eq!(head.status, 202, "{revision}");
            }
            assert_eq!(again.ask(&call(3, "echo")).await["id"], 3, "{revision}");
            assert_eq!(again.ask(r#"{"jsonrpc":"2.0","id":4,"method":"tools/list"}"#).await["id"], 4);
            let status = again.post(&format!("[{PING}]")).await.status;
            assert_eq!(status == 200, *revision == "2025-03-26", "{revision}: the session has its revision still");
        }
        assert_eq!(house.stage.sessions(), 4);
    }
    let told = house.stage.router.clients().list();
    let names: Vec<_> = told.iter().map(|client| (&*client.name, client.version.as_deref())).collect();
    assert_eq!(names, [("test", Some("0")); 4]);
}

#[tokio::test]
async fn h62_a_session_that_was_idle_too_long_comes_back_and_hears_that_lists_have_changed() {
    let house = house_of(stage_with(|limits| limits.session_idle = Duration::from_secs(60)).await).await;
    for method in ["POST", "GET"] {
        let peer = house.client("2025-11-25").await;
        rest(Duration::from_secs(200)).await;
        until_some_time(|| house.stage.sessions() == 0).await;
        // The GET of the stream itself may revive the session.
        if method == "POST" {
            assert_eq!(status(&house, &peer, method).await, 200);
        }
        let mut stream = house.resumed(&peer, "0-0").await;
        let ids = renewed(&mut stream).await;
        // Ids of events of this life and of earlier ones differ.
        let (life, _) = ids[0].split_once('.').unwrap();
        assert!(ids.iter().all(|id| id.starts_with(&format!("{life}.0-"))), "{ids:?}");
        // From here on it is a session like any other.
        house.stage.announce(None);
        assert!(stream.event().await.unwrap().ends_with(RENEWED[0]));
        let request = stream.request("DELETE", "", "");
        assert_eq!(house.connect().await.send(&request).await.status, 204);
    }
}

#[tokio::test]
async fn h62_a_session_that_made_room_comes_back_when_there_is_room() {
    let house = house_of(stage_with(|limits| limits.sessions = 1).await).await;
    let first = house.client("2025-11-25").await;
    let second = house.client("2025-11-25").await;
    assert_eq!(house.stage.sessions(), 1);
    // The second was only opened, so it makes room; the first was used just now, so it does not.
    rest(Duration::from_secs(3)).await;
    assert_eq!(status(&house, &first, "POST").await, 200);
    assert_eq!(status(&house, &second, "POST").await, 503, "the caps hold");
    rest(Duration::from_secs(70)).await;
    assert_eq!(status(&house, &second, "POST").await, 200);
    assert_eq!(house.stage.sessions(), 1);
}

#[tokio::test]
async fn h60_an_id_is_of_its_principal_after_a_restart_too() {
    let kept = Arc::<Kept>::default();
    let house = keyed(bearer(stage().await), &kept).await;
    let ann = house.client_as(Some(ANN), "2025-11-25").await;
    let house = restarted(house, &kept, bearer(stage().await)).await;
    let mut bob = house.again(&ann).await;
    bob.token = Some(BOB);
    let mut strange = house.again(&bob).await;
    strange.session = Some("0".repeat(64));
    for method in ["POST", "GET", "DELETE"] {
        assert_eq!(status(&house, &bob, method).await, 404, "{method}");
        assert_eq!(status(&house, &strange, method).await, 404, "{method}");
    }
    let mut nobody = house.again(&ann).await;
    nobody.token = None;
    assert_eq!(status(&house, &nobody, "POST").await, 401);
    assert_eq!(house.stage.sessions(), 0);
    assert_eq!(status(&house, &ann, "POST").await, 200);
    // A host without authentication does not accept it: it belongs to a principal that was proven.
    let house = restarted(house, &kept, stage().await).await;
    assert_eq!(status(&house, &ann, "POST").await, 404);
}

#[tokio::test]
async fn h60_no_altered_id_is_taken_up() {
    let kept = Arc::<Kept>::default();
    let house = keyed(stage().await, &kept).await;
    let peer = house.client("2025-11-25").await;
    let house = restarted(house, &kept, stage().await).await;
    let id = peer.session.clone().unwrap();
    let mut forms: Vec<String> = (0..id.len())
        .map(|at| {
            let other = if id.as_bytes()[at] == b'A' { "B" } else { "A" };
            let mut altered = id.clone();
            altered.replace_range(at..=at, other);
            altered
        })
        .collect();
    forms.extend([id[1..].to_owned(), id[..id.len() - 1].to_owned(), format!("{id}="), format!("{id}AA")]);
    forms.extend([id.to_uppercase(), "A".repeat(900), "A".repeat(5000), id.repeat(2)]);
    let mut again = house.again(&peer).await;
    for form in forms {
        again.session = Some(form.clone());
        let head = again.post(PING).await;
        again.body(&head).await;
        assert_eq!(head.status, 404, "{form}");
    }
    // The key of another host does not open it.
    let other = keyed(stage().await, &Arc::default()).await;
    assert_eq!(status(&other, &peer, "POST").await, 404);
    assert_eq!(status(&house, &peer, "POST").await, 200);
}

#[tokio::test]
async fn a_session_that_its_client_ended_does_not_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let kept = || Arc::new(Kept::new(Some(folder.path().to_owned())));
    let first = kept();
    let house = keyed(stage().await, &first).await;
    let (known, idle, stays) =
        (house.client("2025-11-25").await, house.client("2025-06-18").await, house.client("2025-06-18").await);
    assert_eq!(status(&house, &known, "DELETE").await, 204);
    first.written().await;
    // A session that is not in memory can be ended, too.
    let second = kept();
    let house = restarted(house, &second, stage().await).await;
    assert_eq!(status(&house, &idle, "DELETE").await, 204);
    for ended in [&known, &idle] {
        for method in ["POST", "GET", "DELETE"] {
            assert_eq!(status(&house, ended, method).await, 404, "{method}");
        }
    }
    second.written().await;
    let house = restarted(house, &kept(), stage().await).await;
    for (peer, want) in [(&known, 404), (&idle, 404), (&stays, 200)] {
        assert_eq!(status(&house, peer, "POST").await, want);
    }
}

#[tokio::test]
async fn an_id_is_good_as_long_as_the_config_says() {
    let kept = Arc::<Kept>::default();
    let house = keyed(stage().await, &kept).await;
    let peer = house.client("2025-11-25").await;
    let life = |house: &House, life| house.stage.router.manager().configure(|settings| settings.session_life = life);
    let house = restarted(house, &kept, forgetful(stage().await)).await;
    assert_eq!(status(&house, &peer, "POST").await, 404);
    // A session of a host that wants none back has an id that nothing opens.
    let plain = house.client("2025-11-25").await;
    assert_eq!(plain.session.as_ref().unwrap().len(), 64);
    life(&house, Duration::from_secs(3600));
    assert_eq!(status(&house, &peer, "POST").await, 200);
    let house = restarted(house, &kept, stage().await).await;
    assert_eq!(status(&house, &plain, "POST").await, 404);
    assert_eq!(status(&house, &peer, "POST").await, 200);
}

#[tokio::test]
async fn a_client_that_says_too_much_of_itself_keeps_its_session_in_memory() {
    let kept = Arc::<Kept>::default();
    let house = keyed(stage().await, &kept).await;
    let open = async |name: &str| {
        let mut peer = house.connect().await;
        let head = peer.post(&initialize("2025-11-25").replace("\"test\"", &json!(name).to_string())).await;
        peer.body(&head).await;
        peer.session = head.headers.get("mcp-session-id").cloned();
        peer
    };
    let (long, short) = (open(&"😀".repeat(200)).await, open(&"x".repeat(200)).await);
    let length = |peer: &Peer| peer.session.as_ref().unwrap().len();
    assert_eq!(length(&long), 64);
    assert!((65..=900).contains(&length(&short)), "{}", length(&short));
    assert_eq!((status(&house, &long, "POST").await, status(&house, &short, "POST").await), (200, 200));
    let notes = house.stage.router.meter().session_notes().unwrap();
    assert_eq!((notes.bound, notes.why.as_deref()), (1, Some("there is no state directory")));
    let house = restarted(house, &kept, stage().await).await;
    assert_eq!((status(&house, &long, "POST").await, status(&house, &short, "POST").await), (404, 200));
}

#[tokio::test]
async fn many_requests_at_once_take_a_session_up_once() {
    let kept = Arc::<Kept>::default();
    let house = keyed(stage().await, &kept).await;
    let peer = house.client("2025-11-25").await;
    let house = restarted(house, &kept, stage().await).await;
    let all = join_all((0..24).map(|id| {
        let (house, peer) = (&house, &peer);
        async move { house.again(peer).await.ask(&call(id, "echo")).await["id"].clone() }
    }));
    assert_eq!(all.await, (0..24).map(Value::from).collect::<Vec<_>>());
    assert_eq!(house.stage.sessions(), 1);
}

#[tokio::test]
async fn h57_a_call_of_before_the_restart_has_an_unknown_outcome() {
    let kept = Arc::<Kept>::default();
    let house = keyed(stage().await, &kept).await;
    let mut peer = house.client("2025-11-25").await;
    peer.post(&call(7, "progress")).await;
    let first = peer.chunk().await.unwrap();
    let last = first.strip_prefix("id: ").unwrap().split('\n').next().unwrap().to_owned();
    assert_eq!(last, "1-0~c7");
    let session = house.again(&peer).await;
    // As a kill does it: nothing is answered any more.
    let House { served, stop, .. } = house;
    served.abort();
    drop((peer, stop));
    let house = keyed(stage().await, &kept).await;
    let answered = async |last: &str| {
        let mut back = house.again(&session).await;
        let head = back.get(&format!("Last-Event-ID: {last}\r\n")).await;
        let body = back.body(&head).await;
        let message = body.strip_prefix("data: ").map(|data| serde_json::from_str::<Value>(data.trim_end()).unwrap());
        (head.status, message)
    };
    let (status, message) = answered(&last).await;
    let message = message.unwrap();
    let failure = &message["result"]["_meta"]["mcp-host/error"];
    assert_eq!((status, &message["id"], &message["result"]["isError"]), (200, &json!(7), &json!(true)));
    assert_eq!((&failure["kind"], &failure["sent"]), (&json!("outcome_unknown"), &json!(true)), "{message}");
    // Another request is answered with an error; a stream of several, or of unknown ones, with none.
    let (status, message) = answered("3-1~r.YQ").await;
    let message = message.unwrap();
    assert_eq!(
        (status, &message["id"], &message["error"]["data"]["kind"]),
        (200, &json!("a"), &json!("outcome_unknown"))
    );
    for unknown in ["3-1", "3-1~", "3-1~c", "x"] {
        assert_eq!(answered(unknown).await, (400, None), "{unknown}");
    }
    assert_eq!(house.stage.running(), 0, "nothing is sent again");
}

#[tokio::test]
async fn a_late_answer_to_a_question_of_before_matches_no_new_one() {
    let kept = Arc::<Kept>::default();
    let house = keyed(stage().await, &kept).await;
    let peer = house.client("2025-11-25").await;
    let house = restarted(house, &kept, stage().await).await;
    let head = house.again(&peer).await.post(r#"{"jsonrpc":"2.0","id":1,"result":{"roots":[]}}"#).await;
    assert_eq!(head.status, 202, "it is taken, and is worth nothing");
    assert_eq!(house.stage.sessions(), 1);
}
