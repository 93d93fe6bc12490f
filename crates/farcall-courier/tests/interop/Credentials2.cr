-- What our tests call of dodo's services: a part of the program of authentication. --

Credentials: PROGRAM 14 VERSION 2 =
BEGIN

Words: TYPE = SEQUENCE OF UNSPECIFIED;
Given: TYPE = RECORD [type: UNSPECIFIED, value: Words];

CallError: ERROR [problem, whichArgument: UNSPECIFIED] = 1;
AuthenticationError: ERROR [problem: UNSPECIFIED] = 2;

CheckSimpleCredentials: PROCEDURE [credentials: Given, verifier: Words] RETURNS [ok: BOOLEAN]
    REPORTS [AuthenticationError, CallError] = 2;

END.
