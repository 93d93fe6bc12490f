//! The state of a balancer's member, for people, tools and tests.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::xdr::{self, Decode, Decoder, Encode, Encoder};

/// The state of a member, for people and tests. [`Balancer::members`](crate::balance::Balancer::members)
/// returns it.
///
/// `Display` shows it in one line.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MemberState {
    /// The member's name.
    pub name: Arc<str>,
    /// Whether the member is known to be on this machine.
    pub on_this_machine: bool,
    /// How many calls it got.
    pub calls: u64,
    /// The part of all calls of the present members that it got, from 0 to 1.
    pub share: f64,
    /// How many of its calls failed for which it is to blame.
    pub failures: u64,
    /// How many of its calls have not ended.
    pub outstanding: u32,
    /// The average of its latency; `None` if it is not known yet.
    pub latency: Option<Duration>,
    /// Why it gets no calls; `None` if it gets calls.
    pub out: Option<Out>,
}

/// Why a member gets no calls, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Out {
    /// Why it is out.
    pub why: WhyOut,
    /// How long it is out yet. Zero if the next call may try it, or if the time is not known.
    pub left: Duration,
    /// How often it was taken out since it last was in for long.
    pub times: u32,
}

/// The reason for which a member gets no calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhyOut {
    /// Too many of its calls failed one after the other.
    FailuresInARow,
    /// Its calls failed much more often than those of the other members.
    SuccessRate,
    /// It has calls, and has ended none of them for much longer than it usually takes.
    Silent,
    /// Its last call failed, so it gets no calls for a moment.
    Pause,
}

impl WhyOut {
    /// All reasons.
    const ALL: [WhyOut; 4] = [WhyOut::FailuresInARow, WhyOut::SuccessRate, WhyOut::Silent, WhyOut::Pause];

    /// Returns the reason as one word for programs.
    pub fn word(self) -> &'static str {
        match self {
            WhyOut::FailuresInARow => "failures_in_a_row",
            WhyOut::SuccessRate => "success_rate",
            WhyOut::Silent => "silent",
            WhyOut::Pause => "pause",
        }
    }
}

impl fmt::Display for WhyOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WhyOut::FailuresInARow => "calls failed in a row",
            WhyOut::SuccessRate => "fails more often than the others",
            WhyOut::Silent => "answers nothing",
            WhyOut::Pause => "the last call failed",
        })
    }
}

impl fmt::Display for Out {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "out: {}", self.why)?;
        if !self.left.is_zero() {
            write!(f, ", for {:.1} s", self.left.as_secs_f64())?;
        }
        if self.times > 1 {
            write!(f, ", {} times by now", self.times)?;
        }
        Ok(())
    }
}

impl fmt::Display for MemberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MemberState { name, calls, failures, outstanding, .. } = self;
        write!(f, "{name}: {calls} calls ({:.0} %)", 100.0 * self.share)?;
        write!(f, ", {failures} failed, {outstanding} outstanding, ")?;
        match self.latency {
            Some(latency) => write!(f, "latency {latency:.1?}, ")?,
            None => f.write_str("latency unknown, ")?,
        }
        match &self.out {
            Some(out) => out.fmt(f),
            None => f.write_str("in"),
        }
    }
}

/// Shows the members of a balancer.
#[doc(hidden)]
pub trait ShowMembers: Send + Sync {
    /// Returns the state of each member, without asking the group for its members.
    fn show_members(&self) -> Vec<MemberState>;
}

// The length precedes the fields, so that a later version can add fields.

impl Encode for MemberState {
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), xdr::Error> {
        e.sized(|e| {
            self.name.encode(e)?;
            self.on_this_machine.encode(e)?;
            self.calls.encode(e)?;
            self.share.encode(e)?;
            self.failures.encode(e)?;
            self.outstanding.encode(e)?;
            self.latency.encode(e)?;
            self.out.encode(e)
        })
    }
}

impl<'a> Decode<'a> for MemberState {
    fn decode(d: &mut Decoder<'a>) -> Result<Self, xdr::Error> {
        d.sized(|d| {
            Ok(MemberState {
                name: String::decode(d)?.into(),
                on_this_machine: Decode::decode(d)?,
                calls: Decode::decode(d)?,
                share: Decode::decode(d)?,
                failures: Decode::decode(d)?,
                outstanding: Decode::decode(d)?,
                latency: Decode::decode(d)?,
                out: Decode::decode(d)?,
            })
        })
    }
}

impl Encode for Out {
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), xdr::Error> {
        e.sized(|e| {
            self.why.encode(e)?;
            self.left.encode(e)?;
            self.times.encode(e)
        })
    }
}

impl<'a> Decode<'a> for Out {
    fn decode(d: &mut Decoder<'a>) -> Result<Self, xdr::Error> {
        d.sized(|d| Ok(Out { why: Decode::decode(d)?, left: Decode::decode(d)?, times: Decode::decode(d)? }))
    }
}

impl Encode for WhyOut {
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), xdr::Error> {
        self.word().encode(e)
    }
}

impl<'a> Decode<'a> for WhyOut {
    /// A reason that only a later version has is taken for the last failure.
    fn decode(d: &mut Decoder<'a>) -> Result<Self, xdr::Error> {
        let word = String::decode(d)?;
        Ok(WhyOut::ALL.into_iter().find(|why| why.word() == word).unwrap_or(WhyOut::Pause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_shown_in_a_line_and_comes_back_from_its_wire_form() {
        let out = Out { why: WhyOut::SuccessRate, left: Duration::from_millis(4_200), times: 2 };
        let state = MemberState {
            name: "Store/a".into(),
            on_this_machine: true,
            calls: 12,
            share: 0.25,
            failures: 3,
            outstanding: 1,
            latency: Some(Duration::from_micros(1_500)),
            out: Some(out),
        };
        assert_eq!(
            state.to_string(),
            "Store/a: 12 calls (25 %), 3 failed, 1 outstanding, latency 1.5ms, out: fails more often than the \
             others, for 4.2 s, 2 times by now"
        );
        let back: MemberState = xdr::from_slice(&xdr::to_vec(&state).unwrap()).unwrap();
        assert_eq!(back, state);
        for why in WhyOut::ALL {
            assert_eq!(xdr::from_slice::<WhyOut>(&xdr::to_vec(&why).unwrap()).unwrap(), why);
        }
    }
}
