//! Feeds that read late: how much they may have unread, and what is still kept of the past.

use super::*;

#[test]
fn a_feed_may_have_a_mebibyte_unread_and_more_only_of_before() {
    let (record, _) = record();
    let watcher = record.watch(At::Socket, Arguments::None).unwrap();
    // Each costs 1,184 bytes: 885 of them fit.
    for line in 0..886 {
        assert!(
            matches!(watcher.after(0, 1, 0), Read::Events(events) if events.len() == usize::from(line > 0)),
            "{line}"
        );
        say(&record, "a", &"x".repeat(1024), second(line / 100));
    }
    assert!(matches!(watcher.after(0, 1, 0), Read::Missed(886)));
    assert!(matches!(watcher.after(1, 1, 0), Read::Events(events) if events[0].seq == 2));
    // A feed that resumes reads all that is kept, and may be late only with what comes then.
    assert!(matches!(watcher.after(0, 1, 886), Read::Events(events) if events[0].seq == 1));
    for line in 0..885 {
        say(&record, "a", &"x".repeat(1024), second(10 + line / 100));
    }
    assert!(matches!(watcher.after(0, 1, 886), Read::Events(events) if events[0].seq == 1));
    say(&record, "a", &"x".repeat(1024), second(30));
    assert!(matches!(watcher.after(0, 1, 886), Read::Missed(1772)));
    assert!(matches!(watcher.after(0, 1, 1772), Read::Events(_)), "it is kept for one that comes later");
}

#[test]
fn a_mebibyte_of_small_events_is_kept_though_they_are_many() {
    let (record, _) = record();
    let watcher = record.watch(At::Socket, Arguments::None).unwrap();
    // Each costs 130 bytes.
    (0..8000).for_each(|at| record.happened(Part::Config, "{}", second(at)));
    assert!(matches!(watcher.after(0, 1, 0), Read::Events(events) if events[0].seq == 1));
    (0..1000).for_each(|at| record.happened(Part::Config, "{}", second(at)));
    assert!(matches!(watcher.after(0, 1, 0), Read::Missed(9000)));
}

#[test]
fn the_past_of_a_feed_that_reads_late_is_what_is_still_kept() {
    let (record, observer) = record();
    let watcher = record.watch(At::Socket, Arguments::None).unwrap();
    say(&record, "a", "early", second(1));
    begin(&observer, second(1), "git", "push").finish(Some(&answered()));
    let (_, mut past) = watcher.past(10, &all());
    record.limit(1000, 0);
    record.limit(1, 1000);
    begin(&observer, second(2), "git", "pull").finish(Some(&answered()));
    (0..9000).for_each(|at| record.happened(Part::Config, "{}", second(at)));
    assert!(matches!(past.take(1), Some((events, 1)) if events.is_empty()));
    assert!(matches!(past.take(10), Some((events, 1)) if events.is_empty()));
    assert!(past.take(10).is_none());
    // Entries that are kept are shown.
    say(&record, "a", "late", second(3));
    let shown = written(watcher.past(10, &all()).1.kept(), &all());
    assert_eq!((&shown[0]["tool"], &shown[1]["text"]), (&json!("pull"), &json!("late")), "{shown:?}");
}
