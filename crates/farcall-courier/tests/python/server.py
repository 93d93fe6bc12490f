"""A Courier server of Telephones over packets in TCP, with faults if wanted."""

import socket
import struct
import sys
import threading

import handlers
from courier import (
    ABORT,
    ATTENTION,
    BAD_ARGUMENTS,
    BULK,
    CALL,
    END_OF_MESSAGE,
    NO_PROCEDURE,
    NO_PROGRAM,
    NO_VERSION,
    REJECT,
    RETURN,
    RPC,
    UNSPECIFIED_ERROR,
    Bad,
    Closed,
    Packets,
    Session,
)


class Rejected(Exception):
    pass


class Answering:
    """One connection, as the server has it."""

    def __init__(self, stream, program, options):
        self.session = Session(Packets(stream, options.packet), options.versions)
        self.program = program
        self.fault = options.fault

    def run(self):
        try:
            # (As the 1980s' daemon does: before it has read anything.)
            self.session.packets.send_message(RPC, self.session.version_words())
            while True:
                self.answer(self.session.receive())
        except Closed:
            pass
        except (Bad, OSError) as error:
            print(f"connection: {error}", file=sys.stderr, flush=True)
            self.session.packets.close()
        self.session.packets.stream.close()

    def answer(self, message):
        kind, transaction = struct.unpack(">HH", message[:4])
        if kind != CALL:
            raise Bad(f"a message of kind {kind}")
        try:
            reply = self.result(message[4:])
        except Rejected as rejected:
            reply = struct.pack(">HH", REJECT, transaction) + struct.pack(
                f">{len(rejected.args)}H", *rejected.args
            )
        except handlers.Abort as error:
            number, kinds = self.program.errors[error.args[0]]
            reply = struct.pack(">HHH", ABORT, transaction, number) + self.program.encode(
                kinds, error.args[1]
            )
        except Exception as error:
            if isinstance(error, (Closed, Bad, OSError)):
                raise
            reply = struct.pack(">HHH", REJECT, transaction, UNSPECIFIED_ERROR)
        else:
            reply = struct.pack(">HH", RETURN, transaction) + reply
        self.send(reply)

    def send(self, reply):
        if self.fault == "silent":
            return
        if self.fault == "wrong-transaction":
            reply = reply[:2] + bytes([reply[2] ^ 0x80]) + reply[3:]
        if self.fault == "undeclared-error":
            reply = struct.pack(">H", ABORT) + reply[2:4] + struct.pack(">H", 4711)
        if self.fault == "short-results":
            reply = reply[:-2] if len(reply) > 4 else reply
        if self.fault == "more-results":
            reply += b"\0\0"
        if self.fault == "kind-of-message":
            reply = struct.pack(">H", 9) + reply[2:]
        if self.fault == "half-reply":
            half = len(reply) // 2
            self.session.packets.stream.sendall(
                struct.pack(">HBB10x", 12 + len(reply), END_OF_MESSAGE, RPC) + reply[:half]
            )
            raise Closed
        self.session.packets.send_message(RPC, reply)

    def result(self, call):
        """The results' words."""
        procedure, arguments = self.selected(call)
        name, kinds, results = procedure
        try:
            values = self.program.codec.all(kinds, arguments)
        except Bad:
            raise Rejected(BAD_ARGUMENTS) from None
        if name == "Store":
            found = self.store(*values)
        elif name == "Fetch":
            found = self.fetch(*values)
        else:
            found = handlers.PROCEDURES[name](*values)
        return self.program.encode(results or [], found)

    def selected(self, call):
        size = 3 if self.session.version == 2 else 4
        if len(call) < 2 * size:
            raise Rejected(BAD_ARGUMENTS)
        program, version, procedure = struct.unpack(">HHH" if size == 3 else ">IHH", call[: 2 * size])
        if program != self.program.number:
            raise Rejected(NO_PROGRAM)
        if version != self.program.version:
            # Courier 2 has no range.
            raise Rejected(*[NO_VERSION] + [self.program.version] * (0 if size == 3 else 2))
        if procedure not in self.program.by_number:
            raise Rejected(NO_PROCEDURE)
        return self.program.by_number[procedure], call[2 * size :]

    def store(self, source):
        handlers.refuse_party(source)
        data = bytearray()
        while source[0] == 1:
            control, kind, more = self.session.packets.receive()
            if kind != BULK:
                raise Bad("no bulk data")
            if control & ATTENTION:
                raise handlers.not_possible(0, "stopped")
            data += more
            if len(data) > handlers.MOST_BYTES:
                self.session.packets.send(BULK, b"\1", ATTENTION)
                raise handlers.not_possible(handlers.MOST_BYTES // 1000, "too many bytes")
            if control & END_OF_MESSAGE:
                break
        return [len(data), sum(data) & 0xFFFF]

    def fetch(self, sink, count):
        handlers.refuse_party(sink)
        if count > handlers.MOST_BYTES:
            raise handlers.not_possible(handlers.MOST_BYTES // 1000, "too many bytes")
        if sink[0] == 0:
            return [0, 0]
        data = handlers.pattern(count)
        if self.fault == "abort-bulk":
            self.session.packets.send(BULK, data[: min(count // 2, self.session.packets.most)])
            self.session.packets.send(BULK, b"\1", ATTENTION)
            raise handlers.not_possible(0, "stopped")
        sent = self.session.send_bulk(data)
        if sent < count:
            raise handlers.not_possible(0, "stopped")
        return [sent, sum(data) & 0xFFFF]


class Cooper:
    """One connection in Cooper's dialect: the program by name, then calls; nothing says what went wrong."""

    def __init__(self, stream, program, options):
        self.packets = Packets(stream)
        self.program = program

    def run(self):
        try:
            name = self.packets.exactly(self.number())
            if len(name) % 2:
                self.packets.exactly(1)
            if name.decode("latin-1") != self.program.name:
                self.packets.stream.sendall(b"Unknown Courier program.\n\0")
                raise Closed
            self.packets.stream.sendall(b"\0")
            while True:
                procedure, words = self.number(), self.number()
                self.answer(procedure, self.packets.exactly(2 * words))
        except (Closed, OSError):
            pass
        except Bad as error:
            print(f"connection: {error}", file=sys.stderr, flush=True)
        self.packets.stream.close()

    def number(self):
        return int.from_bytes(self.packets.exactly(2), "big")

    def answer(self, procedure, arguments):
        if procedure not in self.program.by_number:
            print(f"no procedure {procedure}", file=sys.stderr, flush=True)
            return
        name, kinds, results = self.program.by_number[procedure]
        values = self.program.codec.all(kinds, arguments)
        try:
            found = handlers.PROCEDURES[name](*values)
        except (handlers.Abort, RuntimeError):
            found = {"Find": [handlers.entry(b"")], "Divide": [0, 0]}.get(name, [])
        if results is None:
            return
        words = self.program.encode(results, found)
        self.packets.stream.sendall((len(words) // 2).to_bytes(2, "big") + words)


def serve(port, program, options):
    """Serves until the program is killed. Prints `listening PORT`."""
    listener = socket.create_server(("127.0.0.1", port), backlog=64)
    print(f"listening {listener.getsockname()[1]}", flush=True)
    while True:
        stream, _ = listener.accept()
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answering = (Cooper if options.cooper else Answering)(stream, program, options)
        threading.Thread(target=answering.run, daemon=True).start()
