/* A client of the subsystem `covering` by RPC2: client PORT COUNT. Binds without security, makes so many calls, and
   prints how many gave a wrong result. With the variable RPC2SEC_ONLY=0 it speaks the plain mode. */

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lwp/lwp.h>
#include <rpc2/rpc2.h>
#include <rpc2/se.h>

#include "covering.h"

static int wrong;

static void expect(int is_right, const char *what, long rc) {
    if (is_right)
        return;
    wrong++;
    fprintf(stderr, "%s is wrong: %ld (%s)\n", what, rc, RPC2_ErrorMsg(rc));
}

static void twice(RPC2_Handle cid, RPC2_Unsigned number) {
    RPC2_Unsigned twice = 0;
    long rc = C_Double(cid, number, &twice);
    expect(rc == 0 && twice == 2 * number, "Double", rc);
}

static void both(RPC2_Handle cid, RPC2_Integer number) {
    RPC2_Unsigned other = 5;
    RPC2_Byte small = 6, body[8] = "xy";
    double heavy = 0.5;
    RPC2_BoundedBS bounded = {.MaxSeqLen = sizeof body, .SeqLen = 2, .SeqBody = body};
    RPC2_EncryptionKey secret = "keykeyk";
    Colour paint = Green;
    Range range = {.Low = 1, .High = 2};
    long rc = C_AllBoth(cid, &number, &other, &small, &heavy, &bounded, &secret, &paint, &range);
    expect(rc == 5 && other == 6 && bounded.SeqLen == 2 && heavy == 0.5, "AllBoth", rc);
}

static void arrays(RPC2_Handle cid) {
    Range given[3] = {{.Low = 1}, {.Low = 2}, {.Low = 3}}, taken[2], changed[1] = {{.Low = 4}};
    RPC2_Unsigned some = 0, others = 1;
    long rc = C_Arrays(cid, 3, given, 2, &some, taken, 1, &others, changed, 7);
    expect(rc == 0 && some == 2 && taken[1].Low == 2 && others == 1, "Arrays", rc);
}

int main(int count, char **arguments) {
    PROCESS process;
    RPC2_HostIdent host = {.Tag = RPC2_HOSTBYINETADDR};
    RPC2_PortIdent port = {.Tag = RPC2_PORTBYINETNUMBER};
    RPC2_SubsysIdent subsystem = {.Tag = RPC2_SUBSYSBYID, .Value.SubsysId = COVERING_ID};
    RPC2_CountedBS ident = {.SeqLen = 5, .SeqBody = (RPC2_ByteSeq) "guest"};
    RPC2_BindParms parameters = {.SecurityLevel = RPC2_OPENKIMONO, .ClientIdent = &ident};
    RPC2_Handle cid;
    inet_pton(AF_INET, "127.0.0.1", &host.Value.InetAddress);
    port.Value.InetPortNumber = htons(atoi(arguments[1]));
    LWP_Init(LWP_VERSION, LWP_NORMAL_PRIORITY, &process);
    if (RPC2_Init(RPC2_VERSION, NULL, NULL, -1, NULL) != RPC2_SUCCESS) {
        fprintf(stderr, "RPC2_Init fails\n");
        return 1;
    }
    long rc = RPC2_NewBinding(&host, &port, &subsystem, &parameters, &cid);
    if (rc != RPC2_SUCCESS) {
        fprintf(stderr, "RPC2_NewBinding: %s\n", RPC2_ErrorMsg(rc));
        return 1;
    }
    int calls = atoi(arguments[2]);
    for (int at = 1; at <= calls; at++) {
        if (at % 50 == 0)
            both(cid, at);
        else if (at % 50 == 25)
            arrays(cid);
        else
            twice(cid, at);
    }
    printf("%d calls, %d wrong\n", calls, wrong);
    return wrong != 0;
}
