//! Times as people write them: a number and a unit, as `10ms` or `1.5s`. They are exact to the nanosecond.

use std::time::Duration;

/// The units, with their nanoseconds. Printing tries them in this order.
const UNITS: [(&str, u64); 6] = [
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// The longest time: a graph's clock shows no later one.
pub const MAX: Duration = Duration::from_nanos(u64::MAX);

/// What is said of a longer one.
pub const TOO_LONG: &str = "a time is at most 18446744073709551615ns, about 584 years";

/// Reads a time.
pub fn parse(text: &str) -> Result<Duration, String> {
    let expected = || "a time was expected here, as 10ms, 1.5s, 2min or 1h".to_owned();
    let long = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(long);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || whole.len() > 30 || fraction.len() > 9 || fraction.contains('.') {
        return Err(expected());
    }
    let nanos = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(expected)?.1;
    let scale = 10u128.pow(fraction.len() as u32);
    let digits: u128 = format!("{whole}{fraction}").parse().map_err(|_| expected())?;
    let scaled = digits.checked_mul(u128::from(nanos)).ok_or(TOO_LONG)?;
    if !scaled.is_multiple_of(scale) {
        return Err("a time is a whole number of nanoseconds".to_owned());
    }
    let total = u64::try_from(scaled / scale).map_err(|_| TOO_LONG)?;
    Ok(Duration::from_nanos(total))
}

/// Writes a time in the largest unit of which it is a whole multiple.
pub fn print(time: Duration) -> String {
    let nanos = time.as_nanos();
    let fits = |(_, unit): &&(&str, u64)| nanos.is_multiple_of(u128::from(*unit));
    let (name, unit) = if nanos == 0 { ("s", 1) } else { *UNITS.iter().find(fits).unwrap_or(&("ns", 1)) };
    format!("{}{name}", nanos / u128::from(unit))
}
