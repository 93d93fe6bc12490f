-- A directory of telephones: with every type, for programs that others wrote and ours.

Telephones: PROGRAM 31415 VERSION 1 =

BEGIN

    DEPENDS UPON BulkData (0) VERSION 1;

    Kind: TYPE = {desk(0), mobile(1), fax(7), pager(65535)};

    Room: TYPE = RECORD [building: STRING, door: CARDINAL];

    Place: TYPE = CHOICE Kind OF {
        desk => Room,
        mobile => LONG CARDINAL,
        fax, pager => RECORD []
    };

    Reach: TYPE = CHOICE OF {
        never(3) => RECORD [],
        always(4) => BOOLEAN,
        between(500) => RECORD [from, to: CARDINAL]
    };

    Entry: TYPE = RECORD [
        name: STRING,
        extension: LONG CARDINAL,
        listed: BOOLEAN,
        place: Place
    ];

    Entries: TYPE = SEQUENCE 100 OF Entry;
    Triple: TYPE = ARRAY 3 OF INTEGER;
    Grid: TYPE = ARRAY 2 OF Triple;
    Names: TYPE = SEQUENCE 5 OF STRING;
    Numbers: TYPE = SEQUENCE OF CARDINAL;
    Empty: TYPE = RECORD [];

    Everything: TYPE = RECORD [
        yes: BOOLEAN,
        small: CARDINAL,
        big: LONG CARDINAL,
        negative: INTEGER,
        longNegative: LONG INTEGER,
        word, otherWord: UNSPECIFIED,
        words: LONG UNSPECIFIED,
        text: STRING,
        kind: Kind,
        grid: Grid,
        names: Names,
        numbers: Numbers,
        nothing: Empty,
        entries: Entries,
        reach: Reach
    ];

    -- The compiler of the 1980s knows one result at most: several are the same words as a record of them.

    Quotient: TYPE = RECORD [quotient, remainder: LONG INTEGER];
    Sum: TYPE = RECORD [bytes: LONG CARDINAL, sum: CARDINAL];

    NoSuchEntry: ERROR = 0;
    NotPossible: ERROR [limit: CARDINAL, why: STRING] = 7;

    Nothing: PROCEDURE = 0;

    Find: PROCEDURE [name: STRING] RETURNS [entry: Entry]
        REPORTS [NoSuchEntry, NotPossible] = 1;

    Divide: PROCEDURE [dividend, divisor: LONG INTEGER] RETURNS [result: Quotient]
        REPORTS [NotPossible] = 2;

    Echo: PROCEDURE [value: Everything] RETURNS [value: Everything] = 3;

    Reverse: PROCEDURE [numbers: Numbers] RETURNS [numbers: Numbers] = 4;

    Remove: PROCEDURE [name: STRING] REPORTS [NoSuchEntry] = 5;

    Store: PROCEDURE [source: BulkData.Source] RETURNS [sum: Sum]
        REPORTS [NotPossible] = 6;

    Fetch: PROCEDURE [sink: BulkData.Sink, bytes: LONG CARDINAL] RETURNS [sum: Sum]
        REPORTS [NotPossible] = 7;

END.
