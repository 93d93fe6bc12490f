/* Serves count.x by the code that rpcgen makes: count [PORT]. Prints its port on the loopback interface, and ends
 * when its standard input ends.
 *
 *     rpcgen -C -N -h -o count.h count.x; rpcgen -C -N -m -o count_svc.c count.x; rpcgen -C -N -c -o count_xdr.c count.x
 *     gcc -I/usr/include/tirpc -o count count.c count_svc.c count_xdr.c -ltirpc -lpthread */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "count.h"

extern void count_prog_1(struct svc_req *, SVCXPRT *);

counts *count_1_svc(char *text, struct svc_req *request) {
    static counts found;
    int in_word = 0;
    found = (counts){0};
    for (; *text != '\0'; text++) {
        int is_space = *text == ' ' || *text == '\n' || *text == '\t';
        found.bytes++;
        found.lines += *text == '\n';
        found.words += !is_space && !in_word;
        in_word = !is_space;
    }
    found.lines += found.bytes > 0;
    return &found;
}

static void *await_end(void *unused) {
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
    exit(0);
}

int main(int count, char **arguments) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    at.sin_port = htons(count > 1 ? atoi(arguments[1]) : 0);
    if (bind(fd, (struct sockaddr *)&at, length) != 0 || listen(fd, 16) != 0) {
        perror("count");
        return 1;
    }
    SVCXPRT *transport = svc_vc_create(fd, 0, 0);
    if (transport == NULL || !svc_reg(transport, COUNT_PROG, COUNT_VERS, count_prog_1, NULL)) {
        fprintf(stderr, "count: the program cannot be served\n");
        return 1;
    }
    getsockname(fd, (struct sockaddr *)&at, &length);
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    pthread_t thread;
    pthread_create(&thread, NULL, await_end, NULL);
    svc_run();
    return 1;
}
