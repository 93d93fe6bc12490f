//! The keys of simulated machines: which key each has, and which keys each accepts for which name.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use farcall_base::Principal;
use farcall_crypto::public_key;
use farcall_proto::secure::{Accepted, Level, Trust};
use farcall_proto::{ClientConfig, ServerConfig};
use zeroize::Zeroizing;

use crate::names::{NAME, OTHER};
use crate::rng::{Rng, mix};

/// The keys of a run, and how strict its ends are. All follow from a seed.
#[derive(Clone)]
pub struct Keys {
    seed: u64,
    /// The public keys of the servers, which are granted for [`NAME`].
    pub servers: Vec<[u8; 32]>,
    clients: Vec<[u8; 32]>,
    /// The public key of the interloper, which is granted for [`OTHER`] alone.
    pub interloper: [u8; 32],
    /// The least level that clients and servers accept.
    levels: (Level, Level),
    /// After how many datagrams an end goes on to another phase.
    pub max_per_phase: u32,
    /// The chance that a member without a grant answers in a server's place, in parts per million.
    pub intrusion: u32,
    /// The chance that the attacker on the path acts upon a datagram, in parts per million.
    pub attack: u32,
    /// Whether clients crash and come back all the time, so that there are many handshakes.
    pub brief: bool,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Keys { levels, max_per_phase, intrusion, attack, brief, .. } = self;
        f.debug_struct("Keys")
            .field("levels", levels)
            .field("max_per_phase", max_per_phase)
            .field("intrusion", intrusion)
            .field("attack", attack)
            .field("brief", brief)
            .finish_non_exhaustive()
    }
}

impl Keys {
    /// Draws the keys of so many servers and clients. If the run is `calm`, nobody attacks.
    pub fn draw(rng: &mut Rng, (servers, clients): (usize, usize), calm: bool) -> Keys {
        let seed = rng.next();
        let public = |host| public_key(&private(seed, host));
        let levels = [Level::Secure, Level::Secure, Level::Authenticated];
        Keys {
            seed,
            servers: (0..servers).map(public).collect(),
            clients: (servers..servers + clients).map(public).collect(),
            interloper: public(servers + clients),
            levels: rng.pick(&[
                (levels[0], levels[1]),
                (levels[0], levels[2]),
                (levels[2], levels[0]),
                (levels[2], levels[2]),
                (levels[2], levels[2]),
            ]),
            // In a run without faults, an end that goes on too early is noticed.
            max_per_phase: rng.pick(if calm { &[3, 3, 3, 10] } else { &[3, 10, 100, u32::MAX] }),
            intrusion: if calm { 0 } else { rng.pick(&[0, 5_000, 100_000]) },
            attack: if calm { 0 } else { rng.pick(&[0, 5_000, 50_000, 200_000]) },
            brief: !calm && rng.chance(400_000),
        }
    }

    /// Returns the number of the scheme that both ends agree on.
    pub fn scheme(&self) -> u8 {
        if self.levels == (Level::Authenticated, Level::Authenticated) { 2 } else { 3 }
    }

    /// Returns what a machine knows of keys, in one of its process's lives.
    fn trust(&self, host: usize, life: u32) -> Arc<dyn Trust> {
        let rng = Rng::new(mix(self.seed ^ (host as u64) << 32 ^ u64::from(life)));
        let public = public_key(&private(self.seed, host));
        Arc::new(Member { host, public, keys: self.clone(), rng: Mutex::new(rng) })
    }
}

/// Returns a client's settings, with its keys if the run has any.
pub fn client_config(config: &ClientConfig, keys: Option<&Keys>, host: usize, life: u32) -> ClientConfig {
    let mut config = config.clone();
    if let Some(keys) = keys {
        (config.trust, config.level) = (Some(keys.trust(host, life)), keys.levels.0);
    }
    config
}

/// Returns a server's settings, with its keys if the run has any. The interloper is the host after the last
/// client.
pub fn server_config(config: &ServerConfig, keys: Option<&Keys>, host: usize, life: u32) -> ServerConfig {
    let mut config = config.clone();
    if let Some(keys) = keys {
        (config.trust, config.level) = (Some(keys.trust(host, life)), keys.levels.1);
    }
    config
}

fn private(seed: u64, host: usize) -> [u8; 32] {
    let mut key = [0; 32];
    Rng::new(mix(seed ^ host as u64)).fill(&mut key);
    key
}

/// What one machine knows of keys.
#[derive(Debug)]
struct Member {
    host: usize,
    public: [u8; 32],
    keys: Keys,
    rng: Mutex<Rng>,
}

impl Member {
    fn is_interloper(&self) -> bool {
        self.host == self.keys.servers.len() + self.keys.clients.len()
    }
}

impl Trust for Member {
    fn private_key(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(private(self.keys.seed, self.host))
    }

    fn presentation(&self, _: &[u8]) -> Vec<u8> {
        self.public.to_vec()
    }

    fn accept_server(&self, name: &[u8], presentation: &[u8]) -> Result<Accepted, String> {
        let key: [u8; 32] = presentation.try_into().map_err(|_| "no key of 32 bytes")?;
        let serves = self.keys.servers.contains(&key);
        let other = key == self.keys.interloper;
        let may = match name {
            // Who asks for no name may talk with any member.
            b"" => serves || other,
            name if name == NAME.as_bytes() => serves,
            name if name == OTHER.as_bytes() => other,
            _ => false,
        };
        let principal = Arc::new(Principal::new("server", key));
        if may { Ok(Accepted { key, principal }) } else { Err("the key is not granted for the name".into()) }
    }

    fn accept_client(&self, key: &[u8; 32], _: &[u8]) -> Result<Vec<u8>, String> {
        self.recall(key).map(|_| key.to_vec())
    }

    fn recall(&self, facts: &[u8]) -> Result<Arc<Principal>, String> {
        let key = facts.try_into().map_err(|_| "no key of 32 bytes")?;
        if !self.is_interloper() && !self.keys.clients.contains(&key) {
            return Err("nobody has this key".into());
        }
        Ok(Arc::new(Principal::new("client", key)))
    }

    fn entropy(&self, out: &mut [u8]) {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).fill(out);
    }
}
