//! A user without privileges can use events that need no tracefs, whether tracefs is closed or not mounted. Other
//! events give an error.

mod capabilities;
mod live;
mod recordings;
mod refused;
mod sudo;
