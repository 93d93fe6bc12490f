//! Definitions of widely used protocols, and the names of well-known programs.

/// Returns the `.x` file of a protocol: `nfs3`, `mount`, `rpcbind` or `vxi11`.
///
/// ```
/// assert!(farcall_onc::standard::definition("nfs3").is_some_and(|text| text.contains("NFSPROC3_READ")));
/// ```
pub fn definition(name: &str) -> Option<&'static str> {
    DEFINITIONS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// Returns the names that [`definition`] knows.
pub fn definitions() -> impl Iterator<Item = &'static str> {
    DEFINITIONS.iter().map(|(name, _)| *name)
}

const DEFINITIONS: &[(&str, &str)] = &[
    ("mount", include_str!("../x/mount.x")),
    ("nfs3", include_str!("../x/nfs3.x")),
    ("rpcbind", include_str!("../x/rpcbind.x")),
    ("vxi11", include_str!("../x/vxi11.x")),
];

/// Returns the common name of the program with this number.
pub fn program_name(number: u32) -> Option<&'static str> {
    PROGRAMS.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

/// Returns the number of the program with this common name.
pub fn program_number(name: &str) -> Option<u32> {
    PROGRAMS.iter().find(|(_, known)| *known == name).map(|(number, _)| *number)
}

/// Programs in use today, by the names of `/etc/rpc` (RFC 5531 section 14, IANA's registry of RPC program
/// numbers).
const PROGRAMS: &[(u32, &str)] = &[
    (100_000, "rpcbind"),
    (100_001, "rstatd"),
    (100_002, "rusersd"),
    (100_003, "nfs"),
    (100_004, "ypserv"),
    (100_005, "mountd"),
    (100_007, "ypbind"),
    (100_008, "walld"),
    (100_009, "yppasswdd"),
    (100_011, "rquotad"),
    (100_012, "sprayd"),
    (100_021, "nlockmgr"),
    (100_024, "status"),
    (100_028, "ypupdated"),
    (100_069, "ypxfrd"),
    (100_227, "nfs_acl"),
    (395_183, "vxi11_core"),
    (395_184, "vxi11_async"),
    (395_185, "vxi11_intr"),
];
