/* One operation after the other on the files of a server, by libnfs. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include <nfsc/libnfs.h>

enum { FILES = 16, MOST = 65536 };
enum { STAT, FSTAT, READLINK, READDIR, STATVFS, READ, WRITE, ACCESS };

struct day {
    struct nfs_context *nfs;
    struct nfsfh *files[FILES];
    char buffer[MOST];
};

/* Mounts the directory of a URL, whose files 0 to 15 are opened. Null if it cannot. Nothing is freed: the
 * process ends with it. */
struct day *day_mount(const char *where) {
    struct day *day = calloc(1, sizeof *day);
    if (day == NULL || (day->nfs = nfs_init_context()) == NULL)
        return NULL;
    struct nfs_url *url = nfs_parse_url_dir(day->nfs, where);
    if (url == NULL || nfs_mount(day->nfs, url->server, url->path) != 0)
        return NULL;
    nfs_destroy_url(url);
    for (int n = 0; n < FILES; n++) {
        char name[] = { '/', 'f', 'i', 'l', 'e', '-', 'a' + n, 0 };
        if (nfs_open(day->nfs, name, 2, &day->files[n]) != 0)
            return NULL;
    }
    return day;
}

/* Does an operation: on a path, or on one of the opened files. 0 if it succeeded. */
int day_do(struct day *day, int operation, const char *path, unsigned file, unsigned bytes) {
    struct nfs_stat_64 attributes;
    struct statvfs system;
    struct nfsdir *directory;
    if (file >= FILES || bytes > MOST)
        return -1;
    switch (operation) {
    case STAT:
        return nfs_stat64(day->nfs, path, &attributes);
    case FSTAT:
        return nfs_fstat64(day->nfs, day->files[file], &attributes);
    case READLINK:
        return nfs_readlink(day->nfs, path, day->buffer, MOST);
    case READDIR:
        if (nfs_opendir(day->nfs, path, &directory) != 0)
            return -1;
        nfs_closedir(day->nfs, directory);
        return 0;
    case STATVFS:
        return nfs_statvfs(day->nfs, "/", &system);
#ifdef LIBNFS_API_V2
    case READ:
        return nfs_pread(day->nfs, day->files[file], day->buffer, bytes, 0) < 0 ? -1 : 0;
    case WRITE:
        return nfs_pwrite(day->nfs, day->files[file], day->buffer, bytes, 0) < 0 ? -1 : 0;
#else
    case READ:
        return nfs_pread(day->nfs, day->files[file], 0, bytes, day->buffer) < 0 ? -1 : 0;
    case WRITE:
        return nfs_pwrite(day->nfs, day->files[file], 0, bytes, day->buffer) < 0 ? -1 : 0;
#endif
    case ACCESS:
        return nfs_access(day->nfs, path, 4);
    }
    return -1;
}
