/* Serves calc.x. Prints its ports, and ends when its standard input ends.
 *
 * calc_serve [register]: with "register" it also registers with the host's port mapper. */
#include "calc.h"
#include "transport.h"

extern void calc_prog_3(struct svc_req *, SVCXPRT *);

int *add_3_svc(int a, int b, struct svc_req *request) {
    static int sum;
    sum = a + b;
    return &sum;
}

static void turn_bytes(char *bytes, u_int length) {
    for (u_int i = 0; i < length / 2; i++) {
        char kept = bytes[i];
        bytes[i] = bytes[length - 1 - i];
        bytes[length - 1 - i] = kept;
    }
}

static void turn_ints(int *ints, u_int length) {
    for (u_int i = 0; i < length / 2; i++) {
        int kept = ints[i];
        ints[i] = ints[length - 1 - i];
        ints[length - 1 - i] = kept;
    }
}

sample *turn_3_svc(sample given, struct svc_req *request) {
    static sample turned;
    turned = given;
    turned.flag = !given.flag;
    turned.count++;
    turned.total--;
    turned.single *= 2;
    turned.twice *= 2;
    turn_bytes(turned.digest, DIGEST);
    turn_bytes(turned.data.data_val, turned.data.data_len);
    turn_ints(turned.numbers.numbers_val, turned.numbers.numbers_len);
    turn_ints(turned.fixed, 3);
    shape *shapes = turned.shapes.shapes_val;
    u_int length = turned.shapes.shapes_len;
    for (u_int i = 0; i < length; i++)
        if (shapes[i].kind == GREEN)
            turn_ints(&shapes[i].shape_u.at.x, 2);
    for (u_int i = 0; i < length / 2; i++) {
        shape kept = shapes[i];
        shapes[i] = shapes[length - 1 - i];
        shapes[length - 1 - i] = kept;
    }
    return &turned;
}

listing *count_down_3_svc(u_int from, struct svc_req *request) {
    static listing list;
    static entry entries[1000];
    static char names[1000][16];
    list.first = NULL;
    for (u_int i = 1; i <= from && i <= 1000; i++) {
        snprintf(names[i - 1], sizeof names[0], "%u", i);
        entries[i - 1] = (entry){names[i - 1], (quad_t)i << 32, list.first};
        list.first = &entries[i - 1];
    }
    return &list;
}

quad_t *total_3_svc(listing list, struct svc_req *request) {
    static quad_t total;
    total = 0;
    for (entry *each = list.first; each != NULL; each = each->next)
        total += each->size;
    return &total;
}

char **join_3_svc(char *first, char *again, int times, struct svc_req *request) {
    static char buffer[4096], *joined = buffer;
    strcpy(buffer, first);
    for (int i = 0; i < times && strlen(buffer) + strlen(again) < sizeof buffer; i++)
        strcat(buffer, again);
    return &joined;
}

void *nothing_3_svc(struct svc_req *request) {
    static char nothing;
    return &nothing;
}

int main(int count, char **arguments) {
    struct version versions[] = {{CALC_PROG, CALC_VERS, calc_prog_3}, {0}};
    return serve(versions, count > 1 && strcmp(arguments[1], "register") == 0);
}
