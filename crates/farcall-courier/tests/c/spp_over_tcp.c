/*
 * Carries packets of Xerox's sequenced packet protocol over TCP: a length of 16 bits, the protocol's header of 12 bytes, and
 * at most 534 bytes of data. The 1980s' library is compiled to call these in place of the system's calls.
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
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

/* Looks at bytes until there are so many. (Waiting by MSG_WAITALL would miss bytes that join those which were seen already.) */
static int look(int fd, void *bytes, int count)
{
    struct pollfd wanted = {fd, POLLIN | POLLRDHUP, 0};
    int one = 1, waited = 0, seen, ended = 0;

    while ((seen = recv(fd, bytes, count, MSG_PEEK | MSG_DONTWAIT)) != count && !ended) {
        setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &count, sizeof count);
        /* (A system that is short of room for what has come does not wake us at the mark: then we look again.) */
        poll(&wanted, 1, 20);
        waited = 1;
        ended = wanted.revents & (POLLRDHUP | POLLHUP | POLLERR);
    }
    if (waited)
        setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof one);
    return seen == count;
}

/* What does not fit is lost, as it is with packets. Nothing is kept here, so a descriptor may be handed to another program. */
static ssize_t take(int fd, const struct iovec *parts, int count, int flags)
{
    unsigned char packet[2 + HEADER + DATA], *from = packet + 2;
    size_t length, left;
    int i;

    if (!look(fd, packet, 2))
        return at_end();
    length = packet[0] << 8 | packet[1];
    if (length < HEADER || length > HEADER + DATA) {
        fprintf(stderr, "a packet of %zu bytes\n", length);
        return at_end();
    }
    if (!look(fd, packet, 2 + length))
        return at_end();
    if (!(flags & MSG_PEEK))
        recv(fd, packet, 2 + length, 0);
    for (i = 0, left = length; i < count && left > 0; i++) {
        size_t here = parts[i].iov_len < left ? parts[i].iov_len : left;

        memcpy(parts[i].iov_base, from, here);
        from += here;
        left -= here;
    }
    return length - left;
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
