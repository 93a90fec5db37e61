//! Operations without the types of their results.
//!
//! An async function is compiled again in every crate that awaits it, and a generic one for every type. So the queues, the threads
//! and the transactions know one type of operation, and only [`erase`] and [`typed`] at both ends are generic: that is a
//! tenth of the code of the crates that use the store.

use std::any::Any;
use std::pin::Pin;

use rusqlite::Connection;

use super::error::StoreError;

/// A result whose type the caller knows.
pub(super) type Erased = Result<Box<dyn Any + Send>, StoreError>;

/// The function that an operation runs on its connection.
pub(super) type Operation = Box<dyn FnOnce(&Connection) -> Erased + Send>;

/// An operation under way.
pub(super) type Pending<'a> = Pin<Box<dyn Future<Output = Erased> + Send + 'a>>;

/// Hides the type of an operation's result.
pub(super) fn erase<T, F>(work: F) -> Operation
where
    T: Send + 'static,
    F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
{
    Box::new(move |connection| match work(connection) {
        Ok(value) => Ok(Box::new(value)),
        Err(error) => Err(error),
    })
}

/// Returns the result of an operation that was made by [`erase`] with the same type.
#[expect(clippy::expect_used, reason = "the operation of `erase::<T>` returns a T")]
pub(super) fn typed<T: 'static>(result: Erased) -> Result<T, StoreError> {
    result.map(|value| *value.downcast().expect("the type of `erase`"))
}
