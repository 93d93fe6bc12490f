//! The figures of Elliott and Nutt 1989, table by table, as they are printed.
//!
//! "Remarks on the Cost of Using a Remote Procedure Call Facility", University of Colorado, CU-CS-426-89: Sun
//! 3/50s, clients of a file server by NFS. Times are microseconds.

/// Table 1: how many times a run of 1,000 calls gave which time for each.
pub const TABLE_1: [(u32, f64); 14] = [
    (1, 3967.0),
    (1, 4000.0),
    (1, 4050.0),
    (3, 4100.0),
    (2, 4133.0),
    (2, 4150.0),
    (3, 4167.0),
    (1, 4183.0),
    (1, 4200.0),
    (1, 4216.0),
    (1, 4233.0),
    (3, 4250.0),
    (3, 4283.0),
    (2, 4383.0),
];

/// Table 1: the average, and the largest deviation from it.
pub const TABLE_1_AVERAGE: (f64, f64) = (4183.0, 200.0);

/// Table 2: the empty loop, and calls with 0, 2 and 4 bytes, for each number of iterations.
pub const TABLE_2: [[f64; 4]; 3] = [
    [1.333280, 4.166500, 5.666440, 4.999800],
    [1.233284, 4.133168, 5.449782, 4.866472],
    [1.213285, 4.061504, 5.473114, 4.893138],
];

/// Calls with 0, 2 and 4 bytes.
pub type Sizes = [f64; 3];

/// Table 3, programs 3 (UDP) and 4 (TCP): local, remote; blocking, with select.
pub const TABLE_3_CUSTOM: [[[Sizes; 2]; 2]; 2] = [
    [
        [[2950.0, 2883.0, 2783.0], [3033.0, 3033.0, 3150.0]],
        [[3900.0, 3767.0, 3783.0], [4483.0, 4050.0, 4750.0]],
    ],
    [
        [[3517.0, 3017.0, 3550.0], [4150.0, 4583.0, 4317.0]],
        [[3400.0, 3333.0, 3517.0], [5083.0, 4666.0, 5116.0]],
    ],
];

/// Table 3, program 2 (Sun RPC): local, remote.
pub const TABLE_3_SUN: [Sizes; 2] = [[4216.0, 3950.0, 4183.0], [5150.0, 5283.0, 5266.0]];

/// A line of a profile: the function, its percentage of the time, and milliseconds for each of its calls.
pub type Line = (&'static str, f64, Option<f64>);

/// Table 4a: program 3, blocking. The profiles are of 1,000 calls of each size.
pub const TABLE_4A: [Line; 7] = [
    ("sendto", 69.4, Some(1.72)),
    ("recvfrom", 28.0, Some(0.69)),
    ("mcount", 1.1, None),
    ("main", 0.8, Some(60.0)),
    ("sbrk", 0.3, Some(10.0)),
    ("select", 0.3, Some(6.67)),
    ("xdrmem_create", 0.3, Some(2.86)),
];

/// Table 4b: program 3 with select.
pub const TABLE_4B: [Line; 8] = [
    ("sendto", 58.9, Some(1.63)),
    ("select", 24.3, Some(0.67)),
    ("recvfrom", 14.4, Some(0.40)),
    ("mcount", 1.0, None),
    ("main", 0.7, Some(60.0)),
    ("clntudp_create", 0.2, None),
    ("fstat", 0.2, Some(20.0)),
    ("write", 0.2, Some(20.0)),
];

/// Table 5: program 2.
pub const TABLE_5: [Line; 24] = [
    ("sendto", 40.5, Some(1.78)),
    ("recvfrom", 16.5, Some(0.73)),
    ("select", 15.8, Some(0.69)),
    ("mcount", 7.0, None),
    ("xdrmem_create", 3.9, Some(0.17)),
    ("clntudp_create", 3.3, Some(439.98)),
    ("xdr_long", 2.1, Some(0.02)),
    ("callrpc", 1.5, Some(0.07)),
    ("main", 1.4, Some(179.99)),
    ("xdr_accepted_reply", 1.1, Some(0.05)),
    ("xdr_enum", 1.1, Some(0.01)),
    ("bcopy", 0.9, Some(0.04)),
    ("strcmp", 0.9, Some(0.04)),
    ("xdr_bytes", 0.6, Some(0.03)),
    ("xdr_opaque_auth", 0.6, Some(0.03)),
    ("xdr_union", 0.6, Some(0.03)),
    ("seterr_reply", 0.5, Some(0.02)),
    ("authnone_create", 0.3, Some(8.0)),
    ("xdr_replymsg", 0.3, Some(0.01)),
    ("xdr_u_long", 0.3, Some(0.01)),
    ("xdr_void", 0.3, Some(0.01)),
    ("getsockname", 0.2, Some(10.0)),
    ("ioctl", 0.2, Some(2.86)),
    ("xdr_short", 0.2, Some(0.02)),
];

/// Table 5's last line, which the paper has too.
pub const TABLE_5_LAST: Line = ("xdr_rejected_reply", 0.1, None);

/// Table 5: the seconds of all functions together, for 3,000 calls.
pub const TABLE_5_SECONDS: f64 = 13.20;
/// Tables 4a and 4b: the same.
pub const TABLES_4_SECONDS: [f64; 2] = [7.44, 8.32];

/// Section 4: by how many per cent program 3 is better than program 2, blocking and with select; the share of
/// XDR and of dispatch in program 2; and the share of communication.
pub const BETTER_BLOCKING: f64 = 29.0;
pub const BETTER_SELECTING: f64 = 20.0;
pub const XDR: f64 = 14.0;
pub const DISPATCH: f64 = 3.0;
pub const COMMUNICATION: f64 = 80.0;
/// Section 3.3: by how many per cent remote calls take longer.
pub const REMOTE: f64 = 25.0;
/// Section 3.4: what select adds to a call, in microseconds, by timing.
pub const SELECT_MICROS: f64 = 200.0;
/// Section 3.3: how many local procedure calls are as dear as a local remote call.
pub const LOCAL_CALLS: f64 = 1000.0;
/// Section 3.2: by how many per cent a time is uncertain.
pub const UNCERTAIN: f64 = 5.0;
