// Calls calc.x by the ONC RPC of Debian's libyanfs-java, Sun's WebNFS of 1997.
// Counterpart udp|tcp HOST PORT prints "all is well".

import com.sun.rpc.CredUnix;
import com.sun.rpc.Rpc;
import com.sun.rpc.Xdr;

class Counterpart {
    static Rpc rpc;

    static Xdr call(int procedure, Object... arguments) throws Exception {
        Xdr call = new Xdr(65536);
        rpc.rpc_header(call, procedure);
        for (Object each : arguments) {
            if (each instanceof Integer) call.xdr_int((Integer) each);
            else if (each instanceof Long) call.xdr_hyper((Long) each);
            else if (each instanceof Boolean) call.xdr_bool((Boolean) each);
            else call.xdr_string((String) each);
        }
        return rpc.rpc_call(call, 5000, 3);
    }

    static void check(boolean holds, String what) {
        if (holds) return;
        System.out.println(what);
        System.exit(1);
    }

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[2]);
        rpc = new Rpc(arguments[1], port, 0x20000088, 3, arguments[0], 65536);
        call(0);
        check(call(1, -5, 47).xdr_int() == 42, "add");
        rpc.setCred(new CredUnix(7, 8));
        check(call(5, "a", "bc", 3).xdr_string().equals("abcbcbc"), "join");
        Xdr listing = call(3, 100);
        for (int n = 100; n > 0; n--)
            check(listing.xdr_bool() && listing.xdr_string().equals("" + n) && listing.xdr_hyper() == (long) n << 32, "entry " + n);
        check(!listing.xdr_bool(), "the end");
        check(call(4, true, "one", 1L, true, "two", 2L << 40, false).xdr_hyper() == 1 + (2L << 40), "total");
        System.out.println("all is well");
        System.exit(0);
    }
}
