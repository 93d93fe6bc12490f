-- Covers the language of Courier: each type, each form, each place for a comment. --

Covering: PROGRAM 0FA0X VERSION 2 =
BEGIN
	DEPENDS UPON
		Ledger (4001) VERSION 1,
		Clock (4002) VERSION 3;

-- TYPES --

Numbers: TYPE = RECORD [
	flag: BOOLEAN,		-- true or false --
	small, other: CARDINAL,
	signed: INTEGER,
	bits: UNSPECIFIED,
	long: LONG CARDINAL,
	longSigned: LONG INTEGER,
	longBits: LONG UNSPECIFIED ];
Nothing: TYPE = RECORD [ ];
Text: TYPE = STRING;

-- The three states of a --
-- door. --
Door: TYPE = {
	open(0),		-- anybody may pass --
	closed(7),
	locked(177777B) };
Doors: TYPE = SEQUENCE OF Door;
Again: TYPE = Door;

Grid: TYPE = ARRAY two OF ARRAY 3 OF INTEGER;
Large: TYPE = ARRAY 5000 OF LONG CARDINAL;
Words: TYPE = SEQUENCE 12 OF UNSPECIFIED;
Names: TYPE = SEQUENCE 3 OF STRING;
Table: TYPE = SEQUENCE OF SEQUENCE Clock.most OF Text;

-- A choice whose designators an enumeration declares.
Passage: TYPE = CHOICE Again OF {
	open, closed => RECORD [ ],
	locked => RECORD [key: Words, holder: Ledger.Person] };

-- A choice with numbers, which contains itself.
StreamOfDoor: TYPE = CHOICE OF {
	nextSegment(0) => RECORD [
		segment: SEQUENCE OF Door,
		restOfStream: StreamOfDoor],
	lastSegment(1) => SEQUENCE OF Door };

Tree: TYPE = RECORD [
	left: CHOICE OF { none(0) => Nothing, some(1) => Tree, twice(2), thrice(3) => CARDINAL },
	value: RECORD [ kind: {leaf(0), inner(1)}, weight: CARDINAL ],
	children: SEQUENCE OF Tree ];

Everything: TYPE = RECORD [
	numbers: Numbers, nothing: Nothing, text: Text, door: Again, doors: Doors, grid: Grid, large: Large,
	words: Words, names: Names, table: Table, passage: Passage, stream: StreamOfDoor, tree: Tree,
	entry: Ledger.Entry, old: Clock.Time, type, self: CARDINAL ];

-- CONSTANTS --

two: CARDINAL = 2;
mask: LONG CARDINAL = 37777777777B;
least: INTEGER = -32768;	-- the least number --
hex: CARDINAL = 0FFX;
same: CARDINAL = two;
yes: BOOLEAN = TRUE;
quoted: STRING = "say ""no""";
title: Text = "";
favourite: Again = locked;
identity: Grid = [[1, 0, 0], [0, 1, 0]];
key: Words = [1, 2, mostWords];
mostWords: CARDINAL = 177777B;
labels: Names = ["a", title];
byPlace: Numbers = [TRUE, 1, two, -1, 177777B, 4, -5, 6];
byName: Numbers = [small, other: 1, flag: FALSE, longSigned, signed: -1, bits: 0, long, longBits: mask];
entrance: Passage = open [];
cellar: Passage = locked [key: key, holder: [name: "Ada", born: Clock.epoch]];
end: StreamOfDoor = lastSegment [open, favourite];
longer: StreamOfDoor = nextSegment [[closed], end];
empty: Nothing = [];
never: Clock.Time = Clock.epoch;

-- ERRORS --

Trapped: ERROR = 0;	-- nobody can leave --
Jammed: ERROR [door: Door, since: Clock.Time] = 177777B;
Kind: TYPE = ERROR [type: CARDINAL];
Other: Kind = 2;

-- PROCEDURES --

-- Does nothing, and may not be taken for the null procedure of ONC RPC.
Idle: PROCEDURE = 0;
-- Opens a door.
Open: PROCEDURE [door: Door, words: Words, name: STRING] RETURNS [door: Door, at: Clock.Time]
	REPORTS [Trapped, Jammed] = 3;
Tell: PROCEDURE [all: Everything] RETURNS [all: Everything] REPORTS [Other] = 4;
Start: PROCEDURE RETURNS [passages: SEQUENCE OF Passage] = 5;
Guard: PROCEDURE [numbers: RECORD [a, b: LONG INTEGER]] REPORTS [Ledger.Overdrawn, Jammed] = 6;
Transfer: Ledger.Move = 7;
Spell: PROCEDURE [text: Text] RETURNS [text: Text] = 65535;
END.
