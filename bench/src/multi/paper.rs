//! Measurements of others: the paper's tables V and VIII to X, and RPC2 as it is today.
use farcall_bench_group::Distribution;

/// m and r in milliseconds.
#[derive(Clone, Copy)]
pub struct Figure {
    pub multi: f64,
    pub iterative: f64,
}

/// One row: a number of members, with 10, 20 and 50 ms of computation.
type Line = (usize, [(f64, f64); 3]);

/// Satyanarayanan & Siegel 1990, table VIII. It has 19 members instead of 20, as have the last columns of the
/// next tables.
const CONSTANT: &[Line] = &[
    (1, [(39.30, 38.30), (49.70, 47.30), (81.10, 78.80)]),
    (2, [(45.90, 76.50), (56.40, 96.10), (85.60, 158.35)]),
    (5, [(66.25, 191.55), (76.45, 242.40), (104.35, 391.20)]),
    (10, [(107.90, 385.10), (110.55, 482.05), (139.50, 784.80)]),
    (20, [(204.10, 740.85), (205.60, 915.55), (209.35, 1496.95)]),
    (50, [(766.10, 2744.00), (766.50, 3130.90), (796.90, 4912.50)]),
    (100, [(1705.90, 6017.20), (1780.40, 6844.00), (1429.50, 9947.00)]),
];

/// Table IX.
const NORMAL: &[Line] = &[
    (1, [(39.32, 37.75), (50.40, 47.60), (77.96, 78.40)]),
    (2, [(44.92, 75.92), (59.56, 99.88), (85.28, 155.96)]),
    (5, [(70.16, 208.52), (79.32, 261.68), (108.36, 414.24)]),
    (10, [(112.55, 478.10), (112.08, 530.00), (143.40, 824.76)]),
    (20, [(208.05, 956.55), (197.44, 1065.76), (224.00, 1698.70)]),
    (50, [(780.00, 2933.10), (771.79, 3266.20), (838.20, 4901.70)]),
    (100, [(1715.89, 6120.10), (1637.30, 7282.70), (1943.60, 10082.40)]),
];

/// Table X.
const EXPONENTIAL: &[Line] = &[
    (1, [(37.68, 36.80), (44.96, 44.64), (91.48, 85.20)]),
    (2, [(45.63, 72.80), (62.84, 91.96), (111.44, 158.96)]),
    (5, [(72.92, 206.48), (94.12, 250.64), (150.92, 395.52)]),
    (10, [(111.20, 439.65), (123.96, 521.96), (227.96, 788.36)]),
    (20, [(211.95, 843.95), (210.05, 1182.65), (288.90, 1654.80)]),
    (50, [(768.20, 2835.90), (787.05, 3166.40), (812.60, 4559.30)]),
    (100, [(1675.63, 6074.90), (1586.40, 7335.90), (1518.90, 10724.90)]),
];

/// RPC2 2.38 on two cores over loopback, servers that sleep a constant time: null, 10, 20 and 50 ms.
const RPC2: &[(usize, [(f64, f64); 4])] = &[
    (1, [(0.0435, 0.0427), (10.20, 10.20), (20.36, 20.53), (50.37, 50.34)]),
    (2, [(0.129, 0.172), (10.36, 20.54), (20.35, 40.59), (50.49, 100.8)]),
    (5, [(0.243, 0.414), (10.54, 51.53), (20.43, 101.6), (50.52, 251.9)]),
    (10, [(0.482, 0.877), (10.99, 102.0), (20.87, 203.2), (50.80, 506.1)]),
    (20, [(0.992, 1.820), (11.24, 204.2), (20.87, 405.8), (51.71, 1009.0)]),
    (50, [(1.927, 4.086), (12.36, 513.0), (22.09, 1015.0), (52.54, 2521.0)]),
    (100, [(3.465, 10.04), (15.69, 1027.0), (23.17, 2034.0), (56.35, 5042.0)]),
];

/// Returns the paper's figure. For the null call it gives one, in table V.
pub fn paper(members: usize, milliseconds: u32, distribution: Distribution) -> Option<Figure> {
    if milliseconds == 0 {
        return (members == 1).then_some(Figure { multi: 29.00, iterative: 27.80 });
    }
    let column = [10, 20, 50].iter().position(|&known| known == milliseconds)?;
    let table = match distribution {
        Distribution::Constant => CONSTANT,
        Distribution::Normal => NORMAL,
        Distribution::Exponential => EXPONENTIAL,
    };
    let (multi, iterative) = table.iter().find(|line| line.0 == members)?.1[column];
    Some(Figure { multi, iterative })
}

/// Returns the figures of RPC2 as it is today.
pub fn rpc2(members: usize, milliseconds: u32, distribution: Distribution) -> Option<Figure> {
    let column = [0, 10, 20, 50].iter().position(|&known| known == milliseconds)?;
    let line =
        RPC2.iter().find(|line| line.0 == members).filter(|_| distribution == Distribution::Constant)?;
    let (multi, iterative) = line.1[column];
    Some(Figure { multi, iterative })
}
