//! Deliberate faults, so that a simulation can show that it would notice. Without the feature `mutants` a
//! [`Mutant`] is empty, and breaks nothing.

#[cfg(not(feature = "mutants"))]
use std::marker::PhantomData;

/// A fault that breaks one of the rules `R`, or none.
///
/// ```
/// use farcall_base::mutant::Mutant;
///
/// #[derive(Clone, Copy, Debug, PartialEq, Eq)]
/// enum Rule {
///     OneExecution,
/// }
///
/// assert!(!Mutant::NONE.breaks(Rule::OneExecution));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutant<R> {
    #[cfg(feature = "mutants")]
    rule: Option<R>,
    #[cfg(not(feature = "mutants"))]
    rules: PhantomData<R>,
}

impl<R> Mutant<R> {
    /// No fault: every rule holds.
    pub const NONE: Mutant<R> = Mutant {
        #[cfg(feature = "mutants")]
        rule: None,
        #[cfg(not(feature = "mutants"))]
        rules: PhantomData,
    };
}

impl<R: PartialEq> Mutant<R> {
    /// Returns the fault that breaks `rule`.
    #[cfg(feature = "mutants")]
    pub fn of(rule: R) -> Mutant<R> {
        Mutant { rule: Some(rule) }
    }

    /// Returns whether this fault breaks `rule`.
    #[inline(always)]
    pub fn breaks(self, rule: R) -> bool {
        #[cfg(feature = "mutants")]
        return self.rule == Some(rule);
        #[cfg(not(feature = "mutants"))]
        {
            let _ = rule;
            false
        }
    }
}

impl<R> Default for Mutant<R> {
    fn default() -> Mutant<R> {
        Mutant::NONE
    }
}
