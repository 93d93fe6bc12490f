pub trait Notes: ::core::marker::Send + ::core::marker::Sync + 'static {
    /// Notes a line.
    fn note(&self, line: &str) -> farcall::Result<()>;
    fn lines(&self) -> farcall::Result<u64>;
    fn all(&self) -> farcall::Result<farcall::Stream<String>>;
}
/** The user-stub of [`Notes`]: implements it by calling the server that it is bound to.

Cheap to clone; clones share the binding, and any number of threads may call at once.*/
#[derive(Clone, Debug)]
pub struct NotesClient {
    binding: ::farcall::stub::Binding,
}
impl NotesClient {
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
    /// The procedures of [`Notes`] as calls that are started and not yet waited for: each gives a [`Pending`](farcall::Pending).
    pub fn start(&self) -> NotesStart<'_> {
        NotesStart {
            binding: &self.binding,
        }
    }
    /// Returns the binding of the stub.
    pub fn binding(&self) -> &::farcall::stub::Binding {
        &self.binding
    }
}
impl ::core::convert::From<::farcall::stub::Binding> for NotesClient {
    fn from(binding: ::farcall::stub::Binding) -> Self {
        Self { binding }
    }
}
impl ::farcall::stub::Client for NotesClient {
    type Multi<M> = NotesMulti<M>;
    type Prepare = NotesPrepare;
    fn binding(&self) -> &::farcall::stub::Binding {
        &self.binding
    }
    fn multi<M>(members: ::farcall::multi::Members) -> NotesMulti<M> {
        NotesMulti {
            members,
            kind: ::core::marker::PhantomData,
        }
    }
}
#[allow(deprecated)]
impl Notes for NotesClient {
    fn note(&self, line: &str) -> farcall::Result<()> {
        self.binding
            .call_oneway(
                &<dyn Notes as ::farcall::stub::Interface>::PROCEDURES[0usize],
                &|__arguments| {
                    ::farcall::stub::argument(
                        "note",
                        "line",
                        ::farcall::xdr::Encode::encode(line, __arguments),
                    )?;
                    ::core::result::Result::Ok(())
                },
            )
    }
    fn lines(&self) -> farcall::Result<u64> {
        self.binding
            .in_order(&<dyn Notes as ::farcall::stub::Interface>::PROCEDURES[1usize])?
            .call::<
                u64,
                ::farcall::Never,
            >(
                &<dyn Notes as ::farcall::stub::Interface>::PROCEDURES[1usize],
                &|_| ::core::result::Result::Ok(()),
            )
    }
    fn all(&self) -> farcall::Result<farcall::Stream<String>> {
        self.binding
            .in_order(&<dyn Notes as ::farcall::stub::Interface>::PROCEDURES[2usize])?
            .call::<
                farcall::Stream<String>,
                ::farcall::Never,
            >(
                &<dyn Notes as ::farcall::stub::Interface>::PROCEDURES[2usize],
                &|_| ::core::result::Result::Ok(()),
            )
    }
}
/// Starts calls of [`Notes`] without waiting for them; made by [`NotesClient::start`].
#[derive(Clone, Copy, Debug)]
pub struct NotesStart<'a> {
    binding: &'a ::farcall::stub::Binding,
}
#[allow(non_snake_case)]
impl NotesStart<'_> {
    /// Starts [`Notes::lines`].
    pub fn lines(&self) -> ::farcall::Pending<u64, ::farcall::Never> {
        self.binding
            .start_in_order::<
                u64,
                ::farcall::Never,
            >(
                &<dyn Notes as ::farcall::stub::Interface>::PROCEDURES[1usize],
                &|_| ::core::result::Result::Ok(()),
            )
    }
    /// Starts [`Notes::all`].
    pub fn all(&self) -> ::farcall::Pending<farcall::Stream<String>, ::farcall::Never> {
        self.binding
            .start_in_order::<
                farcall::Stream<String>,
                ::farcall::Never,
            >(
                &<dyn Notes as ::farcall::stub::Interface>::PROCEDURES[2usize],
                &|_| ::core::result::Result::Ok(()),
            )
    }
}
/// Calls every member of a group of [`Notes`]s; made by [`Group::multi`](farcall::Group::multi).
#[derive(Clone, Debug)]
pub struct NotesMulti<M> {
    members: ::farcall::multi::Members,
    kind: ::core::marker::PhantomData<fn() -> M>,
}
#[allow(non_snake_case)]
impl<M> NotesMulti<M> {
    /// Calls [`Notes::lines`] of every member.
    pub fn lines(&self) -> ::farcall::Multi<u64, ::farcall::Never, M> {
        let __prepared = NotesPrepare.lines();
        ::farcall::Multi::new(::core::clone::Clone::clone(&self.members), __prepared)
    }
    /// Calls [`Notes::all`] of every member.
    pub fn all(&self) -> ::farcall::Multi<farcall::Stream<String>, ::farcall::Never, M> {
        let __prepared = NotesPrepare.all();
        ::farcall::Multi::new(::core::clone::Clone::clone(&self.members), __prepared)
    }
}
/// Encodes calls of [`Notes`] that are not made yet, for [`Group::multi_each`](farcall::Group::multi_each).
#[derive(Clone, Copy, Debug, Default)]
pub struct NotesPrepare;
#[allow(non_snake_case)]
impl NotesPrepare {
    /// Encodes the arguments of [`Notes::lines`].
    pub fn lines(&self) -> ::farcall::multi::Prepared<u64, ::farcall::Never> {
        ::farcall::multi::Prepared::new(
            &<dyn Notes as ::farcall::stub::Interface>::PROCEDURES[1usize],
            &|_| ::core::result::Result::Ok(()),
        )
    }
    /// Encodes the arguments of [`Notes::all`].
    pub fn all(
        &self,
    ) -> ::farcall::multi::Prepared<farcall::Stream<String>, ::farcall::Never> {
        ::farcall::multi::Prepared::new(
            &<dyn Notes as ::farcall::stub::Interface>::PROCEDURES[2usize],
            &|_| ::core::result::Result::Ok(()),
        )
    }
}
#[allow(deprecated, unused_mut)]
impl ::farcall::stub::Interface for dyn Notes {
    type Client = NotesClient;
    const NAME: &'static str = "Notes";
    const PROCEDURES: &'static [::farcall::stub::Procedure] = &[
        ::farcall::stub::Procedure {
            number: 1u32,
            name: "note",
            interface: ::farcall::stub::InterfaceId::of("Notes"),
            idempotent: false,
            blocking: false,
            uncancelled: false,
            exchanges: false,
            deadline: ::core::option::Option::None,
        },
        ::farcall::stub::Procedure {
            number: 2u32,
            name: "lines",
            interface: ::farcall::stub::InterfaceId::of("Notes"),
            idempotent: false,
            blocking: false,
            uncancelled: false,
            exchanges: false,
            deadline: ::core::option::Option::None,
        },
        ::farcall::stub::Procedure {
            number: 3u32,
            name: "all",
            interface: ::farcall::stub::InterfaceId::of("Notes"),
            idempotent: false,
            blocking: true,
            uncancelled: false,
            exchanges: true,
            deadline: ::core::option::Option::None,
        },
    ];
    fn interface() -> &'static ::farcall::idl::Interface {
        static INTERFACE: ::std::sync::OnceLock<::farcall::idl::Interface> = ::std::sync::OnceLock::new();
        INTERFACE
            .get_or_init(|| {
                let mut __interface = ::farcall::idl::Interface::new("Notes");
                __interface
                    .procedure(1u32, "note")
                    .docs("Notes a line.")
                    .argument::<::std::string::String>("line")
                    .result::<()>()
                    .oneway();
                __interface.procedure(2u32, "lines").result::<u64>();
                __interface.procedure(3u32, "all").result::<farcall::Stream<String>>();
                __interface
            })
    }
    fn dispatch(
        &self,
        __procedure: u32,
        __arguments: &mut ::farcall::xdr::Decoder<'_>,
        __reply: &mut ::farcall::xdr::Encoder<'_>,
    ) -> ::farcall::stub::Dispatched {
        ::farcall::stub::serving(
            <Self as ::farcall::stub::Interface>::signals(),
            || match __procedure {
                1u32 => {
                    ::farcall::stub::serve::<
                        _,
                        (),
                        ::farcall::Never,
                    >(
                        __arguments,
                        __reply,
                        |__arguments| ::core::result::Result::Ok((
                            ::farcall::stub::argument(
                                "note",
                                "line",
                                <&str as ::farcall::xdr::Decode>::decode(__arguments),
                            )?,
                        )),
                        |(line,)| <Self as Notes>::note(self, line),
                    )
                }
                2u32 => {
                    ::farcall::stub::serve::<
                        _,
                        u64,
                        ::farcall::Never,
                    >(
                        __arguments,
                        __reply,
                        |_| ::core::result::Result::Ok(()),
                        |()| <Self as Notes>::lines(self),
                    )
                }
                3u32 => {
                    match ::farcall::stub::arguments(
                        __arguments,
                        |_| ::core::result::Result::Ok(()),
                    ) {
                        ::core::result::Result::Ok(()) => {
                            ::farcall::stub::serve_stream(
                                __reply,
                                <Self as Notes>::all(self),
                            )
                        }
                        ::core::result::Result::Err(__why) => {
                            ::farcall::stub::Dispatched::BadArguments(__why)
                        }
                    }
                }
                _ => ::farcall::stub::Dispatched::NoSuchProcedure,
            },
        )
    }
}
const _: () = {
    ::farcall::stub::returns::<farcall::Result<()>, (), ::farcall::Never>();
    ::farcall::stub::returns::<farcall::Result<u64>, u64, ::farcall::Never>();
    ::farcall::stub::returns::<
        farcall::Result<farcall::Stream<String>>,
        farcall::Stream<String>,
        ::farcall::Never,
    >();
};
