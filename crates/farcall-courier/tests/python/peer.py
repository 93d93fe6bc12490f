#!/usr/bin/env python3
"""A second implementation of Courier, for tests: codec, client, server, in XSIS' and Cooper's way.

    peer.py codec [--cooper]
        reads lines `encode TYPE VALUE` and `decode TYPE WORDS` (TYPE: a name, or JSON without spaces)
    peer.py server PORT [options]
        prints `listening PORT`
    peer.py client ADDRESS [options] [PROCEDURE VALUES...]
        calls once, or as lines of its input say; ADDRESS: a port of 127.0.0.1, or a Unix socket's path
    peer.py vectors FILE
        compares the captured vectors with this implementation

The client prints a line for each call: `return VALUES`, `abort ERROR VALUES`, `reject CODE [LOW HIGH]`,
`sent` (Cooper's procedures without results), `closed`, or `error: reason`; after the last two it ends. Values
are written as courier.py says.
"""

import argparse
import json
import os
import socket
import struct
import sys

# No directory of compiled modules beside the sources.
sys.dont_write_bytecode = True

import handlers
from courier import ABORT, DATA, REJECT, RETURN, Bad, Client, Closed, Packets, Program
from server import serve

DESCRIPTION = os.path.join(os.path.dirname(os.path.abspath(__file__)), "telephones.json")


def words_of(data):
    return " ".join(data[at : at + 2].hex() for at in range(0, len(data), 2))


def codec(program):
    for line in sys.stdin:
        way, kind, *words = line.split()
        try:
            kind = json.loads(kind) if kind.startswith("{") else kind
            if way == "encode":
                rest = iter(words)
                value = program.codec.read(kind, rest)
                if list(rest):
                    raise Bad("more than a value")
                print(words_of(program.codec.encode(kind, value)), flush=True)
            else:
                data = bytes.fromhex("".join(words))
                value, end = program.codec.decode(kind, data)
                print(*["all" if end == len(data) else "less"] + program.codec.text(kind, value), flush=True)
        except (Bad, ValueError, RuntimeError, StopIteration) as error:
            print(f"error: {error}", flush=True)


class Caller:
    """What a line of the client's input does."""

    def __init__(self, stream, program, options):
        self.program = program
        self.client = Client(stream, options.versions, options.packet)

    def perform(self, name, words):
        if name == "raw":
            numbers = [int(word) for word in words]
            kind, rest, _, _ = self.client.call(
                *numbers[:3], struct.pack(f">{len(numbers) - 3}H", *numbers[3:])
            )
            return self.outcome(kind, rest, None)
        number, kinds, results = self.program.procedures[name]
        rest = iter(words)
        values = [self.program.codec.read(kind, rest) for kind in kinds]
        bulk = handlers.pattern(int(next(rest))) if name == "Store" else None
        immediate = name in ("Store", "Fetch") and values[0][0] == 1
        arguments = self.program.encode(kinds, values)
        kind, answer, sent, received = self.client.call(
            self.program.number, self.program.version, number, arguments, bulk if immediate else None
        )
        line = self.outcome(kind, answer, results or [])
        if immediate and kind == RETURN:
            data = bulk[:sent] if name == "Store" else received
            line += f" {'sent' if name == 'Store' else 'got'} {len(data)} {sum(data) & 0xFFFF}"
        return line

    def outcome(self, kind, rest, results):
        if kind == RETURN:
            if results is None:
                return " ".join(["return", *words_of(rest).split()])
            return " ".join(["return", *self.program.text(results, self.program.codec.all(results, rest))])
        numbers = struct.unpack(f">{len(rest) // 2}H", rest)
        if kind == REJECT:
            return " ".join(["reject", *map(str, numbers)])
        if kind != ABORT or not numbers:
            raise Bad(f"an answer of kind {kind}")
        if results is None or numbers[0] not in self.program.error_by_number:
            return f"abort {numbers[0]}"
        kinds = self.program.error_by_number[numbers[0]][1]
        return " ".join(
            ["abort", str(numbers[0]), *self.program.text(kinds, self.program.codec.all(kinds, rest[2:]))]
        )

    def close(self):
        self.client.close()


class CooperCaller:
    """The same in Cooper's dialect."""

    def __init__(self, stream, program, options):
        self.program = program
        self.packets = Packets(stream)
        name = (options.name or program.name).encode()
        stream.sendall(program.codec.encode("STRING", name))
        first = self.packets.exactly(1)
        if first != b"\0":
            while not first.endswith(b"\0"):
                first += self.packets.exactly(1)
            raise Bad(first[:-1].decode().strip())

    def perform(self, name, words):
        rest = iter(words)
        if name == "raw":
            number, results = int(next(rest)), None
            arguments = b"".join(int(word).to_bytes(2, "big") for word in rest)
        else:
            number, kinds, results = self.program.procedures[name]
            arguments = self.program.encode(kinds, [self.program.codec.read(kind, rest) for kind in kinds])
        self.packets.stream.sendall(struct.pack(">HH", number, len(arguments) // 2) + arguments)
        if results is None:
            return "sent"
        (count,) = struct.unpack(">H", self.packets.exactly(2))
        values = self.program.codec.all(results, self.packets.exactly(2 * count))
        return " ".join(["return", *self.program.text(results, values)])

    def close(self):
        self.packets.stream.close()


def client(address, program, options, words):
    if address.isdigit():
        stream = socket.create_connection(("127.0.0.1", int(address)))
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    else:
        stream = socket.socket(socket.AF_UNIX)
        stream.connect(address)
    try:
        caller = (CooperCaller if options.cooper else Caller)(stream, program, options)
        for line in [words] if words else map(str.split, sys.stdin):
            times = 1
            if line and line[0] == "repeat":
                times, line = int(line[1]), line[2:]
            for _ in range(times if line else 0):
                outcome = caller.perform(line[0], line[1:])
            if line:
                print(outcome, flush=True)
        caller.close()
        return 0
    except (Closed, OSError):
        print("closed", flush=True)
        return 3
    except (Bad, KeyError, ValueError, StopIteration) as error:
        print(f"error: {error}", flush=True)
        return 2


def versions(text):
    low, high = map(int, text.split(".."))
    return low, high


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["codec", "client", "server", "vectors"])
    parser.add_argument("at", nargs="?", help="a port, a path, or the vectors' file")
    parser.add_argument("words", nargs="*")
    parser.add_argument("--cooper", action="store_true", help="Cooper's dialect")
    parser.add_argument("--name", help="the program's name, in Cooper's dialect")
    parser.add_argument("--versions", type=versions, default=(3, 3), metavar="LOW..HIGH")
    parser.add_argument(
        "--packet", type=int, default=DATA, help="most bytes of data in a packet that is sent"
    )
    parser.add_argument("--description", default=DESCRIPTION)
    parser.add_argument(
        "--fault",
        choices=[
            "silent",
            "wrong-transaction",
            "undeclared-error",
            "short-results",
            "more-results",
            "kind-of-message",
            "half-reply",
            "abort-bulk",
        ],
    )
    # (What begins with `-` may be a number.)
    options, more = parser.parse_known_args()
    words = sys.argv[sys.argv.index(options.words[0]) :] if options.words else []
    program = Program(options.description, options.cooper)
    if options.role == "codec":
        return codec(program)
    if options.role == "server":
        return serve(int(options.at), program, options)
    if options.role == "vectors":
        from vectors import check

        return check(options.at)
    return client(options.at, program, options, words)


if __name__ == "__main__":
    sys.exit(main())
