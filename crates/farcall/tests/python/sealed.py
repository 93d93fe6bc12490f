"""Schemes with secrets (docs/protocol.md, section 11): messages of the handshake, keys, seals of datagrams.
What a client sends, and when, is in sealed_client.py."""

import copy
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256, Hash
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

import wire
from wire import AUTHENTICATED, HEADER, Malformed

TAG = 16
TICKET_FIRST, ANSWER, PHASE_BITS = 0x8000, 0x4000, 0x3FFF
HELLO, MESSAGE, RESUME, WAIT, KNOWN = range(1, 6)
# Suites: their AEAD, and the length of its key.
SUITES = {1: (AESGCM, 16), 2: (ChaCha20Poly1305, 32)}
MAX_SEALED = 1 << 22
REMEMBERED = 128


# Steps (section 11.2)

def step(kind, suites=0, rest=b"", number=0):
    return struct.pack(">BBH", kind, suites, number) + rest


def handshake(part):
    """A whole step as the handshake field of BIND and WELCOME (section 4.4)."""
    return struct.pack(">III", len(part), 0, 0) + wire.opaque(part)


def whole_step(field):
    """The step in a handshake field."""
    total, offset, _, part = field
    if offset or len(part) != total or total < 4:
        raise Malformed("not a whole step")
    return part


def read_step(field):
    """The step in a handshake field: (kind, suites, number, the rest)."""
    part = whole_step(field)
    return *struct.unpack(">BBH", part[:4]), part[4:]


# Noise_IK_25519_ChaChaPoly_SHA256

def public(private):
    return private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def exchange(private, other):
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError as why:
        raise Malformed("a Diffie-Hellman result of zeros") from why


def digest(*parts):
    hash = Hash(SHA256())
    for part in parts:
        hash.update(part)
    return hash.finalize()


def hkdf(salt, material, info, size):
    return HKDF(SHA256(), size, salt, info).derive(material)


def expand(key, info, size=32):
    return HKDFExpand(SHA256(), size, info).derive(key)


def mac(key, *parts):
    hmac = HMAC(key, SHA256())
    for part in parts:
        hmac.update(part)
    return hmac.finalize()


class Noise:
    """What Noise calls a SymmetricState, with its CipherState."""

    def __init__(self, prologue, server_static):
        name = b"Noise_IK_25519_ChaChaPoly_SHA256"
        self.hash = self.chain = name.ljust(32, b"\0")
        self.key, self.count = None, 0
        self.mix_hash(prologue)
        self.mix_hash(server_static)

    def mix_hash(self, data):
        self.hash = digest(self.hash, data)

    def mix_key(self, material):
        both = hkdf(self.chain, material, b"", 64)
        self.chain, self.key, self.count = both[:32], both[32:], 0

    def nonce(self):
        self.count += 1
        return struct.pack("<4xQ", self.count - 1)

    def encrypt(self, plain):
        sealed = ChaCha20Poly1305(self.key).encrypt(self.nonce(), plain, self.hash)
        self.mix_hash(sealed)
        return sealed

    def decrypt(self, sealed):
        try:
            plain = ChaCha20Poly1305(self.key).decrypt(self.nonce(), sealed, self.hash)
        except InvalidTag as why:
            raise Malformed("a message of the handshake does not open") from why
        self.mix_hash(sealed)
        return plain

    def split(self):
        return hkdf(self.chain, b"", b"", 64)


class Initiator:
    """The client's end of a handshake."""

    def __init__(self, prologue, static, ephemeral, server, presentation):
        self.static, self.ephemeral = static, ephemeral
        self.noise = noise = Noise(prologue, server)
        noise.mix_hash(public(ephemeral))
        noise.mix_key(exchange(ephemeral, server))
        key = noise.encrypt(public(static))
        noise.mix_key(exchange(static, server))
        self.message = public(ephemeral) + key + noise.encrypt(presentation)

    def finish(self, message):
        """Takes the second message: (split, the handshake's hash)."""
        noise, ephemeral = copy.copy(self.noise), message[:32]
        if len(message) < 48:
            raise Malformed("a message that is too short")
        noise.mix_hash(ephemeral)
        noise.mix_key(exchange(self.ephemeral, ephemeral))
        noise.mix_key(exchange(self.static, ephemeral))
        noise.decrypt(message[32:])
        return noise.split(), noise.hash


def respond(prologue, static, ephemeral, message):
    """The server's end: (the client's key, its presentation, the second message, split, the hash)."""
    noise, theirs = Noise(prologue, public(static)), message[:32]
    noise.mix_hash(theirs)
    noise.mix_key(exchange(static, theirs))
    client = noise.decrypt(message[32:80])
    noise.mix_key(exchange(static, client))
    presentation = noise.decrypt(message[80:])
    noise.mix_hash(public(ephemeral))
    noise.mix_key(exchange(ephemeral, theirs))
    noise.mix_key(exchange(ephemeral, client))
    answer = public(ephemeral) + noise.encrypt(b"")
    return client, presentation, answer, noise.split(), noise.hash


def handshake_prologue(client, conversation, ticket, versions, schemes, name, hello):
    numbers = struct.pack(">QQ", client, conversation), struct.pack(">HHI", *versions, schemes)
    opaques = wire.opaque(name) + wire.opaque(hello)
    return b"farcall handshake 1\0" + numbers[0] + ticket + numbers[1] + opaques


def resumption_prologue(client, former, conversation, name):
    return b"farcall resumption 1\0" + struct.pack(">QQQ", client, former, conversation) + name


# Secrets and keys (section 11.4)

