-- Looks up accounts: the program of the Courier literature, written anew. --

PasswordLookup: PROGRAM 754 VERSION 1 =
BEGIN

-- An account, as a line of the password file has it. --
Passwd: TYPE = RECORD [
	pw_name, pw_passwd: STRING,
	pw_uid, pw_gid, pw_quota: LONG CARDINAL,
	pw_comment, pw_gecos, pw_dir, pw_shell: STRING ];

NoSuchUser: ERROR = 0;	-- nobody has this name or number --
OtherError: ERROR [errorstring: STRING] = 1;

-- Looks up an account by its number. --
LookupUid: PROCEDURE [uid: CARDINAL] RETURNS [passwd: Passwd]
	REPORTS [NoSuchUser] = 0;

-- Looks up an account by its name. --
LookupUser: PROCEDURE [user: STRING] RETURNS [passwd: Passwd]
	REPORTS [NoSuchUser, OtherError] = 1;

END.
