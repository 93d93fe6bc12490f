-- The newer clock. --

Clock: PROGRAM 4002 VERSION 3 =
BEGIN

-- Seconds since the epoch. --
Time: TYPE = LONG CARDINAL;
epoch: Time = 0;
most: CARDINAL = 4;

END.
