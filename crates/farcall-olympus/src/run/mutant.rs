//! Deliberate faults. Each breaks one rule of runs, so that the simulation can show that it would notice.
//! Without the feature `mutants` a [`Mutant`] is empty, and breaks nothing.

/// A rule that can be broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The start of a call is written in the journal.
    StartIsWritten,
    /// The journal is written before the calls are sent whose starts it has.
    WrittenBeforeSent,
    /// The end of a firing is written in the journal.
    EndIsWritten,
    /// The tokens of a call that did not run go back once.
    PutBackOnce,
    /// The tokens of a call that did not run go back.
    PutBack,
    /// The tokens of a call that may have run do not go back.
    MaybeStops,
    /// Only what is idempotent is called again when it may have run.
    OnlyIdempotentAgain,
    /// A call that was under way when the interpreter was killed may have run.
    KilledIsMaybe,
    /// A firing that has stopped is shown.
    StoppedIsShown,
}

impl Rule {
    /// Every rule that can be broken on purpose.
    pub const ALL: [Rule; 9] = [
        Rule::StartIsWritten,
        Rule::WrittenBeforeSent,
        Rule::EndIsWritten,
        Rule::PutBackOnce,
        Rule::PutBack,
        Rule::MaybeStops,
        Rule::OnlyIdempotentAgain,
        Rule::KilledIsMaybe,
        Rule::StoppedIsShown,
    ];
}

/// The fault that a run has, if any.
pub type Mutant = farcall_base::mutant::Mutant<Rule>;
