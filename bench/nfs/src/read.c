/* READs of one file by libnfs: one after the other, or several under way. */
#include <sys/time.h>

#include <nfsc/libnfs.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { PATIENCE_MS = 25000 };

struct client {
    struct nfs_context *nfs;
    struct nfsfh *file;
    uint64_t length;   /* of the file */
    uint64_t offset;   /* of the next READ */
    unsigned bytes;    /* of each */
    unsigned left;     /* READs of a window that were not begun */
    unsigned under_way;
    int failed;
    char *buffer;
};

/* Opens the file at a URL. READs go round in its first `length` bytes. Null if it cannot, or if the server takes no READ of so
 * many bytes. Nothing is freed: the process ends with it. */
struct client *bench_open(const char *where, unsigned bytes, unsigned length) {
    struct client *client = calloc(1, sizeof *client);
    if (client == NULL || (client->buffer = malloc(bytes)) == NULL || (client->nfs = nfs_init_context()) == NULL)
        return NULL;
    struct nfs_url *url = nfs_parse_url_full(client->nfs, where);
    if (url == NULL || nfs_mount(client->nfs, url->server, url->path) != 0)
        return NULL;
    if (nfs_open(client->nfs, url->file, 0, &client->file) != 0 || nfs_get_readmax(client->nfs) < bytes)
        return NULL;
    nfs_destroy_url(url);
    client->bytes = bytes;
    client->length = length;
    return client;
}

static uint64_t next(struct client *client) {
    uint64_t offset = client->offset;
    client->offset = (offset + client->bytes) % client->length;
    return offset;
}

/* Reads the next bytes, and waits for them. Where they are, or null. */
const char *bench_read(struct client *client) {
#ifdef LIBNFS_API_V2
    int count = nfs_pread(client->nfs, client->file, client->buffer, client->bytes, next(client));
#else
    int count = nfs_pread(client->nfs, client->file, next(client), client->bytes, client->buffer);
#endif
    return count == (int)client->bytes ? client->buffer : NULL;
}

static void begin(struct client *client);

/* One has ended. The bytes are taken to where a user wants them, as the other function does. */
static void ended(int status, struct nfs_context *nfs, void *data, void *private) {
    struct client *client = private;
    (void)nfs;
    client->under_way--;
    if (status != (int)client->bytes) {
        client->failed = 1;
        return;
    }
#ifdef LIBNFS_API_V2
    (void)data;
#else
    memcpy(client->buffer, data, client->bytes);
#endif
    begin(client);
}

static void begin(struct client *client) {
    if (client->left == 0 || client->failed)
        return;
    client->left--;
    client->under_way++;
#ifdef LIBNFS_API_V2
    int refused = nfs_pread_async(client->nfs, client->file, client->buffer, client->bytes, next(client), ended, client);
#else
    int refused = nfs_pread_async(client->nfs, client->file, next(client), client->bytes, ended, client);
#endif
    if (refused) {
        client->under_way--;
        client->failed = 1;
    }
}

/* Makes `reads` READs, `outstanding` of them at any time. Returns 0, or else how it failed. */
int bench_window(struct client *client, unsigned outstanding, unsigned reads) {
    client->left = reads;
    client->failed = 0;
    while (outstanding-- > 0)
        begin(client);
    while (client->under_way > 0) {
        struct pollfd socket = {.fd = nfs_get_fd(client->nfs), .events = nfs_which_events(client->nfs)};
        if (poll(&socket, 1, PATIENCE_MS) <= 0 || nfs_service(client->nfs, socket.revents) < 0)
            return 1;
    }
    return client->failed;
}
