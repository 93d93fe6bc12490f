/// Values under keys.
pub trait Store: ::core::marker::Send + ::core::marker::Sync + 'static {
    /// The value under `key`.
    fn get(&self, key: &str) -> farcall::Result<u64, NoSuchKey>;
    fn put_all(
        &self,
        entries: &[Entry],
        data: &[u8],
        owner: &Owner,
        count: u32,
    ) -> farcall::Result<()>;
    fn size(&self) -> farcall::Result<u64>;
}
/** The user-stub of [`Store`]: implements it by calling the server that it is bound to.

Cheap to clone; clones share the binding, and any number of threads may call at once.*/
#[derive(Clone, Debug)]
pub struct StoreClient {
    binding: ::farcall::stub::Binding,
}
impl StoreClient {
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
    /// The procedures of [`Store`] as calls that are started and not yet waited for: each gives a [`Pending`](farcall::Pending).
    pub fn start(&self) -> StoreStart<'_> {
        StoreStart {
            binding: &self.binding,
        }
    }
    /// Returns the binding of the stub.
    pub fn binding(&self) -> &::farcall::stub::Binding {
        &self.binding
    }
}
impl ::core::convert::From<::farcall::stub::Binding> for StoreClient {
    fn from(binding: ::farcall::stub::Binding) -> Self {
        Self { binding }
    }
}
impl ::farcall::stub::Client for StoreClient {
    type Multi<M> = StoreMulti<M>;
    type Prepare = StorePrepare;
    fn binding(&self) -> &::farcall::stub::Binding {
        &self.binding
    }
    fn multi<M>(members: ::farcall::multi::Members) -> StoreMulti<M> {
        StoreMulti {
            members,
            kind: ::core::marker::PhantomData,
        }
    }
}
#[allow(deprecated)]
impl Store for StoreClient {
    fn get(&self, key: &str) -> farcall::Result<u64, NoSuchKey> {
        self.binding
            .call::<
                u64,
                NoSuchKey,
            >(
                &<dyn Store as ::farcall::stub::Interface>::PROCEDURES[0usize],
                &|__arguments| {
                    ::farcall::stub::argument(
                        "get",
                        "key",
                        ::farcall::xdr::Encode::encode(key, __arguments),
                    )?;
                    ::core::result::Result::Ok(())
                },
            )
    }
    fn put_all(
        &self,
        entries: &[Entry],
        data: &[u8],
        owner: &Owner,
        count: u32,
    ) -> farcall::Result<()> {
        self.binding
            .call::<
                (),
                ::farcall::Never,
            >(
                &<dyn Store as ::farcall::stub::Interface>::PROCEDURES[1usize],
                &|__arguments| {
                    ::farcall::stub::argument(
                        "put_all",
                        "entries",
                        ::farcall::xdr::Encode::encode(entries, __arguments),
                    )?;
                    ::farcall::stub::argument(
                        "put_all",
                        "data",
                        ::farcall::xdr::Encode::encode(data, __arguments),
                    )?;
                    ::farcall::stub::argument(
                        "put_all",
                        "owner",
                        ::farcall::xdr::Encode::encode(owner, __arguments),
                    )?;
                    ::farcall::stub::argument(
                        "put_all",
                        "count",
                        ::farcall::xdr::Encode::encode(&count, __arguments),
                    )?;
                    ::core::result::Result::Ok(())
                },
            )
    }
    fn size(&self) -> farcall::Result<u64> {
        self.binding
            .call::<
                u64,
                ::farcall::Never,
            >(
                &<dyn Store as ::farcall::stub::Interface>::PROCEDURES[2usize],
                &|_| ::core::result::Result::Ok(()),
            )
    }
}
/// Starts calls of [`Store`] without waiting for them; made by [`StoreClient::start`].
#[derive(Clone, Copy, Debug)]
pub struct StoreStart<'a> {
    binding: &'a ::farcall::stub::Binding,
}
#[allow(non_snake_case)]
impl StoreStart<'_> {
    /// Starts [`Store::get`].
    pub fn get(&self, key: &str) -> ::farcall::Pending<u64, NoSuchKey> {
        self.binding
            .start::<
                u64,
                NoSuchKey,
            >(
                &<dyn Store as ::farcall::stub::Interface>::PROCEDURES[0usize],
                &|__arguments| {
                    ::farcall::stub::argument(
                        "get",
                        "key",
                        ::farcall::xdr::Encode::encode(key, __arguments),
                    )?;
                    ::core::result::Result::Ok(())
                },
            )
    }
    /// Starts [`Store::put_all`].
    pub fn put_all(
        &self,
        entries: &[Entry],
        data: &[u8],
        owner: &Owner,
        count: u32,
    ) -> ::farcall::Pending<(), ::farcall::Never> {
        self.binding
            .start::<
                (),
                ::farcall::Never,
            >(
                &<dyn Store as ::farcall::stub::Interface>::PROCEDURES[1usize],
                &|__arguments| {
                    ::farcall::stub::argument(
                        "put_all",
                        "entries",
                        ::farcall::xdr::Encode::encode(entries, __arguments),
                    )?;
                    ::farcall::stub::argument(
                        "put_all",
                        "data",
                        ::farcall::xdr::Encode::encode(data, __arguments),
                    )?;
                    ::farcall::stub::argument(
                        "put_all",
                        "owner",
                        ::farcall::xdr::Encode::encode(owner, __arguments),
                    )?;
                    ::farcall::stub::argument(
                        "put_all",
                        "count",
                        ::farcall::xdr::Encode::encode(&count, __arguments),
                    )?;
                    ::core::result::Result::Ok(())
                },
            )
    }
    /// Starts [`Store::size`].
    pub fn size(&self) -> ::farcall::Pending<u64, ::farcall::Never> {
        self.binding
            .start::<
                u64,
                ::farcall::Never,
            >(
                &<dyn Store as ::farcall::stub::Interface>::PROCEDURES[2usize],
                &|_| ::core::result::Result::Ok(()),
            )
    }
}
/// Calls every member of a group of [`Store`]s; made by [`Group::multi`](farcall::Group::multi).
#[derive(Clone, Debug)]
pub struct StoreMulti<M> {
    members: ::farcall::multi::Members,
    kind: ::core::marker::PhantomData<fn() -> M>,
}
#[allow(non_snake_case)]
impl<M> StoreMulti<M> {
    /// Calls [`Store::get`] of every member.
    pub fn get(&self, key: &str) -> ::farcall::Multi<u64, NoSuchKey, M> {
        let __prepared = StorePrepare.get(key);
        ::farcall::Multi::new(::core::clone::Clone::clone(&self.members), __prepared)
    }
    /// Calls [`Store::put_all`] of every member.
    pub fn put_all(
        &self,
        entries: &[Entry],
        data: &[u8],
        owner: &Owner,
        count: u32,
    ) -> ::farcall::Multi<(), ::farcall::Never, M> {
        let __prepared = StorePrepare.put_all(entries, data, owner, count);
        ::farcall::Multi::new(::core::clone::Clone::clone(&self.members), __prepared)
    }
    /// Calls [`Store::size`] of every member.
    pub fn size(&self) -> ::farcall::Multi<u64, ::farcall::Never, M> {
        let __prepared = StorePrepare.size();
        ::farcall::Multi::new(::core::clone::Clone::clone(&self.members), __prepared)
    }
}
/// Encodes calls of [`Store`] that are not made yet, for [`Group::multi_each`](farcall::Group::multi_each).
#[derive(Clone, Copy, Debug, Default)]
pub struct StorePrepare;
#[allow(non_snake_case)]
impl StorePrepare {
    /// Encodes the arguments of [`Store::get`].
    pub fn get(&self, key: &str) -> ::farcall::multi::Prepared<u64, NoSuchKey> {
        ::farcall::multi::Prepared::new(
            &<dyn Store as ::farcall::stub::Interface>::PROCEDURES[0usize],
            &|__arguments| {
                ::farcall::stub::argument(
                    "get",
                    "key",
                    ::farcall::xdr::Encode::encode(key, __arguments),
                )?;
                ::core::result::Result::Ok(())
            },
        )
    }
    /// Encodes the arguments of [`Store::put_all`].
    pub fn put_all(
        &self,
        entries: &[Entry],
        data: &[u8],
        owner: &Owner,
        count: u32,
    ) -> ::farcall::multi::Prepared<(), ::farcall::Never> {
        ::farcall::multi::Prepared::new(
            &<dyn Store as ::farcall::stub::Interface>::PROCEDURES[1usize],
            &|__arguments| {
                ::farcall::stub::argument(
                    "put_all",
                    "entries",
                    ::farcall::xdr::Encode::encode(entries, __arguments),
                )?;
                ::farcall::stub::argument(
                    "put_all",
                    "data",
                    ::farcall::xdr::Encode::encode(data, __arguments),
                )?;
                ::farcall::stub::argument(
                    "put_all",
                    "owner",
                    ::farcall::xdr::Encode::encode(owner, __arguments),
                )?;
                ::farcall::stub::argument(
                    "put_all",
                    "count",
                    ::farcall::xdr::Encode::encode(&count, __arguments),
                )?;
                ::core::result::Result::Ok(())
            },
        )
    }
    /// Encodes the arguments of [`Store::size`].
    pub fn size(&self) -> ::farcall::multi::Prepared<u64, ::farcall::Never> {
        ::farcall::multi::Prepared::new(
            &<dyn Store as ::farcall::stub::Interface>::PROCEDURES[2usize],
            &|_| ::core::result::Result::Ok(()),
        )
    }
}
#[allow(deprecated, unused_mut)]
impl ::farcall::stub::Interface for dyn Store {
    type Client = StoreClient;
    const NAME: &'static str = "Store";
    const PROCEDURES: &'static [::farcall::stub::Procedure] = &[
        ::farcall::stub::Procedure {
            number: 1u32,
            name: "get",
            interface: ::farcall::stub::InterfaceId::of("Store"),
            idempotent: true,
            blocking: false,
            uncancelled: false,
            exchanges: false,
            deadline: ::core::option::Option::Some(
                ::core::time::Duration::from_millis(500u64),
            ),
        },
        ::farcall::stub::Procedure {
            number: 7u32,
            name: "put_all",
            interface: ::farcall::stub::InterfaceId::of("Store"),
            idempotent: false,
            blocking: true,
            uncancelled: false,
            exchanges: false,
            deadline: ::core::option::Option::None,
        },
        ::farcall::stub::Procedure {
            number: 8u32,
            name: "size",
            interface: ::farcall::stub::InterfaceId::of("Store"),
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
                let mut __interface = ::farcall::idl::Interface::new("Store")
                    .docs("Values under keys.");
                __interface
                    .procedure(1u32, "get")
                    .docs("The value under `key`.")
                    .argument::<::std::string::String>("key")
                    .result::<u64>()
                    .exception::<NoSuchKey>()
                    .idempotent()
                    .deadline_ms(500u64);
                __interface
                    .procedure(7u32, "put_all")
                    .argument::<::std::vec::Vec<Entry>>("entries")
                    .argument::<::std::vec::Vec<u8>>("data")
                    .argument::<Owner>("owner")
                    .argument::<u32>("count")
                    .result::<()>()
                    .blocking()
                    .pinned();
                __interface.procedure(8u32, "size").result::<u64>();
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
                    NoSuchKey,
                >(
                    __arguments,
                    __reply,
                    |__arguments| ::core::result::Result::Ok((
                        ::farcall::stub::argument(
                            "get",
                            "key",
                            <&str as ::farcall::xdr::Decode>::decode(__arguments),
                        )?,
                    )),
                    |(key,)| <Self as Store>::get(self, key),
                )
            }
            7u32 => {
                ::farcall::stub::serve::<
                    _,
                    (),
                    ::farcall::Never,
                >(
                    __arguments,
                    __reply,
                    |__arguments| ::core::result::Result::Ok((
                        ::farcall::stub::argument(
                            "put_all",
                            "entries",
                            <::std::vec::Vec<
                                Entry,
                            > as ::farcall::xdr::Decode>::decode(__arguments),
                        )?,
                        ::farcall::stub::argument(
                            "put_all",
                            "data",
                            <&[u8] as ::farcall::xdr::Decode>::decode(__arguments),
                        )?,
                        ::farcall::stub::argument(
                            "put_all",
                            "owner",
                            <Owner as ::farcall::xdr::Decode>::decode(__arguments),
                        )?,
                        ::farcall::stub::argument(
                            "put_all",
                            "count",
                            <u32 as ::farcall::xdr::Decode>::decode(__arguments),
                        )?,
                    )),
                    |(entries, data, owner, count)| <Self as Store>::put_all(
                        self,
                        &entries,
                        data,
                        &owner,
                        count,
                    ),
                )
            }
            8u32 => {
                ::farcall::stub::serve::<
                    _,
                    u64,
                    ::farcall::Never,
                >(
                    __arguments,
                    __reply,
                    |_| ::core::result::Result::Ok(()),
                    |()| <Self as Store>::size(self),
                )
            }
            _ => ::farcall::stub::Dispatched::NoSuchProcedure,
        }
    }
}
const _: () = {
    ::farcall::stub::returns::<farcall::Result<u64, NoSuchKey>, u64, NoSuchKey>();
    ::farcall::stub::returns::<farcall::Result<()>, (), ::farcall::Never>();
    ::farcall::stub::returns::<farcall::Result<u64>, u64, ::farcall::Never>();
};
