//! The figures of the paper (Birrell & Nelson 1984, section 4).

/// Table I in microseconds: the minimum, the median, the transmission of packets, and a local call.
pub const TABLE_I: [[f64; 4]; 12] = [
    [1059.0, 1097.0, 131.0, 9.0],
    [1070.0, 1105.0, 142.0, 10.0],
    [1077.0, 1127.0, 152.0, 11.0],
    [1115.0, 1171.0, 174.0, 12.0],
    [1222.0, 1278.0, 239.0, 17.0],
    [1069.0, 1111.0, 131.0, 10.0],
    [1106.0, 1153.0, 174.0, 13.0],
    [1214.0, 1250.0, 239.0, 16.0],
    [1643.0, 1695.0, 566.0, 51.0],
    [2915.0, 2926.0, 1219.0, 98.0],
    [2555.0, 2637.0, 284.0, 134.0],
    [3374.0, 3467.0, 284.0, 196.0],
];

/// The rate of the Ethernet, in Mbit/s.
pub const ETHERNET: f64 = 2.94;

/// The rate between main memories in Mbit/s, by parallel calls and by the best byte stream.
pub const BULK: f64 = 2.0;
