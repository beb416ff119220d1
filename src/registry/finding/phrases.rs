//! Finds words that command a model rather than describe a tool, and chat markers that do not belong in a definition.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::Spot;
use super::words::{Word, is_only_told};

const CONCEALMENT: &str = "tells to hide something from the user";
const OVERRIDE: &str = "tells to ignore instructions";
const TAG: &str = "instruction tags";
const PREFERENCE: &str = "asks to be preferred to other tools";

/// A rule: what it finds, whether it is hard, and its words in order. Each slot lists alternatives for one word; `3:`
/// before them lets up to three other words stand in between.
type Rule = (&'static str, bool, &'static [&'static str]);

const USER: &str = "3:user|users|human|person|anyone|anybody|owner|operator";
const TELL: &str = "2:tell|inform|notify|alert|warn";
const WHICH: &str = "2:previous|prior|earlier|preceding|above|existing|other|all|any|your|system|original|initial";
const ORDERS: &str = "3:instructions|instruction|prompt|prompts|guidelines|directives|directions|orders";

const RULES: &[Rule] = &[
    (CONCEALMENT, true, &["not|never|don't|nor|mustn't|shouldn't", TELL, "0:user|users|anyone|anybody"]),
    // "Never tell a user that it was sent" is advice, so only some words may stand in between.
    (
        CONCEALMENT,
        true,
        &["not|never|don't|nor|mustn't|shouldn't", TELL, "0:the|your|this|any|our|all|end|its|to", USER],
    ),
    (
        CONCEALMENT,
        true,
        &[
            "not|never|don't",
            "1:mention|reveal|disclose|divulge|show|display|expose|say",
            "4:to",
            "1:user|users|human|person|anyone|anybody",
        ],
    ),
    (
        CONCEALMENT,
        true,
        &[
            "not|never|don't",
            "1:mention|reveal|disclose|divulge",
            "1:that|this|these|it",
            "0:you|to|text|step|part|prefix|instruction|instructions",
        ],
    ),
    (CONCEALMENT, true, &["without", "telling|informing|notifying|alerting|warning", USER]),
    (CONCEALMENT, true, &["without", "user's|users", "0:knowledge|consent"]),
    (CONCEALMENT, true, &["without", "the|any", "user|user's", "0:knowing|noticing|knowledge|consent"]),
    (
        CONCEALMENT,
        true,
        &[
            "user|users|human",
            "0:must|should|shall|may|can|will|need",
            "0:not|never",
            "1:know|notice|learn|informed|told|aware|suspect",
        ],
    ),
    (CONCEALMENT, true, &["hide|conceal", "2:this|these|it|that|them", "1:from", USER]),
    (CONCEALMENT, true, &["keep", "2:secret|hidden|concealed", "0:from", USER]),
    (
        CONCEALMENT,
        true,
        &[
            "silently|secretly|covertly|quietly",
            "add|append|send|include|pass|forward|upload|read|copy|attach|collect|insert",
        ],
    ),
    (OVERRIDE, true, &["ignore|disregard|forget|override|bypass|overrule|discard", WHICH, ORDERS]),
    (
        OVERRIDE,
        true,
        &[
            "ignore|disregard|forget",
            "1:previous|prior|earlier|your",
            "2:rules|context|constraints|restrictions|training|messages",
        ],
    ),
    (
        OVERRIDE,
        true,
        &[
            "all|any|your|previous|prior|earlier",
            "2:rules|instructions|prompts|guidelines",
            "1:void|revoked|cancelled|canceled|superseded|obsolete|invalid",
        ],
    ),
    (
        OVERRIDE,
        true,
        &[
            "supersedes|overrides|replaces",
            "2:all|any|other|previous|prior|your|every",
            "2:instructions|prompts|guidelines",
        ],
    ),
    (OVERRIDE, true, &["your", "new|real|true|actual", "instructions|orders|directives|rules", "0:are|is|follow"]),
    (OVERRIDE, true, &["you", "now", "1:obey|follow|answer", "1:only", "2:server|tool|me|us"]),
    (
        PREFERENCE,
        false,
        &["always|only|must", "1:use|call|choose|prefer|pick|select", "0:this", "2:instead|rather|over"],
    ),
    (
        PREFERENCE,
        false,
        &["instead|rather", "of|than", "any|every|all", "other|another", "2:tool|tools|server|servers"],
    ),
    (
        PREFERENCE,
        false,
        &[
            "before|prior",
            "0:to",
            "using|calling|running|invoking|use",
            "any|every|all",
            "other|another",
            "1:tool|tools",
        ],
    ),
    (
        PREFERENCE,
        false,
        &["before", "using|calling|running|invoking|use", "any|every|all", "other|another", "1:tool|tools"],
    ),
    (PREFERENCE, false, &["before", "using|calling|running|invoking", "any|every|all", "tool|tools"]),
    (PREFERENCE, false, &["priority|precedence", "over", "2:other|another|any|all", "2:tool|tools|server|servers"]),
    (
        PREFERENCE,
        false,
        &[
            "other|another",
            "1:tool|tools|server|servers",
            "0:are|is",
            "1:deprecated|insecure|unsafe|broken|outdated|obsolete|unreliable",
        ],
    ),
    (PREFERENCE, false, &["not|never|don't", "use|call", "any", "other|another", "1:tool|tools|server|servers"]),
];

/// One slot: how many other words may stand before it, and the alternatives.
type Slot = (usize, Vec<&'static str>);

/// A rule, and its slots after the first word.
type Begun = (Rule, Vec<Slot>);

/// The rules by their first words.
static BY_FIRST: LazyLock<HashMap<&'static str, Vec<Begun>>> = LazyLock::new(|| {
    let mut rules: HashMap<_, Vec<_>> = HashMap::new();
    for rule in RULES {
        let slots: Vec<Slot> = rule.2.iter().map(|slot| slot_of(slot)).collect();
        for first in slots.iter().take(1).flat_map(|(_, words)| words) {
            rules.entry(*first).or_default().push((*rule, slots[1..].to_vec()));
        }
    }
    rules
});

fn slot_of(text: &'static str) -> Slot {
    let (gap, words) = text.split_once(':').unwrap_or(("0", text));
    (gap.parse().unwrap_or_default(), words.split('|').collect())
}

/// Tags around instructions, without the brackets. Those marked `false` also structure long texts, so they are soft
/// unless they are in capital letters.
const TAGS: [(&str, bool); 16] = [
    ("important", true),
    ("system", true),
    ("secret", true),
    ("hidden", true),
    ("admin", true),
    ("override", true),
    ("system_prompt", true),
    ("system-prompt", true),
    ("systemprompt", true),
    ("system-reminder", true),
    ("instructions", false),
    ("instruction", false),
    ("assistant", false),
    ("developer", false),
    ("critical", false),
    ("prompt", false),
];

/// Chat markers that models are trained on.
const MARKS: [&str; 12] = [
    "<|im_start|>",
    "<|im_end|>",
    "<|system|>",
    "<|start_header_id|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "[inst]",
    "[/inst]",
    "<<sys>>",
    "[system]",
    "<start_of_turn>",
    "<|user|>",
];

/// Beginnings of lines that pretend to be a part of a chat.
const PARTS: [&str; 7] =
    ["system:", "### system", "### instruction", "# system:", "[system", "assistant:", "\u{ff03} system"];

/// Finds words that command. Keeps one spot for each kind of finding.
pub(super) fn spots(text: &str, words: &[Word], found: &mut Vec<Spot>) {
    for (at, word) in words.iter().enumerate() {
        for ((what, hard, _), slots) in BY_FIRST.get(&*word.text).into_iter().flatten() {
            let Some(last) = matched(text, words, at, slots) else { continue };
            let range = word.range.start..words[last].range.end;
            // Rules about concealment contain a negation themselves, so a negation does not make them soft.
            let is_told =
                if *what == CONCEALMENT { is_in_quotes(text, range.start) } else { is_only_told(text, words, &range) };
            add(found, (what, *hard && !is_told, range));
        }
    }
    tags(text, words, found);
}

/// Adds a spot. For each kind the first hard spot is kept, or else the first one.
fn add(found: &mut Vec<Spot>, spot: Spot) {
    match found.iter_mut().find(|(what, ..)| *what == spot.0) {
        Some(known) if !known.1 && spot.1 => *known = spot,
        Some(_) => {}
        None => found.push(spot),
    }
}

/// Matches the slots after the word at `at`, each with the first word that fits. The end of a sentence breaks the
/// match.
fn matched(text: &str, words: &[Word], at: usize, slots: &[Slot]) -> Option<usize> {
    let mut last = at;
    for (gap, alternatives) in slots {
        let reach = words.iter().enumerate().skip(last + 1).take(gap + 1);
        let (next, word) = reach.into_iter().find(|(_, word)| alternatives.contains(&&*word.text))?;
        let between = &text[words[last].range.end..word.range.start];
        if between.contains(". ") || between.contains("\n\n") || between.contains("! ") {
            return None;
        }
        last = next;
    }
    Some(last)
}

fn is_in_quotes(text: &str, at: usize) -> bool {
    let before = text[..at].chars().next_back();
    matches!(before, Some('"' | '`' | '“' | '«' | '‘'))
}

fn tags(text: &str, words: &[Word], found: &mut Vec<Spot>) {
    let lower = text.to_ascii_lowercase();
    let mut closed = Closed { lower: &lower, known: [None; TAGS.len()] };
    for at in memchr::memchr3_iter(b'<', b'[', b'#', lower.as_bytes()) {
        let rest = &lower[at..];
        let mark = MARKS.iter().find(|mark| rest.starts_with(**mark)).map(|mark| (mark.len(), true));
        let Some((length, hard)) = mark.or_else(|| tag(&text[at..], rest, &mut closed)) else { continue };
        let range = at..at + length;
        add(found, (TAG, hard && !is_only_told(text, words, &range), range));
    }
    let mut start = 0;
    for line in lower.split_inclusive('\n') {
        let trimmed = line.trim_start();
        let at = start + line.len() - trimmed.len();
        // Only lines in capital letters or headings count: "System: the name of the system" describes an argument.
        let shouts =
            text[at..].starts_with('#') || text[at..].starts_with("SYSTEM:") || text[at..].starts_with("[SYSTEM");
        if shouts && let Some(part) = PARTS.iter().find(|part| trimmed.starts_with(**part)) {
            add(found, (TAG, true, at..at + part.len()));
        }
        start += line.len();
    }
}

/// Returns the length of an opening tag and whether it is hard; `None` unless it is closed somewhere or in capital
/// letters.
fn tag(text: &str, lower: &str, closed: &mut Closed<'_>) -> Option<(usize, bool)> {
    let inner = lower.strip_prefix('<')?;
    let is_it = |(name, _): &(&str, bool)| inner.strip_prefix(name).is_some_and(|rest| rest.starts_with('>'));
    let at = TAGS.iter().position(is_it)?;
    let (name, hard) = TAGS[at];
    let shouts = text[1..=name.len()].bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    (shouts || closed.has(at)).then_some((name.len() + 2, hard || shouts))
}

/// Which of the tags a text closes. Each is searched for once.
struct Closed<'a> {
    lower: &'a str,
    known: [Option<bool>; TAGS.len()],
}

impl Closed<'_> {
    fn has(&mut self, at: usize) -> bool {
        let search = || memchr::memmem::find(self.lower.as_bytes(), format!("</{}>", TAGS[at].0).as_bytes()).is_some();
        *self.known[at].get_or_insert_with(search)
    }
}
