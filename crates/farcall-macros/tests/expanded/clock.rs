pub(crate) trait Clock: ::core::marker::Send + ::core::marker::Sync + 'static {
    fn now(&self, zone: &str, of: &[u32]) -> farcall::Result<u64, NoSuchZone>;
}
/** The user-stub of [`Clock`]: implements it by calling the server that it is bound to.

Cheap to clone; clones share the binding, and any number of threads may call at once.*/
#[derive(Clone, Debug)]
pub(crate) struct ClockClient {
    binding: ::farcall::stub::Binding,
}
impl ClockClient {
    /// Returns a stub with the same binding and a deadline for every call through it. The procedure
    /// and the calling context can set deadlines too; the earliest counts.
    #[must_use = "the stub that it is called on keeps its own deadline"]
    pub fn within(&self, deadline: ::core::time::Duration) -> Self {
        Self {
            binding: self.binding.within(deadline),
        }
    }
    /// Returns a stub whose calls wait for a server: a call that did not run because its server drains,
    /// is gone, or is not listed, is made again until a server takes it, or until its deadline.
    #[must_use = "the stub that it is called on does not wait"]
    pub fn wait_for_server(&self) -> Self {
        Self {
            binding: self.binding.wait_for_server(),
        }
    }
    /// The procedures of [`Clock`] as calls that are started and not yet waited for: each gives a [`Pending`](farcall::Pending).
    pub fn start(&self) -> ClockStart<'_> {
        ClockStart {
            binding: &self.binding,
        }
    }
    /// Returns the binding of the stub.
    pub fn binding(&self) -> &::farcall::stub::Binding {
        &self.binding
    }
}
impl ::core::convert::From<::farcall::stub::Binding> for ClockClient {
    fn from(binding: ::farcall::stub::Binding) -> Self {
        Self { binding }
    }
}
impl ::farcall::stub::Client for ClockClient {
    type Multi<M> = ClockMulti<M>;
    type Prepare = ClockPrepare;
    fn binding(&self) -> &::farcall::stub::Binding {
        &self.binding
    }
    fn multi<M>(members: ::farcall::multi::Members) -> ClockMulti<M> {
        ClockMulti {
            members,
            kind: ::core::marker::PhantomData,
        }
    }
}
#[allow(deprecated)]
impl Clock for ClockClient {
    fn now(&self, zone: &str, of: &[u32]) -> farcall::Result<u64, NoSuchZone> {
        self.binding
            .call::<
                u64,
                NoSuchZone,
            >(
                &<dyn Clock as ::farcall::stub::Interface>::PROCEDURES[0usize],
                &|__arguments| {
                    ::farcall::stub::argument(
                        "now",
                        "zone",
                        ::farcall::xdr::Encode::encode(zone, __arguments),
                    )?;
                    ::farcall::stub::argument(
                        "now",
                        "of",
                        ::farcall::xdr::Encode::encode(of, __arguments),
                    )?;
                    ::core::result::Result::Ok(())
                },
            )
    }
}
/// Starts calls of [`Clock`] without waiting for them; made by [`ClockClient::start`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockStart<'a> {
    binding: &'a ::farcall::stub::Binding,
}
#[allow(non_snake_case)]
impl ClockStart<'_> {
    /// Starts [`Clock::now`].
    pub fn now(&self, zone: &str, of: &[u32]) -> ::farcall::Pending<u64, NoSuchZone> {
        self.binding
            .start::<
                u64,
                NoSuchZone,
            >(
                &<dyn Clock as ::farcall::stub::Interface>::PROCEDURES[0usize],
                &|__arguments| {
                    ::farcall::stub::argument(
                        "now",
                        "zone",
                        ::farcall::xdr::Encode::encode(zone, __arguments),
                    )?;
                    ::farcall::stub::argument(
                        "now",
                        "of",
                        ::farcall::xdr::Encode::encode(of, __arguments),
                    )?;
                    ::core::result::Result::Ok(())
                },
            )
    }
}
/// Calls every member of a group of [`Clock`]s; made by [`Group::multi`](farcall::Group::multi).
#[derive(Clone, Debug)]
pub(crate) struct ClockMulti<M> {
    members: ::farcall::multi::Members,
    kind: ::core::marker::PhantomData<fn() -> M>,
}
#[allow(non_snake_case)]
impl<M> ClockMulti<M> {
    /// Calls [`Clock::now`] of every member.
    pub fn now(&self, zone: &str, of: &[u32]) -> ::farcall::Multi<u64, NoSuchZone, M> {
        let __prepared = ClockPrepare.now(zone, of);
        ::farcall::Multi::new(::core::clone::Clone::clone(&self.members), __prepared)
    }
}
/// Encodes calls of [`Clock`] that are not made yet, for [`Group::multi_each`](farcall::Group::multi_each).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClockPrepare;
#[allow(non_snake_case)]
impl ClockPrepare {
    /// Encodes the arguments of [`Clock::now`].
    pub fn now(
        &self,
        zone: &str,
        of: &[u32],
    ) -> ::farcall::multi::Prepared<u64, NoSuchZone> {
        ::farcall::multi::Prepared::new(
            &<dyn Clock as ::farcall::stub::Interface>::PROCEDURES[0usize],
            &|__arguments| {
                ::farcall::stub::argument(
                    "now",
                    "zone",
                    ::farcall::xdr::Encode::encode(zone, __arguments),
                )?;
                ::farcall::stub::argument(
                    "now",
                    "of",
                    ::farcall::xdr::Encode::encode(of, __arguments),
                )?;
                ::core::result::Result::Ok(())
            },
        )
    }
}
#[allow(deprecated, unused_mut)]
impl ::farcall::stub::Interface for dyn Clock {
    type Client = ClockClient;
    const NAME: &'static str = "clock-2";
    const PROCEDURES: &'static [::farcall::stub::Procedure] = &[
        ::farcall::stub::Procedure {
            number: 1u32,
            name: "now",
            interface: ::farcall::stub::InterfaceId::of("clock-2"),
            idempotent: false,
            blocking: false,
            uncancelled: false,
            exchanges: false,
            deadline: ::core::option::Option::None,
        },
    ];
    fn interface() -> &'static ::farcall::idl::Interface {
        static INTERFACE: ::std::sync::OnceLock<::farcall::idl::Interface> = ::std::sync::OnceLock::new();
        INTERFACE
            .get_or_init(|| {
                let mut __interface = ::farcall::idl::Interface::new("clock-2");
                __interface
                    .procedure(1u32, "now")
                    .argument::<::std::string::String>("zone")
                    .argument::<::std::vec::Vec<u32>>("of")
                    .result::<u64>()
                    .exception::<NoSuchZone>();
                __interface
            })
    }
    fn dispatch(
        &self,
        __procedure: u32,
        __arguments: &mut ::farcall::xdr::Decoder<'_>,
        __reply: &mut ::farcall::xdr::Encoder<'_>,
    ) -> ::farcall::stub::Dispatched {
        match __procedure {
            1u32 => {
                ::farcall::stub::serve::<
                    _,
                    u64,
                    NoSuchZone,
                >(
                    __arguments,
                    __reply,
                    |__arguments| ::core::result::Result::Ok((
                        ::farcall::stub::argument(
                            "now",
                            "zone",
                            <&str as ::farcall::xdr::Decode>::decode(__arguments),
                        )?,
                        ::farcall::stub::argument(
                            "now",
                            "of",
                            <::std::vec::Vec<
                                u32,
                            > as ::farcall::xdr::Decode>::decode(__arguments),
                        )?,
                    )),
                    |(zone, of)| <Self as Clock>::now(self, zone, &of),
                )
            }
            _ => ::farcall::stub::Dispatched::NoSuchProcedure,
        }
    }
}
const _: () = {
    ::farcall::stub::returns::<farcall::Result<u64, NoSuchZone>, u64, NoSuchZone>();
};
/** [`Clock`] for a server written with `async fn`: implement it, and export a [`ClockAsyncServer`].

Callers cannot tell the difference.*/
#[allow(non_snake_case)]
pub(crate) trait ClockAsync: ::core::marker::Send + ::core::marker::Sync + 'static {
    fn now(
        &self,
        zone: &str,
        of: &[u32],
    ) -> impl ::core::future::Future<
        Output = farcall::Result<u64, NoSuchZone>,
    > + ::core::marker::Send;
}
/// Exports a [`ClockAsync`] as the interface [`Clock`].
#[derive(Debug)]
pub(crate) struct ClockAsyncServer<S>(::std::sync::Arc<S>);
impl<S: ClockAsync> ClockAsyncServer<S> {
    /// Wraps the server.
    pub fn new(server: S) -> Self {
        Self(::std::sync::Arc::new(server))
    }
}
impl<S: ClockAsync> ::core::convert::From<::std::sync::Arc<S>> for ClockAsyncServer<S> {
    fn from(server: ::std::sync::Arc<S>) -> Self {
        Self(server)
    }
}
#[allow(deprecated)]
impl<S: ClockAsync> ::farcall::stub::AsyncServer for ClockAsyncServer<S> {
    type Interface = dyn Clock;
    fn dispatch(
        self: ::std::sync::Arc<Self>,
        __procedure: u32,
        __packet: ::std::vec::Vec<u8>,
    ) -> ::farcall::stub::AsyncDispatched {
        ::std::boxed::Box::pin(async move {
            let mut __reply = ::std::vec::Vec::new();
            let mut __arguments = ::farcall::xdr::Decoder::new(&__packet);
            let __dispatched = match __procedure {
                1u32 => {
                    match ::farcall::stub::arguments(
                        &mut __arguments,
                        |__arguments| ::core::result::Result::Ok((
                            ::farcall::stub::argument(
                                "now",
                                "zone",
                                <&str as ::farcall::xdr::Decode>::decode(__arguments),
                            )?,
                            ::farcall::stub::argument(
                                "now",
                                "of",
                                <::std::vec::Vec<
                                    u32,
                                > as ::farcall::xdr::Decode>::decode(__arguments),
                            )?,
                        )),
                    ) {
                        ::core::result::Result::Ok((zone, of)) => {
                            let __outcome = <S as ClockAsync>::now(&self.0, zone, &of)
                                .await;
                            ::farcall::stub::reply::<
                                u64,
                                NoSuchZone,
                            >(&mut ::farcall::xdr::Encoder::new(&mut __reply), __outcome)
                        }
                        ::core::result::Result::Err(__why) => {
                            ::farcall::stub::Dispatched::BadArguments(__why)
                        }
                    }
                }
                _ => ::farcall::stub::Dispatched::NoSuchProcedure,
            };
            (__dispatched, __reply)
        })
    }
}
