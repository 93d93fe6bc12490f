/* Packs values by the code that rp2gen generates: each line of standard input is a procedure, `request` or
   `response`, and the values; the packed bytes are written as a line in hexadecimal digits. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "covering.h"

#define MAX_LIST 64

static char *rest;

static char *word(void) {
    char *found = strtok_r(NULL, " \n", &rest);
    if (found == NULL) {
        fprintf(stderr, "a value is missing\n");
        exit(1);
    }
    return found;
}

static long long number(void) { return strtoll(word(), NULL, 10); }

static double heavy(void) {
    unsigned long long bits = strtoull(word(), NULL, 16);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Reads `x` and the digits of bytes. */
static unsigned char *bytes(unsigned *length) {
    char *digits = word() + 1;
    *length = strlen(digits) / 2;
    unsigned char *read = calloc(1, *length + 1);
    for (unsigned at = 0; at < *length; at++)
        sscanf(digits + 2 * at, "%2hhx", &read[at]);
    return read;
}

static void fixed(void *to) {
    unsigned length;
    unsigned char *from = bytes(&length);
    memcpy(to, from, length);
}

static RPC2_String text(void) {
    unsigned length;
    return bytes(&length);
}

static RPC2_CountedBS counted(void) {
    RPC2_CountedBS value;
    value.SeqBody = bytes(&value.SeqLen);
    return value;
}

static RPC2_BoundedBS bounded(void) {
    RPC2_BoundedBS value;
    value.MaxSeqLen = number();
    value.SeqBody = bytes(&value.SeqLen);
    return value;
}

static Range range(void) {
    Range value;
    value.Low = number();
    value.High = number();
    fixed(value.Name);
    return value;
}

static unsigned ranges(Range *list) {
    unsigned count = number();
    for (unsigned at = 0; at < count && at < MAX_LIST; at++)
        list[at] = range();
    return count;
}

static Everything everything(void) {
    Everything value;
    value.Signed = number();
    value.Unsigned = number();
    value.Small = number();
    value.Heavy = heavy();
    value.Text = text();
    value.Counted = counted();
    value.Bounded = bounded();
    fixed(value.Secret);
    value.Paint = number();
    fixed(value.Sum);
    fixed(value.Five);
    value.Inner = range();
    return value;
}

static CallCountEntry calls(void) {
    CallCountEntry value;
    value.name = text();
    value.countent = number();
    value.countexit = number();
    value.tsec = number();
    value.tusec = number();
    value.counttime = number();
    return value;
}

/* The values of one line. What a procedure does not have stays as it was. */
static RPC2_Integer Signed;
static RPC2_Unsigned Unsigned, TakenMax, ChangedMax, Taken_, Changed_;
static RPC2_Byte Small;
static double Heavy;
static RPC2_BoundedBS Bounded;
static RPC2_EncryptionKey Secret;
static Colour Paint;
static Digest Sum;
static Odd Five;
static Range Whole, Given[MAX_LIST], Taken[MAX_LIST], Changed[MAX_LIST];

static void numbers(void) {
    Signed = number();
    Unsigned = number();
    Small = number();
    Heavy = heavy();
}

static int pack(BUFFER *to, const char *procedure, int request) {
    if (strcmp(procedure, "AllIn") == 0) {
        numbers();
        RPC2_String Text = text();
        RPC2_CountedBS Counted = counted();
        Bounded = bounded();
        fixed(Secret);
        Paint = number();
        fixed(Sum);
        fixed(Five);
        Everything all = everything();
        return pack_AllIn_request(to, Signed, Unsigned, Small, Heavy, Text, &Counted, &Bounded, Secret, Paint,
                                  Sum, Five, &all);
    }
    if (strcmp(procedure, "AllOut") == 0) {
        if (request) {
            Bounded = bounded();
            return pack_AllOut_request(to, &Bounded);
        }
        numbers();
        Bounded = bounded();
        fixed(Secret);
        Paint = number();
        fixed(Sum);
        fixed(Five);
        Whole = range();
        return pack_AllOut_response(to, Signed, Unsigned, Small, Heavy, &Bounded, Secret, Paint, Sum, Five,
                                    &Whole);
    }
    if (strcmp(procedure, "AllBoth") == 0) {
        numbers();
        Bounded = bounded();
        fixed(Secret);
        Paint = number();
        Whole = range();
        if (request)
            return pack_AllBoth_request(to, &Signed, &Unsigned, &Small, &Heavy, &Bounded, &Secret, &Paint,
                                        &Whole);
        return pack_AllBoth_response(to, Signed, Unsigned, Small, Heavy, &Bounded, Secret, Paint, &Whole);
    }
    if (strcmp(procedure, "Arrays") == 0) {
        if (request) {
            RPC2_Unsigned given = ranges(Given);
            TakenMax = number();
            ChangedMax = number();
            Changed_ = ranges(Changed);
            Key last = number();
            return pack_Arrays_request(to, given, Given, TakenMax, ChangedMax, &Changed_, Changed, last);
        }
        Taken_ = ranges(Taken);
        Changed_ = ranges(Changed);
        return pack_Arrays_response(to, MAX_LIST, Taken_, Taken, MAX_LIST, Changed_, Changed);
    }
    if (strcmp(procedure, "Names") == 0) {
        if (request) {
            RPC2_String first = text(), second = text();
            return pack_Names_request(to, first, second);
        }
        return pack_Names_response(to, number());
    }
    if (strcmp(procedure, "Count") == 0) {
        CallCountEntry entry = calls();
        return request ? pack_Count_request(to, &entry) : pack_Count_response(to, &entry);
    }
    fprintf(stderr, "no procedure %s\n", procedure);
    exit(1);
}

int main(void) {
    static char line[1 << 16], packed[1 << 16];
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *procedure = strtok_r(line, " \n", &rest);
        int request = strcmp(word(), "request") == 0;
        memset(packed, 0, sizeof packed);
        BUFFER to = {packed, packed + sizeof packed, request ? RP2_CLIENT : RP2_SERVER};
        if (pack(&to, procedure, request) != 0) {
            fprintf(stderr, "%s does not fit\n", procedure);
            return 1;
        }
        for (char *at = packed; at < to.buffer; at++)
            printf("%02x", *(unsigned char *)at);
        printf("\n");
        fflush(stdout);
    }
    return 0;
}
