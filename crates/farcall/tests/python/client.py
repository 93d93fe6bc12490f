"""A client of the packet exchange protocol: one conversation, one call at a time (docs/protocol.md, 4 to 7)."""

import ipaddress
import os
import socket
import struct
import time

import same_user
import wire
from transfer import Incoming, Outgoing
from wire import CallFailed, Datagram, Malformed, Position, Reader, frame

# Probes come often enough to be the keep-alive too (section 6.1).
MIN_WAIT, MAX_WAIT, MAX_PROBE = 0.020, 1.0, 2.0
PATIENCE, TRIES = 10.0, 10
MAX_RESULT = 16 << 20
NOT_PERMITTED = 12


class Declared(Exception):
    """A declared exception: its XDR."""

    def __init__(self, data):
        super().__init__("declared")
        self.data = data


class Restarted(Exception):
    """The conversation is over; the next call needs another."""


def random64():
    return int.from_bytes(os.urandom(8), "big") or 1


class Client:
    TAG = wire.TAG

    def __init__(self, host, port, scheme=wire.OPEN):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_DGRAM)
        self.socket.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
        self.server, self.host, self.wanted = (host, port), host, scheme
        self.me = random64()
        self.scheme = wire.OPEN
        self.conversation, self.ticket, self.shown = 0, None, False
        self.sequence = self.number = 0
        self.heard = 0.0
        # The ticket that let us in, with its conversation, at a server that asks for a proof of the user.
        self.let_in = None
        self.sent = {"datagrams": 0, "again": 0}

    # Datagrams

    def send(self, frames, size=0, conversation=None):
        self.number += 1
        conversation = self.conversation if conversation is None else conversation
        scheme = self.scheme if conversation else wire.OPEN
        self.sent["datagrams"] += 1
        self.socket.sendto(self.seal(scheme, conversation, frames, size), self.server)

    def seal(self, scheme, conversation, frames, size):
        return wire.seal(scheme, conversation, self.number, frames, size)

    def unseal(self, data):
        return wire.unseal(data)

    def head_size(self):
        """The bytes of a datagram that are not of its last frame, while the ticket is shown."""
        return wire.HEADER + self.TAG + wire.FRAME_HEAD + len(self.ticket)

    def say(self, *frames):
        """Sends frames in the conversation, behind the ticket until the server has answered."""
        shown = [] if self.shown else [frame(wire.TICKET, self.ticket)]
        self.send([*shown, *frames])

    def receive(self, until):
        """The next datagram for us, or None when the time is over."""
        while (left := until - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                data, _ = self.socket.recvfrom(65_536)
                datagram = self.unseal(data)
            except (TimeoutError, Malformed, ConnectionRefusedError):
                continue
            if datagram.conversation in (self.me, 0):
                return datagram
        return None

    # Binding

    def ask(self, name, skip=0, renew=False):
        """Asks, and proves who our user is if the server challenges us (section 4.5)."""
        welcome, began = self.ask_once(name, skip, renew, self.let_in)
        if welcome.refused == NOT_PERMITTED and same_user.is_challenge(welcome.ticket):
            reason, age = welcome.reason, welcome.age
            challenge = (welcome.conversation, welcome.ticket)
            proofs = [same_user.proof(secret, *challenge, self.server) for secret in same_user.secrets()]
            welcome, _ = self.ask_once(name, skip, False, challenge, proofs)
            if not welcome.refused:
                self.let_in = (welcome.conversation, welcome.ticket)
            welcome.reason, welcome.age = reason, age
        return welcome, began

    def ask_once(self, name, skip, renew, proof=None, before=()):
        """Sends a BIND until it is answered: (what the answer says, when it was first asked)."""
        nonce, wait, began, tries = random64(), MIN_WAIT, time.monotonic(), 0
        local = self.wanted == wire.LOCAL and ipaddress.ip_address(self.host).is_loopback
        schemes = 1 << wire.OPEN | (1 << wire.LOCAL if local else 0)
        body = struct.pack(">QQHHII", self.me, nonce, 1, 1, schemes, skip)
        if renew:
            body += struct.pack(">Q", self.conversation) + self.ticket + self.address
        if proof:
            body += struct.pack(">Q", proof[0]) + proof[1]
        body += wire.opaque(name.encode()) + wire.NO_HANDSHAKE
        flags = (wire.RENEWAL if renew else 0) | (wire.PROOF if proof else 0)
        while True:
            self.send([*before, frame(wire.BIND, body, flags)], wire.BASE, conversation=0)
            tries += 1
            until = time.monotonic() + wait
            while datagram := self.receive(until):
                for kind, _, reader in datagram.frames:
                    if kind == wire.WELCOME and (welcome := Welcome(reader)).nonce == nonce:
                        return welcome, began
            wait = min(2 * wait, MAX_WAIT)
            if time.monotonic() - began > PATIENCE and tries >= TRIES:
                raise CallFailed(2, wire.NO, "no answer to BIND")

    def take_ticket(self, welcome):
        self.conversation, self.ticket, self.address = welcome.conversation, welcome.ticket, welcome.address
        self.scheme, self.shown, self.last_word = welcome.scheme, False, time.monotonic()

    def bind(self, name, skip=0):
        """Asks for the export of this name: (export, {procedure: what the server says of it})."""
        welcome, _ = self.ask(name, skip)
        if welcome.refused:
            raise CallFailed(welcome.refused, wire.NO, name)
        if self.ticket is None:
            self.take_ticket(welcome)
        procedures = welcome.procedures
        if procedures and skip + len(procedures) < welcome.total:
            _, more = self.bind(name, skip + len(procedures))
            procedures.update(more)
        return welcome.export, procedures

    def confirm(self):
        """Asks whether our ticket is good (section 7.2): None if it is, else (reason, age, when that was asked)."""
        conversation, ticket = self.conversation, self.ticket
        welcome, asked = self.ask("", renew=True)
        good = not welcome.reason and welcome.conversation == conversation
        if good and welcome.ticket == ticket:
            return None
        if not welcome.refused:
            self.take_ticket(welcome)
        else:
            self.ticket = None
        return None if good else (welcome.reason, welcome.age, asked)

    def rebind(self):
        """Begins a new conversation; the client's identifier and its sequences go on."""
        self.ticket, self.conversation, self.shown = None, 0, False
        self.bind("")

    # Calls

    def call(self, export, procedure, arguments=b"", deadline=None, trace=None, cancel_after=None):
        if self.ticket is None:
            self.rebind()
        self.sequence += 1
        return Call(self, export, procedure, arguments, deadline, trace, cancel_after).run()


class Welcome:
    """What a server answers to a BIND (section 4.2)."""

    def __init__(self, reader):
        self.nonce, self.conversation = reader.unpack("QQ")
        self.ticket = wire.read_ticket(reader)
        _, _, self.refused, self.scheme = reader.unpack("HHHH")
        self.export = reader.unpack("Q")
        self.address = reader.take(20)
        self.reason, _, self.age = reader.unpack("IIQ")
        self.handshake = wire.read_handshake(reader)
        self.total, self.procedures = reader.unpack("I"), {}
        while reader.at < len(reader.data):
            number, *fingerprint = reader.unpack("IQQ")
            self.procedures[number] = tuple(fingerprint)


class Call:
    """One call, from its first datagram to its end."""

    def __init__(self, client, export, procedure, arguments, deadline, trace, cancel_after):
        self.client, self.arguments = client, arguments
        self.position = Position(0, 0, client.sequence)
        items = {}
        if deadline is not None:
            items[1] = struct.pack(">Q", int(deadline * 1e9))
        if trace is not None:
            items[2] = trace
        self.flags = wire.META if items else 0
        self.head = self.position.pack() + struct.pack(">QI", export, procedure)
        self.head += wire.pack_metadata(items) if items else b""
        room = (wire.BASE - client.head_size() - wire.FRAME_HEAD - len(self.head)) & ~3
        self.outgoing = Outgoing(arguments, room - 8) if len(arguments) > room else None
        self.incoming = None
        self.running = self.cancelled = False
        self.began = self.heard = time.monotonic()
        self.cancel_at = None if cancel_after is None else self.began + cancel_after
        self.wait, self.tries = MIN_WAIT, 0

    def run(self):
        self.transmit()
        until = time.monotonic() + self.wait
        while True:
            stop = min(until, self.cancel_at) if self.cancel_at and not self.cancelled else until
            datagram = self.client.receive(stop)
            if datagram is None:
                if self.cancel_at and not self.cancelled and time.monotonic() >= self.cancel_at:
                    self.cancelled, self.wait = True, MIN_WAIT
                self.again()
                until = time.monotonic() + self.wait
                continue
            for kind, flags, reader in datagram.frames:
                ended = self.take(datagram, kind, flags, reader)
                if ended is not None:
                    return ended

    def transmit(self):
        """Sends what may be sent of the arguments."""
        if self.outgoing is None:
            self.client.say(frame(wire.CALL, self.head + self.arguments, self.flags))
            return
        due = self.outgoing.due()
        for start in due:
            body = self.head + self.outgoing.body(start, self.client.number + 1)
            ask = wire.ASK if start == due[-1] else 0
            self.client.say(frame(wire.CALL, body, self.flags | wire.FRAGMENT | ask))

    def again(self):
        """What the timer sends (section 5.3)."""
        self.tries += 1
        self.client.sent["again"] += 1
        if self.tries >= TRIES and time.monotonic() - self.heard > PATIENCE:
            raise CallFailed(2, wire.MAYBE, "the server is silent")
        if self.cancelled:
            self.client.say(frame(wire.CANCEL, self.position.pack()))
        elif self.incoming:
            self.client.say(self.incoming.select(self.position, pull=True))
        elif self.running or self.outgoing:
            self.client.say(frame(wire.PROBE, self.position.pack()))
        else:
            self.transmit()
        self.wait = min(2 * self.wait, MAX_PROBE if self.running else MAX_WAIT)

    def take(self, datagram, kind, flags, reader):
        """Takes a frame. Gives the result when it is whole; raises when the call has failed."""
        if kind in (wire.CHALLENGE, wire.STALE):
            return self.refused(kind, reader)
        if kind == wire.WANTED:
            # Nobody waits for an earlier call any more; for this one, silence is the answer.
            asked = reader.position()
            if asked.sequence < self.position.sequence:
                self.client.say(frame(wire.CANCEL, asked.pack()))
            return None
        if kind not in (wire.RESULT, wire.STATE, wire.SELECT) or reader.position() != self.position:
            return None
        self.client.shown, self.heard, self.tries = True, time.monotonic(), 0
        self.client.last_word = self.heard
        if kind == wire.SELECT and self.outgoing:
            self.outgoing.take(reader, bool(flags & wire.PULL))
            self.transmit()
        elif kind == wire.STATE:
            self.state(reader.unpack("I"))
        elif kind == wire.RESULT:
            return self.result(datagram, flags, reader)
        return None

    def state(self, progress):
        if self.cancelled and progress in (wire.RUNNING, wire.GONE):
            raise CallFailed(10, wire.MAYBE if progress == wire.RUNNING else wire.YES)
        if progress == wire.GONE:
            raise CallFailed(17, wire.YES, "the result is no longer held")
        if progress == wire.UNKNOWN:
            if self.outgoing:
                self.outgoing.lose()
            self.transmit()
        self.running = progress == wire.RUNNING

    def result(self, datagram, flags, reader):
        outcome, ran, kind = reader.unpack("BBH")
        total, offset, data = wire.part(flags, reader)
        if total is not None:
            self.incoming = self.incoming or Incoming(total, MAX_RESULT)
            tell = self.incoming.take(datagram.number, offset, data) or flags & wire.ASK
            data = self.incoming.whole()
            if data is not None or tell:
                self.client.say(self.incoming.select(self.position))
            if data is None:
                return None
        if outcome == wire.FAILED:
            why = Reader(data).opaque(512).decode(errors="replace")
            raise CallFailed(kind, ran, why)
        if outcome == wire.RAISED:
            raise Declared(data)
        return data

    def refused(self, kind, reader):
        conversation, _ = reader.unpack("QQ")
        if conversation != self.client.conversation:
            return None
        if kind == wire.CHALLENGE:
            if self.client.shown:
                self.client.shown = False
                if self.outgoing:
                    self.outgoing.lose()
                self.transmit()
            return None
        # STALE is a hint: what the server says under our nonce counts.
        last_word = self.client.last_word
        verdict = self.client.confirm()
        if verdict is None:
            return None
        reason, age, asked = verdict
        if reason == 4:
            raise CallFailed(6, wire.NO, "the server can take on no conversation")
        # The other server must have begun before the call was sent, and after the last word of this one.
        since, quiet, age = time.monotonic() - self.began, asked - last_word, age / 1e9
        gone = reason in (1, 2) and age > since * 9 / 8 + 0.002 and quiet > age * 9 / 8 + 0.002
        raise CallFailed(22 if reason == 2 else 3, wire.NO if gone else wire.MAYBE, "the conversation is over")
