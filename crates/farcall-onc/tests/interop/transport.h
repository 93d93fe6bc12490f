/* How the programs in C connect: over UDP or TCP, IPv4 or IPv6, to a given port or by the host's port mapper. */
#include <arpa/inet.h>
#include <netconfig.h>
#include <netdb.h>
#include <pthread.h>
#include <rpc/rpc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The networks by the names of the system's netconfig. */
static char *const networks[] = {"udp", "tcp", "udp6", "tcp6"};

static struct addrinfo *address_of(const char *netid, const char *host, const char *port) {
    struct addrinfo *found = NULL, wanted = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    wanted.ai_socktype = strncmp(netid, "udp", 3) == 0 ? SOCK_DGRAM : SOCK_STREAM;
    getaddrinfo(host, port, &wanted, &found);
    return found;
}

/* Connects to a server. With port 0 it asks the host's port mapper. */
static CLIENT *connect_to(char *netid, char *host, char *port, rpcprog_t program, rpcvers_t version) {
    struct addrinfo *found = address_of(netid, host, port);
    struct netconfig *network = getnetconfigent(netid);
    if (strcmp(port, "0") == 0)
        return clnt_tp_create(host, program, version, network);
    if (found == NULL || network == NULL)
        return NULL;
    struct netbuf at = {found->ai_addrlen, found->ai_addrlen, found->ai_addr};
    return clnt_tli_create(RPC_ANYFD, network, &at, program, version, 0, 0);
}

/* A version of a program, and the function that serves it. */
struct version {
    rpcprog_t program;
    rpcvers_t version;
    void (*dispatch)(struct svc_req *, SVCXPRT *);
};

static struct version *served;

/* Serves at a loopback port, and returns the port. Returns 0 if the host lacks the network. */
static int serve_on(char *netid, int registered) {
    struct addrinfo *found = address_of(netid, strchr(netid, '6') == NULL ? "127.0.0.1" : "::1", "0");
    struct netconfig *network = getnetconfigent(netid);
    if (found == NULL || network == NULL)
        return 0;
    int fd = socket(found->ai_family, found->ai_socktype, 0);
    if (fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) != 0)
        return 0;
    if (found->ai_socktype == SOCK_STREAM && listen(fd, 16) != 0)
        return 0;
    SVCXPRT *transport = svc_tli_create(fd, network, NULL, 0, 0);
    if (transport == NULL)
        return 0;
    for (struct version *each = served; each->program != 0; each++)
        if (!svc_reg(transport, each->program, each->version, each->dispatch, registered ? network : NULL)) {
            fprintf(stderr, "cannot register on %s\n", netid);
            exit(1);
        }
    struct sockaddr_in6 at; /* The port is at the same place in sockaddr_in and sockaddr_in6. */
    socklen_t length = sizeof at;
    return getsockname(fd, (struct sockaddr *)&at, &length) == 0 ? ntohs(at.sin6_port) : 0;
}

static void *await_end(void *unused) {
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
    for (struct version *each = served; each->program != 0; each++)
        svc_unreg(each->program, each->version);
    exit(0);
}

/* Prints the port of each network, and serves until standard input ends. An entry of zeros ends `versions`. */
static int serve(struct version *versions, int registered) {
    served = versions;
    if (registered)
        for (struct version *each = served; each->program != 0; each++)
            rpcb_unset(each->program, each->version, NULL);
    for (int i = 0; i < 4; i++)
        printf("%d ", serve_on(networks[i], registered));
    printf("\n");
    fflush(stdout);
    pthread_t thread;
    pthread_create(&thread, NULL, await_end, NULL);
    svc_run();
    return 1;
}
