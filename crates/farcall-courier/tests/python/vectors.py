"""Compares captured messages with this implementation: each is decoded by its description, and encoded to the same words."""

import struct

from courier import ABORT, CALL, REJECT, RETURN, Bad, Codec

PASSWORD = {"record": ["STRING"] * 2 + ["LONG_CARDINAL"] * 3 + ["STRING"] * 4}
ADDRESS = {"record": [{"array": [2, "UNSPECIFIED"]}, {"array": [3, "UNSPECIFIED"]}, "UNSPECIFIED"]}

# By program, version and procedure: arguments, results, and errors with their arguments.
PROCEDURES = {
    (754, 1, 0): (["CARDINAL"], [PASSWORD], {0: []}),
    (754, 1, 1): (["STRING"], [PASSWORD], {0: [], 1: ["STRING"]}),
    (2, 2, 0): ([], [{"sequence": [40, ADDRESS]}], {}),
}


class Capture:
    """The messages of one file, whose lines are `-> WORDS` and `<- … WORDS`."""

    def __init__(self):
        self.codec = Codec({})
        self.called = None
        self.equal = 0
        self.faults = []

    def sent(self, words):
        # (Versions stand before a connection's first call.)
        if words[0] != CALL and words[1] in (3, 6):
            words = words[2:]
        kind, transaction, high, low, version, procedure = words[:6]
        self.called = transaction, (high << 16 | low, version, procedure)
        described = PROCEDURES.get(self.called[1])
        if described:
            self.same(described[0], words[6:], "arguments")

    def received(self, words):
        kind, transaction = words[:2]
        if kind not in (REJECT, RETURN, ABORT) or transaction != self.called[0]:
            # What peers are known to do wrong: the transaction of the call before, or kind and transaction exchanged.
            self.faults.append("{:04x} {:04x}, called as {:04x}".format(kind, transaction, self.called[0]))
            return
        if kind == REJECT:
            self.rejected(words[2:])
            return
        described = PROCEDURES[self.called[1]]
        if kind == RETURN:
            self.same(described[1], words[2:], "results")
        else:
            self.same(described[2][words[2]], words[3:], "an error's arguments")

    def rejected(self, words):
        if words[0] not in (0, 1, 2, 3, 65535) or len(words) != (3 if words[0] == 1 else 1):
            raise Bad(f"a rejection {words}")
        self.equal += 1

    def same(self, kinds, words, what):
        data = struct.pack(f">{len(words)}H", *words)
        values = self.codec.all(kinds, data)
        again = b"".join(self.codec.encode(kind, value) for kind, value in zip(kinds, values, strict=True))
        if again != data:
            raise Bad(f"{what} {self.called}: {again.hex(' ', 2)}, not {data.hex(' ', 2)}")
        self.equal += 1


def check(file):
    """Prints `equal COUNT`, and each known fault of the peer."""
    capture = Capture()
    with open(file) as lines:
        for line in lines:
            arrow, *rest = line.split() or [""]
            words = [
                int(word, 16)
                for word in rest
                if len(word) == 4 and all(each in "0123456789abcdef" for each in word)
            ]
            if arrow == "->":
                capture.sent(words)
            elif arrow == "<-" and "version" not in rest:
                capture.received(words)
    print(f"equal {capture.equal}")
    for fault in capture.faults:
        print(f"fault {fault}")
    return 0
