"""Serves and calls calc.x by Debian's python3-pyvisa-py, whose ONC RPC module is Python's own of 1992.

counterpart.py serve udp|tcp: prints its port, and ends when its standard input ends.
counterpart.py call udp|tcp HOST PORT: prints "all is well". Over TCP it sends fragments of 13 bytes.
"""

import os
import sys
import threading

from pyvisa_py.protocols import rpc

PROGRAM, VERSION = 0x20000088, 3


class Packer(rpc.Packer):
    def pack_pair(self, pair):
        self.pack_int(pair[0])
        self.pack_int(pair[1])

    def pack_joining(self, joining):
        self.pack_string(joining[0].encode())
        self.pack_string(joining[1].encode())
        self.pack_int(joining[2])

    def pack_listing(self, entries):
        def entry(each):
            self.pack_string(each[0].encode())
            self.pack_hyper(each[1])

        self.pack_list(entries, entry)


class Unpacker(rpc.Unpacker):
    def unpack_listing(self):
        return self.unpack_list(lambda: (self.unpack_string().decode(), self.unpack_hyper()))


def serving(base):
    class Served(base):
        def addpackers(self):
            self.packer, self.unpacker = Packer(), Unpacker(b"")

        def handle_1(self):
            a, b = self.unpacker.unpack_int(), self.unpacker.unpack_int()
            self.turn_around()
            self.packer.pack_int(a + b)

        def handle_3(self):
            start = self.unpacker.unpack_uint()
            self.turn_around()
            self.packer.pack_listing([(str(n), n << 32) for n in range(start, 0, -1)])

        def handle_4(self):
            listing = self.unpacker.unpack_listing()
            self.turn_around()
            self.packer.pack_hyper(sum(size for _, size in listing))

        def handle_5(self):
            first, again = self.unpacker.unpack_string(), self.unpacker.unpack_string()
            times = self.unpacker.unpack_int()
            self.turn_around()
            self.packer.pack_string(first + again * times)

        def handle_6(self):
            self.turn_around()

        # Like the base class, except that it ends when the peer has gone; the base class would wait for ever.
        def session(self, connection=None):
            if connection is None:
                return super().session()
            sock = connection[0]
            while sock.recv(1, rpc.socket.MSG_PEEK):
                rpc._sendrecord(sock, self.handle(rpc._recvrecord(sock, None)), 13)

    return Served("127.0.0.1", PROGRAM, VERSION, 0)


def calling(base, host, port):
    client = base(host, PROGRAM, VERSION, int(port))
    client.packer, client.unpacker = Packer(), Unpacker(b"")
    client.packer.pack_auth_unix(7, b"here", 1000, 1000, [4, 24])
    client.cred = rpc.AuthorizationFlavor.unix, client.packer.get_buf()
    return client


def check(client):
    pack, unpack = client.packer, client.unpacker
    assert client.make_call(6, None, None, None) is None
    assert client.make_call(1, (-5, 47), pack.pack_pair, unpack.unpack_int) == 42
    listing = client.make_call(3, 100, pack.pack_uint, unpack.unpack_listing)
    assert listing == [(str(n), n << 32) for n in range(100, 0, -1)], listing
    assert client.make_call(4, listing, pack.pack_listing, unpack.unpack_hyper) == 5050 << 32
    assert client.make_call(5, ("a", "bc", 300), pack.pack_joining, unpack.unpack_string) == b"a" + b"bc" * 300
    for proc in 77, 1:
        try:
            client.make_call(proc, None, None, None)
        except rpc.RPCError:
            continue
        raise AssertionError(f"procedure {proc} without arguments was answered")
    print("all is well")


role, network = sys.argv[1:3]
if role == "serve":
    server = serving(rpc.UDPServer if network == "udp" else rpc.TCPServer)
    if network == "tcp":
        server.sock.listen(1)
    print(server.sock.getsockname()[1], flush=True)
    threading.Thread(target=server.loop, daemon=True).start()
    sys.stdin.read()
    os._exit(0)
send_record = rpc._sendrecord
rpc._sendrecord = lambda sock, record, fragsize=None, timeout=None: send_record(sock, record, 13, timeout)
check(calling(rpc.RawUDPClient if network == "udp" else rpc.RawTCPClient, *sys.argv[3:5]))
