//! A user without privileges can use events that need no tracefs, where tracefs is closed and where it is not mounted.
//! For other events there is an error.

mod capabilities;
mod live;
mod recordings;
mod refused;
mod sudo;
