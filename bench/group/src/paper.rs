//! The figures of Satyanarayanan & Siegel 1990: tables V to X. Times are in milliseconds.
//!
//! Where the printed ratio of a row and its two times contradict one another, because a digit is illegible,
//! the digit is taken that makes them agree.

use crate::Distribution;

/// m, the time of one call of all, and r, the time of a call of each, with their standard deviations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// m.
    pub multi: f64,
    /// Its deviation.
    pub multi_deviation: f64,
    /// r.
    pub iterative: f64,
    /// Its deviation.
    pub iterative_deviation: f64,
}

/// The computation times of the tables' columns, in milliseconds.
pub const COMPUTATION: [u32; 3] = [10, 20, 50];

/// The figures of a row for each computation time. Where the paper has none, it prints a star.
pub type Line = (usize, [Option<Figure>; 3]);

const fn f(multi: f64, multi_deviation: f64, iterative: f64, iterative_deviation: f64) -> Option<Figure> {
    Some(Figure { multi, multi_deviation, iterative, iterative_deviation })
}

/// Table V: the null call of one server.
pub const NULL: Figure =
    Figure { multi: 29.00, multi_deviation: 0.97, iterative: 27.80, iterative_deviation: 1.01 };

/// Table VI: pack, cloh, servoh, clproc, unpack, sendtime.
pub const COMPONENTS: [(&str, f64); 6] = [
    ("pack", 0.56),
    ("cloh", 5.98),
    ("servoh", 13.69),
    ("clproc", 3.93),
    ("unpack", 0.20),
    ("sendtime", 5.15),
];

/// Table VII, with the number of servers of its rows: m and r by the model, for each computation time.
pub const PREDICTED: [(usize, [(f64, f64); 3]); 14] = [
    (1, [(34.36, 37.80), (44.36, 47.80), (74.36, 77.80)]),
    (2, [(39.32, 75.60), (49.32, 95.60), (79.32, 155.60)]),
    (5, [(54.20, 189.00), (64.20, 239.00), (94.20, 389.00)]),
    (7, [(71.33, 264.60), (74.12, 334.60), (104.12, 544.60)]),
    (10, [(101.66, 378.00), (101.66, 478.00), (119.00, 778.00)]),
    (13, [(131.99, 491.40), (131.99, 621.40), (133.88, 1011.40)]),
    (15, [(152.21, 567.00), (152.21, 717.00), (152.21, 1167.00)]),
    (17, [(172.43, 642.60), (172.43, 812.60), (172.43, 1322.60)]),
    (19, [(192.65, 718.20), (192.65, 908.20), (192.65, 1478.20)]),
    (20, [(202.76, 756.00), (202.76, 956.00), (202.76, 1556.00)]),
    (25, [(253.31, 945.00), (253.31, 1195.00), (253.31, 1945.00)]),
    (50, [(506.06, 1890.00), (506.06, 2390.00), (506.06, 3890.00)]),
    (75, [(758.81, 2835.00), (758.81, 3585.00), (758.81, 5835.00)]),
    (100, [(1011.56, 3780.00), (1011.56, 4780.00), (1011.56, 7780.00)]),
];

