"""Messages in fragments (docs/protocol.md, section 5.4): what has arrived of one, and what is to be sent."""

import struct

import wire

FIRST_WINDOW = 12_000
PIECE = 1_024
ALLOWED = 64 * 1024


class Incoming:
    """A message that is being received."""

    def __init__(self, total, most):
        if total > most:
            raise wire.CallFailed(15, wire.NO, f"{total} bytes, {most} are accepted")
        self.total, self.pieces, self.largest = total, {}, 0

    def take(self, number, offset, data):
        """Takes a fragment. Says whether its sender must be told at once: it came twice, or left a gap."""
        self.largest = max(self.largest, number)
        before = self.received()
        if offset > self.through() + ALLOWED:
            return True
        known = self.pieces.get(offset, b"")
        if len(data) > len(known):
            self.pieces[offset] = data
        return self.received() == before or len(self.ranges()) > 1

    def ranges(self):
        """What has arrived, as a sorted list of [start, end)."""
        found = []
        for start in sorted(self.pieces):
            end = start + len(self.pieces[start])
            if found and start <= found[-1][1]:
                found[-1][1] = max(found[-1][1], end)
            else:
                found.append([start, end])
        return found

    def received(self):
        return sum(end - start for start, end in self.ranges())

    def through(self):
        ranges = self.ranges()
        return ranges[0][1] if ranges and ranges[0][0] == 0 else 0

    def whole(self):
        """The message, if all of it has arrived."""
        if self.through() < self.total:
            return None
        message = bytearray(self.total)
        for start, data in self.pieces.items():
            message[start:start + len(data)] = data
        return bytes(message)

    def select(self, position, pull=False):
        through = self.through()
        beyond = [r for r in self.ranges() if r[0] > through][:32]
        limit = min(self.total, through + ALLOWED) if through + ALLOWED < self.total else self.total
        body = position.pack() + struct.pack(">IIQ", through, limit, self.largest)
        body += b"".join(struct.pack(">II", *r) for r in beyond)
        return wire.frame(wire.SELECT, body, wire.PULL if pull else 0)


class Outgoing:
    """A message that is being sent."""

    def __init__(self, message, piece=PIECE):
        self.message, self.limit = message, FIRST_WINDOW
        # Each piece that has not arrived: its end, and the datagram in which it was sent last (0: in none).
        self.pieces = {at: [min(at + piece, len(message)), 0] for at in range(0, len(message), piece)}

    def take(self, reader, pull):
        """Takes a SELECT: forgets what has arrived, and marks what is lost as not sent."""
        through, limit, largest = reader.unpack("IIQ")
        arrived = [(0, through)]
        while reader.at < len(reader.data):
            arrived.append(reader.unpack("II"))
        self.limit = limit if limit == len(self.message) else limit & ~3
        for start, piece in list(self.pieces.items()):
            if any(a <= start and piece[0] <= b for a, b in arrived):
                del self.pieces[start]
            elif pull or piece[1] + 3 <= largest:
                piece[1] = 0

    def due(self, window=32):
        """Where the pieces begin that may be sent now."""
        flying = sum(number > 0 for _, number in self.pieces.values())
        found = []
        for start, (end, number) in sorted(self.pieces.items()):
            if number or start >= self.limit or len(found) + flying >= window:
                continue
            if end > self.limit:
                self.pieces[self.limit] = [end, 0]
                self.pieces[start][0] = self.limit
            found.append(start)
        return found

    def lose(self):
        """Takes everything under way to be lost."""
        for piece in self.pieces.values():
            piece[1] = 0

    def body(self, start, number):
        """The fragment part of a frame for the piece at `start`, which goes in the datagram of this number."""
        self.pieces[start][1] = number
        return struct.pack(">II", len(self.message), start) + self.message[start:self.pieces[start][0]]
