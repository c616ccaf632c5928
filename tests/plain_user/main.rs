//! What a user without privileges can do: events that need no tracefs, where tracefs is closed and where it is not mounted; and
//! what he is told of the others.

#![cfg(feature = "script")]
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod harness;
mod live;
mod recordings;
mod refused;
