//! Tickets, which a server gives to clients that bind, so that it need not remember them (docs/protocol.md,
//! "Tickets and horizon"; Liskov, Shrira & Wroclawski 1991).

use std::borrow::Cow;
use std::net::SocketAddr;

use crate::scheme::keyed_hash;
use crate::wire::{self, Mac, StaleReason, Ticket};
use crate::{Mutant, Rule, Time};

/// Makes and checks the tickets of one incarnation (one run of a server).
pub(crate) struct Issuer {
    mac_key: [u8; 16],
    id_key: [u8; 16],
    incarnation: u64,
    /// When this incarnation began.
    pub born: Time,
    issued: u64,
    ids: u64,
}

/// The client that holds a ticket: all that the incarnation which issued the ticket needs to compute its MAC
/// (message authentication code) again.
///
/// Only the incarnation and the client know the MAC; no other process on their machine does. So the
/// incarnation can prove its identity to the client outside UDP, by the MAC (docs/shared-memory.md,
/// "Meeting").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The identifier that the client chose for the conversation.
    pub client: u64,
    /// The ticket's date.
    pub issued: u64,
    /// The server's identifier of the conversation.
    pub conversation: u64,
    /// The client's address, as the server saw it.
    pub address: SocketAddr,
}

/// Returns the answer to a question. Only the incarnation that issued the ticket with this MAC, and its
/// client, can compute it.
pub(crate) fn answer(mac: &Mac, question: &[u8]) -> [u8; 16] {
    keyed_hash(&mac.0, &[question]).as_bytes()
}

impl Issuer {
    /// Begins a new incarnation. `secret` is fresh entropy.
    pub fn new(now: Time, secret: &[u8; 32]) -> Issuer {
        let mut keys = [[0; 16]; 2];
        keys[0].copy_from_slice(&secret[..16]);
        keys[1].copy_from_slice(&secret[16..]);
        let [mac_key, id_key] = keys;
        let incarnation = keyed_hash(&id_key, &[b"incarnation"]).h1 | 1;
        Issuer { mac_key, id_key, incarnation, born: now, issued: 0, ids: 0 }
    }

    /// Derives a key of this incarnation for another purpose.
    pub fn key_for(&self, purpose: &[u8]) -> [u8; 16] {
        keyed_hash(&self.id_key, &[purpose]).as_bytes()
    }

    /// Derives a secret number of this incarnation for another purpose.
    pub fn secret_for(&self, purpose: &[u8]) -> u64 {
        keyed_hash(&self.id_key, &[purpose]).h1
    }

    /// Returns a new identifier for a conversation with this client. The identifier cannot be guessed and is
    /// unique. There is one exception: an incarnation that is restored from a snapshot can give out again an
    /// identifier that it gave out after the snapshot, but only to the same client.
    pub fn conversation(&mut self, client: u64) -> u64 {
        self.ids += 1;
        keyed_hash(&self.id_key, &[&self.ids.to_le_bytes(), &client.to_le_bytes()]).h1.max(1)
    }

