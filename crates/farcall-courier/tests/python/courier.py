"""Courier by its description alone: types, messages, packets over a byte stream.

A type is the name of a predefined or described type, or {"enumeration": [values]}, {"array": [n, type]},
{"sequence": [most or null, type]}, {"record": [types]}, {"choice": {"designator": type}}.
A value is an int (0 or 1 for BOOLEAN), bytes, a list, or a pair of a designator and a value.
As text, a value is words: numbers, `x` and hexadecimal for a STRING, a count before a SEQUENCE's elements, a
designator before a CHOICE's value.
"""

import json
import select
import struct

NUMBERS = {
    "BOOLEAN": (1, 0, 1),
    "CARDINAL": (1, 0, 0xFFFF),
    "UNSPECIFIED": (1, 0, 0xFFFF),
    "INTEGER": (1, -0x8000, 0x7FFF),
    "LONG_CARDINAL": (2, 0, 0xFFFFFFFF),
    "LONG_UNSPECIFIED": (2, 0, 0xFFFFFFFF),
    "LONG_INTEGER": (2, -0x80000000, 0x7FFFFFFF),
}

CALL, REJECT, RETURN, ABORT = range(4)
NO_PROGRAM, NO_VERSION, NO_PROCEDURE, BAD_ARGUMENTS, UNSPECIFIED_ERROR = 0, 1, 2, 3, 65535

RPC, BULK, END, END_REPLY = 0, 1, 254, 255
END_OF_MESSAGE, ATTENTION, SYSTEM = 0x10, 0x20, 0x80
HEADER, DATA = 12, 534


class Bad(Exception):
    """What arrived, or was given, is not Courier."""


class Closed(Exception):
    """The other end has closed the connection."""


class Codec:
    """Values to words and back. Cooper's dialect packs a BOOLEAN as a byte, in the high half of its word."""

    def __init__(self, types, cooper=False):
        self.types = types
        self.cooper = cooper

    def described(self, kind):
        while isinstance(kind, str) and kind in self.types:
            kind = self.types[kind]
        if isinstance(kind, str):
            if kind not in NUMBERS and kind != "STRING":
                raise Bad(f"no such type: {kind}")
            return kind, None
        return next(iter(kind.items()))

    def encode(self, kind, value):
        form, detail = self.described(kind)
        if form in NUMBERS:
            words, least, most = NUMBERS[form]
            if not least <= value <= most:
                raise Bad(f"{value} is no {form}")
            if form == "BOOLEAN" and self.cooper:
                return bytes([value, 0])
            return (value & (1 << 16 * words) - 1).to_bytes(2 * words, "big")
        if form == "STRING":
            return self.count(len(value)) + value + bytes(len(value) % 2)
        if form == "enumeration":
            if value not in detail:
                raise Bad(f"{value} is not in the enumeration")
            return value.to_bytes(2, "big")
        if form == "array":
            if len(value) != detail[0]:
                raise Bad("an array of another length")
            return b"".join(self.encode(detail[1], each) for each in value)
        if form == "sequence":
            if detail[0] is not None and len(value) > detail[0]:
                raise Bad("a sequence that is too long")
            return self.count(len(value)) + b"".join(self.encode(detail[1], each) for each in value)
        if form == "record":
            return b"".join(self.encode(field, each) for field, each in zip(detail, value, strict=True))
        designator, inner = value
        if str(designator) not in detail:
            raise Bad(f"{designator} is not in the choice")
        return designator.to_bytes(2, "big") + self.encode(detail[str(designator)], inner)

    @staticmethod
    def count(number):
        if number > 0xFFFF:
            raise Bad("too long for a count")
        return number.to_bytes(2, "big")

    def decode(self, kind, data, at=0):
        """The value, and where what follows begins."""
        form, detail = self.described(kind)
        if form in NUMBERS:
            words, least, most = NUMBERS[form]
            number = int.from_bytes(self.taken(data, at, 2 * words), "big", signed=least < 0)
            if form == "BOOLEAN":
                number = number >> 8 if self.cooper else number
                if number > 1:
                    raise Bad("a BOOLEAN that is neither 0 nor 1")
            return number, at + 2 * words
        if form == "array":
            return self.several([detail[1]] * detail[0], data, at)
        if form == "record":
            return self.several(detail, data, at)
        first, at = int.from_bytes(self.taken(data, at, 2), "big"), at + 2
        if form == "STRING":
            # (What the byte is that makes the count even does not matter.)
            return self.taken(data, at, first + first % 2)[:first], at + first + first % 2
        if form == "enumeration":
            if first not in detail:
                raise Bad(f"{first} is not in the enumeration")
            return first, at
        if form == "sequence":
            if detail[0] is not None and first > detail[0]:
                raise Bad("a sequence that is too long")
            return self.several([detail[1]] * first, data, at)
        if str(first) not in detail:
            raise Bad(f"{first} is not in the choice")
        inner, at = self.decode(detail[str(first)], data, at)
        return (first, inner), at

    def several(self, kinds, data, at=0):
        values = []
        for kind in kinds:
            value, at = self.decode(kind, data, at)
            values.append(value)
        return values, at

    @staticmethod
    def taken(data, at, count):
        if len(data) - at < count:
            raise Bad("truncated")
        return data[at : at + count]

    def all(self, kinds, data):
        """Values that are all of the data."""
        values, end = self.several(kinds, data)
        if end != len(data):
            raise Bad("words are left")
        return values

    def read(self, kind, words):
        """A value from an iterator over words of text."""
        form, detail = self.described(kind)
        if form == "array":
            return [self.read(detail[1], words) for _ in range(detail[0])]
        if form == "record":
            return [self.read(field, words) for field in detail]
        word = next(words)
        if form == "STRING":
            if not word.startswith("x"):
                raise Bad(f"not a string: {word}")
            return bytes.fromhex(word[1:])
        first = int(word)
        if form == "sequence":
            return [self.read(detail[1], words) for _ in range(first)]
        if form == "choice":
            if str(first) not in detail:
                raise Bad(f"{first} is not in the choice")
            return first, self.read(detail[str(first)], words)
        return first

    def text(self, kind, value):
        form, detail = self.described(kind)
        if form == "array":
            return [word for each in value for word in self.text(detail[1], each)]
        if form == "record":
            return [word for field, each in zip(detail, value) for word in self.text(field, each)]
        if form == "STRING":
            return ["x" + value.hex()]
        if form == "sequence":
            return [str(len(value))] + [word for each in value for word in self.text(detail[1], each)]
        if form == "choice":
            return [str(value[0])] + self.text(detail[str(value[0])], value[1])
        return [str(value)]


