// Answers a short READ of a segment in the kernel, out of the BPF array that is the segment.
//
// Whatever is not exactly such a READ is passed on, and the server in user space answers it. So this program
// never refuses an access, and drops no packet. docs/kernel-served.md says why each check is here, and
// docs/protocol.md and docs/memory-protocol.md specify the frames.
//
// scripts/xdp compiles this into read.o.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;

// The most bytes of a read that is answered here: XXH3 hashes up to 240 bytes by a method of its own.
#define MAX_READ 192
#define MAX_HASHED 240
#define TAG 8

// The first words of the array of a segment. The segment begins on the next page.
enum { GENERATION, SIZE, ANSWERED, FIRST_WORD = 512 };

// A datagram with one whole CALL of `read` with one range, and nothing else (protocol.md, 3; the tag
// follows). The fields are as on the wire.
struct request {
    u8 version, scheme;
    u16 phase;
    u64 conversation, number;
    u8 type, flags;
    u16 length;
    u32 activity, exchange;
    u64 sequence, export;
    u32 procedure;
    u64 generation, offset;
    u32 bytes;
} __attribute__((packed));

// The datagram of its RESULT, up to the bytes that were read.
struct reply {
    u8 version, scheme;
    u16 phase;
    u64 conversation, number;
    u8 type, flags;
    u16 length;
    u32 activity, exchange;
    u64 sequence;
    u8 outcome, ran;
    u16 kind;
    u32 bytes;
} __attribute__((packed));

_Static_assert(sizeof(struct request) == 72, "of the specification");
_Static_assert(sizeof(struct reply) + MAX_READ == MAX_HASHED, "of the specification");

// A conversation whose client has proven its address to the server in user space.
struct conversation {
    u64 client;       // the client's identifier of it, as on the wire
    u8 address[16];   // the client's; IPv4 is mapped
    u16 port;         // the client's
    u16 server_port;
    u32 repeats;      // how often its latest call has come again
    u64 sequence;     // of its latest call that was answered
    u64 number;       // of the next datagram that is sent in it from here
};

_Static_assert(sizeof(struct conversation) == 48, "src/kernel.rs");

struct segment {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
    __uint(max_entries, 1024);
    __type(key, u32);
    __type(value, u64);
};

// The segments that are offered, by the identifiers of their exports as on the wire.
struct {
    __uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
    __uint(max_entries, 1024);
    __type(key, u64);
    __array(values, struct segment);
} segments SEC(".maps");

// By the server's identifier of the conversation, as on the wire.
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, u64);
    __type(value, struct conversation);
} conversations SEC(".maps");

// What a run works on, because a BPF program has 512 bytes of stack. A run is not interrupted by another one
// on its processor.
struct scratch {
    struct udphdr asked;
    u8 request[sizeof(struct request)];
    u64 asked_tag;
    u8 head[sizeof(struct ethhdr) + sizeof(struct ipv6hdr)];
    u8 unused[2];
    struct udphdr answered;
    u8 reply[sizeof(struct reply) + MAX_READ + TAG + 16];
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, struct scratch);
} scratches SEC(".maps");

// XXH3's default secret.
static const u8 SECRET[192] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

#define PRIME 0x9e3779b185ebca87ULL

static __always_inline u64 word(const u8 *at) {
    return *(const u64 *)at;
}

// The product of 64 times 64 bits, its halves combined by exclusive or.
static __always_inline u64 fold(u64 a, u64 b) {
    u64 a0 = (u32)a, a1 = a >> 32, b0 = (u32)b, b1 = b >> 32;
    u64 low = a0 * b0, middle = a1 * b0, cross = (low >> 32) + (u32)middle + a0 * b1;
    return ((middle >> 32) + (cross >> 32) + a1 * b1) ^ ((cross << 32) | (u32)low);
}

static __always_inline u64 mix(const u8 *in, const u8 *secret) {
    return fold(word(in) ^ word(secret), word(in + 8) ^ word(secret + 8));
}

static __always_inline u64 avalanche(u64 hash) {
    hash ^= hash >> 37;
    hash *= 0x165667919e3779f9ULL;
    return hash ^ (hash >> 32);
}

