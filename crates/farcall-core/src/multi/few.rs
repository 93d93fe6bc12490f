//! One value in place, or any number: a group of one member costs no allocation.

use std::ops::{Deref, DerefMut};

/// Values, one of which stands in place.
#[derive(Clone)]
pub(super) enum Few<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> Few<T> {
    pub(super) fn into_vec(self) -> Vec<T> {
        match self {
            Few::One(value) => vec![value],
            Few::Many(values) => values,
        }
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            Few::One(value) => std::slice::from_ref(value),
            Few::Many(values) => values,
        }
    }
}

impl<T> DerefMut for Few<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Few::One(value) => std::slice::from_mut(value),
            Few::Many(values) => values,
        }
    }
}
