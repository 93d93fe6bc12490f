//! Who the members of a group are.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use crate::stub::{Binding, Client};

/// Of a [`Group`]: its members are those that the registry knows when it is called.
#[derive(Clone, Copy, Debug)]
pub enum Living {}

/// Of a [`Group`]: its members are always the same.
#[derive(Clone, Copy, Debug)]
pub enum Fixed {}

/// User-stubs that can be called all at once.
///
/// [`import_all`](crate::import_all) gives the instances of a type. Who joins or leaves them is seen by the next
/// call. A group of given members is made of their stubs:
///
/// ```
/// # #[farcall::interface]
/// # pub trait Echo { fn echo(&self, text: &str) -> farcall::Result<String>; }
/// # struct Server;
/// # impl Echo for Server { fn echo(&self, text: &str) -> farcall::Result<String> { Ok(text.to_owned()) } }
/// use std::sync::Arc;
/// use farcall::Group;
///
/// let one = || farcall::stub::local::<dyn Echo>(Arc::new(Server));
/// let group = Group::of([("a", one()), ("b", one()), ("c", one())]);
/// let echoes = group.multi().echo("hello").majority().unwrap();
/// assert!(echoes.results().count() >= 2);
/// ```
pub struct Group<C, M = Living> {
    source: Source,
    kind: PhantomData<fn() -> (C, M)>,
}

/// Where the members are known from.
#[derive(Clone)]
enum Source {
    Known(Members),
    Roster(Arc<dyn Roster>),
}

/// Who knows the members.
pub(crate) trait Roster: Send + Sync {
    /// They, as of now.
    fn members(&self) -> Members;
}

/// The members of a group at one time, in order.
#[derive(Clone)]
pub struct Members(Arc<[Member]>);

/// One member of a group.
#[derive(Clone, Debug)]
pub struct Member {
    name: Arc<str>,
    binding: Binding,
}

impl Member {
    pub(crate) fn new(name: impl Into<Arc<str>>, binding: Binding) -> Member {
        Member { name: name.into(), binding }
    }

    /// Its name: in a group from the registry `Type/instance`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What its stub is bound to.
    #[inline]
    pub fn binding(&self) -> &Binding {
        &self.binding
    }
}

impl Members {
    pub(crate) fn new(members: Vec<Member>) -> Members {
        Members(members.into())
    }

    /// More than half of them.
    pub(super) fn majority(&self) -> usize {
        self.len() / 2 + 1
    }
}

impl Deref for Members {
    type Target = [Member];

    #[inline]
    fn deref(&self) -> &[Member] {
        &self.0
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(Member::name)).finish()
    }
}

impl Roster for Members {
    fn members(&self) -> Members {
        self.clone()
    }
}

impl Source {
    #[inline]
    fn members(&self) -> Members {
        match self {
            Source::Known(members) => members.clone(),
            Source::Roster(roster) => roster.members(),
        }
    }
}

impl<C: Client> Group<C, Living> {
    pub(crate) fn living(roster: Arc<dyn Roster>) -> Self {
        Group { source: Source::Roster(roster), kind: PhantomData }
    }
}

impl<C: Client> Group<C, Fixed> {
    /// A group of these members, each with the name by which outcomes speak of it.
    pub fn of<N: Into<Arc<str>>>(members: impl IntoIterator<Item = (N, C)>) -> Self {
        let member = |(name, client): (N, C)| Member::new(name, client.binding().clone());
        Group::known(Members::new(members.into_iter().map(member).collect()))
    }

    pub(crate) fn known(members: Members) -> Self {
        Group { source: Source::Known(members), kind: PhantomData }
    }
}

impl<C: Client, M> Group<C, M> {
    /// The same members from now on, whoever joins or leaves. Only then is it known what a majority is.
    #[must_use]
    pub fn fixed(&self) -> Group<C, Fixed> {
        Group::known(self.members())
    }

    /// The procedures as calls of every member at once.
    #[inline]
    pub fn multi(&self) -> C::Multi<M> {
        C::multi(self.members())
    }

    /// As [`Group::multi`], with arguments of each member's own: `arguments` is given its index, its name, and
    /// the procedures.
    ///
    /// ```
    /// # #[farcall::interface]
    /// # pub trait Echo { fn echo(&self, text: &str) -> farcall::Result<String>; }
    /// # fn greet(group: &farcall::Group<EchoClient>) {
    /// let echoes = group.multi_each(|_, name, echo| echo.echo(&format!("hello {name}"))).all();
    /// # }
    /// ```
    pub fn multi_each<T, E>(
        &self,
        mut arguments: impl FnMut(usize, &str, C::Prepare) -> super::Prepared<T, E>,
    ) -> super::Multi<T, E, M> {
        let members = self.members();
        let prepared = members
            .iter()
            .enumerate()
            .map(|(index, member)| arguments(index, member.name(), C::Prepare::default()));
        let prepared = prepared.collect();
        super::Multi::of_each(members, prepared)
    }

    /// The members as of now.
    #[inline]
    pub fn members(&self) -> Members {
        self.source.members()
    }

    /// Name and user-stub of each member as of now.
    pub fn stubs(&self) -> impl Iterator<Item = (Arc<str>, C)> {
        let members = self.members();
        (0..members.len()).map(move |index| {
            let Member { name, binding } = &members[index];
            (name.clone(), C::from(binding.clone()))
        })
    }

    /// How many members it has now.
    pub fn len(&self) -> usize {
        self.members().len()
    }

    /// Whether it has none now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<C, M> Clone for Group<C, M> {
    fn clone(&self) -> Self {
        Group { source: self.source.clone(), kind: PhantomData }
    }
}

impl<C, M> fmt::Debug for Group<C, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.members().fmt(f)
    }
}