// XXH3-64 of 49 to 128 bytes.
static __always_inline u64 hash_short(const u8 *in, u32 len) {
    u64 hash = len * PRIME;
    if (len > 96)
        hash += mix(in + 48, SECRET + 96) + mix(in + len - 64, SECRET + 112);
    if (len > 64)
        hash += mix(in + 32, SECRET + 64) + mix(in + len - 48, SECRET + 80);
    hash += mix(in + 16, SECRET + 32) + mix(in + len - 32, SECRET + 48);
    return avalanche(hash + mix(in, SECRET) + mix(in + len - 16, SECRET + 16));
}

// XXH3-64 of 129 to 240 bytes.
static __always_inline u64 hash_long(const u8 *in, u32 len) {
    u64 hash = len * PRIME;
    for (u32 i = 0; i < 8; i++)
        hash += mix(in + 16 * i, SECRET + 16 * i);
    hash = avalanche(hash);
    for (u32 i = 8; i < 15; i++)
        if (i < len / 16)
            hash += mix(in + 16 * i, SECRET + 16 * (i - 8) + 3);
    return avalanche(hash + mix(in + len - 16, SECRET + 136 - 17));
}

// The checksum of the Internet (RFC 1071).
static __always_inline u16 folded(u64 sum) {
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (sum & 0xffff) + (sum >> 16);
}

static __always_inline u64 sum_of(const void *bytes, u32 len) {
    return (u32)bpf_csum_diff(0, 0, (void *)bytes, len, 0);
}

// Whether the checksum of a datagram with this sum is right. One of a sender on this machine can be left to
// hardware that is not there (veth): the field then has the sum of the pseudo-header.
static __always_inline int is_right(u64 pseudo, u16 check, u64 sum, int optional) {
    if (check == 0)
        return optional;
    return folded(pseudo + sum) == 0xffff || check == folded(pseudo);
}

// Where the datagram came from.
struct path {
    u32 network;      // the offset of the network's header
    u32 transport;    // that of the UDP header
    u64 pseudo;       // the sum of the pseudo-header without the length
    u32 address[4];   // the sender's
    int optional;     // whether UDP needs no checksum
};

static __always_inline int read_ipv4(const struct iphdr *ip, const void *end, struct path *path) {
    if ((const void *)(ip + 1) > end)
        return 0;
    // Neither options nor fragments.
    if (*(const u8 *)ip != 0x45 || (ip->frag_off & bpf_htons(0x3fff)) || ip->protocol != IPPROTO_UDP)
        return 0;
    if (folded(sum_of(ip, sizeof(*ip))) != 0xffff)
        return 0;
    if (bpf_ntohs(ip->tot_len) != sizeof(*ip) + sizeof(struct udphdr) + sizeof(struct request) + TAG)
        return 0;
    path->transport = path->network + sizeof(*ip);
    path->pseudo = (u64)ip->saddr + ip->daddr + bpf_htons(IPPROTO_UDP);
    path->address[0] = path->address[1] = 0;
    path->address[2] = bpf_htonl(0xffff);
    path->address[3] = ip->saddr;
    path->optional = 1;
    return 1;
}

static __always_inline int read_ipv6(const struct ipv6hdr *ip, const void *end, struct path *path) {
    if ((const void *)(ip + 1) > end)
        return 0;
    // No further headers, so no fragments.
    if (*(const u8 *)ip >> 4 != 6 || ip->nexthdr != IPPROTO_UDP)
        return 0;
    if (bpf_ntohs(ip->payload_len) != sizeof(struct udphdr) + sizeof(struct request) + TAG)
        return 0;
    path->transport = path->network + sizeof(*ip);
    path->pseudo = sum_of(&ip->saddr, 32) + bpf_htons(IPPROTO_UDP);
    __builtin_memcpy(path->address, &ip->saddr, 16);
    path->optional = 0;
    return 1;
}

