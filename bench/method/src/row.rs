//! One measured figure with all that belongs to it: the flat object that every bench writes as JSON.
use serde::Serialize;

use crate::counters::Counts;
use crate::peer::Mode;
use crate::stats::Estimate;

/// A row. A field is omitted if it does not apply or could not be measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// The subcommand.
    pub bench: String,
    /// `farcall`, `raw`, `tonic`, …
    pub peer: String,
    /// The transport.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    /// The operation on memory or files: `read`, `cas`, `getattr`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// The structure of the file service: `DX`, `HY`, `RPC`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structure: Option<String>,
    /// How both sides wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The bytes of payload of a call and of its result; 0 is the null call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
    /// Which way the payload goes, if not both ways.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// The number of outstanding calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outstanding: Option<usize>,
    /// The number of blocking threads, if there is more than one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// The calls that a second client has outstanding meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<usize>,
    /// The fraction of both clients' calls that this client makes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// The percentage of calls that sleep in the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_percent: Option<usize>,
    /// The number of members of the called group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub members: Option<usize>,
    /// The mean time for which each member computes, in milliseconds; 0 is the null call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub computation_ms: Option<u32>,
    /// The distribution of those times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distribution: Option<String>,
    /// The mean time of one call of all members, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multi_ms: Option<f64>,
    /// Its standard deviation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multi_deviation_ms: Option<f64>,
    /// Its median, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multi_median_ms: Option<f64>,
    /// The mean time of calls of all members one after the other, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iterative_ms: Option<f64>,
    /// Their standard deviation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iterative_deviation_ms: Option<f64>,
    /// Their median, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iterative_median_ms: Option<f64>,
    /// The cores of client and server, or `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin: Option<String>,
    /// The median of a round trip, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<f64>,
    /// The 99th percentile, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    /// The 99.9th percentile, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p999_us: Option<f64>,
    /// The counted part of a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Calls per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second: Option<f64>,
    /// The bytes of payload per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gbit_per_second: Option<f64>,
    /// The ratio to raw in the same run, or to the best peer if there is no raw: the median over blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// The lower end of its 95 % interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_low: Option<f64>,
    /// The upper end of its 95 % interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_high: Option<f64>,
    /// The ratio to raw UDP trains in the same run: the median over blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_gso: Option<f64>,
    /// The lower end of its 95 % interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_gso_low: Option<f64>,
    /// The upper end of its 95 % interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_gso_high: Option<f64>,
    /// Per call, both sides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_instructions: Option<f64>,
    /// Per call, both sides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_instructions: Option<f64>,
    /// Per call, both sides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub syscalls: Option<f64>,
    /// Per call, both sides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocations: Option<f64>,
    /// Per call, the server's part of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_user_instructions: Option<f64>,
    /// Per call, the server's part of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_kernel_instructions: Option<f64>,
    /// Accesses to the server's memory, per operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accesses: Option<f64>,
    /// Transfers of control to the server, per operation: calls, and writes with notice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfers: Option<f64>,
    /// The server's processor time per call, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_cpu_us: Option<f64>,
    /// The client's processor time per call, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_cpu_us: Option<f64>,
    /// The number of conversations held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversations: Option<usize>,
    /// The number of idle streams. Bytes are then of the server's memory for each of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<usize>,
    /// The bytes of the executor, the task and its future for each stream, which are apart from the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_bytes: Option<usize>,
    /// The datagrams that the server received each second for each conversation, while all streams were idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datagrams_in: Option<f64>,
    /// The datagrams that the server sent each second for each conversation, while all streams were idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datagrams_out: Option<f64>,
    /// The server's memory per idle conversation with that many, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_each: Option<f64>,
    /// The server's memory per idle conversation at the worst number of conversations on the way there, in
    /// bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst_bytes_each: Option<f64>,
    /// The number of conversations at which the memory per conversation was largest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst_at: Option<usize>,
    /// The server's memory per idle conversation at the worst number, including memory that is used only
    /// while a table is moved to a larger one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_bytes_each: Option<f64>,
    /// The datagrams that both ends sent in 60 minutes of idleness.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_datagrams: Option<u64>,
    /// The retransmitted datagrams, for each time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmitted: Option<f64>,
    /// The datagrams that the client sent, for each time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<f64>,
    /// The probes among them, for each time: questions about calls that the server executes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probes: Option<f64>,
    /// The percentage of them that were retransmitted or were probes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub again_percent: Option<f64>,
    /// How long one execution takes, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nanoseconds: Option<f64>,
    /// The handshakes that one core makes in a second as the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_per_second: Option<f64>,
    /// The handshakes that one core makes in a second as the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_per_second: Option<f64>,
    /// The bytes of each message of a handshake.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<String>,
    /// The number of flights of a handshake.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flights: Option<usize>,
    /// The heap in bytes that a server has between the first and the last message of a handshake.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_bytes: Option<i64>,
    /// The round trip of the wire, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trip_ms: Option<f64>,
    /// The percentage of packets that the wire loses at random, in each direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_percent: Option<f64>,
    /// The rate of the wire's bottleneck, in Mbit/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bottleneck_mbit: Option<f64>,
    /// The median time of a transfer, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer_ms: Option<f64>,
    /// The number of blocks that did not end within their time. Their transfers count as if they had ended
    /// then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<usize>,
    /// The bytes of the packets sent by the side that sends the payload, for each byte of payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_ratio: Option<f64>,
    /// The payload's rate, for each bit per second of the bottleneck.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_used: Option<f64>,
    /// The percentage of packets that the bottleneck dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped_percent: Option<f64>,
    /// Whether the control failed, so that the row must not be quoted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub void: Option<bool>,
    /// The machine and the versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conditions: Option<String>,
}

impl Row {
    /// Enters a ratio.
    pub fn set_ratio(&mut self, estimate: Estimate) {
        self.ratio = Some(rounded(estimate.median));
        self.ratio_low = Some(rounded(estimate.low));
        self.ratio_high = Some(rounded(estimate.high));
    }

    /// Enters a ratio to raw UDP trains.
    pub fn set_ratio_gso(&mut self, estimate: Estimate) {
        self.ratio_gso = Some(rounded(estimate.median));
        self.ratio_gso_low = Some(rounded(estimate.low));
        self.ratio_gso_high = Some(rounded(estimate.high));
    }

    /// Enters the counts of `calls` calls.
    pub fn set_counts(&mut self, counts: Counts, calls: usize) {
        let per_call = |count: Option<u64>| Some(rounded(count? as f64 / calls as f64));
        self.user_instructions = per_call(counts.user_instructions).or(self.user_instructions);
        self.kernel_instructions = per_call(counts.kernel_instructions).or(self.kernel_instructions);
        self.syscalls = per_call(counts.syscalls).or(self.syscalls);
        self.allocations = per_call(counts.allocations).or(self.allocations);
    }

    /// Enters the server's part of the counts.
    pub fn set_server_counts(&mut self, counts: Counts, calls: usize) {
        let per_call = |count: Option<u64>| Some(rounded(count? as f64 / calls as f64));
        self.server_user_instructions = per_call(counts.user_instructions);
        self.server_kernel_instructions = per_call(counts.kernel_instructions);
    }
}

/// Rounds to four digits after the point, or to seven if the first of them may be zeros.
pub(crate) fn rounded(value: f64) -> f64 {
    let steps = if value.abs() < 0.1 { 1e7 } else { 1e4 };
    (value * steps).round() / steps
}
