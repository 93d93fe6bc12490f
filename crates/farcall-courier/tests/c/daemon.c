/*
 * What the 1980s' daemon does with a connection, by its library: say our version, look at calls, start
 * programs.
 */
#include <stdlib.h>
#include <sys/types.h>
#include <sys/socket.h>
#include <netns/ns.h>
#include <netns/sp.h>
#include <xnscourier/courier.h>
#include <xnscourier/realcourierconnection.h>

extern CourierConnection *_serverConnection;
extern void CourierWrite(), ExecCourierProgram();
extern int LookAheadCallMsg();

/* With `direct` it only says our version: what has the connection then reads the first call itself. */
void courier_daemon(int fd, int direct)
{
    static CourierConnection connection;
    static Cardinal version = COURIERVERSION;
    Unspecified words[8];
    LongCardinal program;
    Cardinal program_version;
    int seen;

    _serverConnection = &connection;
    connection.fd = fd;
    connection.state = wantversion;
    connection.bdtstate = wantdata;
    externalize_Cardinal(&version, words);
    externalize_Cardinal(&version, words + 1);
    CourierWrite(&connection, 2, words, 0, NULL);
    if (direct)
        return;
    while ((seen = LookAheadCallMsg(&program, &program_version, words)) >= 0)
        ExecCourierProgram(program, program_version, seen, words);
    exit(1);
}