class Key:
    """An AEAD's key, with its IV."""

    def __init__(self, suite, secret, info):
        aead, size = SUITES[suite]
        self.bytes = expand(secret, info, size + 12)
        self.aead, self.iv = aead(self.bytes[:size]), self.bytes[size:]

    def nonce(self, number):
        return self.iv[:4] + struct.pack(">Q", struct.unpack(">Q", self.iv[4:])[0] ^ number)

    def seal(self, datagram):
        """A datagram without a tag, sealed."""
        clear = in_clear(datagram)
        number = struct.unpack(">Q", datagram[12:HEADER])[0]
        return datagram[:clear] + self.aead.encrypt(self.nonce(number), datagram[clear:], datagram[:clear])

    def open(self, data):
        """The datagram without its tag. Raises Malformed if it does not open."""
        clear, number = in_clear(data[:-TAG]), struct.unpack(">Q", data[12:HEADER])[0]
        try:
            return data[:clear] + self.aead.decrypt(self.nonce(number), data[clear:], data[:clear])
        except InvalidTag as why:
            raise Malformed("the datagram does not open") from why


def in_clear(datagram):
    """How many bytes of a datagram, without its tag, are not encrypted."""
    if len(datagram) < HEADER:
        raise Malformed("a datagram that is too short")
    marks = struct.unpack(">H", datagram[2:4])[0]
    if datagram[1] == AUTHENTICATED or marks & ANSWER:
        return len(datagram)
    if not marks & TICKET_FIRST:
        return HEADER
    first = wire.Reader(datagram[HEADER:])
    first.take(first.unpack("xxH"))
    return HEADER + first.at


class Secrets:
    """What two ends share in a conversation."""

    def __init__(self, scheme, suite, root):
        self.scheme, self.suite, self.root = scheme, suite, root
        self.base, self.chain = expand(root, b"farcall base"), expand(root, b"farcall chain")
        self.resumption = expand(self.base, b"farcall resume")
        self.meeting = expand(self.base, b"farcall meeting")

    @staticmethod
    def of_handshake(scheme, suite, split, hash):
        return Secrets(scheme, suite, hkdf(hash, split, b"farcall root", 32))

    def resumed(self, random, prologue):
        """The secrets of the next conversation; `random` are the client's bytes, then the server's."""
        root = hkdf(random, self.resumption, b"farcall resumed" + prologue, 32)
        return Secrets(self.scheme, self.suite, root)

    def answer(self, question):
        """The key of the answer to a BIND with this body (section 11.5)."""
        return Key(self.suite, self.base, b"farcall answer" + question)


# Meetings (section 11.10, and docs/shared-memory.md)

def meeting_hello(nonce, export, ticket, conversation, address):
    """The hello of a client that wants to call; the address is that of WELCOME."""
    client, _, issued = struct.unpack(">QQQ", ticket[:24])
    return nonce + struct.pack(">QQQQ", export, client, issued, conversation) + address[:18] + b"C"


def meeting_body(ticket, hello):
    return struct.pack(">H", len(ticket)) + ticket + hello


def meeting_transcript(challenge, processes, body, address):
    head = b"farcall meeting 1\0" + challenge + struct.pack(">iiH", *processes, len(body))
    return head + body + address


class Phase:
    """The keys of one phase. (Erasing secrets is left out: Python cannot.)"""

    def __init__(self, suite, chain):
        self.suite, self.chain = suite, chain
        self.to_server = Key(suite, chain, b"farcall to server")
        self.to_client = Key(suite, chain, b"farcall to client")

    def next(self):
        return Phase(self.suite, expand(self.chain, b"farcall next"))


class Seals:
    """The seals of a conversation at one of its ends: what was sealed in which phase, and what has come."""

    def __init__(self, secrets, at_client):
        self.scheme, self.at_client = secrets.scheme, at_client
        first = Phase(secrets.suite, secrets.chain)
        self.now, self.phases = 0, {0: first, 1: first.next()}
        self.sealed, self.is_heard = 0, True
        self.greatest, self.seen = 0, set()

    def advance(self):
        """Goes on to the next phase."""
        self.now, self.sealed, self.is_heard = self.now + 1, 0, False
        following = self.phases[self.now].next()
        self.phases = {phase: self.phases[phase] for phase in (self.now - 1, self.now)}
        self.phases[self.now + 1] = following

    def seal(self, conversation, number, frames, most=MAX_SEALED):
        if self.sealed >= most and self.is_heard:
            self.advance()
        self.sealed += 1
        marks = self.now & PHASE_BITS | (TICKET_FIRST if frames and frames[0][0] == wire.TICKET else 0)
        head = struct.pack(">BBHQQ", wire.VERSION, self.scheme, marks, conversation, number)
        phase = self.phases[self.now]
        return (phase.to_server if self.at_client else phase.to_client).seal(head + b"".join(frames))

    def open(self, data):
        """The datagram without its tag. Raises Malformed if it does not open or has come before."""
        _, scheme, marks, _, number = struct.unpack(">BBHQQ", data[:HEADER])
        named = [phase for phase in self.phases if phase & PHASE_BITS == marks & PHASE_BITS]
        if scheme != self.scheme or marks & ANSWER or not named:
            raise Malformed("another scheme, or another phase")
        phase = self.phases[named[0]]
        plain = (phase.to_client if self.at_client else phase.to_server).open(data)
        if number in self.seen or number + REMEMBERED <= self.greatest:
            raise Malformed("a datagram that has come before")
        self.greatest = max(self.greatest, number)
        self.seen = {seen for seen in self.seen | {number} if seen + REMEMBERED > self.greatest}
        if named[0] > self.now:
            self.advance()
        self.is_heard |= named[0] == self.now
        return plain