class Program:
    """A program's description (telephones.json)."""

    def __init__(self, file, cooper=False):
        with open(file) as described:
            self.described = json.load(described)
        self.name = self.described["name"]
        self.number, self.version = self.described["program"], self.described["version"]
        self.procedures, self.errors = self.described["procedures"], self.described["errors"]
        self.codec = Codec(self.described["types"], cooper)
        self.by_number = {entry[0]: (name, *entry[1:]) for name, entry in self.procedures.items()}
        self.error_by_number = {entry[0]: (name, entry[1]) for name, entry in self.errors.items()}

    def encode(self, kinds, values):
        return b"".join(self.codec.encode(kind, value) for kind, value in zip(kinds, values, strict=True))

    def text(self, kinds, values):
        return [
            word for kind, value in zip(kinds, values, strict=True) for word in self.codec.text(kind, value)
        ]


class Packets:
    """Packets of the sequenced packet protocol over a byte stream: a length, the header, the data."""

    def __init__(self, stream, most=DATA):
        self.stream = stream
        self.most = most
        self.early = []

    def send(self, kind, data, control=0):
        self.stream.sendall(struct.pack(">HBB10x", HEADER + len(data), control, kind) + data)

    def send_message(self, kind, data):
        for at in range(0, max(len(data), 1), self.most):
            last = at + self.most >= len(data)
            self.send(kind, data[at : at + self.most], END_OF_MESSAGE if last else 0)

    def receive(self):
        """Control, datastream type and data of the next packet that has a meaning."""
        return self.early.pop(0) if self.early else self.next()

    def next(self):
        while True:
            (length,) = struct.unpack(">H", self.exactly(2))
            if not HEADER <= length <= HEADER + DATA:
                raise Bad(f"a packet of {length} bytes")
            packet = self.exactly(length)
            if packet[0] & SYSTEM:
                continue
            if packet[1] == END:
                self.send(END_REPLY, b"")
                raise Closed
            if packet[1] == END_REPLY:
                raise Closed
            return packet[0], packet[1], packet[HEADER:]

    def exactly(self, count):
        data = b""
        while len(data) < count:
            more = self.stream.recv(count - len(data))
            if not more:
                raise Closed
            data += more
        return data

    def stopped(self):
        """Whether the other end has sent an attention packet. What has come before it is kept."""
        while select.select([self.stream], [], [], 0)[0]:
            packet = self.next()
            if packet[0] & ATTENTION:
                return True
            self.early.append(packet)
        return False

    def close(self):
        """Says that we end, and waits for the answer."""
        try:
            self.send(END, b"")
            while True:
                self.receive()
        except (Closed, Bad, OSError):
            self.stream.close()


