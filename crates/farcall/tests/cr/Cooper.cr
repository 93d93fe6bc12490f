-- A program in Cooper's form: it has no numbers. --

Looker: PROGRAM =
BEGIN
	Look: PROCEDURE [at: STRING] RETURNS [seen: BOOLEAN] = 0;
END.
