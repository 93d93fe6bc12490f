//! The settings of both ends. docs/protocol.md gives the reasons for the defaults.

use std::sync::Arc;
use std::time::Duration;

use farcall_base::{ArgumentBudget, SharedPath};

use crate::mutant::Mutant;
#[cfg(feature = "secure")]
use crate::secure::{Level, Padding, Suites, Trust};
use crate::{SameUser, Spares};

/// The largest datagram that is sent before a larger one is known to arrive, in bytes.
pub const BASE_DATAGRAM: usize = 1200;

/// An address that has not proven that it receives the server's datagrams gets at most this many times the
/// bytes that it sent.
pub(crate) const AMPLIFICATION: usize = 3;

/// The largest datagram that is ever sent, in bytes: UDP's limit over IPv4.
pub const MAX_DATAGRAM: usize = 65_507;

/// By default, how many bytes of a message a sender on the same machine may send before they are
/// acknowledged. Such bytes fill the receiver's socket, and all other datagrams queue up behind them.
const LOCAL_WINDOW: u32 = 2 << 20;
/// The same bound while other calls are made during a long message.
const SHARED_LOCAL_WINDOW: u32 = 32 << 10;

/// A client's patience with a silent server, unless its calls say otherwise.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The longest silence of a client that a server bears by default.
const MAX_SILENCE: Duration = Duration::from_secs(3600);

/// A client that waits for calls sends something at least this many times within its patience, but not more
/// often than `SHORTEST_INTERVAL` allows.
const WORDS: u32 = 5;
const SHORTEST_INTERVAL: Duration = Duration::from_millis(20);

/// Returns how long a client with this patience is silent at most while it waits for calls (docs/protocol.md,
/// section 6.1).
pub(crate) fn interval(patience: Duration) -> Duration {
    (patience / WORDS).max(SHORTEST_INTERVAL)
}

/// Returns how long a server waits for a silent client with this patience, unless the client's calls say
/// otherwise.
pub(crate) fn silence_of(patience: Duration) -> Duration {
    patience.saturating_add(interval(patience))
}

/// The longest arguments and results that are accepted by default, in bytes: 1 GiB, and 4 KiB for what the
/// stubs add.
const LONGEST: u32 = (1 << 30) + (4 << 10);

/// Settings of the calling end.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The shortest time before a first retransmission or probe.
    pub min_retransmit: Duration,
    /// The longest time between two unanswered retransmissions or probes.
    pub max_retransmit: Duration,
    /// The longest time between two probes of a call that the server says is running.
    pub max_probe: Duration,
    /// A call fails when the server has been silent this long and `patience_probes` probes went unanswered. A
    /// server that hears nothing from the client for six fifths of this time cancels the client's calls.
    pub patience: Duration,
    /// How long a server is to wait for this client when the client is silent, before it cancels the client's
    /// calls. `None`, or a shorter time, stands for six fifths of `patience`. A server may wait less:
    /// [`ServerConfig::max_silence`].
    pub server_patience: Option<Duration>,
    /// How many probes must go unanswered before a call fails; see `patience`.
    pub patience_probes: u32,
    /// Whether a server is given up sooner when the network says that nobody listens at its port.
    pub heeds_refusals: bool,
    /// The maximum number of outstanding calls of one conversation. A further call is refused, `Ran::No`.
    pub max_outstanding: u32,
    /// The largest result that is accepted, in bytes.
    pub max_result: u32,
    /// How many bytes of a long result the server may send before they are acknowledged.
    pub window: u32,
    /// The maximum of `window` if both ends are on one machine.
    pub local_window: u32,
    /// The maximum of `window` if both ends are on one machine and other calls are made during a long
    /// message.
    pub shared_local_window: u32,
    /// Whether the server's address is a loopback address, so that datagrams to it do not leave the machine.
    /// If the server says the same of this client's address, datagrams carry no checksum (docs/protocol.md,
    /// "Tag").
    pub loopback: bool,
    /// The largest datagram that path-MTU probing tries, in bytes; [`BASE_DATAGRAM`] switches probing off.
    pub max_datagram: usize,
    /// How this end shows the server that both are processes of one user, if the server asks.
    pub same_user: Option<SameUser>,
    /// Long empty buffers for reuse. All conversations with clones of this configuration share them.
    pub spares: Arc<Spares>,
    /// The bytes of arguments that unfinished calls keep. All conversations with clones of this configuration
    /// share them.
    pub arguments: Arc<ArgumentBudget>,
    /// What is known of the path that the replies of many servers share. It is told of calls that had to be
    /// sent again. All conversations with clones of this configuration share it.
    pub path: Arc<SharedPath>,
    /// The keys of this end. If there are any, both ends must know one another, and nothing is sent or
    /// accepted without a seal.
    #[cfg(feature = "secure")]
    pub trust: Option<Arc<dyn Trust>>,
    /// How much seals are to protect at least.
    #[cfg(feature = "secure")]
    pub level: Level,
    /// The algorithms that may seal datagrams. ChaCha20-Poly1305 must be among them, because every end has it.
    #[cfg(feature = "secure")]
    pub suites: Suites,
    /// How long datagrams are made that only the two ends can read.
    #[cfg(feature = "secure")]
    pub padding: Padding,
    /// A deliberate fault, for the simulator.
    pub mutant: Mutant,
}

impl ClientConfig {
    /// Returns whether this end has keys, so that datagrams are sealed.
    pub fn has_keys(&self) -> bool {
        #[cfg(feature = "secure")]
        return self.trust.is_some();
        #[cfg(not(feature = "secure"))]
        false
    }
}