/// Table VIII: constant computation times.
pub const CONSTANT: &[Line] = &[
    (1, [f(39.30, 0.73, 38.30, 1.13), f(49.70, 1.08, 47.30, 1.34), f(81.10, 6.37, 78.80, 6.18)]),
    (2, [f(45.90, 0.85, 76.50, 1.10), f(56.40, 0.94, 96.10, 1.21), f(85.60, 7.70, 158.35, 7.43)]),
    (5, [f(66.25, 1.07, 191.55, 2.19), f(76.45, 0.94, 242.40, 4.08), f(104.35, 7.63, 391.20, 3.52)]),
    (7, [f(79.80, 1.15, 268.70, 3.77), f(89.90, 1.02, 336.25, 3.35), f(120.95, 8.68, 549.75, 6.56)]),
    (10, [f(107.90, 1.21, 385.10, 11.50), f(110.55, 1.10, 482.05, 7.78), f(139.50, 7.90, 784.80, 9.57)]),
    (13, [f(140.10, 1.07, 500.80, 9.51), f(139.95, 1.00, 627.35, 7.74), f(161.40, 7.24, 1046.30, 37.60)]),
    (15, [f(161.30, 1.08, 579.10, 12.82), f(161.35, 1.23, 725.95, 8.20), f(175.20, 9.00, 1179.25, 14.02)]),
    (17, [f(182.40, 0.99, 654.10, 10.47), f(183.35, 1.50, 820.05, 8.31), f(188.75, 10.07, 1337.50, 12.52)]),
    (19, [f(204.10, 1.07, 740.85, 22.37), f(205.60, 2.52, 915.55, 55.51), f(209.35, 10.62, 1496.95, 17.00)]),
    (
        50,
        [
            f(766.10, 26.30, 2744.00, 73.36),
            f(766.50, 20.28, 3130.90, 59.34),
            f(796.90, 26.21, 4912.50, 255.90),
        ],
    ),
    (75, [None, f(1225.20, 114.13, 4985.53, 86.52), f(1331.20, 433.06, 7707.90, 245.59)]),
    (
        100,
        [
            f(1705.90, 27.00, 6017.20, 222.09),
            f(1780.40, 136.46, 6844.00, 246.76),
            f(1429.50, 217.27, 9947.00, 212.63),
        ],
    ),
];

/// Table IX: normally distributed computation times.
pub const NORMAL: &[Line] = &[
    (1, [f(39.32, 1.11, 37.75, 0.95), f(50.40, 6.42, 47.60, 1.00), f(77.96, 7.92, 78.40, 12.28)]),
    (2, [f(44.92, 1.29, 75.92, 1.58), f(59.56, 6.68, 99.88, 10.41), f(85.28, 7.74, 155.96, 12.06)]),
    (5, [f(70.16, 3.25, 208.52, 3.74), f(79.32, 2.98, 261.68, 5.75), f(108.36, 12.48, 414.24, 31.02)]),
    (10, [f(112.55, 3.97, 478.10, 16.40), f(112.08, 9.15, 530.00, 17.95), f(143.40, 10.01, 824.76, 19.72)]),
    (15, [f(162.75, 18.40, 747.75, 21.09), f(148.16, 2.19, 783.36, 20.76), f(185.55, 14.50, 1270.85, 30.83)]),
    (19, [None, None, f(224.00, 25.12, 1698.70, 42.18)]),
    (20, [f(208.05, 7.10, 956.55, 35.47), f(197.44, 2.16, 1065.76, 21.33), None]),
    (
        25,
        [f(247.48, 1.19, 1153.52, 18.49), f(248.96, 5.14, 1430.00, 93.75), f(258.04, 13.50, 2179.00, 47.62)],
    ),
    (
        50,
        [
            f(780.00, 34.57, 2933.10, 124.90),
            f(771.79, 8.56, 3266.20, 56.84),
            f(838.20, 34.70, 4901.70, 186.16),
        ],
    ),
    (
        75,
        [
            f(1474.30, 103.62, 4579.60, 57.35),
            f(1238.20, 177.80, 5351.07, 239.53),
            f(1581.50, 429.48, 7690.20, 277.17),
        ],
    ),
    (
        100,
        [
            f(1715.89, 28.35, 6120.10, 61.95),
            f(1637.30, 121.99, 7282.70, 403.44),
            f(1943.60, 1965.90, 10082.40, 248.46),
        ],
    ),
];

