-- What our tests call of dodo's services: a part of the Clearinghouse's program. --

Addresses: PROGRAM 2 VERSION 2 =
BEGIN

CallError: ERROR [problem: UNSPECIFIED] = 1;

NetworkAddress: TYPE = RECORD [
    network: ARRAY 2 OF UNSPECIFIED,
    host: ARRAY 3 OF UNSPECIFIED,
    socket: UNSPECIFIED
];

RetrieveAddresses: PROCEDURE RETURNS [addresses: SEQUENCE 40 OF NetworkAddress] REPORTS [CallError] = 0;

END.
