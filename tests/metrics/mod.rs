//! Tests `perf-prof serve`: what scrapes return, and how it starts and ends.

mod prometheus;
mod served;
mod service;

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::harness::run::perf_prof;

/// How long a test waits for a server.
const SOON: Duration = Duration::from_secs(30);

/// A running `perf-prof serve`.
struct Serving {
    child: Child,
    port: u16,
}

/// An answer to a request.
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    /// Returns the value of a series in the text format.
    #[track_caller]
    fn value(&self, series: &str) -> f64 {
        let text = self.text();
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok());
        line.unwrap_or_else(|| panic!("no {series} in\n{text}"))
    }
}

/// Returns a port that nobody uses.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn get(port: u16, path: &str, accept: &str) -> Option<Answer> {
    request("GET", port, path, accept)
}

fn request(method: &str, port: u16, path: &str, accept: &str) -> Option<Answer> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAccept: {accept}\r\n\r\n").ok()?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).ok()?;
    let head_end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, head, body: bytes.split_off(head_end + 4) })
}

impl Serving {
    /// Starts a server with a script of this text.
    fn start(folder: &Path, script: &str, options: &[&str]) -> Serving {
        let path = folder.join("metrics_of_test.py");
        fs::write(&path, script).unwrap();
        Serving::at(free_port(), path.to_str().unwrap(), options)
    }

    fn at(port: u16, script: &str, options: &[&str]) -> Serving {
        let mut command = perf_prof(&["serve", "--listen", &format!("127.0.0.1:{port}"), script]);
        command.args(options);
        Serving::of(command, port)
    }

    /// Starts the command of a server, and waits until it serves.
    fn of(mut command: Command, port: u16) -> Serving {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut serving = Serving { child, port };
        let begin = Instant::now();
        // The tables are up to date from the moment at which the events are enabled.
        while serving.scrape().is_none_or(|page| page.value("perf_prof_up_to_date") == 0.0) {
            assert!(begin.elapsed() < SOON && serving.child.try_wait().unwrap().is_none(), "{}", serving.end().1);
            thread::sleep(Duration::from_millis(50));
        }
        serving
    }

    fn scrape(&self) -> Option<Answer> {
        get(self.port, "/metrics", "text/plain")
    }

    /// Returns a page with all events up to now.
    fn fresh(&self) -> Answer {
        // Scrapes within half a second get the same values.
        thread::sleep(Duration::from_millis(600));
        self.scrape().unwrap()
    }

    /// Ends the server as systemd does. Returns how long this took, and what the server printed.
    fn end(&mut self) -> (Duration, String) {
        let begin = Instant::now();
        // SAFETY: kill has no memory effects; the child was not waited for.
        unsafe { libc::kill(self.child.id().cast_signed(), libc::SIGTERM) };
        self.child.wait().unwrap();
        let took = begin.elapsed();
        let mut said = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut said).unwrap();
        }
        (took, said)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Calls getppid() this many times in a new process. Returns the process id.
fn call(times: usize) -> u32 {
    call_with("getppid()", times)
}

/// Makes a call of Python's module os this many times in a new process. Returns the process id.
fn call_with(call: &str, times: usize) -> u32 {
    let work = format!("import os\nfor _ in range({times}): os.{call}\nprint(os.getpid())");
    let output = Command::new("/usr/bin/python3").args(["-S", "-c", &work]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}
