"""The procedures of Telephones: the same function of what they are given as in handlers.c."""

LONGEST_NAME, MOST_BYTES = 20, 100000


class Abort(Exception):
    """A declared error with its arguments."""


def not_possible(limit, why):
    return Abort("NotPossible", [limit, why.encode()])


def nothing():
    return []


def find(name):
    if name == b"nobody":
        raise Abort("NoSuchEntry", [])
    if name == b"undeclared":
        raise RuntimeError("an error that is not declared")
    if len(name) > LONGEST_NAME:
        raise not_possible(LONGEST_NAME, "the name is too long")
    return [entry(name)]


def entry(name):
    places = {b"m": (1, 5551234), b"f": (7, []), b"p": (65535, [])}
    return [name, sum(name), len(name) % 2, places.get(name[:1], (0, [b"Bay Hill", 12]))]


def divide(dividend, divisor):
    if divisor == 0:
        raise not_possible(0, "division by zero")
    quotient = abs(dividend) // abs(divisor)
    if (dividend < 0) != (divisor < 0):
        quotient = -quotient
    return [quotient, dividend - quotient * divisor]


def echo(value):
    return [value]


def reverse(numbers):
    return [numbers[::-1]]


def remove(name):
    if name == b"nobody":
        raise Abort("NoSuchEntry", [])
    return []


def refuse_party(descriptor):
    if descriptor[0] > 1:
        raise not_possible(descriptor[0], "null and immediate only")


def pattern(count):
    return bytes(7 * i & 255 for i in range(count))


PROCEDURES = {
    "Nothing": nothing,
    "Find": find,
    "Divide": divide,
    "Echo": echo,
    "Reverse": reverse,
    "Remove": remove,
}
