//! What a user without privileges can do: events that need no tracefs, where tracefs is closed and where it is not mounted; and
//! what he is told of the others.

mod live;
mod recordings;
mod refused;
