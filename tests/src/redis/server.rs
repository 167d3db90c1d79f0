//! One server of its own, which a test may kill, pause and start again.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::time::timeout;

use super::resp::{Connection, Value};
use super::{PATIENCE, Program, Wait, variable};

/// Where ports are looked for: below those that systems give to outgoing connections, with room for a cluster's bus.
const FIRST_PORT: u16 = 12_000;
const PORTS: u16 = 10_000;
/// What a cluster's bus adds to the port.
const BUS: u16 = 10_000;
/// How often a start is tried when the port that was free is not any more.
const TRIES: u32 = 10;

/// Runs a program until its own standard input is closed, then kills it.
///
/// The other end of that input is held by the test, and the system closes it whatever way the test ends. Until the shell
/// has reaped the program, its number is no other's, so that no signal meets a stranger.
const LEASH: &str = r#""$@" </dev/null & echo $!; exec >&-; read -r _; kill -s KILL $! 2>&-; wait $! 2>&-"#;

/// How a server is started.
#[derive(Debug, Clone, Default)]
pub struct Options {
    program: Option<PathBuf>,
    config: Vec<(String, String)>,
    has_socket: bool,
    is_sentinel: bool,
    password: Option<String>,
}

impl Options {
    /// A server that keeps nothing on disk, the one that `REDIS_SERVER` names.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes another program: one of [`programs`](super::programs).
    #[must_use]
    pub fn program(mut self, program: &Program) -> Self {
        self.program = Some(program.path().to_owned());
        self
    }

    /// Adds a line to its configuration, as it stands in `redis.conf`. The last one of a name counts.
    #[must_use]
    pub fn config(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.config.push((name.into(), value.into()));
        self
    }

    /// Writes an append-only file, so that data outlive a kill.
    #[must_use]
    pub fn append_only(self) -> Self {
        self.config("appendonly", "yes")
    }

    /// Listens on a Unix socket too.
    #[must_use]
    pub fn unix_socket(mut self) -> Self {
        self.has_socket = true;
        self
    }

    /// Asks for a password, and sends the same to its master. It must be one word.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// These options, and over them the others.
    pub(super) fn over(mut self, others: Self) -> Self {
        self.config.extend(others.config);
        Self { config: self.config, ..others }
    }

    /// Watches other servers instead of keeping data.
    #[must_use]
    pub(super) fn sentinel(mut self) -> Self {
        self.is_sentinel = true;
        self
    }

    /// Follows this server.
    #[must_use]
    pub fn replica_of(self, master: &RedisServer) -> Self {
        self.config("replicaof", format!("{} {}", master.address().ip(), master.address().port()))
    }
}

/// A server with a port and a directory of its own. A drop stops it and removes the directory.
#[derive(Debug)]
pub struct RedisServer {
    program: PathBuf,
    port: u16,
    directory: PathBuf,
    has_socket: bool,
    is_sentinel: bool,
    password: Option<String>,
    process: Option<Process>,
    is_paused: AtomicBool,
}

impl RedisServer {
    /// Starts a server, and waits until it answers.
    ///
    /// # Errors
    ///
    /// If there is no program, or it does not start; then with what it said.
    pub async fn start(options: Options) -> io::Result<Self> {
        let program = match &options.program {
            Some(program) => program.clone(),
            None => PathBuf::from(variable("REDIS_SERVER")?),
        };
        for _ in 1..TRIES {
            match Self::start_at(free_port()?, &program, &options).await {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                outcome => return outcome,
            }
        }
        Self::start_at(free_port()?, &program, &options).await
    }

    async fn start_at(port: u16, program: &Path, options: &Options) -> io::Result<Self> {
        let directory = std::env::temp_dir().join(format!("tower-tool-redis-{}-{port}", process::id()));
        fs::create_dir(&directory)?;
        let mut server = Self {
            program: program.to_owned(),
            port,
            directory,
            has_socket: options.has_socket,
            is_sentinel: options.is_sentinel,
            password: options.password.clone(),
            process: None,
            is_paused: AtomicBool::new(false),
        };
        fs::write(server.directory.join("redis.conf"), server.config(options))?;
        server.restart().await?;
        Ok(server)
    }

