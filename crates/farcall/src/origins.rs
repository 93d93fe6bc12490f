//! Where the settings of a runtime come from.

use std::fmt;

use crate::env::Env;
use crate::idl;
use crate::xdr::{self, Decode, Decoder, Encode, Encoder};

/// Where the settings of a runtime come from, by the names of their variables. Settings that are in neither
/// list have their defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Origins {
    /// The program has made these settings. Their variables have no effect.
    pub program: Vec<String>,
    /// These variables are set, and have been used.
    pub variables: Vec<String>,
    /// These variables are set, and nothing reads them. Their names are nearly those of others.
    pub misspelt: Vec<MisspeltVariable>,
}

/// A variable that is set and that nothing reads, although its name is nearly that of another.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MisspeltVariable {
    /// The variable that is set.
    pub name: String,
    /// The variable that is probably meant.
    pub meant: String,
}

impl fmt::Display for MisspeltVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nothing reads the variable {}; {} may be meant", self.name, self.meant)
    }
}

/// What the names of all variables begin with.
const PREFIX: &str = "FARCALL_";

/// The variables that farcall reads, without [`PREFIX`].
const VARIABLES: [&str; 31] = [
    "ADDRESS",
    "ADVERTISE",
    "ARGUMENT_BYTES",
    "DESCRIBE",
    "DNS_LOCAL_ADDRESSES",
    "DNS_SERVER",
    "ETCD_CA",
    "ETCD_CERT",
    "ETCD_KEY",
    "ETCD_PASSWORD",
    "ETCD_USER",
    "FULL_PATIENCE",
    "KEYS",
    "LEVEL",
    "OPEN",
    "PADDING",
    "PATIENCE_MS",
    "QUEUE",
    "QUEUE_BYTES",
    "QUEUE_MS",
    "REGISTRY",
    "SERVER_PATIENCE_MS",
    "SHM",
    "SIM_SEED",
    "SIM_SEEDS",
    "SLOW_MS",
    "SOCKET_BUFFER",
    "SPIN_US",
    "THREADS",
    "WORKERS",
    "XDP",
];

/// The most misspelt variables that are told of.
const MAX_MISSPELT: usize = 16;

/// Returns the variables of this environment that nothing reads, and whose names are nearly those of others.
pub fn misspelt_variables(env: &dyn Env) -> Vec<MisspeltVariable> {
    let known = || VARIABLES.into_iter();
    let misspelt = |name: String| {
        let own = name.strip_prefix(PREFIX)?;
        if known().any(|known| known == own) {
            return None;
        }
        let meant = format!("{PREFIX}{}", idl::nearest(own, known())?);
        Some(MisspeltVariable { name, meant })
    };
    let mut all: Vec<_> = env.variable_names().into_iter().filter_map(misspelt).take(MAX_MISSPELT).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

impl Origins {
    /// Notes that the program makes the setting that this variable would fill in.
    pub(crate) fn set_by_program(&mut self, variable: &str) {
        if !self.program.iter().any(|known| known == variable) {
            self.program.push(variable.into());
        }
    }
}

// The length precedes the fields, so that a later version can add fields.

impl Encode for Origins {
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), xdr::Error> {
        e.sized(|e| {
            self.program.encode(e)?;
            self.variables.encode(e)?;
            let misspelt = self.misspelt.iter().map(|one| (one.name.clone(), one.meant.clone()));
            misspelt.collect::<Vec<_>>().encode(e)
        })
    }
}

impl<'a> Decode<'a> for Origins {
    fn decode(d: &mut Decoder<'a>) -> Result<Self, xdr::Error> {
        d.sized(|d| {
            let (program, variables) = (Decode::decode(d)?, Decode::decode(d)?);
            // An older process does not tell of them.
            let misspelt: Vec<(String, String)> =
                if d.remaining() > 0 { Decode::decode(d)? } else { Vec::new() };
            let misspelt = misspelt.into_iter().map(|(name, meant)| MisspeltVariable { name, meant });
            Ok(Origins { program, variables, misspelt: misspelt.collect() })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::SocketAddr;
    use std::sync::Arc;

    use super::*;
    use crate::env::{Event, Socket, SocketOptions, Time};

    /// An environment with these variables.
    struct Variables(&'static [&'static str]);

    impl Env for Variables {
        fn now(&self) -> Time {
            Time::default()
        }

        fn bind(&self, _: SocketAddr, _: &SocketOptions) -> io::Result<Arc<dyn Socket>> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn spawn(&self, _: &str, _: Box<dyn FnOnce() + Send>) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn event(&self) -> Arc<dyn Event> {
            unreachable!("nothing waits")
        }

        fn entropy(&self, _: &mut [u8]) {}

        fn variable_names(&self) -> Vec<String> {
            self.0.iter().map(|name| (*name).to_owned()).collect()
        }
    }

    #[test]
    fn a_misspelt_variable_is_told_with_the_one_that_is_meant() {
        let found = misspelt_variables(&Variables(&[
            "FARCALL_REGISTRY",
            "FARCALL_REGISTERY",
            "FARCALL_ADRESS",
            "FARCALL_OPNE",
            // Kubernetes sets these for a service of the name `farcall`; others belong to tests.
            "FARCALL_SERVICE_HOST",
            "FARCALL_PORT",
            "FARCALL_PORT_7000_UDP_ADDR",
            "FARCALL_SEED",
            "FARCALL_RPC",
            "REGISTRY",
        ]));
        let told: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "nothing reads the variable FARCALL_ADRESS; FARCALL_ADDRESS may be meant",
                "nothing reads the variable FARCALL_OPNE; FARCALL_OPEN may be meant",
                "nothing reads the variable FARCALL_REGISTERY; FARCALL_REGISTRY may be meant",
            ]
        );
        let origins = Origins { misspelt: found, ..Origins::default() };
        let bytes = xdr::to_vec(&origins).unwrap();
        assert_eq!(xdr::from_slice::<Origins>(&bytes).unwrap(), origins);
    }
}
