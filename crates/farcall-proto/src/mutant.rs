//! Deliberate faults. Each breaks one rule of the protocol, so that the simulator can show that it would
//! notice. Without the feature `mutants` a `Mutant` is empty and breaks nothing.

macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A rule that can be broken on purpose.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Rule { $($(#[$doc])* $name,)* }

        impl Rule {
            /// Every rule that can be broken on purpose.
            pub const ALL: &'static [Rule] = &[$(Rule::$name,)*];

            /// Returns the name of the rule, by which the simulator's option `--break` selects it.
            pub fn name(self) -> &'static str {
                match self { $(Rule::$name => $text,)* }
            }
        }
    };
}

mutants! {
    /// A refusal does not consume the call's number.
    RefusalUnrecorded = "refusal-not-recorded",
    /// A cancel that overtakes its call does not consume the call's number.
    CancelOvertaking = "cancel-overtaking",
    /// A ticket is accepted even if it is not newer than the horizon.
    HorizonIgnored = "horizon-ignored",
    /// A ticket of an earlier incarnation is accepted.
    StaleIncarnation = "stale-incarnation",
    /// A repeated call is not recognised by the last sequence number of its activity.
    DuplicateTable = "duplicate-table",
    /// A ticket's MAC is not checked.
    TicketUnchecked = "ticket-unchecked",
    /// A refusal by a newer incarnation always says that the call did not run.
    RestartSaysNo = "restart-says-no",
    /// A refusal because of the horizon always says that the call did not run.
    HorizonSaysNo = "horizon-says-no",
    /// A refusal of the ticket says that a call did not run, although the former server was heard after the
    /// new one began.
    StaleIgnoresSilence = "stale-ignores-silence",
    /// A client believes an unconfirmed hint that its ticket is not accepted, and reports that nothing ran.
    StaleBelieved = "stale-believed",
    /// A call that was cancelled while it ran is reported as not run.
    CancelSaysNo = "cancel-says-no",
    /// A call whose result is gone is reported as not run.
    GoneSaysNo = "gone-says-no",
    /// A call whose deadline passes is reported as not run.
    DeadlineSaysNo = "deadline-says-no",
    /// A call is sent although its deadline has passed.
    SentTooLate = "sent-too-late",
    /// A server is given up after half of the patience.
    Impatient = "impatient",
    /// One refused datagram gives a server up.
    RefusedAtOnce = "refused-at-once",
    /// An ICMP error counts even if it quotes no datagram of the conversation.
    RefusalUnquoted = "refusal-unquoted",
    /// When the client gives up on a server whose port is refused, it reports the calls as not run.
    RefusedSaysNo = "refused-says-no",
    /// When a conversation is over, calls that were sent in it are sent again in the next conversation.
    LostSessionResends = "lost-session-resends",
    /// A conversation is forgotten, but its ticket is still accepted.
    ForgetsSilently = "forgets-silently",
    /// A ticket that was refused because the server was full may be accepted later.
    FullUnrecorded = "full-not-recorded",
    /// Datagrams of a conversation are accepted from any address.
    AddressUnchecked = "address-unchecked",
    /// The client takes the first result that arrives, whatever its sequence number.
    ResultSequence = "result-sequence",
    /// The checksum of a datagram is not checked.
    ChecksumIgnored = "checksum-ignored",
    /// When the client gives up on a silent server, it reports the calls as not run.
    TimeoutSaysNo = "timeout-says-no",
    /// A repeated call whose result is no longer held runs again.
    ExpiredRunsAgain = "expired-runs-again",
    /// A renewed ticket gets a new date instead of that of the old one.
    RenewalDatedAnew = "renewal-dated-anew",
    /// Fragments are joined without regard to which call they belong to.
    FragmentsMixed = "fragments-mixed",
    /// The export identifier is not checked.
    ExportUnchecked = "export-unchecked",
    /// Results are never released.
    HeldForever = "held-forever",
    /// The budget for results that are being sent in fragments is ignored.
    SendingUnbounded = "sending-unbounded",
    /// A probe is sent even when no call is outstanding.
    IdleProbes = "idle-probes",
    /// A repeated access whose result is no longer held runs again, which only readings may.
    AccessRunsAgain = "access-runs-again",
    /// A reading that was answered at once does not consume its number.
    ReadingUnrecorded = "reading-not-recorded",
    /// A reading is answered although its activity has already done something newer.
    ReadingGoesBack = "reading-goes-back",
    /// A reading that was refused, or cancelled before it arrived, runs when a copy of it arrives.
    RefusedReadingRuns = "refused-reading-runs",
    /// A reading that has run may be reported as not run when it comes again and cannot run again.
    ReadingRefusedLater = "reading-refused-later",
    /// The given-up mark of a call stays set for the activity's next call.
    CancelLeavesMark = "cancel-leaves-mark",
    /// A result that comes after its caller gave the call up still reaches the caller.
    LateResult = "late-result",
    /// A client does not tell the server that it still waits for its calls.
    KeepAliveUnsent = "keep-alive-not-sent",
    /// A server counts a client's silence from the beginning of the call, even if it has heard the client
    /// since.
    KeepAliveIgnored = "keep-alive-ignored",
    /// A server lets calls of dead clients run for ever.
    SilenceIgnored = "silence-ignored",
    /// A fragment that counted as lost, and has arrived after all, tells its sender no longer round trip.
    LateUnlearnt = "late-fragment-unlearnt",
    /// A fragment that comes again because a client has asked too early tells it no longer round trip.
    SecondFragmentUnlearnt = "second-fragment-unlearnt",
    /// A server does not heed how long a client asks it to wait when the client is silent.
    SilenceUnheeded = "silence-unheeded",
    /// A server does not ask a client about a call of which the client says nothing.
    WantedUnasked = "wanted-not-asked",
    /// A client does not say that nobody waits for a call about which the server asks.
    UnwantedUnanswered = "unwanted-not-answered",
    /// A detached call is cancelled when its client falls silent.
    DetachedCancelled = "detached-cancelled",
    /// A server that drains says that calls which it has received are not executed.
    DrainClaimsAll = "drain-claims-all",
    /// A client takes a late DRAIN of an earlier server for a word of the present one.
    LateDrainBelieved = "late-drain-believed",
    /// A server that drains tells only the clients that have called.
    UncalledUntold = "uncalled-untold",
    /// A server that drains tells no client.
    DrainUntold = "drain-untold",
    /// A client takes no notice of a drain.
    DrainUnheard = "drain-unheard",
    /// A client that is told of a drain asks no sooner for calls whose outcomes it lacks.
    DrainAsksLate = "drain-asks-late",
    /// A server that drains does not wait for clients that it has forgotten.
    ForgottenUnheard = "forgotten-unheard",
    /// A posted write is executed although an earlier one was not.
    PostEarly = "post-early",
    /// A posted write is executed each time it arrives.
    PostAgain = "post-done-again",
    /// Posted writes are executed after one that was refused.
    PostBehindRefused = "post-behind-refused",
    /// The numbers of forgotten streams are used again.
    StreamReused = "stream-reused",
    /// A flush counts all posted writes as executed, however few the exporter acknowledges.
    FlushBelieves = "flush-believes",
    /// A client is let in by any proof that it is a process of the server's user.
    UserUnproven = "user-unproven",
    /// A proof that a client is a process of the server's user is good at every server.
    UserProofMoves = "user-proof-moves",
    /// The ticket that challenges a client to prove its user admits its conversation.
    ChallengeAdmits = "challenge-admits",
    /// A client at a loopback address uses the local scheme although its server sees it elsewhere.
    LocalUnseen = "local-unseen",
    /// A server accepts datagrams in the open scheme for a conversation that has secrets.
    SchemeUnchecked = "scheme-unchecked",
    /// A server acts on a sealed datagram as often as it comes.
    ReplayIgnored = "replay-ignored",
    /// A server computes as many handshakes as clients ask for.
    HandshakesUnbounded = "handshakes-unbounded",
    /// A server computes a handshake again whose first message comes again.
    ComputedAgain = "computed-again",
    /// Hosts have turns of their own, however many of them are in one network.
    HostsAlone = "hosts-take-turns-alone",
    /// A server keeps no half of its time for handshakes of clients that have been there before.
    KnownUnshared = "no-half-for-known-clients",
    /// A ticket makes every client known that shows it, however many do at once.
    TicketShared = "ticket-makes-many-known",
    /// A client that comes again when a server has told it to has no place before others.
    WaitWithoutTurn = "wait-without-turn",
    /// A server checks what a client shows before the client has proven its key.
    GrantsBeforeProof = "grants-before-proof",
    /// A server computes handshakes for addresses that have not proven themselves.
    ProofUnchecked = "proof-unchecked",
    /// A server does not look again at what a handshake depends on, after it has computed it.
    ComputedUnchecked = "computed-handshake-unchecked",
    /// A server lets a client resume that is no longer accepted.
    RevocationIgnored = "revocation-ignored",
    /// A server resumes conversations however long ago their last handshake was.
    ResumedForEver = "resumed-for-ever",
    /// A server adds no random bytes of its own to the keys of a resumed conversation.
    ResumptionUnmixed = "resumption-unmixed",
    /// A client accepts any server for any name.
    ServerUnchecked = "server-unchecked",
    /// A client looks again only at what the server has shown in its handshake, not for the other names.
    NamesUnchecked = "names-unchecked",
    /// All names of a conversation fall with what the server has shown in its handshake.
    NamesFallTogether = "names-fall-together",
    /// A client believes answers that are not sealed.
    UnsealedBelieved = "unsealed-believed",
    /// A server acts a second time on the datagram by which a conversation began.
    FirstUnnoted = "first-datagram-not-noted",
    /// A client acts on a sealed datagram as often as it comes.
    AnswersReplayed = "answers-replayed",
    /// An end goes on to the next phase although the other end has not followed to this one.
    PhaseUnconfirmed = "phase-not-confirmed",
    /// An end goes on sealing in a phase in which it does not hear the other end.
    PhaseUnlimited = "phase-not-limited",
    /// The seal of an answer does not depend on the question.
    AnswerUnbound = "answer-to-another-question",
    /// A server uses one ticket key for ever.
    TicketKeysKept = "ticket-keys-kept",
    /// Calls that were bound at one server go to another one that answers at its address.
    CallsFollow = "calls-follow-the-address",
    /// A server answers in the open scheme.
    AnswersOpen = "answers-open",
    /// Senders on one machine ignore the smaller local window.
    LocalWindowIgnored = "local-window-ignored",
    /// A call with a high activity number allocates places for all lower numbers.
    HighActivityReserves = "high-activity-reserves",
    /// A fragment allocates memory for all bytes before it.
    FarFragmentReserves = "far-fragment-reserves",
    /// Arguments that have come only in part are kept even beyond their memory budget.
    UnfinishedKept = "unfinished-kept",
    /// When room runs out, any host may have to give way, not the one that uses most.
    NoShareOfHosts = "no-share-of-hosts",
    /// When room runs out, hosts are compared without regard to their networks.
    NoShareOfNetworks = "no-share-of-networks",
    /// A SELECT of arguments is queued for every request, not only once.
    AnswersUnbounded = "answers-unbounded",
    /// The clock is read after a call was sent, not before. This is a fault of the driver, not of the
    /// protocol code.
    DepartedLate = "departed-late",
    /// The simulation restores an older snapshot of a server than it tells its checks.
    SnapshotTooOld = "snapshot-too-old",
    /// The sender of a direction ignores how far its receiver lets it go.
    CreditIgnored = "credit-ignored",
    /// A result is delivered before the items that come before it.
    ResultEarly = "result-before-items",
    /// A server keeps the exchanges of a call that its caller gave up.
    ExchangesKept = "exchanges-kept",
    /// The receiver of a direction does not acknowledge its end.
    EndUnacknowledged = "end-not-acknowledged",
    /// A failure says that a call did not run, although something came in its exchanges.
    TouchedSaysNo = "touched-says-no",
    /// The bytes of a DATA that comes again are delivered again.
    DataTwice = "data-delivered-twice",
    /// A STOP is not sent again when nothing answers it.
    StopOnce = "stop-not-repeated",
    /// A call fails of which nothing arrives, although the other end answers questions about it.
    NarrowPathEnds = "narrow-path-waits",
    /// Bytes that arrive ahead of a gap are delivered before those of the gap.
    DataUnordered = "data-out-of-order",
    /// The sender of a direction sends nothing again on a timer.
    DataUnrepeated = "data-not-repeated",
    /// A sender without credit does not ask for it again.
    CreditUnasked = "credit-not-asked-again",
    /// A receiver grants credit as bytes arrive, not as they are taken.
    CreditOnArrival = "credit-on-arrival",
    /// A receiver takes bytes that are beyond the credit that it gave.
    CreditExceeded = "credit-exceeded",
    /// A sender goes no further than the latest limit, though an earlier one was higher.
    CreditTakenBack = "credit-taken-back",
    /// A sender that was restored from an earlier state ignores a report of more bytes than it has sent
    /// since.
    CreditBeyond = "credit-beyond-ignored",
    /// An end that receives STOP goes on sending.
    StopIgnored = "stop-ignored",
    /// A direction that its receiver has stopped does not count as received, so the result waits for it.
    StopUncounted = "stop-not-counted",
    /// A DATA of an exchange that is over opens the exchange again.
    ExchangeReopened = "exchange-opened-again",
    /// The peer may open exchanges with numbers that are this end's to use.
    NumbersUnchecked = "numbers-unchecked",
    /// A server does not end its directions before it gives the result.
    DirectionsUnended = "directions-not-ended",
    /// DATA of an earlier call of the activity is taken for the present call's.
    DataOfOtherCall = "data-of-another-call",
    /// What exchanges hold at a server has no budget.
    ExchangesUnbounded = "exchanges-unbounded",
    /// News that the user does not ask for are kept without a bound.
    NewsUnbounded = "news-unbounded",
    /// When a call ends, what its exchanges had under way still counts as under way.
    InFlightKept = "in-flight-kept",
    /// A server believes any proof of a client at a meeting.
    MeetingProofUnchecked = "meeting-proof-unchecked",
    /// A client believes any proof of a server at a meeting.
    MeetingAnswerUnchecked = "meeting-answer-unchecked",
    /// Both ends of a meeting prove their secrets by the same bytes.
    MeetingProofsAlike = "meeting-proofs-alike",
    /// The proofs of a meeting do not depend on the server's challenge.
    MeetingChallengeIgnored = "meeting-challenge-ignored",
    /// The proofs of a meeting do not depend on which processes meet.
    MeetingProcessesIgnored = "meeting-processes-ignored",
    /// The proofs of a meeting do not depend on what the client says there.
    MeetingBodyIgnored = "meeting-body-ignored",
    /// The proofs of a meeting do not depend on the address at which the client looks for the server.
    MeetingAddressIgnored = "meeting-address-ignored",
    /// A server does not check whether the ticket that a client shows at a meeting is good.
    MeetingTicketUnchecked = "meeting-ticket-unchecked",
    /// A server does not check whether a client at a meeting says the same of its ticket as the ticket does.
    MeetingHolderUnchecked = "meeting-holder-unchecked",
    /// A client proves itself at a meeting to a server that it accepts no more.
    MeetingServerUnchecked = "meeting-server-unchecked",
    /// What was made at a meeting goes on when the conversation ends.
    MeetingOutlives = "meeting-outlives-conversation",
    /// A conversation whose client was met is forgotten to make room for another.
    MeetingGivesWay = "meeting-gives-way",
    /// A round trip that was not measured counts as short.
    UnmeasuredIsShort = "unmeasured-is-short",
    /// A client of whose first question no round trip could be measured measures none from a long result.
    PullUnmeasured = "pull-unmeasured",
    /// A window that shrank although nothing was lost stays as it is.
    LateIsLost = "late-is-lost",
    /// A receiver does not take the bytes of a new direction for which it has lent credit.
    LoanRefused = "loan-refused",
    /// A client lends credit however much of it is lent.
    LoansUnbounded = "loans-not-bounded",
    /// Calls that fit a datagram do not count as bytes under way.
    ShortCallsUncounted = "short-calls-not-counted",
    /// A client whose calls wait for room does not ask which calls have left the path.
    RoomUnasked = "room-not-asked",
    /// The bytes of a short call that ends stay counted as under way.
    ShortCallsKept = "short-calls-kept",
    /// A direction begins with more credit than was lent.
    LoanExceeded = "loan-exceeded",
}

