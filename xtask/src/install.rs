//! The browser and its driver: found where they are, installed where that can be done without asking.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::step::{Outcome, line, run};

/// A browser and the driver that fits it.
pub(crate) struct Browser {
    pub(crate) chromium: PathBuf,
    pub(crate) chromedriver: PathBuf,
}

/// Finds the browser, after installing it if it is not there.
pub(crate) fn browser() -> Outcome<Browser> {
    let missing = match find() {
        Ok(browser) => return Ok(browser),
        Err(missing) => missing,
    };
    let os_release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    match plan(env::consts::OS, &os_release, is_root()) {
        Plan::Apt => {
            println!("{missing}; installing both with {}", line(&install()));
            run(install()).or_else(|failure| {
                println!("{failure}; the package lists may be missing or old");
                run(apt(&["update"]))?;
                run(install())
            })?;
            find()
        }
        Plan::Tell(command) => Err(format!("{missing}; install the browser and its driver with: {command}")),
    }
}

fn install() -> Command {
    let mut install = apt(&["install", "-y", "--no-install-recommends"]);
    install.args(["chromium", "chromium-driver"]);
    install
}

fn apt(args: &[&str]) -> Command {
    let mut apt = Command::new("apt-get");
    apt.args(args).env("DEBIAN_FRONTEND", "noninteractive");
    apt
}

/// Both programs, or which one is missing.
fn find() -> Outcome<Browser> {
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
}

/// The program that the variable names, or the first of these names on the path.
fn program(variable: &str, names: &[&str]) -> Outcome<PathBuf> {
    if let Some(named) = env::var_os(variable).map(PathBuf::from) {
        return if named.is_file() {
            Ok(named)
        } else {
            Err(format!("`{variable}` names no file: `{}`", named.display()))
        };
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let directories: Vec<_> = env::split_paths(&path).collect();
    names
        .iter()
        // Joined to a directory, a name that is absolute stays what it is.
        .flat_map(|name| directories.iter().map(move |directory| directory.join(name)))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| format!("there is no {} on the path", variable.to_lowercase()))
}

#[derive(Debug, PartialEq, Eq)]
enum Plan {
    /// Install by apt, here and now.
    Apt,
    /// Print the command that a person may run.
    Tell(&'static str),
}

fn plan(os: &str, os_release: &str, root: bool) -> Plan {
    let like = field(os_release, "ID_LIKE").unwrap_or_default();
    let ids = field(os_release, "ID").into_iter().chain(like.split_whitespace());
    for id in ids {
        return match id {
            "debian" if root => Plan::Apt,
            "debian" => Plan::Tell("sudo apt-get install -y --no-install-recommends chromium chromium-driver"),
            "ubuntu" => Plan::Tell("sudo apt-get install -y chromium-browser chromium-chromedriver"),
            "fedora" => Plan::Tell("sudo dnf install -y chromium chromedriver"),
            "arch" => Plan::Tell("sudo pacman -S --needed chromium"),
            "alpine" => Plan::Tell("sudo apk add chromium chromium-chromedriver"),
            _ => continue,
        };
    }
    match os {
        "macos" => Plan::Tell("brew install --cask google-chrome chromedriver"),
        _ => {
            Plan::Tell("the package manager of this system, then set `CHROMIUM` and `CHROMEDRIVER` to the two programs")
        }
    }
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
        assert_eq!(plan("linux", DEBIAN, true), Plan::Apt);
        for (os, os_release, root) in [
            ("linux", DEBIAN, false),
            ("linux", UBUNTU, true),
            ("linux", MINT, true),
            ("linux", "", true),
            ("macos", "", true),
        ] {
            assert!(matches!(plan(os, os_release, root), Plan::Tell(_)), "{os} {os_release}");
        }
    }

    #[test]
    fn a_derivative_is_told_the_command_of_its_nearest_relative() {
        assert_eq!(plan("linux", MINT, true), plan("linux", UBUNTU, true));
    }
}
