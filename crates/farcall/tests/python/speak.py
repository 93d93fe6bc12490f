"""The second implementation as a program.

    speak.py client HOST PORT SCHEME CALLS   calls a Store, and checks what comes back
    speak.py serve                           serves one; prints its address
    speak.py vectors DIRECTORY               reads the vectors of docs/vectors
"""

import struct
import sys

import idl
import store
import wire
from client import Client, Declared, Welcome
from server import Server


def procedure_numbers(procedures):
    """Procedures are numbered in the order of their declaration unless their source says otherwise."""
    return sorted(procedures)


def failure(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except wire.CallFailed as failed:
        return failed.kind, failed.ran
    raise AssertionError("the call did not fail")


def client(host, port, scheme, calls):
    peer = Client(host, int(port), int(scheme))
    export, procedures = peer.bind("Store")
    numbers = procedure_numbers(procedures)
    expected = {number: (types, name) for number, types, name in store.interface(numbers).listed()}
    assert procedures == expected, f"fingerprints: {procedures}, not {expected}"
    get, echo, count, slow, counted, pairs = numbers

    assert peer.call(export, get, wire.opaque(b"answer")) == struct.pack(">Q", 42)
    try:
        peer.call(export, get, wire.opaque(b"question"), deadline=10, trace=bytes(range(24)))
        raise AssertionError("no exception")
    except Declared as declared:
        assert declared.data == wire.opaque(b"question"), declared.data
    for size in (0, 1, 900, 1_200, 20_000, 300_001):
        data = wire.opaque(bytes(i % 251 for i in range(size)))
        assert peer.call(export, echo, data) == data, size
    pair = idl.sized(wire.opaque(b"name") + struct.pack(">II", 5, 0))
    assert peer.call(export, pairs, struct.pack(">I", 1) + pair) == struct.pack(">I", 1)

    assert failure(peer.call, export, 4711) == (5, wire.NO)
    assert failure(peer.call, export ^ 1, get, wire.opaque(b"answer")) == (4, wire.NO)
    assert failure(peer.call, export, get, b"\0\0\0\4") == (7, wire.NO)
    assert failure(peer.bind, "NoSuchName") == (4, wire.NO)
    assert failure(peer.call, export, slow, cancel_after=0.05)[0] == 10

    health = peer.call(export, 0)
    assert struct.unpack(">I", health[:4])[0] >= 16
    described = idl.decode_interface(wire.Reader(peer.call(export, idl.DESCRIBE)[4:]))
    described_procedures = {number: (types, name) for number, types, name in described.listed()}
    assert described.name == "Store" and described_procedures == expected, described.listed()

    for number in range(int(calls)):
        peer.call(export, count, struct.pack(">I", number))
    assert struct.unpack(">I", peer.call(export, counted)) == (int(calls),)
    print("ok", peer.sent["datagrams"], "datagrams,", peer.sent["again"], "after a timer")


def serve():
    server, served = Server(), store.Store()
    numbers = range(1, 7)
    server.export("Store/second", store.interface(numbers), served.procedures(numbers))
    print(f"{server.address[0]}:{server.address[1]}", flush=True)
    server.run()


def vectors(directory):
    read = 0
    for line in lines(directory, "datagrams.txt"):
        for kind, _, reader in wire.unseal(bytes.fromhex(line)).frames:
            if kind == wire.WELCOME:
                Welcome(reader)
        read += 1
    for line in lines(directory, "types.txt"):
        kind, data, *prints = line.split()
        reader = wire.Reader(bytes.fromhex(data))
        if kind == "type":
            found = [f"{idl.of_types([idl.decode_type(reader)], []):016x}"]
        else:
            found = [f"{number}:{types:016x}:{name:016x}" for number, types, name in idl.decode_interface(reader).listed()]
        assert found == prints and reader.rest() == b"", (line, found)
        read += 1
    print("ok", read)


def lines(directory, file):
    """The lines of a file of vectors that are no comment."""
    with open(f"{directory}/{file}") as text:
        return [line.strip() for line in text if line.strip() and not line.startswith("#")]


if __name__ == "__main__":
    {"client": client, "serve": serve, "vectors": vectors}[sys.argv[1]](*sys.argv[2:])
