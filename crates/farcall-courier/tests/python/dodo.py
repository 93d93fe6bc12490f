#!/usr/bin/env python3
"""Calls dodo's services by our second implementation, and starts scripts/dodo for that.
Prints a line for each call.

Exits with 1 where an answer is not what dodo's own files of users and services say.
"""

import os
import socket
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

from courier import ABORT, REJECT, RETURN, Client, Codec

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../../scripts/dodo")
CLEARINGHOUSE, AUTHENTICATION = (2, 2), (14, 2)
IMMEDIATE = struct.pack(">H", 1)
USERS = 10003
CODEC = Codec({})
# The one address of the server: network, host, no socket.
ADDRESS = bytes.fromhex("0001 0000041a 1000bb101101 0000")


def strings(*texts):
    return b"".join(CODEC.encode("STRING", text) for text in texts)


def hashed(password):
    value = 0
    for byte in password.lower():
        value = (value * 65536 + byte) % 65357
    return value


def simple(name, password):
    """Credentials of a name (organization, domain, object) without encryption, and their verifier."""
    name = strings(*name)
    return struct.pack(">HH", 0, len(name) // 2) + name + struct.pack(">HH", 1, hashed(password))


def listed(stream):
    """The strings of a stream's segments: each says whether it is the last, and begins with its count."""
    found, at, last = [], 0, 0
    while not last:
        last, at = CODEC.decode("CARDINAL", stream, at)
        segment, at = CODEC.decode({"sequence": [None, "STRING"]}, stream, at)
        found += segment
    assert at == len(stream), "bytes are left of a stream"
    return found


GUEST = simple((b"hawala", b"dev", b"guest"), b"guest")

# What is called, with what, and what comes: kind, words, and strings as bulk data.
CALLS = [
    ("RetrieveAddresses", (*CLEARINGHOUSE, 0), b"", RETURN, ADDRESS, None),
    ("CheckSimpleCredentials", (*AUTHENTICATION, 2), GUEST, RETURN, b"\0\1", None),
    (
        "a wrong password",
        (*AUTHENTICATION, 2),
        simple((b"hawala", b"dev", b"guest"), b"x"),
        RETURN,
        b"\0\0",
        None,
    ),
    (
        "nobody's credentials",
        (*AUTHENTICATION, 2),
        simple((b"hawala", b"dev", b"nobody"), b"x"),
        ABORT,
        b"\0\1",
        None,
    ),
    ("ListOrganizations", (*CLEARINGHOUSE, 5), strings(b"*") + IMMEDIATE + GUEST, RETURN, b"", [b"hawala"]),
    ("ListDomain", (*CLEARINGHOUSE, 6), strings(b"hawala", b"*") + IMMEDIATE + GUEST, RETURN, b"", [b"dev"]),
    (
        "ListObjects",
        (*CLEARINGHOUSE, 7),
        strings(b"hawala", b"dev", b"*") + struct.pack(">I", USERS) + IMMEDIATE + GUEST,
        RETURN,
        b"",
        [b"Carol Owner", b"Mary Tester", b"Master of the Universe", b"guest"],
    ),
    ("no such program", (4242, 1, 0), b"", REJECT, b"\0\0", None),
    ("no such version", (2, 77, 0), b"", REJECT, b"\0\1\0\2\0\3", None),
    ("bad arguments", (*AUTHENTICATION, 2), b"", REJECT, b"\0\3", None),
    ("RetrieveAddresses again", (*CLEARINGHOUSE, 0), b"", RETURN, ADDRESS, None),
]


def call_all(address):
    """How many calls were not answered as they must be."""
    stream = socket.socket(socket.AF_UNIX)
    stream.connect(address)
    client = Client(stream, (2, 3))
    wrong = 0
    for name, where, arguments, kind, words, strings_wanted in CALLS:
        got_kind, got, _, bulk = client.call(*where, arguments)
        # (In which order a user's objects are listed is not said.)
        same_list = strings_wanted is None or sorted(listed(bulk)) == sorted(strings_wanted)
        right = got_kind == kind and got[: len(words)] == words and same_list
        print(f"{name}: {'as it must be' if right else f'{got_kind} {got.hex()} {bulk}'}", flush=True)
        wrong += not right
    client.close()
    return wrong


def main():
    with tempfile.TemporaryDirectory() as directory:
        address = os.path.join(directory, "courier")
        with subprocess.Popen(
            [SCRIPT, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as serving:
            said = serving.stdout.readline().strip()
            if said != f"listening {address}":
                print(said or "dodo has ended")
                return not said.startswith("skipped: ")
            wrong = call_all(address)
            serving.stdin.close()
            serving.wait()
    said = subprocess.run([SCRIPT, "expedited", "2", "2", "0"], capture_output=True, text=True).stdout
    right = bytes.fromhex(said) == bytes.fromhex("0003 0003 0002 0001") + ADDRESS
    print(f"an expedited call: {'as it must be' if right else said}")
    return wrong + (not right) > 0


if __name__ == "__main__":
    sys.exit(main())
