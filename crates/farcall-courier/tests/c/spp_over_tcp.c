/*
 * Carries packets of Xerox's sequenced packet protocol over TCP: a length of 16 bits, the protocol's header
 * of 12 bytes, and at most 534 bytes of data. The 1980s' library is compiled to call these in place of the
 * system's calls.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { HEADER = 12, DATA = 534, ATTENTION = 0x20 };

/* What the library wants of a system that had lists of errors. */
int sys_nerr = 0;
char *sys_errlist[1];

/* Called when the other end has closed the connection, or broken it within a packet. */
void (*spp_at_end)(void);

static ssize_t at_end(void)
{
    if (spp_at_end)
        spp_at_end();
    return 0;
}

/* The packet that has been looked at, or a part of one. A process has one connection. */
static struct {
    unsigned char bytes[2 + HEADER + DATA];
    size_t count;
} seen;

static int fill(int fd, size_t count)
{
    while (seen.count < count) {
        ssize_t more = recv(fd, seen.bytes + seen.count, count - seen.count, 0);

        if (more <= 0)
            return 0;
        seen.count += more;
    }
    return 1;
}

/* What does not fit is lost, as it is with packets. */
static ssize_t take(int fd, const struct iovec *parts, int count, int flags)
{
    unsigned char *from = seen.bytes + 2;
    size_t length, left;
    int i;

    if (!fill(fd, 2))
        return at_end();
    length = seen.bytes[0] << 8 | seen.bytes[1];
    if (length < HEADER || length > HEADER + DATA) {
        fprintf(stderr, "a packet of %zu bytes\n", length);
        return at_end();
    }
    if (!fill(fd, 2 + length))
        return at_end();
    for (i = 0, left = length; i < count && left > 0; i++) {
        size_t here = parts[i].iov_len < left ? parts[i].iov_len : left;

        memcpy(parts[i].iov_base, from, here);
        from += here;
        left -= here;
    }
    if (!(flags & MSG_PEEK))
        seen.count = 0;
    return length - left;
}

/* The program that is started takes the connection over, and what has been looked at of it. */
int spp_execv(const char *program, char *const *arguments)
{
    char text[2 * sizeof seen.bytes + 1];
    size_t i;

    for (i = 0; i < seen.count; i++)
        sprintf(text + 2 * i, "%02x", seen.bytes[i]);
    text[2 * seen.count] = 0;
    setenv("SPP_SEEN", text, 1);
    return execv(program, arguments);
}

static void __attribute__((constructor)) take_over(void)
{
    const char *text = getenv("SPP_SEEN");

    for (; text && text[0] && text[1] && seen.count < sizeof seen.bytes; text += 2)
        sscanf(text, "%2hhx", &seen.bytes[seen.count++]);
    unsetenv("SPP_SEEN");
}

static ssize_t put(int fd, const struct iovec *parts, int count, int attention)
{
    unsigned char packet[2 + HEADER + DATA], *header = packet + 2;
    size_t length = 0;
    int i;

    for (i = 0; i < count; i++) {
        if (length + parts[i].iov_len > HEADER + DATA)
            return -1;
        memcpy(header + length, parts[i].iov_base, parts[i].iov_len);
        length += parts[i].iov_len;
    }
    if (length < HEADER)
        return -1;
    /* Connections, sequence and allocation are the system's: TCP has its own. */
    memset(header + 2, 0, HEADER - 2);
    if (attention) {
        header[0] = ATTENTION;
        length = HEADER + 1;
    }
    packet[0] = length >> 8;
    packet[1] = length;
    return send(fd, packet, 2 + length, MSG_NOSIGNAL) == (ssize_t)(2 + length) ? (ssize_t)length : -1;
}

ssize_t spp_readv(int fd, const struct iovec *parts, int count)
{
    return take(fd, parts, count, 0);
}

ssize_t spp_writev(int fd, const struct iovec *parts, int count)
{
    return put(fd, parts, count, 0);
}

ssize_t spp_recvmsg(int fd, struct msghdr *message, int flags)
{
    return take(fd, message->msg_iov, message->msg_iovlen, flags);
}

ssize_t spp_recv(int fd, void *bytes, size_t length, int flags)
{
    struct iovec part = {bytes, length};

    return take(fd, &part, 1, flags);
}

ssize_t spp_read(int fd, void *bytes, size_t length)
{
    return spp_recv(fd, bytes, length, 0);
}

ssize_t spp_send(int fd, const void *bytes, size_t length, int flags)
{
    struct iovec part = {(void *)bytes, length};

    return put(fd, &part, 1, flags & MSG_OOB);
}

ssize_t spp_write(int fd, const void *bytes, size_t length)
{
    return spp_send(fd, bytes, length, 0);
}

/* Descriptors were bits of an int. */
int spp_select(int count, int *readable, int *writable, int *exceptional, struct timeval *left)
{
    struct timeval copy = *left;
    fd_set set;
    int ready;

    (void)writable, (void)exceptional;
    FD_ZERO(&set);
    FD_SET(count - 1, &set);
    /* (Nor was the time changed, of which some is static.) */
    ready = select(count, &set, NULL, NULL, &copy);
    *readable = ready > 0 ? 1 << (count - 1) : 0;
    return ready;
}

int spp_socket(int family, int type, int protocol)
{
    (void)family, (void)type, (void)protocol;
    return socket(AF_INET, SOCK_STREAM, 0);
}

/* Of an XNS address: the first four bytes of the host are the IPv4 address, the port is the port. */
int spp_connect(int fd, const struct sockaddr *to, socklen_t length)
{
    const unsigned char *xns = (const unsigned char *)to;
    struct sockaddr_in address = {.sin_family = AF_INET};
    int yes = 1;

    (void)length;
    memcpy(&address.sin_addr, xns + 6, 4);
    memcpy(&address.sin_port, xns + 12, 2);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return connect(fd, (struct sockaddr *)&address, sizeof address);
}