// Writes the headers of Ethernet and the network for an answer of `udp` bytes.
static __always_inline void write_head(u8 *head, const u8 *asked, struct path *path, u32 udp) {
    struct ethhdr *to = (void *)head;
    const struct ethhdr *from = (const void *)asked;
    __builtin_memcpy(to->h_dest, from->h_source, ETH_ALEN);
    __builtin_memcpy(to->h_source, from->h_dest, ETH_ALEN);
    to->h_proto = from->h_proto;
    if (path->optional) {
        const struct iphdr *old = (const void *)(from + 1);
        struct iphdr *ip = (void *)(to + 1);
        *(u16 *)ip = bpf_htons(0x4500);
        ip->tot_len = bpf_htons(sizeof(*ip) + udp);
        ip->id = 0;
        ip->frag_off = bpf_htons(0x4000);
        ip->ttl = 64;
        ip->protocol = IPPROTO_UDP;
        ip->check = 0;
        ip->saddr = old->daddr;
        ip->daddr = old->saddr;
        ip->check = ~folded(sum_of(ip, sizeof(*ip)));
        return;
    }
    const struct ipv6hdr *old = (const void *)(from + 1);
    struct ipv6hdr *ip = (void *)(to + 1);
    *(u32 *)ip = bpf_htonl(0x60000000);
    ip->payload_len = bpf_htons(udp);
    ip->nexthdr = IPPROTO_UDP;
    ip->hop_limit = 64;
    __builtin_memcpy(&ip->saddr, &old->daddr, 16);
    __builtin_memcpy(&ip->daddr, &old->saddr, 16);
}

// Copies a range of a segment, words in ascending order, each by one load. Returns whether it is in the
// segment, and the segment was of this generation all the time.
//
// The generation is read before the words and after them. This processor takes loads in their order (x86-64;
// no other loads this program), so if a word was written after the generation changed, this is noticed.
static __always_inline int copy(void *segment, u64 generation, u64 offset, u32 len, u8 *into) {
    u32 at = GENERATION;
    volatile u64 *current = bpf_map_lookup_elem(segment, &at);
    at = SIZE;
    volatile u64 *size = bpf_map_lookup_elem(segment, &at);
    if (!current || !size || !generation || *current != generation)
        return 0;
    if (len > MAX_READ || offset > *size || len > *size - offset)
        return 0;
    u32 first = FIRST_WORD + (offset >> 3), skip = (offset & 7) * 8, lacking = 64 - skip;
    u64 before = 0;
    // A range that does not begin with a word needs one word more; `before` is the one before.
    for (u32 i = 0; i <= MAX_READ / 8; i++) {
        u32 done = i * 8;
        if (done >= len + (skip >> 3))
            break;
        at = first + i;
        volatile u64 *place = bpf_map_lookup_elem(segment, &at);
        if (!place)
            return 0;
        u64 now = *place;
        if (skip == 0) {
            *(u64 *)(into + done) = now;
        } else {
            if (i > 0)
                *(u64 *)(into + done - 8) = (before >> skip) | (now << lacking);
            *(u64 *)(into + done) = now >> skip;
        }
        before = now;
    }
    return *current == generation;
}

