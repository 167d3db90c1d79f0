//! Programs that the tests talk to, each on a free port and gone when the tests are done.

use std::env;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::install::Browser;
use crate::step::{Outcome, ROOT};

/// How often a service that was started is asked whether it is ready, and the pause between.
const TRIES: u32 = 200;
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_ANSWER: usize = 64 * 1024;

/// Runs a program for as long as its own standard input is open, then kills its process group.
///
/// The other end of that input is held by this process. The system closes it whatever way this process ends, so that
/// nothing which was started survives an interrupt or a kill.
const LEASH: &str = r#""$@" & read -r _; kill -s KILL 0"#;

/// A running program with whatever it started.
pub(crate) struct Service {
    scheme: &'static str,
    address: SocketAddr,
    group: Child,
    /// Where it may leave what nobody needs afterwards, such as browser profiles.
    scratch: PathBuf,
}

impl Service {
    /// Starts the driver of a browser, and waits until it is ready.
    pub(crate) fn chromedriver(browser: &Browser) -> Outcome<Self> {
        let address = free_address().map_err(|error| format!("there is no free port: {error}"))?;
        let mut driver = Command::new(&browser.chromedriver);
        driver.arg(format!("--port={}", address.port()));
        Self::start("chromedriver", "http", &driver, address, chromedriver_is_ready)
    }

    /// Starts a Redis server that keeps nothing, and waits until it answers.
    pub(crate) fn redis(server: &Path) -> Outcome<Self> {
        let address = free_address().map_err(|error| format!("there is no free port: {error}"))?;
        let mut redis = Command::new(server);
        redis.args(["--bind", &address.ip().to_string(), "--port", &address.port().to_string()]);
        redis.args(["--save", "", "--appendonly", "no", "--daemonize", "no"]);
        Self::start("redis", "redis", &redis, address, redis_is_ready)
    }

    fn start(
        name: &str,
        scheme: &'static str,
        program: &Command,
        address: SocketAddr,
        is_ready: fn(SocketAddr) -> io::Result<bool>,
    ) -> Outcome<Self> {
        let log = Path::new("target/xtask").join(name).with_extension("log");
        let service = Self::spawn(scheme, program, address, &Path::new(ROOT).join(&log))
            .map_err(|error| format!("{name} could not be started: {error}"))?;
        println!("    {name} listens at {}, its log is `{}`", service.url(), log.display());
        for _ in 0..TRIES {
            if is_ready(address).unwrap_or(false) {
                return Ok(service);
            }
            pause();
        }
        let said = fs::read_to_string(Path::new(ROOT).join(&log)).unwrap_or_default();
        Err(format!("{name} was not ready in time; it said: {}", said.trim()))
    }

    /// Starts the program on its leash, in a process group of its own.
    fn spawn(scheme: &'static str, program: &Command, address: SocketAddr, log: &Path) -> io::Result<Self> {
        let scratch = env::temp_dir().join(format!("tower-tool-{}-{}", process::id(), address.port()));
        fs::create_dir(&scratch)?;
        if let Some(directory) = log.parent() {
            fs::create_dir_all(directory)?;
        }
        let log = File::create(log)?;
        let mut shell = Command::new("sh");
        shell
            .args(["-c", LEASH, "sh"])
            .arg(program.get_program())
            .args(program.get_args())
            .env("TMPDIR", &scratch)
            .current_dir(&scratch)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log);
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut shell, 0);
        Ok(Self { scheme, address, group: shell.spawn()?, scratch })
    }

    /// Where the service listens.
    pub(crate) fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }
}

impl Drop for Service {
    /// Lets go of the leash and waits until the group was killed.
    fn drop(&mut self) {
        drop(self.group.stdin.take());
        // How a process ended that killed itself, and rubbish that stays behind, change nothing.
        let _ = self.group.wait();
        let _ = fs::remove_dir_all(&self.scratch);
    }
}

/// An address whose port was free a moment ago.
fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

fn chromedriver_is_ready(address: SocketAddr) -> io::Result<bool> {
    let mut stream = TcpStream::connect_timeout(&address, PAUSE)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    write!(stream, "GET /status HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    // It may leave the connection open behind its answer, so the answer ends where what was asked is told.
    let (mut answer, mut chunk) = (Vec::new(), [0; 1024]);
    loop {
        let length = stream.read(&mut chunk)?;
        answer.extend(chunk.iter().take(length));
        if String::from_utf8_lossy(&answer).contains(r#""ready":true"#) {
            return Ok(true);
        }
        if length == 0 || answer.len() > LONGEST_ANSWER {
            return Ok(false);
        }
    }
}

fn redis_is_ready(address: SocketAddr) -> io::Result<bool> {
    let mut stream = TcpStream::connect_timeout(&address, PAUSE)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"PING\r\n")?;
    let mut answer = [0; 7];
    stream.read_exact(&mut answer)?;
    Ok(answer == *b"+PONG\r\n")
}

#[expect(clippy::disallowed_methods, reason = "a foreign program sends no event when it becomes ready")]
fn pause() {
    thread::sleep(PAUSE);
}
