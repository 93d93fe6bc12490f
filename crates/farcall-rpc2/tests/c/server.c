/* A server of the subsystem `covering` by RPC2: server PORT. Prints a line when it can be called. With the variable
   RPC2SEC_ONLY=0 it speaks the plain mode. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <lwp/lwp.h>
#include <rpc2/rpc2.h>
#include <rpc2/se.h>

#include "covering.h"

static int welcomes;

long S_Welcome(RPC2_Handle cid, RPC2_Integer side, RPC2_Integer security, RPC2_Integer encryption,
               RPC2_Integer auth, RPC2_CountedBS *ident) {
    welcomes++;
    return RPC2_SUCCESS;
}

/* Returns how often a client has bound. */
long S_Nothing(RPC2_Handle cid) { return welcomes; }

long S_AllIn(RPC2_Handle cid, RPC2_Integer Signed, RPC2_Unsigned Unsigned, RPC2_Byte Small, Weight Heavy,
             RPC2_String Text, RPC2_CountedBS *Counted, RPC2_BoundedBS *Bounded, RPC2_EncryptionKey Secret,
             Colour Paint, Digest Sum, Odd Five, Everything *Whole) {
    return Whole->Small == Small && Whole->Heavy == Heavy && strcmp((char *)Text, (char *)Whole->Text) == 0
               ? 0
               : 22;
}

long S_AllOut(RPC2_Handle cid, RPC2_Integer *Signed, RPC2_Unsigned *Unsigned, RPC2_Byte *Small, Weight *Heavy,
              RPC2_BoundedBS *Bounded, RPC2_EncryptionKey *Secret, Colour *Paint, Digest Sum, Odd Five,
              Range *Whole) {
    *Signed = -7;
    *Unsigned = 7;
    *Small = 77;
    *Heavy = 0.75;
    Bounded->SeqLen = Bounded->MaxSeqLen < 3 ? Bounded->MaxSeqLen : 3;
    memcpy(Bounded->SeqBody, "abc", Bounded->SeqLen);
    memcpy(Secret, "12345678", 8);
    *Paint = Green;
    memset(Sum, 1, sizeof(Digest));
    memset(Five, 5, sizeof(Odd));
    memset(Whole, 0, sizeof *Whole);
    Whole->High = 9;
    return 0;
}

/* Adds 1 to each number, and fails. */
long S_AllBoth(RPC2_Handle cid, RPC2_Integer *Signed, RPC2_Unsigned *Unsigned, RPC2_Byte *Small, Weight *Heavy,
               RPC2_BoundedBS *Bounded, RPC2_EncryptionKey *Secret, Colour *Paint, Range *Whole) {
    *Signed += 1;
    *Unsigned += 1;
    return 5;
}

long S_Arrays(RPC2_Handle cid, RPC2_Unsigned Given_size_, Range Given[], RPC2_Unsigned Taken_size_max_,
              RPC2_Unsigned *Taken_size_, Range Taken[], RPC2_Unsigned Changed_size_max_,
              RPC2_Unsigned *Changed_size_, Range Changed[], Key Last) {
    *Taken_size_ = Given_size_ < Taken_size_max_ ? Given_size_ : Taken_size_max_;
    memcpy(Taken, Given, *Taken_size_ * sizeof(Range));
    for (RPC2_Unsigned at = 0; at < *Changed_size_; at++)
        Changed[at].Low += Last;
    return 0;
}

/* Counts its calls in `Twice`'s place for the number 0. Takes as many milliseconds as the number says above 1000000. */
long S_Double(RPC2_Handle cid, RPC2_Unsigned Number, RPC2_Unsigned *Twice) {
    static RPC2_Unsigned calls;
    if (Number > 1000000)
        usleep((Number - 1000000) * 1000);
    *Twice = Number == 0 ? calls : 2 * Number;
    calls += Number != 0;
    return 0;
}

long S_Names(RPC2_Handle cid, RPC2_String First, RPC2_String Second, RPC2_Unsigned *Bytes) {
    *Bytes = strlen((char *)First) + strlen((char *)Second);
    return 0;
}

long S_Store(RPC2_Handle cid, RPC2_String Name, SE_Descriptor *Content, RPC2_Unsigned *Bytes) { return RPC2_FAIL; }

long S_Fetch(RPC2_Handle cid, RPC2_String Name, SE_Descriptor *Content) { return RPC2_FAIL; }

long S_Count(RPC2_Handle cid, CallCountEntry *Calls) {
    Calls->countent += 1;
    return 0;
}

int main(int count, char **arguments) {
    PROCESS process;
    RPC2_PortIdent port = {.Tag = RPC2_PORTBYINETNUMBER};
    RPC2_SubsysIdent subsystem = {.Tag = RPC2_SUBSYSBYID, .Value.SubsysId = COVERING_ID};
    port.Value.InetPortNumber = htons(atoi(arguments[1]));
    LWP_Init(LWP_VERSION, LWP_NORMAL_PRIORITY, &process);
    if (RPC2_Init(RPC2_VERSION, NULL, &port, -1, NULL) != RPC2_SUCCESS) {
        fprintf(stderr, "RPC2_Init fails\n");
        return 1;
    }
    RPC2_Export(&subsystem);
    printf("ready\n");
    fflush(stdout);
    while (1) {
        RPC2_Handle cid;
        RPC2_PacketBuffer *request;
        RPC2_RequestFilter filter = {.OldOrNew = OLDORNEW, .FromWhom = ONESUBSYS};
        filter.ConnOrSubsys.SubsysId = COVERING_ID;
        long rc = RPC2_GetRequest(&filter, &cid, &request, NULL, NULL, 0, NULL);
        if (rc == RPC2_SUCCESS)
            covering_ExecuteRequest(cid, request, NULL);
    }
}
