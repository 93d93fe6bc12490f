"""A client in schemes with secrets (docs/protocol.md, 11.2 to 11.8). Its calls are those of client.py."""

import base64
import hashlib
import os
import struct
import time
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

import sealed
import wire
from client import MAX_WAIT, MIN_WAIT, PATIENCE, TRIES, Client, Welcome, random64
from sealed import HELLO, KNOWN, MESSAGE, RESUME, WAIT
from wire import CallFailed, Malformed, frame

MISMATCH, NOT_PERMITTED = 9, 12
MAX_HANDSHAKES = 64


class Keys:
    """A directory of key files (docs/keys.md), without its grants: `identity` and `known_servers`."""

    def __init__(self, directory):
        with open(f"{directory}/identity") as text:
            seed = base64.b64decode(text.read().split("private:")[1])
        identity = Ed25519PrivateKey.from_private_bytes(seed).public_key()
        own = identity.public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.static = X25519PrivateKey.from_private_bytes(hashlib.sha512(seed).digest()[:32])
        self.presentation = b"\x01" + own + b"\0"
        with open(f"{directory}/known_servers") as text:
            self.servers = [tuple(line.split()[:2]) for line in text if line.strip() and line[0] != "#"]

    def accept(self, name, presentation):
        """The static key of a server that shows this, or None: it may not answer for the name (any, if empty)."""
        if len(presentation) < 34 or presentation[0] != 1:
            raise Malformed("not a presentation")
        key = presentation[1:33]
        named = [b64 for scope, b64 in self.servers if not name or scope in (name, name.split("/")[0], "*")]
        return montgomery(key) if base64.b64encode(key).decode() in named else None


def montgomery(key):
    """The X25519 form of an Ed25519 public key (RFC 7748, section 4.1)."""
    prime = 2**255 - 19
    y = int.from_bytes(key, "little") & (1 << 255) - 1
    return ((1 + y) * pow(1 - y, -1, prime) % prime).to_bytes(32, "little")


@dataclass
class Bind:
    """The body of a BIND (section 4.1)."""
    client: int
    nonce: int
    schemes: int
    skip: int
    name: bytes
    step: bytes = b""
    renewal: tuple = None
    proof: tuple = None
    versions: tuple = (1, 1)

    def flags(self):
        return (wire.RENEWAL if self.renewal else 0) | (wire.PROOF if self.proof else 0)

    def body(self):
        body = struct.pack(">QQHHII", self.client, self.nonce, *self.versions, self.schemes, self.skip)
        for conversation, *rest in filter(None, (self.renewal, self.proof)):
            body += struct.pack(">Q", conversation) + b"".join(rest)
        return body + wire.opaque(self.name) + sealed.handshake(self.step)

    @staticmethod
    def read(flags, reader):
        client, nonce, least, most, schemes, skip = reader.unpack("QQHHII")
        bind = Bind(client, nonce, schemes, skip, b"", versions=(least, most))
        if flags & wire.RENEWAL:
            bind.renewal = reader.unpack("Q"), wire.read_ticket(reader), reader.take(20)
        if flags & wire.PROOF:
            bind.proof = reader.unpack("Q"), wire.read_ticket(reader)
        bind.name, bind.step = reader.opaque(255), sealed.whole_step(wire.read_handshake(reader))
        return bind


class SealedClient(Client):
    TAG = sealed.TAG

    def __init__(self, host, port, keys, schemes=1 << wire.SECURE, suites=1 << 1 | 1 << 2):
        super().__init__(host, port)
        self.keys, self.schemes, self.suites = keys, schemes, suites
        self.secrets = self.seals = self.server_key = self.question = None
        self.most_in_phase = sealed.MAX_SEALED

    # Datagrams

    def seal(self, scheme, conversation, frames, size):
        if not conversation:
            return wire.seal(wire.OPEN, 0, self.number, frames, size)
        return self.seals.seal(conversation, self.number, frames, self.most_in_phase)

    def unseal(self, data):
        if len(data) < wire.HEADER + wire.TAG or data[0] != wire.VERSION:
            raise Malformed("not a datagram of wire version 1")
        scheme, marks = data[1], struct.unpack(">H", data[2:4])[0]
        if scheme == wire.OPEN:
            datagram = wire.unseal(data)
            unsealed = (wire.WELCOME, wire.CHALLENGE, wire.STALE)
            datagram.frames = [found for found in datagram.frames if found[0] in unsealed]
            return datagram
        if marks & sealed.ANSWER:
            if self.question is None:
                raise Malformed("nothing was asked")
            return self.question.open(data)
        if self.seals is None:
            raise Malformed("no conversation")
        return wire.parse(self.seals.open(data))

    # Questions

    def ask(self, name, skip=0, renew=False):
        """Sends a question until it is answered under seal: (what the answer says, when it was first asked).
        In a conversation each question renews the ticket."""
        self.question = question = Question(self, name, skip)
        began, wait, tries = time.monotonic(), MIN_WAIT, 0
        while time.monotonic() - began < PATIENCE or tries < TRIES:
            tries += 1
            body = question.bind.body()
            self.send([frame(wire.BIND, body, question.bind.flags())], wire.BASE, 0)
            question.again_at = time.monotonic() + wait
            while question.bind.body() == body and (datagram := self.receive(question.again_at)):
                welcome = question.take(datagram)
                if welcome is not None:
                    return welcome, question.began
            wait = min(2 * wait, MAX_WAIT)
        raise CallFailed(2, wire.NO, "no answer to BIND")

    def begin(self, secrets, server_key, welcome):
        """Begins the conversation of an answer."""
        self.secrets, self.server_key = secrets, server_key
        self.seals = sealed.Seals(secrets, at_client=True)
        self.take_ticket(welcome)


