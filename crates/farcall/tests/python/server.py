"""A server of the packet exchange protocol (docs/protocol.md, 4 to 7). It never forgets a conversation: at its
bound it refuses new ones (STALE, reason 4)."""

import hashlib
import hmac
import ipaddress
import os
import queue
import socket
import struct
import threading
import time
from dataclasses import dataclass, field

import idl
import wire
from client import Declared, random64
from transfer import Incoming, Outgoing
from wire import CallFailed, Malformed, Position, Reader, frame

MAX_CONVERSATIONS, MAX_ACTIVITIES, MAX_ARGUMENTS = 1024, 1024, 16 << 20


@dataclass
class Export:
    name: str
    interface: "idl.Interface"
    procedures: dict
    began: float = field(default_factory=time.monotonic)


@dataclass
class Activity:
    """What is kept of a caller: the last sequence it used, and what became of it (section 5.2)."""
    last: int = 0
    refused: bool = False
    incoming: Incoming = None
    running: bool = False
    cancelled: threading.Event = None
    result: tuple = None
    outgoing: Outgoing = None


@dataclass
class Conversation:
    client: int
    address: tuple
    scheme: int
    activities: dict = field(default_factory=dict)


class Server:
    def __init__(self, port=0):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", port))
        self.address = self.socket.getsockname()
        self.secret, self.incarnation, self.began = os.urandom(32), random64(), time.monotonic()
        self.issued = self.number = 0
        self.exports, self.conversations = {}, {}
        self.finished = queue.SimpleQueue()
        self.executed = 0

    def export(self, name, interface, procedures):
        """Offers `procedures`, a function for each number: it takes the arguments' XDR and an event that tells it to
        cancel, gives the result's, and may raise Declared or CallFailed."""
        number = random64()
        self.exports[number] = Export(name, interface, procedures)
        return number

    # Datagrams

    def send(self, scheme, conversation, address, frames, size=0):
        self.number += 1
        self.socket.sendto(wire.seal(scheme, conversation, self.number, frames, size), address)

    def say(self, conversation, *frames):
        self.send(conversation.scheme, conversation.client, conversation.address, frames)

    def run(self):
        """Serves for ever."""
        while True:
            try:
                data, address = self.socket.recvfrom(65_536)
                self.handle(wire.unseal(data), address, len(data))
            except (Malformed, ConnectionRefusedError):
                pass
            while not self.finished.empty():
                self.finish(*self.finished.get())

    def handle(self, datagram, address, size):
        shown = None
        for kind, flags, reader in datagram.frames:
            if kind == wire.BIND:
                return self.bind(datagram, reader, flags, address, size)
            if kind == wire.TICKET:
                shown = wire.read_ticket(reader)
                continue
            if datagram.conversation == 0:
                return None
            conversation = self.admit(datagram, shown, address)
            if conversation is None:
                return None
            if kind == wire.MTU_PROBE:
                echo = frame(wire.MTU_ECHO, struct.pack(">I", size))
                return self.send(conversation.scheme, conversation.client, address, [echo], size)
            if kind in (wire.CALL, wire.SELECT, wire.CANCEL, wire.PROBE):
                self.take(conversation, datagram.number, kind, flags, reader)
            elif kind < wire.NON_CRITICAL and kind not in (wire.PADDING, wire.POST):
                raise Malformed(f"frame {kind:02x}")
        return None

    # Tickets (section 4.3) and binding

    def mac(self, head, conversation, address):
        text = head[:24] + struct.pack(">Q", conversation) + wire.address(*address[:2])
        return hmac.new(self.secret, text, hashlib.sha256).digest()[:16]

    def ticket(self, client, conversation, address):
        self.issued += 1
        head = struct.pack(">QQQ", client, self.incarnation, self.issued)
        return self.dated(head, conversation, address)

    def dated(self, head, conversation, address):
        """The ticket of that date for a client there."""
        return head[:24] + self.mac(head, conversation, address) + wire.opaque(b"")

    def stands(self, ticket, conversation, address):
        """Why a ticket that was given to this address is not good, and since when: (reason, age); reason 0 if it is."""
        if struct.unpack(">Q", ticket[8:16])[0] != self.incarnation:
            return 1, int((time.monotonic() - self.began) * 1e9)
        if not hmac.compare_digest(ticket[24:40], self.mac(ticket, conversation, address)):
            return 3, 0
        if conversation not in self.conversations and len(self.conversations) >= MAX_CONVERSATIONS:
            return 4, 0
        return 0, 0

    def bind(self, datagram, reader, flags, address, size):
        client, nonce, least, most, schemes, skip = reader.unpack("QQHHII")
        conversation, renewed, reason, age = random64(), None, 0, 0
        if flags & wire.RENEWAL:
            asked, old, where = reader.unpack("Q"), wire.read_ticket(reader), reader.address()
            reason, age = self.stands(old, asked, where)
            if not reason:
                conversation, renewed = asked, self.dated(old, asked, address)
        if flags & wire.PROOF:
            reader.take(8)
            wire.read_ticket(reader)
        name = reader.opaque(255).decode(errors="replace")
        wire.read_handshake(reader)
        if datagram.conversation or not client:
            return
        local = schemes & 1 << wire.LOCAL and ipaddress.ip_address(address[0]).is_loopback
        export, refused, listed = 0, 0, []
        if not least <= wire.VERSION <= most or not (local or schemes & 1 << wire.OPEN):
            refused = 9
        elif name:
            export, found = next(((n, e) for n, e in self.exports.items() if matches(name, e.name)), (0, None))
            refused = 0 if found else 4
            listed = found.interface.listed() if found else []
        body = struct.pack(">QQ", nonce, conversation) + (renewed or self.ticket(client, conversation, address))
        body += struct.pack(">HHHHQ", 1, 1, refused, wire.LOCAL if local else wire.OPEN, export)
        body += wire.address(*address[:2]) + struct.pack(">IIQ", reason, 0, age)
        body += wire.NO_HANDSHAKE + struct.pack(">I", len(listed))
        entries = [struct.pack(">IQQ", *entry) for entry in listed[skip:]]
        room = (min(size, wire.BASE) - wire.HEADER - wire.TAG - wire.FRAME_HEAD - len(body)) // 20
        self.send(wire.OPEN, client, address, [frame(wire.WELCOME, body + b"".join(entries[:room]))])

    def admit(self, datagram, shown, address):
        """The conversation of a datagram, if it is known or its ticket is good; else answers what section 7 says."""
        known = self.conversations.get(datagram.conversation)
        if known and known.address == address:
            known.scheme = datagram.scheme
            return known
        word = struct.pack(">QQ", datagram.conversation, datagram.number)
        if shown is None:
            self.send(datagram.scheme, 0, address, [frame(wire.CHALLENGE, word)])
            return None
        client = struct.unpack(">Q", shown[:8])[0]
        reason, _ = self.stands(shown, datagram.conversation, address)
        if reason:
            self.send(datagram.scheme, client, address, [frame(wire.STALE, word + struct.pack(">II", reason, 0))])
            return None
        conversation = known or Conversation(client, address, datagram.scheme)
        conversation.address = address
        self.conversations[datagram.conversation] = conversation
        return conversation

    # Calls (section 5.2) and cancels (section 6)

    def take(self, conversation, number, kind, flags, reader):
        position = reader.position()
        if position.exchange:
            return
        if position.activity >= MAX_ACTIVITIES:
            if kind in (wire.CALL, wire.CANCEL):
                self.fail(conversation, position, 6, wire.NO, "activities are numbered up to 1,023")
            return
        activity = conversation.activities.setdefault(position.activity, Activity())
        if position.sequence < activity.last:
            return
        if position.sequence > activity.last:
            self.begin(conversation, activity, position, number, kind, flags, reader)
        elif kind == wire.SELECT:
            self.acknowledged(conversation, activity, position, reader, flags)
        elif activity.incoming:
            if kind == wire.CANCEL:
                self.refuse(conversation, activity, position, 10, "cancelled")
            else:
                self.more(conversation, activity, position, number, kind, flags, reader)
        elif activity.running:
            if kind == wire.CANCEL:
                activity.cancelled.set()
            self.say(conversation, frame(wire.STATE, position.pack() + struct.pack(">I", wire.RUNNING)))
        else:
            self.over(conversation, activity, position, kind)

    def begin(self, conversation, activity, position, number, kind, flags, reader):
        """A sequence that was not seen before: it is recorded before anything else is decided."""
        if kind in (wire.PROBE, wire.SELECT):
            self.say(conversation, frame(wire.STATE, position.pack() + struct.pack(">I", wire.UNKNOWN)))
            return
        if activity.running:
            activity.cancelled.set()
        activity.__init__(last=position.sequence)
        if kind == wire.CANCEL:
            self.refuse(conversation, activity, position, 10, "cancelled before it came")
            return
        self.more(conversation, activity, position, number, kind, flags, reader)

    def more(self, conversation, activity, position, number, kind, flags, reader):
        """A CALL, whole or a fragment of one, or a PROBE for one of which fragments are missing."""
        if kind == wire.PROBE:
            activity.incoming.largest = max(activity.incoming.largest, number)
            self.say(conversation, activity.incoming.select(position))
            return
        export, procedure = reader.unpack("QI")
        if flags & wire.META:
            wire.metadata(reader)
        total, offset, data = wire.part(flags, reader)
        if total is not None:
            if total > MAX_ARGUMENTS:
                self.refuse(conversation, activity, position, 15, f"more than {MAX_ARGUMENTS} bytes")
                return
            activity.incoming = activity.incoming or Incoming(total, MAX_ARGUMENTS)
            tell = activity.incoming.take(number, offset, data) or flags & wire.ASK
            data = activity.incoming.whole()
            if data is None:
                if tell:
                    self.say(conversation, activity.incoming.select(position))
                return
            activity.incoming = None
        self.execute(conversation, activity, position, export, procedure, data)

    def execute(self, conversation, activity, position, export, procedure, arguments):
        found = self.exports.get(export)
        if found is None:
            self.refuse(conversation, activity, position, 4, "no such export")
            return
        run = {0: health, idl.DESCRIBE: describe}.get(procedure) or found.procedures.get(procedure)
        if run is None:
            self.refuse(conversation, activity, position, 5, f"procedure {procedure}")
            return
        activity.running, activity.cancelled = True, threading.Event()
        self.executed += 1
        work = (found,) if run in (health, describe) else ()

        def worker(cancelled=activity.cancelled):
            try:
                ended = (wire.RETURNED, 0, 0, run(*work, arguments, cancelled))
            except Declared as raised:
                ended = (wire.RAISED, 0, 0, raised.data)
            except CallFailed as failed:
                ended = (wire.FAILED, failed.ran, failed.kind, wire.opaque(failed.why.encode()[:512]))
            self.finished.put((conversation, activity, position, ended))
            # No datagram: it wakes the thread that receives.
            self.socket.sendto(b"", self.address)

        threading.Thread(target=worker, daemon=True).start()

    def finish(self, conversation, activity, position, ended):
        """A procedure has ended: its result is kept, and sent, unless its caller has gone on."""
        if activity.last != position.sequence or not activity.running:
            return
        activity.running = False
        if activity.cancelled.is_set():
            return
        activity.result = ended
        if len(ended[3]) > 1_000:
            activity.outgoing = Outgoing(ended[3])
        self.answer(conversation, activity, position)

    def answer(self, conversation, activity, position):
        outcome, ran, kind, data = activity.result
        head = position.pack() + struct.pack(">BBH", outcome, ran, kind)
        if activity.outgoing is None:
            self.say(conversation, frame(wire.RESULT, head + data))
            return
        due = activity.outgoing.due()
        for start in due:
            ask = wire.ASK if start == due[-1] else 0
            body = head + activity.outgoing.body(start, self.number + 1)
            self.say(conversation, frame(wire.RESULT, body, wire.FRAGMENT | ask))

    def acknowledged(self, conversation, activity, position, reader, flags):
        if activity.outgoing is None:
            return
        activity.outgoing.take(reader, bool(flags & wire.PULL))
        if activity.outgoing.pieces:
            self.answer(conversation, activity, position)
        else:
            activity.result = activity.outgoing = None

    def over(self, conversation, activity, position, kind):
        """A call that has ended, or was refused, is asked for."""
        if activity.refused:
            self.fail(conversation, position, activity.refused, wire.NO, "refused before")
        elif activity.result is None or kind == wire.CANCEL and activity.outgoing:
            activity.result = activity.outgoing = None
            self.say(conversation, frame(wire.STATE, position.pack() + struct.pack(">I", wire.GONE)))
        else:
            if activity.outgoing:
                activity.outgoing.lose()
            self.answer(conversation, activity, position)

    def refuse(self, conversation, activity, position, kind, why):
        """A refusal is permanent: the number is consumed."""
        activity.refused, activity.incoming = kind, None
        self.fail(conversation, position, kind, wire.NO, why)

    def fail(self, conversation, position, kind, ran, why):
        head = position.pack() + struct.pack(">BBH", wire.FAILED, ran, kind)
        self.say(conversation, frame(wire.RESULT, head + wire.opaque(why.encode())))


def matches(name, exported):
    """Whether a BIND's name means this export: the same, or its type alone."""
    return name == exported or "/" not in name and name == exported.split("/")[0]


def health(export, _arguments, _cancelled):
    up = int((time.monotonic() - export.began) * 1e9)
    return idl.sized(struct.pack(">QII", up // 10**9, up % 10**9, 1))


def describe(export, _arguments, _cancelled):
    return export.interface.describe()
