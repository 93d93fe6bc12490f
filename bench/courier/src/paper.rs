//! The figures of Larus 1983, table by table, as they are printed. Each table has a row for each test.
//!
//! "On the Performance of Courier Remote Procedure Calls Under 4.1c BSD", measured in March 1983.

use crate::figures::Summary;

/// Elapsed seconds for 2,000 calls.
pub type Elapsed = [Option<Summary>; 8];

const fn elapsed(min: f64, max: f64, mean: f64, deviation: f64) -> Option<Summary> {
    Some(Summary { min, max, mean, deviation })
}

/// Table 1: Courier, kim to arpa (3 Mbit/s) and kim to rob (10 Mbit/s).
pub const TABLE_1: [Elapsed; 2] = [
    [
        elapsed(10.3, 42.3, 26.2, 9.3),
        elapsed(66.3, 465.1, 193.0, 142.9),
        elapsed(16.4, 57.7, 41.2, 12.4),
        elapsed(70.4, 364.1, 139.5, 93.8),
        elapsed(50.4, 218.0, 102.8, 53.4),
        elapsed(84.1, 418.2, 177.6, 106.8),
        elapsed(213.6, 633.8, 376.7, 139.2),
        elapsed(317.6, 594.4, 422.4, 94.4),
    ],
    [
        elapsed(13.3, 115.8, 33.4, 32.9),
        elapsed(118.4, 160.4, 129.2, 12.4),
        elapsed(25.1, 104.6, 47.7, 26.1),
        elapsed(104.6, 148.9, 142.4, 4.7),
        elapsed(65.6, 172.4, 88.0, 29.2),
        elapsed(154.2, 182.5, 166.1, 8.0),
        elapsed(290.6, 692.8, 402.7, 121.0),
        elapsed(396.2, 776.5, 479.4, 123.4),
    ],
];

/// Table 2: PCourier, kim to arpa and kim to rob.
pub const TABLE_2: [Elapsed; 2] = [
    [
        elapsed(7.1, 22.5, 8.5, 3.9),
        elapsed(38.6, 375.5, 117.3, 80.6),
        elapsed(7.1, 13.5, 9.1, 1.4),
        elapsed(37.4, 281.3, 107.4, 67.4),
        elapsed(22.0, 76.6, 28.6, 13.8),
        elapsed(88.5, 719.0, 211.9, 163.8),
        None,
        None,
    ],
    [
        elapsed(7.0, 62.0, 11.6, 11.2),
        elapsed(43.6, 93.8, 51.6, 13.1),
        elapsed(7.0, 23.1, 10.1, 3.8),
        elapsed(43.5, 102.7, 51.9, 11.4),
        elapsed(24.1, 105.4, 29.8, 16.1),
        elapsed(68.3, 149.7, 87.6, 15.2),
        None,
        None,
    ],
];

/// Table 2: lost packets.
pub const TABLE_2_LOST: [[Option<u64>; 8]; 2] = [
    [None, Some(170), None, Some(128), None, Some(322), None, None],
    [None, Some(2), None, Some(5), None, Some(6), None, None],
];

/// Milliseconds for a call, and calls per second.
pub type Rate = Option<(f64, f64)>;

/// Tables 3 (VAX to VAX) and 4 (VAX to Sun): Courier, PCourier, and PCourier corrected for time-outs.
pub const TABLES_3_4: [[[Rate; 3]; 8]; 2] = [
    [
        [Some((13.1, 76.0)), Some((4.2, 235.0)), Some((4.2, 235.0))],
        [Some((96.5, 10.0)), Some((58.6, 17.0)), Some((21.6, 46.0))],
        [Some((20.6, 49.0)), Some((4.5, 219.0)), Some((4.5, 219.0))],
        [Some((69.7, 14.0)), Some((53.7, 19.0)), Some((25.9, 39.0))],
        [Some((51.4, 19.0)), Some((14.3, 70.0)), Some((14.3, 70.0))],
        [Some((88.8, 11.0)), Some((106.0, 9.4)), Some((35.9, 28.0))],
        [Some((188.3, 5.0)), None, None],
        [Some((211.2, 5.0)), None, None],
    ],
    [
        [Some((16.7, 60.0)), Some((5.8, 172.0)), Some((5.8, 172.0))],
        [Some((64.6, 15.0)), Some((25.8, 39.0)), Some((25.4, 39.0))],
        [Some((23.8, 42.0)), Some((5.0, 198.0)), Some((5.0, 198.0))],
        [Some((71.2, 14.0)), Some((25.9, 39.0)), Some((24.9, 40.0))],
        [Some((44.0, 23.0)), Some((14.9, 67.0)), Some((14.9, 67.0))],
        [Some((83.1, 12.0)), Some((43.8, 23.0)), Some((42.5, 23.0))],
        [Some((201.3, 5.0)), None, None],
        [Some((248.5, 4.0)), None, None],
    ],
];

/// Processor seconds of the client for 2,000 calls: in total, and with the percentage of the total in write
/// (or `sendto`), in read (or `recv` and `select`), and in swapping bytes.
#[derive(Clone, Copy)]
pub struct Profile {
    pub total: f64,
    pub write: (f64, f64),
    pub read: (f64, f64),
    pub swap: Option<(f64, f64)>,
}

const fn profile(
    total: f64,
    write: (f64, f64),
    read: (f64, f64),
    swap: Option<(f64, f64)>,
) -> Option<Profile> {
    Some(Profile { total, write, read, swap })
}

