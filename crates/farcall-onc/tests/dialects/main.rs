//! A small file of each dialect of `.x` files: its Rust, the bytes of its values, calls of its procedures.
//!
//! `farcall-idl/tests/model/dialects.rs` holds the files against real ones, and `farcall-cli`'s tests compile
//! what `farcall gen` makes of them.

#![cfg(target_os = "linux")]

mod bytes;
mod calls;

mod c_types {
    farcall::include_x!("tests/dialects/c_types.x");
}

mod constants {
    farcall::include_x!("tests/dialects/constants.x");
}

mod headers {
    farcall::include_x!("tests/dialects/headers.x");
}

mod line_ends {
    farcall::include_x!("tests/dialects/line_ends.x");
}

mod many_arguments {
    farcall::include_x!("tests/dialects/many_arguments.x");
}

mod names {
    farcall::include_x!("tests/dialects/names.x");
}

mod namespaces {
    farcall::include_x!("tests/dialects/namespaces.x");
}

mod packages {
    farcall::include_x!("tests/dialects/packages.x");
}

mod pointers {
    farcall::include_x!("tests/dialects/pointers.x");
}

mod pragmas {
    farcall::include_x!("tests/dialects/pragmas.x");
}

mod preprocessed {
    farcall::include_x!("tests/dialects/preprocessed.x");
}

mod zero_copy {
    farcall::include_x!("tests/dialects/zero_copy.x");
}
