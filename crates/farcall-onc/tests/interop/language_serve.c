/* Serves language.x: most procedures return their arguments. Prints its ports, and ends when its standard input ends. */
#include "language.h"
#include "transport.h"

extern void language_1(struct svc_req *, SVCXPRT *);
extern void language_2(struct svc_req *, SVCXPRT *);
extern void other_1(struct svc_req *, SVCXPRT *);

/* The result may share memory with the arguments: they are freed only after the reply was encoded. */
#define ECHO(type, name)                                  \
    type *name##_1_svc(type given, struct svc_req *request) { \
        static type kept;                                 \
        kept = given;                                     \
        return &kept;                                     \
    }

ECHO(numbers, numbers)
ECHO(arrays, arrays)
ECHO(outcome, outcome)
ECHO(picture, picture)
ECHO(maybe, maybe)
ECHO(sized, sized)
ECHO(entries, entries)
ECHO(tree, tree)
ECHO(node, node)
ECHO(optional, optional)
ECHO(blob, blob)
ECHO(palette, palette)
ECHO(colour, colour)

char **text_1_svc(char *given, struct svc_req *request) {
    static char *kept;
    kept = given;
    return &kept;
}

bool_t *negate_1_svc(bool_t flag, struct svc_req *request) {
    static bool_t negated;
    negated = !flag;
    return &negated;
}

double *halve_1_svc(double number, struct svc_req *request) {
    static double half;
    half = number / 2;
    return &half;
}

quad_t *several_1_svc(bool_t flag, colour paint, quad_t large, char *text, blob bytes, u_int number, struct svc_req *request) {
    static quad_t sum;
    sum = flag + paint + large + strlen(text) + bytes.blob_len + number;
    return &sum;
}

void *nothing_1_svc(struct svc_req *request) {
    static char nothing;
    return &nothing;
}

u_int *version_2_svc(struct svc_req *request) {
    static u_int version;
    version = request->rq_vers;
    return &version;
}

char **second_2_svc(names all, struct svc_req *request) {
    static char *second;
    second = all.names_len > 1 ? all.names_val[1] : "";
    return &second;
}

u_quad_t *square_1_svc(u_int number, struct svc_req *request) {
    static u_quad_t square;
    square = (u_quad_t)number * number;
    return &square;
}

int main(void) {
    struct version versions[] = {
        {LANGUAGE, LANGUAGE_FIRST, language_1}, {LANGUAGE, LANGUAGE_SECOND, language_2}, {OTHER, OTHER_FIRST, other_1}, {0}};
    return serve(versions, 0);
}
