"""XXH3-64 with seed 0: the tag of datagrams in the open scheme (docs/protocol.md, "Tag").

Written from the algorithm's published description. Speed does not matter here.
"""

MASK = (1 << 64) - 1
PRIME32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
PRIME64 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
AVALANCHE = 0x165667919E3779F9
SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)


def u64(data, at):
    return int.from_bytes(data[at:at + 8], "little")


def u32(data, at):
    return int.from_bytes(data[at:at + 4], "little")


def fold(a, b):
    product = a * b
    return (product & MASK) ^ (product >> 64)


def avalanche(h):
    h ^= h >> 37
    h = h * AVALANCHE & MASK
    return h ^ h >> 32


def avalanche64(h):
    h = (h ^ h >> 33) * PRIME64[1] & MASK
    h = (h ^ h >> 29) * PRIME64[2] & MASK
    return h ^ h >> 32


def swap64(x):
    return int.from_bytes(x.to_bytes(8, "little"), "big")


def mix16(data, at, secret):
    return fold(u64(data, at) ^ u64(SECRET, secret), u64(data, at + 8) ^ u64(SECRET, secret + 8))


def up_to_16(data):
    n = len(data)
    if n > 8:
        low = u64(data, 0) ^ u64(SECRET, 24) ^ u64(SECRET, 32)
        high = u64(data, n - 8) ^ u64(SECRET, 40) ^ u64(SECRET, 48)
        return avalanche((n + swap64(low) + high + fold(low, high)) & MASK)
    if n >= 4:
        keyed = (u32(data, n - 4) + (u32(data, 0) << 32)) ^ u64(SECRET, 8) ^ u64(SECRET, 16)
        h = keyed ^ (keyed << 49 | keyed >> 15) & MASK ^ (keyed << 24 | keyed >> 40) & MASK
        h = h * 0x9FB21C651E98DF25 & MASK
        h ^= (h >> 35) + n
        h = h * 0x9FB21C651E98DF25 & MASK
        return h ^ h >> 28
    if n:
        combined = data[0] << 16 | data[n >> 1] << 24 | data[n - 1] | n << 8
        return avalanche64(combined ^ u32(SECRET, 0) ^ u32(SECRET, 4))
    return avalanche64(u64(SECRET, 56) ^ u64(SECRET, 64))


def up_to_240(data):
    n = len(data)
    acc = n * PRIME64[0] & MASK
    if n <= 128:
        for i in range((n - 1) // 32, -1, -1):
            acc += mix16(data, 16 * i, 32 * i) + mix16(data, n - 16 * (i + 1), 32 * i + 16)
        return avalanche(acc & MASK)
    for i in range(8):
        acc += mix16(data, 16 * i, 16 * i)
    acc = avalanche(acc & MASK)
    for i in range(8, n // 16):
        acc += mix16(data, 16 * i, 16 * (i - 8) + 3)
    return avalanche((acc + mix16(data, n - 16, 136 - 17)) & MASK)


def accumulate(acc, data, at, secret):
    for i in range(8):
        value = u64(data, at + 8 * i)
        keyed = value ^ u64(SECRET, secret + 8 * i)
        acc[i ^ 1] = (acc[i ^ 1] + value) & MASK
        acc[i] = (acc[i] + (keyed & 0xFFFFFFFF) * (keyed >> 32)) & MASK


def scramble(acc):
    for i in range(8):
        a = acc[i] ^ acc[i] >> 47 ^ u64(SECRET, len(SECRET) - 64 + 8 * i)
        acc[i] = a * PRIME32[0] & MASK


def longer(data):
    n = len(data)
    acc = [PRIME32[2], *PRIME64[:4], PRIME32[1], PRIME64[4], PRIME32[0]]
    stripes = (len(SECRET) - 64) // 8
    for stripe in range((n - 1) // 64):
        accumulate(acc, data, 64 * stripe, 8 * (stripe % stripes))
        if stripe % stripes == stripes - 1:
            scramble(acc)
    accumulate(acc, data, n - 64, len(SECRET) - 64 - 7)
    h = n * PRIME64[0] & MASK
    for i in range(4):
        h += fold(acc[2 * i] ^ u64(SECRET, 11 + 16 * i), acc[2 * i + 1] ^ u64(SECRET, 19 + 16 * i))
    return avalanche(h & MASK)


def xxh3_64(data):
    if len(data) <= 16:
        return up_to_16(data)
    return up_to_240(data) if len(data) <= 240 else longer(data)
