/*
 * The 1980s' client over TCP, at 127.0.0.1: `client PORT PROCEDURE VALUES...` calls once; `client PORT` reads
 * such calls from its input, one a line, and makes them on one connection. For each call it prints one line:
 * `return VALUES`, `abort ERROR VALUES`, `reject CODE` (`reject 1 LOW HIGH`), or `closed` when the connection
 * ends, and ends then. (values.h says how values are written.)
 *
 * Beside procedures of Telephones: `raw PROGRAM VERSION PROCEDURE CARDINALS...`, and `repeat TIMES PROCEDURE
 * VALUES...`, which prints the last outcome. Store and Fetch take a designator (and 10 words where it has a
 * party) and a count of bytes; with immediate data they print `sent COUNT SUM` or `got COUNT SUM` behind the
 * results.
 */
#include "values.h"

#include <arpa/inet.h>
#include <netns/ns.h>
#include <stdlib.h>
#include <string.h>
#include <xnscourier/except.h>

enum { MOST = 70000 };

extern void (*spp_at_end)(void);
extern Unspecified *ReceiveReturnMessage();
extern void SendCallMessage(), Deallocate(), CourierClose();

static CourierConnection *connection;
static char *texts[MOST];
static char line[16 * MOST];

/* The transfer of the call that runs. */
static LongCardinal bulk_bytes, bulk_done;
static Cardinal bulk_sum;

static void closed(void)
{
    puts("closed");
    fflush(stdout);
    exit(3);
}

static void send_bulk(void *to)
{
    unsigned char packet[SPPMAXDATA];

    while (bulk_done < bulk_bytes) {
        int count, most = bulk_bytes - bulk_done < SPPMAXDATA ? bulk_bytes - bulk_done : SPPMAXDATA;

        for (count = 0; count < most; count++) {
            packet[count] = 7 * (bulk_done + count);
            bulk_sum += packet[count];
        }
        if (BDTwrite(to, packet, count) < 0)
            return;
        bulk_done += count;
    }
    BDTclosewrite(to);
}

static void get_bulk(void *from)
{
    unsigned char packet[SPPMAXDATA];
    int count, i;

    while ((count = BDTread(from, packet, sizeof packet)) > 0) {
        for (i = 0; i < count; i++)
            bulk_sum += packet[i];
        bulk_done += count;
    }
}

static void print_sum(Telephones1_Sum *sum)
{
    printf(" %u %u", (unsigned)sum->bytes, sum->sum);
}

static void store(Text *text)
{
    BulkData1_Source source;
    Telephones1_StoreResults results;
    int immediate;

    read_BulkData1_Descriptor(text, &source);
    immediate = source.designator == BulkData1_immediate;
    read_LongCardinal(text, &bulk_bytes);
    bulk_done = bulk_sum = 0;
    results = Telephones1_Store(connection, immediate ? send_bulk : NULL, source);
    printf("return");
    print_sum(&results.sum);
    if (immediate)
        printf(" sent %u %u", (unsigned)bulk_done, bulk_sum);
}

static void fetch(Text *text)
{
    BulkData1_Sink sink;
    Telephones1_FetchResults results;
    int immediate;

    read_BulkData1_Descriptor(text, &sink);
    immediate = sink.designator == BulkData1_immediate;
    read_LongCardinal(text, &bulk_bytes);
    bulk_done = bulk_sum = 0;
    results = Telephones1_Fetch(connection, immediate ? get_bulk : NULL, sink, bulk_bytes);
    printf("return");
    print_sum(&results.sum);
    if (immediate)
        printf(" got %u %u", (unsigned)bulk_done, bulk_sum);
}

/*
 * Any procedure of any program with words; of what it answers only the kind and an error's number are
 * printed.
 */
static void raw(Text *text)
{
    LongCardinal program;
    Cardinal version, procedure, error;
    static Unspecified words[MOST];
    Unspecified *answer;
    Boolean aborted;
    int count = 0;

    read_LongCardinal(text, &program);
    read_Cardinal(text, &version);
    read_Cardinal(text, &procedure);
    while (text->next != text->end) {
        Cardinal word;

        read_Cardinal(text, &word);
        externalize_Cardinal(&word, words + count++);
    }
    SendCallMessage(connection, program, version, procedure, count, words);
    answer = ReceiveReturnMessage(connection, &aborted);
    if (aborted) {
        internalize_Cardinal(&error, answer);
        printf("abort %u", error);
    } else
        printf("return");
    Deallocate(answer);
}

