//! Noise IK as farcall uses it. The server seals the secrets into the ticket that goes with its message, keeps
//! nothing, and expands the keys when the client's first datagram shows the ticket.
use anyhow::{Context, Result};
use farcall_crypto::{
    End as Ours, Initiator, Level, Responder, Secrets, Suite, Suites, TicketKeys, public_key,
};
use ring::rand::{SecureRandom, SystemRandom};

use crate::handshakes::{Clock, End, Handshake};

const KIND: (Level, Suite) = (Level::Secure, Suite::Aes128Gcm);

pub struct Noise {
    client: [u8; 32],
    server: [u8; 32],
    public: [u8; 32],
    random: SystemRandom,
    tickets: TicketKeys,
}

impl Noise {
    pub fn new() -> Result<Noise> {
        let random = SystemRandom::new();
        let (client, server) = (entropy(&random)?, entropy(&random)?);
        let mut keys = [0; 44];
        random.fill(&mut keys).ok().context("no entropy")?;
        let tickets = TicketKeys::new(Suites::of_this_machine(), &keys.into());
        Ok(Noise { client, server, public: public_key(&server), random, tickets })
    }
}

impl Handshake for Noise {
    fn name(&self) -> &'static str {
        "Noise IK, farcall-crypto"
    }

    fn run(&mut self, clock: &mut Clock) -> Result<()> {
        let Noise { client, server, public, random, tickets } = self;
        let prologue = [1; 32];
        let (mut initiator, first) = clock.step(End::Client, || {
            Initiator::begin(client, public, &prologue, &[], &entropy(random)?).context("no first message")
        })?;
        let (mut second, mut ticket) = (Vec::with_capacity(256), Vec::with_capacity(256));
        clock.step(End::Server, || {
            let responder = Responder::begin(server, &prologue, &first, &entropy(random)?);
            let responder = responder.context("the first message is not accepted")?;
            let context = responder.client;
            let (message, secrets) = responder.end(&[], KIND.0, KIND.1).context("no second message")?;
            second.extend_from_slice(&message);
            ticket.extend_from_slice(&tickets.seal(&context, &secrets.to_bytes()));
            Ok(())
        })?;
        clock.messages = vec![first.len(), second.len() + ticket.len()];
        let clients = clock.step(End::Client, || {
            let ended = initiator.end(&second, KIND.0, KIND.1);
            let (secrets, _) = ended.context("the second message is not accepted")?;
            Ok(secrets.cipher(Ours::Client, None))
        })?;
        let context = public_key(client);
        let servers = clock.step(End::Server, || {
            let secrets = tickets.open(&context, &ticket).context("the ticket does not open")?;
            let secrets = Secrets::from_bytes(&secrets).context("the ticket has no secrets")?;
            Ok(secrets.cipher(Ours::Server, None))
        })?;
        let mut datagram = [0; 100];
        clients.seal(1, &mut datagram, 20);
        servers.open(0, 1, &mut datagram, 20).map(drop).context("the ends do not agree")
    }
}

fn entropy(random: &SystemRandom) -> Result<[u8; 32]> {
    let mut entropy = [0; 32];
    random.fill(&mut entropy).ok().context("no entropy")?;
    Ok(entropy)
}
