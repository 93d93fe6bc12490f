"""Wire types, their fingerprints, and what `describe` says of an interface (docs/protocol.md, section 11)."""

import struct

import wire

DESCRIBE = 0xFFFF0000
MASK = (1 << 64) - 1
ANY = 0xFFFFFFFF

# A type is a tuple: its tag, then its numbers and inner types. The tags are those of the wire.
VOID, BOOL, I8, I16, I32, I64, U8, U16, U32, U64, F32, F64 = ((tag,) for tag in range(12))
OPAQUE, BYTES, STRING, ARRAY, LIST, OPTIONAL, TUPLE, NAMED, CHAIN = range(12, 21)


def opaque(size):
    return (OPAQUE, size)


def string(most=ANY):
    return (STRING, most)


def octets(most=ANY):
    return (BYTES, most)


def list_of(element, most=ANY):
    return (LIST, most, element)


def optional(inner):
    return (OPTIONAL, inner)


class Hash:
    """FNV-1a over 64-bit big-endian words, finished by the mixer of SplitMix64."""

    def __init__(self, tag):
        self.h = 0xCBF29CE484222325
        self.word(tag)

    def word(self, word):
        for byte in word.to_bytes(8, "big"):
            self.h = (self.h ^ byte) * 0x100000001B3 & MASK
        return self

    def finish(self):
        z = self.h
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        return z ^ z >> 31


def of_types(types, hashes):
    h = Hash(20)
    for ty in types:
        h.word(of_type(ty, hashes))
    return h.finish()


def of_type(ty, hashes):
    tag, *parts = ty
    if tag == TUPLE:
        return of_types(parts, hashes)
    if tag == NAMED:
        return hashes[parts[0]]
    # Fingerprints number a linked list 18, descriptions 20.
    h = Hash(18 if tag == CHAIN else tag)
    for p in parts:
        h.word(p if isinstance(p, int) else of_type(p, hashes))
    return h.finish()


def of_body(body, hashes):
    """A body is ("struct", [type, ...], extensible) or ("union", [(name, tag or None, [type, ...]), ...])."""
    if body[0] == "struct":
        fields = of_types([ty for _, ty in body[1]], hashes)
        return Hash(21).word(fields).finish() if body[2] else fields
    h = Hash(22)
    for _, tag, fields in sorted(body[1], key=lambda arm: (arm[1] is not None, arm[1] or 0)):
        h.word(MASK if tag is None else tag & ANY).word(of_types([ty for _, ty in fields], hashes))
    return h.finish()


def text(value):
    return wire.opaque(value.encode())


def sized(data):
    return struct.pack(">I", len(data)) + data


def many(items):
    return struct.pack(">I", len(items)) + b"".join(items)


def encode_type(ty):
    tag, *parts = ty
    data = struct.pack(">I", tag)
    if tag == TUPLE:
        return data + many([encode_type(p) for p in parts])
    for p in parts:
        data += struct.pack(">I", p) if isinstance(p, int) else encode_type(p)
    return data


def encode_field(name, ty):
    return text(name) + text("") + encode_type(ty) + struct.pack(">I", 0)


def encode_definition(name, body):
    data = text(name) + text("")
    if body[0] == "struct":
        return data + struct.pack(">I", 0) + many([encode_field(*f) for f in body[1]]) + struct.pack(">I", body[2])
    arms = []
    for arm, tag, fields in body[1]:
        optional_tag = struct.pack(">I", 0) if tag is None else struct.pack(">Ii", 1, tag)
        arms.append(text(arm) + text("") + optional_tag + many([encode_field(*f) for f in fields]))
    return data + struct.pack(">I", 1) + many(arms)


def decode_type(reader):
    tag = reader.unpack("I")
    if tag < OPAQUE:
        return (tag,)
    if tag in (OPAQUE, BYTES, STRING, NAMED):
        return (tag, reader.unpack("I"))
    if tag in (ARRAY, LIST):
        return (tag, reader.unpack("I"), decode_type(reader))
    if tag in (OPTIONAL, CHAIN):
        return (tag, decode_type(reader))
    if tag == TUPLE:
        return (tag, *decode_many(reader, decode_type))
    raise wire.Malformed(f"type {tag}")


def decode_many(reader, decode):
    return [decode(reader) for _ in range(reader.unpack("I"))]


def decode_text(reader):
    return reader.opaque(1 << 16).decode()


def decode_fields(reader):
    """Fields, those left out that an extensible struct may end before: they are no part of the fingerprint."""
    def one(reader):
        name, _, ty = decode_text(reader), decode_text(reader), decode_type(reader)
        return None if reader.unpack("I") else (name, ty)
    return [found for found in decode_many(reader, one) if found]


def decode_definition(reader):
    def arm(reader):
        name, _ = decode_text(reader), decode_text(reader)
        tag = reader.unpack("i") if reader.unpack("I") else None
        return name, tag, decode_fields(reader)
    name, _, kind = decode_text(reader), decode_text(reader), reader.unpack("I")
    if kind == 0:
        return name, ("struct", decode_fields(reader), bool(reader.unpack("I")))
    return name, ("union", decode_many(reader, arm))


def decode_procedure(reader):
    reader = wire.Reader(reader.take(reader.unpack("I")))
    number, name, _ = reader.unpack("I"), decode_text(reader), decode_text(reader)
    arguments = decode_many(reader, lambda r: (decode_text(r), decode_type(r)))
    result, exception = decode_type(reader), decode_type(reader)
    reader.unpack("II")
    if reader.unpack("I"):
        reader.unpack("Q")
    return number, name, arguments, result, exception, bool(reader.unpack("I"))


def name_hash(name, pinned):
    """What WELCOME says of a name: the last bit is whether the number is pinned."""
    hashed = Hash(23)
    for byte in name.encode():
        hashed.word(byte)
    return hashed.finish() & ~1 | pinned


def decode_interface(reader):
    """The interface of a description."""
    if reader.unpack("I") != 1:
        raise wire.Malformed("another version of descriptions")
    name, _ = decode_text(reader), decode_text(reader)
    return Interface(name, decode_many(reader, decode_definition), decode_many(reader, decode_procedure))


class Interface:
    """An interface: its named types, and its procedures as (number, name, [(argument, type)], result, exception, whether
    the number is pinned)."""

    def __init__(self, name, definitions=(), procedures=()):
        self.name, self.definitions, self.procedures = name, list(definitions), list(procedures)

    def hashes(self):
        hashes = [0] * len(self.definitions)
        for _ in range(128):
            deeper = [of_body(body, hashes) for _, body in self.definitions]
            if deeper == hashes:
                break
            hashes = deeper
        return hashes

    def listed(self):
        """What WELCOME lists: number, fingerprint and name of each procedure."""
        hashes = self.hashes()
        return [(number, of_types([(TUPLE, *(ty for _, ty in arguments)), result, exception], hashes),
                 name_hash(name, pinned))
                for number, name, arguments, result, exception, pinned in self.procedures]

    def describe(self):
        procedures = []
        for number, name, arguments, result, exception, pinned in self.procedures:
            data = struct.pack(">I", number) + text(name) + text("")
            data += many([text(a) + encode_type(ty) for a, ty in arguments])
            data += encode_type(result) + encode_type(exception) + struct.pack(">IIII", 0, 0, 0, pinned)
            procedures.append(sized(data))
        data = struct.pack(">I", 1) + text(self.name) + text("")
        data += many([encode_definition(*d) for d in self.definitions]) + many(procedures)
        return sized(data + text("0") + many([struct.pack(">I", wire.VERSION)]))