SEC("xdp")
int farcall_read(struct xdp_md *ctx) {
    u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
    struct path path = {.network = sizeof(struct ethhdr)};
    if (data + sizeof(struct ethhdr) > end)
        return XDP_PASS;
    u16 protocol = ((struct ethhdr *)data)->h_proto;
    // A tag of a VLAN, and every other protocol, is passed on.
    if (protocol == bpf_htons(ETH_P_IP)) {
        if (!read_ipv4((void *)(data + path.network), end, &path))
            return XDP_PASS;
    } else if (protocol == bpf_htons(ETH_P_IPV6)) {
        if (!read_ipv6((void *)(data + path.network), end, &path))
            return XDP_PASS;
    } else {
        return XDP_PASS;
    }
    u32 asked_udp = sizeof(struct udphdr) + sizeof(struct request) + TAG;
    u32 asked_bytes = path.transport + asked_udp;
    if (end - data != asked_bytes)
        return XDP_PASS;

    u32 zero = 0;
    struct scratch *s = bpf_map_lookup_elem(&scratches, &zero);
    if (!s || bpf_xdp_load_bytes(ctx, path.transport, &s->asked, 8 + sizeof(struct request) + TAG))
        return XDP_PASS;
    const struct request *q = (const void *)s->request;
    if (s->asked.len != bpf_htons(asked_udp) || q->version != 1 || q->scheme != 0)
        return XDP_PASS;
    if (q->type != 0x10 || q->flags != 0 || q->length != bpf_htons(48) || q->activity || q->exchange)
        return XDP_PASS;
    u64 sequence = bpf_be64_to_cpu(q->sequence);
    if (q->procedure != bpf_htonl(0xffff8000) || sequence == 0 || sequence >> 63)
        return XDP_PASS;

    u64 export = q->export, id = q->conversation;
    void *segment = bpf_map_lookup_elem(&segments, &export);
    struct conversation *c = bpf_map_lookup_elem(&conversations, &id);
    if (!segment || !c)
        return XDP_PASS;
    if (c->port != s->asked.source || c->server_port != s->asked.dest)
        return XDP_PASS;
    const u32 *known = (const void *)c->address;
    if (known[0] != path.address[0] || known[1] != path.address[1] || known[2] != path.address[2] ||
        known[3] != path.address[3])
        return XDP_PASS;
    u64 pseudo = path.pseudo + bpf_htons(asked_udp);
    if (!is_right(pseudo, s->asked.check, sum_of(&s->asked, 8 + sizeof(struct request) + TAG), path.optional))
        return XDP_PASS;
    if (bpf_be64_to_cpu(s->asked_tag) != hash_short(s->request, sizeof(struct request)))
        return XDP_PASS;

    // A call that comes again may come because its answer does not arrive. So user space gets every other
    // one.
    if (sequence < c->sequence || (sequence == c->sequence && (c->repeats++ & 1) == 0))
        return XDP_PASS;

    u32 len = bpf_ntohl(q->bytes);
    u64 generation = bpf_be64_to_cpu(q->generation), offset = bpf_be64_to_cpu(q->offset);
    struct reply *r = (void *)s->reply;
    if (!copy(segment, generation, offset, len, s->reply + sizeof(*r)))
        return XDP_PASS;

    if (sequence != c->sequence) {
        c->sequence = sequence;
        c->repeats = 0;
    }
    // `copy` has checked it, but the verifier does not know any more.
    if (len > MAX_READ)
        return XDP_PASS;
    u32 padded = (len + 3) & ~3u;
    // What `copy` wrote behind the range is not the reader's.
    for (u32 i = 0; i < 3; i++)
        if (len + i < padded)
            s->reply[sizeof(*r) + ((len + i) & 0xff)] = 0;
    r->version = 1;
    r->scheme = 0;
    r->phase = 0;
    r->conversation = c->client;
    // A number is used once in a conversation.
    r->number = bpf_cpu_to_be64(__sync_fetch_and_add(&c->number, 1));
    r->type = 0x11;
    r->flags = 0;
    r->length = bpf_htons(24 + padded);
    r->activity = r->exchange = 0;
    r->sequence = q->sequence;
    r->outcome = r->ran = 0;
    r->kind = 0;
    r->bytes = q->bytes;
    u32 hashed = sizeof(*r) + padded;
    u64 tag = hashed <= 128 ? hash_short(s->reply, hashed) : hash_long(s->reply, hashed);
    *(u64 *)(s->reply + hashed) = bpf_cpu_to_be64(tag);

    u32 udp = sizeof(struct udphdr) + hashed + TAG;
    s->answered.source = s->asked.dest;
    s->answered.dest = s->asked.source;
    s->answered.len = bpf_htons(udp);
    s->answered.check = 0;
    // The pseudo-header has the same addresses, in the other order.
    u16 check = ~folded(path.pseudo + bpf_htons(udp) + sum_of(&s->answered, udp));
    s->answered.check = check ? check : 0xffff;

    if (data + path.transport > end)
        return XDP_PASS;
    if (path.optional)
        write_head(s->head, data, &path, udp);
    else if (data + sizeof(struct ethhdr) + sizeof(struct ipv6hdr) <= end)
        write_head(s->head, data, &path, udp);
    // A driver may have no room behind the packet (veth), but all have some in front (256 bytes). Every byte
    // is written anew, so it does not matter where the packet grows. It always shrinks at the end: a socket
    // buffer of generic mode can say where a checksum begins, and a packet that had lost its beginning would
    // be dropped for it.
    int more = (int)udp - (int)asked_udp;
    if (bpf_xdp_adjust_tail(ctx, more) && (more <= 0 || bpf_xdp_adjust_head(ctx, -more)))
        return XDP_PASS;
    // From here on the packet is changed, and must not be passed on.
    if (bpf_xdp_store_bytes(ctx, 0, s->head, path.transport) ||
        bpf_xdp_store_bytes(ctx, path.transport, &s->answered, udp))
        return XDP_DROP;
    u32 at = ANSWERED;
    u64 *count = bpf_map_lookup_elem(segment, &at);
    if (count)
        __sync_fetch_and_add(count, 1);
    return XDP_TX;
}

char LICENSE[] SEC("license") = "MIT";