class Question:
    """A question, and how far the handshake has come to which it leads."""

    def __init__(self, client, name, skip):
        self.client, self.initiator, self.suite, self.key = client, None, None, None
        self.began, self.again_at, self.handshakes, self.steps = time.monotonic(), 0.0, 0, []
        self.bind = Bind(client.me, random64(), client.schemes, skip, name.encode())
        if client.ticket:
            self.bind.renewal = client.conversation, client.ticket, client.address
            self.random = os.urandom(32)
            self.set_step(RESUME, self.random)
        else:
            self.set_step(HELLO)

    def set_step(self, kind, rest=b""):
        self.steps.append(kind)
        self.bind.step = sealed.step(kind, self.client.suites, rest)

    def acceptable(self, presentation):
        """The static key of a server that shows this. None if it may not answer this question."""
        key = self.client.keys.accept(self.bind.name.decode(), presentation)
        return key if self.bind.name or self.client.server_key in (None, key) else None

    def take(self, datagram):
        """Takes a datagram: what it says, if that ends the question."""
        for kind, _, reader in datagram.frames[:1]:
            if kind != wire.WELCOME or (welcome := Welcome(reader)).nonce != self.bind.nonce:
                continue
            if datagram.scheme == wire.OPEN:
                self.take_unsealed(welcome)
                continue
            if datagram.conversation == self.client.me and not welcome.refused and self.opened is not None:
                self.client.begin(self.opened, self.key, welcome)
            return welcome
        return None

    def take_unsealed(self, welcome):
        """What anybody may have written (section 11.3)."""
        if welcome.refused:
            raise CallFailed(MISMATCH, wire.NO)
        kind, suite, milliseconds, presentation = sealed.read_step(welcome.handshake)
        if kind == WAIT:
            self.again_at = time.monotonic() + min(milliseconds / 1000, 1)
        if kind != HELLO or suite not in sealed.SUITES or not 1 << suite & self.client.suites:
            return
        self.key, self.suite = self.acceptable(presentation), suite
        self.handshakes += 1
        if self.key is None or self.handshakes > MAX_HANDSHAKES:
            raise CallFailed(NOT_PERMITTED, wire.NO, "the server has no key for the name")
        bind = self.bind
        prologue = sealed.handshake_prologue(bind.client, welcome.conversation, welcome.ticket, bind.versions,
                                             bind.schemes, bind.name, sealed.whole_step(welcome.handshake))
        keys = self.client.keys
        self.initiator = sealed.Initiator(prologue, keys.static, X25519PrivateKey.generate(), self.key,
                                          keys.presentation)
        bind.proof = welcome.conversation, welcome.ticket
        bind.nonce, self.began = random64(), time.monotonic()
        self.set_step(MESSAGE, self.initiator.message)

    def open(self, data):
        """The answer to the question, opened. Raises Malformed if these bytes are none."""
        datagram = wire.parse(data[:-sealed.TAG])
        if len(datagram.frames) != 1 or datagram.frames[0][0] != wire.WELCOME:
            raise Malformed("not one WELCOME")
        body = datagram.frames[0][2].data
        welcome = Welcome(wire.Reader(body))
        if welcome.nonce != self.bind.nonce or welcome.scheme != datagram.scheme:
            raise Malformed("an answer to another question")
        secrets, begins = self.secrets_of(welcome)
        if secrets.scheme != welcome.scheme or not 1 << welcome.scheme & self.client.schemes:
            raise Malformed("a scheme that was not offered")
        try:
            secrets.answer(self.bind.body()).open(data)
        except Malformed:
            if self.bind.step[0] == MESSAGE and begins:
                # Noise's message is right and the rest is not: somebody has changed it.
                self.bind.proof = None
                self.set_step(HELLO)
            raise
        self.opened = secrets if begins else None
        datagram.frames = [(wire.WELCOME, 0, wire.Reader(body))]
        return datagram

    def secrets_of(self, welcome):
        """The secrets under which an answer would be sealed, and whether they begin a conversation."""
        kind, suite, _, rest = sealed.read_step(welcome.handshake)
        client, former = self.client, self.client.secrets
        if kind == MESSAGE and self.bind.step[0] == MESSAGE and suite == self.suite:
            return sealed.Secrets.of_handshake(welcome.scheme, suite, *self.initiator.finish(rest)), True
        presentation = rest[32:] if kind == RESUME else rest
        if kind not in (RESUME, KNOWN) or not self.bind.renewal:
            raise Malformed("a step that answers nothing")
        if self.acceptable(presentation) != client.server_key:
            raise Malformed("another server")
        if kind == KNOWN:
            return former, False
        if self.bind.step[0] != RESUME:
            raise Malformed("nothing is resumed")
        self.key = client.server_key
        prologue = sealed.resumption_prologue(client.me, client.conversation, welcome.conversation,
                                              self.bind.name)
        return former.resumed(self.random + rest[:32], prologue), True
