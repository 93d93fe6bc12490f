/* Program 2: what rpcgen makes of cost.x, with its default settings over UDP. Both sides are given their
 * sockets, so that no port mapper is asked. */
#include "cost.h"
#include <netinet/in.h>

void cost_1(struct svc_req *request, SVCXPRT *transport);

static char nothing;
void *none_1_svc(struct svc_req *request) { return (void)request, &nothing; }
void *two_1_svc(short argument, struct svc_req *request) { return (void)argument, (void)request, &nothing; }
void *four_1_svc(int argument, struct svc_req *request) { return (void)argument, (void)request, &nothing; }

/* Serves a UDP socket for ever. Returns only if it cannot. */
void bench_serve_sun(int socket) {
    SVCXPRT *transport = svc_dg_create(socket, 0, 0);
    if (transport != NULL && svc_reg(transport, COST, ONE, cost_1, NULL))
        svc_run();
}

/* A client of the server at this address. */
void *bench_connect_sun(int socket, unsigned address, unsigned short port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(address);
    struct netbuf server = {sizeof to, sizeof to, &to};
    return clnt_dg_create(socket, &server, COST, ONE, 0, 0);
}

/* Makes calls of the procedure with so many bytes of argument. Returns how many succeeded before one
 * failed. */
unsigned bench_call_sun(void *client, int bytes, unsigned calls) {
    for (unsigned i = 0; i < calls; i++) {
        void *done = bytes == 0   ? none_1(client)
                     : bytes == 2 ? two_1((short)i, client)
                                  : four_1((int)i, client);
        if (done == NULL)
            return i;
    }
    return calls;
}
