/* Decodes what comes by the routines that rpcgen made, and sends back how much that was and what it encodes to again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include TYPES

static const struct { xdrproc_t proc; size_t size; } types[] = {
#define TYPE(name) { (xdrproc_t)xdr_##name, sizeof(name) },
#include "types.inc"
};

static char in[1 << 24], out[1 << 24];

int main(void)
{
    unsigned head[2];
    while (fread(head, sizeof *head, 2, stdin) == 2) {
        unsigned answer[2] = { 0, 0 };
        void *value = calloc(1, types[head[0]].size);
        XDR xdr;
        if (fread(in, 1, head[1], stdin) != head[1])
            return 1;
        xdrmem_create(&xdr, in, head[1], XDR_DECODE);
        if (types[head[0]].proc(&xdr, value)) {
            answer[0] = xdr_getpos(&xdr);
            xdrmem_create(&xdr, out, sizeof out, XDR_ENCODE);
            if (types[head[0]].proc(&xdr, value))
                answer[1] = xdr_getpos(&xdr);
        }
        fwrite(answer, sizeof *answer, 2, stdout);
        fwrite(out, 1, answer[1], stdout);
        fflush(stdout);
    }
    return 0;
}
