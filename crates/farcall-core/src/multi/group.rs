//! Groups: sets of user-stubs of one interface, whose members are fixed or followed in the registry.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::call::Multi;
use super::inline_vec::InlineVec;
use super::membership::{Fixed, Living};
use super::prepared::Prepared;
use crate::balance::{Balancer, MAX_MEMBERS};
use crate::stub::{Client, Member, Members, Roster};

/// A set of user-stubs of one interface that a program calls all at once.
///
/// `farcall::import_all` returns the group of all instances of a type. Each call reaches the instances that
/// the registry lists at that moment. While none of these takes calls, the instances that it listed before
/// stay as long as they do, for ten minutes at most. [`Group::of`] makes a group of given stubs:
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
    roster: Arc<dyn Roster>,
    kind: PhantomData<fn() -> (C, M)>,
}

impl<C: Client> Group<C, Living> {
    /// Returns the group of the members that `roster` knows at the moment of each call.
    #[doc(hidden)]
    pub fn living(roster: Arc<dyn Roster>) -> Self {
        Group { roster, kind: PhantomData }
    }
}

impl<C: Client> Group<C, Fixed> {
    /// Returns a group of these stubs. Outcomes show the name that is given with each stub.
    pub fn of<N: Into<Arc<str>>>(members: impl IntoIterator<Item = (N, C)>) -> Self {
        let member = |(name, client): (N, C)| Member::new(name, client.binding().clone());
        Group::known(Members::new(members.into_iter().map(member).collect()))
    }

    /// Returns a group of exactly these members.
    #[doc(hidden)]
    pub fn known(members: Members) -> Self {
        Group { roster: Arc::new(members), kind: PhantomData }
    }
}

impl<C: Client, M> Group<C, M> {
    /// Returns a group that keeps the present members, even if instances join or leave. Only a group whose
    /// members are fixed has a majority.
    #[must_use]
    pub fn fixed(&self) -> Group<C, Fixed> {
        Group::known(self.members())
    }

    /// Returns the stub whose methods call every member at once.
    #[inline]
    pub fn multi(&self) -> C::Multi<M> {
        C::multi(self.members())
    }

    /// Returns a call of every member in which each member has its own arguments. For each member,
    /// `arguments` gets the member's index, its name, and the stub that encodes a call.
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
        let prepared = InlineVec::Many(prepared.collect());
        Multi::of(members, prepared)
    }

    /// Returns a user-stub whose calls each go to one member: the better one of two that are drawn by chance.
    /// [`Group::balancer`] says how members are judged, and gives stubs that choose otherwise.
    ///
    /// ```no_run
    /// # #[farcall::interface]
    /// # pub trait Store { fn get(&self, key: &str) -> farcall::Result<u64>; }
    /// # fn main() -> farcall::Result<()> {
    /// let store = farcall::import_all::<dyn Store>("Store")?.balanced();
    /// store.get("answer")?; // to one of the instances, whichever are there then
    /// # Ok(())
    /// # }
    /// ```
    pub fn balanced(&self) -> C {
        self.balancer().stub()
    }

    /// Returns a [`Balancer`], whose stubs share what their calls show of the members.
    pub fn balancer(&self) -> Balancer<C> {
        self.balancer_of_at_most(MAX_MEMBERS)
    }

    /// Returns a [`Balancer`] that uses at most this many of the members, and at least one. One that
    /// [`Group::balancer`] returns uses 100.
    ///
    /// ```no_run
    /// # #[farcall::interface]
    /// # pub trait Store { fn get(&self, key: &str) -> farcall::Result<u64>; }
    /// # fn main() -> farcall::Result<()> {
    /// // Binds ten of the instances.
    /// let few = farcall::import_all::<dyn Store>("Store")?.balancer_of_at_most(10);
    /// few.stub().get("answer")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn balancer_of_at_most(&self, members: usize) -> Balancer<C> {
        Balancer::new(self.roster.clone(), members)
    }

    /// Returns the present members.
    #[inline]
    pub fn members(&self) -> Members {
        self.roster.members()
    }

    /// Returns the name and the user-stub of each present member.
    pub fn stubs(&self) -> impl Iterator<Item = (Arc<str>, C)> {
        let members = self.members();
        (0..members.len()).map(move |index| {
            let member = &members[index];
            (member.shared_name(), C::from(member.binding().clone()))
        })
    }

    /// Returns the present number of members.
    pub fn len(&self) -> usize {
        self.members().len()
    }

    /// Returns whether the group has no members at present.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<C: Client> Balancer<C> {
    /// Returns the stub whose methods call the `count` members at once that are best for a call now: a quorum
    /// of *k* of *n*, for example. A member that is out is called only if too few others are in. The best one
    /// is called first. The balancer learns from these calls, too.
    ///
    /// If there are fewer members, all of them are called.
    ///
    /// ```
    /// # #[farcall::interface]
    /// # pub trait Echo { fn echo(&self, text: &str) -> farcall::Result<String>; }
    /// # struct Server;
    /// # impl Echo for Server { fn echo(&self, text: &str) -> farcall::Result<String> { Ok(text.to_owned()) } }
    /// # use std::sync::Arc;
    /// # use farcall::Group;
    /// # let one = || farcall::stub::local::<dyn Echo>(Arc::new(Server));
    /// let balancer = Group::of([("a", one()), ("b", one()), ("c", one())]).balancer();
    /// let read = balancer.multi(2).echo("to two of three").quorum(2).unwrap();
    /// assert_eq!(read.results().count(), 2);
    /// ```
    pub fn multi(&self, count: usize) -> C::Multi<Living> {
        C::multi(self.best(count))
    }
}

impl<C, M> Clone for Group<C, M> {
    fn clone(&self) -> Self {
        Group { roster: self.roster.clone(), kind: PhantomData }
    }
}

impl<C, M> fmt::Debug for Group<C, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.roster.members().fmt(f)
    }
}
