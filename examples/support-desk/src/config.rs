//! What the desk is told at its start: flags and environment.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tower_tool::Redacted;

use crate::store::{Store, UnknownStore};

/// What `--help` prints, and what a wrong flag gets.
pub const USAGE: &str = "\
usage: support-desk [--port PORT] [--data-dir DIR] [--store STORE] [--approval-timeout SECONDS] [--audit-log FILE]

options:
  --port PORT                   where to listen on 127.0.0.1; 0 takes a free one (default 3000)
  --data-dir DIR                where ledger and tickets are kept (default support-desk-data)
  --store STORE                 where the ledger is instead: memory:, sqlite:PATH or redis://HOST:PORT
  --approval-timeout SECONDS    how long a card waits for a decision (default 60)
  --audit-log FILE              appends the audit records to this file, one line of JSON each
  --help                        prints this text

environment:
  PORT                   the port, unless the flag gives one
  IDEMPOTENCY_STORE      the store, unless the flag names one
  SUPPORT_DESK_TOKENS    users, as in alice=secret-a,bob=secret-b:approver; an approver may decide the cards of
                         others; unset, there is one user, with a random token
  CONFIRM_TOOLS          tools that ask before they run, besides those whose risk does, separated by commas
                         (default create_ticket); set but empty, none
";

const PORT: u16 = 3000;
const DATA_DIR: &str = "support-desk-data";
const APPROVAL_TIMEOUT: Duration = Duration::from_secs(60);
const CONFIRM: &str = "create_ticket";
/// The one user there is where none are configured.
const DEMO_USER: &str = "demo";

/// What the command line asks for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Command {
    /// To serve.
    Serve(Config),
    /// To be told how it is used.
    Help,
}

/// How the desk is set up.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Where it listens on the loopback interface.
    pub port: u16,
    /// Who may use it.
    pub users: Vec<User>,
    /// The tools that ask before they run, besides those whose risk does.
    pub confirm: Vec<String>,
    /// How long a card waits for a decision.
    pub approval_timeout: Duration,
    /// The file that the audit records are appended to.
    pub audit_log: Option<PathBuf>,
    /// Where the tickets are kept, and the ledger unless its store is named.
    pub data_dir: PathBuf,
    /// Where the ledger lives.
    pub store: Store,
}

/// One who may use the desk.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct User {
    /// The actor's name.
    pub name: String,
    /// The token that stands for it.
    pub token: Redacted<String>,
    /// Whether it may decide the cards of others.
    pub approver: bool,
}

/// A command line or an environment that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    message: String,
    usage: bool,
}

impl ConfigError {
    fn flag(message: impl Into<String>) -> Self {
        Self { message: message.into(), usage: true }
    }

    fn environment(message: impl Into<String>) -> Self {
        Self { message: message.into(), usage: false }
    }

