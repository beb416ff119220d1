//! Parses `Retry-After`, however a server wrote it (`docs/hazards.md` H19).

use std::time::{Duration, SystemTime};

use http::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};

/// The shortest wait, whatever the server says.
const LEAST: Duration = Duration::from_secs(1);
/// The longest wait, whatever the server says.
const MOST: Duration = Duration::from_secs(300);

/// Returns the wait before the next request, if the headers of a 429 or 503 name one.
pub(crate) fn after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().unwrap_or_default().trim();
    let date = |name: &HeaderName| httpdate::parse_http_date(headers.get(name)?.to_str().ok()?).ok();
    let wait = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that is too large for its type means the longest wait.
        text.parse().map_or(MOST, Duration::from_secs)
    } else {
        // A date is read by the server's own clock, which may differ from ours. Any other text means the shortest wait.
        let until = httpdate::parse_http_date(text).ok();
        until.and_then(|until| until.duration_since(date(&DATE).unwrap_or(now)).ok()).unwrap_or(LEAST)
    };
    Some(wait.clamp(LEAST, MOST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h19_whatever_stands_there_is_a_second_to_five_minutes() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let wait = |value: &str, date: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, value.parse().unwrap());
            if let Some(date) = date {
                headers.insert(DATE, date.parse().unwrap());
            }
            after(&headers, now).unwrap().as_secs()
        };
        let cases = [
            ("0", 1),
            ("1", 1),
            ("2", 2),
            ("7", 7),
            ("299", 299),
            ("300", 300),
            ("301", 300),
            ("86400", 300),
            ("99999999999999999999999", 300),
            ("-5", 1),
            ("1.5", 1),
            ("1e9", 1),
            ("soon", 1),
            ("", 1),
            ("5, 6", 1),
            ("Sun, 06 Nov 1994 08:49:37 GMT", 1),
            ("Sun, 06 Nov 1994 08:49:57 GMT", 20),
            ("Sunday, 06-Nov-94 08:49:57 GMT", 20),
            ("Sun, 06 Nov 1994 08:48:00 GMT", 1),
            ("Thu, 31 Dec 2099 23:59:59 GMT", 300),
            ("Thu, 99 Foo 2099 23:59:59 GMT", 1),
        ];
        for (value, want) in cases {
            assert_eq!(wait(value, None), want, "{value:?}");
        }
        // By the server's own clock.
        let date = Some("Sun, 06 Nov 1994 09:00:00 GMT");
        assert_eq!(wait("Sun, 06 Nov 1994 09:00:30 GMT", date), 30);
        assert_eq!(wait("Sun, 06 Nov 1994 09:00:30 GMT", Some("today")), 300);
        assert_eq!(after(&HeaderMap::new(), now), None);
    }
}
