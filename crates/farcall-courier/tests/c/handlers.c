/*
 * The procedures of Telephones, as the 1980s' server calls them. What they answer is a function of what they
 * are given, so that every implementation of the same program can be compared with them.
 */
#include "values.h"

#include <stdlib.h>
#include <string.h>
#include <xnscourier/except.h>

enum { LONGEST_NAME = 20, MOST_BYTES = 100000 };

extern int BDTabort(CourierConnection *);

static void not_possible(Cardinal limit, const char *why)
{
    static Telephones1_NotPossibleArgs arguments;

    arguments.limit = limit;
    arguments.why = (String)why;
    raise(Telephones1_NotPossible, (char *)&arguments);
}

/* The library frees nothing of an argument. */
void Telephones1_Nothing(CourierConnection *connection, int unused)
{
    (void)connection, (void)unused;
}

/*
 * By the first letter: a desk, a mobile telephone, fax, pager; `nobody` and names that are too long are
 * errors.
 */
Telephones1_FindResults Telephones1_Find(CourierConnection *connection, int unused, String name)
{
    Telephones1_FindResults results;
    Telephones1_Entry *entry = &results.entry;
    unsigned char *byte;

    (void)connection, (void)unused;
    if (strcmp(name, "nobody") == 0)
        raise(Telephones1_NoSuchEntry, NULL);
    if (strcmp(name, "undeclared") == 0)
        raise(ERROR_OFFSET + 99, NULL);
    if (strlen(name) > LONGEST_NAME)
        not_possible(LONGEST_NAME, "the name is too long");
    entry->name = name;
    entry->extension = 0;
    for (byte = (unsigned char *)name; *byte; byte++)
        entry->extension += *byte;
    entry->listed = strlen(name) % 2;
    switch (*name) {
    case 'm':
        entry->place.designator = Telephones1_mobile;
        entry->place.Telephones1_mobile_case = 5551234;
        break;
    case 'f':
        entry->place.designator = Telephones1_fax;
        break;
    case 'p':
        entry->place.designator = Telephones1_pager;
        break;
    default:
        entry->place.designator = Telephones1_desk;
        entry->place.Telephones1_desk_case.building = "Bay Hill";
        entry->place.Telephones1_desk_case.door = 12;
    }
    return results;
}

Telephones1_DivideResults
Telephones1_Divide(CourierConnection *connection, int unused, LongInteger dividend, LongInteger divisor)
{
    Telephones1_DivideResults results;

    (void)connection, (void)unused;
    if (divisor == 0)
        not_possible(0, "division by zero");
    results.result.quotient = dividend / divisor;
    results.result.remainder = dividend % divisor;
    return results;
}

Telephones1_EchoResults
Telephones1_Echo(CourierConnection *connection, int unused, Telephones1_Everything value)
{
    Telephones1_EchoResults results;

    (void)connection, (void)unused;
    results.value = value;
    return results;
}

Telephones1_ReverseResults
Telephones1_Reverse(CourierConnection *connection, int unused, Telephones1_Numbers numbers)
{
    Telephones1_ReverseResults results;
    int i;

    (void)connection, (void)unused;
    for (i = 0; i < numbers.length / 2; i++) {
        Cardinal *left = &numbers.sequence[i];
        Cardinal *right = &numbers.sequence[numbers.length - 1 - i];
        Cardinal kept = *left;

        *left = *right;
        *right = kept;
    }
    results.numbers = numbers;
    return results;
}

void Telephones1_Remove(CourierConnection *connection, int unused, String name)
{
    (void)connection, (void)unused;
    if (strcmp(name, "nobody") == 0)
        raise(Telephones1_NoSuchEntry, NULL);
}

static void refuse_party(int designator)
{
    if (designator > BulkData1_immediate)
        not_possible(designator, "null and immediate only");
}

/* Reads what comes; more than it likes it stops by an attention packet and an error. */
Telephones1_StoreResults Telephones1_Store(CourierConnection *connection, int unused, BulkData1_Source source)
{
    Telephones1_StoreResults results = {{0, 0}};
    unsigned char bytes[SPPMAXDATA];
    int count, i;

    (void)unused;
    refuse_party(source.designator);
    if (source.designator == BulkData1_null)
        return results;
    while ((count = BDTread(connection, bytes, sizeof bytes)) > 0) {
        for (i = 0; i < count; i++)
            results.sum.sum += bytes[i];
        results.sum.bytes += count;
        if (results.sum.bytes > MOST_BYTES) {
            BDTabort(connection);
            not_possible(MOST_BYTES / 1000, "too many bytes");
        }
    }
    return results;
}

/* Writes bytes 0, 7, 14 and so on. */
Telephones1_FetchResults
Telephones1_Fetch(CourierConnection *connection, int unused, BulkData1_Sink sink, LongCardinal bytes)
{
    Telephones1_FetchResults results = {{0, 0}};
    unsigned char packet[SPPMAXDATA];

    (void)unused;
    refuse_party(sink.designator);
    if (bytes > MOST_BYTES)
        not_possible(MOST_BYTES / 1000, "too many bytes");
    if (sink.designator == BulkData1_null)
        return results;
    while (results.sum.bytes < bytes) {
        int count, most = bytes - results.sum.bytes < SPPMAXDATA ? bytes - results.sum.bytes : SPPMAXDATA;

        for (count = 0; count < most; count++) {
            packet[count] = 7 * (results.sum.bytes + count);
            results.sum.sum += packet[count];
        }
        if (BDTwrite(connection, packet, count) < 0)
            not_possible(0, "stopped");
        results.sum.bytes += count;
    }
    BDTclosewrite(connection);
    return results;
}
