"""Makes every value of docs/vectors/secrets.txt again, from the private keys in it and from what is said by
either end."""

import struct

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

import sealed
import wire
from client import Welcome
from sealed_client import Bind
from wire import frame


class Differs(Exception):
    """A line of the vectors that is not what this implementation makes."""


def read(text):
    """The exchanges of the file, each from its handshake on: lines, which are (name, bytes)."""
    lines = [line.split(": ") for line in text.splitlines() if line and not line.startswith("#")]
    exchanges = []
    for name, value in lines:
        if name == "client's private key":
            exchanges.append([])
        exchanges[-1].append((name, bytes.fromhex(value)))
    return exchanges


def check(lines):
    """Makes each line of an exchange again. Raises Differs if a line is another, or nothing makes it."""
    exchange = Exchange(lines)
    for at, (name, value) in enumerate(lines):
        made = exchange.make(at, name, value)
        if made != value:
            raise Differs(f"line {at} ({name}): {value.hex()}, not {made.hex()}")


def alter(lines, at):
    """The lines, with a bit changed in the middle of one of them."""
    name, value = lines[at]
    value = bytearray(value)
    value[len(value) // 2] ^= 1
    return [*lines[:at], (name, bytes(value)), *lines[at + 1:]]


# The numbers of the processes that meet.
PROCESSES = (2, 3)


class Exchange:
    """What both ends know after the lines before."""

    def __init__(self, lines):
        self.lines = lines
        self.private, self.random, self.made = {}, {}, {}
        self.seals, self.phase, self.secrets, self.given = {}, None, None, {}

    def make(self, at, name, value):
        if name in ("client", "server"):
            return self.datagram(name, value)
        if name.endswith("private key"):
            # An input. Its public key, which follows, shows that it was used.
            self.private[name.removesuffix(" private key")] = X25519PrivateKey.from_private_bytes(value)
            return value
        if name.endswith("public key"):
            return sealed.public(self.private[name.removesuffix(" public key")])
        if name.endswith("random bytes"):
            # An input too: the client's was in the BIND before, the server's is in the WELCOME that comes.
            self.random[name.removesuffix("'s random bytes")] = value
            return self.question.step[4:] if name.startswith("client") else value
        if name in ("challenge", "address"):
            # Inputs of a meeting, on which the transcript depends.
            self.given[name] = value
            return value
        if name == "hello":
            # Its first bytes are random.
            self.begin_meeting(value[:16])
        if name == "prologue":
            (self.begin_resumption if self.question.renewal else self.begin_handshake)(at)
        elif name == "chain" and self.made.pop("phase is new", None) is None:
            self.phase = self.phase.next()
            self.phase_lines()
        if name not in self.made:
            raise Differs(f"line {at} ({name}): nothing makes such a line here")
        return self.made.pop(name)

    # Secrets

    def begin_handshake(self, at):
        hello, question = self.welcome, self.question
        prologue = sealed.handshake_prologue(question.client, hello.conversation, hello.ticket,
                                             question.versions, question.schemes, question.name,
                                             self.welcome_step)
        static, ephemeral = self.private["client's"], self.private["client's ephemeral"]
        server, others = self.private["server's"], self.private["server's ephemeral"]
        initiator = sealed.Initiator(prologue, static, ephemeral, sealed.public(server),
                                     sealed.public(static))
        client, _, answer, *outcome = sealed.respond(prologue, server, others, initiator.message)
        if client != sealed.public(static) or initiator.finish(answer) != tuple(outcome):
            raise Differs(f"line {at}: the ends of the handshake differ")
        self.made |= {"prologue": prologue, "message 1": initiator.message, "message 2": answer,
                      "split": outcome[0], "handshake hash": outcome[1]}
        self.message, self.answered = initiator.message, answer
        self.begin(sealed.Secrets.of_handshake(hello.scheme, self.welcome_step[1], *outcome))

    def begin_resumption(self, at):
        question, answer = self.question, wire.parse(self.following(at, "server")[:-sealed.TAG])
        conversation = Welcome(answer.frames[0][2]).conversation
        prologue = sealed.resumption_prologue(question.client, question.renewal[0], conversation,
                                              question.name)
        self.made |= {"prologue": prologue, "resumption secret": self.secrets.resumption}
        self.begin(self.secrets.resumed(self.random["client"] + self.random["server"], prologue))

    def begin(self, secrets):
        self.secrets, self.phase = secrets, sealed.Phase(secrets.suite, secrets.chain)
        self.seals = {end: sealed.Seals(secrets, end == "client") for end in ("client", "server")}
        self.made |= {"root": secrets.root, "base": secrets.base, "phase is new": True,
                      "meeting key": secrets.meeting}
        self.answer_line()
        self.phase_lines()

    def phase_lines(self):
        self.made |= {"chain": self.phase.chain, "key and iv to server": self.phase.to_server.bytes,
                      "key and iv to client": self.phase.to_client.bytes}

    def answer_line(self):
        self.made["key and iv of the answer"] = self.secrets.answer(self.question.body()).bytes

    # Meetings

    def begin_meeting(self, nonce):
        welcome = self.welcome
        hello = sealed.meeting_hello(nonce, welcome.export, welcome.ticket, welcome.conversation,
                                     welcome.address)
        body = sealed.meeting_body(welcome.ticket, hello)
        transcript = sealed.meeting_transcript(self.given["challenge"], PROCESSES, body, self.given["address"])
        proofs = [sealed.mac(self.secrets.meeting, label, transcript)
                  for label in (b"farcall client", b"farcall server")]
        self.made |= {"hello": hello, "transcript": transcript, "client's message": proofs[0] + body,
                      "server's proof": proofs[1]}

    def following(self, at, name):
        return next(value for found, value in self.lines[at:] if found == name)

    # Datagrams

    def datagram(self, end, data):
        """Reads a datagram as the other end does, and makes it again."""
        for name in ("nonce", "plain"):
            self.made.pop(name, None)
        scheme, marks = data[1], struct.unpack(">H", data[2:4])[0]
        if scheme == wire.OPEN:
            made = self.in_the_open(wire.unseal(data), len(data))
        elif marks & sealed.ANSWER:
            made = self.answer(data)
        else:
            made = self.in_a_conversation(end, data, marks)
        return made

    def in_the_open(self, datagram, size):
        kind, flags, reader = datagram.frames[0]
        frames = [again(found) for found in datagram.frames]
        if kind == wire.BIND:
            self.question = question = Bind.read(flags, reader)
            if question.step[0] == sealed.MESSAGE:
                question.step = question.step[:4] + self.message
                self.answer_line()
            frames = [frame(wire.BIND, question.body(), question.flags())]
        elif kind == wire.WELCOME:
            self.take_welcome(Welcome(reader))
        return wire.seal(wire.OPEN, datagram.conversation, datagram.number, frames, size)

    def answer(self, data):
        key = self.secrets.answer(self.question.body())
        datagram = wire.parse(key.open(data))
        self.take_welcome(Welcome(datagram.frames[0][2]))
        if not self.welcome_step[4:].startswith(self.random["server"] if self.random else self.answered):
            raise Differs("the step in the WELCOME")
        self.made["nonce"] = key.nonce(datagram.number)
        head = struct.pack(">BBHQQ", wire.VERSION, self.secrets.scheme, sealed.ANSWER, datagram.conversation,
                           datagram.number)
        return key.seal(head + b"".join(again(f) for f in datagram.frames))

    def in_a_conversation(self, end, data, marks):
        ours, others = self.seals[end], self.seals["server" if end == "client" else "client"]
        plain = others.open(data)
        if marks & sealed.PHASE_BITS > ours.now:
            ours.advance()
        datagram = wire.parse(plain)
        keys = ours.phases[ours.now]
        self.made["nonce"] = (keys.to_server if end == "client" else keys.to_client).nonce(datagram.number)
        if ours.scheme == wire.SECURE:
            self.made["plain"] = plain
        return ours.seal(datagram.conversation, datagram.number, [again(f) for f in datagram.frames])

    def take_welcome(self, welcome):
        self.welcome, self.welcome_step = welcome, sealed.whole_step(welcome.handshake)


def again(found):
    """A frame that was read, as bytes."""
    kind, flags, reader = found
    return frame(kind, reader.data, flags)