/// Tables 5 (ucbkim to ucbarpa) and 6 (ucbkim to ucbchip): Courier.
pub const TABLES_5_6: [[Option<Profile>; 8]; 2] = [
    [
        profile(13.7, (12.7, 93.0), (0.05, 0.2), None),
        profile(25.5, (13.8, 54.2), (6.4, 25.1), None),
        profile(21.5, (18.9, 88.1), (0.02, 0.1), None),
        profile(30.4, (19.6, 66.6), (8.1, 26.7), None),
        profile(36.4, (24.3, 66.8), (0.03, 0.1), Some((9.6, 24.4))),
        profile(43.2, (22.3, 51.6), (6.4, 14.8), Some((9.9, 24.9))),
        profile(159.6, (35.9, 22.5), (0.03, 0.0), Some((120.7, 75.6))),
        profile(140.5, (35.2, 25.1), (8.16, 5.8), Some((92.5, 65.9))),
    ],
    [
        profile(15.3, (14.2, 92.7), (0.04, 0.3), None),
        profile(26.9, (14.9, 55.6), (7.9, 29.5), None),
        profile(23.3, (20.7, 88.9), (0.04, 0.2), None),
        profile(32.8, (21.5, 65.5), (7.0, 21.2), None),
        profile(41.1, (27.2, 66.2), (0.04, 0.1), Some((10.8, 26.4))),
        profile(47.7, (26.6, 55.9), (7.3, 15.2), Some((9.0, 18.9))),
        profile(160.4, (48.0, 29.9), (0.03, 0.0), Some((109.1, 68.0))),
        profile(155.1, (48.2, 31.1), (7.3, 4.7), Some((94.8, 61.1))),
    ],
];

/// Tables 7 (ucbkim to ucbarpa) and 8 (ucbkim to ucbchip): PCourier.
pub const TABLES_7_8: [[Option<Profile>; 8]; 2] = [
    [
        profile(8.8, (7.9, 89.5), (0.03, 0.3), None),
        profile(20.1, (9.6, 47.0), (7.3, 36.3), None),
        profile(9.2, (7.5, 81.0), (0.03, 0.3), None),
        profile(20.2, (8.57, 42.0), (6.9, 33.8), None),
        profile(25.3, (12.2, 48.0), (0.02, 0.1), Some((8.8, 35.0))),
        profile(37.8, (12.3, 33.0), (9.0, 24.0), Some((9.8, 26.0))),
        None,
        None,
    ],
    [
        profile(9.2, (8.3, 90.0), (0.02, 0.2), None),
        profile(19.2, (10.4, 54.0), (6.0, 31.0), None),
        profile(9.7, (7.8, 80.0), (0.02, 0.2), None),
        profile(20.5, (10.4, 51.0), (6.7, 32.0), None),
        profile(25.2, (12.7, 50.0), (0.01, 0.0), Some((8.1, 32.0))),
        profile(34.1, (11.9, 35.0), (7.5, 22.0), Some((9.7, 27.0))),
        None,
        None,
    ],
];

/// A ratio for each test, and their mean with its standard deviation, where the paper gives it.
pub struct Ratios {
    pub tests: [Option<f64>; 8],
    pub mean: f64,
    pub deviation: Option<f64>,
}

/// Returns the ratios of the first tests. The others have none.
const fn ratios<const N: usize>(first: [f64; N], mean: f64, deviation: Option<f64>) -> Ratios {
    let mut tests = [None; 8];
    let mut row = 0;
    while row < N {
        tests[row] = Some(first[row]);
        row += 1;
    }
    Ratios { tests, mean, deviation }
}

/// Table 9: Courier ÷ PCourier and Courier ÷ corrected PCourier, kim to arpa and kim to rob.
pub const TABLE_9: [[Ratios; 2]; 2] = [
    [
        ratios([3.1, 1.6, 4.5, 1.3, 3.6, 0.84], 2.49, Some(1.3)),
        ratios([3.1, 4.5, 4.5, 2.7, 3.6, 5.9], 4.05, Some(1.06)),
    ],
    [
        ratios([2.9, 2.5, 4.7, 2.7, 2.9, 1.9], 2.9, Some(0.96)),
        ratios([2.9, 2.5, 4.7, 2.9, 2.9, 2.0], 3.0, Some(0.83)),
    ],
];

/// Table 10: elapsed time at 3 Mbit/s ÷ that at 10 Mbit/s, of Courier, PCourier and corrected PCourier.
pub const TABLE_10: [Ratios; 3] = [
    ratios([0.78, 1.49, 0.86, 0.98, 1.17, 1.17, 0.94, 0.88], 1.02, None),
    ratios([0.73, 2.3, 0.9, 2.1, 0.96, 2.4], 1.6, None),
    ratios([0.73, 0.85, 0.9, 1.04, 0.96, 0.84], 0.89, None),
];

/// Table 11: processor time of Courier ÷ PCourier, in total, for sending and for receiving.
pub const TABLE_11: [Ratios; 3] = [
    ratios([1.6, 1.3, 2.3, 1.5, 1.4, 1.1], 1.5, None),
    ratios([1.6, 1.4, 2.5, 2.3, 2.0, 1.8], 1.9, None),
    Ratios {
        tests: [None, Some(0.87), None, Some(1.2), None, Some(0.71), None, None],
        mean: 0.93,
        deviation: None,
    },
];

/// Section 4.4: processor seconds of 2,000 local calls that copy 400 and 4,000 bytes.
pub const LOCAL_CPU: [(usize, f64); 2] = [(400, 1.4), (4000, 13.7)];

/// Section 5: the most exchanges per second over a stream between two VAXes, measured by Hagmann.
pub const STREAM_EXCHANGES_PER_SECOND: f64 = 60.0;
