//! A vector that stores a single element in place, so that a call of a group of one member allocates no
//! memory for it.

use std::ops::{Deref, DerefMut};

/// A vector that stores a single element in place.
#[derive(Clone)]
pub(super) enum InlineVec<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> InlineVec<T> {
    pub(super) fn into_vec(self) -> Vec<T> {
        match self {
            InlineVec::One(value) => vec![value],
            InlineVec::Many(values) => values,
        }
    }
}

impl<T> Deref for InlineVec<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            InlineVec::One(value) => std::slice::from_ref(value),
            InlineVec::Many(values) => values,
        }
    }
}

impl<T> DerefMut for InlineVec<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            InlineVec::One(value) => std::slice::from_mut(value),
            InlineVec::Many(values) => values,
        }
    }
}
