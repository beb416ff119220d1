//! Durations and sizes, always with a unit, so that a number is never mistaken for milliseconds.

use std::time::Duration;

const TIMES: [(&str, f64); 5] = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0)];
const SIZES: [(&str, usize); 4] = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

/// The longest duration that is accepted: timers do not overflow with it, and no one needs a longer one.
const LONGEST: Duration = Duration::from_secs(366 * 86400);

/// Parses a duration with its unit: `500ms`, `1.5s`, `2m`, `1h`, `1d`.
#[must_use]
pub fn time(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let (_, seconds) = TIMES.iter().find(|(name, _)| *name == unit)?;
    seconds_f64(number * seconds)
}

/// Converts a number of seconds, as other clients write durations.
pub(super) fn seconds_f64(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok().filter(|time| *time <= LONGEST)
}

/// Parses a size with its unit, and returns it in bytes: `512B`, `64KiB`, `16MiB`, `1GiB`.
pub(super) fn size(text: &str) -> Option<usize> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: usize = text[..digits].parse().ok()?;
    let (_, bytes) = SIZES.iter().find(|(name, _)| *name == text[digits..].trim_start())?;
    number.checked_mul(*bytes)
}

fn split(text: &str) -> Option<(f64, &str)> {
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    Some((text[..digits].parse().ok()?, text[digits..].trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_by_the_table() {
        for (text, expected) in [
            ("500ms", Some(Duration::from_millis(500))),
            ("1.5s", Some(Duration::from_millis(1500))),
            ("2 m", Some(Duration::from_secs(120))),
            ("1h", Some(Duration::from_secs(3600))),
            ("0s", Some(Duration::ZERO)),
            ("", None),
            ("30", None),
            ("s", None),
            ("-1s", None),
            ("1e9s", None),
            ("1..5s", None),
            ("30sec", None),
            ("9999999999999999999999999d", None),
        ] {
            assert_eq!(time(text), expected, "{text}");
        }
    }

    #[test]
    fn sizes_by_the_table() {
        for (text, expected) in [
            ("16MiB", Some(16 << 20)),
            ("64 KiB", Some(64 << 10)),
            ("0B", Some(0)),
            ("16", None),
            ("1.5MiB", None),
            ("16MB", None),
            ("", None),
            ("99999999999999999999GiB", None),
            ("18446744073709551615GiB", None),
        ] {
            assert_eq!(size(text), expected, "{text}");
        }
    }
}
