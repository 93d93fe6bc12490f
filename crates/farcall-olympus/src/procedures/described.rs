//! Binds to servers of ONC RPC and Courier, which do not describe themselves: a file describes them.

use farcall::CallFailed;
use farcall::dynamic::Dynamic;
use farcall_idl::x::Version;

/// Binds to the server of ONC RPC at an address, for the program that an `.x` file describes.
///
/// # Errors
/// When it is not found, or does not answer.
pub(super) fn bind_onc(
    settings: &farcall_onc::Builder,
    address: &str,
    version: &Version,
) -> Result<Dynamic, CallFailed> {
    let client = settings.find(address, version.program, version.version)?;
    Ok(Dynamic::described(client.program(version.program, version.version), version.spelled.clone()))
}

/// Binds to the server of Courier at an address, for the program that a `.cr` file describes.
///
/// # Errors
/// When it is not found, or does not answer.
pub(super) fn bind_courier(
    settings: &farcall_courier::Builder,
    address: &str,
    version: &Version,
) -> Result<Dynamic, CallFailed> {
    let binding = settings.bind(&version.interface, version.program, version.version, address)?;
    Ok(Dynamic::described(binding, version.spelled.clone()))
}
