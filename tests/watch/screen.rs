//! The screens of `perf-prof top` and `hist`, which are drawn in place and end at a key.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

use crate::harness::{
    counting::{CALL, Waiting},
    machine::{Need, needs},
    run::{PATIENCE, perf_prof, with_patience},
};

/// A program on a terminal of its own.
struct OnTerminal {
    terminal: File,
    program: Child,
    shown: String,
}

impl OnTerminal {
    fn start(command: &mut Command) -> OnTerminal {
        let size = libc::winsize { ws_row: 10, ws_col: 60, ws_xpixel: 0, ws_ypixel: 0 };
        let (mut master, mut slave) = (-1, -1);
        // SAFETY: the descriptors are written to live integers, and the size outlives the call. Null pointers stand for
        // no name and usual settings.
        let made = unsafe { libc::openpty(&mut master, &mut slave, std::ptr::null_mut(), std::ptr::null(), &size) };
        assert_eq!(made, 0);
        // SAFETY: the call has just made both descriptors.
        let (terminal, slave) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
        command.stdin(slave.try_clone().unwrap()).stdout(slave).stderr(Stdio::null()).env_remove("NO_COLOR");
        // SAFETY: both calls are async-signal-safe. They make the terminal the controlling terminal of the new program.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let program = with_patience(command, PATIENCE).spawn().unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null());
        OnTerminal { terminal, program, shown: String::new() }
    }

    /// Reads until the terminal has shown the text.
    fn await_text(&mut self, text: &str) {
        let mut some = [0; 4096];
        while !self.shown.contains(text) {
            let count = self.terminal.read(&mut some).unwrap_or(0);
            assert!(count > 0, "the program ended without {text:?}");
            self.shown.push_str(&String::from_utf8_lossy(&some[..count]));
        }
    }

    /// Reads to the end. Returns the exit status and everything that was shown.
    fn finish(mut self) -> (Option<i32>, String) {
        let mut rest = Vec::new();
        // At the end, reading from a terminal fails with EIO.
        let _ = self.terminal.read_to_end(&mut rest);
        self.shown.push_str(&String::from_utf8_lossy(&rest));
        (self.program.wait().unwrap().code(), self.shown)
    }

    fn settings(&self) -> libc::tcflag_t {
        // SAFETY: `termios` consists of plain numbers, and the call fills it.
        let mut settings: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        assert_eq!(unsafe { libc::tcgetattr(self.terminal.as_raw_fd(), &mut settings) }, 0);
        settings.c_lflag & (libc::ICANON | libc::ECHO)
    }
}

/// Returns the ids of two processes. The run continues while the first process waits.
fn pids(idle: &Waiting, working: &Waiting) -> String {
    format!("{},{}", idle.pid(), working.pid())
}

#[test]
fn the_table_is_drawn_in_place_until_the_user_presses_q() {
    needs([Need::Tracefs]);
    let idle = Waiting::new(0, 0, 0);
    let waiting = Waiting::new(500, 0, 0);
    let mut on = OnTerminal::start(&mut perf_prof(&["top", CALL, "-p", &pids(&idle, &waiting), "-i", "50"]));
    on.await_text("(q ends)");
    waiting.go();
    on.await_text("wide");
    assert_eq!(on.settings(), 0, "keys are read one by one");
    on.terminal.write_all(b"xq").unwrap();
    let (status, shown) = on.finish();
    idle.go();
    assert_eq!(status, Some(0), "{shown:?}");
    let (before, after) = shown.split_once("\x1b[?1049l").expect("the first screen comes back");
    assert!(before.starts_with("\x1b[?1049h\x1b[?25l\x1b[H\x1b[1msyscalls:sys_enter_getpgid: "), "{shown:?}");
    assert!(before.contains("\x1b[J\x1b[H") && before.contains("since start"), "{shown:?}");
    // After the screen is closed, the sums of the whole run are printed on the first screen.
    assert!(after.starts_with("total: 500 events in ") && after.contains("wide    500  100.0%"), "{shown:?}");
}

#[test]
fn lines_fit_on_the_terminal() {
    needs([Need::Tracefs]);
    let idle = Waiting::new(0, 0, 0);
    let waiting = Waiting::new(300, 0, 0);
    let pids = pids(&idle, &waiting);
    let by = ["--by", "event,comm,tid,pid", "-i", "50"];
    let mut on = OnTerminal::start(perf_prof(&["top", CALL, "-p", &pids]).args(by));
    on.await_text("(q ends)");
    waiting.go();
    on.await_text("wide");
    on.terminal.write_all(b"q").unwrap();
    let (_, shown) = on.finish();
    idle.go();
    let screens = shown.split("\x1b[?1049l").next().unwrap();
    for screen in screens.split("\x1b[H").skip(1) {
        let screen = ["\x1b[1m", "\x1b[7m", "\x1b[0m", "\x1b[K", "\x1b[J"]
            .iter()
            .fold(screen.to_owned(), |text, code| text.replace(code, ""));
        assert!(screen.lines().count() <= 10 && screen.lines().all(|line| line.trim_end().len() <= 60), "{screen:?}");
    }
}

#[test]
fn ctrl_c_ends_a_histogram_and_gives_the_terminal_back() {
    needs([Need::Tracefs]);
    let idle = Waiting::new(0, 0, 0);
    let waiting = Waiting::new(64, 0, 0);
    let pids = pids(&idle, &waiting);
    let mut on = OnTerminal::start(&mut perf_prof(&["hist", CALL, "--value", "pid", "-i", "50", "-p", &pids]));
    on.await_text("(q ends)");
    waiting.go();
    on.await_text("32 -> 63         : 32");
    on.terminal.write_all(&[3]).unwrap();
    let (status, shown) = on.finish();
    idle.go();
    assert_eq!(status, Some(0), "{shown:?}");
    let after = shown.split_once("\x1b[?1049l").unwrap().1;
    assert!(after.contains("64 values, p50 "), "{shown:?}");
}
