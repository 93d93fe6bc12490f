//! The order in which blocks run: a, b, b, a.
use anyhow::Result;

/// Runs the blocks a, b, b, a and returns b ÷ a for each pair of neighbours. A machine that drifts
/// slows a and b alike; one that gets steadily slower favours a in the first pair as much as b in
/// the second.
pub fn abba(mut a: impl FnMut() -> Result<f64>, mut b: impl FnMut() -> Result<f64>) -> Result<[f64; 2]> {
    let first = a()?;
    let second = b()?;
    let third = b()?;
    let fourth = a()?;
    Ok([second / first, third / fourth])
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn each_b_has_an_a_beside_it() {
        let clock = Cell::new(100.0);
        let block = || Ok(clock.replace(clock.get() + 1.0));
        assert_eq!(abba(block, block).unwrap(), [101.0 / 100.0, 102.0 / 103.0]);
    }
}
