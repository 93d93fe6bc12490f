"""Datagrams and frames (docs/protocol.md, section 3), read and written as they stand there."""

import ipaddress
import struct
from dataclasses import dataclass, field

from xxh3 import xxh3_64

VERSION = 1
OPEN, LOCAL, AUTHENTICATED, SECURE = range(4)
HEADER, TAG, FRAME_HEAD = 20, 8, 4
BASE = 1200

PADDING, BIND, WELCOME, CHALLENGE, STALE, TICKET = range(6)
CALL, RESULT, SELECT, CANCEL, PROBE, STATE, MTU_PROBE, MTU_ECHO, POST = range(0x10, 0x19)
DATA, CREDIT, STOP = range(0x20, 0x23)
NON_CRITICAL = ACK = 0x80
USER_PROOF = 0x81
WANTED = 0x83

META, FRAGMENT, ASK = 1, 2, 4
RENEWAL, PROOF = 1, 2
# Of a scheme without secrets: no bytes of none.
NO_HANDSHAKE = bytes(16)
PULL = 1

UNKNOWN, RECEIVING, RUNNING, GONE = range(4)
RETURNED, RAISED, FAILED = range(3)
NO, MAYBE, YES = range(3)
KINDS = ("other", "no such name", "unreachable", "server restarted", "not exported", "no such procedure",
         "overloaded", "bad arguments", "bad result", "mismatch", "cancelled", "deadline", "not permitted", "nested",
         "panicked", "too large", "draining", "result lost", "forked", "registry", "local", "stopped", "forgotten")


class Malformed(Exception):
    """Bytes that break the specification."""


class CallFailed(Exception):
    """A call that failed: its kind, and whether it ran."""

    def __init__(self, kind, ran, why=""):
        super().__init__(f"{KINDS[kind] if kind < len(KINDS) else kind}: {why}")
        self.kind, self.ran, self.why = kind, ran, why


@dataclass
class Position:
    """The call that a frame is about, and the exchange within it."""
    activity: int
    exchange: int
    sequence: int

    def pack(self):
        return struct.pack(">IIQ", self.activity, self.exchange, self.sequence)


@dataclass
class Datagram:
    scheme: int
    conversation: int
    number: int
    frames: list = field(default_factory=list)


class Reader:
    """Takes values from the bytes of a frame."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def unpack(self, form):
        size = struct.calcsize(">" + form)
        values = struct.unpack(">" + form, self.take(size))
        return values[0] if len(values) == 1 else values

    def take(self, size):
        if self.at + size > len(self.data):
            raise Malformed("a body ends too soon")
        self.at += size
        return self.data[self.at - size:self.at]

    def rest(self):
        return self.take(len(self.data) - self.at)

    def opaque(self, most):
        size = self.unpack("I")
        if size > most:
            raise Malformed(f"{size} bytes where {most} are the most")
        value = self.take(size)
        self.take(-size % 4)
        return value

    def position(self):
        return Position(*self.unpack("IIQ"))

    def address(self):
        host, port, _ = ipaddress.IPv6Address(self.take(16)), *self.unpack("HH")
        return str(host.ipv4_mapped or host), port


def read_ticket(reader):
    """The bytes of a ticket, whose rest is the server's affair."""
    begins = reader.at
    reader.take(40)
    reader.opaque(256)
    return reader.data[begins:reader.at]


def read_handshake(reader):
    """A part of a handshake: (total, offset, through, part)."""
    total, offset, through = reader.unpack("III")
    part = reader.opaque(65_535)
    if max(total, through) > 65_536 or offset + len(part) > total:
        raise Malformed("a part beyond its handshake")
    return total, offset, through, part


def opaque(data):
    return struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)


def address(host, port):
    host = ipaddress.ip_address(host)
    if host.version == 4:
        host = ipaddress.IPv6Address(b"\0" * 10 + b"\xff\xff" + host.packed)
    return host.packed + struct.pack(">HH", port, 0)


def frame(kind, body, flags=0):
    return struct.pack(">BBH", kind, flags, len(body)) + body


def seal(scheme, conversation, number, frames, size=0):
    """One datagram, padded to `size` bytes if it is shorter."""
    data = struct.pack(">BBHQQ", VERSION, scheme, 0, conversation, number) + b"".join(frames)
    missing = size - len(data) - TAG
    if missing >= FRAME_HEAD:
        data += frame(PADDING, bytes(missing - FRAME_HEAD))
    tag = len(data) + TAG if scheme == LOCAL else xxh3_64(data)
    return data + struct.pack(">Q", tag)


def unseal(data):
    """The datagram that these bytes are. Raises Malformed if they are none."""
    if len(data) < HEADER + TAG or data[0] != VERSION or data[1] not in (OPEN, LOCAL):
        raise Malformed("not a datagram of wire version 1")
    scheme = data[1]
    expected = len(data) if scheme == LOCAL else xxh3_64(data[:-TAG])
    if struct.unpack(">Q", data[-TAG:])[0] != expected:
        raise Malformed("the tag is wrong")
    return parse(data[:-TAG])


def parse(data):
    """The datagram that these bytes are, which have no tag any more."""
    _, scheme, _, conversation, number = struct.unpack(">BBHQQ", data[:HEADER])
    datagram = Datagram(scheme, conversation, number)
    reader = Reader(data[HEADER:])
    while reader.at < len(reader.data):
        kind, flags, size = reader.unpack("BBH")
        if size % 4:
            raise Malformed("a frame of odd length")
        datagram.frames.append((kind, flags, Reader(reader.take(size))))
    return datagram


def part(flags, reader):
    """The bytes of a CALL or RESULT: (total, offset, bytes); total is None if these are all."""
    if not flags & FRAGMENT:
        return None, 0, reader.rest()
    total, offset = reader.unpack("II")
    data = reader.rest()
    if not data or offset + len(data) > total:
        raise Malformed("a fragment beyond its message")
    return total, offset, data


def metadata(reader):
    """The metadata of a CALL, as a dictionary from kind to value."""
    items = Reader(reader.take(reader.unpack("I")))
    found = {}
    while items.at < len(items.data):
        kind, size = items.unpack("HH")
        found[kind] = items.take(size)
    return found


def pack_metadata(items):
    data = b"".join(struct.pack(">HH", kind, len(value)) + value for kind, value in items.items())
    return struct.pack(">I", len(data)) + data
