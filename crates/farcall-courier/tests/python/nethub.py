#!/usr/bin/env python3
"""Carries Courier's packets between a byte stream and dodo's network, which is Ethernet frames over TCP.

    nethub.py serve DIRECTORY ADDRESS
        starts dodo's hub and server (the jar is in DIRECTORY) and listens at ADDRESS (a path, or a port of
        127.0.0.1); prints `listening ADDRESS`. Each connection becomes one to the server. At the path
        ADDRESS-exchange, each packet, with its length in two bytes before it, is broadcast to clearinghouses
        as one of the packet exchange protocol, and the answers come back in the same form.
    nethub.py expedited DIRECTORY PROGRAM VERSION PROCEDURE [WORDS...]
        starts them, and broadcasts a call in one packet to clearinghouses; prints the answer's words

Run it where nobody else is on the network (scripts/dodo): dodo's hub listens at all addresses.
"""

import os
import random
import socket
import struct
import subprocess
import sys
import threading

sys.dont_write_bytecode = True

from courier import ATTENTION, DATA, END, END_OF_MESSAGE, END_REPLY, HEADER, SYSTEM, Bad, Closed, Packets

HUB_PORT = 3333
OURS = bytes.fromhex("1000ff000007")
SERVER = bytes.fromhex("1000bb101101")
BROADCAST = b"\xff" * 6
NETWORK = 1050

PACKET_EXCHANGE, SEQUENCED = 4, 5
COURIER_SOCKET, CLEARINGHOUSE_SOCKET = 5, 20
SEND_ACKNOWLEDGEMENT = 0x40
# Where the clients' sockets begin.
FIRST_SOCKET = 0x4000
RESEND_SECONDS = 0.25
RECEIVE_AHEAD = 8


def least(difference):
    """A difference of sequence numbers, which begin again after 65535."""
    return (difference + 0x8000) % 0x10000 - 0x8000


class Hub:
    """Our station on dodo's network."""

    def __init__(self, stream):
        self.stream = stream
        self.listeners = {}
        self.lock = threading.Lock()
        self.sockets = FIRST_SOCKET
        threading.Thread(target=self.run, daemon=True).start()

    def listen(self, listener):
        with self.lock:
            self.sockets += 1
            self.listeners[self.sockets] = listener
            return self.sockets

    def send(self, kind, host, to, ours, data):
        packet = (
            struct.pack(
                ">HHBBI6sHI6sH", 0xFFFF, 30 + len(data), 0, kind, NETWORK, host, to, NETWORK, OURS, ours
            )
            + data
        )
        frame = host + OURS + b"\x06\x00" + packet + bytes(len(packet) % 2)
        with self.lock:
            self.stream.sendall(struct.pack(">H", len(frame)) + frame)

    def run(self):
        frames = Packets(self.stream)
        try:
            while True:
                (length,) = struct.unpack(">H", frames.exactly(2))
                frame = frames.exactly(length)
                if frame[12:14] != b"\x06\x00" or frame[:6] != OURS:
                    continue
                _, length, _, kind, _, _, to, _, _, source = struct.unpack(">HHBBI6sHI6sH", frame[14:44])
                listener = self.listeners.get(to)
                if listener:
                    listener(kind, source, frame[44 : 14 + length])
        except (Closed, OSError):
            print("the hub is gone", file=sys.stderr, flush=True)


