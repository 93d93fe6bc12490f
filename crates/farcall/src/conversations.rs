//! The conversations of a server with keys, which it shows to those that may read its counters.

use std::net::SocketAddr;
use std::time::Duration;

use crate::xdr::{self, Decode, Decoder, Encode, Encoder};

/// The most conversations that are shown.
#[cfg(feature = "secure")]
pub(crate) const MAX_CONVERSATIONS: usize = 64;

/// How much what passes in a conversation is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protection {
    /// Nothing is sealed, and the ends do not know each other.
    Open,
    /// The ends know each other, and nothing can be forged, changed or repeated. Everybody on the path can
    /// read it.
    Authenticated,
    /// Besides that, only the two ends can read it.
    Secure,
}

impl Protection {
    /// Returns the level's name: `open`, `authenticated` or `secure`.
    pub fn word(self) -> &'static str {
        match self {
            Protection::Open => "open",
            Protection::Authenticated => "authenticated",
            Protection::Secure => "secure",
        }
    }
}

/// A server's identity and its conversations, as they are now.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Conversations {
    /// The level that the server takes if its clients leave it the choice.
    pub level: Protection,
    /// Who the server is, if it has keys.
    pub identity: Option<ServerIdentity>,
    /// The busiest conversations, at most 64: first those with the most running calls, then those whose
    /// clients were heard last. A server without keys shows none, and one without a policy only those of the
    /// client that asks.
    pub conversations: Vec<Conversation>,
    /// The number of further conversations, which are not shown.
    pub untold: u32,
}

/// Who a server with keys is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerIdentity {
    /// The server's public key.
    pub key: [u8; 32],
    /// The names that the server's grants give it, each once, and at most 16. A server that is known without a
    /// grant has none.
    pub principals: Vec<String>,
    /// What is wrong with the server's key files. While something is, they give nothing new. Told only to
    /// clients that may see the conversations of others.
    pub faults: Vec<String>,
}

/// A conversation of a server with a client.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Conversation {
    /// The client's address.
    pub client: SocketAddr,
    /// How much it is protected.
    pub level: Protection,
    /// Who the client is: the name that the server knows its key by.
    pub principal: String,
    /// The client's public key.
    pub key: [u8; 32],
    /// The algorithm of the seals, as in `AES-128-GCM`.
    pub suite: String,
    /// How long ago the last Diffie-Hellman handshake was from which the keys follow, to the second. A
    /// conversation that was resumed keeps the handshake of the former one.
    pub handshake: Duration,
    /// The number of the phase of its keys, from 0: how often the keys were replaced without a handshake.
    pub phase: u32,
    /// The number of its calls that execute or are queued and came in datagrams. (Calls through shared memory
    /// are not counted.) A call that asks in this way is among them.
    pub running: u32,
    /// How long ago the client was heard, to an eighth of a second.
    pub heard: Duration,
}

impl Conversations {
    /// Returns what a server without keys shows. It does not know its clients, so it cannot decide who may
    /// learn of the others.
    pub(crate) fn without_keys() -> Conversations {
        Conversations { level: Protection::Open, identity: None, conversations: Vec::new(), untold: 0 }
    }
}

impl Encode for Protection {
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), xdr::Error> {
        self.word().encode(e)
    }
}

impl<'a> Decode<'a> for Protection {
    /// A level that only a later version has is taken for none.
    fn decode(d: &mut Decoder<'a>) -> Result<Self, xdr::Error> {
        let word = String::decode(d)?;
        let known = [Protection::Authenticated, Protection::Secure];
        Ok(known.into_iter().find(|level| level.word() == word).unwrap_or(Protection::Open))
    }
}

// The length precedes the fields of all three records, so that a later version can add fields.

impl Encode for Conversations {
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), xdr::Error> {
        e.sized(|e| {
            self.level.encode(e)?;
            self.identity.encode(e)?;
            self.conversations.encode(e)?;
            self.untold.encode(e)
        })
    }
}

impl<'a> Decode<'a> for Conversations {
    fn decode(d: &mut Decoder<'a>) -> Result<Self, xdr::Error> {
        d.sized(|d| {
            Ok(Conversations {
                level: Decode::decode(d)?,
                identity: Decode::decode(d)?,
                conversations: Decode::decode(d)?,
                untold: Decode::decode(d)?,
            })
        })
    }
}

impl Encode for ServerIdentity {
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), xdr::Error> {
        e.sized(|e| {
            self.key.encode(e)?;
            self.principals.encode(e)?;
            self.faults.encode(e)
        })
    }
}

impl<'a> Decode<'a> for ServerIdentity {
    fn decode(d: &mut Decoder<'a>) -> Result<Self, xdr::Error> {
        d.sized(|d| {
            let (key, principals) = (Decode::decode(d)?, Decode::decode(d)?);
            // Earlier versions do not have the last field.
            let faults = if d.remaining() == 0 { Vec::new() } else { Decode::decode(d)? };
            Ok(ServerIdentity { key, principals, faults })
        })
    }
}

impl Encode for Conversation {
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), xdr::Error> {
        e.sized(|e| {
            self.client.encode(e)?;
            self.level.encode(e)?;
            self.principal.encode(e)?;
            self.key.encode(e)?;
            self.suite.encode(e)?;
            self.handshake.encode(e)?;
            self.phase.encode(e)?;
            self.running.encode(e)?;
            self.heard.encode(e)
        })
    }
}

impl<'a> Decode<'a> for Conversation {
    fn decode(d: &mut Decoder<'a>) -> Result<Self, xdr::Error> {
        d.sized(|d| {
            Ok(Conversation {
                client: Decode::decode(d)?,
                level: Decode::decode(d)?,
                principal: Decode::decode(d)?,
                key: Decode::decode(d)?,
                suite: Decode::decode(d)?,
                handshake: Decode::decode(d)?,
                phase: Decode::decode(d)?,
                running: Decode::decode(d)?,
                heard: Decode::decode(d)?,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_comes_back_from_its_wire_form() {
        let conversation = Conversation {
            client: "10.0.0.2:4000".parse().unwrap(),
            level: Protection::Authenticated,
            principal: "alice".into(),
            key: [2; 32],
            suite: "AES-128-GCM".into(),
            handshake: Duration::from_secs(3600),
            phase: 7,
            running: 1,
            heard: Duration::from_millis(125),
        };
        let faults = vec!["policy, line 3: expected allow".to_owned()];
        let identity = ServerIdentity { key: [1; 32], principals: vec!["files".into()], faults };
        let shown = Conversations {
            level: Protection::Secure,
            identity: Some(identity),
            conversations: vec![conversation],
            untold: 9,
        };
        for shown in [shown, Conversations::without_keys()] {
            let bytes = xdr::to_vec(&shown).unwrap();
            assert_eq!(xdr::from_slice::<Conversations>(&bytes).unwrap(), shown);
        }
        // An earlier version tells no faults.
        let mut earlier = Vec::new();
        Encoder::new(&mut earlier)
            .sized(|e| [7_u8; 32].encode(e).and_then(|()| vec!["a"].encode(e)))
            .unwrap();
        let identity = xdr::from_slice::<ServerIdentity>(&earlier).unwrap();
        assert_eq!((identity.principals.len(), identity.faults.len()), (1, 0));
        let later = xdr::from_slice::<Protection>(&xdr::to_vec("stronger").unwrap());
        assert_eq!(later.unwrap(), Protection::Open);
    }
}
