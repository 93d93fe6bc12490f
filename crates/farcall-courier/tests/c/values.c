/* Reads and prints the values of the test's program. */
#include "values.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void refuse(const char *what, const char *text)
{
    printf("error: %s: %s\n", what, text ? text : "(nothing)");
    fflush(stdout);
    exit(2);
}

int split(char *line, char **words, int most)
{
    int count = 0;
    char *word;

    for (word = strtok(line, " \n"); word; word = strtok(NULL, " \n")) {
        if (count == most)
            refuse("too many words", word);
        words[count++] = word;
    }
    return count;
}

static char *word(Text *text)
{
    if (text->next == text->end)
        refuse("a value is missing", NULL);
    return *text->next++;
}

static long long number(Text *text, long long least, long long most)
{
    char *from = word(text), *end;
    long long value = strtoll(from, &end, 10);

    if (end == from || *end || value < least || value > most)
        refuse("not a number of this type", from);
    return value;
}

/* Memory for a sequence's elements, of which the library frees what it has itself allocated. */
static void *elements(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);

    if (!memory)
        refuse("no memory", NULL);
    return memory;
}

#define NUMBER(T, LEAST, MOST, FORMAT, WIDE) \
    void read_##T(Text *text, T *value) { *value = number(text, LEAST, MOST); } \
    void print_##T(FILE *to, T *value) { fprintf(to, " " FORMAT, (WIDE)*value); }

NUMBER(Boolean, 0, 1, "%d", int)
NUMBER(Cardinal, 0, 65535, "%u", unsigned)
NUMBER(LongCardinal, 0, 4294967295LL, "%u", unsigned)
NUMBER(Integer, -32768, 32767, "%d", int)
NUMBER(LongInteger, -2147483648LL, 2147483647, "%d", int)
NUMBER(Telephones1_Kind, 0, 65535, "%u", unsigned)

/*
 * The library ends strings with a zero, so none may be within. (It means to keep one as 128, but its
 * character constants for that are wrong: a zero that comes in becomes the digit 0.)
 */
void read_String(Text *text, String *value)
{
    char *from = word(text), *to;
    size_t length = strlen(from) / 2, i;

    if (*from++ != 'x' || strlen(from) % 2)
        refuse("not a string", from - 1);
    *value = to = elements(length, 1);
    for (i = 0; i < length; i++) {
        unsigned byte;

        if (sscanf(from + 2 * i, "%2x", &byte) != 1 || byte == 0)
            refuse("not a byte of a string", from + 2 * i);
        *to++ = byte;
    }
}

void print_String(FILE *to, String *value)
{
    unsigned char *byte;

    fputs(" x", to);
    for (byte = (unsigned char *)*value; *byte; byte++)
        fprintf(to, "%02x", *byte);
}

static void descriptor_words(Unspecified *words[10], BulkData1_Descriptor *value)
{
    int is_passive = value->designator == BulkData1_passive;
    BulkData1_Party *party = is_passive ? &value->BulkData1_passive_case : &value->BulkData1_active_case;
    int i;

    for (i = 0; i < 2; i++) {
        words[i] = &party->network[i];
        words[8 + i] = &party->identifier.number[i];
    }
    for (i = 0; i < 3; i++) {
        words[2 + i] = &party->host[i];
        words[5 + i] = &party->identifier.host[i];
    }
}

void read_BulkData1_Descriptor(Text *text, BulkData1_Descriptor *value)
{
    Unspecified *words[10];
    int i;

    value->designator = number(text, 0, 3);
    if (value->designator < BulkData1_passive)
        return;
    descriptor_words(words, value);
    for (i = 0; i < 10; i++)
        read_Cardinal(text, words[i]);
}

void print_BulkData1_Descriptor(FILE *to, BulkData1_Descriptor *value)
{
    Unspecified *words[10];
    int i;

    fprintf(to, " %u", value->designator);
    if (value->designator < BulkData1_passive)
        return;
    descriptor_words(words, value);
    for (i = 0; i < 10; i++)
        print_Cardinal(to, words[i]);
}

