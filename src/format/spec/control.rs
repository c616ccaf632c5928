//! The channel through which a running recording receives commands, as the user types it: `fd:10,11` or
//! `fifo:CONTROL,ACK`.

use std::{path::PathBuf, str::FromStr};

/// The channel from which commands are read, and optionally the channel to which acks are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// Inherited file descriptors: the number of the descriptor for commands, and the number of the descriptor for
    /// acks.
    Fd(i32, Option<i32>),
    /// Named pipes: the path of the pipe for commands, and the path of the pipe for acks.
    Fifo(PathBuf, Option<PathBuf>),
}

/// An error in the text of a [`Control`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The text is neither `fd:...` nor `fifo:...`.
    #[error(
        "`{0}` is not valid for --control; write fd:NUMBER[,NUMBER] or fifo:PATH[,PATH] (the first for commands, the second for replies)"
    )]
    Form(String),
    /// The text is not the number of a file descriptor.
    #[error("`{0}` is not the number of a file descriptor; write, for example, `fd:10,11`")]
    Number(String),
}

impl FromStr for Control {
    type Err = ControlError;

    fn from_str(text: &str) -> Result<Control, ControlError> {
        let form = || ControlError::Form(text.to_owned());
        let (kind, places) = text.split_once(':').ok_or_else(form)?;
        let (control, ack) = match places.split_once(',') {
            Some((control, ack)) => (control, Some(ack)),
            None => (places, None),
        };
        if control.is_empty() || ack == Some("") {
            return Err(form());
        }
        let number = |text: &str| {
            let number = text.parse().ok().filter(|&number: &i32| number >= 0);
            number.ok_or_else(|| ControlError::Number(text.to_owned()))
        };
        match kind {
            "fd" => Ok(Control::Fd(number(control)?, ack.map(number).transpose()?)),
            "fifo" => Ok(Control::Fifo(control.into(), ack.map(PathBuf::from))),
            _ => Err(form()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms() {
        assert_eq!("fd:10,11".parse(), Ok(Control::Fd(10, Some(11))));
        assert_eq!("fd:10".parse(), Ok(Control::Fd(10, None)));
        assert_eq!("fifo:/c,a".parse(), Ok(Control::Fifo("/c".into(), Some("a".into()))));
        for wrong in ["", "fd", "fd:", "fd:1,", "pipe:1,2", "fifo:,a"] {
            assert_eq!(wrong.parse::<Control>(), Err(ControlError::Form(wrong.into())));
        }
        assert_eq!("fd:-1".parse::<Control>(), Err(ControlError::Number("-1".into())));
        assert_eq!("fd:1,x".parse::<Control>(), Err(ControlError::Number("x".into())));
    }
}