class Sequenced:
    """One connection of the sequenced packet protocol, for one byte stream."""

    def __init__(self, hub, stream):
        self.hub = hub
        self.near = Packets(stream)
        self.changed = threading.Condition()
        self.socket = hub.listen(self.arrived)
        self.ours, self.theirs = random.randrange(1, 0x10000), 0
        self.remote = COURIER_SOCKET
        self.next, self.wanted, self.allowed = 0, 0, 0
        self.unacknowledged, self.ahead = {}, {}
        self.ended = False

    def run(self):
        threading.Thread(target=self.resend, daemon=True).start()
        try:
            self.open()
            while True:
                (length,) = struct.unpack(">H", self.near.exactly(2))
                if not HEADER <= length <= HEADER + DATA:
                    raise Bad(f"a packet of {length} bytes")
                packet = self.near.exactly(length)
                self.send(packet[0] & (END_OF_MESSAGE | ATTENTION), packet[1], packet[HEADER:])
        except (Closed, OSError, Bad):
            pass
        try:
            self.send(0, END, b"")
        except Closed:
            pass

    def open(self):
        with self.changed:
            self.system(SEND_ACKNOWLEDGEMENT)
            self.changed.wait_for(lambda: self.theirs or self.ended, 30)
            if not self.theirs:
                raise Closed

    def send(self, control, kind, data):
        with self.changed:
            self.changed.wait_for(lambda: least(self.allowed - self.next) >= 0 or self.ended)
            if self.ended:
                raise Closed
            self.unacknowledged[self.next] = control | SEND_ACKNOWLEDGEMENT, kind, data
            self.put(*self.unacknowledged[self.next], self.next)
            self.next = (self.next + 1) % 0x10000

    def put(self, control, kind, data, sequence):
        header = struct.pack(
            ">BBHHHHH",
            control,
            kind,
            self.ours,
            self.theirs,
            sequence,
            self.wanted,
            (self.wanted + RECEIVE_AHEAD) % 0x10000,
        )
        self.hub.send(SEQUENCED, SERVER, self.remote, self.socket, header + data)

    def system(self, control=0):
        self.put(SYSTEM | control, 0, b"", self.next)

    def resend(self):
        with self.changed:
            while not self.changed.wait_for(lambda: self.ended, RESEND_SECONDS):
                if not self.theirs:
                    self.system(SEND_ACKNOWLEDGEMENT)
                for sequence, packet in self.unacknowledged.items():
                    self.put(*packet, sequence)

    def arrived(self, kind, source, data):
        if kind != SEQUENCED or len(data) < HEADER:
            return
        control, stream, theirs, ours, sequence, acknowledged, allowed = struct.unpack(
            ">BBHHHHH", data[:HEADER]
        )
        with self.changed:
            if ours != self.ours:
                return
            # The server goes on at another socket than it was called at.
            self.theirs, self.remote, self.allowed = theirs, source, allowed
            for old in [each for each in self.unacknowledged if least(acknowledged - each) > 0]:
                del self.unacknowledged[old]
            if not control & SYSTEM and 0 <= least(sequence - self.wanted) <= RECEIVE_AHEAD:
                self.ahead[sequence] = control, stream, data[HEADER:]
            self.deliver()
            if control & SEND_ACKNOWLEDGEMENT:
                self.system()
            self.changed.notify_all()

    def deliver(self):
        while self.wanted in self.ahead:
            control, stream, data = self.ahead.pop(self.wanted)
            self.wanted = (self.wanted + 1) % 0x10000
            try:
                self.near.send(stream, data, control & (END_OF_MESSAGE | ATTENTION))
            except OSError:
                pass
            if stream == END_REPLY:
                self.system()
                self.ended = True
                self.near.stream.shutdown(socket.SHUT_RDWR)


class Dodo:
    """The hub and the server, which end with us."""

    def __init__(self, directory):
        self.directory = directory
        self.hub_program = self.start("dev.hawala.hub.NetHub", subprocess.DEVNULL)
        self.hub = Hub(self.connected())
        self.server = self.start("dev.hawala.xns.DodoServer", subprocess.PIPE)
        for line in self.server.stdout:
            if f"sockNo = {COURIER_SOCKET}," in line and line.endswith("listener started\n"):
                break
        else:
            sys.exit("dodo's server has ended")
        threading.Thread(target=lambda: [None for _ in self.server.stdout], daemon=True).start()

    def start(self, name, output):
        command = ["java", "-cp", "dodoserver-and-nethub.jar", name]
        return subprocess.Popen(
            command,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def connected(self):
        """(The hub says nothing when it listens.)"""
        while self.hub_program.poll() is None:
            try:
                return socket.create_connection(("127.0.0.1", HUB_PORT))
            except ConnectionRefusedError:
                threading.Event().wait(0.05)
        sys.exit("dodo's hub has ended")

    def end(self):
        for program in (self.server, self.hub_program):
            program.kill()
            program.wait()


def serve(dodo, address):
    if address.isdigit():
        listener = socket.create_server(("127.0.0.1", int(address)))
        address = listener.getsockname()[1]
    else:
        for path in address, address + "-exchange":
            if os.path.exists(path):
                os.unlink(path)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address)
        listener.listen(16)
        exchanges = socket.socket(socket.AF_UNIX)
        exchanges.bind(address + "-exchange")
        exchanges.listen(1)
        threading.Thread(target=exchange, args=(dodo.hub, exchanges), daemon=True).start()
    print(f"listening {address}", flush=True)
    while True:
        stream, _ = listener.accept()
        threading.Thread(target=Sequenced(dodo.hub, stream).run, daemon=True).start()


def exchange(hub, listener):
    while True:
        stream, _ = listener.accept()
        ours = hub.listen(lambda _, __, data: stream.sendall(struct.pack(">H", len(data)) + data))
        near = Packets(stream)
        try:
            while True:
                (length,) = struct.unpack(">H", near.exactly(2))
                hub.send(PACKET_EXCHANGE, BROADCAST, CLEARINGHOUSE_SOCKET, ours, near.exactly(length))
        except (Closed, OSError):
            pass


def expedited(dodo, program, version, procedure, *words):
    answers, answered = [], threading.Event()

    def arrived(kind, source, data):
        answers.append(data)
        answered.set()

    ours = dodo.hub.listen(arrived)
    message = struct.pack(">IHHHHHIHH", 1, 2, 3, 3, 0, 1, int(program), int(version), int(procedure))
    message += struct.pack(f">{len(words)}H", *map(int, words))
    while not answered.wait(RESEND_SECONDS):
        dodo.hub.send(PACKET_EXCHANGE, BROADCAST, CLEARINGHOUSE_SOCKET, ours, message)
    # (Behind the packet exchange's own header.)
    print(answers[0][6:].hex(" ", 2), flush=True)


def main():
    role, directory, *rest = sys.argv[1:]
    dodo = Dodo(directory)
    try:
        {"serve": serve, "expedited": expedited}[role](dodo, *rest)
    finally:
        dodo.end()


if __name__ == "__main__":
    main()
