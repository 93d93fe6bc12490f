//! The balancers of a runtime, which its server shows to those that ask.

use std::sync::{Arc, Mutex, Weak};

use crate::balance::{MemberState, ShowMembers};
use crate::lock;
use crate::xdr::{self, Decode, Decoder, Encode, Encoder};

/// The most balancers that are shown, and the most members of all of them together.
const MAX_BALANCERS: usize = 64;
const MAX_MEMBERS: usize = 1_000;

/// A balancer of a process: the state of each of its members.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Balancing {
    /// The type whose instances are the members.
    pub group: String,
    /// The members that are shown.
    pub members: Vec<MemberState>,
    /// The number of further members, which are not shown.
    pub untold: u32,
}

/// The balancers that a runtime has made and that still exist.
#[derive(Default)]
pub(crate) struct Balancers(Mutex<Vec<(String, Weak<dyn ShowMembers>)>>);

impl Balancers {
    /// Notes a balancer of a type's instances.
    pub(crate) fn add(&self, group: String, balancer: Weak<dyn ShowMembers>) {
        let mut balancers = lock(&self.0);
        balancers.retain(|(_, balancer)| balancer.strong_count() > 0);
        balancers.push((group, balancer));
    }

    /// Returns the balancers, but no more of them and of their members than fit an answer.
    pub(crate) fn show(&self) -> Vec<Balancing> {
        let balancers: Vec<(String, Arc<dyn ShowMembers>)> = lock(&self.0)
            .iter()
            .filter_map(|(group, balancer)| Some((group.clone(), balancer.upgrade()?)))
            .take(MAX_BALANCERS)
            .collect();
        let mut room = MAX_MEMBERS;
        let show = |(group, balancer): (String, Arc<dyn ShowMembers>)| {
            let mut members = balancer.show_members();
            let untold = members.len().saturating_sub(room) as u32;
            members.truncate(room);
            room -= members.len();
            Balancing { group, members, untold }
        };
        balancers.into_iter().map(show).collect()
    }
}

// The length precedes the fields, so that a later version can add fields.

impl Encode for Balancing {
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), xdr::Error> {
        e.sized(|e| {
            self.group.encode(e)?;
            self.members.encode(e)?;
            self.untold.encode(e)
        })
    }
}

impl<'a> Decode<'a> for Balancing {
    fn decode(d: &mut Decoder<'a>) -> Result<Self, xdr::Error> {
        d.sized(|d| {
            Ok(Balancing {
                group: Decode::decode(d)?,
                members: Decode::decode(d)?,
                untold: Decode::decode(d)?,
            })
        })
    }
}
