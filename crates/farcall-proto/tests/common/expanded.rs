//! What `ring` makes of an AES-128 key: the keys of the rounds (FIPS 197, section 5.2), and the key of the
//! hash of GCM (NIST SP 800-38D) as it is kept for processors with carry-less multiplication. For searches in
//! memory; not fast, and not in constant time.

type Block = [u8; 16];

/// Multiplies in the field of AES.
fn times(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        product ^= if b & 1 != 0 { a } else { 0 };
        a = a << 1 ^ if a & 0x80 != 0 { 0x1b } else { 0 };
        b >>= 1;
    }
    product
}

/// The substitution of AES: the inverse, then an affine function.
fn substitute(byte: u8) -> u8 {
    let inverse = (1..=255).find(|other| times(byte, *other) == 1).unwrap_or(0);
    (0..5).fold(0x63, |sum, shift| sum ^ inverse.rotate_left(shift))
}

/// Returns the keys of the eleven rounds. The first is the key itself.
pub fn round_keys(key: &Block) -> Vec<Block> {
    let mut keys = vec![*key];
    let mut constant = 1;
    for round in 0..10 {
        let before: Block = keys[round];
        let mut word = [13, 14, 15, 12].map(|at| substitute(before[at]));
        word[0] ^= constant;
        constant = times(constant, 2);
        let mut next = before;
        for at in 0..16 {
            next[at] ^= if at < 4 { word[at] } else { next[at - 4] };
        }
        keys.push(next);
    }
    keys
}

fn encrypt(key: &Block, block: &Block) -> Block {
    let keys = round_keys(key);
    let add = |state: Block, round: usize| -> Block { std::array::from_fn(|at| state[at] ^ keys[round][at]) };
    let mut state = add(*block, 0);
    for round in 1..=10 {
        let shifted: Block = std::array::from_fn(|at| substitute(state[(at + at % 4 * 4) % 16]));
        let mix = |at: usize| {
            let column = |row: usize| shifted[at / 4 * 4 + (at + row) % 4];
            times(column(0), 2) ^ times(column(1), 3) ^ column(2) ^ column(3)
        };
        state = add(if round < 10 { std::array::from_fn(mix) } else { shifted }, round);
    }
    state
}

/// Returns both halves of the hash's key times x, as words of this machine.
pub fn hash_key(key: &Block) -> Vec<u8> {
    let hash = u128::from_be_bytes(encrypt(key, &[0; 16]));
    let carry = if hash >> 127 != 0 { 0xc200_0000_0000_0000_0000_0000_0000_0001 } else { 0 };
    (hash << 1 ^ carry).to_ne_bytes().to_vec()
}

/// The example of FIPS 197, appendix B.
#[test]
fn it_is_aes() {
    let hex = |text: &str| farcall_proto::dump::from_hex(text).unwrap().try_into().unwrap();
    let key = hex("2b7e151628aed2a6abf7158809cf4f3c");
    assert_eq!(round_keys(&key)[10], hex("d014f9a8c9ee2589e13f0cc8b6630ca6"));
    let encrypted = encrypt(&key, &hex("3243f6a8885a308d313198a2e0370734"));
    assert_eq!(encrypted, hex("3925841d02dc09fbdc118597196a0b32"));
}