impl Rule {
    /// The rules of exchanges that short random runs of both ends notice, too (`tests/exchanges_random.rs`).
    pub const OF_EXCHANGES: &'static [Rule] = &[
        Rule::CreditIgnored,
        Rule::ResultEarly,
        Rule::ExchangesKept,
        Rule::EndUnacknowledged,
        Rule::TouchedSaysNo,
        Rule::DataTwice,
        Rule::DataUnordered,
        Rule::DataUnrepeated,
        Rule::CreditOnArrival,
        Rule::StopIgnored,
        Rule::StopUncounted,
        Rule::DirectionsUnended,
        Rule::InFlightKept,
    ];

    /// The rules that only a hostile peer tests, or a server that was restored and then sends less than
    /// before. Both ends of the simulator keep the protocol, and few of its runs restore a server, so the
    /// simulator rarely notices when one of these rules is broken. `tests/attacks.rs` notices.
    pub const OF_ATTACKS: &'static [Rule] = &[
        Rule::CreditBeyond,
        Rule::CreditExceeded,
        Rule::CreditTakenBack,
        Rule::NumbersUnchecked,
        Rule::ExchangesUnbounded,
        Rule::NewsUnbounded,
    ];

    /// The rules of handshakes that runs of the simulator do not notice, or rarely, because they protect a
    /// server's time, or against keys that are revoked or stolen later. `tests/secrets.rs`,
    /// `tests/short_phases.rs` and `tests/server_names.rs` notice.
    pub const OF_HANDSHAKES: &'static [Rule] = &[
        Rule::ProofUnchecked,
        Rule::ComputedUnchecked,
        Rule::RevocationIgnored,
        Rule::ResumedForEver,
        Rule::ResumptionUnmixed,
        Rule::AnswerUnbound,
        Rule::TicketKeysKept,
        Rule::CallsFollow,
        Rule::NamesUnchecked,
        Rule::NamesFallTogether,
        Rule::PhaseUnconfirmed,
        Rule::PhaseUnlimited,
    ];

    /// The rules by which a server shares its time between handshakes. `tests/handshake_shares.rs` notices,
    /// and so do floods in the simulator.
    pub const OF_SHARES: &'static [Rule] = &[
        Rule::HandshakesUnbounded,
        Rule::ComputedAgain,
        Rule::HostsAlone,
        Rule::KnownUnshared,
        Rule::TicketShared,
        Rule::WaitWithoutTurn,
        Rule::GrantsBeforeProof,
    ];

    /// The rules of meetings, which the simulator has none of. `tests/meetings.rs` notices.
    pub const OF_MEETINGS: &'static [Rule] = &[
        Rule::MeetingProofUnchecked,
        Rule::MeetingAnswerUnchecked,
        Rule::MeetingProofsAlike,
        Rule::MeetingChallengeIgnored,
        Rule::MeetingProcessesIgnored,
        Rule::MeetingBodyIgnored,
        Rule::MeetingAddressIgnored,
        Rule::MeetingTicketUnchecked,
        Rule::MeetingHolderUnchecked,
        Rule::MeetingServerUnchecked,
        Rule::MeetingOutlives,
        Rule::MeetingGivesWay,
    ];

    /// The rules of proofs that a client is a process of the server's user. `tests/same_user.rs` notices.
    pub const OF_USERS: &'static [Rule] = &[Rule::UserUnproven, Rule::UserProofMoves, Rule::ChallengeAdmits];

    /// The rules that tests of drains notice: the simulator does not count a call as lost that may have run.
    pub const OF_DRAINS: &'static [Rule] = &[
        Rule::DrainUntold,
        Rule::DrainUnheard,
        Rule::UncalledUntold,
        Rule::DrainAsksLate,
        Rule::ForgottenUnheard,
    ];

    /// The rules by which a server learns of calls that were given up. Few runs of the simulator need them: a
    /// call's caller gives it up unheard, makes no further call of its activity, and waits for another one
    /// for long. `tests/silence.rs` notices.
    pub const OF_GIVEN_UP: &'static [Rule] = &[Rule::WantedUnasked, Rule::UnwantedUnanswered];

    /// The rules by which ends learn a longer round trip. The simulator counts no datagrams that are sent
    /// again in vain. `tests/round_trips.rs` notices.
    pub const OF_ROUND_TRIPS: &'static [Rule] = &[Rule::LateUnlearnt, Rule::SecondFragmentUnlearnt];

    /// The rule by which a client that knows only a bound of the round trip measures one.
    /// `tests/round_trips.rs` notices.
    pub const OF_BOUNDS: &'static [Rule] = &[Rule::PullUnmeasured];

    /// The rules by which an end tells what is late from what is lost. To break one makes calls slow and not
    /// wrong, so the simulator's laws of bytes in time notice
    /// (`farcall-sim/tests/simulation/bytes_in_time.rs`, and `crowds.rs` beside it).
    pub const OF_TIME: &'static [Rule] = &[
        Rule::UnmeasuredIsShort,
        Rule::LateIsLost,
        Rule::LoanRefused,
        Rule::ShortCallsUncounted,
        Rule::RoomUnasked,
    ];

    /// The rules of lent credit that only a peer tests whose bytes nobody takes. `tests/lent_credit.rs` notices.
    pub const OF_LOANS: &'static [Rule] = &[Rule::LoansUnbounded];

    /// Returns whether runs of the simulator notice when this rule is broken. Tests of `farcall-proto` notice
    /// the others.
    pub fn is_simulated(&self) -> bool {
        let others = [
            Rule::OF_ATTACKS,
            Rule::OF_HANDSHAKES,
            Rule::OF_SHARES,
            Rule::OF_MEETINGS,
            Rule::OF_USERS,
            Rule::OF_DRAINS,
            Rule::OF_GIVEN_UP,
            Rule::OF_ROUND_TRIPS,
            Rule::OF_BOUNDS,
            Rule::OF_TIME,
            Rule::OF_LOANS,
        ];
        !others.iter().any(|rules| rules.contains(self))
    }
}

/// The fault that a configuration has, if any.
pub type Mutant = farcall_base::mutant::Mutant<Rule>;
