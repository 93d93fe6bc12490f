"""The second implementation's schemes with secrets, as a program.

    speak_sealed.py vectors FILE           makes docs/vectors/secrets.txt again, and notices each change in it
    speak_sealed.py check HOST PORT SCHEME SUITE KEYS STRANGERS
                                           calls a Store with the keys of one directory, which are taken away
                                           and given back meanwhile, and cannot with those of another
"""

import copy
import dataclasses
import struct
import sys

import sealed
import sealed_client
import sealed_vectors
import wire
from sealed import HELLO, MESSAGE, RESUME
from sealed_client import NOT_PERMITTED, Keys, Question, SealedClient
from wire import Malformed, Position, Reader, frame


FORGOTTEN = 22


def vectors(path):
    with open(path) as text:
        exchanges = sealed_vectors.read(text.read())
    for lines in exchanges:
        sealed_vectors.check(lines)
        for at, (name, _) in enumerate(lines):
            try:
                sealed_vectors.check(sealed_vectors.alter(lines, at))
            except (sealed_vectors.Differs, Malformed):
                continue
            raise AssertionError(f"line {at} ({name}) was changed, and nothing was noticed")
    print("ok", sum(map(len, exchanges)))


class Check:
    """The checks against a server that prefers one scheme."""

    def __init__(self, host, port, scheme, suite, keys, strangers):
        self.place, self.scheme, self.suite = (host, int(port)), int(scheme), int(suite)
        self.keys, self.strangers = Keys(keys), Keys(strangers)

    def client(self, keys=None):
        return SealedClient(*self.place, keys or self.keys, 1 << 2 | 1 << 3, 1 << self.suite)

    def bind(self):
        peer = self.client()
        self.export, procedures = peer.bind("Store/main")
        self.get, self.echo, self.count, self.counted, self.wait, self.caller = sorted(procedures)
        assert peer.question.steps == [HELLO, MESSAGE]
        assert (peer.secrets.scheme, peer.secrets.suite) == (self.scheme, self.suite)
        return peer

    def call(self, peer):
        assert peer.call(self.export, self.get, wire.opaque(b"answer")) == struct.pack(">Q", 42)

    def run(self):
        self.calls()
        self.phases()
        self.changed_datagrams()
        self.changed_questions()
        self.other_keys()
        self.keys_that_are_taken_away()
        print("ok")

    def calls(self):
        peer = self.bind()
        self.call(peer)
        assert Reader(peer.call(self.export, self.caller)).opaque(64) == b"alice"
        for size in (0, 1, 900, 1_000, 1_100, 1_200, 20_000, 300_001):
            data = wire.opaque(bytes(i % 251 for i in range(size)))
            assert peer.call(self.export, self.echo, data) == data, size
        conversation = peer.conversation
        assert peer.bind("Store")[0] == self.export
        assert peer.question.steps == [RESUME] and peer.conversation == conversation, "it is known"

    def phases(self):
        """The client goes on to further phases, and the server with it."""
        peer = self.bind()
        peer.most_in_phase = 2
        for phase in range(1, 6):
            while peer.seals.now < phase:
                self.call(peer)

    def changed_datagrams(self):
        """A datagram in which a bit was changed is not taken, and no datagram is taken twice."""
        peer = self.bind()
        before, = struct.unpack(">I", peer.call(self.export, self.counted))
        peer.sequence, peer.number = peer.sequence + 1, peer.number + 1
        call = Position(1, 0, peer.sequence).pack() + struct.pack(">QII", self.export, self.count, 7)
        good = peer.seals.seal(peer.conversation, peer.number,
                               [frame(wire.TICKET, peer.ticket), frame(wire.CALL, call)])
        for data in altered(good):
            peer.socket.sendto(data, peer.server)
        assert peer.call(self.export, self.counted) == struct.pack(">I", before)
        for data in (good, good):
            peer.socket.sendto(data, peer.server)
        assert peer.call(self.export, self.counted) == struct.pack(">I", before + 1)

    def changed_questions(self):
        """An answer opens only as it was sent, and only for the question that was asked."""
        peer = self.client()
        peer.question = question = Question(peer, "Store/main", 0)
        question.take(wire.unseal(answer(peer, question.bind)))
        asked = question.bind
        # Somebody on the path changes the question, from which procedure on the client asks.
        assert not opens(question, answer(peer, dataclasses.replace(asked, skip=1)))
        # The server has computed a handshake by this proof of an address, and computes no other one by it.
        question.take(wire.unseal(answer(peer, asked)))
        assert question.steps == [HELLO, MESSAGE] * 2
        asked = question.bind
        data = answer(peer, asked)
        assert not any(opens(question, changed) for changed in altered(data))
        assert opens(question, data)

    def other_keys(self):
        """A server answers by the key that it has and no other. An unknown client gets no conversation."""
        assert failure(self.client().bind, "Other") == (NOT_PERMITTED, wire.NO), "not this server"
        stranger = self.client(self.strangers)
        assert failure(stranger.bind, "Store/main") == (NOT_PERMITTED, wire.NO)
        assert stranger.question.steps == [HELLO, MESSAGE] and stranger.seals is None, "refused under seal"
        # A client that believes in another key than the server's: to its messages there are no answers.
        keys = copy.copy(self.keys)
        keys.accept = lambda _name, _presentation: sealed.public(self.strangers.static)
        peer = self.client(keys)
        assert failure(peer.bind, "Store/main") == (NOT_PERMITTED, wire.NO)
        assert peer.question.steps == [HELLO] + [MESSAGE] * sealed_client.MAX_HANDSHAKES
        assert peer.seals is None

    def keys_that_are_taken_away(self):
        """A key that is taken away is refused. Once it is given back, its conversation is resumed."""
        refused, resumed = self.bind(), self.bind()
        for peer in (refused, resumed):
            peer.call(self.export, self.counted)
        refused.sequence += 1
        call = Position(1, 0, refused.sequence).pack() + struct.pack(">QI", self.export, self.wait)
        refused.say(frame(wire.CALL, call))
        self.until("taken away")
        assert failure(refused.call, self.export, self.counted)[0] == FORGOTTEN
        assert failure(refused.call, self.export, self.counted) == (NOT_PERMITTED, wire.NO)
        self.until("given back")
        former, secrets = resumed.conversation, resumed.secrets
        assert failure(resumed.call, self.export, self.counted)[0] == FORGOTTEN
        assert resumed.question.steps == [RESUME], "one round trip"
        assert resumed.conversation != former and resumed.secrets.base != secrets.base
        self.call(resumed)
        assert Reader(resumed.call(self.export, self.caller)).opaque(64) == b"alice"

    @staticmethod
    def until(word):
        """Asks for something to happen to the keys at the server, and waits until it has."""
        print(word, flush=True)
        assert sys.stdin.readline().strip() == word


def failure(call, *arguments):
    """The kind of a failure, and whether the call ran."""
    try:
        call(*arguments)
    except wire.CallFailed as failed:
        return failed.kind, failed.ran
    raise AssertionError("the call did not fail")


def altered(data):
    """The bytes with a bit changed, for each byte in turn."""
    for at in range(len(data)):
        yield data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]


def answer(peer, bind):
    """The datagram by which the server answers a BIND."""
    peer.number += 1
    frames = [frame(wire.BIND, bind.body(), bind.flags())]
    peer.socket.sendto(wire.seal(wire.OPEN, 0, peer.number, frames, wire.BASE), peer.server)
    peer.socket.settimeout(10)
    return peer.socket.recvfrom(65_536)[0]


def opens(question, data):
    """Whether an answer opens. The question stays as it is."""
    bind = question.bind
    question.bind = dataclasses.replace(bind)
    try:
        question.open(data)
        return True
    except Malformed:
        return False
    finally:
        question.bind = bind


if __name__ == "__main__":
    {"vectors": vectors, "check": lambda *place: Check(*place).run()}[sys.argv[1]](*sys.argv[2:])