    fn config(&self, options: &Options) -> String {
        let line = |name: &str, value: &dyn std::fmt::Display| format!("{name} {value}\n");
        let mut config = vec![
            line("bind", &"127.0.0.1"),
            line("port", &self.port),
            line("daemonize", &"no"),
            line("logfile", &"redis.log"),
            line("save", &"\"\""),
            line("appendonly", &"no"),
            // A replica that is alone is served at once.
            line("repl-diskless-sync-delay", &"0"),
        ];
        config.extend(self.socket().map(|socket| line("unixsocket", &socket.display())));
        if let Some(password) = &self.password {
            config.extend(["requirepass", "masterauth"].map(|name| line(name, password)));
        }
        config.extend(options.config.iter().map(|(name, value)| line(name, value)));
        config.concat()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Its address as clients take it, with the password.
    pub fn url(&self) -> String {
        self.url_at(self.address())
    }

    /// The same for another address that leads to it, such as that of a [`Proxy`](super::Proxy).
    pub fn url_at(&self, address: SocketAddr) -> String {
        match &self.password {
            Some(password) => format!("redis://:{password}@{address}"),
            None => format!("redis://{address}"),
        }
    }

    /// The address of its Unix socket as clients take it, if it has one; without the password.
    pub fn unix_url(&self) -> Option<String> {
        self.socket().map(|socket| format!("redis+unix://{}", socket.display()))
    }

    /// Its Unix socket, if it has one.
    pub fn socket(&self) -> Option<PathBuf> {
        self.has_socket.then(|| self.directory.join("redis.sock"))
    }

    /// Where its data and its log are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What it wrote to its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join("redis.log")).unwrap_or_default()
    }

