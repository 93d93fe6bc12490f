-- How Courier says where the data of a transfer comes from or goes to. (Ours holds only what our tests use.)

BulkData: PROGRAM 0 VERSION 1 =

BEGIN

    Identifier: TYPE = RECORD [host: ARRAY 3 OF UNSPECIFIED, number: ARRAY 2 OF UNSPECIFIED];

    Party: TYPE = RECORD [
        network: ARRAY 2 OF UNSPECIFIED,
        host: ARRAY 3 OF UNSPECIFIED,
        identifier: Identifier
    ];

    Descriptor: TYPE = CHOICE OF {
        null(0), immediate(1) => RECORD [],
        passive(2), active(3) => Party
    };

    Sink: TYPE = Descriptor;
    Source: TYPE = Descriptor;

END.
