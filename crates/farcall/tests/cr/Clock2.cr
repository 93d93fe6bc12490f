-- The older clock, which depends upon the ledger in turn. --

Clock: PROGRAM 4002 VERSION 2 =
BEGIN
	DEPENDS UPON Ledger (4001) VERSION 1;

Time: TYPE = RECORD [seconds: CARDINAL, setBy: Ledger.Person];

END.