    /// Whether the flags are wrong, so that the usage helps.
    pub const fn is_usage(&self) -> bool {
        self.usage
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ConfigError {}

impl Command {
    /// Reads the flags, without the program's name, and the environment.
    ///
    /// # Errors
    ///
    /// If a flag is unknown, is given twice or has no usable value, or a variable has none. A token is never repeated.
    pub fn parse(
        args: impl IntoIterator<Item = OsString>,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, ConfigError> {
        let Some(flags) = Flags::parse(args)? else {
            return Ok(Self::Help);
        };
        let text = |name: &str| match variable(name).map(OsString::into_string) {
            Some(Err(_)) => Err(ConfigError::environment(format!("`{name}` is not text"))),
            Some(Ok(text)) => Ok(Some(text)),
            None => Ok(None),
        };
        let port = match (flags.port, text("PORT")?) {
            (Some(port), _) => port,
            (None, Some(text)) => {
                port(&text).ok_or_else(|| ConfigError::environment(format!("`PORT` must be {A_PORT}")))?
            }
            (None, None) => PORT,
        };
        let users = match text("SUPPORT_DESK_TOKENS")? {
            Some(list) => users(&list)?,
            None => vec![demo_user()?],
        };
        let data_dir = flags.data_dir.unwrap_or_else(|| DATA_DIR.into());
        let store = match (flags.store, text("IDEMPOTENCY_STORE")?) {
            (Some(store), _) => store,
            (None, Some(text)) => text
                .parse()
                .map_err(|expected| ConfigError::environment(format!("`IDEMPOTENCY_STORE` must be {expected}")))?,
            (None, None) => Store::Sqlite(data_dir.join("ledger.db")),
        };
        let confirm = text("CONFIRM_TOOLS")?.unwrap_or_else(|| CONFIRM.to_owned());
        Ok(Self::Serve(Config {
            port,
            users,
            confirm: list(&confirm).map(str::to_owned).collect(),
            approval_timeout: flags.approval_timeout.unwrap_or(APPROVAL_TIMEOUT),
            audit_log: flags.audit_log,
            data_dir,
            store,
        }))
    }
}

const A_PORT: &str = "a number from 0 to 65535";
const SECONDS: &str = "a number of seconds from 1 to 86400";

#[derive(Default)]
struct Flags {
    port: Option<u16>,
    approval_timeout: Option<Duration>,
    audit_log: Option<PathBuf>,
    data_dir: Option<PathBuf>,
    store: Option<Store>,
}

impl Flags {
    /// The flags, `None` if help is wanted.
    fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Option<Self>, ConfigError> {
        let mut flags = Self::default();
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            let Some((flag, value)) = split(arg) else {
                return Err(ConfigError::flag("a flag is not text"));
            };
            let mut value = |what: &str| {
                value
                    .clone()
                    .map(OsString::from)
                    .or_else(|| args.next())
                    .ok_or_else(|| ConfigError::flag(format!("`{flag}` needs {what}")))
            };
            match flag.as_str() {
                "--help" | "-h" => return Ok(None),
                "--port" => {
                    let port = value(A_PORT)?.to_str().and_then(port);
                    once(&mut flags.port, &flag, port, A_PORT)?;
                }
                "--approval-timeout" => {
                    let seconds = value(SECONDS)?.to_str().and_then(seconds);
                    once(&mut flags.approval_timeout, &flag, seconds, SECONDS)?;
                }
                "--audit-log" => {
                    let file = Some(value("a file")?).filter(|file| !file.is_empty()).map(PathBuf::from);
                    once(&mut flags.audit_log, &flag, file, "a file")?;
                }
                "--data-dir" => {
                    let directory = Some(value("a directory")?).filter(|path| !path.is_empty()).map(PathBuf::from);
                    once(&mut flags.data_dir, &flag, directory, "a directory")?;
                }
                "--store" => {
                    let store = value("a store")?.to_str().and_then(|text| text.parse().ok());
                    once(&mut flags.store, &flag, store, &UnknownStore.to_string())?;
                }
                _ => return Err(ConfigError::flag(format!("there is no flag `{}`", flag.escape_debug()))),
            }
        }
        Ok(Some(flags))
    }
}

/// `--flag` or `--flag=value`.
fn split(arg: OsString) -> Option<(String, Option<String>)> {
    let arg = arg.into_string().ok()?;
    Some(match arg.split_once('=') {
        Some((flag, value)) => (flag.to_owned(), Some(value.to_owned())),
        None => (arg, None),
    })
}

fn once<T>(slot: &mut Option<T>, flag: &str, value: Option<T>, expected: &str) -> Result<(), ConfigError> {
    let Some(value) = value else {
        return Err(ConfigError::flag(format!("`{flag}` must be {expected}")));
    };
    if slot.replace(value).is_some() {
        return Err(ConfigError::flag(format!("`{flag}` is given twice")));
    }
    Ok(())
}

fn digits<T: std::str::FromStr>(text: &str) -> Option<T> {
    // `parse` would take a sign too.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn port(text: &str) -> Option<u16> {
    digits(text)
}

fn seconds(text: &str) -> Option<Duration> {
    digits(text).filter(|seconds| (1..=86_400).contains(seconds)).map(Duration::from_secs)
}

fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

fn users(list: &str) -> Result<Vec<User>, ConfigError> {
    let mut names = HashSet::new();
    let mut tokens = HashSet::new();
    let mut users = Vec::new();
    for (entry, position) in list.split(',').zip(1..) {
        // Whatever stands here may be a token, so it is told by its position.
        let wrong = |why: &str| {
            ConfigError::environment(format!(
                "entry {position} of `SUPPORT_DESK_TOKENS` {why}; it must look like `name=token` or `name=token:approver`"
            ))
        };
        let (name, rest) = entry.trim().split_once('=').ok_or_else(|| wrong("has no `=`"))?;
        let (token, approver) = match rest.split_once(':') {
            None => (rest, false),
            Some((token, "approver")) => (token, true),
            Some(_) => return Err(wrong("has something other than `approver` behind its `:`")),
        };
        if !is_name(name) {
            return Err(wrong("has a name of other characters than letters, digits, `-`, `_` and `.`"));
        }
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong("has a token that is empty or has other characters than visible ASCII"));
        }
        if !names.insert(name) {
            return Err(wrong("has the name of an earlier one"));
        }
        if !tokens.insert(token) {
            return Err(wrong("has the token of an earlier one"));
        }
        users.push(User { name: name.to_owned(), token: Redacted::new(token.to_owned()), approver });
    }
    Ok(users)
}

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

