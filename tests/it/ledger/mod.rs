//! What is executed once stays executed once when processes die, race, stand still, and when the store goes away.
//!
//! The processes are real: this binary, started again, with the test [`worker::process`] alone and a job to do.

mod cases;
mod crash;
#[cfg(feature = "redis")]
mod faults;
mod race;
mod stop;
mod stores;
mod worker;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

pub(crate) use worker::{CrashAt, Job, Point};

/// A directory of this test alone, where effects and answers are written down. Removed in the end, unless the test failed.
pub(crate) struct Site {
    directory: PathBuf,
}

impl Site {
    pub(crate) fn new(name: &str) -> Self {
        use std::os::unix::fs::DirBuilderExt as _;
        let directory = std::env::temp_dir().join(format!("tower-tool-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::DirBuilder::new().mode(0o700).create(&directory).unwrap();
        Self { directory }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// A process with this job.
    pub(crate) fn spawn(&self, job: &Job) -> Worker {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "ledger::worker::process", "--nocapture", "--test-threads=1"])
            .env(worker::JOB, serde_json::to_string(job).unwrap())
            .env(worker::SITE, &self.directory)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Worker { child }
    }

    /// Every effect there was: what was wanted, and what the effect answered.
    pub(crate) fn effects(&self) -> Vec<(u64, String)> {
        lines(&self.directory.join("effects"))
            .into_iter()
            .map(|line| (line[0].parse().unwrap(), line[1].clone()))
            .collect()
    }

    /// How often each intent had its effect.
    pub(crate) fn effects_each(&self) -> HashMap<u64, usize> {
        self.effects().into_iter().fold(HashMap::new(), |mut each, (intent, _)| {
            *each.entry(intent).or_default() += 1;
            each
        })
    }

    /// Every answer that a caller got: what was wanted, how it ended, and what it said.
    pub(crate) fn answers(&self) -> Vec<(u64, String, String)> {
        let files = fs::read_dir(&self.directory).unwrap().map(|entry| entry.unwrap().path());
        let answers = files.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("answers-"));
        answers
            .flat_map(|path| lines(&path))
            .map(|line| (line[0].parse().unwrap(), line[1].clone(), line.get(2).cloned().unwrap_or_default()))
            .collect()
    }

    /// No intent had more than one effect, and whoever was told of it was told of that one.
    #[track_caller]
    pub(crate) fn assert_at_most_once(&self) {
        let effects = self.effects();
        let first: HashMap<u64, &str> = effects.iter().map(|(intent, nonce)| (*intent, &**nonce)).collect();
        assert_eq!(first.len(), effects.len(), "an intent had two effects: {effects:?}");
        for (intent, outcome, nonce) in self.answers() {
            match &*outcome {
                "done" => assert_eq!(first.get(&intent), Some(&&*nonce), "another answer than that of the effect"),
                "IN_PROGRESS" | "UNKNOWN_OUTCOME" | "UNAVAILABLE" | "OVERLOADED" => {}
                other => panic!("intent {intent} ended with {other}"),
            }
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

fn lines(path: &Path) -> Vec<Vec<String>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        read => read.unwrap(),
    };
    text.lines().map(|line| line.split(' ').map(str::to_owned).collect()).collect()
}

pub(crate) struct Worker {
    child: Child,
}

impl Worker {
    pub(crate) fn wait(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
    }
}

/// Knuth's generator: uneven, and the same each time.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}
