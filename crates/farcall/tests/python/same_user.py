"""Proofs that a client belongs to the server's user (docs/protocol.md, section 4.5)."""

import os
import stat
import struct

import wire

MASK = (1 << 64) - 1
MOST_SECRETS = 4
# A ticket with this rest is a challenge.
CHALLENGED = b"user"


def siphash(key, data):
    """SipHash-2-4 with a result of 128 bits."""
    k0, k1 = struct.unpack("<QQ", key)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ 0xEE, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def turn(word, bits):
        return (word << bits | word >> (64 - bits)) & MASK

    def rounds(count):
        for _ in range(count):
            v[0] = (v[0] + v[1]) & MASK
            v[2] = (v[2] + v[3]) & MASK
            v[1], v[3] = turn(v[1], 13) ^ v[0], turn(v[3], 16) ^ v[2]
            v[0] = (turn(v[0], 32) + v[3]) & MASK
            v[2] = (v[2] + v[1]) & MASK
            v[1], v[3] = turn(v[1], 17) ^ v[2], turn(v[3], 21) ^ v[0]
            v[2] = turn(v[2], 32)

    whole = len(data) // 8 * 8
    last = data[whole:] + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for (word,) in struct.iter_unpack("<Q", data[:whole] + last):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xEE
    rounds(4)
    first = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    rounds(4)
    return struct.pack("<QQ", first, v[0] ^ v[1] ^ v[2] ^ v[3])


def folders():
    """The folders in which the user's processes may have left a secret."""
    user = os.geteuid()
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    own = [f"{runtime}/farcall"] if os.path.isabs(runtime) else []
    return [*own, f"/run/user/{user}/farcall", f"/tmp/farcall-{user}"]


def secrets():
    """The secrets of the user, without repetitions."""
    found = []
    for folder in folders():
        try:
            directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            file = os.open("user-secret", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
        except OSError:
            continue
        finally:
            trusted = is_private(directory)
            os.close(directory)
        with os.fdopen(file, "rb") as opened:
            secret = opened.read(17) if trusted and is_private(opened.fileno()) else b""
        if len(secret) == 16 and secret not in found:
            found.append(secret)
    return found[:MOST_SECRETS]


def is_private(descriptor):
    found = os.fstat(descriptor)
    return found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077


def proof(secret, conversation, ticket, server):
    """The frame USER-PROOF by a secret, for the challenge of the server at (host, port)."""
    text = b"farcall user 1\0" + struct.pack(">Q", conversation) + ticket + wire.address(*server)[:18]
    (number,) = struct.unpack("<Q", siphash(secret, b"farcall user secret")[:8])
    return wire.frame(wire.USER_PROOF, struct.pack(">Q", number) + siphash(secret, text))


def is_challenge(ticket):
    """Whether a ticket only asks for proofs."""
    return ticket[40:] == wire.opaque(CHALLENGED)
