//! TLS 1.3 as QUIC uses it (RFC 9001), by rustls: both ends show an Ed25519 key (RFC 7250) and no certificate.
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, SupportedKxGroup, WebPkiSupportedAlgorithms};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::quic::{ClientConnection, Connection, KeyChange, ServerConnection, Version};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CipherSuite, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
};

use crate::handshakes::{Clock, End, Handshake};

pub struct Tls {
    name: &'static str,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Tls {
    /// Handshakes by `provider`, with its `group` or, without one, with X25519.
    pub fn new(
        name: &'static str,
        mut provider: CryptoProvider,
        group: Option<&'static dyn SupportedKxGroup>,
    ) -> Result<Tls> {
        let group = group.unwrap_or(rustls::crypto::ring::kx_group::X25519);
        provider.kx_groups = vec![group];
        provider.cipher_suites.retain(|suite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256);
        let algorithms = provider.signature_verification_algorithms;
        let (clients, servers) = (key(&provider)?, key(&provider)?);
        let known = |key: &CertifiedKey| -> Result<Arc<Known>> {
            let key = key.cert.first().context("no key")?.to_vec();
            Ok(Arc::new(Known { key, algorithms }))
        };
        let (client, server) = (known(&clients)?, known(&servers)?);
        let provider = Arc::new(provider);
        let mut client_config = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(server)
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(clients)));
        client_config.resumption = Resumption::disabled();
        client_config.enable_sni = false;
        let mut server_config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(client)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(servers)));
        server_config.send_tls13_tickets = 0;
        Ok(Tls { name, client: Arc::new(client_config), server: Arc::new(server_config) })
    }
}

/// What a server must keep until the client's last message.
struct Kept {
    connection: Connection,
    keys: Vec<KeyChange>,
}

/// What one end sends at once. Keys change within it.
struct Flight {
    bytes: Vec<u8>,
    /// Where the bytes under each key end.
    ends: Vec<usize>,
}

impl Flight {
    const fn empty() -> Flight {
        Flight { bytes: Vec::new(), ends: Vec::new() }
    }

    /// Allocates before an end is measured.
    fn reserve(&mut self) {
        self.bytes.reserve(4096);
        self.ends.reserve(8);
    }

    fn write(&mut self, from: &mut Connection, keys: &mut Vec<KeyChange>) {
        loop {
            let changed = from.write_hs(&mut self.bytes);
            self.ends.push(self.bytes.len());
            match changed {
                Some(changed) => keys.push(changed),
                None => return,
            }
        }
    }

    fn read(&self, to: &mut Connection) -> Result<()> {
        let mut begin = 0;
        for &end in &self.ends {
            to.read_hs(&self.bytes[begin..end])?;
            begin = end;
        }
        Ok(())
    }
}

impl Handshake for Tls {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(&mut self, clock: &mut Clock) -> Result<()> {
        let [mut first, mut second, mut third] = [const { Flight::empty() }; 3];
        [&mut first, &mut second, &mut third].into_iter().for_each(Flight::reserve);
        let mut client = clock.step(End::Client, || {
            let name = ServerName::try_from("server")?;
            let client = ClientConnection::new(self.client.clone(), Version::V1, name, Vec::new())?;
            let mut client = Connection::from(client);
            first.write(&mut client, &mut Vec::new());
            Ok(client)
        })?;
        let mut server = clock.step(End::Server, || {
            let connection = ServerConnection::new(self.server.clone(), Version::V1, Vec::new())?;
            let mut kept = Box::new(Kept { connection: connection.into(), keys: Vec::new() });
            first.read(&mut kept.connection)?;
            second.write(&mut kept.connection, &mut kept.keys);
            Ok(kept)
        })?;
        let clients = clock.step(End::Client, || {
            let mut keys = Vec::new();
            second.read(&mut client)?;
            third.write(&mut client, &mut keys);
            last(keys).context("the client has no keys")
        })?;
        clock.messages = [&first, &second, &third].map(|flight| flight.bytes.len()).into();
        let servers = clock.step(End::Server, || {
            third.read(&mut server.connection)?;
            ensure!(!server.connection.is_handshaking(), "the server wants another message");
            last(server.keys).context("the server has no keys")
        })?;
        let mut datagram = [0; 80];
        let tag = clients.local.packet.encrypt_in_place(1, &[0; 20], &mut datagram[..64])?;
        datagram[64..].copy_from_slice(tag.as_ref());
        servers.remote.packet.decrypt_in_place(1, &[0; 20], &mut datagram)?;
        Ok(())
    }
}

/// Returns the keys of datagrams, without those of the handshake.
fn last(keys: Vec<KeyChange>) -> Option<rustls::quic::Keys> {
    keys.into_iter().find_map(|keys| match keys {
        KeyChange::OneRtt { keys, .. } => Some(keys),
        KeyChange::Handshake { .. } => None,
    })
}

/// Makes a key, and its public part in the form of RFC 7250.
fn key(provider: &CryptoProvider) -> Result<Arc<CertifiedKey>> {
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).ok().context("no entropy")?;
    let pair = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).ok().context("the key is not read")?;
    ensure!(pair.public_key().as_ref().len() == 32, "an Ed25519 key has 32 bytes");
    let private = PrivateKeyDer::Pkcs8(pkcs8.as_ref().to_vec().into());
    let signs = provider.key_provider.load_private_key(private)?;
    let public = signs.public_key().context("the key has no public part")?.to_vec();
    Ok(Arc::new(CertifiedKey::new(vec![CertificateDer::from(public)], signs)))
}

/// Accepts one known key.
#[derive(Debug)]
struct Known {
    key: Vec<u8>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Known {
    fn accepts(&self, key: &CertificateDer<'_>) -> Result<(), Error> {
        if **key == *self.key { Ok(()) } else { Err(Error::General("an unknown key".into())) }
    }

    fn verify(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
    }
}

impl ServerCertVerifier for Known {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.accepts(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, key, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Known {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.accepts(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, key, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
