/* Calls every procedure of calc.x, and prints "all is well" or the check that failed.
 *
 * calc_check udp|tcp|udp6|tcp6 HOST PORT: with port 0 it asks the host's port mapper. */
#include "calc.h"
#include "transport.h"

#define CHECK(condition)                                                  \
    if (!(condition)) {                                                   \
        printf("line %d: %s%s\n", __LINE__, #condition, clnt_sperror(client, "")); \
        exit(1);                                                          \
    }

static CLIENT *client;

static void check_turn(void) {
    static char bytes[] = "seven b", label[] = "a label";
    static int numbers[] = {1, -2, 2147483647};
    shape shapes[3] = {{.kind = RED}, {.kind = GREEN, .shape_u.at = {-7, 8}}, {.kind = BLUE, .shape_u.label = label}};
    sample given = {.flag = 1, .count = 4000000000u, .total = 1234567890123456789ull, .single = 1.5f, .twice = -0.25};
    memcpy(given.digest, "0123456789abcdef", DIGEST);
    given.data.data_val = bytes;
    given.data.data_len = 7;
    given.numbers.numbers_val = numbers;
    given.numbers.numbers_len = 3;
    memcpy(given.fixed, (int[]){10, 20, 30}, sizeof given.fixed);
    given.shapes.shapes_val = shapes;
    given.shapes.shapes_len = 3;
    sample *turned = turn_3(given, client);
    CHECK(turned != NULL);
    CHECK(!turned->flag && turned->count == 4000000001u && turned->total == 1234567890123456788ull);
    CHECK(turned->single == 3.0f && turned->twice == -0.5);
    CHECK(memcmp(turned->digest, "fedcba9876543210", DIGEST) == 0);
    CHECK(turned->data.data_len == 7 && memcmp(turned->data.data_val, "b neves", 7) == 0);
    CHECK(turned->numbers.numbers_len == 3 && turned->numbers.numbers_val[0] == 2147483647);
    CHECK(turned->numbers.numbers_val[1] == -2 && turned->numbers.numbers_val[2] == 1);
    CHECK(turned->fixed[0] == 30 && turned->fixed[1] == 20 && turned->fixed[2] == 10);
    CHECK(turned->shapes.shapes_len == 3);
    shape *back = turned->shapes.shapes_val;
    CHECK(back[0].kind == BLUE && strcmp(back[0].shape_u.label, "a label") == 0);
    CHECK(back[1].kind == GREEN && back[1].shape_u.at.x == 8 && back[1].shape_u.at.y == -7);
    CHECK(back[2].kind == RED);
}

static void check_lists(void) {
    listing *list = count_down_3(100, client);
    CHECK(list != NULL);
    unsigned expected = 100;
    char name[16];
    for (entry *each = list->first; each != NULL; each = each->next, expected--) {
        snprintf(name, sizeof name, "%u", expected);
        CHECK(strcmp(each->name, name) == 0 && each->size == (quad_t)expected << 32);
    }
    CHECK(expected == 0);
    quad_t *total = total_3(*list, client);
    CHECK(total != NULL && *total == (quad_t)5050 << 32);
    total = total_3((listing){NULL}, client);
    CHECK(total != NULL && *total == 0);
}

int main(int count, char **arguments) {
    if (count != 4)
        return 2;
    client = connect_to(arguments[1], arguments[2], arguments[3], CALC_PROG, CALC_VERS);
    if (client == NULL) {
        printf("no client: %s\n", clnt_spcreateerror(""));
        return 1;
    }
    CHECK(nothing_3(client) != NULL);
    int *sum = add_3(-5, 47, client);
    CHECK(sum != NULL && *sum == 42);
    check_turn();
    check_lists();
    char **joined = join_3("", "xyz", 3, client);
    CHECK(joined != NULL && strcmp(*joined, "xyzxyzxyz") == 0);
    joined = join_3(", ", "a", 1, client);
    CHECK(joined != NULL && strcmp(*joined, ", a") == 0);
    struct timeval patience = {10, 0};
    CHECK(clnt_call(client, NULLPROC, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, patience) == RPC_SUCCESS);
    CHECK(clnt_call(client, 77, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, patience) == RPC_PROCUNAVAIL);
    /* Over UDP libtirpc's own servers decode what an earlier datagram left in the buffer. */
    if (strncmp(arguments[1], "tcp", 3) == 0)
        CHECK(clnt_call(client, ADD, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, patience) == RPC_CANTDECODEARGS);
    client->cl_auth = authunix_create_default();
    sum = add_3(1, 1, client);
    CHECK(sum != NULL && *sum == 2);
    puts("all is well");
    return 0;
}
