//! Writes numbers, times, and text from other processes, for people to read.

use std::time::{Duration, SystemTime};

use farcall_idl::is_order;
pub use farcall_idl::printable;
use indicatif::HumanCount;

/// Escapes characters in JSON that control a terminal. They can occur only in strings, so the JSON keeps its
/// meaning.
pub fn printable_json(text: String) -> String {
    let is_harmful = |c: char| c != '\n' && is_order(c);
    if !text.contains(is_harmful) {
        return text;
    }
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        match is_harmful(c) {
            true => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| clean += &format!("\\u{unit:04x}")),
            false => clean.push(c),
        }
    }
    clean
}

/// Returns whether a line only shows itself on a terminal.
pub fn is_printable(line: &str) -> bool {
    !line.contains(is_order)
}

/// Returns the sum of counts. If it overflows, returns the greatest number, because counts from a peer may be
/// arbitrary.
pub fn total(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}

/// Returns a number of bytes for people, for example `1.2 MB` for `1234567`.
pub fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "kB", "MB", "GB", "TB"] {
        if value < 999.5 {
            let digits = usize::from(value < 9.95 && unit != "B");
            return format!("{value:.digits$} {unit}");
        }
        value /= 1000.0;
    }
    format!("{value:.0} PB")
}

/// Returns a number with separators, for example `1,234,567`.
pub fn count(number: u64) -> String {
    HumanCount(number).to_string()
}

/// Returns a number with a noun, for example `1 call` or `1,234 calls`.
pub fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", count(number))
}

/// Returns the duration in the unit that gives few digits before the point.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        1.0.. => format!("{seconds:.2} s"),
        0.001.. => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{:.1} µs", seconds * 1e6),
    }
}

/// Rounds to `digits` digits after the point, so that JSON has no more digits than were measured.
pub fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

/// Returns a time in the form of RFC 3339, in UTC and to the second.
pub fn timestamp(time: SystemTime) -> String {
    let since = match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i128::from(after.as_secs()),
        Err(before) => {
            -i128::from(before.duration().as_secs()) - i128::from(before.duration().subsec_nanos() > 0)
        }
    };
    let (year, month, day) = civil(since.div_euclid(86_400));
    let second = since.rem_euclid(86_400);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// Returns the date that is `days` after 1970-01-01. The computation lets years begin in March, so that a
/// leap day is the last day of its year.
fn civil(days: i128) -> (i128, i128, i128) {
    let days = days + 719_468; // from 0000-03-01
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let month = (from_march + 2) % 12 + 1;
    let year = year_of_era + era * 400 + i128::from(month <= 2);
    (year, month, day_of_year - (153 * from_march + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn times_are_spelt_as_date_does() {
        let at = |seconds: u64| timestamp(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(at(4_107_542_399), "2100-02-28T23:59:59Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
        let before = SystemTime::UNIX_EPOCH - Duration::from_millis(1);
        assert_eq!(timestamp(before), "1969-12-31T23:59:59Z");
    }

    #[test]
    fn sizes_and_counts_are_short() {
        let sizes = [0, 999, 1_000, 9_949, 9_950, 999_499, 999_500, 56_700_000, u64::MAX].map(size);
        assert_eq!(
            sizes,
            ["0 B", "999 B", "1.0 kB", "9.9 kB", "10 kB", "999 kB", "1.0 MB", "57 MB", "18447 PB"]
        );
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0, 1, 1_000].map(|calls| counted(calls, "call")), ["0 calls", "1 call", "1,000 calls"]);
    }

    #[test]
    fn a_terminal_gets_no_orders() {
        let text = "a\tb\u{1b}[2Jc\u{9b}d\r\n\u{202e}e";
        assert_eq!(printable(text), "a\\tb\\u{1b}[2Jc\\u{9b}d\\u{d}\\n\\u{202e}e");
        let json = serde_json::json!({ text: [text, "\u{7f}\u{2028}é"] });
        let shown = printable_json(json.to_string());
        assert!(!shown.contains(is_order) && shown.contains("\\u009b") && shown.contains('é'), "{shown}");
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), json);
        assert_eq!(total([u64::MAX, 1, 2]), u64::MAX);
    }
}
