//! Deliberate faults of balancers, groups, drains, clerks and signals. Each breaks one rule, so that the
//! simulation can show that it would notice. The simulated [`Env`](crate::env::Env) says which rule is
//! broken. Without the feature `mutants` nothing is broken, and nobody is asked.

/// A rule that can be broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A drain returns when the calls that have begun are finished and no more come.
    DrainWaits,
    /// A balanced call that a draining member has refused is tried at another member.
    RefusedIsTriedElsewhere,
    /// A call of a group whose members are known waits little for a silent registry.
    KnownMembersServe,
    /// A started call that must be bound waits for the registry without blocking a thread of the tasks.
    TasksAskAside,
    /// A silent member is asked in the background whether it answers, before a balanced call tries it.
    SilentIsAskedFirst,
    /// While a registry lists nobody who takes calls, its former members get calls as long as they take them.
    UnlistedIsKept,
    /// While the registry is late, a server is asked where the registry listed it last.
    LateRegistryIsPassedBy,
    /// A balanced call in which a handler of its caller ran is not made again.
    HandledIsNotRepeated,
    /// A balanced call that former members did not answer goes to the present ones once more.
    FormerGiveBack,
    /// A timer that is set to an earlier time than all others interrupts the thread that waits for these.
    EarlierTimeInterrupts,
    /// Of the times to which a timer was set, the last one counts.
    LastTimeCounts,
    /// The servers of a group call are probed while the user's own code runs.
    ProbingGoesOn,
    /// A call of a group that hangs holds no room: further members are called although none has replied.
    HungHoldsNoRoom,
    /// No more calls of groups are under way than the path carries.
    PathShared,
    /// A clerk that is not believed is passed over.
    DistrustedClerkIsPassedOver,
    /// A signal reaches no caller of another interface, though names and types are equal.
    SignalOfItsInterface,
    /// A handler is told which procedure has raised the signal.
    RaiserIsNamed,
    /// The outcome with which a handler unwinds a call must be one of the procedure.
    UnwindingIsChecked,
    /// A caller leaves with its handler's outcome only if the server says that the procedure was unwound.
    UnwindingIsConfirmed,
}

/// The fault that a simulated process has, if any.
pub type Mutant = crate::mutant::Mutant<Rule>;
