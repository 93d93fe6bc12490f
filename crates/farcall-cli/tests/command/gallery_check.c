/* Calls the Gallery of generated_c.rs by what rpcgen made of it: gallery_check udp|tcp|udp6|tcp6 HOST PORT says "all is well". */
#include "gallery.h"
#include "transport.h"

static CLIENT *client;

#define CHECK(condition)                                                            \
    if (!(condition)) {                                                             \
        printf("line %d: %s%s\n", __LINE__, #condition, clnt_sperror(client, "")); \
        exit(1);                                                                    \
    }

int main(int count, char **arguments) {
    if (count != 4)
        return 2;
    client = connect_to(arguments[1], arguments[2], arguments[3], GALLERY_PROG, GALLERY_VERS_4);
    CHECK(client != NULL);
    CHECK(gallery_null_4(client) != NULL);
    Point points[] = {{1, 2}, {-3, 4}, {5, 6}};
    Colour green = Colour_Green;
    Shape shapes[] = {{.tag = 0},
                      {.tag = 1, .Shape_u.circle = 2.5},
                      {.tag = 2, .Shape_u.polygon = {{3, points}, &green}},
                      {.tag = 2, .Shape_u.polygon = {{1, points}, NULL}},
                      {.tag = 3, .Shape_u.named = "nine char"}};
    Drawing corner = {.title = "a corner", .digest = "fives"};
    Drawing drawing = {.title = "a drawing", .shapes = {5, shapes}, .digest = "12345", .corner = &corner, .grid = {{1, -2}, {3, -4}, {32767, -32768}}, .taken = TRUE};
    u_int *number = gallery_points_4(drawing, client);
    CHECK(number != NULL && *number == 4);
    Drawing *back = gallery_mirror_4(drawing, client);
    CHECK(back != NULL && strcmp(back->title, "a drawing") == 0 && back->taken);
    CHECK(memcmp(back->digest, "12345", 5) == 0 && memcmp(back->grid, drawing.grid, sizeof drawing.grid) == 0);
    CHECK(back->corner != NULL && strcmp(back->corner->title, "a corner") == 0 && back->corner->corner == NULL);
    Shape *first = back->shapes.shapes_val;
    CHECK(back->shapes.shapes_len == 5 && first[0].tag == 0 && first[1].Shape_u.circle == 2.5);
    Shape_Polygon *polygon = &first[2].Shape_u.polygon;
    CHECK(polygon->field0.field0_len == 3 && polygon->field0.field0_val[1].x == -3 && *polygon->field1 == Colour_Green);
    CHECK(first[3].Shape_u.polygon.field1 == NULL && strcmp(first[4].Shape_u.named, "nine char") == 0);
    double *sum = gallery_add_4(1LL << 40, 200, 0.5f, client);
    CHECK(sum != NULL && *sum == (1LL << 40) + 200.5);
    Gallery_reverse_result *reversed = gallery_reverse_4((Gallery_reverse_octets){5, "abcde"}, client);
    CHECK(reversed != NULL && reversed->Gallery_reverse_result_len == 5 && memcmp(reversed->Gallery_reverse_result_val, "edcba", 5) == 0);
    Gallery_find_titles_of titles[] = {"one", "two"};
    Gallery_find_result *found = gallery_find_4((Gallery_find_titles){2, titles}, "two", client);
    CHECK(found != NULL && *found != NULL && **found == 1);
    found = gallery_find_4((Gallery_find_titles){2, titles}, "three", client);
    CHECK(found != NULL && *found == NULL);
    /* A name that is too long for the interface: the server says so, or we do not send it. */
    shapes[4].Shape_u.named = "ten chars!";
    CHECK(gallery_points_4(drawing, client) == NULL);
    puts("all is well");
    return 0;
}
