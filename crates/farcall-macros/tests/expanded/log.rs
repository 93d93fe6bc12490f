pub trait Log: ::core::marker::Send + ::core::marker::Sync + 'static {
    /// Sends the entries from `from` on.
    fn entries(
        &self,
        from: u64,
    ) -> farcall::Result<farcall::Stream<Entry, Truncated>, Truncated>;
    fn append(
        &self,
        topic: &str,
        entries: farcall::Stream<Entry>,
    ) -> farcall::Result<u64>;
}
/** The user-stub of [`Log`]: implements it by calling the server that it is bound to.

Cheap to clone; clones share the binding, and any number of threads may call at once.*/
#[derive(Clone, Debug)]
pub struct LogClient {
    binding: ::farcall::stub::Binding,
}
impl LogClient {
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
    /// Returns a stub with the same binding and a handler that answers the signals raised in its calls.
    /// Handlers that are added later are asked first.
    #[must_use = "the stub that it is called on keeps its own handlers"]
    pub fn catching(
        &self,
        handler: impl LogHandler + ::core::marker::Send + ::core::marker::Sync + 'static,
    ) -> Self {
        Self {
            binding: self.binding.catching(__LogHandling(handler)),
        }
    }
    /// The procedures of [`Log`] as calls that are started and not yet waited for: each gives a [`Pending`](farcall::Pending).
    pub fn start(&self) -> LogStart<'_> {
        LogStart { binding: &self.binding }
    }
    /// Returns the binding of the stub.
    pub fn binding(&self) -> &::farcall::stub::Binding {
        &self.binding
    }
}
impl ::core::convert::From<::farcall::stub::Binding> for LogClient {
    fn from(binding: ::farcall::stub::Binding) -> Self {
        Self { binding }
    }
}
impl ::farcall::stub::Client for LogClient {
    type Multi<M> = LogMulti<M>;
    type Prepare = LogPrepare;
    fn binding(&self) -> &::farcall::stub::Binding {
        &self.binding
    }
    fn multi<M>(members: ::farcall::multi::Members) -> LogMulti<M> {
        LogMulti {
            members,
            kind: ::core::marker::PhantomData,
        }
    }
}
#[allow(deprecated)]
impl Log for LogClient {
    fn entries(
        &self,
        from: u64,
    ) -> farcall::Result<farcall::Stream<Entry, Truncated>, Truncated> {
        self.binding
            .call::<
                farcall::Stream<Entry, Truncated>,
                Truncated,
            >(
                &<dyn Log as ::farcall::stub::Interface>::PROCEDURES[0usize],
                &|__arguments| {
                    ::farcall::stub::argument(
                        "entries",
                        "from",
                        ::farcall::xdr::Encode::encode(&from, __arguments),
                    )?;
                    ::core::result::Result::Ok(())
                },
            )
    }
    fn append(
        &self,
        topic: &str,
        entries: farcall::Stream<Entry>,
    ) -> farcall::Result<u64> {
        self.binding
            .call_sending::<
                u64,
                ::farcall::Never,
            >(
                &<dyn Log as ::farcall::stub::Interface>::PROCEDURES[1usize],
                &|__arguments| {
                    ::farcall::stub::argument(
                        "append",
                        "topic",
                        ::farcall::xdr::Encode::encode(topic, __arguments),
                    )?;
                    ::farcall::stub::encode_stream(__arguments)?;
                    ::core::result::Result::Ok(())
                },
                entries.into_argument(),
            )
    }
}
/// Starts calls of [`Log`] without waiting for them; made by [`LogClient::start`].
#[derive(Clone, Copy, Debug)]
pub struct LogStart<'a> {
    binding: &'a ::farcall::stub::Binding,
}
#[allow(non_snake_case)]
impl LogStart<'_> {
    /// Starts [`Log::entries`].
    pub fn entries(
        &self,
        from: u64,
    ) -> ::farcall::Pending<farcall::Stream<Entry, Truncated>, Truncated> {
        self.binding
            .start::<
                farcall::Stream<Entry, Truncated>,
                Truncated,
            >(
                &<dyn Log as ::farcall::stub::Interface>::PROCEDURES[0usize],
                &|__arguments| {
                    ::farcall::stub::argument(
                        "entries",
                        "from",
                        ::farcall::xdr::Encode::encode(&from, __arguments),
                    )?;
                    ::core::result::Result::Ok(())
                },
            )
    }
    /// Starts [`Log::append`].
    pub fn append(
        &self,
        topic: &str,
        entries: farcall::Stream<Entry>,
    ) -> ::farcall::Pending<u64, ::farcall::Never> {
        self.binding
            .start_sending::<
                u64,
                ::farcall::Never,
            >(
                &<dyn Log as ::farcall::stub::Interface>::PROCEDURES[1usize],
                &|__arguments| {
                    ::farcall::stub::argument(
                        "append",
                        "topic",
                        ::farcall::xdr::Encode::encode(topic, __arguments),
                    )?;
                    ::farcall::stub::encode_stream(__arguments)?;
                    ::core::result::Result::Ok(())
                },
                entries.into_argument(),
            )
    }
}
/// Calls every member of a group of [`Log`]s; made by [`Group::multi`](farcall::Group::multi).
#[derive(Clone, Debug)]
pub struct LogMulti<M> {
    members: ::farcall::multi::Members,
    kind: ::core::marker::PhantomData<fn() -> M>,
}
#[allow(non_snake_case)]
impl<M> LogMulti<M> {
    /// Returns the same group with a handler for each member, which answers the signals raised in the
    /// member's calls. `handler` makes it of the member's name.
    #[must_use = "the group that it is called on keeps its own handlers"]
    pub fn catching<H>(&self, handler: impl ::core::ops::Fn(&str) -> H) -> Self
    where
        H: LogHandler + ::core::marker::Send + ::core::marker::Sync + 'static,
    {
        Self {
            members: self.members.catching(|member| __LogHandling(handler(member))),
            ..*self
        }
    }
    /// Calls [`Log::entries`] of every member.
    pub fn entries(
        &self,
        from: u64,
    ) -> ::farcall::Multi<farcall::Stream<Entry, Truncated>, Truncated, M> {
        let __prepared = LogPrepare.entries(from);
        ::farcall::Multi::new(::core::clone::Clone::clone(&self.members), __prepared)
    }
}
/// Encodes calls of [`Log`] that are not made yet, for [`Group::multi_each`](farcall::Group::multi_each).
#[derive(Clone, Copy, Debug, Default)]
pub struct LogPrepare;
#[allow(non_snake_case)]
impl LogPrepare {
    /// Encodes the arguments of [`Log::entries`].
    pub fn entries(
        &self,
        from: u64,
    ) -> ::farcall::multi::Prepared<farcall::Stream<Entry, Truncated>, Truncated> {
        ::farcall::multi::Prepared::new(
            &<dyn Log as ::farcall::stub::Interface>::PROCEDURES[0usize],
            &|__arguments| {
                ::farcall::stub::argument(
                    "entries",
                    "from",
                    ::farcall::xdr::Encode::encode(&from, __arguments),
                )?;
                ::core::result::Result::Ok(())
            },
        )
    }
    /// Encodes the arguments of [`Log::append`].
    pub fn append(
        &self,
        topic: &str,
        entries: farcall::Stream<Entry>,
    ) -> ::farcall::multi::Prepared<u64, ::farcall::Never> {
        ::farcall::multi::Prepared::with_stream(
            &<dyn Log as ::farcall::stub::Interface>::PROCEDURES[1usize],
            &|__arguments| {
                ::farcall::stub::argument(
                    "append",
                    "topic",
                    ::farcall::xdr::Encode::encode(topic, __arguments),
                )?;
                ::farcall::stub::encode_stream(__arguments)?;
                ::core::result::Result::Ok(())
            },
            entries.into_argument(),
        )
    }
}
#[allow(deprecated, unused_mut)]
impl ::farcall::stub::Interface for dyn Log {
    type Client = LogClient;
    const NAME: &'static str = "Log";
    const PROCEDURES: &'static [::farcall::stub::Procedure] = &[
        ::farcall::stub::Procedure {
            number: 1u32,
            name: "entries",
            interface: ::farcall::stub::InterfaceId::of("Log"),
            idempotent: false,
            blocking: true,
            uncancelled: false,
            exchanges: true,
            deadline: ::core::option::Option::None,
        },
        ::farcall::stub::Procedure {
            number: 2u32,
            name: "append",
            interface: ::farcall::stub::InterfaceId::of("Log"),
            idempotent: false,
            blocking: true,
            uncancelled: false,
            exchanges: true,
            deadline: ::core::option::Option::None,
        },
    ];
    fn signals() -> &'static [::farcall::stub::Signal] {
        static SIGNALS: ::std::sync::OnceLock<
            ::std::vec::Vec<::farcall::stub::Signal>,
        > = ::std::sync::OnceLock::new();
        SIGNALS
            .get_or_init(|| {
                ::farcall::stub::Signal::all(
                    <Self as ::farcall::stub::Interface>::interface(),
                )
            })
    }
    fn interface() -> &'static ::farcall::idl::Interface {
        static INTERFACE: ::std::sync::OnceLock<::farcall::idl::Interface> = ::std::sync::OnceLock::new();
        INTERFACE
            .get_or_init(|| {
                let mut __interface = ::farcall::idl::Interface::new("Log");
                __interface
                    .procedure(1u32, "entries")
                    .docs("Sends the entries from `from` on.")
                    .argument::<u64>("from")
                    .result::<farcall::Stream<Entry, Truncated>>()
                    .exception::<Truncated>();
                __interface
                    .procedure(2u32, "append")
                    .argument::<::std::string::String>("topic")
                    .argument::<farcall::Stream<Entry>>("entries")
                    .result::<u64>();
                __interface
                    .signal("full")
                    .docs(
                        "The log is full. The answer is how many entries may be dropped.",
                    )
                    .argument::<u64>("entries")
                    .argument::<::std::string::String>("topic")
                    .result::<u64>();
                __interface
                    .signal("note")
                    .argument::<::std::string::String>("text")
                    .result::<()>();
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
                    match ::farcall::stub::arguments(
                        __arguments,
                        |__arguments| ::core::result::Result::Ok((
                            ::farcall::stub::argument(
                                "entries",
                                "from",
                                <u64 as ::farcall::xdr::Decode>::decode(__arguments),
                            )?,
                        )),
                    ) {
                        ::core::result::Result::Ok((from,)) => {
                            ::farcall::stub::serve_stream(
                                __reply,
                                <Self as Log>::entries(self, from),
                            )
                        }
                        ::core::result::Result::Err(__why) => {
                            ::farcall::stub::Dispatched::BadArguments(__why)
                        }
                    }
                }
                2u32 => {
                    ::farcall::stub::serve::<
                        _,
                        u64,
                        ::farcall::Never,
                    >(
                        __arguments,
                        __reply,
                        |__arguments| ::core::result::Result::Ok((
                            ::farcall::stub::argument(
                                "append",
                                "topic",
                                <&str as ::farcall::xdr::Decode>::decode(__arguments),
                            )?,
                            ::farcall::stub::argument(
                                "append",
                                "entries",
                                <farcall::Stream<
                                    Entry,
                                > as ::farcall::xdr::Decode>::decode(__arguments),
                            )?,
                        )),
                        |(topic, entries)| <Self as Log>::append(self, topic, entries),
                    )
                }
                _ => ::farcall::stub::Dispatched::NoSuchProcedure,
            },
        )
    }
}
const _: () = {
    ::farcall::stub::returns::<
        farcall::Result<farcall::Stream<Entry, Truncated>, Truncated>,
        farcall::Stream<Entry, Truncated>,
        Truncated,
    >();
    ::farcall::stub::returns::<farcall::Result<u64>, u64, ::farcall::Never>();
};
/** Raises the signals of [`Log`] in the call that the calling thread serves. Each waits until the
caller resumes it with a value, or unwinds the call.*/
#[derive(Clone, Copy, Debug)]
pub enum LogSignals {}
impl LogSignals {
    /// The log is full. The answer is how many entries may be dropped.
    ///
    /// # Errors
    /// When the caller unwinds the call, or has no handler that answers the signal.
    pub fn full(
        entries: u64,
        topic: &str,
    ) -> ::core::result::Result<u64, ::farcall::Unwound> {
        ::farcall::stub::raise(
            &<dyn Log as ::farcall::stub::Interface>::signals()[0usize],
            &|__arguments| {
                ::farcall::stub::argument(
                    "full",
                    "entries",
                    ::farcall::xdr::Encode::encode(&entries, __arguments),
                )?;
                ::farcall::stub::argument(
                    "full",
                    "topic",
                    ::farcall::xdr::Encode::encode(topic, __arguments),
                )?;
                ::core::result::Result::Ok(())
            },
        )
    }
    ///
    /// # Errors
    /// When the caller unwinds the call, or has no handler that answers the signal.
    pub fn note(text: &str) -> ::core::result::Result<(), ::farcall::Unwound> {
        ::farcall::stub::raise(
            &<dyn Log as ::farcall::stub::Interface>::signals()[1usize],
            &|__arguments| {
                ::farcall::stub::argument(
                    "note",
                    "text",
                    ::farcall::xdr::Encode::encode(text, __arguments),
                )?;
                ::core::result::Result::Ok(())
            },
        )
    }
    /** Runs `body`. Meanwhile the handler answers the signals that are raised in calls of [`Log`] which
this thread waits for, by whatever stub, or of a server that it calls directly. It may borrow from
the code around. Handlers of the stub, and those that are set inside `body`, are asked first.*/
    pub fn catching<R>(
        handler: impl LogHandler,
        body: impl ::core::ops::FnOnce() -> R,
    ) -> R {
        ::farcall::stub::catching(&__LogHandling(handler), body)
    }
}
/** Says which procedure of [`Log`] has raised a signal. What a variant holds unwinds the call with an
outcome of that procedure.*/
#[allow(dead_code, non_camel_case_types)]
#[derive(Clone, Copy, Debug)]
pub enum LogRaiser {
    /// [`Log::entries`].
    entries(::farcall::stub::Unwinds<farcall::Stream<Entry, Truncated>, Truncated>),
    /// [`Log::append`].
    append(::farcall::stub::Unwinds<u64, ::farcall::Never>),
    /// A procedure of a server that is called directly, without a stub. Which one is not known.
    Direct,
}
/** Answers the signals of [`Log`]. Each method gets the procedure that has raised the signal, and the
signal's arguments. A signal whose method is not implemented passes on to the next handler outwards.*/
pub trait LogHandler {
    /// The log is full. The answer is how many entries may be dropped.
    #[allow(unused_variables)]
    fn full(
        &self,
        raised_by: LogRaiser,
        entries: u64,
        topic: &str,
    ) -> ::farcall::Answer<u64> {
        ::farcall::Answer::Pass
    }
    #[allow(unused_variables)]
    fn note(&self, raised_by: LogRaiser, text: &str) -> ::farcall::Answer<()> {
        ::farcall::Answer::Pass
    }
}
#[doc(hidden)]
struct __LogHandling<H>(H);
impl<H: LogHandler> ::farcall::stub::Handler for __LogHandling<H> {
    fn handle(
        &self,
        __raised: &::farcall::stub::Raised,
        __arguments: &mut ::farcall::xdr::Decoder<'_>,
    ) -> ::core::result::Result<::farcall::stub::Handled, ::farcall::CallFailed> {
        let __signals = <dyn Log as ::farcall::stub::Interface>::signals();
        let __raiser = match __raised.procedure {
            ::core::option::Option::Some(1u32) => {
                LogRaiser::entries(::farcall::stub::Unwinds::new(1u32))
            }
            ::core::option::Option::Some(2u32) => {
                LogRaiser::append(::farcall::stub::Unwinds::new(2u32))
            }
            ::core::option::Option::None => LogRaiser::Direct,
            ::core::option::Option::Some(_) => {
                return ::core::result::Result::Ok(::farcall::stub::Handled::Pass);
            }
        };
        if __raised.signal == __signals[0usize].id {
            let (entries, topic) = ::farcall::stub::arguments(
                    __arguments,
                    |__arguments| ::core::result::Result::Ok((
                        ::farcall::stub::argument(
                            "full",
                            "entries",
                            <u64 as ::farcall::xdr::Decode>::decode(__arguments),
                        )?,
                        ::farcall::stub::argument(
                            "full",
                            "topic",
                            <&str as ::farcall::xdr::Decode>::decode(__arguments),
                        )?,
                    )),
                )
                .map_err(::farcall::stub::bad_arguments)?;
            return ::farcall::stub::answered(
                LogHandler::full(&self.0, __raiser, entries, topic),
                __raised,
                <dyn Log as ::farcall::stub::Interface>::interface,
            );
        }
        if __raised.signal == __signals[1usize].id {
            let (text,) = ::farcall::stub::arguments(
                    __arguments,
                    |__arguments| ::core::result::Result::Ok((
                        ::farcall::stub::argument(
                            "note",
                            "text",
                            <&str as ::farcall::xdr::Decode>::decode(__arguments),
                        )?,
                    )),
                )
                .map_err(::farcall::stub::bad_arguments)?;
            return ::farcall::stub::answered(
                LogHandler::note(&self.0, __raiser, text),
                __raised,
                <dyn Log as ::farcall::stub::Interface>::interface,
            );
        }
        ::core::result::Result::Ok(::farcall::stub::Handled::Pass)
    }
}
