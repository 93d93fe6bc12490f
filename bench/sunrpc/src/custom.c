/* Programs 3 and 4: calls by sockets and nothing else. A call is the procedure's number and its argument,
 * both as this machine keeps them; a reply is the procedure's result, an integer. */
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NONE = 1, TWO = 2, FOUR = 3, LARGEST = 8, PATIENCE_MS = 25000 };

__attribute__((noinline)) static int none(void) { return 1; }
__attribute__((noinline)) static int two(short argument) { return argument; }
__attribute__((noinline)) static int four(int argument) { return argument; }

static size_t length(int procedure) {
    return sizeof procedure + (procedure == TWO ? sizeof(short) : procedure == FOUR ? sizeof(int) : 0);
}

/* Executes a call. Returns 0 if it is none. */
__attribute__((noinline)) static int dispatch(const char *call, size_t bytes, int *result) {
    int procedure, wide;
    short narrow;
    if (bytes < sizeof procedure)
        return 0;
    memcpy(&procedure, call, sizeof procedure);
    if (bytes < length(procedure))
        return 0;
    switch (procedure) {
    case NONE:
        *result = none();
        return 1;
    case TWO:
        memcpy(&narrow, call + sizeof procedure, sizeof narrow);
        *result = two(narrow);
        return 1;
    case FOUR:
        memcpy(&wide, call + sizeof procedure, sizeof wide);
        *result = four(wide);
        return 1;
    default:
        return 0;
    }
}

/* Serves a UDP socket until it fails. */
void bench_serve_datagrams(int socket) {
    char call[LARGEST];
    struct sockaddr_in from;
    int result;
    for (;;) {
        socklen_t size = sizeof from;
        ssize_t bytes = recvfrom(socket, call, sizeof call, 0, (struct sockaddr *)&from, &size);
        if (bytes < 0)
            return;
        if (dispatch(call, (size_t)bytes, &result))
            sendto(socket, &result, sizeof result, 0, (struct sockaddr *)&from, size);
    }
}

/* Serves a connection until it ends. */
void bench_serve_connection(int connection) {
    char call[LARGEST];
    size_t have = 0;
    int result;
    for (;;) {
        ssize_t bytes = recv(connection, call + have, sizeof call - have, 0);
        if (bytes <= 0)
            break;
        have += (size_t)bytes;
        if (!dispatch(call, have, &result)) {
            if (have == sizeof call)
                break;
            continue;
        }
        have = 0;
        if (send(connection, &result, sizeof result, MSG_NOSIGNAL) != sizeof result)
            break;
    }
    close(connection);
}

/* Writes the call of the procedure with so many bytes of argument. */
static size_t marshal(char *call, int bytes, unsigned number) {
    int procedure = bytes == 0 ? NONE : bytes == 2 ? TWO : FOUR;
    short narrow = (short)number;
    memcpy(call, &procedure, sizeof procedure);
    if (bytes == 2)
        memcpy(call + sizeof procedure, &narrow, sizeof narrow);
    if (bytes == 4)
        memcpy(call + sizeof procedure, &number, sizeof number);
    return length(procedure);
}

static int ready(int socket, int polls) {
    struct pollfd wanted = {socket, POLLIN, 0};
    return !polls || poll(&wanted, 1, PATIENCE_MS) == 1;
}

/* Makes calls by a UDP socket. Returns how many had a reply before one had none. */
unsigned bench_call_datagrams(int socket, unsigned address, unsigned short port, int polls, int bytes,
                              unsigned calls) {
    struct sockaddr_in server = {.sin_family = AF_INET, .sin_port = htons(port)};
    server.sin_addr.s_addr = htonl(address);
    char call[LARGEST];
    int result;
    for (unsigned i = 0; i < calls; i++) {
        struct sockaddr_in from;
        socklen_t size = sizeof from;
        size_t sent = marshal(call, bytes, i);
        if (sendto(socket, call, sent, 0, (struct sockaddr *)&server, sizeof server) != (ssize_t)sent)
            return i;
        if (!ready(socket, polls))
            return i;
        if (recvfrom(socket, &result, sizeof result, 0, (struct sockaddr *)&from, &size) != sizeof result)
            return i;
    }
    return calls;
}

/* Makes calls on a connection. Returns how many had a reply before one had none. */
unsigned bench_call_connection(int connection, int polls, int bytes, unsigned calls) {
    char call[LARGEST];
    int result;
    for (unsigned i = 0; i < calls; i++) {
        size_t sent = marshal(call, bytes, i), have = 0;
        if (send(connection, call, sent, MSG_NOSIGNAL) != (ssize_t)sent)
            return i;
        while (have < sizeof result) {
            if (!ready(connection, polls))
                return i;
            ssize_t got = recv(connection, (char *)&result + have, sizeof result - have, 0);
            if (got <= 0)
                return i;
            have += (size_t)got;
        }
    }
    return calls;
}
