/*
 * The 1980s' codec: reads lines `encode TYPE VALUE` and prints the words, or `decode TYPE WORDS` and prints
 * the value. (values.h says how a value is written; words are four hexadecimal digits each.)
 */
#include "values.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 200000 };

static Unspecified words[MOST];
static char *texts[MOST];
static char line[16 * MOST];

static void print_words(const Unspecified *from, int count)
{
    const unsigned char *bytes = (const unsigned char *)from;
    int i;

    for (i = 0; i < count; i++)
        printf("%s%02x%02x", i ? " " : "", bytes[2 * i], bytes[2 * i + 1]);
    puts("");
}

static int read_words(Text *text)
{
    unsigned char *bytes = (unsigned char *)words;
    int count;

    for (count = 0; text->next != text->end; count++, text->next++) {
        unsigned word;

        if (sscanf(*text->next, "%4x", &word) != 1)
            refuse("not a word", *text->next);
        bytes[2 * count] = word >> 8;
        bytes[2 * count + 1] = word;
    }
    return count;
}

/* The C compiler of the 1980s' macros wants pointers to values that have names. */
#define TYPE(NAME, T, READER) \
    if (strcmp(name, NAME) == 0) { \
        T value; \
        memset(&value, 0, sizeof value); \
        if (encode) { \
            read_##READER(text, (READER *)&value); \
            print_words(words, externalize_##T((T *)&value, words)); \
        } else { \
            int used, count = read_words(text); \
            used = internalize_##T((T *)&value, words); \
            fputs(used == count ? "all" : used < count ? "less" : "more", stdout); \
            print_##READER(stdout, (READER *)&value); \
            puts(""); \
        } \
        return; \
    }

static void convert(int encode, const char *name, Text *text)
{
    memset(words, 0, sizeof words);
    TYPE("BOOLEAN", Boolean, Boolean)
    TYPE("CARDINAL", Cardinal, Cardinal)
    TYPE("LONG_CARDINAL", LongCardinal, LongCardinal)
    TYPE("INTEGER", Integer, Integer)
    TYPE("LONG_INTEGER", LongInteger, LongInteger)
    TYPE("UNSPECIFIED", Unspecified, Cardinal)
    TYPE("LONG_UNSPECIFIED", LongUnspecified, LongCardinal)
    TYPE("STRING", String, String)
    TYPE("Descriptor", BulkData1_Descriptor, BulkData1_Descriptor)
    TYPE("Kind", Telephones1_Kind, Telephones1_Kind)
    TYPE("Room", Telephones1_Room, Telephones1_Room)
    TYPE("Place", Telephones1_Place, Telephones1_Place)
    TYPE("Reach", Telephones1_Reach, Telephones1_Reach)
    TYPE("Entry", Telephones1_Entry, Telephones1_Entry)
    TYPE("Entries", Telephones1_Entries, Telephones1_Entries)
    TYPE("Triple", Telephones1_Triple, Telephones1_Triple)
    TYPE("Grid", Telephones1_Grid, Telephones1_Grid)
    TYPE("Names", Telephones1_Names, Telephones1_Names)
    TYPE("Numbers", Telephones1_Numbers, Telephones1_Numbers)
    TYPE("Everything", Telephones1_Everything, Telephones1_Everything)
    refuse("no such type", name);
}

int main(void)
{
    while (fgets(line, sizeof line, stdin)) {
        int count = split(line, texts, MOST);
        Text text = {texts + 2, texts + count};

        if (count < 2)
            refuse("encode or decode, and a type", NULL);
        convert(strcmp(texts[0], "encode") == 0, texts[1], &text);
        fflush(stdout);
    }
    return 0;
}
