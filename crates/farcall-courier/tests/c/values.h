/*
 * Values as words of text, one for each number, in the order in which Courier writes them: a BOOLEAN is 0 or
 * 1, a STRING is `x` and its bytes in hexadecimal, a SEQUENCE its count and elements, a CHOICE its designator
 * and value.
 */
#ifndef VALUES_H
#define VALUES_H

#include <stdio.h>
#include "Telephones1.h"

/* What is left of the text. */
typedef struct {
    char **next, **end;
} Text;

/*
 * `T` is a type's name in the generated code; each has a reader and a printer. A value that cannot be read
 * ends the program.
 */
#define VALUE(T) void read_##T(Text *text, T *value); void print_##T(FILE *to, T *value)

VALUE(Boolean);
VALUE(Cardinal);
VALUE(LongCardinal);
VALUE(Integer);
VALUE(LongInteger);
VALUE(String);
VALUE(BulkData1_Descriptor);
VALUE(Telephones1_Kind);
VALUE(Telephones1_Room);
VALUE(Telephones1_Place);
VALUE(Telephones1_Reach);
VALUE(Telephones1_Entry);
VALUE(Telephones1_Entries);
VALUE(Telephones1_Triple);
VALUE(Telephones1_Grid);
VALUE(Telephones1_Names);
VALUE(Telephones1_Numbers);
VALUE(Telephones1_Everything);

/* Ends the program with a line that begins with `error:`. */
void refuse(const char *what, const char *text) __attribute__((noreturn));

/* Splits a line at its spaces, in place. Returns the count. */
int split(char *line, char **words, int most);

#endif