    /// Whether it was started and not killed since.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Whether it is paused.
    pub fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Relaxed)
    }

    /// A connection, past its password.
    ///
    /// # Errors
    ///
    /// If it does not listen.
    pub async fn connect(&self) -> io::Result<Connection> {
        let mut connection = Connection::open(self.address()).await?;
        if let Some(password) = &self.password {
            connection.command(&["AUTH", password]).await?;
        }
        Ok(connection)
    }

    /// Runs one command over a connection of its own.
    ///
    /// # Errors
    ///
    /// If it answers with an error or not at all.
    pub async fn command<A: AsRef<[u8]>>(&self, words: &[A]) -> io::Result<Value> {
        self.connect().await?.command(words).await
    }

    /// One field of what `INFO` says.
    ///
    /// # Errors
    ///
    /// If there is no such field, or no answer.
    pub async fn info(&self, field: &str) -> io::Result<String> {
        let all = self.command(&["INFO", "all"]).await?.text();
        let value = all.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':').map(str::to_owned));
        value.ok_or_else(|| io::Error::new(ErrorKind::NotFound, format!("`INFO` says nothing of `{field}`")))
    }

    /// Waits until this replica has what its master has.
    ///
    /// # Errors
    ///
    /// If that does not come about in time.
    pub async fn until_in_sync(&self) -> io::Result<()> {
        let mut wait = Wait::new("a replica in sync");
        while wait.goes_on(self.info("master_link_status").await.map(|status| status == "up")).await? {}
        Ok(())
    }

    /// Kills it, with no chance to say or save anything, and waits until it is gone.
    pub fn kill(&mut self) {
        self.process = None;
        self.is_paused.store(false, Ordering::Relaxed);
    }

    /// Starts it again, after killing it if it runs: on the same port, with the data that are on disk.
    ///
    /// # Errors
    ///
    /// If it does not start; then with what it said.
    pub async fn restart(&mut self) -> io::Result<()> {
        self.kill();
        let _ = fs::remove_file(self.directory.join("redis.sock"));
        let mut command = Command::new(&self.program);
        command.current_dir(&self.directory).arg("redis.conf").args(self.is_sentinel.then_some("--sentinel"));
        let (process, mut output) = Process::spawn(&command, &self.directory.join("redis.log")).await?;
        let pid = process.pid;
        self.process = Some(process);
        // It says nothing here, so that an end of it is the end of the process.
        let mut nothing = [0];
        let ended = async { while !matches!(output.read(&mut nothing).await, Ok(0) | Err(_)) {} };
        let ready = async {
            let mut wait = Wait::new("a server to answer");
            while wait.goes_on(self.is_process(pid).await).await? {}
            Ok(())
        };
        let started = tokio::select! {
            biased;
            ready = ready => ready,
            () = ended => Err(io::Error::other("the server ended")),
        };
        started.map_err(|error| {
            self.kill();
            let said = self.log();
            let kind = if said.contains("Address already in use") { ErrorKind::AddrInUse } else { error.kind() };
            io::Error::new(kind, format!("`{}`: {error}; its log: {}", self.program.display(), said.trim()))
        })
    }

    /// Whether the process that listens is this one, and ready: while it loads, it answers with an error.
    async fn is_process(&self, pid: Pid) -> io::Result<bool> {
        self.command(&["PING"]).await?;
        Ok(self.info("process_id").await? == pid.to_string())
    }

    /// Stops it in its tracks: it listens, keeps its connections, and answers nothing.
    ///
    /// # Errors
    ///
    /// If it does not run.
    pub async fn pause(&self) -> io::Result<()> {
        let pid = self.signal(Signal::STOP)?;
        self.is_paused.store(true, Ordering::Relaxed);
        // The signal is on its way; where the system tells, wait for it.
        let state = format!("/proc/{pid}/stat");
        let is_stopped = || {
            let state = fs::read_to_string(&state).ok()?;
            Some(state.rsplit_once(") ")?.1.starts_with('T'))
        };
        let mut wait = Wait::new("a server to stop");
        while wait.goes_on(Ok(is_stopped().unwrap_or(true))).await? {}
        Ok(())
    }

    /// Lets it go on.
    ///
    /// # Errors
    ///
    /// If it does not run.
    pub fn resume(&self) -> io::Result<()> {
        self.signal(Signal::CONT)?;
        self.is_paused.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn signal(&self, signal: Signal) -> io::Result<Pid> {
        let process = self.process.as_ref().ok_or_else(|| io::Error::other("the server does not run"))?;
        kill_process(process.pid, signal)?;
        Ok(process.pid)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
        // Rubbish that stays behind changes nothing.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A running server and what kills it.
#[derive(Debug)]
struct Process {
    pid: Pid,
    leash: Child,
}

impl Process {
    /// Starts the program, and gives its output too, which ends when it does.
    async fn spawn(program: &Command, log: &Path) -> io::Result<(Self, Receiver)> {
        let log = File::options().create(true).append(true).open(log)?;
        let mut shell = Command::new("sh");
        shell
            .args(["-c", LEASH, "sh"])
            .arg(program.get_program())
            .args(program.get_args())
            .current_dir(program.get_current_dir().unwrap_or(Path::new(".")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            // A key that interrupts the test is the test's alone.
            .process_group(0);
        let mut leash = shell.spawn()?;
        let output = leash.stdout.take().map(OwnedFd::from);
        let pid = async {
            let mut output = Receiver::from_owned_fd(output.ok_or(ErrorKind::BrokenPipe)?)?;
            let mut line = Vec::new();
            loop {
                match output.read_u8().await? {
                    b'\n' => break,
                    digit => line.push(digit),
                }
            }
            let number = str::from_utf8(&line).ok().and_then(|digits| digits.parse().ok());
            let pid = number.and_then(Pid::from_raw).ok_or(ErrorKind::InvalidData)?;
            Ok((pid, output))
        };
        match timeout(PATIENCE, pid).await.unwrap_or_else(|elapsed| Err(elapsed.into())) {
            Ok((pid, output)) => Ok((Self { pid, leash }, output)),
            Err(error) => {
                end(&mut leash);
                Err(error)
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        end(&mut self.leash);
    }
}

/// Lets go of the leash, and waits until what it held is gone.
fn end(leash: &mut Child) {
    drop(leash.stdin.take());
    // How it ended changes nothing.
    let _ = leash.wait();
}

/// A port that was free a moment ago, with the one of a cluster's bus, and is given to nobody else in this process.
fn free_port() -> io::Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test binaries that run at once begin far from each other.
    let first = process::id().wrapping_mul(1009);
    for _ in 0..PORTS {
        let next = first.wrapping_add(u32::from(NEXT.fetch_add(1, Ordering::Relaxed)));
        let port = FIRST_PORT + u16::try_from(next % u32::from(PORTS)).unwrap_or_default();
        let is_free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        if is_free(port) && is_free(port + BUS) {
            return Ok(port);
        }
    }
    Err(io::Error::new(ErrorKind::AddrInUse, "there is no free port"))
}
