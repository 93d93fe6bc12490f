"""The interface that both implementations speak in the test, `Store` of tests/processes/second_implementation.rs."""

import struct
import threading

import idl
import wire
from client import Declared

GET, ECHO, COUNT, SLOW, COUNTED, PAIRS = range(6)

KEY = idl.string(64)
DEFINITIONS = [
    ("NoSuchKey", ("struct", [("key", idl.string())], False)),
    ("Colour", ("union", [("Red", 0, []), ("Blue", 5, [])])),
    ("Pair", ("struct", [("name", idl.string()), ("colour", (idl.NAMED, 1)), ("next", idl.optional(idl.U64))], True)),
]


def interface(numbers):
    """The interface as its Rust source declares it; `numbers` are those of the procedures, in order."""
    no_such_key, pair = (idl.NAMED, 0), (idl.NAMED, 2)
    procedures = [
        ("get", [("key", KEY)], idl.U64, no_such_key),
        ("echo", [("data", idl.octets())], idl.octets(), idl.VOID),
        ("count", [("number", idl.U32)], idl.VOID, idl.VOID),
        ("slow", [], idl.BOOL, idl.VOID),
        ("counted", [], idl.U32, idl.VOID),
        ("pairs", [("pairs", idl.list_of(pair))], idl.U32, idl.VOID),
    ]
    return idl.Interface("Store", DEFINITIONS, [(n, *p, False) for n, p in zip(numbers, procedures)])


class Store:
    """The server's procedures."""

    def __init__(self):
        self.counts, self.lock = {}, threading.Lock()
        self.told = threading.Event()

    def get(self, arguments, _cancelled):
        key = wire.Reader(arguments).opaque(64)
        if key != b"answer":
            raise Declared(wire.opaque(key))
        return struct.pack(">Q", 42)

    def echo(self, arguments, _cancelled):
        return arguments

    def count(self, arguments, _cancelled):
        with self.lock:
            number = struct.unpack(">I", arguments)[0]
            self.counts[number] = self.counts.get(number, 0) + 1
        return b""

    def slow(self, _arguments, cancelled):
        cancelled.wait()
        self.told.set()
        return struct.pack(">I", 1)

    def counted(self, _arguments, _cancelled):
        """How many numbers were counted, if each was exactly once."""
        with self.lock:
            once = all(n == 1 for n in self.counts.values())
            return struct.pack(">I", len(self.counts) if once else 0)

    def pairs(self, arguments, _cancelled):
        return arguments[:4]

    def procedures(self, numbers):
        return dict(zip(numbers, (self.get, self.echo, self.count, self.slow, self.counted, self.pairs)))
