/* An echo service and its client, as rpcgen would make them of
 *
 *   program BENCH { version ONE {
 *       void null() = 0; opaque echo(opaque) = 1; opaque fetch(unsigned) = 2;
 *   } = 1; } = 0x20000099;
 *
 * but without the portmapper: both sides are given sockets of loopback. */
#include <netinet/in.h>
#include <rpc/rpc.h>
#include <stdlib.h>

enum { PROGRAM = 0x20000099, VERSION = 1, ECHO = 1, FETCH = 2, LARGEST = 64 << 20, DATAGRAM = 65000 };

struct payload {
    char *data;
    u_int length;
};

static bool_t xdr_payload(XDR *xdrs, struct payload *payload) {
    return xdr_bytes(xdrs, &payload->data, &payload->length, LARGEST);
}

/* What the server holds. */
static char held[LARGEST];

static void dispatch(struct svc_req *request, SVCXPRT *transport) {
    struct payload payload = {NULL, 0};
    u_int bytes = 0;
    switch (request->rq_proc) {
    case NULLPROC:
        svc_sendreply(transport, (xdrproc_t)xdr_void, NULL);
        return;
    case ECHO:
        if (!svc_getargs(transport, (xdrproc_t)xdr_payload, (caddr_t)&payload)) {
            svcerr_decode(transport);
            return;
        }
        svc_sendreply(transport, (xdrproc_t)xdr_payload, (caddr_t)&payload);
        svc_freeargs(transport, (xdrproc_t)xdr_payload, (caddr_t)&payload);
        return;
    case FETCH:
        if (!svc_getargs(transport, (xdrproc_t)xdr_u_int, (caddr_t)&bytes) || bytes > LARGEST) {
            svcerr_decode(transport);
            return;
        }
        payload.length = bytes;
        payload.data = held;
        svc_sendreply(transport, (xdrproc_t)xdr_payload, (caddr_t)&payload);
        return;
    default:
        svcerr_noproc(transport);
    }
}

/* Serves a socket, which listens if it is of a stream, for ever. Returns only if it cannot. */
void bench_serve(int socket, int stream) {
    SVCXPRT *transport = stream ? svc_vc_create(socket, 0, 0) : svc_dg_create(socket, DATAGRAM, DATAGRAM);
    if (transport == NULL || !svc_reg(transport, PROGRAM, VERSION, dispatch, NULL))
        return;
    svc_run();
}

/* A client of the server at a port of loopback; its socket, if of a stream, is connected. */
void *bench_connect(int socket, int stream, unsigned short port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct netbuf server = {sizeof address, sizeof address, &address};
    if (stream)
        return clnt_vc_create(socket, &server, PROGRAM, VERSION, 0, 0);
    return clnt_dg_create(socket, &server, PROGRAM, VERSION, DATAGRAM, DATAGRAM);
}

static int call(CLIENT *client, rpcproc_t procedure, xdrproc_t encode, void *arguments, struct payload *result) {
    struct timeval patience = {25, 0};
    xdrproc_t decode = result ? (xdrproc_t)xdr_payload : (xdrproc_t)xdr_void;
    return clnt_call(client, procedure, encode, (caddr_t)arguments, decode, (caddr_t)result, patience);
}

/* Each returns 0, or a clnt_stat. Results are decoded into memory that is then freed, as a stub's user would. */
int bench_null(void *client) { return call(client, NULLPROC, (xdrproc_t)xdr_void, NULL, NULL); }

int bench_echo(void *client, char *data, unsigned length) {
    struct payload arguments = {data, length}, result = {NULL, 0};
    int status = call(client, ECHO, (xdrproc_t)xdr_payload, &arguments, &result);
    free(result.data);
    return status;
}

int bench_fetch(void *client, unsigned bytes) {
    struct payload result = {NULL, 0};
    int status = call(client, FETCH, (xdrproc_t)xdr_u_int, &bytes, &result);
    free(result.data);
    return status;
}
