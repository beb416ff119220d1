//! Catalogs made from kept parts: they equal catalogs made from scratch, whatever happened before, and reuse what
//! exists.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::model::{Known, Seen, model};
use super::*;
use crate::exposed::UriMode;

const LATEST: ProtocolVersion = ProtocolVersion::LATEST_MODERN;
const ALIASES: [&str; 5] = ["a", "b", "a-b", "git", "longer-than-the-others"];
const PREFIXES: [Prefix; 4] = [Prefix::Always, Prefix::Auto, Prefix::Never, Prefix::Inner];
const NAMES: [&str; 12] = [
    "x",
    "y",
    "getX",
    "getx",
    "a__x",
    "b__a__x",
    "b-x",
    "a-b-x",
    "x.y",
    "git__x",
    "A__X",
    "a-name-that-is-far-too-long-for-every-client-of-the-world",
];
const URIS: [&str; 6] = ["file:///x", "https://e.com/x", "ui://w/v", "git+ssh://h/r", "a+file:///x", "b+a+file:///x"];

/// One server of a world: how it names things, and what it lists of each kind.
#[derive(Clone, Debug)]
struct Listing {
    prefix: usize,
    renames: bool,
    tools: Vec<usize>,
    prompts: Vec<usize>,
    uris: Vec<usize>,
}

/// What happens in a world.
#[derive(Clone, Debug)]
enum Step {
    /// A server comes, or lists something else.
    Comes(usize, Listing),
    /// A server is lost: it lists nothing.
    Goes(usize),
    /// A server leaves the config, or enters it again.
    Toggles(usize),
}

fn listing() -> impl Strategy<Value = Listing> {
    let some = |most: usize| proptest::collection::vec(0..most, 0..5);
    (0..PREFIXES.len(), any::<bool>(), some(NAMES.len()), some(NAMES.len()), some(URIS.len()))
        .prop_map(|(prefix, renames, tools, prompts, uris)| Listing { prefix, renames, tools, prompts, uris })
}

fn step() -> impl Strategy<Value = Step> {
    let server = 0..ALIASES.len();
    prop_oneof![
        4 => (server.clone(), listing()).prop_map(|(server, listing)| Step::Comes(server, listing)),
        1 => server.clone().prop_map(Step::Goes),
        1 => server.prop_map(Step::Toggles),
    ]
}

fn naming() -> impl Strategy<Value = Naming> {
    let separator = proptest::sample::select(vec!["__", "-", "_", "x", "-----------------------"]);
    let uris = proptest::sample::select(vec![UriMode::Prefix, UriMode::Passthrough]);
    (separator, uris).prop_map(|(separator, resources)| Naming {
        separator: separator.to_owned(),
        max_length: 40,
        resources,
    })
}