fn demo_user() -> Result<User, ConfigError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| {
        ConfigError::environment("there is no random source for a token; set `SUPPORT_DESK_TOKENS` to choose your own")
    })?;
    let token = format!("{:032x}", u128::from_ne_bytes(bytes));
    Ok(User { name: DEMO_USER.to_owned(), token: Redacted::new(token), approver: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str], variables: &[(&str, &str)]) -> Result<Command, ConfigError> {
        Command::parse(args.iter().map(OsString::from), |name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        })
    }

    fn config(args: &[&str], variables: &[(&str, &str)]) -> Config {
        match parse(args, variables) {
            Ok(Command::Serve(config)) => config,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_anything_there_is_one_user_with_a_random_token() {
        let (one, other) = (config(&[], &[]), config(&[], &[]));
        assert_eq!((one.port, one.approval_timeout), (3000, Duration::from_secs(60)));
        assert_eq!(one.confirm, ["create_ticket"]);
        assert_eq!(one.users.len(), 1);
        assert_eq!(one.users[0].token.reveal().len(), 32);
        assert_ne!(one.users[0].token.reveal(), other.users[0].token.reveal());
    }

    #[test]
    fn a_flag_wins_over_the_environment() {
        assert_eq!(config(&["--port", "8080"], &[("PORT", "9090")]).port, 8080);
        assert_eq!(config(&["--port=0"], &[]).port, 0);
        assert_eq!(config(&[], &[("PORT", "9090")]).port, 9090);
        let config = config(&["--approval-timeout", "2", "--audit-log", "a.jsonl"], &[]);
        assert_eq!(config.approval_timeout, Duration::from_secs(2));
        assert_eq!(config.audit_log, Some("a.jsonl".into()));
    }

    #[test]
    fn a_store_is_a_file_in_the_data_directory_unless_it_is_named_and_nothing_unknown() {
        let store = |args: &[&str], variables: &[(&str, &str)]| config(args, variables).store;
        assert_eq!(store(&[], &[]), Store::Sqlite("support-desk-data/ledger.db".into()));
        assert_eq!(store(&["--data-dir", "/d"], &[]), Store::Sqlite("/d/ledger.db".into()));
        assert_eq!(store(&["--store", "memory:"], &[("IDEMPOTENCY_STORE", "sqlite:/l.db")]), Store::Memory);
        assert_eq!(store(&[], &[("IDEMPOTENCY_STORE", "sqlite:/l.db")]), Store::Sqlite("/l.db".into()));
        let redis = "redis://:s3cr3t@h:6379";
        assert_eq!(store(&["--store", redis], &[]), Store::Redis(redis.to_owned()));
        assert!(
            !format!("{:?} {}", store(&["--store", redis], &[]), store(&["--store", redis], &[])).contains("s3cr3t")
        );
        for unknown in ["", "memory", "sqlite:", "postgres://h", "ledger.db"] {
            assert!(parse(&["--store", unknown], &[]).unwrap_err().is_usage(), "{unknown}");
            let error = parse(&[], &[("IDEMPOTENCY_STORE", unknown)]).unwrap_err();
            assert!(!error.is_usage() && error.to_string().contains("sqlite:PATH"), "{error}");
        }
    }

    #[test]
    fn users_are_read_from_their_list() {
        let list = "alice=secret-a, bob=secret-b:approver,carol=a=b";
        let users = config(&[], &[("SUPPORT_DESK_TOKENS", list)]).users;
        let read: Vec<_> = users.iter().map(|user| (&*user.name, &**user.token.reveal(), user.approver)).collect();
        assert_eq!(read, [("alice", "secret-a", false), ("bob", "secret-b", true), ("carol", "a=b", false)]);
        assert!(!format!("{users:?}").contains("secret"));
    }

    #[test]
    fn an_entry_that_cannot_be_one_is_told_by_its_position_and_not_by_its_token() {
        for list in [
            "",
            ",",
            "alice=one,",
            "alice=one,s3cr3t",
            "alice=one,=s3cr3t",
            "alice=one,bob=",
            "alice=one,bob=s3cr3t:admin",
            "alice=one,bob=s3cr3t:",
            "alice=one,bob=s3cr 3t",
            "alice=one,b ob=s3cr3t",
            "alice=one,alice=s3cr3t",
            "alice=s3cr3t,bob=s3cr3t",
        ] {
            let error = parse(&[], &[("SUPPORT_DESK_TOKENS", list)]).unwrap_err();
            assert!(!error.is_usage(), "{list}");
            let message = error.to_string();
            assert!(message.contains("entry 1") || message.contains("entry 2"), "{list}: {message}");
            assert!(!message.contains("s3cr"), "{message}");
        }
    }

    #[test]
    fn an_empty_list_of_tools_is_none_and_not_the_default() {
        assert!(config(&[], &[("CONFIRM_TOOLS", "")]).confirm.is_empty());
        let some = config(&[], &[("CONFIRM_TOOLS", " create_ticket ,get_order_status")]).confirm;
        assert_eq!(some, ["create_ticket", "get_order_status"]);
    }

    #[test]
    fn wrong_flags_are_a_matter_of_usage_and_wrong_variables_are_not() {
        for args in [
            &["--prot", "1"][..],
            &["extra"],
            &["--port"],
            &["--port", "65536"],
            &["--port", "+1"],
            &["--port", "1", "--port", "2"],
            &["--approval-timeout", "0"],
            &["--approval-timeout", "1.5"],
            &["--audit-log", ""],
        ] {
            assert!(parse(args, &[]).unwrap_err().is_usage(), "{args:?}");
        }
        assert!(!parse(&[], &[("PORT", "many")]).unwrap_err().is_usage());
        assert!(matches!(parse(&["--port", "1", "--help"], &[]), Ok(Command::Help)));
    }
}
