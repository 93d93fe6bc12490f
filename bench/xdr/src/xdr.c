/* A value held by C, encoded and decoded as often as wanted by the routines that rpcgen made. */
#include <stdlib.h>
#include <string.h>
#include "nfs3.h"
#include "array.h"

struct held {
    xdrproc_t proc;
    size_t size;
    void *value;
};

static const struct { xdrproc_t proc; size_t size; } kinds[] = {
    { (xdrproc_t)xdr_READDIRPLUS3res, sizeof(READDIRPLUS3res) },
    { (xdrproc_t)xdr_points, sizeof(points) },
    { (xdrproc_t)xdr_accounts, sizeof(accounts) },
};

/* Decodes a value and keeps it; 0 if it is none. */
void *bench_hold(int kind, const char *bytes, unsigned length)
{
    struct held *held = malloc(sizeof *held);
    XDR xdr;
    held->proc = kinds[kind].proc;
    held->size = kinds[kind].size;
    held->value = calloc(1, held->size);
    xdrmem_create(&xdr, (char *)bytes, length, XDR_DECODE);
    return held->proc(&xdr, held->value) ? held : 0;
}

/* Encodes it so many times; gives the length, or -1. */
long bench_encode(const struct held *held, char *out, unsigned room, unsigned times)
{
    long length = -1;
    while (times--) {
        XDR xdr;
        xdrmem_create(&xdr, out, room, XDR_ENCODE);
        if (!held->proc(&xdr, held->value))
            return -1;
        length = xdr_getpos(&xdr);
    }
    return length;
}

/* Decodes and frees a value so many times; gives the length, or -1. */
long bench_decode(const struct held *held, const char *bytes, unsigned length, unsigned times)
{
    char value[4096];
    long used = -1;
    while (times--) {
        XDR xdr;
        memset(value, 0, held->size);
        xdrmem_create(&xdr, (char *)bytes, length, XDR_DECODE);
        if (!held->proc(&xdr, value))
            return -1;
        used = xdr_getpos(&xdr);
        xdr_free(held->proc, value);
    }
    return used;
}
