//! Interfaces in unusual spellings: made by a declarative macro, or with names in scope that generated code
//! might use.
#![deny(missing_docs, unused, deprecated)]

use std::sync::Arc;

use farcall::stub::local;

/// The crate `farcall` under another name.
mod elsewhere {
    pub use farcall as rpc;
}

macro_rules! getter {
    ($(#[$docs:meta])* $name:ident, $method:ident($argument:ident: $ty:ty) -> $value:ty) => {
        $(#[$docs])*
        #[farcall::interface(async)]
        pub trait $name {
            /// Returns the value.
            fn $method(&self, $argument: $ty) -> farcall::Result<$value>;
            /// Returns all values.
            fn all(&self, values: &[$value]) -> farcall::Result<Vec<$value>>;
        }
    };
}

getter! {
    /// An interface made by a macro.
    Getter, get(key: &str) -> u64
}

/// An interface without procedures.
#[farcall::interface(async)]
pub trait Empty {}

/// An interface made through another path.
#[farcall::interface(crate = crate::spellings::elsewhere::rpc, name = "Other")]
pub trait Renamed: Send + Sync + 'static {
    /// Has arguments with the names that a stub might use itself.
    fn odd(&self, encoder: u32, reply: &str, procedure: &[u8], binding: u8) -> farcall::Result<u32>;
}

// Generated code must not stumble over these names.
#[allow(dead_code)]
struct Ok;
#[allow(dead_code)]
struct Vec2;
#[allow(dead_code)]
type Option = ();
#[allow(dead_code)]
type Duration = ();

struct Server;

impl Getter for Server {
    fn get(&self, key: &str) -> farcall::Result<u64> {
        Result::Ok(key.len() as u64)
    }
    fn all(&self, values: &[u64]) -> farcall::Result<Vec<u64>> {
        Result::Ok(values.to_vec())
    }
}

impl Empty for Server {}

impl Renamed for Server {
    fn odd(&self, encoder: u32, reply: &str, procedure: &[u8], binding: u8) -> farcall::Result<u32> {
        Result::Ok(encoder + reply.len() as u32 + procedure.len() as u32 + u32::from(binding))
    }
}

#[test]
fn all_are_served() {
    assert_eq!(local::<dyn Getter>(Arc::new(Server)).get("four"), Result::Ok(4));
    assert_eq!(local::<dyn Getter>(Arc::new(Server)).all(&[1, 2]), Result::Ok(vec![1, 2]));
    assert_eq!(local::<dyn Renamed>(Arc::new(Server)).odd(1, "ab", &[0; 3], 4), Result::Ok(10));
    let _: EmptyClient = local::<dyn Empty>(Arc::new(Server));
}
