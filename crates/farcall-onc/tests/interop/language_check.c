/* Sends values of every type of language.x and compares the results. Prints "all is well" or the check that failed.
 *
 * language_check udp|tcp|udp6|tcp6 HOST PORT */
#include "language.h"
#include "transport.h"

#ifndef ONLY_IN_C
#error "lines that begin with % are for us"
#endif

static CLIENT *client;

#define CHECK(condition)                                                            \
    if (!(condition)) {                                                             \
        printf("line %d: %s%s\n", __LINE__, #condition, clnt_sperror(client, "")); \
        exit(1);                                                                    \
    }

static u_int encoded(xdrproc_t type, void *value, char *buffer, u_int room) {
    XDR xdr;
    xdrmem_create(&xdr, buffer, room, XDR_ENCODE);
    CHECK(type(&xdr, value));
    return xdr_getpos(&xdr);
}

static void same(int line, xdrproc_t type, void *sent, void *received) {
    static char before[1 << 20], after[1 << 20];
    if (received == NULL) {
        printf("line %d: no reply%s\n", line, clnt_sperror(client, ""));
        exit(1);
    }
    u_int length = encoded(type, sent, before, sizeof before);
    if (encoded(type, received, after, sizeof after) == length && memcmp(before, after, length) == 0)
        return;
    printf("line %d: it came back as something else\n", line);
    exit(1);
}

#define ECHO(type, value) same(__LINE__, (xdrproc_t)xdr_##type, &(value), type##_1(value, client))

static void check_numbers(void) {
    numbers least = {-2147483647 - 1, 0, 0, -9223372036854775807LL - 1, 0, -1.5f, -1e300, 0, -128, 0, -32768, 0, -2147483647L - 1, 0, BELOW_ZERO};
    numbers most = {2147483647, 4294967295u, 4294967295u, 9223372036854775807LL, 18446744073709551615ULL, 1.0f / 0, 5e-324, 1, 127, 255, 32767, 65535, 2147483647L, 4294967295UL, BLUE};
    ECHO(numbers, least);
    ECHO(numbers, most);
    colour paints[] = {RED, GREEN, BLUE, BELOW_ZERO};
    for (int i = 0; i < 4; i++)
        ECHO(colour, paints[i]);
    palette some = {4, paints}, none = {0, NULL};
    ECHO(palette, some);
    ECHO(palette, none);
    bool_t *negated = negate_1(TRUE, client);
    CHECK(negated != NULL && *negated == FALSE);
    double *half = halve_1(-3.0, client);
    CHECK(half != NULL && *half == -1.5);
}

static void check_arrays(void) {
    static char *words[] = {"", "four", "a name of thirty-two characters."};
    static digest digests[2] = {"0123456789abcdef", "fedcba9876543210"};
    triple triples[2] = {{1, 2, 3}, {-1, -2, -3}};
    point points[] = {{1, 2}, {3, 4}, {-5, -6}};
    quad_t many[] = {1, -1, 1LL << 40};
    arrays full = {.odd = {1, 2, 3, 4, 5, 6, 7}, .bounded = {9, "\0\1\2\3\4\5\6\7\10"}, .unbounded = {3, "\377\0\376"}, .label = "label", .text = "some text", .counts = {0, 1, 2, 3, 4, 5, 6, -7}, .many = {3, many}, .triples = {2, triples}, .words = {3, words}, .corners = {{1, 1}, {2, 2}}, .points = {3, points}};
    memcpy(full.digests, digests, sizeof digests);
    arrays empty = {.label = "", .text = ""};
    ECHO(arrays, full);
    ECHO(arrays, empty);
}

static void check_unions(void) {
    outcome outcomes[] = {{.status = 0, .outcome_u.found = {7, -7}}, {.status = 1, .outcome_u.why = "one"}, {.status = 2, .outcome_u.why = "two"}, {.status = BELOW, .outcome_u.key = {1, 2, 3}}, {.status = 99}, {.status = -2147483647 - 1}};
    picture picture_of = {.kind = RED};
    ECHO(picture, picture_of);
    picture_of = (picture){.kind = BELOW_ZERO, .picture_u.other = -1};
    ECHO(picture, picture_of);
    for (int i = 0; i < 6; i++) {
        ECHO(outcome, outcomes[i]);
        picture_of = (picture){.kind = GREEN, .picture_u.inner = outcomes[i]};
        ECHO(picture, picture_of);
    }
    maybe number = {.is_there = TRUE, .maybe_u.value = 2.5}, nothing = {.is_there = FALSE};
    ECHO(maybe, number);
    ECHO(maybe, nothing);
    sized one = {.length = 1, .sized_u.one = -1}, rest = {.length = 4000000000u, .sized_u.rest = {3, "abc"}};
    ECHO(sized, one);
    ECHO(sized, rest);
}

static void check_pointers(void) {
    static entry all[100];
    for (int i = 0; i < 100; i++)
        all[i] = (entry){"a key", {.kind = BLUE, .picture_u.other = i}, i < 99 ? &all[i + 1] : NULL};
    entries list = all, none = NULL;
    ECHO(entries, list);
    ECHO(entries, none);
    tree leaf = {1, NULL, NULL}, left = {2, &leaf, NULL}, root = {3, &left, &leaf};
    ECHO(tree, root);
    char *labels[] = {"up", "down"};
    node lowest = {{0, NULL}, {0, NULL}, {NULL, NULL}};
    branch below[] = {&lowest, NULL, &lowest};
    node highest = {{2, labels}, {3, below}, {NULL, &lowest}};
    ECHO(node, highest);
    point at = {1, 2};
    name who = "somebody";
    optional full = {&at, &who, &all[98], {.is_there = TRUE, .maybe_u.value = 1}, TRUE}, empty = {NULL};
    ECHO(optional, full);
    ECHO(optional, empty);
}

/* More than a fragment of libtirpc's has room for, over TCP; a datagram's worth over UDP. */
static void check_large(int is_tcp) {
    static char bytes[300001];
    for (int i = 0; i < sizeof bytes; i++)
        bytes[i] = i % 251;
    blob large = {is_tcp ? sizeof bytes : 6000, bytes}, small = {1, bytes};
    ECHO(blob, large);
    ECHO(blob, small);
    quad_t *sum = several_1(TRUE, BELOW_ZERO, -1LL << 40, "text", large, 4294967295u, client);
    CHECK(sum != NULL && *sum == 1 - 7 - (1LL << 40) + 4 + large.blob_len + 4294967295LL);
    char **text = text_1("\303\274ber \377", client);
    CHECK(text != NULL && strcmp(*text, "\303\274ber \377") == 0);
}

int main(int count, char **arguments) {
    if (count != 4)
        return 2;
    client = connect_to(arguments[1], arguments[2], arguments[3], LANGUAGE, LANGUAGE_FIRST);
    if (client == NULL) {
        printf("no client%s\n", clnt_spcreateerror(""));
        return 1;
    }
    CHECK(nothing_1(client) != NULL);
    check_numbers();
    check_arrays();
    check_unions();
    check_pointers();
    check_large(strncmp(arguments[1], "tcp", 3) == 0);
    u_int second = LANGUAGE_SECOND;
    CHECK(clnt_control(client, CLSET_VERS, &second));
    u_int *version = version_2(client);
    CHECK(version != NULL && *version == 2);
    char *words[] = {"first", "second"};
    char **found = second_2((names){2, words}, client);
    CHECK(found != NULL && strcmp(*found, "second") == 0);
    CLIENT *others = connect_to(arguments[1], arguments[2], arguments[3], OTHER, OTHER_FIRST);
    u_quad_t *square = others == NULL ? NULL : square_1(4294967295u, others);
    CHECK(square != NULL && *square == 4294967295ULL * 4294967295ULL);
    puts("all is well");
    return 0;
}
