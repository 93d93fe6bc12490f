//! Which clients without keys have proven that they are processes of the server's user.

use std::time::Duration;

use crate::same_user::{SameUser, UserSecret};
use crate::wire::{Ticket, UserProof};
use crate::{Mutant, Rule, Time};

/// The shortest time between two looks for the user's secrets. Anybody can make a server look, by a proof
/// under a secret that it does not know.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The user whose processes may bind.
#[derive(Debug)]
pub(super) struct Users {
    same_user: SameUser,
    /// The user's secrets, as they were found last.
    known: Vec<UserSecret>,
    looked: Option<Time>,
}

impl Users {
    pub fn new(same_user: SameUser) -> Users {
        Users { same_user, known: Vec::new(), looked: None }
    }

    /// Returns whether one of the proofs answers the challenge. Looks for the user's secrets again if there
    /// is a proof under an unknown one: they may have been removed and made anew.
    pub fn have_proven(
        &mut self,
        now: Time,
        challenge: (u64, &Ticket<'_>),
        proofs: &[UserProof],
        mutant: Mutant,
    ) -> bool {
        if mutant.breaks(Rule::UserUnproven) && !proofs.is_empty() {
            return true;
        }
        let may_look = self.looked.is_none_or(|looked| now.since(looked) >= LOOK_INTERVAL);
        if may_look && SameUser::has_unknown(&self.known, proofs) {
            self.looked = Some(now);
            if let Ok(secrets) = self.same_user.secrets() {
                self.known = secrets;
            }
        }
        self.same_user.is_proven(&self.known, challenge, proofs, mutant)
    }
}
