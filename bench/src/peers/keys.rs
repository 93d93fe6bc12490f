//! The keys of both ends in benches whose calls are sealed. They are secret from nobody, because they are
//! in this file, and serve for measurements alone.
use farcall::key_files::{Identity, Keyring};
use farcall::{Builder, Keys, Level};

/// Returns the settings of a runtime that seals at this level, if there is one. All such runtimes have the
/// same keys, and accept them for any name.
pub fn with(level: Option<Level>, builder: Builder) -> Builder {
    let Some(level) = level else { return builder };
    builder.keys(keys().expect("lines of key files that can be read")).level(level)
}

fn keys() -> Result<Keys, Box<dyn std::error::Error>> {
    let identity = Identity::from_entropy([7; 32]);
    let public = identity.public();
    let keyring = Keyring::new(identity)
        .with_authorized_key(format!("{public} bench").parse()?)?
        .with_known_server(format!("* {public}").parse()?);
    Ok(Keys::new(keyring))
}
