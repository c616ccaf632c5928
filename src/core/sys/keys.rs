//! Keys that the user presses while the process runs. The key `q` does what Ctrl-C does.

use std::{mem, thread};

use super::{
    call::{CallError, check},
    signals,
};

/// While this exists, keys are read one by one and are not shown. Ctrl-C and Ctrl-\ have their usual effects.
#[derive(Debug)]
pub struct Keys {
    before: libc::termios,
}

impl Keys {
    /// Reads keys from stdin. Returns `None` if stdin is not a terminal, or if this process is in its background.
    pub fn read() -> Result<Option<Keys>, CallError> {
        // SAFETY: `termios` consists of plain numbers, so all zeroes is a valid value.
        let mut before: libc::termios = unsafe { mem::zeroed() };
        // SAFETY: `before` has the type that the call fills. The other calls take no pointers.
        let is_ours = unsafe {
            libc::tcgetattr(libc::STDIN_FILENO, &mut before) == 0
                && libc::tcgetpgrp(libc::STDIN_FILENO) == libc::getpgrp()
        };
        if !is_ours {
            return Ok(None);
        }
        let mut single = before;
        single.c_lflag &= !(libc::ICANON | libc::ECHO);
        (single.c_cc[libc::VMIN], single.c_cc[libc::VTIME]) = (1, 0);
        // A stopped process would leave the terminal as it is now. _POSIX_VDISABLE is 0 on Linux.
        single.c_cc[libc::VSUSP] = 0;
        set(&single)?;
        let keys = Keys { before };
        // Without the thread, Ctrl-C still ends the run.
        let _ = thread::Builder::new().name("keys".into()).spawn(wait_for_q);
        Ok(Some(keys))
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing to restore.
        let _ = set(&self.before);
    }
}

fn set(settings: &libc::termios) -> Result<(), CallError> {
    // SAFETY: `settings` outlives the call.
    check("tcsetattr", unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, settings) })?;
    Ok(())
}

fn wait_for_q() {
    signals::block_in_this_thread();
    let mut key = 0u8;
    // SAFETY: `key` has room for the one byte that is read.
    while unsafe { libc::read(libc::STDIN_FILENO, (&raw mut key).cast(), 1) } == 1 {
        if matches!(key, b'q' | b'Q') {
            // SAFETY: the calls take no pointers.
            unsafe { libc::kill(libc::getpid(), libc::SIGINT) };
            return;
        }
    }
}
