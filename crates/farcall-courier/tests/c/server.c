/*
 * The 1980s' server over TCP: `server PORT [--direct]`, PORT 0 for any. Prints `listening PORT` and serves
 * each connection in a process of its own, until it is killed: as their daemon does, which looks at the first
 * call and starts the program that has the number, or with --direct as the program does that is given a
 * connection at once.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

extern int courier_server_main(int, char **);
extern void courier_daemon(int connection, int direct);

static int listening(int port)
{
    struct sockaddr_in address = {AF_INET, htons(port), {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, (struct sockaddr *)&address, length) < 0 || listen(fd, 64) < 0) {
        perror("server");
        exit(1);
    }
    getsockname(fd, (struct sockaddr *)&address, &length);
    printf("listening %d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

static void serve(int connection, int direct)
{
    char number[12], *arguments[] = {number, NULL};
    int yes = 1;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    courier_daemon(connection, direct);
    snprintf(number, sizeof number, "%d", connection);
    courier_server_main(1, arguments);
    exit(0);
}

int main(int count, char **arguments)
{
    int fd, direct;

    /* The library's daemon and its servers start another with a descriptor as the first word. */
    if (arguments[0][0] >= '0' && arguments[0][0] <= '9')
        return courier_server_main(count, arguments);
    if (count < 2)
        return fprintf(stderr, "server PORT [--direct]\n"), 2;
    direct = count > 2 && strcmp(arguments[2], "--direct") == 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGCHLD, SIG_IGN);
    fd = listening(atoi(arguments[1]));
    for (;;) {
        int connection = accept(fd, NULL, NULL);

        if (connection < 0)
            continue;
        if (fork() == 0) {
            close(fd);
            serve(connection, direct);
        }
        close(connection);
    }
}
