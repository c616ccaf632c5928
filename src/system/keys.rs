//! Keys that the user presses while the process runs. The key `q` does what Ctrl-C does.

use std::io::stdin;

use rustix::{
    process::{Signal, getpgrp, getpid, kill_process},
    termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcsetattr},
};

use super::{
    call::{CallError, failed},
    own_threads,
};

/// While this value exists, the terminal delivers keys one by one and does not show them. Ctrl-C and Ctrl-\ have their
/// usual effects.
#[derive(Debug)]
pub struct Keys {
    before: Termios,
}

impl Keys {
    /// Reads keys from stdin. Returns `None` if stdin is not a terminal, or if this process runs in the background.
    pub fn read() -> Result<Option<Keys>, CallError> {
        let is_ours = |_: &Termios| tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp());
        let Some(before) = tcgetattr(stdin()).ok().filter(is_ours) else { return Ok(None) };
        let mut single = before.clone();
        single.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        single.special_codes[SpecialCodeIndex::VMIN] = 1;
        single.special_codes[SpecialCodeIndex::VTIME] = 0;
        // Ctrl-Z is disabled, because a stopped process would leave the terminal in this mode. _POSIX_VDISABLE is 0 on Linux.
        single.special_codes[SpecialCodeIndex::VSUSP] = 0;
        set(&single)?;
        let keys = Keys { before };
        // If the thread cannot be started, only Ctrl-C ends the run.
        let _ = own_threads::spawn("keys", wait_for_q);
        Ok(Some(keys))
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        // If the terminal no longer exists, there is nothing to restore.
        let _ = set(&self.before);
    }
}

fn set(settings: &Termios) -> Result<(), CallError> {
    tcsetattr(stdin(), OptionalActions::Now, settings).map_err(failed("tcsetattr"))
}

fn wait_for_q() {
    let mut key = [0u8];
    while rustix::io::read(stdin(), &mut key) == Ok(1) {
        if matches!(key, [b'q' | b'Q']) {
            let _ = kill_process(getpid(), Signal::INT);
            return;
        }
    }
}
