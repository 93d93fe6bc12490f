/* Calls the null procedure of a program at all hosts, and prints each host that answers: broadcast PROGRAM VERSION. */
#include <arpa/inet.h>
#include <rpc/rpc.h>
#include <stdio.h>
#include <stdlib.h>

static bool_t heard(char *out, struct sockaddr_in *from) {
    (void)out;
    printf("%s\n", inet_ntoa(from->sin_addr));
    return TRUE;
}

int main(int count, char **arguments) {
    if (count != 3) {
        return 2;
    }
    unsigned program = strtoul(arguments[1], NULL, 0), version = strtoul(arguments[2], NULL, 0);
    enum clnt_stat stat = clnt_broadcast(program, version, NULLPROC, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL,
                                         (resultproc_t)heard);
    if (stat != RPC_SUCCESS) {
        fprintf(stderr, "%s\n", clnt_sperrno(stat));
        return 1;
    }
    return 0;
}