impl Default for ClientConfig {
    fn default() -> ClientConfig {
        ClientConfig {
            min_retransmit: Duration::from_millis(20),
            max_retransmit: Duration::from_secs(1),
            max_probe: Duration::from_secs(10),
            patience: PATIENCE,
            server_patience: None,
            patience_probes: 10,
            heeds_refusals: true,
            max_outstanding: 16_384,
            max_result: LONGEST,
            window: 4 << 20,
            local_window: LOCAL_WINDOW,
            shared_local_window: SHARED_LOCAL_WINDOW,
            loopback: false,
            max_datagram: 64_000,
            same_user: None,
            spares: Arc::default(),
            arguments: Arc::default(),
            path: Arc::default(),
            #[cfg(feature = "secure")]
            trust: None,
            #[cfg(feature = "secure")]
            level: Level::Secure,
            #[cfg(feature = "secure")]
            suites: Suites::of_this_machine(),
            #[cfg(feature = "secure")]
            padding: Padding::None,
            mutant: Mutant::NONE,
        }
    }
}

/// Settings of the serving end.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The maximum number of conversations. Beyond this number, the server forgets a conversation that was
    /// idle for long.
    pub max_conversations: usize,
    /// The maximum number of activities of one conversation. A call with a higher activity number is refused,
    /// `Ran::No`.
    pub max_activities: u32,
    /// The maximum number of calls, over all conversations, for which the server keeps anything.
    pub max_kept_calls: usize,
    /// The largest arguments that are accepted, in bytes.
    pub max_arguments: u32,
    /// The maximum of the bytes of arguments that are arriving in fragments, for all conversations together.
    pub reassembly_budget: usize,
    /// The maximum of the bytes of results that are held for retransmission, for all conversations together.
    /// A result of at most 64 bytes is a part of its call, and calls have a maximum of their own.
    pub held_budget: usize,
    /// The maximum of the bytes of results that are being sent in fragments, for all conversations together.
    /// A single result may exceed it.
    pub sending_budget: usize,
    /// How long a result is held if its caller does not acknowledge it.
    pub hold: Duration,
    /// The longest that a client may be silent while its calls are executed, whatever it asks for. Then its
    /// calls are cancelled.
    pub max_silence: Duration,
    /// How many bytes of long arguments clients may send before they are acknowledged, divided among all that
    /// send.
    pub window: u32,
    /// The maximum of `window` if both ends are on one machine.
    pub local_window: u32,
    /// The largest datagram that is sent or echoed.
    pub max_datagram: usize,
    /// If there is one, only clients that prove that they are processes of this user may bind. For servers
    /// without keys at a loopback address.
    pub same_user: Option<SameUser>,
    /// The keys of this end. If there are any, both ends must know one another, and nothing is sent or
    /// accepted without a seal.
    #[cfg(feature = "secure")]
    pub trust: Option<Arc<dyn Trust>>,
    /// How much seals are to protect at least.
    #[cfg(feature = "secure")]
    pub level: Level,
    /// The algorithms that may seal datagrams. ChaCha20-Poly1305 must be among them, because every end has it.
    #[cfg(feature = "secure")]
    pub suites: Suites,
    /// How long datagrams are made that only the two ends can read.
    #[cfg(feature = "secure")]
    pub padding: Padding,
    /// A deliberate fault, for the simulator.
    pub mutant: Mutant,
}

impl ServerConfig {
    /// Returns whether this end has keys, so that datagrams are sealed.
    pub fn has_keys(&self) -> bool {
        #[cfg(feature = "secure")]
        return self.trust.is_some();
        #[cfg(not(feature = "secure"))]
        false
    }
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            max_conversations: 1 << 20,
            max_activities: 16_384,
            max_kept_calls: 1 << 18,
            max_arguments: LONGEST,
            reassembly_budget: 3 << 29,
            held_budget: 64 << 20,
            sending_budget: 3 << 29,
            hold: Duration::from_secs(30),
            max_silence: MAX_SILENCE,
            window: 4 << 20,
            local_window: LOCAL_WINDOW,
            max_datagram: 64_000,
            same_user: None,
            #[cfg(feature = "secure")]
            trust: None,
            #[cfg(feature = "secure")]
            level: Level::Secure,
            #[cfg(feature = "secure")]
            suites: Suites::of_this_machine(),
            #[cfg(feature = "secure")]
            padding: Padding::None,
            mutant: Mutant::NONE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_bounds_are_those_of_the_documents() {
        let (client, server) = (ClientConfig::default(), ServerConfig::default());
        // protocol.md, 5.4, and protocol-policy.md, 5.4.
        assert_eq!(
            (client.local_window, server.local_window, client.shared_local_window),
            (2 << 20, 2 << 20, 32 << 10)
        );
        assert_eq!((client.window, server.window), (4 << 20, 4 << 20));
        // protocol.md, 10: 1 GiB and 4 KiB for one message, 1.5 GiB for all messages.
        assert_eq!((client.max_result, server.max_arguments), (1_073_745_920, 1_073_745_920));
        assert_eq!((server.reassembly_budget, server.sending_budget), (3 << 29, 3 << 29));
        assert_eq!(server.held_budget, 64 << 20);
        // protocol.md, 6.1: a fifth of the patience, but at least 20 ms.
        let intervals = [10_000, 101, 100, 99, 0].map(|patience| interval(Duration::from_millis(patience)));
        let micros = intervals.map(|interval| interval.as_micros());
        assert_eq!(micros, [2_000_000, 20_200, 20_000, 20_000, 20_000]);
    }
}