/// Table X: exponentially distributed computation times.
pub const EXPONENTIAL: &[Line] = &[
    (1, [f(37.68, 3.98, 36.80, 6.32), f(44.96, 5.14, 44.64, 5.42), f(91.48, 55.27, 85.20, 51.35)]),
    (2, [f(45.63, 4.14, 72.80, 5.35), f(62.84, 7.71, 91.96, 8.97), f(111.44, 63.78, 158.96, 73.82)]),
    (5, [f(72.92, 4.15, 206.48, 14.25), f(94.12, 7.01, 250.64, 27.30), f(150.92, 46.55, 395.52, 120.55)]),
    (10, [f(111.20, 2.17, 439.65, 22.78), f(123.96, 7.71, 521.96, 80.40), f(227.96, 92.85, 788.36, 115.91)]),
    (
        15,
        [f(162.90, 1.52, 626.70, 53.22), f(169.20, 12.97, 906.55, 82.43), f(249.80, 60.33, 1203.56, 237.48)],
    ),
    (19, [f(211.95, 12.15, 843.95, 54.43), None, None]),
    (20, [None, f(210.05, 13.55, 1182.65, 108.17), f(288.90, 72.33, 1654.80, 232.17)]),
    (25, [None, f(256.60, 20.49, 1381.30, 88.92), f(304.92, 78.89, 2175.48, 307.59)]),
    (
        50,
        [
            f(768.20, 10.75, 2835.90, 170.28),
            f(787.05, 14.77, 3166.40, 146.35),
            f(812.60, 110.29, 4559.30, 282.20),
        ],
    ),
    (
        75,
        [
            f(1358.11, 139.52, 4390.60, 94.70),
            f(1227.73, 148.51, 5272.80, 462.43),
            f(1015.63, 38.86, 7543.70, 521.72),
        ],
    ),
    (
        100,
        [
            f(1675.63, 39.54, 6074.90, 118.74),
            f(1586.40, 52.27, 7335.90, 419.85),
            f(1518.90, 212.51, 10724.90, 2397.54),
        ],
    ),
];

/// Retries as a percentage of all packets sent, as section VI-B3 has them: below 25 servers never more than
/// this.
pub const RETRIES_BELOW_25: f64 = 0.4;

/// Retries as a percentage of all packets sent, beyond 50 servers: sometimes as many as this.
pub const RETRIES_BEYOND_50: f64 = 25.0;

/// Returns what the paper says at most of the retries for this number of servers, in percent. From 25 to 50
/// servers it says only that their number increased.
pub fn retries(members: usize) -> Option<f64> {
    match members {
        ..25 => Some(RETRIES_BELOW_25),
        51.. => Some(RETRIES_BEYOND_50),
        _ => None,
    }
}

/// The time after which RPC2 sends a call again for the first time, in milliseconds. The paper does not tell
/// its settings. By RPC2's defaults, a call and six retries take 30 s together, each wait twice the one
/// before: 30 s / (1 + 2 + 4 + … + 64).
pub const FIRST_RETRY: f64 = 30_000.0 / 127.0;

/// How many replies pass the router in the time after which a call is sent again.
///
/// By table VII a hundred servers' calls (10 ms) take 1,012 ms, so that all their replies took 4.3 times
/// [`FIRST_RETRY`] to arrive. Those of 25 servers took 253 ms, 1.07 times, and beyond 25 servers retries
/// began. 25 replies in each such time make it 4 times for a hundred.
pub const REPLIES_IN_FIRST_RETRY: u32 = 25;

/// RPC2 2.38 on two cores over loopback, with servers that sleep a constant time: m and r for the null call,
/// and for 10, 20 and 50 ms.
pub const RPC2: &[(usize, [(f64, f64); 4])] = &[
    (1, [(0.0435, 0.0427), (10.20, 10.20), (20.36, 20.53), (50.37, 50.34)]),
    (2, [(0.129, 0.172), (10.36, 20.54), (20.35, 40.59), (50.49, 100.8)]),
    (5, [(0.243, 0.414), (10.54, 51.53), (20.43, 101.6), (50.52, 251.9)]),
    (10, [(0.482, 0.877), (10.99, 102.0), (20.87, 203.2), (50.80, 506.1)]),
    (20, [(0.992, 1.820), (11.24, 204.2), (20.87, 405.8), (51.71, 1009.0)]),
    (50, [(1.927, 4.086), (12.36, 513.0), (22.09, 1015.0), (52.54, 2521.0)]),
    (100, [(3.465, 10.04), (15.69, 1027.0), (23.17, 2034.0), (56.35, 5042.0)]),
];

