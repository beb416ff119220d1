//! Registries that misbehave: lists without an end, answers that are too large or of a wrong length, other addresses.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use serde_json::{Value, json};

use super::{Home, registry};
use crate::auth::site::{Asked, Site, Told};

async fn said(answer: impl Fn(&Asked) -> Told + Send + Sync + 'static) -> (String, usize) {
    let site = Site::start(|_| answer).await;
    let home = Home::at(&site.url);
    let said = tokio::task::block_in_place(|| home.run(&["search", "files"]));
    (said.replace(&site.url, "REGISTRY"), site.asked().len())
}

fn page(next: &str) -> Value {
    json!({ "servers": [], "metadata": { "nextCursor": next } })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_without_an_end_ends() {
    let (looped, asked) = said(|_| Told::json(200, &page("again"))).await;
    let wrong = "exit 1\nerror: the registry at REGISTRY gave a wrong answer: ";
    assert!(looped.starts_with(&format!("{wrong}its cursor comes again, so the list has no end\n")), "{looped}");
    assert_eq!(asked, 2);
    let count = std::sync::atomic::AtomicUsize::new(0);
    let next = move |_: &Asked| {
        let number = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Told::json(200, &page(&number.to_string()))
    };
    let (long, asked) = said(next).await;
    assert!(long.starts_with(&format!("{wrong}the list has more than 100 pages")), "{long}");
    assert_eq!(asked, 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_redirect_is_followed_and_nothing_large_is_read() {
    let wrong = "exit 1\nerror: the registry at REGISTRY gave a wrong answer: ";
    let other = registry("https://remote.example/mcp").await;
    let location = format!("{}/v0.1/servers", other.url);
    let (moved, _) = said(move |_| Told::Answer(302, vec![("location", location.clone())], String::new())).await;
    assert!(moved.starts_with(&format!("{wrong}it leads to another address, which is not followed")), "{moved}");
    assert!(other.asked().is_empty());
    let (large, _) = said(|_| Told::json(200, &json!({ "servers": [], "x": "x".repeat(5 << 20) }))).await;
    assert!(large.starts_with(&format!("{wrong}it has more than 4 MiB\n")), "{large}");
    let (login, _) = said(|_| Told::json(401, &json!({}))).await;
    assert!(login.contains("it wants a login (HTTP 401): give it by host.registry.headers"), "{login}");
    let (text, _) = said(|_| Told::Answer(200, Vec::new(), "<html>".to_owned())).await;
    assert!(text.starts_with(&format!("{wrong}no JSON: ")), "{text}");
    let (list, _) = said(|_| Told::json(200, &json!([]))).await;
    assert!(list.starts_with(&format!("{wrong}it has no list `servers`\n")), "{list}");
}

#[test]
fn a_length_that_lies_is_no_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{\"servers\":[]}").unwrap();
    });
    let said = Home::at(&url).run(&["search", "files"]);
    serving.join().unwrap();
    assert!(said.contains("cannot be asked: the answer broke off"), "{said}");
}

/// Someone who was asked for one server must not get another.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_about_the_server_that_was_asked_for() {
    let server = json!({ "server": { "name": "io.github.eve/files", "version": "1.0.0",
        "remotes": [{ "type": "streamable-http", "url": "https://eve.example" }] } });
    let site = Site::start(|_| move |_: &Asked| Told::json(200, &server)).await;
    let home = Home::at(&site.url);
    let said = tokio::task::block_in_place(|| home.run(&["install", "io.github.ada/files", "--yes"]));
    assert!(said.contains("it is about io.github.eve/files, not about io.github.ada/files"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_kept_for_an_hour_and_older_ones_are_told() {
    let site = registry("https://remote.example/mcp").await;
    let home = Home::at(&site.url);
    let show = || tokio::task::block_in_place(|| home.run(&["show", "io.github.ada/files"]));
    let first = show();
    assert!(first.starts_with("exit 0\nio.github.ada/files 1.2.3: Files\n"), "{first}");
    assert_eq!((show(), site.asked().len()), (first.clone(), 1), "the second answer is a kept one");
    // A day later, the registry is gone.
    let kept = std::fs::read_dir(home.folder_of_answers()).unwrap().next().unwrap().unwrap().path();
    let mut answer: Value = serde_json::from_slice(&std::fs::read(&kept).unwrap()).unwrap();
    answer["at"] = json!(answer["at"].as_u64().unwrap() - 86_400);
    std::fs::write(&kept, answer.to_string()).unwrap();
    assert_eq!(show(), first, "an old answer is asked for again");
    assert_eq!(site.asked().len(), 2);
    let url = site.url.clone();
    drop(site);
    std::fs::write(&kept, answer.to_string()).unwrap();
    let old = show().replace(&url, "REGISTRY");
    assert!(old.contains("warning: REGISTRY cannot be asked: this is what it said"), "{old}");
    std::fs::remove_file(&kept).unwrap();
    let none = show().replace(&url, "REGISTRY");
    assert!(none.starts_with("exit 4\nerror: the registry at REGISTRY cannot be asked: "), "{none}");
}
