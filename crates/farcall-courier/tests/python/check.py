#!/usr/bin/env python3
"""Compares Courier's counterparts with each other: check.py DIRECTORY, where scripts/xnscourier has built its
programs. Or with another server: check.py DIRECTORY PORT [cooper], in Cooper's dialect if so said.

Every client calls every server with the same lines, random values of every type go through both codecs, and
the captured vectors through ours. Prints a line for each, and exits with 1 where something differs.
"""

import os
import random
import subprocess
import sys

sys.dont_write_bytecode = True

from courier import NUMBERS, Program
from peer import DESCRIPTION
from vectors import check

HERE = os.path.dirname(os.path.abspath(__file__))
PEER = [sys.executable, os.path.join(HERE, "peer.py")]

# A call and its outcome. (The old server's range of versions has its bytes exchanged.)
CALLS = [
    ("Nothing", "return"),
    ("Find x726f6f74", "return x726f6f74 452 0 0 x4261792048696c6c 12"),
    ("Find x6d6f62", "return x6d6f62 318 1 1 5551234"),
    ("Find x666178", "return x666178 319 1 7"),
    ("Find x70", "return x70 112 1 65535"),
    ("Find x6e6f626f6479", "abort 0"),
    ("Find x756e6465636c61726564", "reject 65535"),
    ("Find x" + 26 * "61", "abort 7 20 x746865206e616d6520697320746f6f206c6f6e67"),
    ("Divide 17 5", "return 3 2"),
    ("Divide -17 5", "return -3 -2"),
    ("Divide 17 0", "abort 7 0 x6469766973696f6e206279207a65726f"),
    ("Reverse 3 1 2 65535", "return 3 65535 2 1"),
    ("Remove x61", "return"),
    ("Remove x6e6f626f6479", "abort 0"),
    (
        "Echo 1 2 3 -4 -5 6 7 8 x6162 65535 1 2 3 4 5 -6 2 x6162 x 3 1 2 3 1 x62 77 1 0 x63 5 500 3 4",
        "return 1 2 3 -4 -5 6 7 8 x6162 65535 1 2 3 4 5 -6 2 x6162 x 3 1 2 3 1 x62 77 1 0 x63 5 500 3 4",
    ),
    ("Store 1 5000", "return 5000 46724 sent 5000 46724"),
    ("Fetch 1 5000", "return 5000 46724 got 5000 46724"),
    ("Store 0 0", "return 0 0"),
    ("Fetch 0 5", "return 0 0"),
    ("Store 2 1 2 3 4 5 6 7 8 9 10 0", "abort 7 2 x6e756c6c20616e6420696d6d656469617465206f6e6c79"),
    ("Fetch 1 100001", "abort 7 100 x746f6f206d616e79206279746573"),
    ("raw 31415 1 99", "reject 2"),
    ("raw 31415 2 0", ("reject 1 1 1", "reject 1 256 768")),
    ("raw 999 1 0", "reject 0"),
    ("repeat 10000 Nothing", "return"),
    ("Store 1 900000", "abort 7 100 x746f6f206d616e79206279746573"),
    ("Nothing", "return"),
    ("Store 1 10", "return 10 315 sent 10 315"),
]

# What Cooper's dialect can say.
COOPER = [
    ("Nothing", "sent"),
    ("Find x726f6f74", "return x726f6f74 452 0 0 x4261792048696c6c 12"),
    ("Divide -17 5", "return -3 -2"),
    ("Remove x61", "sent"),
    ("Reverse 3 1 2 65535", "return 3 65535 2 1"),
]


def lines_of(command, lines):
    text = "".join(line + "\n" for line in lines)
    return subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=120
    ).stdout.splitlines()


