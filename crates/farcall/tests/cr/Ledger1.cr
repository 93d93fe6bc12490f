-- A program that the covering one depends upon, and that depends upon an older version of Clock. --

Ledger: PROGRAM 4001 VERSION 1 =
BEGIN
	DEPENDS UPON Clock (4002) VERSION 2;

-- Somebody who has an account. --
Person: TYPE = RECORD [name: STRING, born: LONG CARDINAL];
Time: TYPE = Clock.Time;
Entry: TYPE = RECORD [of: Person, at: Time];

Overdrawn: ERROR [by: LONG CARDINAL] = 9;
Move: TYPE = PROCEDURE [from, to: Person, amount: LONG CARDINAL] RETURNS [at: Time] REPORTS [Overdrawn];
MoveAll: Move = 0;

END.