/*
 * What follows is the same for reading and printing: DO is `read_` or `print_`, HERE what is read from or
 * printed to.
 */
#define ROOM(DO) \
    DO(String)(HERE, &value->building); \
    DO(Cardinal)(HERE, &value->door);

#define PLACE(DO) \
    DO(Telephones1_Kind)(HERE, &value->designator); \
    switch ((unsigned)value->designator) { \
    case Telephones1_desk: DO(Telephones1_Room)(HERE, &value->Telephones1_desk_case); break; \
    case Telephones1_mobile: DO(LongCardinal)(HERE, &value->Telephones1_mobile_case); break; \
    }

#define REACH(DO) \
    DO(Telephones1_Kind)(HERE, (Telephones1_Kind *)&value->designator); \
    switch (value->designator) { \
    case Telephones1_never: break; \
    case Telephones1_always: DO(Boolean)(HERE, &value->Telephones1_always_case); break; \
    case Telephones1_between: \
        DO(Cardinal)(HERE, &value->Telephones1_between_case.from); \
        DO(Cardinal)(HERE, &value->Telephones1_between_case.to); \
        break; \
    }

#define ENTRY(DO) \
    DO(String)(HERE, &value->name); \
    DO(LongCardinal)(HERE, &value->extension); \
    DO(Boolean)(HERE, &value->listed); \
    DO(Telephones1_Place)(HERE, &value->place);

#define TRIPLE(DO) \
    int i; \
    for (i = 0; i < 3; i++) \
        DO(Integer)(HERE, &(*value)[i]);

#define GRID(DO) \
    int i; \
    for (i = 0; i < 2; i++) \
        DO(Telephones1_Triple)(HERE, &(*value)[i]);

#define EVERYTHING(DO) \
    DO(Boolean)(HERE, &value->yes); \
    DO(Cardinal)(HERE, &value->small); \
    DO(LongCardinal)(HERE, &value->big); \
    DO(Integer)(HERE, &value->negative); \
    DO(LongInteger)(HERE, &value->longNegative); \
    DO(Cardinal)(HERE, &value->word); \
    DO(Cardinal)(HERE, &value->otherWord); \
    DO(LongCardinal)(HERE, &value->words); \
    DO(String)(HERE, &value->text); \
    DO(Telephones1_Kind)(HERE, &value->kind); \
    DO(Telephones1_Grid)(HERE, &value->grid); \
    DO(Telephones1_Names)(HERE, &value->names); \
    DO(Telephones1_Numbers)(HERE, &value->numbers); \
    DO(Telephones1_Entries)(HERE, &value->entries); \
    DO(Telephones1_Reach)(HERE, &value->reach);

#define READ(T) read_##T
#define PRINT(T) print_##T
#define BOTH(T, BODY) \
    void read_##T(Text *HERE, T *value) { BODY(READ) } \
    void print_##T(FILE *HERE, T *value) { BODY(PRINT) }

BOTH(Telephones1_Room, ROOM)
BOTH(Telephones1_Place, PLACE)
BOTH(Telephones1_Reach, REACH)
BOTH(Telephones1_Entry, ENTRY)
BOTH(Telephones1_Triple, TRIPLE)
BOTH(Telephones1_Grid, GRID)
BOTH(Telephones1_Everything, EVERYTHING)

#define SEQUENCE(T, ELEMENT, MOST) \
    void read_##T(Text *text, T *value) \
    { \
        int i; \
        value->length = number(text, 0, MOST); \
        value->sequence = elements(value->length, sizeof *value->sequence); \
        for (i = 0; i < value->length; i++) \
            read_##ELEMENT(text, &value->sequence[i]); \
    } \
    void print_##T(FILE *to, T *value) \
    { \
        int i; \
        fprintf(to, " %u", value->length); \
        for (i = 0; i < value->length; i++) \
            print_##ELEMENT(to, &value->sequence[i]); \
    }

SEQUENCE(Telephones1_Entries, Telephones1_Entry, 100)
SEQUENCE(Telephones1_Names, String, 5)
SEQUENCE(Telephones1_Numbers, Cardinal, 65535)