def called(server, client, calls):
    """Starts a server. How many outcomes are as they must be, and the first that is not."""
    with subprocess.Popen(server, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as serving:
        try:
            return called_at(serving.stdout.readline().split()[1], client, calls)
        finally:
            serving.kill()


def called_at(port, client, calls):
    outcomes = lines_of([port if word == "PORT" else word for word in client], [call for call, _ in calls])
    for at, (call, wanted) in enumerate(calls):
        got = outcomes[at] if at < len(outcomes) else "(nothing)"
        if got not in (wanted if isinstance(wanted, tuple) else (wanted,)):
            return at, f"{call}: {got}, not {wanted}"
    return len(calls), None


def value(program, kind, chance):
    form, detail = program.codec.described(kind)
    if form in NUMBERS:
        least, most = NUMBERS[form][1:]
        return chance.choice([least, most, chance.randint(least, most)])
    if form == "STRING":
        # (The old library's strings hold no zero.)
        return bytes(chance.randint(1, 255) for _ in range(chance.randint(0, 9)))
    if form == "enumeration":
        return chance.choice(detail)
    if form == "array":
        return [value(program, detail[1], chance) for _ in range(detail[0])]
    if form == "record":
        return [value(program, field, chance) for field in detail]
    if form == "sequence":
        return [value(program, detail[1], chance) for _ in range(chance.randint(0, min(detail[0], 6)))]
    designator = chance.choice(list(detail))
    return int(designator), value(program, detail[designator], chance)


def codecs(codec):
    """How many values have the same words in both codecs and are themselves again, and the first other."""
    program, chance = Program(DESCRIPTION), random.Random(1981)
    names = [*NUMBERS, "STRING", *program.described["types"]]
    names = [name for name in names if name not in ("Identifier", "Party", "Empty")] * 200
    texts = [f"{name} " + " ".join(program.codec.text(name, value(program, name, chance))) for name in names]
    words = [
        lines_of(command, [f"encode {text}" for text in texts]) for command in ([codec], [*PEER, "codec"])
    ]
    decoded = [
        lines_of(command, [f"decode {name} {each}" for name, each in zip(names, words[0])])
        for command in ([codec], [*PEER, "codec"])
    ]
    for at, text in enumerate(texts):
        if words[0][at] != words[1][at] or any(
            each[at] != "all " + text.split(" ", 1)[1] for each in decoded
        ):
            return at, f"{text}: {words[0][at]}, {words[1][at]}"
    return len(texts), None


def check_at(port, c_clients, python_client):
    """Calls a server that runs already by every client."""
    versions, dialect = [*python_client, "--versions", "2..2"], [*python_client, "--cooper"]
    trials = [(client, CALLS) for client in (python_client, *c_clients)] + [(versions, CALLS[:20])]
    if "cooper" in sys.argv:
        trials = [(dialect, COOPER)]
    failed = 0
    for client, calls in trials:
        count, wrong = called_at(port, client, calls)
        print(f"{os.path.basename(client[0])}: {count} as they must be" + (f", then {wrong}" if wrong else ""))
        failed += bool(wrong)
    return failed > 0


def main():
    directory = sys.argv[1] if len(sys.argv) > 1 else ""
    built = os.path.exists(os.path.join(directory, "server"))
    if not built:
        print("skipped: 4.4BSD's programs: they are not built (scripts/xnscourier)")
    c_server, c_client = [os.path.join(directory, "server"), "0"], [os.path.join(directory, "client"), "PORT"]
    python_server, python_client = [*PEER, "server", "0"], [*PEER, "client", "PORT"]
    if len(sys.argv) > 2:
        return check_at(sys.argv[2], [c_client] if built else [], python_client)
    trials = [
        ("Python client, Python server", python_server, python_client, CALLS),
        (
            "the same in packets of 7 and 5 bytes",
            [*python_server, "--packet", "7"],
            [*python_client, "--packet", "5"],
            CALLS,
        ),
        (
            "the same with Courier 2",
            [*python_server, "--versions", "2..3"],
            [*python_client, "--versions", "2..2"],
            CALLS[:20],
        ),
        ("the same in Cooper's dialect", [*python_server, "--cooper"], [*python_client, "--cooper"], COOPER),
    ]
    if built:
        trials += [
            ("C client, C server", c_server, c_client, CALLS),
            ("C client, C server without its daemon", [*c_server, "--direct"], c_client, CALLS),
            ("C client, Python server", python_server, c_client, CALLS),
            ("Python client, C server", c_server, python_client, CALLS),
            (
                "Python client in packets of 16 bytes, C server",
                c_server,
                [*python_client, "--packet", "16"],
                CALLS,
            ),
        ]
    results = [(name, *called(server, client, calls)) for name, server, client, calls in trials]
    if built:
        results.append(("random values through both codecs", *codecs(os.path.join(directory, "codec"))))
    failed = 0
    for name, count, wrong in results:
        print(f"{name}: {count} as they must be" + (f", then {wrong}" if wrong else ""))
        failed += bool(wrong)
    for name in ("cornell", "dodo"):
        print(f"vectors of {name}:", end=" ", flush=True)
        failed += check(os.path.join(HERE, "..", "vectors", name + ".txt"))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
