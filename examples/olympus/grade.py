"""Serves grade.x by ONC RPC over TCP, with Python's standard library alone: grade.py [PORT].

Prints its port on the loopback interface, and ends when its standard input ends.
"""

import os
import socketserver
import struct
import sys
import threading

PROGRAM, VERSION, GRADE = 0x20000C02, 1, 1
CALL, REPLY, ACCEPTED, NO_AUTHENTICATION = 0, 1, 0, 0
SUCCESS, NO_PROGRAM, NO_VERSION, NO_PROCEDURE, BAD_ARGUMENTS = range(5)
LAST_FRAGMENT, MAX_RECORD = 0x80000000, 1 << 20


def grade(lines, words, size):
    return "empty" if words == 0 else "short" if words < 5 else "long"


def opaque(data, at):
    """Returns the variable-length data at an offset, and the offset behind it (RFC 4506, section 4.10)."""
    (length,) = struct.unpack_from(">I", data, at)
    end = at + 4 + length
    if end > len(data):
        raise struct.error("the data is too short")
    return data[at + 4 : end], end + -length % 4


def answer(call):
    """Returns the reply to a call (RFC 5531, section 9), or None if it is no call."""
    xid, kind, _, program, version, procedure = struct.unpack_from(">6I", call)
    if kind != CALL:
        return None
    _, at = opaque(call, 28)
    _, at = opaque(call, at + 4)
    head = struct.pack(">5I", xid, REPLY, ACCEPTED, NO_AUTHENTICATION, 0)
    if program != PROGRAM:
        return head + struct.pack(">I", NO_PROGRAM)
    if version != VERSION:
        return head + struct.pack(">3I", NO_VERSION, VERSION, VERSION)
    if procedure == 0:
        return head + struct.pack(">I", SUCCESS)
    if procedure != GRADE:
        return head + struct.pack(">I", NO_PROCEDURE)
    try:
        counts = struct.unpack_from(">3I", call, at)
    except struct.error:
        return head + struct.pack(">I", BAD_ARGUMENTS)
    text = grade(*counts).encode()
    return head + struct.pack(">2I", SUCCESS, len(text)) + text + bytes(-len(text) % 4)


class Connection(socketserver.StreamRequestHandler):
    """Reads records, which are calls in one or more fragments (RFC 5531, section 11)."""

    def handle(self):
        while (record := self.record()) is not None:
            reply = answer(record)
            if reply is None:
                return
            self.wfile.write(struct.pack(">I", LAST_FRAGMENT | len(reply)) + reply)

    def record(self):
        record = b""
        while True:
            mark = self.rfile.read(4)
            if len(mark) < 4:
                return None
            (mark,) = struct.unpack(">I", mark)
            length = mark & ~LAST_FRAGMENT
            if len(record) + length > MAX_RECORD:
                return None
            record += self.rfile.read(length)
            if mark & LAST_FRAGMENT:
                return record


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


with Server(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0), Connection) as server:
    print(server.server_address[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.buffer.read()
    os._exit(0)