fn listed(of: &Listing) -> Arc<Offer> {
    let distinct = |all: &[usize]| all.iter().copied().collect::<BTreeSet<_>>().into_iter();
    let named = |all: &[usize]| distinct(all).map(|at| tool(NAMES[at])).collect::<Vec<_>>().join(",");
    let located = |key: &str| {
        let all = distinct(&of.uris).map(|at| format!(r#"{{"{key}":"{}","name":"n"}}"#, URIS[at]));
        all.collect::<Vec<_>>().join(",")
    };
    offer(&[
        (Kind::Tools, &named(&of.tools)),
        (Kind::Prompts, &named(&of.prompts)),
        (Kind::Resources, &located("uri")),
        (Kind::ResourceTemplates, &located("uriTemplate")),
    ])
}

/// One server of a world, with the parts that were made for it so far.
struct Member {
    from: Contribution,
    is_in: bool,
    parts: Parts,
}

fn world() -> Vec<Member> {
    let none = Arc::new(Offer::default());
    let member = |(index, alias): (usize, &&str)| Member {
        from: server(10 * index, alias, Prefix::Always, &none),
        is_in: index % 2 == 0,
        parts: Parts::default(),
    };
    ALIASES.iter().enumerate().map(member).collect()
}

fn happen(world: &mut [Member], step: &Step) {
    match step {
        Step::Comes(at, listing) => {
            let member = &mut world[*at];
            let rename = if listing.renames { [("x".to_owned(), "y".to_owned())].into() } else { Default::default() };
            let settings = ServerNaming { prefix: PREFIXES[listing.prefix], rename, ..ServerNaming::default() };
            let offer = listed(listing);
            if *member.from.settings != settings {
                // Another config entry is another server.
                member.parts = Parts::default();
            }
            member.from = Contribution { settings: Arc::new(settings), offer, ..member.from.clone() };
        }
        Step::Goes(at) => world[*at].from.offer = Arc::default(),
        Step::Toggles(at) => world[*at].is_in ^= true,
    }
}

fn parts(world: &[Member], naming: &Arc<Naming>) -> Vec<Arc<Part>> {
    let members = world.iter().filter(|member| member.is_in);
    members.map(|it| it.parts.of(&it.from.offer, || Part::new(it.from.clone(), naming))).collect()
}

fn seen(catalog: &Catalog, servers: &[Contribution]) -> Seen {
    let entry = |entry: &Entry| {
        let texts = [entry.server().as_str(), entry.name(), entry.raw_name(), entry.definition().as_str()];
        let [alias, name, raw, definition] = texts.map(str::to_owned);
        (alias, name, raw, definition)
    };
    Seen {
        lists: Kind::ALL.map(|kind| catalog.entries(kind).iter().map(entry).collect()),
        problems: servers.iter().map(|server| catalog.problems(&server.alias)).collect(),
    }
}

/// Returns the pages of a list.
fn read(catalog: &Catalog, kind: Kind, revision: ProtocolVersion) -> Vec<Raw> {
    let (mut pages, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let page = catalog.page(kind, cursor.as_deref(), revision).unwrap();
        cursor = page.text("nextCursor");
        pages.push(page);
        if cursor.is_none() {
            return pages;
        }
    }
}

/// Returns the pages of a list as a plain loop writes them.
fn written(kind: Kind, seen: &Seen, page: usize) -> Vec<String> {
    let mut pages: Vec<String> = vec![String::new()];
    for (.., definition) in &seen.lists[kind as usize] {
        match pages.last_mut() {
            Some(last) if last.is_empty() => last.push_str(definition),
            Some(last) if last.len() + 1 + definition.len() <= page => *last += &format!(",{definition}"),
            _ => pages.push(definition.clone()),
        }
    }
    pages.into_iter().map(|inside| format!("{{\"{kind}\":[{inside}]")).collect()
}

proptest! {
    #[test]
    fn kept_parts_merge_to_what_is_made_from_nothing(
        naming in naming(),
        page in proptest::sample::select(vec![1_usize, 150, 4 << 20]),
        steps in proptest::collection::vec(step(), 1..12),
    ) {
        let naming = Arc::new(naming);
        let (mut world, mut owners, mut known) = (world(), Owners::default(), Known::default());
        let mut hashes = Vec::new();
        for step in &steps {
            happen(&mut world, step);
            let catalog = Catalog::merge_paged(&parts(&world, &naming), &naming, &mut owners, page);
            let servers: Vec<_> = world.iter().filter(|it| it.is_in).map(|it| it.from.clone()).collect();
            let want = model(&servers, &naming, &mut known);
            prop_assert_eq!(&seen(&catalog, &servers), &want);
            for kind in Kind::ALL {
                let pages = read(&catalog, kind, LATEST);
                let starts = written(kind, &want, page);
                prop_assert_eq!(pages.len(), starts.len());
                for (page, start) in pages.iter().zip(&starts) {
                    let rest = page.as_str().strip_prefix(&**start);
                    prop_assert!(rest.is_some_and(|rest| rest == "}" || rest.starts_with(",\"nextCursor\"")), "{page}");
                }
                for entry in catalog.entries(kind) {
                    prop_assert_eq!(catalog.entry(kind, entry.name()).map(Entry::raw_name), Some(entry.raw_name()));
                    prop_assert_eq!(
                        catalog.entry_of(kind, entry.server(), entry.raw_name()).map(Entry::name),
                        Some(entry.name())
                    );
                }
            }
            let prefixes: Vec<_> = servers.iter().map(|it| (it.server, it.settings.prefix)).collect();
            hashes.push((Kind::ALL.map(|kind| catalog.hash(kind)), want.lists, prefixes));
        }
        for (hash, lists, prefixes) in &hashes {
            for (other, others, then) in &hashes {
                for kind in Kind::ALL.map(|kind| kind as usize) {
                    let (is_same, is_same_list) = (hash[kind] == other[kind], lists[kind] == others[kind]);
                    // Whether its URIs carry its alias is a part of what a server shows.
                    prop_assert!(!is_same || is_same_list);
                    prop_assert!(is_same || !is_same_list || prefixes != then);
                }
            }
        }
    }
}

#[test]
fn what_a_server_shows_is_made_once() {
    let naming = Arc::new(Naming::default());
    let mut world = world();
    world.iter_mut().for_each(|member| member.is_in = true);
    let mut owners = Owners::default();
    let all = Listing { prefix: 0, renames: false, tools: vec![0, 1], prompts: vec![0], uris: vec![0] };
    let mut before: Option<Catalog> = None;
    for at in 0..world.len() {
        happen(&mut world, &Step::Comes(at, all.clone()));
        let catalog = Catalog::merge(&parts(&world, &naming), &naming, &mut owners);
        for kind in Kind::ALL {
            let earlier = before.iter().flat_map(|before| before.entries(kind));
            let same = earlier.zip(catalog.entries(kind)).filter(|(one, other)| one.is_one_with(other));
            assert_eq!(same.count(), before.as_ref().map_or(0, |before| before.entries(kind).len()), "{kind}");
        }
        before = Some(catalog);
    }
    // A server that collides with another one costs only what differs.
    let auto = |tools: &[usize]| Listing { prefix: 1, tools: tools.to_vec(), ..all.clone() };
    happen(&mut world, &Step::Comes(1, auto(&[0, 1])));
    let free = Catalog::merge(&parts(&world, &naming), &naming, &mut owners);
    happen(&mut world, &Step::Comes(3, auto(&[0, 2])));
    let twice = [(); 2].map(|()| Catalog::merge(&parts(&world, &naming), &naming, &mut owners));
    assert_eq!(names(&twice[0], Kind::Tools)[6..8], ["git__x", "getX"]);
    assert!(twice[0].tools().iter().zip(twice[1].tools()).all(|(one, other)| one.is_one_with(other)));
    assert!(free.tools()[2].is_one_with(&twice[0].tools()[2]));
}

#[test]
fn a_name_that_every_server_could_have_is_looked_up_without_the_lists() {
    let naming = Arc::new(Naming::default());
    let mut world = world();
    world.iter_mut().for_each(|member| member.is_in = true);
    happen(
        &mut world,
        &Step::Comes(0, Listing { prefix: 0, renames: false, tools: vec![0, 8], prompts: vec![], uris: vec![] }),
    );
    let catalog = Catalog::merge(&parts(&world, &naming), &naming, &mut Owners::default());
    assert_eq!(leads(catalog.tool("x")), to(0, "x"));
    assert_eq!(leads(catalog.tool("a__x")), to(0, "x"));
    for unknown in ["a__", "a__z", "b__x", "x__", "z", "__x"] {
        assert_eq!(catalog.tool(unknown), Resolution::Unknown, "{unknown}");
    }
}