class Session:
    """One connection's messages: versions once, then calls and answers with bulk data between."""

    def __init__(self, packets, versions):
        self.packets = packets
        self.versions = versions
        self.version = None
        self.left = b""

    def version_words(self):
        return struct.pack(">HH", *self.versions)

    def learn_version(self, data):
        """Takes the versions that begin the other end's first message."""
        low, high = struct.unpack(">HH", data)
        common = min(high, self.versions[1])
        if common < max(low, self.versions[0]):
            raise Bad(f"versions {low} to {high} are not ours")
        self.version = common

    def receive(self, bulk=None):
        """A whole message. What arrives of bulk data before it goes to `bulk(control, data)`."""
        message = b""
        while True:
            control, kind, data = self.packets.receive()
            if kind == BULK:
                if bulk:
                    bulk(control, data)
                continue
            if kind != RPC:
                raise Bad(f"datastream type {kind}")
            message += data
            if self.version is None and len(message) >= 4:
                self.learn_version(message[:4])
                message = message[4:]
                if not message:
                    continue
            if control & END_OF_MESSAGE and self.version is not None:
                if len(message) < 2 or len(message) % 2:
                    raise Bad("a message of an odd length")
                return message

    def send_bulk(self, data):
        """Returns how much was sent before the other end stopped it."""
        most = self.packets.most
        for at in range(0, len(data), most):
            if self.packets.stopped():
                self.packets.send(BULK, b"", END_OF_MESSAGE)
                return at
            self.packets.send(BULK, data[at : at + most])
        self.packets.send(BULK, b"", END_OF_MESSAGE)
        return len(data)


class Client:
    """Calls of one connection."""

    def __init__(self, stream, versions=(3, 3), packet=DATA):
        self.session = Session(Packets(stream, packet), versions)
        self.said_version = False
        self.transaction = 0

    def call(self, program, version, procedure, arguments, bulk=None):
        """The answer's kind, what follows the transaction, how much of `bulk` was sent and what bulk came."""
        session = self.session
        self.transaction = (self.transaction + 1) % 0x10000
        if not self.said_version and session.versions[0] != session.versions[1]:
            # Only by the other end's answer is it known how a call is written.
            session.packets.send_message(RPC, session.version_words())
            self.said_version = True
            self.learn()
        old = session.version == 2 or session.versions == (2, 2)
        message = b"" if self.said_version else session.version_words()
        message += struct.pack(
            ">HHHHH" if old else ">HHIHH", CALL, self.transaction, program, version, procedure
        )
        session.packets.send_message(RPC, message + arguments)
        self.said_version = True
        sent = session.send_bulk(bulk) if bulk is not None else None
        received = bytearray()
        answer = session.receive(lambda control, data: received.extend(b"" if control & ATTENTION else data))
        kind, transaction = struct.unpack(">HH", answer[:4])
        # (The 1980s' server rejects with the transaction of the call before.)
        if transaction != self.transaction and kind != REJECT:
            raise Bad(f"transaction {transaction}, not {self.transaction}")
        return kind, answer[4:], sent, bytes(received)

    def learn(self):
        control, kind, data = self.session.packets.receive()
        if kind != RPC or len(data) != 4:
            raise Bad("the versions are not in a packet of their own")
        self.session.learn_version(data)

    def close(self):
        self.session.packets.close()
