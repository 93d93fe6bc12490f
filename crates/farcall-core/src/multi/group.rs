//! Who the members of a group are.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::call::Multi;
use super::membership::{Fixed, Living};
use super::prepared::Prepared;
use crate::stub::{Client, Member, Members};

/// User-stubs that can be called all at once.
///
/// `farcall::import_all` gives the instances of a type. Who joins or leaves them is seen by the next
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
pub trait Roster: Send + Sync {
    /// They, as of now.
    fn members(&self) -> Members;
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
    /// The members that `roster` knows when the group is called.
    #[doc(hidden)]
    pub fn living(roster: Arc<dyn Roster>) -> Self {
        Group { source: Source::Roster(roster), kind: PhantomData }
    }
}

impl<C: Client> Group<C, Fixed> {
    /// A group of these members, each with the name by which outcomes speak of it.
    pub fn of<N: Into<Arc<str>>>(members: impl IntoIterator<Item = (N, C)>) -> Self {
        let member = |(name, client): (N, C)| Member::new(name, client.binding().clone());
        Group::known(Members::new(members.into_iter().map(member).collect()))
    }

    /// These members.
    #[doc(hidden)]
    pub fn known(members: Members) -> Self {
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
        mut arguments: impl FnMut(usize, &str, C::Prepare) -> Prepared<T, E>,
    ) -> Multi<T, E, M> {
        let members = self.members();
        let prepared = members
            .iter()
            .enumerate()
            .map(|(index, member)| arguments(index, member.name(), C::Prepare::default()));
        let prepared = prepared.collect();
        Multi::of_each(members, prepared)
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
            let member = &members[index];
            (member.shared_name(), C::from(member.binding().clone()))
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
