//! Deliberate faults: each breaks one rule of the protocol, so that the simulator can show that it
//! would notice. Without the `mutants` feature the switch holds nothing and every test of it is
//! constant.

macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A rule that can be broken on purpose.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Rule { $($(#[$doc])* $name,)* }

        impl Rule {
            /// Every rule that can be broken.
            pub const ALL: &'static [Rule] = &[$(Rule::$name,)*];

            /// The name by which the simulator's `--break` knows it.
            pub fn name(self) -> &'static str {
                match self { $(Rule::$name => $text,)* }
            }
        }
    };
}

mutants! {
    /// A refusal does not consume the call's number.
    RefusalUnrecorded = "refusal-not-recorded",
    /// A cancel that overtakes its call does not consume the number.
    CancelOvertaking = "cancel-overtaking",
    /// A ticket is accepted whatever the horizon.
    HorizonIgnored = "horizon-ignored",
    /// A ticket of an earlier incarnation is accepted.
    StaleIncarnation = "stale-incarnation",
    /// The last sequence number of an activity is not checked.
    DuplicateTable = "duplicate-table",
    /// A ticket's MAC is not checked.
    TicketUnchecked = "ticket-unchecked",
    /// A refusal by a newer incarnation always says that the call did not run.
    RestartSaysNo = "restart-says-no",
    /// A refusal because of the horizon always says that the call did not run.
    HorizonSaysNo = "horizon-says-no",
    /// A refusal of the ticket says that a call did not run though the former end was heard after the new one
    /// began.
    StaleIgnoresSilence = "stale-ignores-silence",
    /// A client believes a hint that its ticket is not accepted, and reports that nothing ran.
    StaleBelieved = "stale-believed",
    /// That a call was cancelled while it ran says that it did not run.
    CancelSaysNo = "cancel-says-no",
    /// That a result is gone says that its call did not run.
    GoneSaysNo = "gone-says-no",
    /// A deadline that passes says that its call did not run.
    DeadlineSaysNo = "deadline-says-no",
    /// A server is given up after half of the patience.
    Impatient = "impatient",
    /// One refused datagram gives a server up.
    RefusedAtOnce = "refused-at-once",
    /// An ICMP error counts that does not quote a datagram of the conversation.
    RefusalUnquoted = "refusal-unquoted",
    /// Giving up on a server whose port is refused says that the call did not run.
    RefusedSaysNo = "refused-says-no",
    /// Calls that were sent in a conversation that is over are sent again in the next.
    LostSessionResends = "lost-session-resends",
    /// A conversation is forgotten, and its ticket is still good.
    ForgetsSilently = "forgets-silently",
    /// A ticket that is refused for want of room may come again.
    FullUnrecorded = "full-not-recorded",
    /// Datagrams of a conversation are accepted from any address.
    AddressUnchecked = "address-unchecked",
    /// The client takes the first result that arrives, whatever its sequence number.
    ResultSequence = "result-sequence",
    /// The checksum of a datagram is not checked.
    ChecksumIgnored = "checksum-ignored",
    /// Giving up on a silent server says that the call did not run.
    TimeoutSaysNo = "timeout-says-no",
    /// A result that is no longer held is computed again.
    ExpiredRunsAgain = "expired-runs-again",
    /// A renewed ticket is dated anew.
    RenewalDatedAnew = "renewal-dated-anew",
    /// Fragments are joined without regard to which call they belong to.
    FragmentsMixed = "fragments-mixed",
    /// The export identifier is not checked.
    ExportUnchecked = "export-unchecked",
    /// Results are never released.
    HeldForever = "held-forever",
    /// Results are sent in fragments however many bytes of others are.
    SendingUnbounded = "sending-unbounded",
    /// A probe is sent even when no call is outstanding.
    IdleProbes = "idle-probes",
    /// An access that comes again when its result is no longer held is executed again, as if it were a
    /// reading.
    AccessRunsAgain = "access-runs-again",
    /// A reading that was answered at once does not consume its number.
    ReadingUnrecorded = "reading-not-recorded",
    /// A reading is answered that is older than what its activity did last.
    ReadingGoesBack = "reading-goes-back",
    /// A reading that was refused, or cancelled ahead, is executed when it comes.
    RefusedReadingRuns = "refused-reading-runs",
    /// A reading that was executed is refused when it comes again and may not be executed any more.
    ReadingRefusedLater = "reading-refused-later",
    /// That a call was given up is taken to be so of the activity's next.
    CancelLeavesMark = "cancel-leaves-mark",
    /// What a procedure gave after its caller had given it up reaches the caller.
    LateResult = "late-result",
    /// A client does not say that its calls are still waited for.
    KeepAliveUnsent = "keep-alive-not-sent",
    /// A server counts a client's silence from when its call began, whatever the client has said since.
    KeepAliveIgnored = "keep-alive-ignored",
    /// A server executes calls of dead clients for ever.
    SilenceIgnored = "silence-ignored",
    /// A detached call is cancelled when its client falls silent.
    DetachedCancelled = "detached-cancelled",
    /// A posted write is done though one before it was not.
    PostEarly = "post-early",
    /// A posted write is done as often as it comes.
    PostAgain = "post-done-again",
    /// Posted writes are done behind one that was refused.
    PostBehindRefused = "post-behind-refused",
    /// The numbers of streams that were forgotten are used again.
    StreamReused = "stream-reused",
    /// What was posted is taken to be done whatever the exporter says.
    FlushBelieves = "flush-believes",
    /// A client at a loopback address uses the local scheme though its server sees it elsewhere.
    LocalUnseen = "local-unseen",
    /// A server takes datagrams in the open scheme for a conversation that has a key (in the scheme for
    /// tests).
    SchemeUnchecked = "scheme-unchecked",
    /// A server answers in the open scheme.
    AnswersOpen = "answers-open",
    /// Senders on one machine keep to no window of their own.
    LocalWindowIgnored = "local-window-ignored",
    /// A call of a high activity makes room for all below it.
    HighActivityReserves = "high-activity-reserves",
    /// A fragment makes room for all that is to come before it.
    FarFragmentReserves = "far-fragment-reserves",
    /// Arguments of which not all have come are never let go for others.
    UnfinishedKept = "unfinished-kept",
    /// When there is no room any host pays, not the one that has most.
    NoShareOfHosts = "no-share-of-hosts",
    /// What has arrived of arguments is said as often as a datagram asks for it.
    AnswersUnbounded = "answers-unbounded",
    /// The clock is read after a call has left, not before (for whoever drives the calling end).
    DepartedLate = "departed-late",
    /// The simulation restores a server from an older snapshot than its checks are told.
    SnapshotTooOld = "snapshot-too-old",
}

/// The fault that a configuration has, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mutant {
    #[cfg(feature = "mutants")]
    rule: Option<Rule>,
}

impl Mutant {
    /// No fault: the protocol as it is specified.
    pub const NONE: Mutant = Mutant {
        #[cfg(feature = "mutants")]
        rule: None,
    };

    /// The fault that breaks `rule`.
    #[cfg(feature = "mutants")]
    pub fn of(rule: Rule) -> Mutant {
        Mutant { rule: Some(rule) }
    }

    /// Whether `rule` is broken.
    #[inline(always)]
    pub fn breaks(self, rule: Rule) -> bool {
        #[cfg(feature = "mutants")]
        return self.rule == Some(rule);
        #[cfg(not(feature = "mutants"))]
        {
            let _ = rule;
            false
        }
    }
}