static void perform(const char *procedure, Text *text)
{
    String name;

    if (strcmp(procedure, "raw") == 0)
        raw(text);
    else if (strcmp(procedure, "Store") == 0)
        store(text);
    else if (strcmp(procedure, "Fetch") == 0)
        fetch(text);
    else if (strcmp(procedure, "Nothing") == 0) {
        Telephones1_Nothing(connection, NULL);
        printf("return");
    } else if (strcmp(procedure, "Find") == 0) {
        Telephones1_FindResults results;

        read_String(text, &name);
        results = Telephones1_Find(connection, NULL, name);
        printf("return");
        print_Telephones1_Entry(stdout, &results.entry);
    } else if (strcmp(procedure, "Divide") == 0) {
        Telephones1_DivideResults results;
        LongInteger dividend, divisor;

        read_LongInteger(text, &dividend);
        read_LongInteger(text, &divisor);
        results = Telephones1_Divide(connection, NULL, dividend, divisor);
        printf("return");
        print_LongInteger(stdout, &results.result.quotient);
        print_LongInteger(stdout, &results.result.remainder);
    } else if (strcmp(procedure, "Echo") == 0) {
        Telephones1_EchoResults results;
        Telephones1_Everything value;

        memset(&value, 0, sizeof value);
        read_Telephones1_Everything(text, &value);
        results = Telephones1_Echo(connection, NULL, value);
        printf("return");
        print_Telephones1_Everything(stdout, &results.value);
    } else if (strcmp(procedure, "Reverse") == 0) {
        Telephones1_ReverseResults results;
        Telephones1_Numbers numbers;

        read_Telephones1_Numbers(text, &numbers);
        results = Telephones1_Reverse(connection, NULL, numbers);
        printf("return");
        print_Telephones1_Numbers(stdout, &results.numbers);
    } else if (strcmp(procedure, "Remove") == 0) {
        read_String(text, &name);
        Telephones1_Remove(connection, NULL, name);
        printf("return");
    } else
        refuse("no such procedure", procedure);
}

static void print_rejection(rejectionDetails *details)
{
    printf("reject %u", details->designator);
    if (details->designator == noSuchVersionNumber)
        printf(" %u %u", details->noSuchVersionNumber_case.lowest, details->noSuchVersionNumber_case.highest);
}

static void call(char **words, int count)
{
    Text text = {words + 1, words + count};

    DURING
        perform(words[0], &text);
    HANDLER {
        if (Exception.Code == REJECT_ERROR)
            print_rejection((rejectionDetails *)Exception.Message);
        else
            printf("abort %d", Exception.Code - ERROR_OFFSET);
        if (Exception.Code == Telephones1_NotPossible && Exception.Message) {
            print_Cardinal(stdout, &CourierErrArgs(Telephones1_NotPossibleArgs, limit));
            print_String(stdout, &CourierErrArgs(Telephones1_NotPossibleArgs, why));
        }
    } END_HANDLER
    puts("");
    fflush(stdout);
}

/* All but the last outcome are thrown away. */
static void repeat(char **words, int count)
{
    long times;
    FILE *shown = stdout;

    if (count < 3)
        refuse("repeat TIMES PROCEDURE VALUES", NULL);
    stdout = fopen("/dev/null", "w");
    for (times = atol(words[1]); times > 1; times--)
        call(words + 2, count - 2);
    fclose(stdout);
    stdout = shown;
    call(words + 2, count - 2);
}

static void command(char **words, int count)
{
    if (count == 0)
        return;
    if (strcmp(words[0], "repeat") == 0)
        repeat(words, count);
    else
        call(words, count);
}

int main(int count, char **arguments)
{
    struct ns_addr address = {{{0}}, {{127, 0, 0, 1}}, 0};

    if (count < 2)
        return fprintf(stderr, "client PORT [PROCEDURE VALUES...]\n"), 2;
    address.x_port = htons(atoi(arguments[1]));
    connection = CourierOpen(&address);
    if (!connection)
        refuse("cannot connect", arguments[1]);
    spp_at_end = closed;
    if (count > 2)
        command(arguments + 2, count - 2);
    else
        while (fgets(line, sizeof line, stdin))
            command(texts, split(line, texts, MOST));
    spp_at_end = NULL;
    CourierClose(connection);
    return 0;
}