    /// Issues a ticket for a new conversation. Its date is later than that of every other ticket, and later
    /// than `horizon`.
    pub fn issue(
        &mut self,
        now: Time,
        horizon: u64,
        client: u64,
        conversation: u64,
        address: SocketAddr,
    ) -> Ticket<'static> {
        let clock = now.since(self.born).as_nanos() as u64;
        self.issued = clock.max(self.issued + 1).max(horizon.saturating_add(1));
        self.date(&Holder { client, issued: self.issued, conversation, address }, Cow::Borrowed(&[]))
    }

    /// Returns how long ago a ticket of this incarnation was issued. It can be longer ago by as much as the
    /// horizon was raised ahead of the clock.
    pub fn age(&self, now: Time, ticket: &Ticket<'_>) -> std::time::Duration {
        now.since(self.born).saturating_sub(std::time::Duration::from_nanos(ticket.issued))
    }

    /// Returns the date of a ticket that was issued this long ago.
    pub fn date_before(&self, now: Time, age: std::time::Duration) -> u64 {
        now.since(self.born).saturating_sub(age).as_nanos() as u64
    }

    /// Returns the date of the ticket that was issued last.
    #[cfg(feature = "secure")]
    pub fn last_date(&self) -> u64 {
        self.issued
    }

    /// Makes a ticket with the date of `ticket`, for another address or with another `rest`. Because the date
    /// stays the same, a call that ran under the old ticket does not run again under the new one.
    pub fn dated_as(
        &self,
        Ticket { client, issued, .. }: &Ticket<'_>,
        conversation: u64,
        address: SocketAddr,
        rest: Vec<u8>,
    ) -> Ticket<'static> {
        self.date(&Holder { client: *client, issued: *issued, conversation, address }, rest.into())
    }

    fn date<'r>(&self, holder: &Holder, rest: Cow<'r, [u8]>) -> Ticket<'r> {
        let Holder { client, issued, conversation, address } = *holder;
        let mut ticket = Ticket { client, incarnation: self.incarnation, issued, mac: Mac([0; 16]), rest };
        ticket.mac = self.mac(&ticket, conversation, address);
        ticket
    }

    /// Checks that this incarnation gave `ticket` to `from` for `conversation`. The error says that another
    /// incarnation gave the ticket, or that it is for another address or forged.
    pub fn verify(
        &self,
        ticket: &Ticket<'_>,
        conversation: u64,
        from: SocketAddr,
        m: Mutant,
    ) -> Result<(), StaleReason> {
        if m.breaks(Rule::TicketUnchecked) {
            return Ok(());
        }
        if ticket.incarnation != self.incarnation {
            return if m.breaks(Rule::StaleIncarnation) { Ok(()) } else { Err(StaleReason::Incarnation) };
        }
        if ticket.mac != self.mac(ticket, conversation, from) {
            return Err(StaleReason::Address);
        }
        Ok(())
    }

    /// Returns the [answer] that proves this incarnation's identity to the holder of one of its tickets. For
    /// the ticket of another incarnation the answer is a meaningless number.
    pub fn prove(&self, holder: &Holder, question: &[u8]) -> [u8; 16] {
        answer(&self.date(holder, Cow::Borrowed(&[])).mac, question)
    }

    fn mac(&self, ticket: &Ticket<'_>, conversation: u64, address: SocketAddr) -> Mac {
        let words = [ticket.client, ticket.incarnation, ticket.issued, conversation].map(u64::to_le_bytes);
        let (ip, port) = (wire::ip_octets(address), address.port().to_le_bytes());
        Mac(keyed_hash(&self.mac_key, &[words.as_flattened(), &ip, &port, &ticket.rest]).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restored_incarnation_gives_a_conversation_to_nobody_else() {
        let now = Time::default();
        let (mut issuer, mut restored) = (Issuer::new(now, &[1; 32]), Issuer::new(now, &[1; 32]));
        let given: Vec<u64> = (0..3).map(|_| issuer.conversation(7)).collect();
        assert!((0..3).all(|_| !given.contains(&restored.conversation(8))));
    }

    #[test]
    fn identifiers_are_unique_and_the_dates_of_tickets_grow_beyond_the_horizon() {
        let (born, to) = (Time::from_nanos(1000), "127.0.0.1:4000".parse().unwrap());
        let mut issuer = Issuer::new(born, &[1; 32]);
        let given: std::collections::BTreeSet<u64> = (0..100).map(|_| issuer.conversation(7)).collect();
        assert_eq!(given.len(), 100);
        let mut date = |after, horizon| issuer.issue(born.plus(after), horizon, 7, 9, to).issued;
        let dates = [date(0, 0), date(0, 0), date(50, 0), date(50, 0), date(50, 80)];
        assert_eq!(dates, [1, 2, 50, 51, 81]);
        assert_eq!(date(50, u64::MAX), u64::MAX);
    }

    #[test]
    fn each_incarnation_and_each_purpose_has_its_own_key() {
        let now = Time::default();
        let (one, other) = (Issuer::new(now, &[1; 32]), Issuer::new(now, &[2; 32]));
        let [this, that] = [b"this", b"that"];
        let keys = [one.key_for(this), one.key_for(that), other.key_for(this), other.key_for(that)];
        assert_eq!(std::collections::BTreeSet::from(keys).len(), 4);
        assert_eq!(one.key_for(b"this"), keys[0]);
        assert_ne!(one.incarnation, other.incarnation);
    }

    #[test]
    fn a_ticket_with_one_other_bit_in_its_mac_is_refused() {
        let (now, address) = (Time::default(), "127.0.0.1:4000".parse().unwrap());
        let mut issuer = Issuer::new(now, &[1; 32]);
        let ticket = issuer.issue(now, 0, 7, 9, address);
        assert_eq!(issuer.verify(&ticket, 9, address, Mutant::NONE), Ok(()));
        for bit in 0..128 {
            let mut forged = ticket.clone();
            forged.mac.0[bit / 8] ^= 1 << (bit % 8);
            let verified = issuer.verify(&forged, 9, address, Mutant::NONE);
            assert_eq!(verified, Err(StaleReason::Address), "bit {bit}");
        }
    }

    #[test]
    fn only_the_incarnation_that_gave_a_ticket_proves_itself_to_its_holder() {
        let (now, client, conversation) = (Time::default(), 7, 9);
        let address: SocketAddr = "127.0.0.1:4000".parse().unwrap();
        let mut issuer = Issuer::new(now, &[1; 32]);
        let ticket = issuer.issue(now, 0, client, conversation, address);
        let holder = Holder { client, issued: ticket.issued, conversation, address };
        let expected = answer(&ticket.mac, b"question");
        assert_eq!(issuer.prove(&holder, b"question"), expected);
        assert_ne!(issuer.prove(&holder, b"another"), expected);
        assert_ne!(Issuer::new(now, &[2; 32]).prove(&holder, b"question"), expected);
        for other in [
            Holder { client: 8, ..holder },
            Holder { issued: ticket.issued + 1, ..holder },
            Holder { conversation: 8, ..holder },
            Holder { address: "127.0.0.1:4001".parse().unwrap(), ..holder },
        ] {
            assert_ne!(issuer.prove(&other, b"question"), expected);
        }
    }
}