/// Returns the table of this distribution.
pub fn table(distribution: Distribution) -> &'static [Line] {
    match distribution {
        Distribution::Constant => CONSTANT,
        Distribution::Normal => NORMAL,
        Distribution::Exponential => EXPONENTIAL,
    }
}

/// Returns the figure for members that compute. Where the table has 19 servers instead of 20, 19 is near
/// enough.
pub fn working(members: usize, milliseconds: u32, distribution: Distribution) -> Option<Figure> {
    let column = COMPUTATION.iter().position(|&known| known == milliseconds)?;
    let of = |members: usize| table(distribution).iter().find(|line| line.0 == members)?.1[column];
    of(members).or_else(|| of(if members == 20 { 19 } else { members }))
}

/// Returns m and r of RPC2 as it is today.
pub fn rpc2(members: usize, milliseconds: u32, distribution: Distribution) -> Option<(f64, f64)> {
    let column = [0, 10, 20, 50].iter().position(|&known| known == milliseconds)?;
    let line =
        RPC2.iter().find(|line| line.0 == members).filter(|_| distribution == Distribution::Constant)?;
    Some(line.1[column])
}

/// The model of section VI-A: m of a number of members by the components of table VI, in milliseconds.
pub fn model(components: &[f64; 6], members: usize, computation: f64) -> f64 {
    let [pack, cloh, servoh, clproc, unpack, sendtime] = *components;
    let n = members as f64;
    let waits = (servoh + computation - (n - 1.0) * sendtime).max(0.0);
    pack + n * cloh + waits + n * clproc + n * unpack
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_gives_the_papers_predictions() {
        let components = COMPONENTS.map(|(_, milliseconds)| milliseconds);
        for (members, columns) in PREDICTED {
            for ((multi, iterative), computation) in columns.into_iter().zip(COMPUTATION) {
                let computation = f64::from(computation);
                let predicted = model(&components, members, computation);
                assert!((predicted - multi).abs() < 0.02, "{members}, {computation}: {predicted} {multi}");
                let one_by_one = members as f64 * (NULL.iterative + computation);
                assert!((one_by_one - iterative).abs() < 0.02, "{members}, {computation}: {one_by_one}");
            }
        }
    }

    #[test]
    fn replies_take_as_many_retransmission_times_as_in_the_paper() {
        for (members, columns) in PREDICTED.into_iter().filter(|line| line.0 >= 20) {
            let theirs = columns[0].0 / FIRST_RETRY;
            let ours = members as f64 / f64::from(REPLIES_IN_FIRST_RETRY);
            assert!((theirs / ours - 1.0).abs() < 0.1, "{members} servers: {theirs} {ours}");
        }
        assert_eq!([24, 25, 50, 51].map(retries), [Some(0.4), None, None, Some(25.0)]);
    }

    #[test]
    fn the_tables_have_the_papers_rows() {
        let rows = |table: &[Line]| table.iter().map(|line| line.0).collect::<Vec<_>>();
        assert_eq!(rows(CONSTANT), [1, 2, 5, 7, 10, 13, 15, 17, 19, 50, 75, 100]);
        for table in [NORMAL, EXPONENTIAL] {
            assert_eq!(rows(table), [1, 2, 5, 10, 15, 19, 20, 25, 50, 75, 100]);
        }
        assert_eq!(working(20, 10, Distribution::Constant), working(19, 10, Distribution::Constant));
        assert_eq!(rpc2(10, 0, Distribution::Constant), Some((0.482, 0.877)));
    }
}
